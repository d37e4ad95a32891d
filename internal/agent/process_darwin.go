package agent

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// bootID identifies the run of the operating system.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// processStartTime is a process's start time, "" if there is no such process.
func processStartTime(pid int) string {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec)
}
