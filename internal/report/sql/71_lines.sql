CREATE OR REPLACE VIEW siding_report.queue_lists AS
SELECT coalesce(q.name, '-') AS queue, x.list, x.id AS order_id, i.ref, x.state_word, r.kind AS line_kind, r.name AS line,
       x.position, x.due_at, x.leased_at, x.added_at
FROM (
    SELECT 'waiting' AS list, o.id, o.queue_id, o.line_id, siding.state_word(o, EXISTS (SELECT FROM siding.pauses p WHERE p.kind = 'queue' AND p.subject_id = o.queue_id OR p.kind IN ('agent', 'lock') AND p.subject_id = o.line_id)) AS state_word, o.position, o.due_at, o.leased_at, o.added_at
    FROM siding.orders o WHERE o.state = 'waiting' AND NOT o.due_closed
    UNION ALL
    SELECT 'scheduled', o.id, o.queue_id, o.line_id, siding.state_word(o, EXISTS (SELECT FROM siding.pauses p WHERE p.kind = 'queue' AND p.subject_id = o.queue_id OR p.kind IN ('agent', 'lock') AND p.subject_id = o.line_id)), o.position, o.due_at, o.leased_at, o.added_at
    FROM siding.orders o WHERE o.state = 'waiting' AND o.due_closed
    UNION ALL
    SELECT 'pending', o.id, o.queue_id, o.line_id, o.state::text, o.position, o.due_at, o.leased_at, o.added_at
    FROM siding.orders o WHERE o.state = 'running'
    UNION ALL
    SELECT 'dead', o.id, o.queue_id, o.line_id, o.state::text, o.position, o.due_at, o.leased_at, o.added_at
    FROM siding.orders o WHERE o.state = 'dead'
    UNION ALL
    SELECT 'attention', o.id, o.queue_id, o.line_id, o.state::text, o.position, o.due_at, o.leased_at, o.added_at
    FROM siding.orders o WHERE o.state = 'attention'
    UNION ALL
    SELECT 'suspended', o.id, o.queue_id, o.line_id, o.state::text, o.position, o.due_at, o.leased_at, o.added_at
    FROM siding.orders o WHERE o.state = 'suspended'
) x
JOIN siding.resources r ON r.resource_id = x.line_id
LEFT JOIN siding.queues q ON q.queue_id = x.queue_id
LEFT JOIN siding.inputs i ON i.order_id = x.id AND i.added_at = x.added_at;
COMMENT ON VIEW siding_report.queue_lists IS 'The lists of every queue and of the orders without one: each live order in exactly one.';
COMMENT ON COLUMN siding_report.queue_lists.queue IS 'The queue; "-" for none.';
COMMENT ON COLUMN siding_report.queue_lists.list IS 'waiting (by position), pending (running), scheduled (by due_at), dead, attention or suspended.';
COMMENT ON COLUMN siding_report.queue_lists.order_id IS 'The order.';
COMMENT ON COLUMN siding_report.queue_lists.ref IS 'The user''s reference.';
COMMENT ON COLUMN siding_report.queue_lists.state_word IS 'Its state in one word.';
COMMENT ON COLUMN siding_report.queue_lists.line_kind IS 'agent or lock.';
COMMENT ON COLUMN siding_report.queue_lists.line IS 'The resource that it waits for or runs on.';
COMMENT ON COLUMN siding_report.queue_lists.position IS 'Place in line; lower goes first.';
COMMENT ON COLUMN siding_report.queue_lists.due_at IS 'Due time, or time of the next attempt.';
COMMENT ON COLUMN siding_report.queue_lists.leased_at IS 'When the running attempt was claimed.';
COMMENT ON COLUMN siding_report.queue_lists.added_at IS 'When it was added.';

-- An order first starts at its first step, so that step's line is where it waited; the outcome names that of its last one.
CREATE OR REPLACE VIEW siding_report.line_waits AS
SELECT r.name AS line, coalesce(q.name, '-') AS queue, x.orders, x.p50, x.p90, x.p99, x.max
FROM (
    SELECT f.line_id, o.queue_id, count(*) AS orders,
           percentile_cont(0.50) WITHIN GROUP (ORDER BY o.started_at - o.ready_at) AS p50,
           percentile_cont(0.90) WITHIN GROUP (ORDER BY o.started_at - o.ready_at) AS p90,
           percentile_cont(0.99) WITHIN GROUP (ORDER BY o.started_at - o.ready_at) AS p99,
           max(o.started_at - o.ready_at) AS max
    FROM siding.outcomes o
    JOIN siding.steps s ON s.step_id = o.step_id
    JOIN siding.workflow_versions v ON v.version_id = s.version_id
    JOIN siding.steps f ON f.step_id = v.first_step_id
    WHERE o.ended_at > siding.clock() - interval '24 hours' AND o.started_at IS NOT NULL AND o.ready_at IS NOT NULL
    GROUP BY f.line_id, o.queue_id) x
JOIN siding.resources r ON r.resource_id = x.line_id
LEFT JOIN siding.queues q ON q.queue_id = x.queue_id;
COMMENT ON VIEW siding_report.line_waits IS 'How long orders that ended in the last 24 hours had waited between ready and their first start, per line and queue.';
COMMENT ON COLUMN siding_report.line_waits.line IS 'The agent or cluster of the first step.';
COMMENT ON COLUMN siding_report.line_waits.queue IS 'The queue; "-" for none.';
COMMENT ON COLUMN siding_report.line_waits.orders IS 'How many orders.';
COMMENT ON COLUMN siding_report.line_waits.p50 IS 'Half of them waited no longer.';
COMMENT ON COLUMN siding_report.line_waits.p90 IS '90 % of them waited no longer.';
COMMENT ON COLUMN siding_report.line_waits.p99 IS '99 % of them waited no longer.';
COMMENT ON COLUMN siding_report.line_waits.max IS 'The longest wait.';

CREATE OR REPLACE VIEW siding_report.lines AS
SELECT r.name AS line, r.agent_type, l.mode, l.reason, l.since, l.person_mode, l.person, l.person_reason, r.max_blocked,
       n.blocked, n.blocked > 10000 AS blocked_at_least, b.id AS barrier_order_id,
       EXISTS (SELECT FROM siding.pauses p WHERE p.kind = 'agent' AND p.subject_id = r.resource_id) AS paused
FROM siding.lines l
JOIN siding.resources r ON r.resource_id = l.line_id
CROSS JOIN LATERAL (
    SELECT count(*)::int AS blocked FROM (
        SELECT FROM siding.orders o WHERE o.line_id = l.line_id AND o.state = 'waiting' AND o.attachment_closed AND NOT o.due_closed
        LIMIT 10001) o) n
LEFT JOIN LATERAL (
    SELECT o.id FROM siding.orders o
    WHERE l.mode = 'strict' AND o.line_id = l.line_id AND o.state = 'waiting' AND o.attachment_closed AND NOT o.due_closed
    ORDER BY o.position, o.id LIMIT 1) b ON true
WHERE r.kind = 'agent' AND r.removed_at IS NULL;
COMMENT ON VIEW siding_report.lines IS 'Lines of agents and clusters: whether ready orders pass blocked ones there.';
COMMENT ON COLUMN siding_report.lines.line IS 'The agent or cluster.';
COMMENT ON COLUMN siding_report.lines.agent_type IS 'standalone, director or cluster.';
COMMENT ON COLUMN siding_report.lines.mode IS 'pass or strict.';
COMMENT ON COLUMN siding_report.lines.reason IS 'set_by_person, fact_unreadable or too_many_blocked.';
COMMENT ON COLUMN siding_report.lines.since IS 'Since when.';
COMMENT ON COLUMN siding_report.lines.person_mode IS 'What a person set; null: the facts decide.';
COMMENT ON COLUMN siding_report.lines.person IS 'Who set it.';
COMMENT ON COLUMN siding_report.lines.person_reason IS 'Why.';
COMMENT ON COLUMN siding_report.lines.max_blocked IS 'More blocked orders than this make it strict; null: no such stop.';
COMMENT ON COLUMN siding_report.lines.blocked IS 'Waiting, due orders that lack an attachment, counted up to 10,001.';
COMMENT ON COLUMN siding_report.lines.blocked_at_least IS 'There may be more than that.';
COMMENT ON COLUMN siding_report.lines.barrier_order_id IS 'In a strict line, the first blocked order: nothing that has not started passes it.';
COMMENT ON COLUMN siding_report.lines.paused IS 'A person paused it.';

CREATE OR REPLACE VIEW siding_report.why_waiting AS
SELECT b.order_id, i.ref, w.name AS workflow, coalesce(q.name, '-') AS queue, r.kind AS line_kind, r.name AS line,
       b.class, b.code, b.subject,
       CASE WHEN b.code IN ('key_held', 'key_running') THEN (
           SELECT oi.ref FROM siding.orders x JOIN siding.inputs oi ON oi.order_id = x.id AND oi.added_at = x.added_at
           WHERE x.id = b.subject::bigint) END AS subject_ref,
       b.numbers, b.since, b.ends_by
FROM siding.obstacles b
JOIN siding.orders o ON o.id = b.order_id
JOIN siding.steps s ON s.step_id = o.step_id
JOIN siding.workflow_versions v ON v.version_id = s.version_id
JOIN siding.workflows w ON w.workflow_id = v.workflow_id
JOIN siding.resources r ON r.resource_id = o.line_id
LEFT JOIN siding.queues q ON q.queue_id = o.queue_id
LEFT JOIN siding.inputs i ON i.order_id = o.id AND i.added_at = o.added_at;
COMMENT ON VIEW siding_report.why_waiting IS
'Why orders wait: a row per obstacle. Whose turn it is among ready ones is computed on demand: siding.why(order), the API and the CLI tell.';
COMMENT ON COLUMN siding_report.why_waiting.order_id IS 'The order.';
COMMENT ON COLUMN siding_report.why_waiting.ref IS 'The user''s reference.';
COMMENT ON COLUMN siding_report.why_waiting.workflow IS 'Its workflow.';
COMMENT ON COLUMN siding_report.why_waiting.queue IS 'Its queue; "-" for none.';
COMMENT ON COLUMN siding_report.why_waiting.line_kind IS 'agent or lock.';
COMMENT ON COLUMN siding_report.why_waiting.line IS 'The resource that it waits for.';
COMMENT ON COLUMN siding_report.why_waiting.class IS 'later (ends by itself), needs_you, never (as things are defined) or unknown.';
COMMENT ON COLUMN siding_report.why_waiting.code IS 'Stable code of the obstacle.';
COMMENT ON COLUMN siding_report.why_waiting.subject IS 'What it is about: attachment, order, lock, line, what is paused, reason of attention.';
COMMENT ON COLUMN siding_report.why_waiting.subject_ref IS 'Reference of the order that it is about.';
COMMENT ON COLUMN siding_report.why_waiting.numbers IS 'Numbers and names.';
COMMENT ON COLUMN siding_report.why_waiting.since IS 'Since when, where that is known.';
COMMENT ON COLUMN siding_report.why_waiting.ends_by IS 'What would end it.';
