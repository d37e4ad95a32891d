package client

import (
	"encoding/json"
	"time"
)

// NewOrder is an order to add. Workflow is required.
type NewOrder struct {
	Workflow string `json:"workflow"`
	// Ref makes adding idempotent: the same reference and content gives the
	// existing order.
	Ref   string `json:"ref,omitempty"`
	Key   string `json:"key,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Due is an instant (RFC 3339) or a duration from now.
	Due  string          `json:"due,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
	// WaitLimit is how long it may wait for its attachments, for example 15m.
	WaitLimit string `json:"wait_limit,omitempty"`
	// Attachments are expected instead of those of the workflow; an empty list
	// that isn't nil means none.
	Attachments []NewAttachment `json:"attachments,omitzero"`
}

// NewAttachment is an attachment that an order expects.
type NewAttachment struct {
	Name   string `json:"name"`
	Size   *int64 `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Content are the bytes themselves, if they are few.
	Content []byte `json:"content,omitzero"`
}

// Added is what became of an order that was added.
type Added struct {
	ID int64 `json:"id"`
	// Existing says that it was there before, with the same reference.
	Existing bool `json:"existing"`
}

// Order is an order, live or ended.
type Order struct {
	ID       int64  `json:"id"`
	Ref      string `json:"ref,omitempty"`
	Workflow string `json:"workflow"`
	Version  int    `json:"version"`
	State    string `json:"state"`
	// Word is the state in one word; of a waiting order: arriving, scheduled,
	// blocked, held, locked_out, paused or ready.
	Word        string   `json:"word"`
	Stopping    string   `json:"stopping,omitempty"`
	Gates       []string `json:"gates"`
	StepPath    string   `json:"step_path"`
	Job         string   `json:"job"`
	Attempt     int      `json:"attempt"`
	MaxAttempts int      `json:"max_attempts"`
	Key         string   `json:"key,omitempty"`
	Queue       string   `json:"queue,omitempty"`
	LineKind    string   `json:"line_kind"`
	Line        string   `json:"line"`
	Agent       string   `json:"agent,omitempty"`
	Session     int64    `json:"session,omitempty"`
	Lease       int64    `json:"lease,omitempty"`
	Position    int64    `json:"position"`
	Released    bool     `json:"released,omitempty"`

	AddedBy      string     `json:"added_by,omitempty"`
	AddedAt      time.Time  `json:"added_at"`
	DueAt        *time.Time `json:"due_at,omitempty"`
	ReadyAt      *time.Time `json:"ready_at,omitempty"`
	StartedAt    *time.Time `json:"started_at,omitempty"`
	LeasedAt     *time.Time `json:"leased_at,omitempty"`
	EndedAt      *time.Time `json:"ended_at,omitempty"`
	WaitDeadline *time.Time `json:"wait_deadline,omitempty"`
	// ReadyWaitMillis is how long it waited between ready and started.
	ReadyWaitMillis *int64 `json:"ready_wait_ms,omitempty"`

	Attention *Attention `json:"attention,omitempty"`
	ExitCode  *int       `json:"exit_code,omitempty"`
	Message   string     `json:"message,omitempty"`

	// Args, Attachments and Holds are given for one order, not in lists.
	Args        json.RawMessage     `json:"args,omitempty"`
	Attachments []AttachmentSummary `json:"attachments,omitempty"`
	Holds       []Hold              `json:"holds,omitempty"`
}

// Attention is why an order is in attention, dead or suspended.
type Attention struct {
	Reason string          `json:"reason"`
	Detail json.RawMessage `json:"detail,omitempty"`
	Since  time.Time       `json:"since"`
}

// AttachmentSummary is an attachment as shown with its order.
type AttachmentSummary struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Size    *int64 `json:"size,omitempty"`
	Problem string `json:"problem,omitempty"`
	Late    bool   `json:"late,omitempty"`
}

// Hold is a lock that an order holds. Weight is nil for an exclusive one.
type Hold struct {
	Lock      string    `json:"lock"`
	Weight    *int      `json:"weight,omitempty"`
	GrantedAt time.Time `json:"granted_at"`
}

// Moment is one line of an order's history.
type Moment struct {
	At      time.Time       `json:"at"`
	Kind    string          `json:"kind"`
	Subject string          `json:"subject,omitempty"`
	Person  string          `json:"person,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// StepOutput is what one attempt of a job handed back.
type StepOutput struct {
	Lease   int64           `json:"lease"`
	Step    string          `json:"step_path"`
	Job     string          `json:"job"`
	EndedAt time.Time       `json:"ended_at"`
	Outputs json.RawMessage `json:"outputs"`
}

// Why says why an order waits.
type Why struct {
	Order int64  `json:"order"`
	State string `json:"state"`
	// Next is true when it is picked as soon as somebody asks.
	Next      bool       `json:"next"`
	Obstacles []Obstacle `json:"obstacles"`
}

// Obstacle is one thing that keeps an order from its next resource.
type Obstacle struct {
	// Class is later, needs_you, never or unknown.
	Class   string          `json:"class"`
	Code    string          `json:"code"`
	Subject string          `json:"subject,omitempty"`
	Numbers json.RawMessage `json:"numbers"`
	Since   *time.Time      `json:"since,omitempty"`
	EndsBy  string          `json:"ends_by"`
}

// Attachment is what is known about an attachment. Sizes are in bytes, hashes in
// hexadecimal.
type Attachment struct {
	Name           string `json:"name"`
	State          string `json:"state"`
	ExpectedSize   *int64 `json:"expected_size,omitempty"`
	ExpectedSHA256 string `json:"expected_sha256,omitempty"`
	Size           *int64 `json:"size,omitempty"`
	SHA256         string `json:"sha256,omitempty"`
	// Received is how much of an unfinished upload is there.
	Received  int64     `json:"received,omitempty"`
	HasBytes  bool      `json:"has_bytes"`
	Problem   string    `json:"problem,omitempty"`
	Late      bool      `json:"late,omitempty"`
	Store     string    `json:"store"`
	AddedAt   time.Time `json:"added_at"`
	ChangedAt time.Time `json:"changed_at"`
}

// Definition is a queue, lock, agent or workflow as it stands.
type Definition struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Revision counts the changes.
	Revision   int             `json:"revision"`
	Version    int             `json:"version,omitempty"`
	UpdatedAt  time.Time       `json:"updated_at"`
	Definition json.RawMessage `json:"definition"`
}

// Change is what became of a definition that was applied. Action is created,
// changed or unchanged.
type Change struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Action   string `json:"action"`
	Revision int    `json:"revision"`
	Version  int    `json:"version,omitempty"`
}

// Line is how the line of an agent treats blocked orders.
type Line struct {
	Agent        string     `json:"agent"`
	Mode         string     `json:"mode"`
	Reason       string     `json:"reason,omitempty"`
	Since        *time.Time `json:"since,omitempty"`
	PersonMode   string     `json:"person_mode"`
	Person       string     `json:"person,omitempty"`
	PersonReason string     `json:"person_reason,omitempty"`
	MaxBlocked   *int       `json:"max_blocked,omitempty"`
}

// Pause is a pause in force.
type Pause struct {
	Kind   string     `json:"kind"`
	Name   string     `json:"name"`
	Until  *time.Time `json:"until,omitempty"`
	Reason string     `json:"reason"`
	Person string     `json:"person"`
	Since  time.Time  `json:"since"`
}

// Session is one run of an agent process.
type Session struct {
	ID          int64      `json:"session"`
	Agent       string     `json:"agent"`
	Processes   int        `json:"processes"`
	Running     int        `json:"running"`
	Host        string     `json:"host,omitempty"`
	PID         int        `json:"pid,omitempty"`
	OpenedAt    time.Time  `json:"opened_at"`
	HeartbeatAt time.Time  `json:"heartbeat_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	EndReason   string     `json:"end_reason,omitempty"`
}

// Event is one entry of the log of events.
type Event struct {
	Number  int64           `json:"number"`
	At      time.Time       `json:"at"`
	Order   int64           `json:"order,omitempty"`
	Kind    string          `json:"kind"`
	Subject string          `json:"subject,omitempty"`
	Person  string          `json:"person,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// Token is a token without its secret.
type Token struct {
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// ListEntry is an order in a list of a queue.
type ListEntry struct {
	Order     int64      `json:"order"`
	Ref       string     `json:"ref,omitempty"`
	Workflow  string     `json:"workflow"`
	Step      string     `json:"step"`
	Job       string     `json:"job"`
	LineKind  string     `json:"line_kind"`
	Line      string     `json:"line"`
	State     string     `json:"state"`
	Position  int64      `json:"position"`
	Key       string     `json:"key,omitempty"`
	Attempt   int        `json:"attempt"`
	AddedAt   time.Time  `json:"added_at"`
	DueAt     *time.Time `json:"due_at,omitempty"`
	ReadyAt   *time.Time `json:"ready_at,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	LeasedAt  *time.Time `json:"leased_at,omitempty"`
	Agent     string     `json:"agent,omitempty"`
	Reason    string     `json:"reason,omitempty"`
}

// Place is a candidate of a queue at a resource that lists it.
type Place struct {
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	Order    int64  `json:"order"`
	Position int64  `json:"position"`
}

// Places says who is in a queue and who is behind its capacity.
type Places struct {
	InQueue  []Place `json:"in_queue"`
	Overflow []Place `json:"overflow"`
}

// Count is the length of a list when it was counted.
type Count struct {
	Queue     string    `json:"queue"`
	List      string    `json:"list"`
	Orders    int64     `json:"orders"`
	CountedAt time.Time `json:"counted_at"`
	AgeMillis int64     `json:"age_ms"`
}
