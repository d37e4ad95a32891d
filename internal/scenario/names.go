package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// maxNames bounds how many names the ranges of one file may make.
const maxNames = 100_000

var (
	rangePattern = regexp.MustCompile(`^([^{}]*)\{(0|[1-9][0-9]{0,8})\.\.(0|[1-9][0-9]{0,8})\}([^{}]*)$`)
	runPattern   = regexp.MustCompile(`^([^*]+)\*([1-9][0-9]{0,8})$`)
)

// expand turns x{1..3} into x1, x2, x3 and leaves a plain name alone.
func expand(name string) ([]string, error) {
	if !strings.ContainsAny(name, "{}") {
		return []string{name}, nil
	}
	m := rangePattern.FindStringSubmatch(name)
	if m == nil {
		return nil, fmt.Errorf("%q is no range: write it as x{1..10}", name)
	}
	low, err := strconv.Atoi(m[2])
	if err != nil {
		return nil, fmt.Errorf("range %q: %w", name, err)
	}
	high, err := strconv.Atoi(m[3])
	if err != nil {
		return nil, fmt.Errorf("range %q: %w", name, err)
	}
	if low > high {
		return nil, fmt.Errorf("range %q goes down", name)
	}
	if high-low >= maxNames {
		return nil, fmt.Errorf("range %q has more than %d names", name, maxNames)
	}
	names := make([]string, 0, high-low+1)
	for i := low; i <= high; i++ {
		names = append(names, m[1]+strconv.Itoa(i)+m[4])
	}
	return names, nil
}

// expandAt expands the name and reports a mistake at the node.
func (r *reader) expandAt(n ast.Node, name string) []string {
	if strings.Contains(name, "*") {
		r.fail(n, "%q: a run of a queue's orders can stand only in started, granted and forecast", name)
		return nil
	}
	names, err := expand(name)
	if err != nil {
		r.fail(n, "%s", err)
		return nil
	}
	if r.orders += len(names); r.orders > maxNames {
		r.fail(n, "the file names more than %d orders", maxNames)
		return nil
	}
	return names
}

// orderName reads the name of exactly one order.
func (r *reader) orderName(n ast.Node, what string) string {
	name := r.name(n, what)
	if strings.ContainsAny(name, "{}*") {
		r.fail(n, "%s must name one order, not %q", what, name)
	}
	return name
}

// names reads a list of names, each of which may be a range.
func (r *reader) names(n ast.Node, what string) []string {
	nodes, ok := r.list(n, what)
	if !ok {
		return nil
	}
	out := []string{}
	for _, node := range nodes {
		if name := r.name(node, "a name in "+what); name != "" {
			out = append(out, r.expandAt(node, name)...)
		}
	}
	return out
}

// pick is one element of an expected sequence: an order by name, or any order of
// a queue.
type pick struct {
	order string
	queue string
	// byQueue says that queue counts, in which "" is no queue.
	byQueue bool
}

// picks is an expected sequence of starts or grants.
type picks []pick

// picks reads a sequence such as [J1, "x{1..3}", "Q1*5", "-*4"].
func (r *reader) picks(n ast.Node, what string) picks {
	nodes, ok := r.list(n, what)
	if !ok {
		return nil
	}
	out := picks{}
	for _, node := range nodes {
		name := r.name(node, "a name in "+what)
		if name == "" {
			continue
		}
		if !strings.Contains(name, "*") {
			for _, order := range r.expandAt(node, name) {
				out = append(out, pick{order: order})
			}
			continue
		}
		m := runPattern.FindStringSubmatch(name)
		if m == nil {
			r.fail(node, `%q is no run of orders: write it as Q1*5, or -*5 for orders of no queue`, name)
			continue
		}
		count, err := strconv.Atoi(m[2])
		if r.orders += count; err != nil || r.orders > maxNames {
			r.fail(node, "%q: the file names more than %d orders", name, maxNames)
			continue
		}
		out = append(out, slices.Repeat(picks{{queue: noQueue(m[1]), byQueue: true}}, count)...)
	}
	return out
}

// noQueue turns the written name of a queue into the World's, in which no queue
// is empty.
func noQueue(name string) string {
	if name == "-" {
		return ""
	}
	return name
}

// queueLabel is the other way round.
func queueLabel(name string) string {
	if name == "" {
		return "-"
	}
	return name
}

// matches says whether the starts are the expected ones, one by one.
func (p picks) matches(got []Start) bool {
	return slices.EqualFunc(p, got, func(want pick, got Start) bool {
		if want.byQueue {
			return want.queue == got.Queue
		}
		return want.order == got.Order
	})
}

// labels writes the sequence with neighbours of one queue drawn together.
func (p picks) labels() []string {
	out := []string{}
	for i := 0; i < len(p); {
		if !p[i].byQueue {
			out = append(out, p[i].order)
			i++
			continue
		}
		run := 1
		for i+run < len(p) && p[i+run] == p[i] {
			run++
		}
		out = append(out, fmt.Sprintf("%s*%d", queueLabel(p[i].queue), run))
		i += run
	}
	return out
}

// like writes what was observed the way it was expected: where a queue was
// expected as a queue, elsewhere by name; what goes on past the end as the last
// one that was expected.
func (p picks) like(got []Start) []string {
	shown := make(picks, len(got))
	for i, s := range got {
		byQueue := false
		if len(p) > 0 {
			byQueue = p[min(i, len(p)-1)].byQueue
		}
		if byQueue {
			shown[i] = pick{queue: s.Queue, byQueue: true}
		} else {
			shown[i] = pick{order: s.Order}
		}
	}
	return shown.labels()
}
