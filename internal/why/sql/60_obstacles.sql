-- What keeps each live order from the next resource (docs/concepts.md, Why is it waiting): a row per
-- obstacle, from the facts that decide. The gates are the columns that make an order a candidate; what is named beside them
-- is read from the rows that will open them.
--
-- Every branch reads a bounded number of rows by an index, given the order: also with 100,000 orders of one key or line.
-- Nothing here calls a function that reads a table: siding_report.why_waiting works for a role that may read only the views.
--
-- Decided, where the rules leave room:
-- - attention, dead and suspended stand alone; they and a running order have no gate rows.
-- - key_held while an earlier arrival isn't final and no release is recorded; it names the nearest. Otherwise the gate is
--   closed by the active order: key_running.
-- - lock_busy says one thing: what the order needs does not fit beside what is granted. It is shown whoever's turn it is, so
--   that view and function say the same, and the turn comes on top (siding.why). A lock that is free is no obstacle.
-- - A lock of capacity 0 can't be had exclusively either: exceeds_capacity.
-- - needs_you is what no clock, order or upload ends: a person or an operator has to do something.
CREATE OR REPLACE VIEW siding.obstacles AS
SELECT o.id AS order_id, x.class, x.code, x.subject, x.numbers, x.since, x.ends_by
FROM siding.orders o
CROSS JOIN LATERAL (
    SELECT 'needs_you' AS class, o.state::text AS code, a.reason AS subject, coalesce(a.detail, '{}') AS numbers, a.since,
           CASE o.state
               WHEN 'suspended' THEN 'a person resumes it'
               WHEN 'dead' THEN 'a person retries, skips or cancels it'
               ELSE 'a person resolves it: resume, skip or cancel' END AS ends_by
    FROM (SELECT) one LEFT JOIN siding.attentions a ON a.order_id = o.id
    WHERE o.state IN ('suspended', 'attention', 'dead')

    UNION ALL
    SELECT 'later', 'intake', NULL, '{}', o.added_at, 'the intake gives it its place, milliseconds after the commit'
    WHERE o.state = 'waiting' AND o.intake_closed

    UNION ALL
    SELECT 'later', CASE WHEN o.attempt > 0 THEN 'retry' ELSE 'due' END, s.job,
           CASE WHEN o.attempt > 0
                THEN jsonb_build_object('due_at', o.due_at, 'attempt', o.attempt, 'max_attempts', s.max_attempts)
                ELSE jsonb_build_object('due_at', o.due_at) END,
           CASE WHEN o.attempt > 0
                THEN (SELECT r.ended_at FROM siding.runs r WHERE r.order_id = o.id ORDER BY r.lease_no DESC LIMIT 1)
                ELSE o.added_at END,
           CASE WHEN o.attempt > 0 THEN 'the time of the next attempt comes' ELSE 'its due time comes' END
    FROM siding.steps s
    WHERE o.state = 'waiting' AND o.due_closed AND s.step_id = o.step_id

    UNION ALL
    SELECT CASE WHEN f.unknown THEN 'unknown' ELSE 'later' END,
           CASE WHEN f.unknown THEN 'attachment_unknown' ELSE 'attachment_pending' END,
           a.name,
           jsonb_strip_nulls(jsonb_build_object('state', a.state, 'received', u.received, 'expected_size', a.expected_size,
               'wait_deadline', o.wait_deadline, 'store', a.store, 'problem', coalesce(a.problem, f.problem))),
           a.changed_at,
           CASE WHEN f.unknown THEN 'its store can be read again'
                WHEN a.state = 'failed' THEN 'it is uploaded again and passes its check'
                ELSE 'it is uploaded and passes its check' END
    FROM siding.attachments a
    LEFT JOIN siding.stores st ON st.store = a.store
    CROSS JOIN LATERAL (
        SELECT a.state = 'unknown' OR a.state IN ('pending', 'uploading', 'discarded') AND coalesce(st.unreadable, false) AS unknown,
               CASE WHEN st.unreadable THEN st.problem END AS problem) f
    LEFT JOIN LATERAL (SELECT max(u.received) AS received FROM siding.uploads u WHERE u.attachment_id = a.attachment_id) u ON true
    WHERE o.state = 'waiting' AND o.attachment_closed AND a.order_id = o.id AND a.state <> 'complete'

    UNION ALL
    SELECT CASE WHEN p.state IN ('suspended', 'attention', 'dead') THEN 'needs_you' ELSE 'later' END,
           CASE WHEN p.id IS NOT NULL THEN 'key_held' ELSE 'key_running' END,
           coalesce(p.id, r.id)::text,
           jsonb_strip_nulls(jsonb_build_object('key', o.key, 'order', coalesce(p.id, r.id), 'state', coalesce(p.state, r.state))),
           CASE WHEN p.id IS NOT NULL THEN o.added_at ELSE r.started_at END,
           CASE WHEN p.state IN ('suspended', 'attention', 'dead') THEN 'a person decides about that order, and it ends; or a release, with a reason'
                WHEN p.id IS NOT NULL THEN 'that order ends, and all before it; or a release, with a reason'
                ELSE 'that order ends or is parked: of a key one order is active at a time' END
    FROM (SELECT) one
    -- The nearest by the key's hash is of the same key but for equal hashes of two. The key's comparison in the first look
    -- would make the planner expect that it must go far, and, where statistics are stale, read and sort all orders of the key.
    LEFT JOIN LATERAL (
        SELECT p.id, p.state, p.key_space_id = o.key_space_id AND p.key = o.key AS same FROM siding.orders p
        WHERE p.key_hash = o.key_hash AND p.key_arrival < o.key_arrival
        ORDER BY p.key_arrival DESC LIMIT 1) n ON NOT o.released
    LEFT JOIN LATERAL (
        SELECT n.id, n.state WHERE n.same
        UNION ALL
        (SELECT p.id, p.state FROM siding.orders p
         WHERE NOT n.same
           AND p.key_hash = o.key_hash AND p.key_arrival < o.key_arrival AND p.key_space_id = o.key_space_id AND p.key = o.key
         ORDER BY p.key_arrival DESC LIMIT 1)) p ON true
    LEFT JOIN LATERAL (
        SELECT r.id, r.state, r.started_at FROM siding.orders r
        WHERE r.key_space_id = o.key_space_id AND r.key = o.key AND r.id <> o.id
          AND r.key IS NOT NULL AND r.started_at IS NOT NULL AND NOT r.key_closed AND r.state IN ('waiting', 'running')
        LIMIT 1) r ON p.id IS NULL
    WHERE o.state = 'waiting' AND o.key_closed AND o.key_arrival IS NOT NULL

    UNION ALL
    SELECT CASE WHEN n.never THEN 'never' ELSE 'later' END,
           CASE WHEN n.never THEN 'exceeds_capacity' ELSE 'lock_busy' END,
           l.name,
           jsonb_strip_nulls(jsonb_build_object('capacity', l.capacity, 'weight', nullif(o.class_id, 0), 'exclusive', CASE WHEN o.class_id = 0 THEN true END,
               'held', u.held, 'holders', u.holders,
               'first_holders', CASE WHEN NOT n.never THEN (
                   SELECT jsonb_agg(h.holder) FROM (
                       SELECT jsonb_build_object('order', g.order_id, 'weight', g.weight, 'since', g.granted_at, 'state', ho.state) AS holder
                       FROM siding.grants g LEFT JOIN siding.orders ho ON ho.id = g.order_id
                       WHERE g.lock_id = l.resource_id ORDER BY g.order_id LIMIT 10) h) END)),
           u.since,
           CASE WHEN n.never THEN 'the capacity of the lock is raised' ELSE 'holders give back enough of it' END
    FROM siding.resources l
    CROSS JOIN LATERAL (
        SELECT count(*) AS holders, coalesce(sum(g.weight), 0) AS held, count(*) FILTER (WHERE g.weight IS NULL) AS exclusive,
               max(g.granted_at) AS since
        FROM siding.grants g WHERE g.lock_id = l.resource_id) u
    CROSS JOIN LATERAL (SELECT o.class_id > l.capacity OR l.capacity = 0 AS never) n
    WHERE o.state = 'waiting' AND o.lock_closed AND NOT o.intake_closed AND l.resource_id = o.line_id AND l.kind = 'lock'
      AND (n.never OR u.exclusive > 0 OR CASE WHEN o.class_id = 0 THEN u.holders > 0 ELSE u.held + o.class_id > l.capacity END)

    UNION ALL
    SELECT 'later', 'line_strict', r.name,
           jsonb_strip_nulls(jsonb_build_object('barrier', b.id, 'reason', l.reason, 'person', l.person, 'person_reason', l.person_reason)),
           l.since,
           CASE l.reason
               WHEN 'set_by_person' THEN 'the barrier gets its attachment or leaves the line, or a person lets the line pass'
               WHEN 'too_many_blocked' THEN 'the barrier gets its attachment or leaves the line, or fewer orders of the line are blocked'
               ELSE 'the barrier gets its attachment or leaves the line, or every fact can be read again' END
    FROM siding.lines l
    JOIN siding.resources r ON r.resource_id = l.line_id
    CROSS JOIN LATERAL (
        SELECT b.id, b.position FROM siding.orders b
        WHERE b.line_id = o.line_id AND b.state = 'waiting' AND b.attachment_closed AND NOT b.due_closed
        ORDER BY b.position, b.id LIMIT 1) b
    WHERE l.line_id = o.line_id AND l.mode = 'strict'
      AND o.state = 'waiting' AND o.started_at IS NULL AND NOT o.due_closed AND NOT o.intake_closed
      AND (o.position, o.id) > (b.position, b.id)

    UNION ALL
    SELECT CASE WHEN p.until IS NULL THEN 'needs_you' ELSE 'later' END, 'paused', k.kind || '/' || k.name,
           jsonb_strip_nulls(jsonb_build_object('reason', p.reason, 'person', p.person, 'until', p.until)), p.since,
           CASE WHEN p.until IS NULL THEN 'a person ends the pause' ELSE 'its time comes, or a person ends the pause' END
    FROM (SELECT 'queue' AS kind, q.queue_id AS id, q.name FROM siding.queues q WHERE q.queue_id = o.queue_id
          UNION ALL
          SELECT r.kind, r.resource_id, r.name FROM siding.resources r WHERE r.resource_id = o.line_id
          UNION ALL
          SELECT 'workflow', w.workflow_id, w.name
          FROM siding.steps s
          JOIN siding.workflow_versions v ON v.version_id = s.version_id
          JOIN siding.workflows w ON w.workflow_id = v.workflow_id
          WHERE s.step_id = o.step_id) k
    LEFT JOIN siding.pauses p ON p.kind = k.kind AND p.subject_id = k.id
    WHERE o.state = 'waiting'
      -- The gate of a workflow is opened within a tick after the pause has ended.
      AND (p.kind IS NOT NULL OR k.kind = 'workflow' AND o.pause_closed)
) x;

COMMENT ON VIEW siding.obstacles IS 'A row per obstacle of each live order, from the facts that decide.';
COMMENT ON COLUMN siding.obstacles.order_id IS 'The order.';
COMMENT ON COLUMN siding.obstacles.class IS 'later (ends by itself), needs_you, never (as things are defined) or unknown.';
COMMENT ON COLUMN siding.obstacles.code IS 'Stable code of the obstacle.';
COMMENT ON COLUMN siding.obstacles.subject IS 'What it is about: attachment, order, lock, line, what is paused, reason of attention.';
COMMENT ON COLUMN siding.obstacles.numbers IS 'Numbers and names.';
COMMENT ON COLUMN siding.obstacles.since IS 'Since when, where that is known.';
COMMENT ON COLUMN siding.obstacles.ends_by IS 'What would end it.';
