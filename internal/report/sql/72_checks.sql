-- Evidence that the rules were kept: both views are empty when they were.

-- Orders that started before an earlier arrival of their key had ended, without a release.
--
-- ended_at is the time at which the reporting statement began, started_at that at which the claim had picked the order, after
-- it saw that end committed. So a start before the end is one that didn't wait for it.
CREATE OR REPLACE VIEW siding_report.key_order AS
WITH keyed AS (
    SELECT o.id AS order_id, o.key_space_id, o.key, o.key_arrival, o.started_at, 'infinity'::timestamptz AS ended_at, o.released
    FROM siding.orders o WHERE o.key_arrival IS NOT NULL
    UNION ALL
    SELECT x.order_id, x.key_space_id, x.key, x.key_arrival, x.started_at, x.ended_at, x.released
    FROM siding.outcomes x WHERE x.key_arrival IS NOT NULL
), seen AS (
    SELECT k.*, max(k.ended_at) OVER w AS before_ended_at
    FROM keyed k
    WINDOW w AS (PARTITION BY k.key_space_id, k.key ORDER BY k.key_arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT n.name AS key_space, s.key, s.order_id, s.key_arrival, s.started_at, nullif(s.before_ended_at, 'infinity') AS before_ended_at
FROM seen s
JOIN siding.key_spaces n ON n.key_space_id = s.key_space_id
WHERE NOT s.released AND s.started_at < s.before_ended_at;
COMMENT ON VIEW siding_report.key_order IS
'Orders that started before all earlier ones of their key had ended, without a release: empty when the order of every key was kept. Give key_space and key where there are many.';
COMMENT ON COLUMN siding_report.key_order.key_space IS 'The key space.';
COMMENT ON COLUMN siding_report.key_order.key IS 'The key.';
COMMENT ON COLUMN siding_report.key_order.order_id IS 'The order that started too early.';
COMMENT ON COLUMN siding_report.key_order.key_arrival IS 'Its arrival within the key.';
COMMENT ON COLUMN siding_report.key_order.started_at IS 'When it started.';
COMMENT ON COLUMN siding_report.key_order.before_ended_at IS 'When the last of its predecessors ended; null if one has not.';

CREATE OR REPLACE VIEW siding_report.invariants AS
SELECT 'two_active_of_key' AS invariant, k.name || '/' || o.key AS subject, jsonb_build_object('orders', jsonb_agg(o.id ORDER BY o.id)) AS detail
FROM siding.orders o JOIN siding.key_spaces k ON k.key_space_id = o.key_space_id
WHERE o.key IS NOT NULL AND o.started_at IS NOT NULL
  AND (o.state = 'running' OR o.state = 'waiting' AND NOT o.key_closed)
GROUP BY k.name, o.key HAVING count(*) > 1

UNION ALL
-- A lowered limit stops nothing; but then nothing starts until there is room again.
SELECT 'process_limit_exceeded', r.name, jsonb_build_object('processes', r.processes, 'running', count(*))
FROM siding.resources r JOIN siding.orders o ON o.agent_id = r.resource_id
WHERE r.kind = 'agent' AND o.state = 'running'
GROUP BY r.resource_id HAVING count(*) > r.processes AND max(o.leased_at) > r.updated_at

UNION ALL
SELECT 'lock_capacity_exceeded', r.name, jsonb_build_object('capacity', r.capacity, 'held', sum(g.weight))
FROM siding.resources r JOIN siding.grants g ON g.lock_id = r.resource_id
GROUP BY r.resource_id HAVING sum(g.weight) > r.capacity AND max(g.granted_at) > r.updated_at

UNION ALL
SELECT 'exclusive_not_alone', r.name, jsonb_build_object('orders', jsonb_agg(g.order_id ORDER BY g.order_id))
FROM siding.resources r JOIN siding.grants g ON g.lock_id = r.resource_id
GROUP BY r.resource_id HAVING count(*) > 1 AND count(*) FILTER (WHERE g.weight IS NULL) > 0

UNION ALL
SELECT 'grant_without_order', r.name, jsonb_build_object('order', g.order_id)
FROM siding.grants g JOIN siding.resources r ON r.resource_id = g.lock_id
WHERE NOT EXISTS (SELECT FROM siding.orders o WHERE o.id = g.order_id)

UNION ALL
SELECT 'running_without_session', o.id::text, jsonb_build_object('session', o.session_id, 'lease', o.lease_no)
FROM siding.orders o
WHERE o.state = 'running'
  AND NOT EXISTS (SELECT FROM siding.sessions s WHERE s.session_id = o.session_id AND s.agent_id = o.agent_id AND s.ended_at IS NULL)

UNION ALL
SELECT 'lease_without_run', o.id::text, jsonb_build_object('state', o.state, 'lease', o.lease_no)
FROM siding.orders o WHERE o.state <> 'running' AND o.lease_no IS NOT NULL

UNION ALL
SELECT 'candidate_in_no_stream', o.id::text, jsonb_build_object('line', r.name, 'class', o.class_id, 'queue', o.queue_id)
FROM siding.orders o JOIN siding.resources r ON r.resource_id = o.line_id
WHERE o.candidate
  AND NOT EXISTS (SELECT FROM siding.streams s WHERE (s.line_id, s.class_id, s.queue_id) = (o.line_id, o.class_id, o.queue_id))

UNION ALL
SELECT 'candidate_below_floor', o.id::text, jsonb_build_object('position', o.position, 'floor', l.floor)
FROM siding.orders o JOIN siding.lines l ON l.line_id = o.line_id
WHERE o.candidate AND NOT o.late AND o.position < l.floor

UNION ALL
SELECT 'attachment_gate', o.id::text, jsonb_build_object('closed', o.attachment_closed, 'missing', f.missing)
FROM siding.orders o
CROSS JOIN LATERAL (SELECT count(*) AS missing FROM siding.attachments a WHERE a.order_id = o.id AND a.state <> 'complete') f
WHERE o.state = 'waiting' AND (o.has_attachments OR o.attachment_closed) AND o.attachment_closed <> (f.missing > 0)

UNION ALL
SELECT 'due_gate', o.id::text, jsonb_build_object('closed', o.due_closed, 'due_at', o.due_at)
FROM siding.orders o
WHERE o.state = 'waiting' AND (o.due_closed AND o.due_at IS NULL OR NOT o.due_closed AND o.due_at > siding.clock())

UNION ALL
SELECT 'lock_gate', o.id::text, jsonb_build_object('closed', o.lock_closed, 'line', r.name,
           'granted', EXISTS (SELECT FROM siding.grants g WHERE g.lock_id = o.line_id AND g.order_id = o.id))
FROM siding.orders o JOIN siding.resources r ON r.resource_id = o.line_id
WHERE o.state = 'waiting' AND NOT o.intake_closed
  AND (o.lock_closed <> (r.kind = 'lock') OR EXISTS (SELECT FROM siding.grants g WHERE g.lock_id = o.line_id AND g.order_id = o.id))

UNION ALL
-- Open is the gate of the head of a key and of those released, unless another order of the key is active.
SELECT 'key_gate', o.id::text, jsonb_build_object('closed', o.key_closed, 'released', o.released, 'before', o.before_id, 'active', o.active_id)
FROM (
    SELECT k.*,
           lag(k.id) OVER (PARTITION BY k.key_space_id, k.key ORDER BY k.key_arrival) AS before_id,
           max(k.id) FILTER (WHERE k.started_at IS NOT NULL AND NOT k.key_closed AND k.state IN ('waiting', 'running'))
               OVER (PARTITION BY k.key_space_id, k.key) AS active_id
    FROM siding.orders k WHERE k.key_arrival IS NOT NULL) o
WHERE o.state = 'waiting'
  AND o.key_closed <> (o.before_id IS NOT NULL AND NOT o.released OR coalesce(o.active_id <> o.id, false))

UNION ALL
SELECT 'parked_without_reason', o.id::text, jsonb_build_object('state', o.state)
FROM siding.orders o
WHERE o.state IN ('suspended', 'attention', 'dead') AND NOT EXISTS (SELECT FROM siding.attentions a WHERE a.order_id = o.id)

UNION ALL
SELECT 'live_and_ended', o.id::text, '{}'::jsonb
FROM siding.orders o WHERE EXISTS (SELECT FROM siding.outcomes x WHERE x.order_id = o.id);
COMMENT ON VIEW siding_report.invariants IS 'What must never be: empty on a sound database. Reads all live orders.';
COMMENT ON COLUMN siding_report.invariants.invariant IS 'What is broken.';
COMMENT ON COLUMN siding_report.invariants.subject IS 'Order, agent, lock or key.';
COMMENT ON COLUMN siding_report.invariants.detail IS 'What was found.';
