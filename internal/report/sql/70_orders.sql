-- Views for reports (docs/sql.md). Their columns are kept: new ones come at the end. They run with their owner's rights, so a
-- role that may read siding_report needs no right on schema siding; for that they call no function that reads a table.

CREATE OR REPLACE VIEW siding_report.orders AS
SELECT o.id AS order_id, i.ref, w.name AS workflow, v.version, o.state::text AS state, siding.state_word(o, EXISTS (SELECT FROM siding.pauses p WHERE p.kind = 'queue' AND p.subject_id = o.queue_id OR p.kind IN ('agent', 'lock') AND p.subject_id = o.line_id)) AS state_word,
       CASE WHEN o.state = 'waiting' THEN array_remove(ARRAY[
           CASE WHEN o.intake_closed THEN 'intake' END,
           CASE WHEN o.due_closed THEN 'due' END,
           CASE WHEN o.attachment_closed THEN 'attachment' END,
           CASE WHEN o.key_closed THEN 'key' END,
           CASE WHEN o.lock_closed THEN 'lock' END,
           CASE WHEN o.pause_closed OR EXISTS (
               SELECT FROM siding.pauses p
               WHERE p.kind = 'queue' AND p.subject_id = o.queue_id OR p.kind IN ('agent', 'lock') AND p.subject_id = o.line_id
                  OR p.kind = 'workflow' AND p.subject_id = w.workflow_id) THEN 'pause' END], NULL)
       ELSE '{}'::text[] END AS gates,
       s.step_path, s.job, o.attempt::int AS attempts, k.name AS key_space, o.key, o.key_arrival, o.released,
       coalesce(q.name, '-') AS queue, r.kind AS line_kind, r.name AS line, a.name AS agent, o.position,
       o.added_at, o.due_at, o.ready_at, o.started_at, o.leased_at, NULL::timestamptz AS ended_at,
       t.reason, t.detail AS reason_detail, t.since AS reason_since, o.stop::text AS stopping, NULL::int AS exit_code, NULL::text AS message,
       i.added_by
FROM siding.orders o
JOIN siding.steps s ON s.step_id = o.step_id
JOIN siding.workflow_versions v ON v.version_id = s.version_id
JOIN siding.workflows w ON w.workflow_id = v.workflow_id
JOIN siding.resources r ON r.resource_id = o.line_id
LEFT JOIN siding.inputs i ON i.order_id = o.id AND i.added_at = o.added_at
LEFT JOIN siding.key_spaces k ON k.key_space_id = o.key_space_id
LEFT JOIN siding.queues q ON q.queue_id = o.queue_id
LEFT JOIN siding.resources a ON a.resource_id = o.agent_id
LEFT JOIN siding.attentions t ON t.order_id = o.id AND o.state IN ('suspended', 'attention', 'dead')
UNION ALL
SELECT o.order_id, i.ref, w.name, v.version, o.state::text, o.state::text, '{}'::text[],
       s.step_path, s.job, o.attempt::int, k.name, o.key, o.key_arrival, o.released,
       coalesce(q.name, '-'), r.kind, r.name, a.name, o.position,
       o.added_at, NULL, o.ready_at, o.started_at, o.leased_at, o.ended_at,
       NULL, NULL, NULL, NULL, o.exit_code, o.message, i.added_by
FROM siding.outcomes o
JOIN siding.steps s ON s.step_id = o.step_id
JOIN siding.workflow_versions v ON v.version_id = s.version_id
JOIN siding.workflows w ON w.workflow_id = v.workflow_id
JOIN siding.resources r ON r.resource_id = o.line_id
LEFT JOIN siding.inputs i ON i.order_id = o.order_id AND i.added_at = o.added_at
LEFT JOIN siding.key_spaces k ON k.key_space_id = o.key_space_id
LEFT JOIN siding.queues q ON q.queue_id = o.queue_id
LEFT JOIN siding.resources a ON a.resource_id = o.agent_id;
COMMENT ON VIEW siding_report.orders IS 'All orders, live and ended. Give order_id, or a range of ended_at, where there are many.';
COMMENT ON COLUMN siding_report.orders.order_id IS 'The order.';
COMMENT ON COLUMN siding_report.orders.ref IS 'The user''s reference.';
COMMENT ON COLUMN siding_report.orders.workflow IS 'Its workflow.';
COMMENT ON COLUMN siding_report.orders.version IS 'The version of the workflow that it was added with.';
COMMENT ON COLUMN siding_report.orders.state IS 'waiting, running, suspended, attention, dead, finished or cancelled.';
COMMENT ON COLUMN siding_report.orders.state_word IS 'The state in one word; of a waiting order scheduled, blocked, held, locked_out, paused, arriving or ready.';
COMMENT ON COLUMN siding_report.orders.gates IS 'Closed gates of a waiting order.';
COMMENT ON COLUMN siding_report.orders.step_path IS 'Where it stands, or ended.';
COMMENT ON COLUMN siding_report.orders.job IS 'The job of that step.';
COMMENT ON COLUMN siding_report.orders.attempts IS 'Attempts of that step in its last round.';
COMMENT ON COLUMN siding_report.orders.key_space IS 'Its key space; null without a key.';
COMMENT ON COLUMN siding_report.orders.key IS 'Its key; null: independent.';
COMMENT ON COLUMN siding_report.orders.key_arrival IS 'Arrival within the key.';
COMMENT ON COLUMN siding_report.orders.released IS 'A person let it go ahead of its predecessors.';
COMMENT ON COLUMN siding_report.orders.queue IS 'Its queue; "-" for none.';
COMMENT ON COLUMN siding_report.orders.line_kind IS 'agent or lock: what it waits for or runs on.';
COMMENT ON COLUMN siding_report.orders.line IS 'Name of that resource.';
COMMENT ON COLUMN siding_report.orders.agent IS 'The agent that runs it, or ran its last attempt.';
COMMENT ON COLUMN siding_report.orders.position IS 'Place in line; lower goes first.';
COMMENT ON COLUMN siding_report.orders.added_at IS 'When it was added.';
COMMENT ON COLUMN siding_report.orders.due_at IS 'Due time, or time of the next attempt; null once ended.';
COMMENT ON COLUMN siding_report.orders.ready_at IS 'When the last gate opened before its first start.';
COMMENT ON COLUMN siding_report.orders.started_at IS 'When it first started.';
COMMENT ON COLUMN siding_report.orders.leased_at IS 'When its running, or last, attempt was claimed.';
COMMENT ON COLUMN siding_report.orders.ended_at IS 'When it ended; null while it lives.';
COMMENT ON COLUMN siding_report.orders.reason IS 'Why it is in attention, dead or suspended.';
COMMENT ON COLUMN siding_report.orders.reason_detail IS 'What is known about that.';
COMMENT ON COLUMN siding_report.orders.reason_since IS 'Since when.';
COMMENT ON COLUMN siding_report.orders.stopping IS 'What a person asked for while it runs: cancel, suspend or kill.';
COMMENT ON COLUMN siding_report.orders.exit_code IS 'Exit code of the attempt that ended it.';
COMMENT ON COLUMN siding_report.orders.message IS 'What that attempt said.';
COMMENT ON COLUMN siding_report.orders.added_by IS 'Who added it.';

CREATE OR REPLACE VIEW siding_report.runs AS
SELECT r.order_id, r.lease_no, w.name AS workflow, s.step_path, s.job, a.name AS agent, r.session_id, r.attempt::int AS attempt,
       r.started_at, r.ended_at, r.ended_at - r.started_at AS took, r.outcome, r.exit_code, r.message
FROM siding.runs r
JOIN siding.steps s ON s.step_id = r.step_id
JOIN siding.workflow_versions v ON v.version_id = s.version_id
JOIN siding.workflows w ON w.workflow_id = v.workflow_id
LEFT JOIN siding.resources a ON a.resource_id = r.agent_id
UNION ALL
SELECT o.order_id, o.lease_no, w.name, s.step_path, s.job, a.name, o.session_id, o.attempt::int,
       o.leased_at, o.ended_at, o.ended_at - o.leased_at, CASE o.state WHEN 'finished' THEN 'succeeded' ELSE 'stopped' END,
       o.exit_code, o.message
FROM siding.outcomes o
JOIN siding.steps s ON s.step_id = o.step_id
JOIN siding.workflow_versions v ON v.version_id = s.version_id
JOIN siding.workflows w ON w.workflow_id = v.workflow_id
LEFT JOIN siding.resources a ON a.resource_id = o.agent_id
WHERE o.lease_no IS NOT NULL;
COMMENT ON VIEW siding_report.runs IS 'Attempts that have ended, of live and of ended orders.';
COMMENT ON COLUMN siding_report.runs.order_id IS 'The order.';
COMMENT ON COLUMN siding_report.runs.lease_no IS 'The lease; grows with every claim.';
COMMENT ON COLUMN siding_report.runs.workflow IS 'Its workflow.';
COMMENT ON COLUMN siding_report.runs.step_path IS 'The step.';
COMMENT ON COLUMN siding_report.runs.job IS 'The job.';
COMMENT ON COLUMN siding_report.runs.agent IS 'The agent that ran it.';
COMMENT ON COLUMN siding_report.runs.session_id IS 'The session that ran it.';
COMMENT ON COLUMN siding_report.runs.attempt IS 'Number of the attempt within step and round; of one that does not count (handed back, stopped) the one it would have been.';
COMMENT ON COLUMN siding_report.runs.started_at IS 'When it was claimed.';
COMMENT ON COLUMN siding_report.runs.ended_at IS 'When it ended.';
COMMENT ON COLUMN siding_report.runs.took IS 'The time between.';
COMMENT ON COLUMN siding_report.runs.outcome IS 'succeeded, failed, timed_out, rejected, stopped, handed_back or lost.';
COMMENT ON COLUMN siding_report.runs.exit_code IS 'Exit code of the process.';
COMMENT ON COLUMN siding_report.runs.message IS 'What went wrong, in a line.';

CREATE OR REPLACE VIEW siding_report.attachments AS
SELECT a.order_id, a.name, a.state::text AS state, a.expected_size, encode(a.expected_sha256, 'hex') AS expected_sha256,
       a.size, encode(a.sha256, 'hex') AS sha256, a.store, coalesce(s.unreadable, false) AS store_unreadable, a.problem, a.late,
       a.added_at, a.changed_at
FROM siding.attachments a LEFT JOIN siding.stores s ON s.store = a.store;
COMMENT ON VIEW siding_report.attachments IS 'Attachments of orders.';
COMMENT ON COLUMN siding_report.attachments.order_id IS 'The order.';
COMMENT ON COLUMN siding_report.attachments.name IS 'Name, unique within the order.';
COMMENT ON COLUMN siding_report.attachments.state IS 'pending, uploading, complete, failed, unknown or discarded.';
COMMENT ON COLUMN siding_report.attachments.expected_size IS 'Size in bytes that was announced.';
COMMENT ON COLUMN siding_report.attachments.expected_sha256 IS 'SHA-256 that was announced, hexadecimal.';
COMMENT ON COLUMN siding_report.attachments.size IS 'Size in bytes, once all are there.';
COMMENT ON COLUMN siding_report.attachments.sha256 IS 'SHA-256, once all are there, hexadecimal.';
COMMENT ON COLUMN siding_report.attachments.store IS 'Where the bytes lie.';
COMMENT ON COLUMN siding_report.attachments.store_unreadable IS 'The store cannot be read at the moment.';
COMMENT ON COLUMN siding_report.attachments.problem IS 'What the check found.';
COMMENT ON COLUMN siding_report.attachments.late IS 'Became complete when the order was already in attention.';
COMMENT ON COLUMN siding_report.attachments.added_at IS 'When it was expected.';
COMMENT ON COLUMN siding_report.attachments.changed_at IS 'When its state last changed.';

CREATE OR REPLACE VIEW siding_report.decisions AS
SELECT e.event_no, e.at, e.person, e.kind AS decision, e.order_id, e.subject, e.reason, e.detail
FROM siding.events e WHERE e.person IS NOT NULL;
COMMENT ON VIEW siding_report.decisions IS 'What people decided: about orders, lines, pauses and definitions. Give a range of at.';
COMMENT ON COLUMN siding_report.decisions.event_no IS 'Number; grows.';
COMMENT ON COLUMN siding_report.decisions.at IS 'When.';
COMMENT ON COLUMN siding_report.decisions.person IS 'Who.';
COMMENT ON COLUMN siding_report.decisions.decision IS 'What: release, cancel, move, assign, resolve ...';
COMMENT ON COLUMN siding_report.decisions.order_id IS 'The order, if it is about one.';
COMMENT ON COLUMN siding_report.decisions.subject IS 'What else it is about.';
COMMENT ON COLUMN siding_report.decisions.reason IS 'Why.';
COMMENT ON COLUMN siding_report.decisions.detail IS 'Numbers and names.';
