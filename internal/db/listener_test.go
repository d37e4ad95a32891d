package db_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/db"
)

// listen runs a listener whose handlers send "rescan" or the payload.
func listen(t *testing.T, config db.ListenerConfig) <-chan string {
	t.Helper()
	events := make(chan string, 100)
	config.Rescan = func(context.Context) { events <- "rescan" }
	config.Notified = func(_ context.Context, payload string) { events <- payload }
	config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	config.MaxBackoff = 200 * time.Millisecond
	l, err := db.NewListener(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
		if l.Connected() {
			t.Error("connected after the end")
		}
	})
	return events
}

func expect(t *testing.T, events <-chan string, want ...string) {
	t.Helper()
	var got []string
	for range want {
		select {
		case e := <-events:
			got = append(got, e)
		case <-time.After(30 * time.Second):
			t.Fatalf("after %q nothing more came, want %q", got, want)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func notify(t *testing.T, d *db.DB, payloads ...string) {
	t.Helper()
	if err := d.Notify(t.Context(), payloads...); err != nil {
		t.Fatal(err)
	}
}

const endListeners = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`

func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{})
	events := listen(t, db.ListenerConfig{URL: d.Config().URL})
	expect(t, events, "rescan")
	notify(t, d, "a", "b")
	expect(t, events, "a", "b")
	for round := range 3 {
		mustExec(t, d, endListeners)
		expect(t, events, "rescan")
		notify(t, d, fmt.Sprint(round))
		expect(t, events, fmt.Sprint(round))
	}
}

func TestListenerHearsOnlyItsSchema(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{})
	other := listen(t, db.ListenerConfig{URL: d.Config().URL, Schema: mustSchema(t, "order")})
	mine := listen(t, db.ListenerConfig{URL: d.Config().URL})
	expect(t, other, "rescan")
	expect(t, mine, "rescan")
	notify(t, d, "for siding")
	mustExec(t, d, `SELECT pg_notify('order', 'for order')`)
	expect(t, mine, "for siding")
	expect(t, other, "for order")
}

// A silent connection is checked again and again without being lost.
func TestListenerSurvivesSilence(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{})
	events := listen(t, db.ListenerConfig{URL: d.Config().URL, PingEvery: time.Millisecond})
	expect(t, events, "rescan")
	pinged := `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '-- ping%' AND pid <> pg_backend_pid()`
	for count(t, d, pinged) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("no round trip")
		}
	}
	for n := range 50 {
		notify(t, d, fmt.Sprint(n))
		expect(t, events, fmt.Sprint(n)) // a lost connection would give a rescan
	}
}

// A connection whose other end vanished without a word is noticed.
func TestListenerNoticesHalfOpenConnection(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{})
	p := newProxy(t, d.Config().URL)
	events := listen(t, db.ListenerConfig{URL: p.url, PingEvery: 20 * time.Millisecond, PingTimeout: 100 * time.Millisecond})
	expect(t, events, "rescan")
	p.freeze()
	expect(t, events, "rescan") // over a new connection
	notify(t, d, "after")
	expect(t, events, "after")
}

func TestNewListenerRefuses(t *testing.T) {
	t.Parallel()
	rescan, notified := func(context.Context) {}, func(context.Context, string) {}
	for name, c := range map[string]db.ListenerConfig{
		"a bad URL":         {URL: "postgres://h:port/", Rescan: rescan, Notified: notified},
		"no handler":        {URL: "postgres://h/", Rescan: rescan},
		"negative duration": {URL: "postgres://h/", Rescan: rescan, Notified: notified, PingEvery: -1},
	} {
		if _, err := db.NewListener(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// proxy passes connections on to a database until they are frozen: then they
// stay open and nothing passes any more. New connections work.
type proxy struct {
	url    string
	mu     sync.Mutex
	frozen chan struct{} // closed to freeze the connections made so far
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	address := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0") // closed by the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	u.Host = l.Addr().String()
	p := &proxy{url: u.String(), frozen: make(chan struct{})}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address) // as above
			if err != nil {
				_ = client.Close()
				return
			}
			p.mu.Lock()
			frozen := p.frozen
			p.mu.Unlock()
			go pass(client, server, frozen)
			go pass(server, client, frozen)
		}
	}()
	return p
}

func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

func pass(to, from net.Conn, frozen <-chan struct{}) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		select {
		case <-frozen:
			if err == nil {
				continue // swallowed
			}
		default:
		}
		if err != nil {
			_ = to.Close()
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
