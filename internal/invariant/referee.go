package invariant

import (
	"fmt"
	"sync"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Referee watches agents: what they were given and what became of it. What runs
// as it sees it is always less than what runs in the database: from when an
// agent has its lease until it begins to give it up. So whatever the referee
// finds at once was so in the database too.
type Referee struct {
	mu sync.Mutex
	// limits of agents, by name.
	limits  map[string]int
	running map[int64]attempt // by order
	keys    map[string]int64  // order that runs, by key
	count   map[string]int    // running, by agent
	newest  map[int64]int64   // last lease, by order
	lost    map[int64]bool    // leases that were given up without a report
	ended   map[int64]bool    // leases that were reported at least once
	stale   map[int64]bool    // leases that were not the order's any more when they were first reported
	settled map[int64]bool    // leases whose report was accepted
	found   []Violation
}

type attempt struct {
	lease      int64
	agent, key string
}

// NewReferee watches agents with these process limits; an agent that isn't
// named has none.
func NewReferee(limits map[string]int) *Referee {
	return &Referee{
		limits: limits, running: map[int64]attempt{}, keys: map[string]int64{}, count: map[string]int{},
		newest: map[int64]int64{}, lost: map[int64]bool{}, ended: map[int64]bool{}, stale: map[int64]bool{}, settled: map[int64]bool{},
	}
}

func (r *Referee) add(rule, subject, format string, args ...any) {
	r.found = append(r.found, Violation{Rule: rule, Subject: subject, Detail: fmt.Sprintf(format, args...)})
}

// Started says that an agent has got leases. The keys of all workflows that it
// watches are taken to be of one key space.
func (r *Referee) Started(agent string, leases []protocol.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range leases {
		if now, runs := r.running[l.Order]; runs {
			if now.lease == l.Lease {
				continue // the answer to a repeated request
			}
			r.add("order_runs_twice", fmt.Sprint(l.Order), "leases %d and %d", now.lease, l.Lease)
			r.forget(l.Order, now)
		}
		if l.Lease <= r.newest[l.Order] {
			r.add("lease_not_newer", fmt.Sprint(l.Order), "lease %d after %d", l.Lease, r.newest[l.Order])
		}
		r.newest[l.Order] = l.Lease
		if l.Key != "" {
			if other, runs := r.keys[l.Key]; runs {
				r.add("two_run_of_key", l.Key, "orders %d and %d", other, l.Order)
			}
			r.keys[l.Key] = l.Order
		}
		r.running[l.Order] = attempt{lease: l.Lease, agent: agent, key: l.Key}
		r.count[agent]++
		if limit, limited := r.limits[agent]; limited && r.count[agent] > limit {
			r.add("too_many_run", agent, "%d, limit %d", r.count[agent], limit)
		}
	}
}

func (r *Referee) forget(order int64, a attempt) {
	delete(r.running, order)
	r.count[a.agent]--
	if r.keys[a.key] == order {
		delete(r.keys, a.key)
	}
}

// Ending says that an agent is about to report a lease, perhaps again.
func (r *Referee) Ending(ref protocol.LeaseRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended[ref.Lease] {
		r.ended[ref.Lease] = true
		r.stale[ref.Lease] = r.lost[ref.Lease] || r.newest[ref.Order] > ref.Lease
	}
	r.giveUp(ref)
}

func (r *Referee) giveUp(ref protocol.LeaseRef) {
	if a, runs := r.running[ref.Order]; runs && a.lease == ref.Lease {
		r.forget(ref.Order, a)
	}
}

// Lost says that a lease is about to be given up without a report: its session
// ends, or nobody ever acknowledged it. A report that comes later is stale.
func (r *Referee) Lost(ref protocol.LeaseRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[ref.Lease] = true
	r.giveUp(ref)
}

// Reported says what came of a report.
func (r *Referee) Reported(result protocol.ReportResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case result.Accepted && r.stale[result.Lease]:
		r.add("stale_report_accepted", fmt.Sprint(result.Order), "lease %d, newest %d", result.Lease, r.newest[result.Order])
	case result.Accepted:
		r.settled[result.Lease] = true
	case r.settled[result.Lease]:
		r.add("repeated_report_refused", fmt.Sprint(result.Order), "lease %d: %s", result.Lease, result.Code)
	case !r.lost[result.Lease]:
		r.add("report_refused", fmt.Sprint(result.Order), "lease %d: %s", result.Lease, result.Code)
	}
}

// Found returns what was seen so far.
func (r *Referee) Found() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Violation(nil), r.found...)
}
