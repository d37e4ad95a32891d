package definition

import "fmt"

// AgentType says what an agent is (docs/concepts.md, "Agents").
type AgentType string

// The types of agents.
const (
	// Standalone agents run what is sent to them.
	Standalone AgentType = "standalone"
	// Director agents lead clusters, and may be members themselves.
	Director AgentType = "director"
	// Cluster is no process but a group of agents that share its work.
	Cluster AgentType = "cluster"
)

// Agent is something jobs are sent to.
type Agent struct {
	Name string    `json:"name"`
	Type AgentType `json:"type"`
	// Processes is the most orders that run at once; 0 takes nothing. Nil means
	// no limit of its own, which a cluster or director may have; a standalone
	// agent must state one.
	Processes *int `json:"processes,omitempty"`
	// Queues have precedence in this order.
	Queues []string `json:"queues,omitempty"`
	// MaxBlocked is how many attachment-blocked orders the line may hold before
	// it turns strict (docs/concepts.md, "When passing must stop"); nil means no such stop.
	MaxBlocked *int `json:"max_blocked,omitempty"`
	// Members and Director belong to a cluster.
	Members  []Member `json:"members,omitempty"`
	Director string   `json:"director,omitempty"`
}

// Member is an agent of a cluster.
type Member struct {
	Agent string `json:"agent"`
	// Priority: of the members alive, those with the highest get the work.
	Priority int `json:"priority"`
}

func (a *Agent) fields(d *decoder) []field {
	return []field{
		{name: "name", set: text(d, &a.Name)},
		{name: "type", set: text(d, &a.Type)},
		{name: "processes", set: d.optionalInteger(&a.Processes)},
		{name: "queues", set: d.texts(&a.Queues, d.readText)},
		{name: "max_blocked", set: d.optionalInteger(&a.MaxBlocked)},
		{name: "members", set: func(n *node, path string) {
			d.list(n, path, func(n *node, path string) {
				var m Member
				d.object(n, path, []field{
					{name: "agent", set: text(d, &m.Agent)},
					{name: "priority", set: d.integer(&m.Priority)},
				})
				a.Members = append(a.Members, m)
			})
		}},
		{name: "director", set: text(d, &a.Director)},
	}
}

func (a *Agent) normalise() {
	if a.Type == "" {
		a.Type = Standalone
	}
	a.Queues, a.Members = nonEmpty(a.Queues), nonEmpty(a.Members)
}

func (a *Agent) validate(v *validation) {
	oneOf(v, "type", a.Type, string(Standalone), string(Director), string(Cluster))
	switch {
	case a.Processes != nil:
		v.atLeast("processes", *a.Processes, 0, "0 takes nothing")
	case a.Type == Standalone:
		v.add("processes", "missing", "the most orders the agent runs at once")
	}
	if a.MaxBlocked != nil {
		v.atLeast("max_blocked", *a.MaxBlocked, 0, "leave it out for no such stop")
	}
	v.names("queues", a.Queues)
	if a.Type == Cluster {
		a.validateCluster(v)
		return
	}
	if len(a.Members) > 0 {
		v.add("members", fmt.Sprintf("a %s agent has no members", a.Type), "only a cluster has")
	}
	if a.Director != "" {
		v.add("director", fmt.Sprintf("a %s agent has no director", a.Type), "only a cluster has")
	}
}

func (a *Agent) validateCluster(v *validation) {
	if len(a.Members) == 0 {
		v.add("members", "a cluster needs at least one member", "such as [{agent: a1, priority: 10}]")
	}
	seen := map[string]bool{}
	for i, m := range a.Members {
		at := element("members", i)
		if v.seen[at] {
			continue
		}
		path := member(at, "agent")
		v.name(path, m.Agent)
		switch {
		case m.Agent == "":
		case m.Agent == a.Name:
			v.add(path, "a cluster can't be its own member", "")
		case seen[m.Agent]:
			v.add(path, m.Agent+" is listed twice", "")
		}
		seen[m.Agent] = true
		v.atLeast(member(at, "priority"), m.Priority, 0, "")
	}
	if a.Director == "" {
		return
	}
	v.name("director", a.Director)
	if a.Director == a.Name {
		v.add("director", "a cluster can't be its own director", "")
	}
}

func (a *Agent) references(add func(Kind, string, string)) {
	queueReferences(a.Queues, add)
	for i, m := range a.Members {
		add(KindAgent, m.Agent, member(element("members", i), "agent"))
	}
	if a.Director != "" {
		add(KindAgent, a.Director, "director")
	}
}
