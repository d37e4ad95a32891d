package definition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// LockBlock is a step that takes locks, runs its steps, and gives the locks
// back.
type LockBlock struct {
	// Locks are sorted by name, which is the order in which they are taken.
	Locks LockRequests `json:"lock"`
	// ResumeAt says where an order starts again that went to attention or dead
	// inside the block and so gave its locks back.
	ResumeAt ResumeAt `json:"resume_at"`
	Steps    []Step   `json:"steps"`
}

// LockRequest asks for part of a lock.
type LockRequest struct {
	Lock string
	// Weight is the number of units of a shared request, 0 for an exclusive one.
	Weight    int
	Exclusive bool
}

// LockRequests are written as a mapping from lock to weight or "exclusive".
type LockRequests []LockRequest

// ResumeAt says where an order starts again.
type ResumeAt string

// Where that can be.
const (
	ResumeAtBlock ResumeAt = "block" // the start of its outermost lock block
	ResumeAtStep  ResumeAt = "step"  // the step where it was
)

const (
	wordShared    = "shared"
	wordExclusive = "exclusive"
)

// MarshalJSON writes {"L1": 1, "L2": "exclusive"}.
func (r LockRequests) MarshalJSON() ([]byte, error) {
	out := make(map[string]any, len(r))
	for _, request := range r {
		if request.Exclusive {
			out[request.Lock] = wordExclusive
		} else {
			out[request.Lock] = request.Weight
		}
	}
	return marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *LockRequests) UnmarshalJSON(data []byte) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("read locks: %w", err)
	}
	*r = make(LockRequests, 0, len(in))
	for _, lock := range slices.Sorted(maps.Keys(in)) {
		request := LockRequest{Lock: lock}
		if string(in[lock]) == strconv.Quote(wordExclusive) {
			request.Exclusive = true
		} else if err := json.Unmarshal(in[lock], &request.Weight); err != nil {
			return fmt.Errorf("read weight of lock %s: %w", lock, err)
		}
		*r = append(*r, request)
	}
	return nil
}

func decodeLockBlock(d *decoder, n *node, path string) Step {
	b := new(LockBlock)
	d.object(n, path, []field{
		{name: "lock", set: func(n *node, path string) { b.Locks = d.lockRequests(n, path) }},
		{name: "resume_at", set: text(d, &b.ResumeAt)},
		{name: "steps", set: d.steps(&b.Steps)},
	})
	return Step{Lock: b}
}

func (d *decoder) lockRequests(n *node, path string) LockRequests {
	const hint = "such as {L1: 1, L2: exclusive}; a number is a shared weight"
	if n.kind != mapNode {
		d.at(n.pos, path, "must be a mapping, is "+n.kind.String(), hint)
		return nil
	}
	var requests LockRequests
	d.members(n, path, func(e entry, at string) {
		// A lock's position is that of its name, which is what most problems are about.
		d.positions[at] = e.pos
		request := LockRequest{Lock: e.key, Weight: 1}
		switch {
		case e.value.kind == textNode && e.value.text == wordExclusive:
			request.Weight, request.Exclusive = 0, true
		case e.value.kind == textNode && e.value.text == wordShared:
		case e.value.kind == intNode:
			if weight, ok := d.readInt(e.value, at); ok {
				request.Weight = weight
			}
		default:
			d.at(e.value.pos, at, "must be a weight or exclusive", hint)
		}
		requests = append(requests, request)
	})
	return requests
}

func (b *LockBlock) normalise() {
	b.Locks = nonEmpty(b.Locks)
	slices.SortStableFunc(b.Locks, func(a, b LockRequest) int { return strings.Compare(a.Lock, b.Lock) })
	if b.ResumeAt == "" {
		b.ResumeAt = ResumeAtBlock
	}
	b.Steps = normaliseSteps(b.Steps)
}

func (b *LockBlock) validate(v *validation, path string, in *scope) {
	locks := member(path, "lock")
	if len(b.Locks) == 0 {
		v.add(locks, "a lock block needs at least one lock", "such as {L1: 1}")
	}
	inner := *in
	inner.depth++
	inner.held = maps.Clone(in.held)
	if inner.held == nil {
		inner.held = map[string]string{}
	}
	for i, request := range b.Locks {
		at := member(locks, request.Lock)
		v.name(at, request.Lock)
		switch {
		case request.Exclusive && request.Weight != 0:
			v.add(at, "an exclusive request has no weight", "")
		case !request.Exclusive:
			v.atLeast(at, request.Weight, 1, "")
		}
		if i > 0 && b.Locks[i-1].Lock == request.Lock {
			v.add(at, request.Lock+" is listed twice", "")
		}
		if outer, held := in.held[request.Lock]; held {
			v.add(at, fmt.Sprintf("%s is held already by the block at %s", request.Lock, outer), "")
		}
		inner.held[request.Lock] = path
	}
	oneOf(v, member(path, "resume_at"), b.ResumeAt, string(ResumeAtBlock), string(ResumeAtStep))
	if len(b.Steps) == 0 {
		v.add(member(path, "steps"), "a lock block needs at least one step", "")
	}
	validateSteps(v, member(path, "steps"), b.Steps, &inner)
}

func (b *LockBlock) references(path string, add func(Kind, string, string)) {
	for _, request := range b.Locks {
		add(KindLock, request.Lock, member(member(path, "lock"), request.Lock))
	}
	stepReferences(b.Steps, member(path, "steps"), add)
}

func (b *LockBlock) takeLocks(g *lockGraph, held []string) {
	held = slices.Clone(held)
	for _, request := range b.Locks {
		for _, before := range held {
			g.waits(before, request.Lock)
		}
		held = append(held, request.Lock)
	}
	g.visit(b.Steps, held)
}

func (b *LockBlock) flatten(f *flattening, path string) error {
	outer := len(f.locks)
	f.locks = append(f.locks, LockScope{Path: path, Locks: b.Locks, ResumeAt: b.ResumeAt})
	err := f.sequence(b.Steps, path+".")
	f.locks = f.locks[:outer]
	return err
}
