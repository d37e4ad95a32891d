package invariant_test

import (
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// orderState is what is compared of an order.
type orderState struct {
	ID                                            int64
	State, Stop, Reason, Queue                    string
	Position                                      int64
	Step, Attempt                                 int
	Started, Released                             bool
	Lease                                         int64
	Intake, Due, Files, Key, Candidate, Contested bool
}

func (m *machine) compare(t *rapid.T) {
	m.steps++
	rows, err := m.db.Pool.Query(m.ctx, m.db.SQL(`
		SELECT o.id, o.state::text, coalesce(o.stop::text, ''), coalesce(a.reason, ''), coalesce(q.name, ''), o.position,
		       split_part(s.step_path, '.', 1)::int - 1, o.attempt, o.started_at IS NOT NULL, o.released, coalesce(o.lease_no, 0),
		       o.state = 'waiting' AND o.intake_closed, o.state = 'waiting' AND o.due_closed, o.state = 'waiting' AND o.attachment_closed,
		       o.state = 'waiting' AND o.key_closed,
		       o.candidate AND NOT EXISTS (
		           SELECT FROM siding.pauses p JOIN siding.workflow_versions v ON v.workflow_id = p.subject_id
		           WHERE p.kind = 'workflow' AND v.version_id = s.version_id), false
		FROM siding.orders o JOIN siding.steps s ON s.step_id = o.step_id
		LEFT JOIN siding.queues q ON q.queue_id = o.queue_id
		LEFT JOIN siding.attentions a ON a.order_id = o.id AND o.state = 'attention'
		ORDER BY o.id`))
	if err != nil {
		t.Fatalf("%v", err)
	}
	got := []orderState{}
	for rows.Next() {
		var s orderState
		if err := rows.Scan(&s.ID, &s.State, &s.Stop, &s.Reason, &s.Queue, &s.Position, &s.Step, &s.Attempt, &s.Started, &s.Released, &s.Lease,
			&s.Intake, &s.Due, &s.Files, &s.Key, &s.Candidate, &s.Contested); err != nil {
			t.Fatalf("%v", err)
		}
		got = append(got, s)
	}
	if rows.Err() != nil {
		t.Fatalf("%v", rows.Err())
	}
	want := []orderState{}
	for _, o := range m.live() {
		s := orderState{
			ID: o.id, State: o.state, Stop: o.stop, Queue: o.queue, Position: o.position, Step: o.step, Attempt: o.attempt,
			Started: o.started, Released: o.released,
		}
		if o.state == "attention" {
			s.Reason = o.reason
		}
		if o.lease != nil {
			s.Lease = o.lease.no
		}
		if o.state == "waiting" {
			s.Intake, s.Due, s.Files, s.Key, s.Candidate = !o.placed, m.dueClosed(o), m.filesClosed(o), m.keyClosed(o), m.candidate(o)
		}
		want = append(want, s)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("orders (-model +database):\n%s", diff)
	}
	for _, name := range []string{"a1", "a2"} {
		line := value[[]int64](t, m.ctx, m.replica, `SELECT ids FROM siding.pick($1, 100)`, m.agents[name])
		if diff := cmp.Diff(m.line(name, 100), line); diff != "" {
			t.Fatalf("line of %s (-model +database):\n%s", name, diff)
		}
	}
	if m.steps%10 == 0 {
		m.sound(t)
	}
}

func (m *machine) sound(t *rapid.T) {
	sound(t, m.ctx, m.replica)
	rows, err := m.db.Pool.Query(m.ctx, m.db.SQL(`SELECT order_id, state::text FROM siding.outcomes`))
	if err != nil {
		t.Fatalf("%v", err)
	}
	got := map[int64]string{}
	for rows.Next() {
		var id int64
		var state string
		if err := rows.Scan(&id, &state); err != nil {
			t.Fatalf("%v", err)
		}
		got[id] = state
	}
	if diff := cmp.Diff(m.ended, got); diff != "" {
		t.Fatalf("outcomes (-model +database):\n%s", diff)
	}
}
