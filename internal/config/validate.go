package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/token"
)

// problems collects what is wrong, each beginning with its key.
type problems []error

func (p *problems) check(ok bool, key, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
}

func (p *problems) atLeast(key string, d, least time.Duration) {
	p.check(d >= least, key, "%s, must be at least %s", d, least)
}

// Validate reports everything that is wrong in the sections of the server, all
// errors joined, each named by its key.
func (c Config) Validate() error {
	var p problems
	c.Database.validate(&p)
	c.Server.validate(&p)
	c.Auth.validate(&p, c.Server.Listen)
	p.atLeast("sessions.heartbeat", c.Sessions.Heartbeat, 100*time.Millisecond)
	// A lease that no heartbeat named goes back after 10 s.
	p.check(c.Sessions.Heartbeat <= 5*time.Second, "sessions.heartbeat", "%s, must be at most 5s", c.Sessions.Heartbeat)
	p.check(c.Sessions.TTL >= 2*c.Sessions.Heartbeat, "sessions.ttl", "%s, must be at least twice sessions.heartbeat", c.Sessions.TTL)
	p.check(c.Attachments.MaxSize > 0, "attachments.max_size", "must be more than 0")
	p.check(c.Attachments.Retention == 0 || c.Attachments.Retention >= time.Minute, "attachments.retention",
		"%s, must be 0s or at least 1m", c.Attachments.Retention)
	c.Log.validate(&p)
	return errors.Join(p...)
}

// ValidateDatabase is Validate for commands that need nothing but the database.
func (c Config) ValidateDatabase() error {
	var p problems
	c.Database.validate(&p)
	c.Log.validate(&p)
	return errors.Join(p...)
}

// ValidateAgent is Validate for `controller agent`. What the agent itself
// checks is left to it.
func (c Config) ValidateAgent() error {
	var p problems
	a := c.Agent
	p.check(a.Name != "", "agent.name", "missing; it is the name of the agent's definition")
	p.check(len(a.URLs) > 0, "agent.urls", "missing; it is the address of a controller")
	for _, text := range a.URLs {
		u, err := url.Parse(text)
		p.check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "",
			"agent.urls", "%q is not an address such as https://siding.example.com", text)
	}
	p.check(a.Processes >= 1, "agent.processes", "%d, must be at least 1", a.Processes)
	p.check(a.OutputCap > 0, "agent.output_cap", "must be more than 0")
	p.atLeast("agent.grace", a.Grace, time.Millisecond)
	p.check(a.Unreachable == "end" || a.Unreachable == "keep", "agent.unreachable", "%q is neither end nor keep", a.Unreachable)
	c.Log.validate(&p)
	return errors.Join(p...)
}

func (d Database) validate(p *problems) {
	if d.URL == "" {
		p.check(false, "database.url", "missing; for example postgres://siding@db.example.com/siding")
	} else if err := (db.Config{URL: d.URL}).Validate(); err != nil {
		p.check(false, "database.url", "%v", err)
	}
	if d.ListenURL != "" {
		if err := (db.Config{URL: d.ListenURL}).Validate(); err != nil {
			p.check(false, "database.listen_url", "%v", err)
		}
	}
	if _, err := db.NewSchema(d.Schema); err != nil {
		p.check(false, "database.schema", "%v", err)
	}
	p.check(d.MaxConnections >= 4 && d.MaxConnections <= 10_000, "database.max_connections", "%d, must be from 4 to 10000", d.MaxConnections)
	p.atLeast("database.statement_timeout", d.StatementTimeout, time.Millisecond)
	p.atLeast("database.transaction_timeout", d.TransactionTimeout, time.Millisecond)
	p.atLeast("database.connect_timeout", d.ConnectTimeout, time.Millisecond)
}

func (s Server) validate(p *problems) {
	_, port, err := net.SplitHostPort(s.Listen)
	p.check(err == nil && port != "", "server.listen", "%q is not host:port, such as %s", s.Listen, DefaultListen)
	switch {
	case s.TLSCert != "" && s.TLSKey == "":
		p.check(false, "server.tls_key", "missing, as server.tls_cert is given")
	case s.TLSKey != "" && s.TLSCert == "":
		p.check(false, "server.tls_cert", "missing, as server.tls_key is given")
	}
	p.check(s.ShutdownTimeout >= 0, "server.shutdown_timeout", "%s is negative", s.ShutdownTimeout)
}

func (a Auth) validate(p *problems, listen string) {
	seen := map[string]bool{}
	for i, t := range a.Tokens {
		key := fmt.Sprintf("auth.tokens[%d]", i)
		p.check(t.Name != "", key+".name", "missing")
		p.check(t.Name == "" || !seen[t.Name], key+".name", "%q is there twice", t.Name)
		seen[t.Name] = true
		p.check(token.Role(t.Role).Valid(), key+".role", "%q is not one of %v", t.Role, token.Roles())
		hash, err := hex.DecodeString(t.SHA256)
		p.check(err == nil && len(hash) == 32, key+".sha256", "not 64 hexadecimal digits; `controller token hash` makes them")
	}
	if a.DevLoopback {
		p.check(loopback(listen), "auth.dev_loopback", "server.listen is %s, which others can reach: it needs a loopback address", listen)
	}
}

// loopback says that an address can only be reached from this machine.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func (l Log) validate(p *problems) {
	_, err := l.level()
	p.check(err == nil, "log.level", "%q is not debug, info, warn or error", l.Level)
	p.check(l.Format == "text" || l.Format == "json", "log.format", "%q is neither text nor json", l.Format)
}
