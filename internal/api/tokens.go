package api

import (
	"context"
	"net/http"

	"github.com/siding-dev/siding/internal/token"
)

type tokensBody struct {
	Tokens []token.Token `json:"tokens"`
}

type createTokenInput struct {
	Body struct {
		Name string     `json:"name"`
		Role token.Role `json:"role" doc:"viewer, submitter, operator, agent or admin"`
	}
}

type secretBody struct {
	Name   string     `json:"name"`
	Role   token.Role `json:"role"`
	Secret string     `json:"secret" doc:"The token itself. It is told this once and stored nowhere"`
}

func (s *server) tokenRoutes() {
	register(s, operation{
		id: "list-tokens", method: http.MethodGet, path: "/tokens", role: "admin", tag: "Tokens",
		summary: "Tokens made here, revoked ones too; never their secrets",
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body tokensBody }, error) {
		tokens, err := s.tokens.List(ctx)
		return &struct{ Body tokensBody }{tokensBody{tokens}}, err
	})
	register(s, operation{
		id: "create-token", method: http.MethodPost, path: "/tokens", role: "admin", tag: "Tokens",
		summary: "Make a token", status: http.StatusCreated, codes: []string{"invalid_name", "invalid_role", "token_exists"},
	}, func(ctx context.Context, in *createTokenInput) (*struct{ Body secretBody }, error) {
		if _, taken := s.Tokens[in.Body.Name]; taken {
			return nil, newProblem("token_exists", "the configuration states a token "+in.Body.Name)
		}
		secret, err := s.tokens.Create(ctx, in.Body.Name, in.Body.Role, personOf(ctx).String())
		return &struct{ Body secretBody }{secretBody{in.Body.Name, in.Body.Role, secret}}, err
	})
	register(s, operation{
		id: "revoke-token", method: http.MethodDelete, path: "/tokens/{name}", role: "admin", tag: "Tokens",
		summary: "Revoke a token: at once here, within seconds on other replicas", codes: []string{"token_not_found"},
	}, func(ctx context.Context, in *NamePath) (*struct{}, error) {
		err := s.tokens.Revoke(ctx, in.Name, personOf(ctx).String())
		s.auth.forget()
		return nil, err
	})
}
