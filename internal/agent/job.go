package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// runJob runs the attempt as a process.
func (a *attempt) runJob() protocol.Report {
	job := a.lease.Job
	switch {
	case !a.s.host.canRunProcesses():
		return a.errorReport(rejected("this agent runs no processes and has no handler for job %s", job.Name))
	case (job.Script == "") == (len(job.Argv) == 0):
		return a.errorReport(rejected("job %s must have either a script or an argv", job.Name))
	}
	dir, err := makeWorkdir(a.s.host.sessionDir(a.s.info.ID), a.lease.LeaseRef)
	if dir != "" && !a.s.cfg.KeepWork {
		defer func() {
			if err := dir.remove(); err != nil {
				a.s.log.Warn("working directory can't be removed", "directory", string(dir), "error", err)
			}
		}()
	}
	if err == nil {
		err = a.fetchAttachments(dir)
	}
	if err == nil {
		err = dir.writeOrder(a.lease)
	}
	if err != nil {
		return a.errorReport(err)
	}
	report, err := a.runProcess(dir)
	if err != nil {
		return a.errorReport(err)
	}
	return report
}

// command is the program to start: its file, its arguments, its environment.
func (a *attempt) command(dir workdir, runID string) (path string, argv, environ []string, err error) {
	environ, err = environment(a.s.cfg.PassEnv, a.lease, dir, runID)
	if err != nil {
		return "", nil, nil, err
	}
	if a.lease.Job.Script != "" {
		argv = append(slices.Clone(a.s.cfg.Shell), a.lease.Job.Script)
	} else if argv, err = expandArgv(a.lease.Job.Argv, a.lease.Args); err != nil {
		return "", nil, nil, err
	}
	path, err = lookProgram(argv[0], environ)
	return path, argv, environ, err
}

// runProcess starts the process and sees it, and its output, to the end.
func (a *attempt) runProcess(dir workdir) (protocol.Report, error) {
	record := jobRecord{LeaseRef: a.lease.LeaseRef, RunID: uuid.NewString()}
	path, argv, environ, err := a.command(dir, record.RunID)
	if err != nil {
		return protocol.Report{}, err
	}
	stdout, err := newCapture(a.s.output.newStream(a.lease.LeaseRef, streamStdout))
	if err != nil {
		return protocol.Report{}, err
	}
	stderr, err := newCapture(a.s.output.newStream(a.lease.LeaseRef, streamStderr))
	if err != nil {
		stdout.discard()
		return protocol.Report{}, err
	}

	p, err := a.start(&record, func() (*process, error) {
		return startProcess(path, argv, environ, string(dir), stdout.write, stderr.write)
	})
	if err != nil {
		stdout.discard()
		stderr.discard()
		return protocol.Report{}, err
	}
	stdout.start()
	stderr.start()
	cause := p.supervise(a)
	a.s.host.ended(record)
	exitCode, message := p.reap()
	a.finishOutput(stdout, stderr)

	var report protocol.Report
	switch {
	case cause != nil:
		report = a.endedReport(cause)
	case exitCode != 0 && len(a.lease.Job.SuccessCodes) == 0 || len(a.lease.Job.SuccessCodes) > 0 && !slices.Contains(a.lease.Job.SuccessCodes, exitCode):
		report = protocol.Report{Outcome: protocol.Failed, Message: message}
	default:
		report.Outcome = protocol.Succeeded
		if report.Outputs, err = readOutputs(dir.outputFile()); err != nil {
			report = protocol.Report{Outcome: protocol.Failed, Message: oneLine(err.Error())}
		}
	}
	report.ExitCode = &exitCode
	return report, nil
}

// start records the job, starts it, and records its process group, so that at
// no moment a process runs that the next run of the agent couldn't find.
func (a *attempt) start(record *jobRecord, start func() (*process, error)) (*process, error) {
	host := a.s.host
	if err := host.intend(*record); err != nil {
		host.ended(*record)
		return nil, err
	}
	if !a.begin() {
		host.ended(*record)
		return nil, a.endCause()
	}
	p, err := start()
	if err != nil {
		host.ended(*record)
		return nil, err
	}
	record.ProcessGroup = p.group()
	record.StartTime = processStartTime(record.ProcessGroup)
	if err := host.started(*record); err != nil {
		// The intention is recorded, by which it is found on Linux.
		a.s.log.Warn("process group isn't recorded", "order", a.lease.Order, "error", err)
	}
	return p, nil
}

// finishOutput waits until the output has been read and sent, within limits.
func (a *attempt) finishOutput(captures ...*capture) {
	deadline := time.Now().Add(escapedOutputWait)
	ctx, cancel := context.WithTimeoutCause(a.s.ctx, escapedOutputWait+outputFlushWait, errors.New("output takes too long"))
	defer cancel()
	for _, c := range captures {
		c.finish(deadline)
	}
	for _, c := range captures {
		if a.isGone() {
			c.stream.abandon()
			continue
		}
		c.stream.finish(ctx)
	}
}
