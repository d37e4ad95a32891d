package scenario

// The closed lists of words that a file may use. A word outside them is a
// mistake in the file, found before anything runs.
var (
	stateWords = []string{
		"ready", "blocked", "held", "scheduled", "locked_out", "running",
		"suspended", "attention", "dead", "finished", "cancelled",
	}
	listWords = []string{
		string(Waiting), string(Pending), string(Scheduled), string(Dead),
		string(Attention), string(Suspended),
	}
	resolveWords    = []string{"resume", "cancel", "retry", "skip"}
	setModeWords    = []string{"strict", "pass", "auto"}
	lineModeWords   = []string{"strict", "pass"}
	lineReasonWords = []string{"fact_unreadable", "too_many_blocked", "set_by_person"}
	storeWords      = []string{"readable", "unreadable"}

	// whyCodes are those of section 11 of the design.
	whyCodes = []string{
		"intake", "due", "retry", "attachment_pending", "attachment_unknown",
		"key_held", "key_running", "lock_busy", "lock_turn", "queue_overflow",
		"queue_turn", "behind", "line_strict", "process_limit", "job_limit",
		"no_agent", "exceeds_capacity", "paused", "suspended", "attention", "dead",
	}

	refusalCodes = []string{
		"reason_required", "nothing_to_release", "order_final", "order_running",
		"order_not_found", "queue_in_use", "queue_listed", "lock_in_use",
		"agent_in_use", "unknown_queue", "unknown_lock", "unknown_agent",
		"unknown_workflow", "key_required", "key_not_allowed",
		"invalid_definition", "weight_exceeds_capacity", "lock_cycle",
		"different_queue", "attachment_complete", "attachment_not_found",
		"not_in_attention", "not_dead", "reference_conflict",
	}
)
