package definition

import (
	"fmt"
	"strings"
	"time"
)

// Workflow is what orders travel through.
type Workflow struct {
	Name     string   `json:"name"`
	Ordering Ordering `json:"ordering"`
	// KeySpace is what keys belong to (docs/concepts.md, "Keys and release"). Its default, the
	// workflow's name, is filled in; "" if the ordering is independent.
	KeySpace string `json:"key_space,omitempty"`
	// WaitLimit is how long an order waits for its attachments; nil means for ever.
	WaitLimit *Duration `json:"wait_limit,omitempty"`
	// Attachments are expected of each order that states none itself.
	Attachments []Attachment `json:"attachments,omitempty"`
	// Defaults hold for the jobs that don't say otherwise.
	Defaults Policy `json:"defaults,omitzero"`
	Steps    []Step `json:"steps"`
	// AllowCycle lets the workflow take locks in an order that can wait in a
	// cycle with others.
	AllowCycle bool `json:"allow_cycle,omitempty"`
}

// Attachment is an expected input.
type Attachment struct {
	Name string `json:"name"`
	// Size in bytes, if it is known.
	Size *int64 `json:"size,omitempty"`
	// SHA256 in lower-case hexadecimal, if it is known.
	SHA256 string `json:"sha256,omitempty"`
}

// Policy says where and how often a job runs. What is left out is taken from
// the workflow's defaults, then from the product's (see Flatten).
type Policy struct {
	Agent       string   `json:"agent,omitempty"`
	MaxAttempts *int     `json:"max_attempts,omitempty"`
	Backoff     *Backoff `json:"backoff,omitempty"`
	// Timeout of one attempt; 0 means none, also where the default has one.
	Timeout *Duration `json:"timeout,omitempty"`
	OnLost  OnLost    `json:"on_lost,omitempty"`
}

// Backoff is the pause before a failed job runs again: First x n^2 after the
// n-th failure, at most Max.
type Backoff struct {
	First *Duration `json:"first,omitempty"`
	Max   *Duration `json:"max,omitempty"`
}

// OnLost says what happens when the agent that ran a job is lost.
type OnLost string

// What can happen.
const (
	LostRetry     OnLost = "retry"     // it counts as a failed attempt
	LostAttention OnLost = "attention" // a person must decide
)

// The product's defaults (docs/concepts.md, "Failure, retries, dead"). There is no timeout by default.
const (
	DefaultMaxAttempts  = 5
	DefaultBackoffFirst = 2 * time.Second
	DefaultBackoffMax   = time.Hour
	// MaxMaxAttempts bounds max_attempts.
	MaxMaxAttempts = 1000
)

func (w *Workflow) fields(d *decoder) []field {
	return []field{
		{name: "name", set: text(d, &w.Name)},
		{name: "ordering", set: d.ordering(&w.Ordering)},
		{name: "key_space", set: text(d, &w.KeySpace)},
		{name: "wait_limit", set: d.duration(&w.WaitLimit)},
		{name: "attachments", set: func(n *node, path string) {
			d.list(n, path, func(n *node, path string) {
				var a Attachment
				d.object(n, path, []field{
					{name: "name", set: text(d, &a.Name)},
					{name: "size", set: d.optionalSize(&a.Size)},
					{name: "sha256", set: text(d, &a.SHA256)},
				})
				w.Attachments = append(w.Attachments, a)
			})
		}},
		{name: "defaults", set: func(n *node, path string) { d.object(n, path, w.Defaults.fields(d)) }},
		{name: "steps", set: d.steps(&w.Steps)},
		{name: "allow_cycle", set: d.boolean(&w.AllowCycle)},
	}
}

func (p *Policy) fields(d *decoder) []field {
	return []field{
		{name: "agent", set: text(d, &p.Agent)},
		{name: "max_attempts", set: d.optionalInteger(&p.MaxAttempts)},
		{name: "backoff", set: func(n *node, path string) {
			p.Backoff = new(Backoff)
			d.object(n, path, []field{
				{name: "first", set: d.duration(&p.Backoff.First)},
				{name: "max", set: d.duration(&p.Backoff.Max)},
			})
		}},
		{name: "timeout", set: d.duration(&p.Timeout)},
		{name: "on_lost", set: text(d, &p.OnLost)},
	}
}

func (w *Workflow) normalise() {
	if w.KeySpace == "" && w.Ordering.Kind != Independent {
		w.KeySpace = w.Name
	}
	w.Attachments = nonEmpty(w.Attachments)
	for i := range w.Attachments {
		w.Attachments[i].SHA256 = strings.ToLower(w.Attachments[i].SHA256)
	}
	w.Defaults.normalise()
	w.Steps = normaliseSteps(w.Steps)
}

func (p *Policy) normalise() {
	if p.Backoff != nil && *p.Backoff == (Backoff{}) {
		p.Backoff = nil
	}
}

func (w *Workflow) validate(v *validation) {
	w.Ordering.validate(v, "ordering")
	switch {
	case w.KeySpace == "":
	case w.Ordering.Kind == Independent:
		v.add("key_space", "a workflow with independent orders has no keys", "leave it out, or state another ordering")
	case w.KeySpace != w.Name:
		v.name("key_space", w.KeySpace)
	}
	if w.WaitLimit != nil && *w.WaitLimit <= 0 {
		v.add("wait_limit", "must be longer than 0", "leave it out for no limit")
	}
	w.validateAttachments(v)
	w.Defaults.validate(v, "defaults", Policy{})
	if len(w.Steps) == 0 {
		v.add("steps", "a workflow needs at least one step", "")
	}
	validateSteps(v, "steps", w.Steps, &scope{workflow: w, jobs: map[string]string{}})
}

func (w *Workflow) validateAttachments(v *validation) {
	seen := map[string]bool{}
	for i, a := range w.Attachments {
		at := element("attachments", i)
		if v.seen[at] {
			continue
		}
		path := member(at, "name")
		v.name(path, a.Name)
		if a.Name != "" && seen[a.Name] {
			v.add(path, a.Name+" is listed twice", "")
		}
		seen[a.Name] = true
		if a.Size != nil && *a.Size < 0 {
			v.add(member(at, "size"), "a size can't be negative", "")
		}
		if a.SHA256 != "" && !hashPattern.MatchString(a.SHA256) {
			v.add(member(at, "sha256"), "must be 64 hexadecimal digits", "")
		}
	}
}

// validate checks a policy that stands at path over the defaults.
func (p Policy) validate(v *validation, path string, defaults Policy) {
	if p.Agent != "" {
		v.name(member(path, "agent"), p.Agent)
	}
	if p.MaxAttempts != nil && (*p.MaxAttempts < 1 || *p.MaxAttempts > MaxMaxAttempts) {
		v.add(member(path, "max_attempts"), fmt.Sprintf("must be between 1 and %d, is %d", MaxMaxAttempts, *p.MaxAttempts), "")
	}
	if p.Timeout != nil && *p.Timeout < 0 {
		v.add(member(path, "timeout"), "can't be negative", "0s means none")
	}
	oneOf(v, member(path, "on_lost"), p.OnLost, string(LostRetry), string(LostAttention))
	if p.Backoff == nil {
		return
	}
	at := member(path, "backoff")
	// A pause of 0 would let a job that fails at once fail without a break.
	if first := p.Backoff.First; first != nil && first.Std() < time.Millisecond {
		v.add(member(at, "first"), "must be at least 1ms", "")
	}
	if first, highest := effectiveBackoff(p, defaults); first > highest {
		v.add(at, fmt.Sprintf("first (%s) is longer than max (%s)", Duration(first), Duration(highest)), "")
	}
}

// effectiveBackoff merges a job's backoff with its workflow's defaults.
func effectiveBackoff(p, defaults Policy) (first, highest time.Duration) {
	first, highest = DefaultBackoffFirst, DefaultBackoffMax
	for _, b := range []*Backoff{defaults.Backoff, p.Backoff} {
		if b == nil {
			continue
		}
		if b.First != nil {
			first = b.First.Std()
		}
		if b.Max != nil {
			highest = b.Max.Std()
		}
	}
	return first, highest
}

func (w *Workflow) references(add func(Kind, string, string)) {
	if w.Defaults.Agent != "" {
		add(KindAgent, w.Defaults.Agent, "defaults.agent")
	}
	stepReferences(w.Steps, "steps", add)
}
