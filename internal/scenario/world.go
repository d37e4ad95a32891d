package scenario

import (
	"context"
	"time"
)

// World is the product as a scenario sees it: what happens to it, and what can
// be observed of it. The real one works on a Postgres schema of its own with
// the shifted clock of section 10 of the design; the runner holds no rule of
// the product itself.
//
// An operation that the product refuses returns an error that wraps a
// [Refusal] and changes nothing. Any other error means that the world is
// broken, and ends the run.
//
// Names of orders are the references given at Add. An operation or observation
// that names an unknown one is refused with order_not_found; the same holds
// for queues, locks, agents and workflows with unknown_queue and so on. No
// queue is the empty string, never "-".
type World interface {
	Definitions
	Orders
	Attachments
	Agents
	Clock
	Observer
}

// Refusal is how a World says that the product refused something; RefusalCode
// is one of the stable codes of the API.
type Refusal interface {
	error
	RefusalCode() string
}

// DocumentError may wrap what ApplyDefinitions returns, so that the runner can
// name the line of the definition at fault.
type DocumentError struct {
	// Index is the place of the document in the call.
	Index int
	Err   error
}

// Error returns the wrapped error's text.
func (e *DocumentError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *DocumentError) Unwrap() error { return e.Err }

// Kind is a kind of definition.
type Kind string

// The kinds of definitions (section 17 of the design).
const (
	KindQueue    Kind = "queue"
	KindLock     Kind = "lock"
	KindAgent    Kind = "agent"
	KindWorkflow Kind = "workflow"
)

// Target names one definition.
type Target struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

// Document is one definition as section 17 of the design writes it.
type Document struct {
	Target
	// JSON is the whole document, with its kind. A job that is to run without a
	// process has `noop: true`.
	JSON []byte
	// Line is where the scenario file states it.
	Line int
	// AgentType is what an agent's document says its type is, as given.
	AgentType string
	// Jobs is how many jobs a workflow has.
	Jobs int
}

// Definitions applies and removes definitions and pauses what they define.
type Definitions interface {
	// ApplyDefinitions applies all documents or none. A name that exists is
	// replaced as a whole. Every agent that isn't a cluster has a live session
	// from here on.
	ApplyDefinitions(ctx context.Context, docs []Document) error
	DeleteDefinition(ctx context.Context, target Target) error
	Pause(ctx context.Context, pause Pause) error
	Unpause(ctx context.Context, target Target) error
}

// Pause closes the pause gate of what waits for Target.
type Pause struct {
	Target
	Reason string
	// For is how long; 0 means until unpaused.
	For time.Duration
}

// NewOrder is one order to add.
type NewOrder struct {
	Order    string
	Workflow string
	// Key is the key given with the order; nil if none is.
	Key   *string
	Queue string
	// DueIn is the due time counted from now; nil if none is given.
	DueIn *time.Duration
	// WaitLimit is the order's own limit for attachments; nil if it states none.
	WaitLimit *time.Duration
	// Args is a JSON object, nil if none is given.
	Args []byte
	// Attachments is nil if the order states none itself, which isn't the same
	// as an empty list.
	Attachments []NewAttachment
}

// NewAttachment is an attachment that an order expects.
type NewAttachment struct {
	Name string
	// Size in bytes, nil if not stated.
	Size *int64
	// SHA256 in hexadecimal as given, empty if not stated.
	SHA256 string
}

// Move gives a waiting order another place in line.
type Move struct {
	Order string
	Place Place
	// Other is the order next to which it goes, for Before and After.
	Other string
}

// Place says where a moved order goes (section 3 of the design).
type Place string

// The places of a move.
const (
	First  Place = "first"
	Last   Place = "last"
	Before Place = "before"
	After  Place = "after"
)

// Resolution is what a person decides about an order in attention or dead.
type Resolution struct {
	Order string
	// Action is resume, cancel, retry or skip.
	Action string
	Reason string
}

// Orders adds orders and does to them what people do.
type Orders interface {
	// Add adds all orders by one call, in this order, or none.
	Add(ctx context.Context, orders []NewOrder) error
	Move(ctx context.Context, move Move) error
	// Assign gives the order a queue; the empty string removes the assignment.
	Assign(ctx context.Context, order, queue string) error
	// Release lets the order go ahead of its predecessors of the key. An empty
	// reason is passed on, for the product to refuse.
	Release(ctx context.Context, order, reason string) error
	Resolve(ctx context.Context, resolution Resolution) error
	// Cancel and Suspend take effect at once, also on a running order.
	Cancel(ctx context.Context, order, reason string) error
	Suspend(ctx context.Context, order, reason string) error
	Resume(ctx context.Context, order, reason string) error
}

// Upload sends bytes of an attachment.
type Upload struct {
	Order      string
	Attachment string
	Bytes      []byte
	// Partial leaves the upload incomplete: nothing is checked.
	Partial bool
}

// Attachments brings what orders wait for.
type Attachments interface {
	// Upload sends the bytes, in place of what an earlier upload left; unless it
	// is partial it completes the attachment, which makes the check. A failed
	// check isn't a refusal.
	Upload(ctx context.Context, upload Upload) error
	// Complete marks an attachment without stated size and hash complete.
	Complete(ctx context.Context, order, attachment string) error
	// Attach adds an expected attachment to an order.
	Attach(ctx context.Context, order string, attachment NewAttachment) error
	// Discard removes the bytes of an attachment.
	Discard(ctx context.Context, order, attachment, reason string) error
	// SetStoreReadable says whether readiness facts can be read from now on.
	// Unreadable ones are unknown at once, as after the failed reads of section
	// 7 of the design.
	SetStoreReadable(ctx context.Context, readable bool) error
}

// Start is one attempt that an agent claimed, or one pick of a resource.
type Start struct {
	Order string
	// Queue is the order's queue at that moment, empty if none.
	Queue string
}

// Agents plays the agents' part through the code that real agents use.
type Agents interface {
	// FreeProcesses is the agent's own process limit less what runs there; a
	// lost agent has all of them free, since it is back at its next claim.
	FreeProcesses(ctx context.Context, agent string) (int, error)
	// Claim asks for up to that many orders, of the agent's own line and of its
	// clusters' lines, and doesn't wait. A lost agent comes back first, with a new
	// session that names the old one, whose attempts end as lost.
	Claim(ctx context.Context, agent string, slots int) ([]Start, error)
	// Finish, Fail and TimeOut end the running attempt of the order.
	Finish(ctx context.Context, order string) error
	Fail(ctx context.Context, order string) error
	TimeOut(ctx context.Context, order string) error
	// Lose makes the agent silent: it sends no heartbeats from now on. Its
	// session is lost, and its attempts with it, when an advance brings it to 60 s
	// without one, or when the agent comes back.
	Lose(ctx context.Context, agent string) error
	// SetLineMode records a person's mode of an agent's or cluster's line:
	// strict, pass or auto.
	SetLineMode(ctx context.Context, agent, mode, reason string) error
}

// Clock moves time and lets the product catch up.
type Clock interface {
	// Advance moves the clock. Every agent that isn't lost heartbeats then,
	// before anything is recovered.
	Advance(ctx context.Context, by time.Duration) error
	// Settle brings due work, limits, modes, intake and recovery up to the
	// moment. Doing it again changes nothing.
	Settle(ctx context.Context) error
}

// State is where an order stands, in one word.
type State struct {
	// Word is one of the words of the `states` expectation.
	Word string
	// Reason is why, for attention.
	Reason string
}

// LineMode is how a line treats blocked orders (section 7 of the design).
type LineMode struct {
	// Mode is pass or strict.
	Mode string
	// Reason is fact_unreadable, too_many_blocked, set_by_person or empty.
	Reason string
}

// ListName names one of the lists of a queue (section 2 of the design).
type ListName string

// The lists of a queue.
const (
	Waiting   ListName = "waiting"
	Pending   ListName = "pending"
	Scheduled ListName = "scheduled"
	Dead      ListName = "dead"
	Attention ListName = "attention"
	Suspended ListName = "suspended"
)

// Observer answers what the expectations ask. Observing changes nothing.
type Observer interface {
	// Started lists every start since the beginning, in order.
	Started(ctx context.Context) ([]Start, error)
	// Granted lists every grant of the lock since the beginning, in order.
	Granted(ctx context.Context, lock string) ([]Start, error)
	State(ctx context.Context, order string) (State, error)
	// Why lists the codes of all obstacles of the order (section 11); none for
	// one that is next.
	Why(ctx context.Context, order string) ([]string, error)
	// List returns one of the lists of a queue, or of the unassigned orders:
	// waiting by position, scheduled by due time.
	List(ctx context.Context, queue string, list ListName) ([]string, error)
	// InQueue and Overflow list the queue's candidates within and beyond its
	// capacity, at all resources that list it, by position.
	InQueue(ctx context.Context, queue string) ([]string, error)
	Overflow(ctx context.Context, queue string) ([]string, error)
	Line(ctx context.Context, agent string) (LineMode, error)
	// HeldUnits is the sum of the lock's grants.
	HeldUnits(ctx context.Context, lock string) (int64, error)
	// Running lists the running orders, first started first.
	Running(ctx context.Context) ([]string, error)
	// Attempts counts the attempts of the order's current step.
	Attempts(ctx context.Context, order string) (int, error)
	// ReadyWait is the time from ready to started that the order recorded at its
	// first start; started is false if it never did.
	ReadyWait(ctx context.Context, order string) (wait time.Duration, started bool, err error)
	// Forecast returns the next picks of a lock or an agent, at most max, if each
	// were to end at once and nothing else happened.
	Forecast(ctx context.Context, resource Target, max int) ([]Start, error)
	// Fingerprint is a digest of all state that people see and rules decide upon,
	// without the record of refused requests. Equal digests: nothing changed.
	Fingerprint(ctx context.Context) (string, error)
}
