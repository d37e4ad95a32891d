package definition

// Queue is a priority queue (docs/concepts.md, "Which order gets the next unit").
type Queue struct {
	Name string `json:"name"`
	// Capacity is how many orders are in the queue at a resource at once, and
	// how many are served before the penalty; nil means unbounded.
	Capacity *int `json:"capacity,omitempty"`
	// Penalty is how many picks of others follow when Capacity orders were
	// served.
	Penalty int `json:"penalty"`
}

func (q *Queue) fields(d *decoder) []field {
	return []field{
		{name: "name", set: text(d, &q.Name)},
		{name: "capacity", set: d.optionalInteger(&q.Capacity)},
		{name: "penalty", set: d.integer(&q.Penalty)},
	}
}

func (q *Queue) normalise() {}

func (q *Queue) validate(v *validation) {
	if q.Capacity != nil {
		v.atLeast("capacity", *q.Capacity, 1, "leave it out for an unbounded queue; to stop one, pause it")
	}
	v.atLeast("penalty", q.Penalty, 0, "")
}

func (q *Queue) references(func(Kind, string, string)) {}
