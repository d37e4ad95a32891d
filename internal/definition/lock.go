package definition

import "slices"

// Lock is a resource with a capacity in units (docs/concepts.md, "Locks").
type Lock struct {
	Name string `json:"name"`
	// Capacity is the number of units; 0 stops the lock. A document must say it.
	Capacity int `json:"capacity"`
	// Queues have precedence in this order.
	Queues []string `json:"queues,omitempty"`
}

func (l *Lock) fields(d *decoder) []field {
	return []field{
		{name: "name", set: text(d, &l.Name)},
		{name: "capacity", set: d.integer(&l.Capacity), required: true},
		{name: "queues", set: d.texts(&l.Queues, d.readText)},
	}
}

func (l *Lock) normalise() {
	l.Queues = nonEmpty(l.Queues)
}

func (l *Lock) validate(v *validation) {
	v.atLeast("capacity", l.Capacity, 0, "0 stops the lock")
	v.names("queues", l.Queues)
}

func (l *Lock) references(add func(Kind, string, string)) {
	queueReferences(l.Queues, add)
}

func queueReferences(queues []string, add func(Kind, string, string)) {
	for i, name := range queues {
		add(KindQueue, name, element("queues", i))
	}
}

// nonEmpty makes an empty list nil, so that one that is left out and one that
// is empty are the same content. Lists are copied: the document may come from
// a program that goes on using its own.
func nonEmpty[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}
