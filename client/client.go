// Package client talks to Siding's REST API, for programs and the command line
// (Client) and for agents (Agent).
//
//	c, err := client.New(client.Config{URLs: []string{"https://siding.example.com"}, Token: token})
//	added, err := c.Add(ctx, client.NewOrder{Workflow: "invoice", Ref: "invoice-17", Args: args})
//
// Several URLs may be given, of replicas of one installation. A call goes to the
// one that answered last; when that can't be reached, or says that it takes no
// requests (502, 503, 504), the next one gets it, provided that doing it twice
// does no harm: that holds for everything that reads, for definitions, for
// adding orders that all have a reference, and for what agents say. A call that
// never left this machine is always tried elsewhere.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// base is the path of the API.
const base = "/api/v1"

// Config says how to reach Siding. URLs is required.
type Config struct {
	// URLs are the addresses of one or more replicas, for example
	// http://127.0.0.1:8080.
	URLs []string
	// Token is sent with each request; empty for a controller in dev mode.
	Token string
	// OnBehalfOf names the person that decides, if it isn't the token's owner.
	// It is recorded.
	OnBehalfOf string
	// Timeout is how long one replica may take to begin its answer, besides the
	// time that a call itself asks it to wait. Default: 30 s.
	Timeout time.Duration
	// HTTPClient makes the requests. It should have no Timeout of its own, which
	// would cut long answers off. Default: one with connection pooling.
	HTTPClient *http.Client
}

// Client calls the API. It may be used by any number of goroutines.
type Client struct {
	urls    []*url.URL
	config  Config
	http    *http.Client
	current atomic.Int32 // index of the URL that answered last
	rounds  int          // how often all URLs are tried
}

const (
	defaultTimeout = 30 * time.Second
	dialTimeout    = 5 * time.Second
	// roundPause is the time between two rounds over all URLs.
	roundPause = 300 * time.Millisecond
	// rounds is how often a call goes to all URLs.
	rounds = 3
)

// New checks the configuration. It makes no request.
func New(config Config) (*Client, error) {
	if len(config.URLs) == 0 {
		return nil, errors.New("client: no URL")
	}
	c := &Client{config: config, http: config.HTTPClient, rounds: rounds}
	for _, text := range config.URLs {
		u, err := url.Parse(strings.TrimRight(text, "/"))
		if err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("client: %q is not a URL such as http://127.0.0.1:8080", text)
		}
		c.urls = append(c.urls, u)
	}
	if c.config.Timeout == 0 {
		c.config.Timeout = defaultTimeout
	}
	if c.http == nil {
		c.http = &http.Client{Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: dialTimeout,
			MaxIdleConnsPerHost: 32,
			IdleConnTimeout:     time.Minute,
			ForceAttemptHTTP2:   true,
		}}
	}
	return c, nil
}

// call is one request.
type call struct {
	method string
	path   string // below base, escaped; or absolute with root
	root   bool
	query  url.Values
	header map[string]string
	body   func() (io.Reader, error) // nil: none
	length int64                     // of the body, -1 if unknown
	// repeat says that doing it twice does no harm.
	repeat bool
	// wait is how long the controller may hold the answer.
	wait time.Duration
}

// get is a call that reads.
func get(query url.Values, segments ...string) call {
	return call{method: http.MethodGet, path: join(segments...), query: query, repeat: true}
}

// send is a call with a JSON body; nil: none.
func send(method string, body any, segments ...string) (call, error) {
	c := call{method: method, path: join(segments...)}
	if body == nil {
		return c, nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return c, fmt.Errorf("encode the request: %w", err)
	}
	c.setText(text, "application/json")
	return c, nil
}

func (c *call) setText(text []byte, contentType string) {
	c.body = func() (io.Reader, error) { return bytes.NewReader(text), nil }
	c.length = int64(len(text))
	c.set("Content-Type", contentType)
}

func (c *call) set(name, value string) {
	if c.header == nil {
		c.header = map[string]string{}
	}
	c.header[name] = value
}

// join puts a path together, each segment escaped.
func join(segments ...string) string {
	var path strings.Builder
	for _, s := range segments {
		path.WriteString("/" + url.PathEscape(s))
	}
	return path.String()
}

// json makes a call and decodes its answer.
func (c *Client) json(ctx context.Context, what call, into any) error {
	_, err := c.jsonHeader(ctx, what, into)
	return err
}

func (c *Client) jsonHeader(ctx context.Context, what call, into any) (http.Header, error) {
	answer, err := c.do(ctx, what)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() // it was read to its end
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", what.method, what.path, err)
	}
	if into == nil || len(text) == 0 {
		return answer.Header, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, fmt.Errorf("%s %s: decode the answer: %w", what.method, what.path, err)
	}
	return answer.Header, nil
}

// do makes a call, at other URLs too if need be. The answer has a status below
// 400, and its body must be closed. Errors of the controller are *Problem.
func (c *Client) do(ctx context.Context, what call) (*http.Response, error) {
	first := int(c.current.Load())
	var last error
	for round := range c.rounds {
		if round > 0 && !pause(ctx, roundPause<<(round-1)) {
			return nil, last
		}
		for i := range c.urls {
			at := (first + i) % len(c.urls)
			answer, err := c.try(ctx, c.urls[at], what)
			if err == nil || !elsewhere(err, what.repeat) {
				c.current.Store(int32(at)) // there are few URLs
				return answer, err
			}
			if ctx.Err() != nil {
				return nil, err
			}
			last = err
		}
	}
	return nil, last
}

// try makes a call at one URL.
func (c *Client) try(ctx context.Context, at *url.URL, what call) (*http.Response, error) {
	fail := func(err error) (*http.Response, error) {
		return nil, fmt.Errorf("%s %s: %w", what.method, what.path, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	slow := time.AfterFunc(c.config.Timeout+what.wait, func() { cancel(errSlow) })
	answer, err := c.request(ctx, at, what)
	if !slow.Stop() && err == nil && context.Cause(ctx) == errSlow { //nolint:errorlint // the cause is this very value
		answer.Body.Close() // it is cut off
		err = errSlow
	}
	if err != nil {
		if errors.Is(context.Cause(ctx), errSlow) {
			err = errSlow
		}
		cancel(nil)
		return fail(err)
	}
	if answer.StatusCode >= 400 {
		defer cancel(nil)
		defer answer.Body.Close() // only its beginning is of interest
		return fail(problemIn(answer))
	}
	answer.Body = &cancelBody{answer.Body, func() { cancel(nil) }}
	return answer, nil
}

// errSlow is the error of a replica that doesn't begin its answer in time.
var errSlow = errors.New("no answer in time")

func (c *Client) request(ctx context.Context, at *url.URL, what call) (*http.Response, error) {
	address := at.String()
	if !what.root {
		address += base
	}
	address += what.path
	if len(what.query) > 0 {
		address += "?" + what.query.Encode()
	}
	var body io.Reader
	if what.body != nil {
		var err error
		if body, err = what.body(); err != nil {
			return nil, err
		}
		// The body belongs to the caller: the transport must not close it.
		body = io.NopCloser(body)
	}
	req, err := http.NewRequestWithContext(ctx, what.method, address, body)
	if err != nil {
		return nil, err
	}
	if what.body != nil {
		req.ContentLength = what.length
		if what.length == 0 {
			req.Body = http.NoBody
		}
	}
	if c.config.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.config.Token)
	}
	if c.config.OnBehalfOf != "" {
		req.Header.Set("On-Behalf-Of", c.config.OnBehalfOf)
	}
	for name, value := range what.header {
		req.Header.Set(name, value)
	}
	return c.http.Do(req)
}

// elsewhere says whether a call that failed may go to another replica.
func elsewhere(err error, repeat bool) bool {
	var problem *Problem
	if errors.As(err, &problem) {
		switch problem.Status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return repeat
		}
		return false
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return repeat
}

// pause waits; false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// cancelBody ends the request's context with its body.
type cancelBody struct {
	io.ReadCloser
	cancel func()
}

// Close implements io.Closer.
func (b *cancelBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}
