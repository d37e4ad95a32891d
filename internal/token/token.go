// Package token keeps the access tokens of the REST API: named, each with one
// role, stored as hashes only (docs/api.md, Access).
package token

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// Role says what a token may do. Viewer, submitter, operator and admin may each
// do what the ones before may; an agent may only do what agents do, which an
// admin may as well.
type Role string

// The roles.
const (
	Viewer    Role = "viewer"
	Submitter Role = "submitter"
	Operator  Role = "operator"
	Admin     Role = "admin"
	Agent     Role = "agent"
)

// Roles lists the roles.
func Roles() []Role { return []Role{Viewer, Submitter, Operator, Admin, Agent} }

// Valid says whether r is a role.
func (r Role) Valid() bool { return r == Agent || rank[r] > 0 }

var rank = map[Role]int{Viewer: 1, Submitter: 2, Operator: 3, Admin: 4}

// May says whether r may do what needs the role need.
func (r Role) May(need Role) bool {
	if need == Agent {
		return r == Agent || r == Admin
	}
	return rank[need] > 0 && rank[r] >= rank[need]
}

// prefix lets people and scanners of leaked secrets recognise a token.
const prefix = "siding_"

// Hash is the SHA-256 of a token, which is what is stored. Tokens are 32 random
// bytes, so they need no salt and no slow hash.
func Hash(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// Token is a token without its secret.
type Token struct {
	Name      string     `json:"name"`
	Role      Role       `json:"role" enum:"viewer,submitter,operator,agent,admin"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// Tokens is the room's entrance.
type Tokens struct{ db *db.DB }

// New returns the tokens of a schema.
func New(d *db.DB) *Tokens { return &Tokens{db: d} }

// Create makes a token and returns its secret, which nobody can read again. The
// name of a revoked token can't be used again: it stands in records. Refusals:
// invalid_name, invalid_role, token_exists.
func (t *Tokens) Create(ctx context.Context, name string, role Role, person string) (secret string, err error) {
	if err := definition.CheckName(name); err != nil {
		return "", db.Refuse("invalid_name", 422, "%w", err)
	}
	if !role.Valid() {
		return "", db.Refuse("invalid_role", 422, "%q is no role: one of %v", role, Roles())
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret = prefix + base64.RawURLEncoding.EncodeToString(random)
	hash := Hash(secret)
	err = t.db.Tx(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, t.db.SQL(`
			INSERT INTO siding.tokens (name, role, sha256, created_at, created_by) VALUES ($1, $2, $3, siding.clock(), $4)
			ON CONFLICT (name) DO NOTHING`), name, string(role), hash[:], person)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			r := db.Refuse("token_exists", 409, "there is or was a token %s", name)
			r.Hint = "Use another name: names of tokens stand in records and are never used again."
			return r
		}
		_, err = tx.Exec(ctx, t.db.SQL(`SELECT siding.record(NULL, 'token_created', $1, $2, NULL, jsonb_build_object('role', $3::text))`), name, person, string(role))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("create token %s: %w", name, err)
	}
	return secret, nil
}

// List returns all tokens by name, revoked ones too.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	rows, err := t.db.Pool.Query(ctx, t.db.SQL(`SELECT name, role, created_at, created_by, revoked_at FROM siding.tokens ORDER BY name`))
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	tokens, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Token])
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	return tokens, nil
}

// Revoke makes a token void, at once here and within seconds on other replicas.
// Doing it again changes nothing. It refuses with token_not_found.
func (t *Tokens) Revoke(ctx context.Context, name, person string) error {
	err := t.db.Tx(ctx, func(tx pgx.Tx) error {
		var fresh bool
		err := tx.QueryRow(ctx, t.db.SQL(`SELECT revoked_at IS NULL FROM siding.tokens WHERE name = $1 FOR UPDATE`), name).Scan(&fresh)
		if errors.Is(err, pgx.ErrNoRows) {
			return db.Refuse("token_not_found", 404, "there is no token %s", name)
		}
		if err != nil || !fresh {
			return err
		}
		_, err = tx.Exec(ctx, t.db.SQL(`UPDATE siding.tokens SET revoked_at = siding.clock() WHERE name = $1`), name)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, t.db.SQL(`SELECT siding.record(NULL, 'token_revoked', $1, $2)`), name, person)
		return err
	})
	if err != nil {
		return fmt.Errorf("revoke token %s: %w", name, err)
	}
	return nil
}

// Find returns the valid token with a hash.
func (t *Tokens) Find(ctx context.Context, hash [sha256.Size]byte) (name string, role Role, found bool, err error) {
	err = t.db.Pool.QueryRow(ctx, t.db.SQL(`SELECT name, role FROM siding.tokens WHERE sha256 = $1 AND revoked_at IS NULL`), hash[:]).Scan(&name, &role)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", false, nil
	}
	if err != nil {
		return "", "", false, fmt.Errorf("look up token: %w", err)
	}
	return name, role, true, nil
}
