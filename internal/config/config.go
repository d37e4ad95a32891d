// Package config reads the configuration of the controller and of its agents:
// from a file, from environment variables and from flags, the later before the
// earlier. Every key has its default here and its explanation in
// config.example.yaml.
package config

import (
	"time"

	"github.com/dustin/go-humanize"

	"github.com/siding-dev/siding/internal/attachment"
)

// DefaultListen is where the server listens unless told otherwise. It is only
// reachable from the machine itself.
const DefaultListen = "127.0.0.1:8420"

// Config is the whole configuration. [Default] fills in every default; a
// command reads the sections that it needs.
type Config struct {
	Database    Database    `mapstructure:"database"`
	Server      Server      `mapstructure:"server"`
	Auth        Auth        `mapstructure:"auth"`
	Sessions    Sessions    `mapstructure:"sessions"`
	Attachments Attachments `mapstructure:"attachments"`
	Log         Log         `mapstructure:"log"`
	Agent       Agent       `mapstructure:"agent"`
}

// Database says how the controller reaches Postgres.
type Database struct {
	// URL is the address, as a URL or as keyword=value pairs. Required by every
	// command that works on the database. No default.
	URL string `mapstructure:"url"`

	// ListenURL is a direct connection for LISTEN and for migrations, needed
	// where URL goes through PgBouncer. Default: URL.
	ListenURL string `mapstructure:"listen_url"`

	// Schema is the name of the installation's schema. Default: siding.
	Schema string `mapstructure:"schema"`

	// MaxConnections bounds the pool. Default: 20.
	MaxConnections int `mapstructure:"max_connections"`

	// PreparedStatements keeps prepared statements on each connection; false
	// works behind PgBouncer in transaction mode. Default: true.
	PreparedStatements bool `mapstructure:"prepared_statements"`

	// StatementTimeout is the server's limit for one statement. Default: 10s.
	StatementTimeout time.Duration `mapstructure:"statement_timeout"`

	// TransactionTimeout is the limit for one transaction. Default: 30s.
	TransactionTimeout time.Duration `mapstructure:"transaction_timeout"`

	// ConnectTimeout is the limit for opening a connection. Default: 5s.
	ConnectTimeout time.Duration `mapstructure:"connect_timeout"`
}

// Server says how the REST API is served.
type Server struct {
	// Listen is the host and port. Default: 127.0.0.1:8420.
	Listen string `mapstructure:"listen"`

	// TLSCert and TLSKey are PEM files; both or none. Default: plain HTTP.
	TLSCert string `mapstructure:"tls_cert"`
	TLSKey  string `mapstructure:"tls_key"`

	// ShutdownTimeout is how long requests under way may take to end when the
	// controller stops. Default: 10s.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// Auth says who may use the API.
type Auth struct {
	// Tokens are valid besides those in the database (controller token create).
	// Default: none.
	Tokens []Token `mapstructure:"tokens"`

	// DevLoopback lets everybody on this machine in as an administrator,
	// without a token. Refused unless the server listens on loopback alone.
	// Default: false.
	DevLoopback bool `mapstructure:"dev_loopback"`
}

// Token is one access token.
type Token struct {
	// Name stands for who decided.
	Name string `mapstructure:"name"`
	// Role is viewer, submitter, operator, agent or admin.
	Role string `mapstructure:"role"`
	// SHA256 is the hash of the token in hexadecimal: controller token hash.
	SHA256 string `mapstructure:"sha256"`
}

// Sessions says how long a silent agent is waited for.
type Sessions struct {
	// TTL is how long a session lives without a heartbeat. Default: 60s.
	TTL time.Duration `mapstructure:"ttl"`

	// Heartbeat is how often agents send one. Default: 3s.
	Heartbeat time.Duration `mapstructure:"heartbeat"`
}

// Attachments bounds the inputs that arrive apart from their orders.
type Attachments struct {
	// MaxSize is the largest attachment taken. Default: 1 GiB.
	MaxSize Size `mapstructure:"max_size"`

	// Retention is how long the bytes of ended orders are kept; 0s keeps them
	// for ever. Default: 30d.
	Retention time.Duration `mapstructure:"retention"`
}

// Log says what is logged, to standard error.
type Log struct {
	// Level is debug, info, warn or error. Default: info.
	Level string `mapstructure:"level"`

	// Format is text or json. Default: text.
	Format string `mapstructure:"format"`
}

// Agent is the configuration of `controller agent`.
type Agent struct {
	// Name is the name of the agent's definition. Required by the command. No
	// default.
	Name string `mapstructure:"name"`

	// URLs are the controllers' addresses, tried in this order.
	// Default: http://127.0.0.1:8420.
	URLs []string `mapstructure:"urls"`

	// Token is the access token, of role agent. Default: none.
	Token string `mapstructure:"token"`

	// Processes is how many orders run at once. Default: 1.
	Processes int `mapstructure:"processes"`

	// StateDir is kept across restarts and belongs to this agent alone.
	// Default: /var/lib/siding/agents/NAME for root, else
	// ~/.local/state/siding/agents/NAME.
	StateDir string `mapstructure:"state_dir"`

	// WorkDir is where jobs get their private directories.
	// Default: work in StateDir.
	WorkDir string `mapstructure:"work_dir"`

	// KeepWork keeps the private directories, for debugging. Default: false.
	KeepWork bool `mapstructure:"keep_work"`

	// OutputCap is how much of each of stdout and stderr is kept per attempt.
	// Default: 1 MiB.
	OutputCap Size `mapstructure:"output_cap"`

	// Grace is the time between TERM and KILL where the job states none.
	// Default: 10s.
	Grace time.Duration `mapstructure:"grace"`

	// DrainTimeout is how long running jobs may go on when the agent stops; 0s
	// ends them at once. Default: 30s.
	DrainTimeout time.Duration `mapstructure:"drain_timeout"`

	// PassEnv names environment variables of the agent that jobs see.
	// Default: none.
	PassEnv []string `mapstructure:"pass_env"`

	// Unreachable says what happens to running jobs when no controller answered
	// for a session's time to live: end or keep. Default: end.
	Unreachable string `mapstructure:"unreachable"`
}

// Default is the configuration with every default and nothing else.
func Default() Config {
	return Config{
		Database: Database{
			Schema: "siding", MaxConnections: 20, PreparedStatements: true,
			StatementTimeout: 10 * time.Second, TransactionTimeout: 30 * time.Second, ConnectTimeout: 5 * time.Second,
		},
		Server:      Server{Listen: DefaultListen, ShutdownTimeout: 10 * time.Second},
		Auth:        Auth{Tokens: []Token{}},
		Sessions:    Sessions{TTL: time.Minute, Heartbeat: 3 * time.Second},
		Attachments: Attachments{MaxSize: 1 << 30, Retention: attachment.DefaultKeepEnded},
		Log:         Log{Level: "info", Format: "text"},
		Agent: Agent{
			URLs: []string{"http://" + DefaultListen}, Processes: 1, OutputCap: 1 << 20,
			Grace: 10 * time.Second, DrainTimeout: 30 * time.Second, PassEnv: []string{}, Unreachable: "end",
		},
	}
}

// Size is a number of bytes, written with or without a unit: 65536, "64KiB".
type Size int64

// String prints the size as people write it.
func (s Size) String() string {
	if s < 0 {
		return "negative"
	}
	return humanize.IBytes(uint64(s))
}
