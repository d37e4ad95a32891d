package agent

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

const (
	// envPrefix begins the variables that only the agent sets.
	envPrefix = "SIDING_"
	// envRunID marks all processes of one attempt.
	envRunID = envPrefix + "RUN_ID"

	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Bounds of SIDING_ARG_ variables: the system refuses to start a program whose
// environment is too big, and big values are in the order file anyway.
const (
	maxArgVariableBytes  = 32 << 10
	maxArgVariablesBytes = 256 << 10
)

// environment builds a job's environment, sorted. Later groups go before
// earlier ones: base, passed through, the job's own, SIDING_*.
func environment(passEnv []string, lease protocol.Lease, dir workdir, runID string) ([]string, error) {
	env := map[string]string{
		"PATH":   envOr("PATH", defaultPath),
		"HOME":   envOr("HOME", "/"),
		"LANG":   envOr("LANG", "C.UTF-8"),
		"TMPDIR": dir.tmp(),
	}
	for _, name := range passEnv {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	for name, value := range lease.Job.Env {
		if !validEnvName(name) || strings.ContainsRune(value, 0) {
			return nil, rejected("env: %q can't be set", name)
		}
		if !strings.HasPrefix(name, envPrefix) {
			env[name] = value
		}
	}

	for name, value := range argVariables(lease.Args) {
		env[envPrefix+"ARG_"+name] = value
	}
	for _, attachment := range lease.Attachments {
		name := envPrefix + "ATTACHMENT_" + variableName(attachment.Name)
		if _, taken := env[name]; !taken {
			env[name] = dir.attachment(attachment.Name)
		}
	}
	env[envRunID] = runID
	env[envPrefix+"ORDER_ID"] = strconv.FormatInt(lease.Order, 10)
	env[envPrefix+"REF"] = lease.Ref
	env[envPrefix+"WORKFLOW"] = lease.Workflow
	env[envPrefix+"STEP"] = lease.StepPath
	env[envPrefix+"JOB"] = lease.Job.Name
	env[envPrefix+"KEY"] = lease.Key
	env[envPrefix+"QUEUE"] = lease.Queue
	env[envPrefix+"ATTEMPT"] = strconv.Itoa(lease.Attempt)
	env[envPrefix+"ORDER_FILE"] = dir.orderFile()
	env[envPrefix+"OUTPUT_FILE"] = dir.outputFile()

	list := make([]string, 0, len(env))
	for name, value := range env {
		if strings.ContainsRune(value, 0) {
			return nil, rejected("env: the value of %s has a NUL byte", name)
		}
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list, nil
}

// argVariables are the scalar top-level arguments by variable name. Of several
// whose names differ only in characters that variables can't have, the first
// by name counts. Left out are null, and values that are too big or hold a NUL.
func argVariables(args json.RawMessage) map[string]string {
	var object map[string]json.RawMessage
	if len(args) == 0 || json.Unmarshal(args, &object) != nil {
		return nil
	}
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)

	variables := make(map[string]string, len(names))
	total := 0
	for _, name := range names {
		value, ok := scalarText(object[name])
		variable := variableName(name)
		if _, taken := variables[variable]; taken || !ok || variable == "" {
			continue
		}
		size := len(variable) + len(value)
		if strings.ContainsRune(value, 0) || size > maxArgVariableBytes || total+size > maxArgVariablesBytes {
			continue
		}
		total += size
		variables[variable] = value
	}
	return variables
}

// scalarText is a JSON string, number or boolean as text.
func scalarText(value json.RawMessage) (string, bool) {
	switch {
	case len(value) == 0:
		return "", false
	case value[0] == '"':
		var text string
		err := json.Unmarshal(value, &text)
		return text, err == nil
	case value[0] == '{' || value[0] == '[' || value[0] == 'n':
		return "", false
	default:
		return string(value), true
	}
}

// variableName is a name in capitals with _ for all but ASCII letters and digits.
func variableName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

func validEnvName(name string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00")
}

func envOr(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}
