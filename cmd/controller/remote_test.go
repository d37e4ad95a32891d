package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/config"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/server"
)

// serve runs a controller in dev mode, and returns its address and that of its
// database.
func serve(t *testing.T) (address, database string) {
	t.Helper()
	c := config.Default()
	c.Database.URL = dbtest.New(t).Config().URL
	c.Server.Listen, c.Auth.DevLoopback, c.Log.Level = "127.0.0.1:0", true, "error"
	s, err := server.Open(t.Context(), c, server.Options{Logger: c.Log.Logger(t.Output())})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s.URL(), c.Database.URL
}

const testDefinitions = `
kind: queue
name: Q1
capacity: 1
---
{kind: agent, name: a1, type: standalone, processes: 1, queues: [Q1], max_blocked: 9}
---
kind: workflow
name: w
ordering: {key: order}
defaults: {agent: a1}
steps: [{job: work, run: "true"}]
`

// TestCommandsOnAController walks through the commands that ask a controller;
// each line goes on where the one before ended.
func TestCommandsOnAController(t *testing.T) {
	t.Parallel()
	address, database := serve(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("definitions.yaml", testDefinitions)
	wrong := write("wrong.yaml", "kind: workflow\nname: x\nordering: independent\ndefaults: {agent: nobody}\nsteps: [{job: j, run: x}]\n")
	scan := write("scan.txt", "hello")
	got := filepath.Join(dir, "got.txt")
	sum := sha256.Sum256([]byte("hello"))
	hash := hex.EncodeToString(sum[:])
	array := `[{"workflow": "w", "key": "K4", "ref": "J4"}, {"workflow": "w", "key": "K4", "ref": "J5"}]`
	lines := `{"workflow": "w", "key": "K6", "ref": "J6"}` + "\n" + `{"workflow": "w", "key": "K7", "ref": "J7"}`

	for _, step := range []struct {
		line string
		in   string
		code int
		want []string // in the output, or in the errors if the code isn't 0
	}{
		{line: "apply -f " + wrong, code: cli.ExitNo, want: []string{"agent nobody", "code:  unknown_agent"}},
		{line: "apply -f " + file, want: []string{"queue     Q1    created", "workflow  w     created  1         1"}},
		{line: "apply -f -", in: testDefinitions, want: []string{"unchanged"}},
		{line: "list queues", want: []string{"Q1", `"capacity":1`}},
		{line: "get agent a1", want: []string{"# agent a1, revision 1", `"max_blocked": 9`}},
		{line: "get agent a1 -o json", want: []string{`"revision": 1`}},
		{line: "delete queue Q1", code: cli.ExitNo, want: []string{"code:  queue_listed"}},
		{line: "delete queue Q9", code: cli.ExitNo, want: []string{"code:  unknown_queue"}},

		{line: "order add --workflow w --key K1 --ref J1 --queue Q1 --arg a=1", want: []string{"1   new"}},
		{line: "order add --workflow w --key K1 --ref J1 --queue Q1 --arg a=1", want: []string{"1   was there"}},
		{line: "order add --workflow w --key K2 --ref J1", code: cli.ExitNo, want: []string{"code:  reference_conflict"}},
		{line: "order add --workflow w", code: cli.ExitNo, want: []string{"code:  key_required"}},
		{line: "order add --workflow w --key K2 --ref J2 --attachment scan,size=5,sha256=" + hash, want: []string{"new"}},
		{line: "order add --workflow w --key K2 --ref J3 --inline note=" + scan, want: []string{"new"}},
		{line: "order add -f -", in: array, want: []string{"new"}},
		{line: "order add -f - -o json", in: lines, want: []string{`"existing": false`}},
		{line: "order add -f -", in: `{"workflow": "w"} nonsense`, code: cli.ExitFailed, want: []string{"order 2 is not JSON"}},

		{line: "order list --ref J", want: []string{"J1   w         K1   Q1", "J7"}},
		{line: "order list --queue - --limit 2", want: []string{"go on with --cursor"}},
		{line: "order list --limit 2 --all -o json", want: []string{`"ref": "J1"`, `"ref": "J7"`}},
		{line: "order list --state sleeping", code: cli.ExitNo, want: []string{"code:  invalid_filter"}},
		{line: "order show ref:J2", want: []string{"blocked", "attachment scan", "pending"}},
		{line: "order show ref:nobody", code: cli.ExitNo, want: []string{"code:  order_not_found"}},
		{line: "why ref:J2", want: []string{"attachment_pending", "scan", "is blocked"}},
		{line: "why ref:J3 -o json", want: []string{`"code": "key_held"`}},
		{line: "queue lists Q1", want: []string{"waiting", "J1"}},
		{line: "queue lists - --list waiting", want: []string{"J4"}},
		{line: "queue overflow Q1", want: []string{"agent a1", "in the queue"}},
		{line: "queue lists Q9", code: cli.ExitNo, want: []string{"code:  unknown_queue"}},

		{line: "attachment list ref:J2", want: []string{"scan  pending  5 B"}},
		{line: "attachment complete ref:J2 scan", code: cli.ExitNo, want: []string{"code:  attachment_needs_bytes"}},
		{line: "attachment put ref:J2 scan " + scan, want: []string{"scan  complete"}},
		{line: "attachment get ref:J2 scan", want: []string{"hello"}},
		{line: "attachment get ref:J2 scan " + got, want: []string{"5 B"}},
		{line: "attachment get ref:J2 scan " + got, code: cli.ExitFailed, want: []string{"exists"}},
		{line: "attachment expect ref:J4 late --size 9", want: []string{"late  pending  9 B"}},
		{line: "attachment put ref:J4 late -", in: "much too long", code: cli.ExitNo, want: []string{"code:  attachment_check_failed"}},
		{line: "order resolve ref:J4 --action resume", code: cli.ExitNo, want: []string{"code:  reason_required"}},
		{line: "order resolve ref:J4 --action resume --reason again --on-behalf-of Eve", want: []string{"J4"}},
		{line: "attachment discard ref:J4 late", code: cli.ExitNo, want: []string{"code:  reason_required"}},
		{line: "order history ref:J4", want: []string{"added", "again", "dev for Eve"}},

		{line: "order move ref:J7 --first --reason urgent", want: []string{"J7"}},
		{line: "order move ref:J7 --after ref:J6", want: []string{"J7"}},
		{line: "order move ref:J7 --after ref:J1", code: cli.ExitNo, want: []string{"code:  different_queue"}},
		{line: "order assign ref:J7 --queue Q1", want: []string{"Q1"}},
		{line: "order assign ref:J7 --queue -", want: []string{"J7"}},
		{line: "order suspend ref:J6 ref:J7 --reason lunch", want: []string{"J6", "J7", "suspended"}},
		{line: "order resume ref:J6 ref:J1", code: cli.ExitNo, want: []string{"code:  not_suspended"}},
		{line: "order release ref:J3 --reason hurry", want: []string{"J3"}},
		{line: "order cancel ref:J5", want: []string{"cancelled"}},
		{line: "order output ref:J1", want: nil},
		{line: "order outputs ref:J1", want: []string{"no values"}},

		{line: "line show a1", want: []string{"a1     pass"}},
		{line: "line set a1 --mode strict", code: cli.ExitNo, want: []string{"code:  reason_required"}},
		{line: "line set a1 --mode strict --reason audit", want: []string{"set_by_person", "audit"}},
		{line: "pause queue Q1 --reason repair --until 2h", want: []string{"Q1", "repair", "in "}},
		{line: "pause", want: []string{"repair"}},
		{line: "unpause queue Q1", want: []string{"isn't paused"}},
		{line: "session list", want: []string{"no sessions"}},
		{line: "event list", want: []string{"apply", "workflow/w", "hurry"}},
		{line: "event list --limit 1", want: []string{"go on with --cursor"}},
		{line: "forecast agent a1 --config /dev/null --database-url " + database, want: []string{"J1   Q1"}},

		{line: "token create x --role boss", code: cli.ExitNo, want: []string{"code:  invalid_"}},
		{line: "token create x --role viewer", want: []string{"siding_"}},
		{line: "token create y --role admin --direct --config /dev/null --database-url " + database + " -o json", want: []string{`"secret": "siding_`}},
		{line: "token list", want: []string{"x     viewer", "y     admin"}},
		{line: "token revoke x", want: []string{"void"}},
		{line: "token revoke z", code: cli.ExitNo, want: []string{"code:  token_not_found"}},
		{line: "order list --token nonsense", code: cli.ExitNo, want: []string{"code:  unauthorized"}},
	} {
		args := append([]string{"--url", "http://127.0.0.1:1," + address}, strings.Fields(step.line)...)
		result := command(t.Context(), step.in, args...)
		said := result.out
		if step.code != 0 {
			said = result.err
		}
		failed := result.code != step.code
		for _, want := range step.want {
			failed = failed || !strings.Contains(said, want)
		}
		if failed {
			t.Errorf("%s:\n%+v\nwant code %d and %q", step.line, result, step.code, step.want)
		}
		if strings.Contains(step.line, "-o json") && !json.Valid([]byte(result.out)) {
			t.Errorf("%s: not JSON: %s", step.line, result.out)
		}
	}
	if text, err := os.ReadFile(got); err != nil || string(text) != "hello" {
		t.Errorf("received %q, %v", text, err)
	}
}

// TestFollowEvents follows the log until the context ends.
func TestFollowEvents(t *testing.T) {
	t.Parallel()
	address, _ := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines := make(chan string)
	done := make(chan int, 1)
	go func() {
		done <- execute(ctx, []string{"event", "list", "--follow", "-o", "json", "--url", address},
			cli.Streams{In: strings.NewReader(""), Out: lineWriter{ctx, lines}, Err: lineWriter{ctx, lines}})
	}()
	// What happens before the follower is there isn't followed, so it happens
	// again until something is.
	for i := 1; ; i++ {
		text := fmt.Sprintf("{kind: queue, name: Q1, capacity: %d}", i)
		if result := command(t.Context(), text, "apply", "-f", "-", "--url", address); result.code != 0 {
			t.Fatalf("%+v", result)
		}
		select {
		case line := <-lines:
			var event struct{ Kind, Subject string }
			if err := json.Unmarshal([]byte(line), &event); err != nil || event.Kind != "apply" || event.Subject != "queue/Q1" {
				t.Errorf("%s, %v", line, err)
			}
			cancel()
			if code := <-done; code != cli.ExitFailed {
				t.Errorf("exit code %d", code)
			}
			return
		default:
		}
	}
}

// lineWriter passes each write on.
type lineWriter struct {
	ctx   context.Context
	lines chan<- string
}

func (w lineWriter) Write(p []byte) (int, error) {
	select {
	case w.lines <- string(p):
		return len(p), nil
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
}
