// Package agent runs orders: it asks a controller for work, runs each job in a
// process group and a private directory of its own, streams its output and
// reports how it ended. It talks to the controller only through
// [protocol.Controller], so the same runtime serves an agent on another machine
// (over HTTP, without any database credentials) and one inside the controller.
//
// The rules it keeps, in the order of an agent's life:
//
//   - One agent per state directory. A second one refuses to start.
//   - Before it opens a session it ends what its last run left behind, and only
//     what is provably that: a process group whose leader has the recorded start
//     time, or processes that carry the recorded SIDING_RUN_ID. Then it names the
//     old session, which frees its orders at once.
//   - It asks for as many orders as it has free processes, never for more. A
//     request that failed for a temporary reason is repeated with its id, so an
//     answer that was lost on the way is not lost.
//   - A process group is ended by TERM, then KILL after a grace. When the main
//     process has ended by itself, what remains of its group is killed.
//   - When the session or a lease is gone, its processes are killed and nothing
//     is reported: somebody else may run the order by now.
//   - When no heartbeat was acknowledged for the session's time to live, the
//     jobs are killed as well (see [Config.Unreachable]). Lease numbers keep
//     the facts right in any case; this keeps the jobs' side effects apart.
//   - On shutdown it stops asking, hands back what it hasn't started, lets
//     running jobs go on for [Config.DrainTimeout], and ends the rest as Stopped.
//     That isn't the job's failure, and unlike HandedBack it tells the controller
//     that the job has begun, which matters for jobs that must not run twice.
//
// If the agent itself is killed, a guard process kills its jobs' process groups
// (the kernel's parent-death signal reaches neither grandchildren nor is it
// reliable in a program with many threads). A job that leaves its process group
// (setsid) escapes from the end of its own attempt, but not from the clean-up
// after a crash of the agent on Linux, as it carries the SIDING_RUN_ID.
//
// The package needs a Unix system. On systems other than Linux and macOS a
// process's start time isn't known, so leftovers are named in the log and left
// alone.
package agent
