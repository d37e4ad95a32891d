package definition

import "fmt"

// Reference is one place where a document names another definition.
type Reference struct {
	Kind Kind
	Name string
	// Path as in Problem; Line is 0 if the document wasn't read from text.
	Path string
	Line int
}

// References lists what a document refers to, each place once, in the order of
// the document's parts.
func References(doc Document) []Reference {
	var refs []Reference
	if b := doc.body(); b != nil {
		b.references(func(kind Kind, name, path string) {
			refs = append(refs, Reference{Kind: kind, Name: name, Path: path, Line: lookUp(doc.positions, path).line})
		})
	}
	return refs
}

// World is what exists when a document is applied: what is stored already and
// what is applied in the same call.
type World struct {
	Queues map[string]bool
	// Locks maps each lock to its capacity.
	Locks map[string]int
	// Agents maps each agent to its type.
	Agents map[string]AgentType
}

// Add puts a document into the world.
func (w *World) Add(doc Document) {
	switch {
	case doc.Queue != nil:
		put(&w.Queues, doc.Queue.Name, true)
	case doc.Lock != nil:
		put(&w.Locks, doc.Lock.Name, doc.Lock.Capacity)
	case doc.Agent != nil:
		put(&w.Agents, doc.Agent.Name, doc.Agent.Type)
	}
}

func put[V any](m *map[string]V, name string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[name] = value
}

// CheckAgainst checks a document against what exists: unknown queues, locks
// and agents, weights above a lock's capacity, members that are clusters, and
// directors that are none. The error is an *Errors.
func CheckAgainst(doc Document, world World) error {
	var problems []Problem
	for _, ref := range References(doc) {
		code, known := CodeUnknownQueue, world.Queues[ref.Name]
		switch ref.Kind {
		case KindLock:
			code = CodeUnknownLock
			_, known = world.Locks[ref.Name]
		case KindAgent:
			code = CodeUnknownAgent
			_, known = world.Agents[ref.Name]
		}
		if !known {
			problems = append(problems, doc.Problem(ref.Path, code, fmt.Sprintf("there is no %s %s", ref.Kind, ref.Name), ""))
		}
	}
	switch {
	case doc.Agent != nil:
		problems = append(problems, checkCluster(doc, world)...)
	case doc.Workflow != nil:
		problems = append(problems, checkWeights(doc, world, doc.Workflow.Steps, "steps")...)
	}
	return asError(problems)
}

func checkCluster(doc Document, world World) []Problem {
	var problems []Problem
	for i, m := range doc.Agent.Members {
		if world.Agents[m.Agent] == Cluster {
			problems = append(problems, doc.Problem(member(element("members", i), "agent"), CodeInvalid,
				m.Agent+" is a cluster", "members are standalone agents or directors"))
		}
	}
	if kind, known := world.Agents[doc.Agent.Director]; known && kind != Director {
		problems = append(problems, doc.Problem("director", CodeInvalid,
			fmt.Sprintf("%s is a %s agent, not a director", doc.Agent.Director, kind), ""))
	}
	return problems
}

func checkWeights(doc Document, world World, steps []Step, path string) []Problem {
	var problems []Problem
	for i, s := range steps {
		if s.Lock == nil {
			continue
		}
		at := element(path, i)
		for _, request := range s.Lock.Locks {
			capacity, known := world.Locks[request.Lock]
			if known && request.Weight > capacity {
				problems = append(problems, doc.Problem(member(member(at, "lock"), request.Lock), CodeWeightExceeds,
					fmt.Sprintf("asks for weight %d, but the capacity of %s is %d", request.Weight, request.Lock, capacity), ""))
			}
		}
		problems = append(problems, checkWeights(doc, world, s.Lock.Steps, member(at, "steps"))...)
	}
	return problems
}
