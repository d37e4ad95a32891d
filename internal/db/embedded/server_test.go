package embedded_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db/embedded"
)

// childEnv makes the test binary a process that starts a server in the folder
// named (or a temporary one) and tells where, until it is killed.
const childEnv = "SIDING_TEST_EMBEDDED_CHILD"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(childEnv); ok {
		child(dir)
	}
	os.Exit(m.Run())
}

// report is what the child tells.
type report struct {
	Pid     int
	Folders []string
}

func child(dir string) {
	s, err := embedded.Start(context.Background(), embedded.Config{Dir: dir, NoSync: true, Settings: fast})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(report{s.Pid(), s.Folders()}) // the parent notices
	select {}
}

var fast = map[string]string{"fsync": "off"}

// folder makes a folder that the server's account can enter: those of
// t.TempDir belong to root alone if we are root.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "siding-embedded-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // see above
		t.Fatal(err)
	}
	return dir
}

func start(t *testing.T, config embedded.Config) *embedded.Server {
	t.Helper()
	config.NoSync = true
	if config.Settings == nil {
		config.Settings = fast
	}
	s, err := embedded.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *embedded.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// ask runs statements and returns the last one's value.
func ask(t *testing.T, s *embedded.Server, statements ...string) (got string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) // the test is done with it
	for i, statement := range statements {
		if i < len(statements)-1 {
			_, err = conn.Exec(t.Context(), statement)
		} else {
			err = conn.QueryRow(t.Context(), statement).Scan(&got)
		}
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return got
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

func TestTemporaryServer(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Settings: map[string]string{"fsync": "off", "work_mem": "7MB"}})
	if got, want := ask(t, s, `SELECT current_setting('work_mem') || ' ' || current_setting('server_encoding') || ' ' || current_user`), "7MB UTF8 postgres"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	stop(t, s)
	<-s.Exited()
	for _, dir := range s.Folders() {
		if !missing(dir) {
			t.Errorf("%s is still there", dir)
		}
	}
}

func TestDataIsKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "dev")
	first := start(t, embedded.Config{Dir: dir})
	ask(t, first, `CREATE TABLE kept AS SELECT 'as it was'::text AS x`, `SELECT 'done'`)
	stop(t, first)
	second := start(t, embedded.Config{Dir: dir})
	if got := ask(t, second, `SELECT x FROM kept`); got != "as it was" {
		t.Errorf("got %q", got)
	}
}

func TestOtherMajorVersionIsRefused(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(data, "PG_VERSION")
	if err := os.WriteFile(version, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "the data is of Postgres 9") {
		t.Errorf("got %v, want that the version is refused", err)
	}
	if text, err := os.ReadFile(version); err != nil || string(text) != "9\n" {
		t.Errorf("the data was touched: PG_VERSION is %q, %v", text, err)
	}
}

func TestServerThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := embedded.Start(t.Context(), embedded.Config{NoSync: true, Settings: map[string]string{"nonsense": "1"}})
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "nonsense"`) {
		t.Errorf("got %v, want the server's own words", err)
	}
}

func TestStopHasALimit(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(t.Context(), embedded.Config{NoSync: true, Settings: fast})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err == nil || !errors.Is(err, s.Stop(t.Context())) {
		t.Errorf("got %v, want the same error each time", err)
	}
	if !embedded.Gone(s.Pid()) {
		t.Error("the server still runs")
	}
}

// startChild starts a process that starts a server.
func startChild(t *testing.T, dir string) (*exec.Cmd, report) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var r report
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		t.Fatalf("the child's report: %q, %v", line, err)
	}
	return cmd, r
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not after 30 s", what)
		}
	}
}

func TestServerEndsWithTheProcessThatIsKilled(t *testing.T) {
	t.Parallel()
	cmd, r := startChild(t, "")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	await(t, "the server ends", func() bool { _, err := os.Stat(filepath.Join(r.Folders[0], "postmaster.pid")); return err != nil })
	for _, dir := range r.Folders {
		await(t, dir+" is removed", func() bool { return missing(dir) })
	}
	await(t, "its folder is removed", func() bool { return missing(filepath.Dir(r.Folders[0])) })
}

func TestDataSurvivesTheProcessThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	cmd, _ := startChild(t, dir)
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, StartTimeout: time.Second, AwaitPrevious: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "is in use by process") {
		t.Errorf("a second server on the same data: got %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	s := start(t, embedded.Config{Dir: dir})
	if got := ask(t, s, `SELECT 'works'`); got != "works" {
		t.Errorf("got %q", got)
	}
}
