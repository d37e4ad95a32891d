package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/token"
)

func (a *app) tokenCommand() *cobra.Command {
	c := group("token", "Make and revoke access tokens", a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand(), a.tokenHashCommand())
	c.Long = `Access tokens are named, have one role, and are stored hashed. The commands ask a
controller, which needs a token of role admin; the first one is made with
--direct, on the configured database itself.

Roles: viewer, submitter, operator and admin may each do what the ones before
may; agent may do what agents do.`
	return c
}

// tokens are the ways to change tokens.
type tokens interface {
	CreateToken(ctx context.Context, name, role string) (secret string, err error)
	Tokens(ctx context.Context) ([]client.Token, error)
	RevokeToken(ctx context.Context, name string) error
}

// onTokens makes the RunE of a command that works on tokens, with its flags.
func (a *app) onTokens(c *cobra.Command, run func(ctx context.Context, t tokens, args []string) error) *cobra.Command {
	var direct bool
	c.Flags().BoolVar(&direct, "direct", false, "work on the configured database instead of asking a controller")
	addDatabaseFlags(c.Flags())
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !direct {
			remote, err := a.client()
			if err != nil {
				return err
			}
			return run(cmd.Context(), remote, args)
		}
		config, err := a.loadConfig(cmd, databaseFlags)
		if err == nil {
			err = config.ValidateDatabase()
		}
		if err != nil {
			return cli.Usage(err)
		}
		d, err := db.Open(cmd.Context(), config.Database.DB())
		if err != nil {
			return err
		}
		defer d.Close()
		return run(cmd.Context(), directTokens{token.New(d)}, args)
	}
	return c
}

// directTokens works on the database.
type directTokens struct{ tokens *token.Tokens }

// person is who is recorded: the user at this machine.
func (directTokens) person() string {
	if u, err := user.Current(); err == nil {
		return "database/" + u.Username
	}
	return "database"
}

func (d directTokens) CreateToken(ctx context.Context, name, role string) (secret string, err error) {
	return d.tokens.Create(ctx, name, token.Role(role), d.person())
}

func (d directTokens) RevokeToken(ctx context.Context, name string) error {
	return d.tokens.Revoke(ctx, name, d.person())
}

func (d directTokens) Tokens(ctx context.Context) ([]client.Token, error) {
	found, err := d.tokens.List(ctx)
	list := make([]client.Token, len(found))
	for i, t := range found {
		list[i] = client.Token{Name: t.Name, Role: string(t.Role), CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy, RevokedAt: t.RevokedAt}
	}
	return list, err
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var role string
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a token and show it, this once", Args: cobra.ExactArgs(1),
		Example: "  controller token create ops --role operator",
	}
	c.Flags().StringVar(&role, "role", "", "viewer, submitter, operator, agent or admin")
	mustBeGiven(c, "role")
	return a.onTokens(c, func(ctx context.Context, t tokens, args []string) error {
		secret, err := t.CreateToken(ctx, args[0], role)
		if err != nil {
			return err
		}
		return a.printer().Say(map[string]string{"name": args[0], "role": role, "secret": secret}, "%s", secret)
	})
}

func (a *app) tokenListCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List tokens, without their secrets", Args: cobra.NoArgs}
	return a.onTokens(c, func(ctx context.Context, t tokens, _ []string) error {
		list, err := t.Tokens(ctx)
		if err != nil {
			return err
		}
		return a.printer().Tokens(list)
	})
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	c := &cobra.Command{Use: "revoke NAME", Short: "Make a token void", Args: cobra.ExactArgs(1)}
	return a.onTokens(c, func(ctx context.Context, t tokens, args []string) error {
		if err := t.RevokeToken(ctx, args[0]); err != nil {
			return err
		}
		return a.printer().Say(map[string]string{"revoked": args[0]}, "token %s is void", args[0])
	})
}

func (a *app) tokenHashCommand() *cobra.Command {
	return &cobra.Command{
		Use: "hash", Short: "Read a token from standard input and write its hash, for auth.tokens of the configuration", Args: cobra.NoArgs,
		Example: "  openssl rand -hex 32 | tee token | controller token hash",
		RunE: func(*cobra.Command, []string) error {
			text, err := io.ReadAll(io.LimitReader(a.In, 4096))
			if err != nil {
				return fmt.Errorf("read standard input: %w", err)
			}
			text = bytes.TrimSpace(text)
			if len(text) < 16 {
				return cli.Usage(fmt.Errorf("a token of %d characters can be guessed; use at least 16", len(text)))
			}
			sum := token.Hash(string(text))
			hash := hex.EncodeToString(sum[:])
			return a.printer().Say(map[string]string{"sha256": hash}, "%s", hash)
		},
	}
}
