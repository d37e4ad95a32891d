package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

func code(n int) *int { return &n }

func TestOutcomes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		job  protocol.Job
		args string
		want protocol.Report
	}{
		"success":               {job: protocol.Job{Script: "true"}, want: protocol.Report{Outcome: protocol.Succeeded, ExitCode: code(0)}},
		"exit code":             {job: protocol.Job{Script: "exit 3"}, want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(3), Message: "exit code 3"}},
		"first failure ends it": {job: protocol.Job{Script: "false\nexit 0"}, want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(1), Message: "exit code 1"}},
		"success code":          {job: protocol.Job{Script: "exit 3", SuccessCodes: []int{0, 3}}, want: protocol.Report{Outcome: protocol.Succeeded, ExitCode: code(3)}},
		"0 not a success code":  {job: protocol.Job{Script: "exit 0", SuccessCodes: []int{3}}, want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(0), Message: "exit code 0"}},
		"signal":                {job: protocol.Job{Script: "kill -KILL $$"}, want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(137), Message: "ended by signal 9 (killed)"}},
		"argv":                  {job: protocol.Job{Argv: []string{"test", "{n}", "=", "7"}}, args: `{"n":7}`, want: protocol.Report{Outcome: protocol.Succeeded, ExitCode: code(0)}},
		"argv without argument": {
			job:  protocol.Job{Argv: []string{"echo", "{n}"}},
			want: protocol.Report{Outcome: protocol.Failed, Message: "argv: the order has no argument n (for a literal {n} write {{n}})"},
		},
		"no such program": {
			job:  protocol.Job{Argv: []string{"no-such-program"}},
			want: protocol.Report{Outcome: protocol.Failed, Message: `argv: program "no-such-program": file does not exist in PATH`},
		},
		"neither script nor argv": {job: protocol.Job{}, want: protocol.Report{Outcome: protocol.Rejected, Message: "job job must have either a script or an argv"}},
		"outputs": {
			job:  protocol.Job{Script: `printf ' {"a":1} ' > "$SIDING_OUTPUT_FILE"`},
			want: protocol.Report{Outcome: protocol.Succeeded, ExitCode: code(0), Outputs: json.RawMessage(`{"a":1}`)},
		},
		"empty outputs": {job: protocol.Job{Script: `: > "$SIDING_OUTPUT_FILE"`}, want: protocol.Report{Outcome: protocol.Succeeded, ExitCode: code(0)}},
		"broken outputs": {
			job: protocol.Job{Script: `echo '{"a":' > "$SIDING_OUTPUT_FILE"`},
			want: protocol.Report{
				Outcome: protocol.Failed, ExitCode: code(0), Message: "outputs: not valid JSON at byte 5: unexpected end of JSON input",
			},
		},
		"outputs not an object": {
			job:  protocol.Job{Script: `echo '[1]' > "$SIDING_OUTPUT_FILE"`},
			want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(0), Message: "outputs: not a JSON object"},
		},
		"outputs null": {
			job:  protocol.Job{Script: `echo null > "$SIDING_OUTPUT_FILE"`},
			want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(0), Message: "outputs: null is not a JSON object"},
		},
		"outputs too big": {
			job:  protocol.Job{Script: `head -c 1048577 /dev/zero | tr '\0' ' ' > "$SIDING_OUTPUT_FILE"`},
			want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(0), Message: "outputs: more than 1048576 bytes"},
		},
		"outputs a pipe": {
			job:  protocol.Job{Script: `mkfifo "$SIDING_OUTPUT_FILE"`},
			want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(0), Message: "outputs: not a regular file"},
		},
		"outputs of a failure": {
			job:  protocol.Job{Script: `echo '{"a":1}' > "$SIDING_OUTPUT_FILE"; exit 1`},
			want: protocol.Report{Outcome: protocol.Failed, ExitCode: code(1), Message: "exit code 1"},
		},
		"variable that can't be": {
			job:  protocol.Job{Script: "true", Env: map[string]string{"A=B": "1"}},
			want: protocol.Report{Outcome: protocol.Rejected, Message: `env: "A=B" can't be set`},
		},
	}
	ctl := newFake()
	start(t, ctl, nil)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.job.Name = "job"
			lease := protocol.Lease{Job: &test.job, Args: json.RawMessage(test.args)}
			test.want.LeaseRef = ctl.add(lease)
			if diff := cmp.Diff(test.want, ctl.report(t, test.want.LeaseRef)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a value holds must never become more than one argument, nor code.
func TestArgvIsNoCode(t *testing.T) {
	t.Parallel()
	evil := "a b'; touch owned; $(touch owned) `touch owned` \"\n{other} -x"
	args, err := json.Marshal(map[string]any{"evil": evil, "other": "expanded"})
	if err != nil {
		t.Fatal(err)
	}
	ctl := newFake()
	r := start(t, ctl, func(cfg *Config) { cfg.KeepWork = true })
	ref := ctl.add(protocol.Lease{Args: args, Job: &protocol.Job{Name: "job", Argv: []string{"printf", "<%s>", "x={evil}", "{{evil}}"}}})
	if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded {
		t.Fatalf("report: %+v", got)
	}
	if diff := cmp.Diff("<x="+evil+"><{evil}>", ctl.stdout(ref)); diff != "" {
		t.Error(diff)
	}
	found, err := filepath.Glob(filepath.Join(r.agent.cfg.WorkRoot, "*", "*", "owned"))
	if err != nil || len(found) != 0 {
		t.Errorf("a value was run as code: %v, %v", found, err)
	}
}

func TestEnvironmentOfAJob(t *testing.T) {
	t.Setenv("AGENT_TEST_SECRET", "secret")
	t.Setenv("AGENT_TEST_PASSED", "passed")
	ctl := newFake()
	ctl.attachments["scan.pdf"] = []byte("bytes of the scan")
	start(t, ctl, func(cfg *Config) { cfg.PassEnv = []string{"AGENT_TEST_PASSED", "AGENT_TEST_UNSET"} })
	ref := ctl.add(protocol.Lease{
		Ref: "R-1", Workflow: "intake", Version: 3, StepPath: "1.2", Queue: "Q1", Key: "acme", Attempt: 2,
		Args:        json.RawMessage(`{"n":1.50,"text":"two words","flag":true,"none":null,"list":[1],"a-b":"first","a_b":"second"}`),
		Attachments: []protocol.Attachment{{Name: "scan.pdf", Size: 17}},
		Job: &protocol.Job{
			Name: "check", Env: map[string]string{"MODE": "{n}", "SIDING_KEY": "forged"},
			Script: `env | sort; echo "cwd=$(pwd)"; cat "$SIDING_ATTACHMENT_SCAN_PDF"; echo; cat "$SIDING_ORDER_FILE"; ls -ld . | cut -c1-10; : > "$TMPDIR/x"`,
		},
	})
	if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded {
		t.Fatalf("report: %+v, stderr: %s", got, ctl.stream(ref, "stderr"))
	}
	out := ctl.stdout(ref)
	_, rest, _ := strings.Cut(out, "\ncwd=")
	dir, _, _ := strings.Cut(rest, "\n")

	var variables []string
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, "SIDING_") || strings.HasPrefix(name, "AGENT_TEST") || name == "MODE" || name == "TMPDIR" {
			variables = append(variables, strings.ReplaceAll(strings.TrimSpace(line), dir, "DIR"))
		}
	}
	variables = slices.DeleteFunc(variables, func(v string) bool { return strings.HasPrefix(v, "SIDING_RUN_ID=") })
	want := []string{
		"AGENT_TEST_PASSED=passed", "MODE={n}", "SIDING_ARG_A_B=first", "SIDING_ARG_FLAG=true", "SIDING_ARG_N=1.50", "SIDING_ARG_TEXT=two words",
		"SIDING_ATTACHMENT_SCAN_PDF=DIR/attachments/scan.pdf", "SIDING_ATTEMPT=2", "SIDING_JOB=check", "SIDING_KEY=acme",
		"SIDING_ORDER_FILE=DIR/order.json", "SIDING_ORDER_ID=101", "SIDING_OUTPUT_FILE=DIR/output.json", "SIDING_QUEUE=Q1",
		"SIDING_REF=R-1", "SIDING_STEP=1.2", "SIDING_WORKFLOW=intake", "TMPDIR=DIR/tmp",
	}
	if diff := cmp.Diff(want, variables); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(out, "\nbytes of the scan\n") || !strings.Contains(out, "\ndrwx------\n") {
		t.Errorf("attachment or directory isn't right:\n%s", out)
	}
	begin, end := strings.Index(out, "\n{\n"), strings.Index(out, "\n}\n")
	if begin < 0 || end < begin {
		t.Fatalf("no order file in\n%s", out)
	}
	var order orderDocument
	if err := json.Unmarshal([]byte(out[begin:end+2]), &order); err != nil {
		t.Fatal(err)
	}
	order.Args = nil
	wantOrder := orderDocument{
		ID: 101, Ref: "R-1", Workflow: "intake", Version: 3, StepPath: "1.2", Job: "check", Key: "acme", Queue: "Q1", Attempt: 2,
		Attachments: []attachmentDocument{{Name: "scan.pdf", Path: dir + "/attachments/scan.pdf", Size: 17}},
	}
	if diff := cmp.Diff(wantOrder, order); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the working directory is left: %v", err)
	}
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	sum := sha256.Sum256(content)
	good := hex.EncodeToString(sum[:])
	tests := map[string]struct {
		attachment protocol.Attachment
		breakAfter int
		outcome    protocol.Outcome
		message    string
	}{
		"good":          {attachment: protocol.Attachment{Name: "a", Size: 160_000, SHA256: strings.ToUpper(good)}, outcome: protocol.Succeeded},
		"broken off":    {attachment: protocol.Attachment{Name: "a", Size: 160_000, SHA256: good}, breakAfter: 50_000, outcome: protocol.Succeeded},
		"no hash":       {attachment: protocol.Attachment{Name: "a", Size: 160_000}, outcome: protocol.Succeeded},
		"other bytes":   {attachment: protocol.Attachment{Name: "a", Size: 160_000, SHA256: strings.Repeat("0", 64)}, outcome: protocol.Rejected, message: "attachment a: SHA-256 is " + good + ", expected " + strings.Repeat("0", 64)},
		"longer":        {attachment: protocol.Attachment{Name: "a", Size: 159_999}, outcome: protocol.Rejected, message: "attachment a: more than the expected 159999 bytes"},
		"shorter":       {attachment: protocol.Attachment{Name: "a", Size: 160_001}, outcome: protocol.Rejected, message: "attachment a: only 160000 of the expected 160001 bytes"},
		"leads outside": {attachment: protocol.Attachment{Name: "../a", Size: 1}, outcome: protocol.Rejected, message: `attachment "../a": the name can't be a file's name, or stands twice`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctl := newFake()
			ctl.attachments["a"] = content
			ctl.breakAfter = test.breakAfter
			start(t, ctl, nil)
			ref := ctl.add(protocol.Lease{
				Attachments: []protocol.Attachment{test.attachment}, Job: &protocol.Job{Name: "job", Script: `test "$(wc -c < attachments/a)" -eq 160000`},
			})
			got := ctl.report(t, ref)
			if got.Outcome != test.outcome || got.Message != test.message {
				t.Errorf("report: %+v", got)
			}
			if test.breakAfter > 0 && ctl.reads != 4 {
				t.Errorf("read %d times, want 4, each from where the last broke off", ctl.reads)
			}
		})
	}
}

// A job that takes away its own rights must not leave its directory behind.
func TestWorkdirIsRemovedWhateverTheJobDid(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "work")
	inner := filepath.Join(dir, "closed", "inner")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inner, "file"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{inner, filepath.Dir(inner)} {
		if err := os.Chmod(path, 0o000); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
}
