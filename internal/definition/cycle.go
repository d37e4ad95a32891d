package definition

import (
	"maps"
	"slices"
)

// LockCycle looks for orders that could wait for each other for ever: a cycle of
// locks of which each is asked for by a step that holds the one before. It
// returns the names of a shortest cycle, starting with the lowest, or nil.
// {L1, L2} means that L2 is asked for while L1 is held, and the other way round.
//
// Several locks of one step are taken in name order, so each waits while those
// before it are held. Steps of workflows with AllowCycle don't count, whichever
// workflow came first.
func LockCycle(workflows []Workflow) []string {
	g := &lockGraph{after: map[string]map[string]bool{}}
	for _, w := range workflows {
		if !w.AllowCycle {
			g.visit(w.Steps, nil)
		}
	}
	return g.cycle()
}

// lockGraph holds which locks are asked for while which are held.
type lockGraph struct {
	after map[string]map[string]bool
}

func (g *lockGraph) waits(held, asked string) {
	if g.after[held] == nil {
		g.after[held] = map[string]bool{}
	}
	g.after[held][asked] = true
}

func (g *lockGraph) visit(steps []Step, held []string) {
	for _, s := range steps {
		if inst := s.instruction(); inst != nil {
			inst.takeLocks(g, held)
		}
	}
}

// cycle finds a shortest cycle; of several the one with the lowest names.
func (g *lockGraph) cycle() []string {
	var best []string
	for _, start := range slices.Sorted(maps.Keys(g.after)) {
		if found := g.cycleFrom(start); found != nil && (best == nil || len(found) < len(best)) {
			best = found
		}
	}
	return best
}

// cycleFrom finds a shortest way from a lock back to it, breadth first.
func (g *lockGraph) cycleFrom(start string) []string {
	before := map[string]string{}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		lock := queue[0]
		for _, next := range slices.Sorted(maps.Keys(g.after[lock])) {
			if next == start {
				way := []string{lock}
				for lock != start {
					lock = before[lock]
					way = append(way, lock)
				}
				slices.Reverse(way)
				return way
			}
			if _, seen := before[next]; !seen {
				before[next] = lock
				queue = append(queue, next)
			}
		}
	}
	return nil
}
