//go:build unix && !linux

package agent

import "syscall"

// awaitLeader is false: there is no way to await a process without reaping it.
func awaitLeader(int) bool { return false }

// groupAlive says whether the group has a process.
func groupAlive(group int) bool { return signalGroup(group, syscall.Signal(0)) }

// findLeftovers finds the groups whose leader has the recorded start time.
// Environments of other processes can't be read here: processes that left
// their group, and groups without their leader, aren't recognised.
func findLeftovers(jobs []jobRecord) (leftovers, error) {
	var left leftovers
	for _, job := range jobs {
		switch {
		case job.ProcessGroup == 0 || !groupAlive(job.ProcessGroup):
		case job.StartTime != "" && processStartTime(job.ProcessGroup) == job.StartTime:
			left.groups = append(left.groups, job.ProcessGroup)
		default:
			left.unknown = append(left.unknown, job.ProcessGroup)
		}
	}
	return left, nil
}
