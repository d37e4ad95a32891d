// Package demo shows what Siding is about: five orders, of which one waits for
// its attachment and another is behind it by key, on a real controller with a
// real agent, as a table that changes while they run. In the end it says what
// was observed beside what was expected.
package demo

import (
	"context"
	"crypto/sha256"
	_ "embed" // the definitions
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/why"
)

//go:embed demo.yaml
var definitions []byte

// AgentName is the agent that the definitions name.
const AgentName = "a1"

const (
	pollEvery = 50 * time.Millisecond
	// patience is how long any of the steps may take before the demo fails.
	patience = 30 * time.Second

	attachmentName = "scan"
	// hashShown is how much of a hash the job writes: people compare it by eye.
	hashShown      = 12
	attachmentText = "This is the scan that J2 was waiting for.\n"
)

// Controller is the controller as the demo uses it; orders are named by their
// references.
type Controller interface {
	// Apply applies definitions.
	Apply(ctx context.Context, file string, source []byte) error
	// Add adds a JSON array of orders by one call.
	Add(ctx context.Context, orders []byte) error
	// Orders reads all orders.
	Orders(ctx context.Context) ([]client.Order, error)
	// Why says why an order waits.
	Why(ctx context.Context, ref string) (client.Why, error)
	// Upload sends the bytes of an attachment.
	Upload(ctx context.Context, ref, name string, body io.Reader, size int64) error
}

// Config is what the demo runs on.
type Config struct {
	Controller Controller
	// StartAgent starts the agent a1 with one process. It returns at once.
	StartAgent func(ctx context.Context) error
	// Dir is an empty directory of the demo's own.
	Dir string
	// JobTime is how long each job takes.
	JobTime time.Duration
	Out     io.Writer
	// Live redraws one table; otherwise each change is a line.
	Live bool
}

// demo is one run.
type demo struct {
	Config
	began   time.Time
	screen  *screen
	results []result
	last    []client.Order
}

// result is one thing observed beside what was expected.
type result struct{ what, expected, observed string }

func (r result) ok() bool { return r.expected == r.observed }

// Run shows it all and returns whether everything was as expected.
func Run(ctx context.Context, c Config) (bool, error) {
	d := &demo{Config: c, began: time.Now(), screen: &screen{out: c.Out, live: c.Live}}
	if err := d.run(ctx); err != nil {
		return false, fmt.Errorf("demo: %w", err)
	}
	return d.summary()
}

func (d *demo) run(ctx context.Context) error {
	if err := d.Controller.Apply(ctx, "demo.yaml", definitions); err != nil {
		return err
	}
	text, err := d.orders()
	if err != nil {
		return err
	}
	d.say("Five orders, in this order. J2 waits for its attachment %q. J4 has the key of J2.", attachmentName)
	if err := d.Controller.Add(ctx, text); err != nil {
		return err
	}
	if err := d.watch(ctx, "the orders have their places", placed); err != nil {
		return err
	}
	d.expect("before an agent is there", "J1 J3 J5 ready, J2 blocked, J4 held", d.states("J1", "J2", "J3", "J4", "J5"))
	if err := d.reasons(ctx); err != nil {
		return err
	}

	d.say("An agent with one process starts, a program of its own.")
	if err := d.StartAgent(ctx); err != nil {
		return err
	}
	if err := d.watch(ctx, "J1, J3 and J5 have finished", all("finished", "J1", "J3", "J5")); err != nil {
		return err
	}
	d.expect("J2 stepped aside, others passed", "J1 J3 J5", d.started())
	d.expect("meanwhile", "J2 blocked, J4 held", d.states("J2", "J4"))

	d.say("The attachment arrives: %d bytes by HTTP PUT, checked against the SHA-256 that J2 announced.", len(attachmentText))
	if err := d.Controller.Upload(ctx, "J2", attachmentName, strings.NewReader(attachmentText), int64(len(attachmentText))); err != nil {
		return err
	}
	if err := d.watch(ctx, "J2 and J4 have finished", all("finished", "J2", "J4")); err != nil {
		return err
	}
	d.expect("J2 went before J4", "J1 J3 J5 J2 J4", d.started())
	return d.jobs()
}

// orders is the table of orders. The file in which jobs note their runs is an
// argument, so that this really is their own doing.
func (d *demo) orders() ([]byte, error) {
	type attachment struct {
		Name   string `json:"name"`
		Size   int    `json:"size"`
		SHA256 string `json:"sha256"`
	}
	type newOrder struct {
		Ref         string         `json:"ref"`
		Workflow    string         `json:"workflow"`
		Key         string         `json:"key"`
		Args        map[string]any `json:"args"`
		Attachments []attachment   `json:"attachments,omitempty"`
	}
	var orders []newOrder
	for _, o := range []struct{ ref, key string }{{"J1", "C1"}, {"J2", "C2"}, {"J3", "C3"}, {"J4", "C2"}, {"J5", "C5"}} {
		n := newOrder{Ref: o.ref, Workflow: "intake", Key: o.key, Args: map[string]any{"log": d.logFile(), "seconds": d.JobTime.Seconds()}}
		if o.ref == "J2" {
			n.Attachments = []attachment{{attachmentName, len(attachmentText), hash(attachmentText)}}
		}
		orders = append(orders, n)
	}
	return json.Marshal(orders)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (d *demo) logFile() string { return filepath.Join(d.Dir, "jobs.log") }

// reasons asks why J2 and J4 wait.
func (d *demo) reasons(ctx context.Context) error {
	for _, q := range []struct{ ref, expected string }{{"J2", why.AttachmentPending}, {"J4", why.KeyHeld}} {
		answer, err := d.Controller.Why(ctx, q.ref)
		if err != nil {
			return err
		}
		for _, o := range answer.Obstacles {
			d.say("why %s?  %s %s: ends when %s", q.ref, o.Code, o.Subject, o.EndsBy)
		}
		d.expect("why "+q.ref, q.expected, codes(answer))
	}
	return nil
}

// codes lists the codes of an answer.
func codes(w client.Why) string {
	var list []string
	for _, o := range w.Obstacles {
		list = append(list, o.Code)
	}
	return strings.Join(list, ", ")
}

// jobs compares what the jobs wrote themselves.
func (d *demo) jobs() error {
	text, err := os.ReadFile(d.logFile())
	if err != nil {
		return fmt.Errorf("read what the jobs wrote: %w", err)
	}
	var order, files []string
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		d.say("the job wrote: %s", line)
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		order = append(order, fields[0])
		if _, read, ok := strings.Cut(line, "read "); ok {
			files = append(files, fields[0]+" sha256 "+read)
		}
	}
	d.expect("commands that really ran", "J1 J3 J5 J2 J4", strings.Join(order, " "))
	d.expect("the file that J2's command read", "J2 sha256 "+hash(attachmentText)[:hashShown], strings.Join(files, ", "))
	return nil
}

// watch shows the orders until a condition holds.
func (d *demo) watch(ctx context.Context, what string, holds func([]client.Order) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		orders, err := d.Controller.Orders(ctx)
		if err != nil {
			return err
		}
		slices.SortFunc(orders, func(a, b client.Order) int { return strings.Compare(a.Ref, b.Ref) })
		d.last = orders
		d.screen.show(time.Since(d.began), orders)
		if holds(orders) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited until %s: %w; now %s", what, ctx.Err(), d.states("J1", "J2", "J3", "J4", "J5"))
		}
	}
}

// all says that orders have a state.
func all(word string, refs ...string) func([]client.Order) bool {
	return func(orders []client.Order) bool {
		n := 0
		for _, o := range orders {
			if o.Word == word && slices.Contains(refs, o.Ref) {
				n++
			}
		}
		return n == len(refs)
	}
}

// placed says that all orders have their place in line.
func placed(orders []client.Order) bool {
	return len(orders) == 5 && !slices.ContainsFunc(orders, func(o client.Order) bool { return slices.Contains(o.Gates, "intake") })
}

// states tells the states of orders as last seen, those with the same together.
func (d *demo) states(refs ...string) string {
	var words []string
	with := map[string][]string{}
	for _, o := range d.last {
		if !slices.Contains(refs, o.Ref) {
			continue
		}
		if with[o.Word] == nil {
			words = append(words, o.Word)
		}
		with[o.Word] = append(with[o.Word], o.Ref)
	}
	parts := make([]string, len(words))
	for i, word := range words {
		parts[i] = strings.Join(with[word], " ") + " " + word
	}
	return strings.Join(parts, ", ")
}

// started lists the orders by their start.
func (d *demo) started() string {
	var started []client.Order
	for _, o := range d.last {
		if o.StartedAt != nil {
			started = append(started, o)
		}
	}
	slices.SortFunc(started, func(a, b client.Order) int { return a.StartedAt.Compare(*b.StartedAt) })
	refs := make([]string, len(started))
	for i, o := range started {
		refs[i] = o.Ref
	}
	return strings.Join(refs, " ")
}

func (d *demo) expect(what, expected, observed string) {
	d.results = append(d.results, result{what, expected, observed})
}

func (d *demo) say(format string, args ...any) {
	d.screen.say(time.Since(d.began), fmt.Sprintf(format, args...))
}
