package attachment_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/order"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const definitions = `
kind: agent
name: a1
type: standalone
processes: 1
---
kind: workflow
name: w
ordering: independent
wait_limit: 15m
steps:
  - job: work
    run: "true"
    agent: a1
---
kind: workflow
name: keyed
ordering: {key: order}
wait_limit: 15m
steps:
  - job: work
    run: "true"
    agent: a1
`

var nadja = order.Person{Name: "nadja"}

// world is a database with an agent and two workflows.
type world struct {
	*testing.T
	db          *db.DB
	attachments *attachment.Attachments
	orders      *order.Orders
	woken       *wakes
}

// wakes notes which lines were woken.
type wakes struct {
	mu    sync.Mutex
	lines []int32
}

func (w *wakes) Wake(lines ...int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, lines...)
}

func (w *wakes) WakeIntake() {}

// take returns the lines woken since the last call, sorted.
func (w *wakes) take() []int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	slices.Sort(lines)
	return slices.Compact(lines)
}

// setup gives a world whose clock stands still.
func setup(t *testing.T, config attachment.Config, opts ...dbtest.Option) *world {
	t.Helper()
	d := dbtest.New(t, append([]dbtest.Option{dbtest.WithScenarioClock()}, opts...)...)
	w := &world{T: t, db: d, woken: &wakes{}}
	var err error
	if w.attachments, err = attachment.NewWith(d, w.woken, config); err != nil {
		t.Fatal(err)
	}
	w.orders = order.New(d, db.NoWaker{})
	docs, err := definition.Parse("test.yaml", []byte(definitions))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
		t.Fatal(err)
	}
	return w
}

// expecting is an element of an order's attachments.
type expecting map[string]any

// expect describes an attachment with the size and hash of content.
func expect(name, content string) expecting {
	return expecting{"name": name, "size": len(content), "sha256": hexSum([]byte(content))}
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// add adds an order of workflow w.
func (w *world) add(attachments ...expecting) int64 {
	w.Helper()
	return w.addAs(map[string]any{"workflow": "w", "attachments": attachments})
}

func (w *world) addAs(o map[string]any) int64 {
	w.Helper()
	body, err := json.Marshal([]any{o})
	if err != nil {
		w.Fatal(err)
	}
	added, err := w.orders.Add(w.Context(), body, nadja)
	if err != nil {
		w.Fatal(err)
	}
	w.exec(`SELECT siding.intake(1000, true)`)
	return added[0].ID
}

func (w *world) exec(statement string, args ...any) {
	w.Helper()
	if _, err := w.db.Pool.Exec(w.Context(), w.db.SQL(statement), args...); err != nil {
		w.Fatal(err)
	}
}

// advance moves the clock and lets wait limits expire.
func (w *world) advance(by time.Duration) {
	w.Helper()
	w.exec(`SELECT siding.set_clock(siding.clock() + $1::interval)`, by)
	w.exec(`SELECT siding.expire_waits(100)`)
}

// one reads one value.
func one[T any](w *world, query string, args ...any) (v T) {
	w.Helper()
	if err := w.db.Pool.QueryRow(w.Context(), w.db.SQL(query), args...).Scan(&v); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
	return v
}

// stands says where an order stands: its state, with the reason of attention,
// and whether the gate is closed.
func (w *world) stands(id int64) string {
	w.Helper()
	return one[string](w, `
		SELECT o.state || coalesce(' ' || t.reason, '') || CASE WHEN o.attachment_closed THEN ', blocked' ELSE '' END
		FROM siding.orders o LEFT JOIN siding.attentions t ON t.order_id = o.id WHERE o.id = $1`, id)
}

func (w *world) wantStands(id int64, want string) {
	w.Helper()
	if got := w.stands(id); got != want {
		w.Errorf("order stands: got %q, want %q", got, want)
	}
}

// wantChunks checks how many chunk rows there are at all.
func (w *world) wantChunks(want int) {
	w.Helper()
	if got := one[int](w, `SELECT count(*) FROM siding.upload_chunks`); got != want {
		w.Errorf("chunk rows: got %d, want %d", got, want)
	}
}

func (w *world) put(id int64, name, content string) attachment.Info {
	w.Helper()
	info, err := w.attachments.Put(w.Context(), id, name, bytes.NewReader([]byte(content)), int64(len(content)))
	if err != nil {
		w.Fatal(err)
	}
	return info
}

func (w *world) info(id int64, name string) attachment.Info {
	w.Helper()
	infos, err := w.attachments.List(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	for _, info := range infos {
		if info.Name == name {
			return info
		}
	}
	w.Fatalf("no attachment %s in %v", name, infos)
	return attachment.Info{}
}

func (w *world) wantState(id int64, name string, want attachment.State) {
	w.Helper()
	if got := w.info(id, name).State; got != want {
		w.Errorf("attachment %s: got %s, want %s", name, got, want)
	}
}

// read returns the bytes of an attachment from an offset on.
func (w *world) read(id int64, name string, offset int64) string {
	w.Helper()
	r, _, err := w.attachments.Open(w.Context(), id, name, offset)
	if err != nil {
		w.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		w.Fatal(err)
	}
	return string(data)
}

func (w *world) wantRefused(err error, code string, status int) {
	w.Helper()
	r, ok := db.AsRefusal(err)
	if !ok {
		w.Fatalf("got error %v, want refusal %s", err, code)
	}
	if r.Code != code || r.Status != status {
		w.Errorf("got refusal %s %d (%v), want %s %d", r.Code, r.Status, err, code, status)
	}
}

// broken gives some bytes and then an error.
type broken struct {
	io.Reader
	err error
}

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

// gated gives the first part, then waits until the gate is closed.
type gated struct {
	first, rest io.Reader
	reached     chan<- struct{} // closed when the first part has been given
	gate        <-chan struct{}
	waited      bool
}

func (g *gated) Read(p []byte) (int, error) {
	if !g.waited {
		n, err := g.first.Read(p)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		g.waited = true
		close(g.reached)
		<-g.gate
	}
	return g.rest.Read(p)
}

func content(size int) string {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()[:size]
}
