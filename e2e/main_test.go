// Package e2e_test runs the whole thing: the real binary, as several controllers
// and agents in processes of their own, on a Postgres that waits for the disk,
// with real shell jobs, over HTTP through the public client.
//
// It takes a minute and is left out by -short. Variables of the environment:
// E2E_LONG=1 leaves the idle transaction open for a minute instead of ten
// seconds; E2E_RACE=1 builds the binary with the race detector.
package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/db/embedded"
)

// binary is the path of the controller, built once.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// build builds the binary and runs the tests.
func build(m *testing.M) (int, error) {
	if testing.Short() {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "siding-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "controller")
	args := []string{"build", "-o", binary}
	if os.Getenv("E2E_RACE") != "" {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "../cmd/controller")...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the controller: %w\n%s", err, out)
	}
	defer stopServer()
	return dbtest.Run(m), nil
}

const serverTimeout = time.Minute

var serverStarted atomic.Bool

// theServer is a Postgres of this package's own, with the settings that it has
// for users: commits wait for the disk.
var theServer = sync.OnceValues(func() (*embedded.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	s, err := embedded.Start(ctx, embedded.Config{Settings: map[string]string{"max_connections": "200"}})
	if err == nil {
		serverStarted.Store(true)
	}
	return s, err
})

func stopServer() {
	if !serverStarted.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	s, err := theServer()
	if err == nil {
		err = s.Stop(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
}

var databases atomic.Int64

// emptyDatabase returns the address of a database without the schema. Where the
// environment says which server tests use, it is on that one.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	if os.Getenv("SIDING_TEST_REQUIRE") == "docker" || os.Getenv("SIDING_TEST_DATABASE_URL") != "" {
		return dbtest.EmptyURL(t)
	}
	s, err := theServer()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	name := fmt.Sprintf("e2e_%d", databases.Add(1))
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.URL(name)
}
