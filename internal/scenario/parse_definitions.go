package scenario

import (
	"encoding/json"

	"github.com/goccy/go-yaml/ast"
)

// kindOfValue is what a field of a definition must hold. Ranges, names and
// references are the product's to check, so that a scenario can expect them to
// be refused.
type kindOfValue int

const (
	aText kindOfValue = iota
	aNumber
	aNumberOrNone
	aDuration
	aListOfNames
	aTruth
	aMapping
	aList
)

type fieldRule struct {
	name string
	kind kindOfValue
}

var (
	queueFields = []fieldRule{{"capacity", aNumberOrNone}, {"penalty", aNumber}}
	lockFields  = []fieldRule{{"capacity", aNumber}, {"queues", aListOfNames}}
	agentFields = []fieldRule{
		{"processes", aNumberOrNone}, {"queues", aListOfNames}, {"max_blocked", aNumberOrNone}, {"director", aText},
	}
	workflowFields = []fieldRule{
		{"key_space", aText}, {"wait_limit", aDuration}, {"attachments", aList}, {"allow_cycle", aTruth},
	}
	// defaultFields may stand in a workflow's defaults or, shorter, beside them.
	defaultFields = []fieldRule{
		{"agent", aText}, {"max_attempts", aNumber}, {"backoff", aMapping}, {"timeout", aDuration}, {"on_lost", aText},
	}
)

// copyFields checks the fields that are given and puts them into the document.
func (m *mapping) copyFields(doc map[string]any, rules []fieldRule) {
	for _, rule := range rules {
		n, ok := m.get(rule.name)
		if !ok {
			continue
		}
		m.r.check(n, rule.name, rule.kind)
		doc[rule.name] = m.r.value(n)
	}
}

func (r *reader) check(n ast.Node, what string, kind kindOfValue) {
	switch kind {
	case aText:
		r.text(n, what)
	case aNumber:
		r.integer(n, what)
	case aNumberOrNone:
		if !isNull(n) {
			r.integer(n, what)
		}
	case aDuration:
		r.duration(n, what)
	case aListOfNames:
		nodes, _ := r.list(n, what)
		for _, node := range nodes {
			r.text(node, "a name in "+what)
		}
	case aTruth:
		r.truth(n, what)
	case aMapping:
		r.fields(n, what)
	case aList:
		r.list(n, what)
	}
}

// newDocument starts a definition with its kind and name.
func (r *reader) newDocument(n ast.Node, kind Kind) (*mapping, Document, map[string]any) {
	m := r.mapping(n, string(kind))
	name := r.requiredName(m, "name")
	line, _ := position(n)
	return m, Document{Target: Target{Kind: kind, Name: name}, Line: line},
		map[string]any{"kind": string(kind), "name": name}
}

// write finishes a definition: no field may be left over.
func (r *reader) write(m *mapping, doc Document, content map[string]any) Document {
	m.done()
	text, err := json.Marshal(content)
	if err != nil {
		r.fail(m.node, "%s: %s", m.what, err)
	}
	doc.JSON = text
	return doc
}

func (r *reader) queue(n ast.Node) Document {
	m, doc, content := r.newDocument(n, KindQueue)
	m.copyFields(content, queueFields)
	return r.write(m, doc, content)
}

func (r *reader) lock(n ast.Node) Document {
	m, doc, content := r.newDocument(n, KindLock)
	m.copyFields(content, lockFields)
	return r.write(m, doc, content)
}

func (r *reader) agent(n ast.Node) Document {
	m, doc, content := r.newDocument(n, KindAgent)
	if t, ok := m.get("type"); ok {
		doc.AgentType, _ = r.text(t, "type")
		content["type"] = doc.AgentType
	}
	m.copyFields(content, agentFields)
	if members, ok := m.get("members"); ok {
		nodes, _ := r.list(members, "members")
		for _, node := range nodes {
			member := r.mapping(node, "a member")
			r.requiredName(member, "agent")
			if p, ok := member.get("priority"); ok {
				r.integer(p, "priority")
			}
			member.done()
		}
		content["members"] = r.value(members)
	}
	return r.write(m, doc, content)
}

// workflow reads the long form (with steps, as in a definition) or the short
// one, which is one job step, in a lock block if lock is given.
func (r *reader) workflow(n ast.Node) Document {
	m, doc, content := r.newDocument(n, KindWorkflow)
	if o, ok := m.get("ordering"); ok {
		content["ordering"] = r.ordering(o)
	}
	m.copyFields(content, workflowFields)

	defaults := map[string]any{}
	if d, ok := m.get("defaults"); ok {
		inner := r.mapping(d, "defaults")
		inner.copyFields(defaults, defaultFields)
		inner.done()
		for _, rule := range defaultFields {
			if inner.has(rule.name) && m.has(rule.name) {
				r.fail(d, "%s is given beside defaults and in them", rule.name)
			}
		}
	}
	m.copyFields(defaults, defaultFields)
	if len(defaults) > 0 {
		content["defaults"] = defaults
	}

	if s, ok := m.get("steps"); ok {
		content["steps"] = r.steps(s, &doc.Jobs)
		for _, short := range []string{"lock", "resume_at", "processes"} {
			if v, ok := m.get(short); ok {
				r.fail(v, "%s belongs to the short form; with steps, write it in the steps", short)
			}
		}
	} else {
		content["steps"] = r.shortSteps(m)
		doc.Jobs = 1
	}
	return r.write(m, doc, content)
}

func (r *reader) ordering(n ast.Node) any {
	switch n.(type) {
	case *ast.StringNode:
		return r.word(n, "ordering", []string{"independent", "strict"})
	case *ast.MappingNode, *ast.MappingValueNode:
		m := r.mapping(n, "ordering")
		key := r.requiredName(m, "key")
		m.done()
		return map[string]any{"key": key}
	}
	r.fail(n, "ordering must be independent, strict or {key: ...}, not %s", describe(n))
	return nil
}

func (r *reader) shortSteps(m *mapping) []any {
	job := map[string]any{"job": "job", "noop": true}
	m.copyFields(job, []fieldRule{{"processes", aNumber}})
	block := map[string]any{}
	if lock, ok := m.get("lock"); ok {
		block["lock"] = r.locks(lock)
	}
	if at, ok := m.get("resume_at"); ok {
		if block["lock"] == nil {
			r.fail(at, "resume_at needs a lock")
		}
		block["resume_at"] = r.word(at, "resume_at", []string{"block", "step"})
	}
	if block["lock"] == nil {
		return []any{job}
	}
	block["steps"] = []any{job}
	return []any{block}
}

// locks reads {L1: 1, L2: exclusive}.
func (r *reader) locks(n ast.Node) map[string]any {
	out := map[string]any{}
	for _, f := range r.fields(n, "lock") {
		if f.value == nil {
			continue
		}
		if _, text := f.value.(*ast.StringNode); text {
			out[f.name] = r.word(f.value, "lock "+f.name, []string{"exclusive"})
			continue
		}
		weight, _ := r.integer(f.value, "lock "+f.name)
		out[f.name] = weight
	}
	if len(out) == 0 {
		r.fail(n, "lock names no lock")
	}
	return out
}

// steps passes on the steps of a workflow; a job that states no command runs
// without a process. What else may stand in a step is the definition's to check.
func (r *reader) steps(n ast.Node, jobs *int) []any {
	nodes, _ := r.list(n, "steps")
	out := make([]any, 0, len(nodes))
	for _, node := range nodes {
		step := map[string]any{}
		for _, f := range r.fields(node, "a workflow's step") {
			switch {
			case f.value == nil:
			case f.name == "steps":
				step[f.name] = r.steps(f.value, jobs)
			default:
				step[f.name] = r.value(f.value)
			}
		}
		if _, ok := step["job"]; ok {
			*jobs++
			if step["run"] == nil && step["argv"] == nil {
				step["noop"] = true
			}
		}
		out = append(out, step)
	}
	return out
}
