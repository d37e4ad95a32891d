package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Server is the Postgres on which all runs take place. Each run gets an empty
// database there, so that none finds what another left.
type Server struct {
	url string // of a database that isn't used by runs, role with CREATEDB
}

// NewServer returns the server that the connection URL leads to. The role
// needs the right to create databases.
func NewServer(rawURL string) (*Server, error) {
	parsed, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("parse the URL of the server: %w", err)
	}
	if parsed.Scheme != "postgres" && parsed.Scheme != "postgresql" {
		return nil, errors.New("the URL of the server must start with postgres://")
	}
	return &Server{url: rawURL}, nil
}

// Facts are the properties of a server that figures depend on, in the order
// in which they are reported.
type Facts []Fact

// Fact is one property, as Postgres words it.
type Fact struct{ Name, Value string }

// String gives the facts in one line.
func (f Facts) String() string {
	parts := make([]string, 0, len(f))
	for _, fact := range f {
		parts = append(parts, fact.Name+" "+fact.Value)
	}
	return strings.Join(parts, ", ")
}

// factNames are settings that decide what a commit costs.
var factNames = []string{
	"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method",
	"shared_buffers", "max_wal_size", "checkpoint_timeout", "autovacuum", "jit",
}

// Facts reads the server's settings. It fails if commits aren't durable there:
// what is compared here is durable work.
func (s *Server) Facts(ctx context.Context) (Facts, error) {
	var facts Facts
	err := s.with(ctx, func(conn *pgx.Conn) error {
		for _, name := range factNames {
			var value string
			if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
				return fmt.Errorf("read setting %s: %w", name, err)
			}
			facts = append(facts, Fact{Name: name, Value: value})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return facts, facts.durable()
}

func (f Facts) durable() error {
	for _, fact := range f {
		switch fact.Name {
		case "fsync", "synchronous_commit", "full_page_writes":
			if fact.Value != "on" {
				return fmt.Errorf("commits on this server aren't durable: %s is %s, not on", fact.Name, fact.Value)
			}
		}
	}
	return nil
}

// CreateDatabase makes an empty database and returns its URL. A checkpoint
// precedes it, so that no run writes the dirty pages of the one before.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	err := s.with(ctx, func(conn *pgx.Conn) error {
		quoted := pgx.Identifier{name}.Sanitize()
		for _, statement := range []string{
			"DROP DATABASE IF EXISTS " + quoted + " WITH (FORCE)",
			"CREATE DATABASE " + quoted,
			"CHECKPOINT",
		} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	parsed, err := url.Parse(s.url)
	if err != nil {
		return "", fmt.Errorf("parse the URL of the server: %w", err)
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}

// DropDatabase removes a database of [Server.CreateDatabase]. It fails while
// somebody is connected, since a runner has to close what it opened.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	return s.with(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	})
}

func (s *Server) with(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}
