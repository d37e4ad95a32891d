package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/token"
)

// ConfigToken is a token that the configuration states.
type ConfigToken struct {
	Role token.Role
	// SHA256 of the token, in hexadecimal.
	SHA256 string
}

// Validate says what is wrong with it.
func (c ConfigToken) Validate() error {
	var errs []error
	if !c.Role.Valid() {
		errs = append(errs, fmt.Errorf("role %q: must be one of %v", c.Role, token.Roles()))
	}
	if raw, err := hex.DecodeString(c.SHA256); err != nil || len(raw) != sha256.Size {
		errs = append(errs, errors.New("sha256: must be 64 hexadecimal digits"))
	}
	return errors.Join(errs...)
}

// role is what a route needs: one of those of tokens, or public.
type role = token.Role

// public routes need no token.
const public role = "public"

// tokenAge is how long a token that was looked up is taken for valid, and so
// how long one that was revoked on another replica still works.
const tokenAge = 3 * time.Second

// maxCached bounds the tokens that are remembered.
const maxCached = 4096

// caller is who makes a request.
type caller struct {
	name string
	role role
}

type authenticator struct {
	tokens     *token.Tokens
	configured map[[sha256.Size]byte]caller
	loopback   bool
	origin     *http.CrossOriginProtection

	mu     sync.Mutex
	cached map[[sha256.Size]byte]cachedCaller
}

type cachedCaller struct {
	caller
	until time.Time
}

func newAuthenticator(tokens *token.Tokens, deps Deps) *authenticator {
	a := &authenticator{
		tokens:     tokens,
		configured: map[[sha256.Size]byte]caller{},
		loopback:   deps.AllowLoopback && IsLoopback(deps.Listen),
		origin:     http.NewCrossOriginProtection(),
		cached:     map[[sha256.Size]byte]cachedCaller{},
	}
	for name, t := range deps.Tokens {
		raw, err := hex.DecodeString(t.SHA256)
		if err != nil || len(raw) != sha256.Size || !t.Role.Valid() {
			deps.Logger.Error("token of the configuration is left out", "token", name, "error", t.Validate())
			continue
		}
		a.configured[[sha256.Size]byte(raw)] = caller{name, t.Role}
	}
	return a
}

// IsLoopback says whether an address can be reached from this machine only.
func IsLoopback(addr net.Addr) bool {
	if addr == nil {
		return false
	}
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// caller finds out who makes a request; a *Problem if nobody it knows.
func (a *authenticator) caller(r *http.Request) (caller, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		if a.fromHere(r) {
			return caller{"dev", token.Admin}, nil
		}
		p := newProblem("unauthorized", "the request has no token")
		p.Hint = "Send the header Authorization: Bearer TOKEN."
		return caller{}, p
	}
	scheme, secret, _ := strings.Cut(header, " ")
	if secret = strings.TrimSpace(secret); !strings.EqualFold(scheme, "Bearer") || secret == "" {
		p := newProblem("unauthorized", "the Authorization header holds no bearer token")
		p.Hint = "Send the header Authorization: Bearer TOKEN."
		return caller{}, p
	}
	hash := token.Hash(secret)
	if c, ok := a.configured[hash]; ok {
		return c, nil
	}
	if c, ok := a.remembered(hash); ok {
		return c, nil
	}
	name, role, found, err := a.tokens.Find(r.Context(), hash)
	if err != nil {
		return caller{}, err
	}
	if !found {
		p := newProblem("unauthorized", "the token is not known, or was revoked")
		p.Hint = "An admin can make a new one: controller token create NAME."
		return caller{}, p
	}
	c := caller{name, role}
	a.remember(hash, c)
	return c, nil
}

func (a *authenticator) remembered(hash [sha256.Size]byte) (caller, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.cached[hash]
	return c.caller, ok && time.Now().Before(c.until)
}

func (a *authenticator) remember(hash [sha256.Size]byte, c caller) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cached) >= maxCached {
		clear(a.cached)
	}
	a.cached[hash] = cachedCaller{c, time.Now().Add(tokenAge)}
}

// forget makes this replica look every token up again.
func (a *authenticator) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.cached)
}

// fromHere says whether a request without a token may pass in dev mode: over a
// loopback connection, not through a proxy, for a name of this machine (so that
// a foreign name that was pointed here doesn't count), and not from a page of
// another origin.
func (a *authenticator) fromHere(r *http.Request) bool {
	if !a.loopback || a.origin.Check(r) != nil {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !IsLoopback(local) {
		return false
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() {
		return false
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

type callerKey struct{}

// authorise lets a request through to its route if the caller has the route's
// role. It runs when the route is known.
func (s *server) authorise(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		need, declared := s.roles[method+" "+r.Pattern]
		if need == public {
			next.ServeHTTP(w, r)
			return
		}
		c, err := s.auth.caller(r)
		if err != nil {
			p := s.problemOf(r.Context(), err)
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="siding"`)
			}
			writeProblem(w, p)
			return
		}
		if !declared || !c.role.May(need) {
			p := newProblem("forbidden", fmt.Sprintf("token %s has the role %s, this needs %s", c.name, c.role, need))
			p.Hint = "Use a token with that role."
			writeProblem(w, p)
			return
		}
		person := order.Person{Name: c.name, OnBehalfOf: strings.TrimSpace(r.Header.Get("On-Behalf-Of"))}
		if err := checkPerson(person.OnBehalfOf); err != nil {
			writeProblem(w, newProblem("invalid_request", "header On-Behalf-Of: "+err.Error()))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, person)))
	})
}

// maxPerson bounds the name of a person, in bytes.
const maxPerson = 256

func checkPerson(name string) error {
	switch {
	case len(name) > maxPerson:
		return fmt.Errorf("more than %d bytes", maxPerson)
	case !utf8.ValidString(name):
		return errors.New("not UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("holds a control character")
	}
	return nil
}

// personOf is who makes the request of a context.
func personOf(ctx context.Context) order.Person {
	person, _ := ctx.Value(callerKey{}).(order.Person)
	return person
}
