package config

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/siding-dev/siding/internal/agent"
	"github.com/siding-dev/siding/internal/db"
)

// DB is the section as package db takes it.
func (d Database) DB() db.Config {
	return db.Config{
		URL: d.URL, Schema: d.Schema,
		MaxConns:           int32(min(d.MaxConnections, 1<<20)),
		PreparedStatements: d.PreparedStatements,
		StatementTimeout:   d.StatementTimeout,
		TransactionTimeout: d.TransactionTimeout,
		ConnectTimeout:     d.ConnectTimeout,
	}
}

// DirectURL is the address for what doesn't work through a pooler.
func (d Database) DirectURL() string {
	if d.ListenURL != "" {
		return d.ListenURL
	}
	return d.URL
}

// Runtime is the section as package agent takes it.
func (a Agent) Runtime(logger *slog.Logger) (agent.Config, error) {
	if a.StateDir == "" {
		dir, err := agent.DefaultStateDir(a.Name)
		if err != nil {
			return agent.Config{}, fmt.Errorf("agent.state_dir: %w", err)
		}
		a.StateDir = dir
	}
	drain := a.DrainTimeout
	if drain == 0 {
		drain = -1 // at once; 0 stands for the runtime's default
	}
	return agent.Config{
		Name: a.Name, Processes: a.Processes, StateDir: a.StateDir, WorkRoot: a.WorkDir, KeepWork: a.KeepWork,
		OutputCapBytes: int64(a.OutputCap), Grace: a.Grace, DrainTimeout: drain, PassEnv: a.PassEnv,
		Unreachable: agent.UnreachablePolicy(a.Unreachable), Logger: logger,
	}, nil
}

func (l Log) level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return 0, fmt.Errorf("log.level: %w", err)
	}
	return level, nil
}

// Logger makes the logger.
func (l Log) Logger(w io.Writer) *slog.Logger {
	level, err := l.level()
	if err != nil {
		level = slog.LevelInfo // Validate has refused it
	}
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
