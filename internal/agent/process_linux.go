package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bootID identifies the run of the operating system.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// processStat is what /proc/PID/stat says about a process.
type processStat struct {
	state     byte
	group     int
	startTime string // clock ticks since the boot
}

func (s processStat) alive() bool { return s.state != 'Z' && s.state != 'X' }

func readStat(pid int) (processStat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return processStat{}, false
	}
	// The name in parentheses may hold anything, also parentheses and spaces.
	_, rest, found := strings.Cut(string(text[max(bytes.LastIndexByte(text, ')'), 0):]), ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 20 || fields[0] == "" {
		return processStat{}, false
	}
	group, err := strconv.Atoi(fields[2])
	if err != nil {
		return processStat{}, false
	}
	return processStat{state: fields[0][0], group: group, startTime: fields[19]}, true
}

// processStartTime is a process's start time, "" if there is no such process.
func processStartTime(pid int) string {
	stat, _ := readStat(pid)
	return stat.startTime
}

// awaitLeader returns when the process has ended, without reaping it: as long
// as it is a zombie its number, which is the group's, is given to nobody else.
// It is false where the system can't do that.
func awaitLeader(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// groupAlive says whether a process of the group lives. Zombies don't. Where
// /proc can't be read, none is seen to.
func groupAlive(group int) bool {
	alive := false
	_ = eachProcess(func(pid int) bool {
		stat, ok := readStat(pid)
		alive = ok && stat.group == group && stat.alive()
		return !alive
	})
	return alive
}

// eachProcess visits the system's processes until visit is false.
func eachProcess(visit func(pid int) bool) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && !visit(pid) {
			return nil
		}
	}
	return nil
}

// findLeftovers finds the jobs' living processes: those in groups whose leader
// has the recorded start time, and those that carry the run id of a job. A
// group whose leader is gone is ours if one of its processes carries the id.
func findLeftovers(jobs []jobRecord) (leftovers, error) {
	ours := map[int]bool{}
	for _, job := range jobs {
		if job.ProcessGroup != 0 && job.StartTime != "" && processStartTime(job.ProcessGroup) == job.StartTime {
			ours[job.ProcessGroup] = true
		}
	}
	recorded := map[int]bool{}
	runIDs := make([][]byte, len(jobs))
	for i, job := range jobs {
		recorded[job.ProcessGroup] = true
		runIDs[i] = []byte(envRunID + "=" + job.RunID + "\x00")
	}
	groups := map[int]int{} // process to group, of all that live
	marked := []int{}
	err := eachProcess(func(pid int) bool {
		stat, ok := readStat(pid)
		if !ok || !stat.alive() || pid == os.Getpid() {
			return true
		}
		groups[pid] = stat.group
		if carriesAny(pid, runIDs) {
			marked = append(marked, pid)
			if recorded[stat.group] {
				ours[stat.group] = true
			}
		}
		return true
	})
	if err != nil {
		return leftovers{}, err
	}
	var left leftovers
	for _, group := range groups {
		if ours[group] && !slices.Contains(left.groups, group) {
			left.groups = append(left.groups, group)
		}
	}
	for _, pid := range marked {
		if !ours[groups[pid]] {
			left.processes = append(left.processes, pid)
		}
	}
	slices.Sort(left.groups)
	slices.Sort(left.processes)
	return left, nil
}

// carriesAny says whether a process started with one of the variables in its
// environment. One whose environment can't be read belongs to somebody else.
func carriesAny(pid int, variables [][]byte) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	environ = append([]byte{0}, environ...)
	return slices.ContainsFunc(variables, func(variable []byte) bool {
		return bytes.Contains(environ, append([]byte{0}, variable...))
	})
}
