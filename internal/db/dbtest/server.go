package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"

	"github.com/siding-dev/siding/internal/db/embedded"
)

// The environment variables that choose the server.
const (
	urlEnv     = "SIDING_TEST_DATABASE_URL"   // an existing server, as a user who may create databases
	imageEnv   = "SIDING_TEST_POSTGRES_IMAGE" // the image for Docker
	requireEnv = "SIDING_TEST_REQUIRE"        // docker or local: fail rather than use anything else

	defaultImage = "postgres:17-alpine"
)

const (
	startTimeout  = 3 * time.Minute
	dockerTimeout = 5 * time.Second
)

// testSettings trade safety for speed: nothing here has to survive a crash of
// the machine.
var testSettings = map[string]string{
	"fsync": "off", "max_connections": "300", "shared_buffers": "128MB", "max_wal_size": "1GB",
}

// server is the Postgres that this test binary uses.
type server struct {
	base *url.URL
	run  string // begins the name of each database of this test binary
	stop func(ctx context.Context) error

	admin *pgxpool.Pool // creates and drops databases
	alive *pgx.Conn     // holds the run's lock, see sweep
}

// theServer returns the one server of this test binary, chosen and started at
// its first use.
var theServer = sync.OnceValues(func() (*server, error) {
	started.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return chooseServer(ctx)
})

// started says that a test has asked for the server.
var started atomic.Bool

// chooseServer is the one place where it is decided what tests run against: an
// address in the environment, else Docker if it answers, else the Postgres
// binaries of this machine.
func chooseServer(ctx context.Context) (*server, error) {
	required := os.Getenv(requireEnv)
	if required != "" && required != "docker" && required != "local" {
		return nil, fmt.Errorf("%s=%s: must be docker or local", requireEnv, required)
	}
	if address := os.Getenv(urlEnv); address != "" && required == "" {
		announce("the server in " + urlEnv)
		return connectServer(ctx, address)
	}
	var dockerErr error
	if required != "local" {
		var s *server
		if s, dockerErr = startContainer(ctx); dockerErr == nil {
			return s, nil
		}
		if required == "docker" {
			return nil, fmt.Errorf("%s=docker: %w", requireEnv, dockerErr)
		}
	}
	s, err := startLocal(ctx)
	if err != nil {
		return nil, errors.Join(err, dockerErr)
	}
	return s, nil
}

// announce says on standard error what was chosen; one line per test binary.
func announce(what string) { fmt.Fprintln(os.Stderr, "dbtest: tests use "+what) }

func startContainer(ctx context.Context) (*server, error) {
	if err := dockerAnswers(ctx); err != nil {
		return nil, err
	}
	image := os.Getenv(imageEnv)
	if image == "" {
		image = defaultImage
	}
	args := []string{"postgres"}
	for name, value := range testSettings {
		args = append(args, "-c", name+"="+value)
	}
	container, err := postgres.Run(ctx, image, testcontainers.WithCmd(args...), postgres.BasicWaitStrategies())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start container of %s: %w", image, err), testcontainers.TerminateContainer(container))
	}
	stop := func(ctx context.Context) error { return container.Terminate(ctx) }
	address, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("address of the container: %w", err), stop(ctx))
	}
	s, err := connectServer(ctx, address)
	if err != nil {
		return nil, errors.Join(err, stop(ctx))
	}
	s.stop = stop
	announce("a container of " + image)
	return s, nil
}

// dockerAnswers asks the Docker engine for a sign of life.
func dockerAnswers(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil { // testcontainers panics when it finds no engine
			err = fmt.Errorf("docker: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	tclog.SetDefault(tclog.NewNoopLogger()) // it reports every step otherwise
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	defer provider.Close() // only a question was asked
	if err := provider.Health(ctx); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}

func startLocal(ctx context.Context) (*server, error) {
	pg, err := embedded.Start(ctx, embedded.Config{NoSync: true, Settings: testSettings})
	if err != nil {
		return nil, err
	}
	s, err := connectServer(ctx, pg.URL("postgres"))
	if err != nil {
		return nil, errors.Join(err, pg.Stop(ctx))
	}
	s.stop = pg.Stop
	announce(fmt.Sprintf("a private Postgres %d from %s", pg.Binaries().Major, pg.Binaries().Dir))
	return s, nil
}

// Main runs a package's tests and then ends the server; for TestMain. Without
// it a local server ends with the test binary all the same, and a container is
// removed by testcontainers' reaper, if that is on.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that has something to clean up itself: it returns
// the exit code.
func Run(m *testing.M) int {
	code := m.Run()
	if started.Load() {
		if s, err := theServer(); err == nil {
			if err := s.close(); err != nil {
				fmt.Fprintln(os.Stderr, "dbtest:", err)
			}
		}
	}
	return code
}
