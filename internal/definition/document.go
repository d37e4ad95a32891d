package definition

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Kind says what a document defines.
type Kind string

// The kinds of documents.
const (
	KindQueue    Kind = "queue"
	KindLock     Kind = "lock"
	KindAgent    Kind = "agent"
	KindWorkflow Kind = "workflow"
)

// Kinds lists the kinds of documents in the order in which they can be applied:
// each refers only to kinds before it and to its own.
func Kinds() []Kind {
	return []Kind{KindQueue, KindLock, KindAgent, KindWorkflow}
}

// Document is one definition. Exactly one of the pointers is set, the one that
// belongs to Kind.
type Document struct {
	Kind     Kind
	Queue    *Queue
	Lock     *Lock
	Agent    *Agent
	Workflow *Workflow
	// File and Line say where the document starts; "" and 0 for one that wasn't
	// read from text.
	File string
	Line int

	positions map[string]position
}

// Name is the name of what the document defines.
func (d Document) Name() string {
	switch {
	case d.Queue != nil:
		return d.Queue.Name
	case d.Lock != nil:
		return d.Lock.Name
	case d.Agent != nil:
		return d.Agent.Name
	case d.Workflow != nil:
		return d.Workflow.Name
	}
	return ""
}

// Problem builds a problem of this document at a path such as
// "steps[1].lock.L1", with the position of the nearest part that was read.
func (d Document) Problem(path, code, message, hint string) Problem {
	pos := lookUp(d.positions, path)
	return Problem{
		File: d.File, Line: pos.line, Column: pos.column,
		Path: path, Code: code, Message: message, Hint: hint,
	}
}

// MarshalJSON writes the normal form: the kind, then the definition with its
// defaults filled in. Two documents have the same content exactly if their
// normal forms are the same bytes.
func (d Document) MarshalJSON() ([]byte, error) {
	body := d.body()
	if body == nil {
		return nil, fmt.Errorf("document of kind %q holds nothing", d.Kind)
	}
	text, err := marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write %s %s: %w", d.Kind, d.Name(), err)
	}
	head, err := marshal(d.Kind)
	if err != nil {
		return nil, fmt.Errorf("write %s %s: %w", d.Kind, d.Name(), err)
	}
	out := append([]byte(`{"kind":`), head...)
	out = append(out, ',')
	return append(out, text[1:]...), nil
}

// Normal is MarshalJSON without the escapes that json.Marshal adds for HTML, so
// that scripts stay readable.
func (d Document) Normal() ([]byte, error) { return marshal(d) }

// Load reads a definition back from its normal form, for example as the
// database stores it. Unlike Parse it doesn't check, and it ignores fields it
// doesn't know, so that a replica can read what a newer one has written.
func Load(kind Kind, normal []byte) (Document, error) {
	doc := Document{Kind: kind}
	if !doc.allocate() {
		return Document{}, fmt.Errorf("load definition: unknown kind %q", kind)
	}
	if err := json.Unmarshal(normal, doc.body()); err != nil {
		return Document{}, fmt.Errorf("load %s: %w", kind, err)
	}
	return doc, nil
}

// allocate sets the pointer that belongs to the kind and reports whether the
// kind is known.
func (d *Document) allocate() bool {
	switch d.Kind {
	case KindQueue:
		d.Queue = new(Queue)
	case KindLock:
		d.Lock = new(Lock)
	case KindAgent:
		d.Agent = new(Agent)
	case KindWorkflow:
		d.Workflow = new(Workflow)
	default:
		return false
	}
	return true
}

// body is the definition the kind names, nil if it isn't there.
func (d Document) body() body {
	switch {
	case d.Kind == KindQueue && d.Queue != nil:
		return d.Queue
	case d.Kind == KindLock && d.Lock != nil:
		return d.Lock
	case d.Kind == KindAgent && d.Agent != nil:
		return d.Agent
	case d.Kind == KindWorkflow && d.Workflow != nil:
		return d.Workflow
	}
	return nil
}

// body is what each kind of definition can do.
type body interface {
	// fields are the fields of the document besides its kind.
	fields(d *decoder) []field
	// normalise fills in defaults.
	normalise()
	// validate checks the rules that need nothing but the definition.
	validate(v *validation)
	// references calls add for each definition that this one names.
	references(add func(Kind, string, string))
}

// marshal is json.Marshal without HTML escapes and without the final newline.
func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
