// Package protocol holds what an agent and a controller say to each other: the
// values of claim, heartbeat, report and output, and the interface both ways of
// talking (in process and over HTTP) implement.
//
// The rules are those of docs/concepts.md, "Claim, lease, report".
package protocol

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// SessionID names one run of an agent process. It is drawn by the controller
// and never used again, so that a restarted agent can't be taken for its
// predecessor.
type SessionID int64

// OpenRequest starts a session.
type OpenRequest struct {
	// Agent is the name of the agent's definition.
	Agent string `json:"agent" doc:"Name of the agent"`
	// Processes is how many orders this process can run at once. The agent's
	// own process limit holds besides.
	Processes int `json:"processes" minimum:"1" doc:"Orders this process runs at once"`
	// Previous is the session of this agent's last run, 0 if it knows none.
	// Naming it ends that session at once: the agent must first have ended the
	// processes it left.
	Previous SessionID `json:"previous,omitempty" doc:"Session of the last run, whose processes the agent has ended"`
	// Host and PID say where the process runs; they are shown, never used.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// Session is an open session.
type Session struct {
	ID SessionID `json:"session"`
	// HeartbeatMillis is how often the agent must send a heartbeat.
	HeartbeatMillis int64 `json:"heartbeat_ms"`
	// TTLMillis is how long the controller waits for one before it takes the
	// session for lost.
	TTLMillis int64 `json:"ttl_ms"`
}

// LeaseRef names one lease: the right to run one attempt of one order.
type LeaseRef struct {
	Order int64 `json:"order"`
	Lease int64 `json:"lease"`
}

// ClaimRequest asks for up to Slots orders.
type ClaimRequest struct {
	Session SessionID `json:"session"`
	// RequestID is a UUID drawn by the agent. A repeated request with the same
	// id gets the same answer.
	RequestID string `json:"request_id" format:"uuid"`
	Slots     int    `json:"slots" minimum:"1" maximum:"10000"`
	// WaitMillis is how long the controller may hold the request while there
	// is nothing to do.
	WaitMillis int64 `json:"wait_ms,omitempty" minimum:"0" maximum:"60000"`
}

// Lease is one claimed order with all that is needed to run it.
type Lease struct {
	LeaseRef
	Ref      string `json:"ref,omitempty"`
	Workflow string `json:"workflow"`
	Version  int    `json:"version"`
	StepPath string `json:"step_path"`
	Queue    string `json:"queue,omitempty"`
	Key      string `json:"key,omitempty"`
	// Attempt counts from 1 within the step and its round of attempts.
	Attempt int             `json:"attempt"`
	Args    json.RawMessage `json:"args,omitempty"`
	// Job is nil for a step that runs no process: the agent reports success at
	// once (used by benchmarks and in-process handlers).
	Job         *Job         `json:"job,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"`
}

// Job is what to run.
type Job struct {
	Name string `json:"name"`
	// Script is run by the system's shell; Argv is run directly. One of them is set.
	// In Argv, {path} stands for an argument of the order.
	Script       string            `json:"run,omitempty"`
	Argv         []string          `json:"argv,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	SuccessCodes []int             `json:"success_codes,omitempty"`
	// TimeoutMillis ends the process group: TERM, then KILL after GraceMillis. 0 means no limit.
	TimeoutMillis int64 `json:"timeout_ms,omitempty"`
	GraceMillis   int64 `json:"grace_ms,omitempty"`
}

// Attachment is an input file of the order, complete when the order is claimed.
type Attachment struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
}

// Outcome says how an attempt ended.
type Outcome string

// The outcomes an agent can report.
const (
	Succeeded  Outcome = "succeeded"
	Failed     Outcome = "failed"      // exit code not among the success codes, or the job couldn't be started
	TimedOut   Outcome = "timed_out"   // the job's timeout ended it
	Rejected   Outcome = "rejected"    // the agent refuses to run it (for example an attachment whose hash doesn't match)
	Stopped    Outcome = "stopped"     // ended because the controller asked (cancel, suspend with kill) or, unasked, because the agent was shut down
	HandedBack Outcome = "handed_back" // never started; not counted as an attempt
)

// Report tells the end of one attempt.
type Report struct {
	LeaseRef
	Outcome  Outcome `json:"outcome" enum:"succeeded,failed,timed_out,rejected,stopped,handed_back"`
	ExitCode *int    `json:"exit_code,omitempty"`
	// Message says in one line what went wrong.
	Message string `json:"message,omitempty"`
	// Outputs are the values the job wrote to $SIDING_OUTPUT_FILE, a JSON object.
	Outputs json.RawMessage `json:"outputs,omitempty"`
}

// ReportResult answers one report. A refused one changed nothing.
type ReportResult struct {
	LeaseRef
	Accepted bool `json:"accepted"`
	// Code says why a report was refused: stale_lease, invalid_report.
	Code string `json:"code,omitempty"`
}

// HeartbeatRequest keeps a session and its leases.
type HeartbeatRequest struct {
	Session SessionID  `json:"session"`
	Leases  []LeaseRef `json:"leases,omitempty"`
	// Draining says that the agent runs what it has and asks for nothing more;
	// other members of its clusters then get their work.
	Draining bool `json:"draining,omitempty"`
}

// StopRequest asks the agent to end a running attempt and report it Stopped.
type StopRequest struct {
	LeaseRef
	Reason string `json:"reason"` // cancel or suspend
}

// HeartbeatReply answers a heartbeat.
type HeartbeatReply struct {
	Stop []StopRequest `json:"stop,omitempty"`
	// Gone lists leases of the request that this session doesn't hold any
	// more: the agent ends their processes and reports nothing.
	Gone []LeaseRef `json:"gone,omitempty"`
}

// OutputChunk is a piece of a running attempt's output.
type OutputChunk struct {
	LeaseRef
	Stream string `json:"stream" enum:"stdout,stderr"`
	// Offset is the position of the piece's first byte in its stream, so that
	// a repeated chunk is recognised.
	Offset int64  `json:"offset"`
	Data   []byte `json:"data"`
}

// Controller is the controller as an agent sees it. The in-process
// implementation and the HTTP client behave the same.
//
// ErrSessionGone (wrapped) is returned by every call of a session that has
// ended; the agent then ends its processes and opens a new one. Other errors
// are temporary: the agent repeats the call, with the same request id for a claim.
type Controller interface {
	OpenSession(ctx context.Context, req OpenRequest) (Session, error)
	Claim(ctx context.Context, req ClaimRequest) ([]Lease, error)
	Heartbeat(ctx context.Context, req HeartbeatRequest) (HeartbeatReply, error)
	Report(ctx context.Context, session SessionID, reports []Report) ([]ReportResult, error)
	Output(ctx context.Context, session SessionID, chunks []OutputChunk) error
	// Attachment opens the bytes of an attachment of a leased order, from offset.
	Attachment(ctx context.Context, session SessionID, lease LeaseRef, name string, offset int64) (io.ReadCloser, error)
	// CloseSession ends a session whose processes have all ended.
	CloseSession(ctx context.Context, session SessionID) error
}

// Heartbeat is the interval as a duration.
func (s Session) Heartbeat() time.Duration {
	return time.Duration(s.HeartbeatMillis) * time.Millisecond
}

// TTL is the session's time to live as a duration.
func (s Session) TTL() time.Duration { return time.Duration(s.TTLMillis) * time.Millisecond }
