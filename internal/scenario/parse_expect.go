package scenario

import (
	"context"

	"github.com/goccy/go-yaml/ast"
)

// expectReader turns one part of an expectation into its checks.
type expectReader struct {
	name string
	read func(r *reader, n ast.Node) []check
}

var expectReaders = []expectReader{
	{"started", func(r *reader, n ast.Node) []check {
		line, _ := position(n)
		return []check{startedCheck(line, r.picks(n, "started"))}
	}},
	{"granted", perName("granted", func(r *reader, name string, line int, n ast.Node) []check {
		return []check{grantedCheck(line, name, r.picks(n, "granted "+name))}
	})},
	{"forecast", perName("forecast", func(r *reader, name string, line int, n ast.Node) []check {
		return []check{forecastCheck(line, name, r.picks(n, "forecast "+name))}
	})},
	{"states", perOrder("states", (*reader).state)},
	{"why", perOrder("why", (*reader).why)},
	{"attempts", perOrder("attempts", func(r *reader, order string, line int, n ast.Node) []check {
		want, _ := r.integer(n, "attempts "+order)
		return []check{numberCheck(line, "attempts "+order, want, func(ctx context.Context, w World) (int64, error) {
			got, err := w.Attempts(ctx, order)
			return int64(got), err
		})}
	})},
	{"ready_wait", perOrder("ready_wait", func(r *reader, order string, line int, n ast.Node) []check {
		return []check{readyWaitCheck(line, order, r.length(n, "ready_wait "+order))}
	})},
	{"lists", perName("lists", (*reader).lists)},
	{"in_queue", perName("in_queue", func(r *reader, name string, line int, n ast.Node) []check {
		return []check{sequenceCheck(line, "in_queue "+name, r.names(n, "in_queue "+name),
			func(ctx context.Context, w World) ([]string, error) { return w.InQueue(ctx, noQueue(name)) })}
	})},
	{"overflow", perName("overflow", func(r *reader, name string, line int, n ast.Node) []check {
		return []check{sequenceCheck(line, "overflow "+name, r.names(n, "overflow "+name),
			func(ctx context.Context, w World) ([]string, error) { return w.Overflow(ctx, noQueue(name)) })}
	})},
	{"lines", perName("lines", (*reader).lineMode)},
	{"held_units", perName("held_units", func(r *reader, name string, line int, n ast.Node) []check {
		want, _ := r.integer(n, "held_units "+name)
		return []check{numberCheck(line, "held_units "+name, want,
			func(ctx context.Context, w World) (int64, error) { return w.HeldUnits(ctx, name) })}
	})},
	{"running", func(r *reader, n ast.Node) []check {
		line, _ := position(n)
		return []check{setCheck(line, "running", r.names(n, "running"), func(ctx context.Context, w World) ([]string, error) { return w.Running(ctx) })}
	}},
}

func (r *reader) expect(n ast.Node) action {
	a := &expectStep{}
	m := r.mapping(n, "expect")
	read := map[string]expectReader{}
	for _, e := range expectReaders {
		m.get(e.name)
		read[e.name] = e
	}
	for _, f := range m.fields {
		if e, ok := read[f.name]; ok && f.value != nil {
			a.checks = append(a.checks, e.read(r, f.value)...)
		}
	}
	m.done()
	if len(m.fields) == 0 {
		r.fail(n, "expect compares nothing")
	}
	return a
}

// perName reads a mapping of names and calls each for every one.
func perName(what string, each func(r *reader, name string, line int, n ast.Node) []check) func(*reader, ast.Node) []check {
	return func(r *reader, n ast.Node) []check {
		var out []check
		fields := r.fields(n, what)
		for _, f := range fields {
			if f.value != nil {
				line, _ := position(f.key)
				out = append(out, each(r, f.name, line, f.value)...)
			}
		}
		if _, ok := n.(*ast.MappingNode); ok && len(fields) == 0 {
			r.fail(n, "%s compares nothing", what)
		}
		return out
	}
}

// perOrder is perName where a name may be a range of orders.
func perOrder(what string, each func(r *reader, order string, line int, n ast.Node) []check) func(*reader, ast.Node) []check {
	return perName(what, func(r *reader, name string, line int, n ast.Node) []check {
		var out []check
		errs := len(r.errs)
		for _, order := range r.expandAt(n, name) {
			out = append(out, each(r, order, line, n)...)
			if len(r.errs) > errs {
				break // once is enough for a whole range
			}
		}
		return out
	})
}

// state reads a word, or {state: word, reason: ...}.
func (r *reader) state(order string, line int, n ast.Node) []check {
	what := "states " + order
	if _, ok := n.(*ast.MappingNode); !ok {
		return []check{stateCheck(line, order, State{Word: r.word(n, what, stateWords)}, false)}
	}
	m := r.mapping(n, what)
	var want State
	withReason := false
	if v, ok := m.get("state"); ok {
		want.Word = r.word(v, "state", stateWords)
	} else {
		m.missing("state")
	}
	if v, ok := m.get("reason"); ok {
		want.Reason, withReason = r.name(v, "reason"), true
	}
	m.done()
	return []check{stateCheck(line, order, want, withReason)}
}

func (r *reader) why(order string, line int, n ast.Node) []check {
	what := "why " + order
	nodes, _ := r.list(n, what)
	want := []string{}
	for _, node := range nodes {
		want = append(want, r.word(node, what, whyCodes))
	}
	return []check{setCheck(line, what, want, func(ctx context.Context, w World) ([]string, error) {
		return w.Why(ctx, order)
	})}
}

// lists compares the lists that are given. Waiting and scheduled have an order
// (position, due time); the others are compared as sets, since nothing states
// one for them.
func (r *reader) lists(name string, _ int, n ast.Node) []check {
	var out []check
	m := r.mapping(n, "lists "+name)
	for _, list := range listWords {
		v, ok := m.get(list)
		if !ok {
			continue
		}
		what := "lists " + name + " " + list
		line, _ := position(v)
		compare := setCheck
		if ListName(list) == Waiting || ListName(list) == Scheduled {
			compare = sequenceCheck
		}
		out = append(out, compare(line, what, r.names(v, what), func(ctx context.Context, w World) ([]string, error) {
			return w.List(ctx, noQueue(name), ListName(list))
		}))
	}
	m.done()
	if len(m.fields) == 0 {
		r.fail(n, "lists %s compares nothing", name)
	}
	return out
}

func (r *reader) lineMode(agent string, line int, n ast.Node) []check {
	m := r.mapping(n, "lines "+agent)
	var want LineMode
	if v, ok := m.get("mode"); ok {
		want.Mode = r.word(v, "mode", lineModeWords)
	} else {
		m.missing("mode")
	}
	if v, ok := m.get("reason"); ok {
		want.Reason = r.word(v, "reason", lineReasonWords)
	}
	m.done()
	return []check{lineCheck(line, agent, want)}
}
