package scenario

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// stepReader reads what stands behind a step's word.
type stepReader func(r *reader, n ast.Node) action

var stepReaders map[string]stepReader

// init because refused reads a step inside a step.
func init() {
	stepReaders = map[string]stepReader{
		"add":          (*reader).add,
		"claim":        (*reader).claim,
		"run":          (*reader).run,
		"upload":       (*reader).upload,
		"complete":     (*reader).complete,
		"attach":       (*reader).attach,
		"discard":      (*reader).discard,
		"store":        (*reader).store,
		"advance":      (*reader).advance,
		"move":         (*reader).move,
		"assign":       (*reader).assign,
		"release":      (*reader).release,
		"resolve":      (*reader).resolve,
		"line":         (*reader).line,
		"pause":        (*reader).pause,
		"unpause":      (*reader).unpause,
		"expect":       (*reader).expect,
		"refused":      (*reader).refused,
		"queue":        applies((*reader).queue),
		"lock":         applies((*reader).lock),
		"agent":        applies((*reader).agent),
		"workflow":     applies((*reader).workflow),
		"delete_queue": deletes(KindQueue),
		"delete_lock":  deletes(KindLock),
		"delete_agent": deletes(KindAgent),
		"finish":       onOrders(World.Finish),
		"fail":         onOrders(World.Fail),
		"time_out":     onOrders(World.TimeOut),
		"lose":         onOrders(World.Lose),
		"cancel":       onOrders(withReason(World.Cancel)),
		"suspend":      onOrders(withReason(World.Suspend)),
		"resume":       onOrders(withReason(World.Resume)),
	}
}

// notRefused are the steps that no refusal can answer.
var notRefused = []string{"expect", "refused", "run", "advance", "store"}

func (r *reader) step(n ast.Node) (Step, bool) {
	fields := r.fields(n, "a step")
	if len(fields) == 0 {
		if _, ok := n.(*ast.MappingNode); ok {
			r.fail(n, "a step must have a word, such as add or run")
		}
		return Step{}, false
	}
	if len(fields) > 1 {
		r.fail(fields[1].key, "a step is one thing; write %s as a step of its own", fields[1].name)
		return Step{}, false
	}
	f := fields[0]
	read, ok := stepReaders[f.name]
	if !ok {
		words := make([]string, 0, len(stepReaders))
		for word := range stepReaders {
			words = append(words, word)
		}
		slices.Sort(words)
		r.fail(f.key, "unknown step %q (known: %s)", f.name, strings.Join(words, ", "))
		return Step{}, false
	}
	if f.value == nil {
		return Step{}, false
	}
	line, _ := position(f.key)
	return Step{Line: line, Word: f.name, action: read(r, f.value)}, true
}

func (r *reader) refused(n ast.Node) action {
	m := r.mapping(n, "refused")
	a := &refusedStep{}
	if c, ok := m.get("code"); ok {
		a.code = r.word(c, "code", refusalCodes)
	} else {
		m.missing("code")
	}
	if s, ok := m.get("step"); ok {
		inner, ok := r.step(s)
		if ok && slices.Contains(notRefused, inner.Word) {
			r.fail(s, "%s is never refused", inner.Word)
		}
		a.inner = inner
	} else {
		m.missing("step")
	}
	m.done()
	return a
}

func (r *reader) add(n ast.Node) action {
	nodes, _ := r.list(n, "add")
	a := &addStep{}
	for _, node := range nodes {
		m := r.mapping(node, "an order")
		var o NewOrder
		var names []string
		if v, ok := m.get("order"); ok {
			if name := r.name(v, "order"); name != "" {
				names = r.expandAt(v, name)
			}
		} else {
			m.missing("order")
		}
		o.Workflow = r.requiredName(m, "workflow")
		if v, ok := m.get("key"); ok && !isNull(v) {
			if key, ok := r.text(v, "key"); ok {
				o.Key = &key
			}
		}
		if v, ok := m.get("queue"); ok && !isNull(v) {
			o.Queue = noQueue(r.name(v, "queue"))
		}
		if v, ok := m.get("due"); ok {
			due := r.duration(v, "due")
			o.DueIn = &due
		}
		if v, ok := m.get("wait_limit"); ok {
			limit := r.length(v, "wait_limit")
			o.WaitLimit = &limit
		}
		if v, ok := m.get("args"); ok {
			r.fields(v, "args")
			args, err := json.Marshal(r.value(v))
			if err != nil {
				r.fail(v, "args: %s", err)
			}
			o.Args = args
		}
		if v, ok := m.get("attachments"); ok {
			o.Attachments = []NewAttachment{}
			list, _ := r.list(v, "attachments")
			for _, node := range list {
				am := r.mapping(node, "an attachment")
				o.Attachments = append(o.Attachments, r.attachment(am))
				am.done()
			}
		}
		m.done()
		for _, name := range names {
			o.Order = name
			a.orders = append(a.orders, o)
		}
	}
	if len(nodes) == 0 {
		r.fail(n, "add names no order")
	}
	return a
}

// attachment reads name, size and sha256.
func (r *reader) attachment(m *mapping) NewAttachment {
	a := NewAttachment{Name: r.requiredName(m, "name")}
	if v, ok := m.get("size"); ok {
		size, _ := r.integer(v, "size")
		a.Size = &size
	}
	if v, ok := m.get("sha256"); ok {
		a.SHA256 = r.name(v, "sha256")
	}
	return a
}

func (r *reader) claim(n ast.Node) action {
	m := r.mapping(n, "claim")
	a := &claimStep{agent: r.requiredName(m, "agent")}
	if v, ok := m.get("slots"); ok {
		a.slots = r.count(v, "slots")
	}
	m.done()
	return a
}

// count reads a number of at least 1.
func (r *reader) count(n ast.Node, what string) int {
	i, ok := r.integer(n, what)
	if ok && (i < 1 || i > maxNames) {
		r.fail(n, "%s must be between 1 and %d", what, maxNames)
	}
	return int(i)
}

func (r *reader) run(n ast.Node) action {
	switch n.(type) {
	case *ast.StringNode:
		r.word(n, "run", []string{"until_idle"})
		return &runStep{}
	case *ast.IntegerNode:
		return &runStep{starts: r.count(n, "run")}
	}
	r.fail(n, "run must be until_idle or a number of starts, not %s", describe(n))
	return &runStep{}
}

func (r *reader) upload(n ast.Node) action {
	m := r.mapping(n, "upload")
	u := Upload{Order: r.requiredOrder(m), Attachment: r.requiredName(m, "attachment")}
	if v, ok := m.get("bytes"); ok {
		s, _ := r.text(v, "bytes")
		u.Bytes = []byte(s)
	} else {
		m.missing("bytes")
	}
	if v, ok := m.get("partial"); ok {
		u.Partial = r.truth(v, "partial")
	}
	m.done()
	return &uploadStep{u}
}

func (r *reader) complete(n ast.Node) action {
	m := r.mapping(n, "complete")
	a := &completeStep{order: r.requiredOrder(m), attachment: r.requiredName(m, "attachment")}
	m.done()
	return a
}

func (r *reader) attach(n ast.Node) action {
	m := r.mapping(n, "attach")
	a := &attachStep{order: r.requiredOrder(m), attachment: r.attachment(m)}
	m.done()
	return a
}

func (r *reader) discard(n ast.Node) action {
	m := r.mapping(n, "discard")
	a := &discardStep{order: r.requiredOrder(m), attachment: r.requiredName(m, "attachment"), reason: r.optionalReason(m)}
	m.done()
	return a
}

func (r *reader) store(n ast.Node) action {
	return &storeStep{readable: r.word(n, "store", storeWords) == "readable"}
}

func (r *reader) advance(n ast.Node) action {
	return &advanceStep{by: r.length(n, "advance")}
}

func (r *reader) move(n ast.Node) action {
	m := r.mapping(n, "move")
	a := &moveStep{Move{Order: r.requiredOrder(m)}}
	given := 0
	if v, ok := m.get("to"); ok {
		given++
		a.move.Place = Place(r.word(v, "to", []string{string(First), string(Last)}))
	}
	for _, place := range []Place{Before, After} {
		if v, ok := m.get(string(place)); ok {
			given++
			a.move.Place, a.move.Other = place, r.orderName(v, string(place))
		}
	}
	if given != 1 {
		r.fail(n, "move needs one of to, before and after")
	}
	m.done()
	return a
}

func (r *reader) assign(n ast.Node) action {
	m := r.mapping(n, "assign")
	a := &assignStep{order: r.requiredOrder(m)}
	if v, ok := m.get("queue"); !ok {
		m.missing("queue")
	} else if !isNull(v) {
		a.queue = noQueue(r.name(v, "queue"))
	}
	m.done()
	return a
}

func (r *reader) release(n ast.Node) action {
	m := r.mapping(n, "release")
	a := &releaseStep{order: r.requiredOrder(m), reason: r.optionalReason(m)}
	m.done()
	return a
}

func (r *reader) resolve(n ast.Node) action {
	m := r.mapping(n, "resolve")
	a := &resolveStep{Resolution{Order: r.requiredOrder(m), Reason: r.optionalReason(m)}}
	if v, ok := m.get("action"); ok {
		a.resolution.Action = r.word(v, "action", resolveWords)
	} else {
		m.missing("action")
	}
	m.done()
	return a
}

func (r *reader) line(n ast.Node) action {
	m := r.mapping(n, "line")
	a := &lineStep{agent: r.requiredName(m, "agent"), reason: r.optionalReason(m)}
	if v, ok := m.get("mode"); ok {
		a.mode = r.word(v, "mode", setModeWords)
	} else {
		m.missing("mode")
	}
	m.done()
	return a
}

// target reads which one definition is paused.
func (r *reader) target(m *mapping) Target {
	var found []Target
	for _, kind := range []Kind{KindQueue, KindAgent, KindLock, KindWorkflow} {
		if v, ok := m.get(string(kind)); ok {
			found = append(found, Target{Kind: kind, Name: r.name(v, string(kind))})
		}
	}
	if len(found) != 1 {
		r.fail(m.node, "%s needs one of queue, agent, lock and workflow", m.what)
		return Target{}
	}
	return found[0]
}

func (r *reader) pause(n ast.Node) action {
	m := r.mapping(n, "pause")
	a := &pauseStep{Pause{Target: r.target(m), Reason: r.optionalReason(m)}}
	if v, ok := m.get("for"); ok {
		if a.pause.For = r.duration(v, "for"); a.pause.For <= 0 {
			r.fail(v, "for must be positive")
		}
	}
	m.done()
	return a
}

func (r *reader) unpause(n ast.Node) action {
	m := r.mapping(n, "unpause")
	a := &unpauseStep{r.target(m)}
	m.done()
	return a
}

func applies(read func(r *reader, n ast.Node) Document) stepReader {
	return func(r *reader, n ast.Node) action { return &applyStep{read(r, n)} }
}

func deletes(kind Kind) stepReader {
	return func(r *reader, n ast.Node) action {
		return &deleteStep{Target{Kind: kind, Name: r.name(n, "the "+string(kind)+" to delete")}}
	}
}

func onOrders(do operation) stepReader {
	return func(r *reader, n ast.Node) action {
		names := r.names(n, "it")
		if list, ok := n.(*ast.SequenceNode); ok && len(list.Values) == 0 {
			r.fail(n, "the list is empty")
		}
		return &operationStep{names: names, operation: do}
	}
}
