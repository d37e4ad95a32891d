package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// fakeWorld knows just enough to test the runner's own rules: orders in the
// order of adding, one agent for each workflow, any number of jobs. What it
// doesn't implement panics through the nil World.
type fakeWorld struct {
	World
	now       time.Duration
	settled   int
	orders    []*fakeOrder
	agents    map[string]*fakeAgent
	workflows map[string]*fakeWorkflow
	started   []Start
	granted   map[string][]Start
	running   []string
	// leak makes a refusal leave something behind, endless makes finished orders
	// start anew, broken is what Settle returns.
	leak, endless bool
	broken        error
	fingerprint   int
	calls         []string
}

type fakeOrder struct {
	NewOrder
	state    string
	job      int
	attempts int
}

type fakeAgent struct {
	processes int
	lost      bool
}

type fakeWorkflow struct {
	agent string
	jobs  int
	lock  string
}

type fakeRefusal struct{ code, message string }

func (r *fakeRefusal) Error() string       { return r.message }
func (r *fakeRefusal) RefusalCode() string { return r.code }

func newFakeWorld() *fakeWorld {
	return &fakeWorld{agents: map[string]*fakeAgent{}, workflows: map[string]*fakeWorkflow{}, granted: map[string][]Start{}}
}

func (w *fakeWorld) ApplyDefinitions(_ context.Context, docs []Document) error {
	for i, doc := range docs {
		var d struct {
			Processes int
			Defaults  struct{ Agent string }
			Steps     []struct {
				Lock map[string]any
			}
		}
		if err := json.Unmarshal(doc.JSON, &d); err != nil {
			return err
		}
		switch doc.Kind {
		case KindAgent:
			if d.Processes < 0 {
				return &DocumentError{Index: i, Err: &fakeRefusal{"invalid_definition", "processes is negative"}}
			}
			w.agents[doc.Name] = &fakeAgent{processes: d.Processes}
		case KindWorkflow:
			flow := &fakeWorkflow{agent: d.Defaults.Agent, jobs: doc.Jobs}
			for name := range d.Steps[0].Lock {
				flow.lock = name
			}
			w.workflows[doc.Name] = flow
		}
	}
	return nil
}

func (w *fakeWorld) DeleteDefinition(_ context.Context, t Target) error {
	w.calls = append(w.calls, "delete "+string(t.Kind)+" "+t.Name)
	delete(w.agents, t.Name)
	return nil
}

func (w *fakeWorld) Pause(_ context.Context, p Pause) error {
	w.calls = append(w.calls, fmt.Sprintf("pause %s %s %q %s", p.Kind, p.Name, p.Reason, p.For))
	return nil
}

func (w *fakeWorld) Add(_ context.Context, orders []NewOrder) error {
	w.calls = append(w.calls, fmt.Sprintf("add %d", len(orders)))
	for _, o := range orders {
		if w.workflows[o.Workflow] == nil {
			return &fakeRefusal{"unknown_workflow", "no workflow " + o.Workflow}
		}
		w.orders = append(w.orders, &fakeOrder{NewOrder: o, state: "ready"})
	}
	return nil
}

func (w *fakeWorld) find(order string) (*fakeOrder, error) {
	i := slices.IndexFunc(w.orders, func(o *fakeOrder) bool { return o.Order == order })
	if i < 0 {
		return nil, &fakeRefusal{"order_not_found", "no order " + order}
	}
	return w.orders[i], nil
}

func (w *fakeWorld) FreeProcesses(_ context.Context, agent string) (int, error) {
	a := w.agents[agent]
	if a == nil {
		return 0, &fakeRefusal{"unknown_agent", "no agent " + agent}
	}
	free := a.processes
	for _, name := range w.running {
		if o, err := w.find(name); err == nil && w.workflows[o.Workflow].agent == agent {
			free--
		}
	}
	return free, nil
}

func (w *fakeWorld) Claim(_ context.Context, agent string, slots int) ([]Start, error) {
	w.agents[agent].lost = false
	var got []Start
	for _, o := range w.orders {
		if len(got) == slots {
			break
		}
		if flow := w.workflows[o.Workflow]; flow.agent == agent && o.state == "ready" {
			o.state = "running"
			o.attempts++
			start := Start{Order: o.Order, Queue: o.Queue}
			got = append(got, start)
			w.running = append(w.running, o.Order)
			if flow.lock != "" {
				w.granted[flow.lock] = append(w.granted[flow.lock], start)
			}
		}
	}
	w.started = append(w.started, got...)
	return got, nil
}

func (w *fakeWorld) end(order, state string) error {
	i := slices.Index(w.running, order)
	if i < 0 {
		return fmt.Errorf("%s is not running", order)
	}
	w.running = slices.Delete(w.running, i, i+1)
	o, err := w.find(order)
	if err != nil {
		return err
	}
	o.state = state
	return nil
}

func (w *fakeWorld) Finish(_ context.Context, order string) error {
	o, err := w.find(order)
	if err != nil {
		return err
	}
	state := "finished"
	if o.job++; o.job < w.workflows[o.Workflow].jobs || w.endless {
		state = "ready"
	}
	return w.end(order, state)
}

func (w *fakeWorld) Fail(_ context.Context, order string) error { return w.end(order, "scheduled") }

func (w *fakeWorld) Lose(_ context.Context, agent string) error {
	w.agents[agent].lost = true
	for _, name := range slices.Clone(w.running) {
		if o, err := w.find(name); err == nil && w.workflows[o.Workflow].agent == agent {
			if err := w.end(name, "ready"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *fakeWorld) Cancel(_ context.Context, order, reason string) error {
	w.calls = append(w.calls, fmt.Sprintf("cancel %s %q", order, reason))
	o, err := w.find(order)
	if err != nil {
		return err
	}
	if o.state == "finished" || o.state == "cancelled" {
		if w.leak {
			w.fingerprint++
		}
		return fmt.Errorf("cancel: %w", &fakeRefusal{"order_final", order + " is final"})
	}
	o.state = "cancelled"
	return nil
}

func (w *fakeWorld) Release(_ context.Context, order, reason string) error {
	w.calls = append(w.calls, fmt.Sprintf("release %s %q", order, reason))
	if reason == "" {
		return &fakeRefusal{"reason_required", "a reason is required"}
	}
	return nil
}

func (w *fakeWorld) Advance(_ context.Context, by time.Duration) error {
	w.now += by
	return nil
}

func (w *fakeWorld) Settle(context.Context) error {
	w.settled++
	return w.broken
}

func (w *fakeWorld) Started(context.Context) ([]Start, error) { return w.started, nil }

func (w *fakeWorld) Granted(_ context.Context, lock string) ([]Start, error) {
	return w.granted[lock], nil
}

func (w *fakeWorld) State(_ context.Context, order string) (State, error) {
	o, err := w.find(order)
	if err != nil {
		return State{}, err
	}
	return State{Word: o.state, Reason: map[string]string{"scheduled": "it failed"}[o.state]}, nil
}

func (w *fakeWorld) Why(context.Context, string) ([]string, error) {
	return []string{"key_held", "attachment_pending", "attachment_pending"}, nil
}

func (w *fakeWorld) List(_ context.Context, queue string, list ListName) ([]string, error) {
	var out []string
	for _, o := range slices.Backward(w.orders) {
		word := map[string]ListName{"ready": Waiting, "running": Pending}[o.state]
		if o.Queue == queue && word == list {
			out = append(out, o.Order)
		}
	}
	return out, nil
}

func (w *fakeWorld) Line(_ context.Context, agent string) (LineMode, error) {
	return LineMode{Mode: "strict", Reason: "too_many_blocked"}, nil
}

func (w *fakeWorld) HeldUnits(_ context.Context, lock string) (int64, error) { return 3, nil }

func (w *fakeWorld) Running(context.Context) ([]string, error) { return slices.Clone(w.running), nil }

func (w *fakeWorld) Attempts(_ context.Context, order string) (int, error) {
	o, err := w.find(order)
	if err != nil {
		return 0, err
	}
	return o.attempts, nil
}

func (w *fakeWorld) ReadyWait(_ context.Context, order string) (time.Duration, bool, error) {
	o, err := w.find(order)
	if err != nil {
		return 0, false, err
	}
	return w.now, o.attempts > 0, nil
}

func (w *fakeWorld) Forecast(_ context.Context, resource Target, most int) ([]Start, error) {
	var out []Start
	for _, o := range w.orders {
		if len(out) < most && o.state == "ready" && resource.Kind == KindAgent {
			out = append(out, Start{Order: o.Order, Queue: o.Queue})
		}
	}
	return out, nil
}

func (w *fakeWorld) Fingerprint(context.Context) (string, error) {
	return fmt.Sprint(w.fingerprint), nil
}

var errBroken = errors.New("the database is gone")
