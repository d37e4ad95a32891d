-- The lists of every queue and of the orders without one (docs/concepts.md, Lists). Every live order stands
-- in exactly one of the lists waiting, pending, scheduled, dead, attention and suspended of its queue.
--
-- A page is read from where the last one ended, by an index that has the list's order; nothing is counted and nothing but
-- the page is sorted.

-- Id of the queue that a person names; 0 for "-", the orders without one.
CREATE OR REPLACE FUNCTION siding.queue_named(p_name text) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN p_name = '-' THEN 0 ELSE siding.subject_named('queue', p_name) END
$$;
COMMENT ON FUNCTION siding.queue_named(text) IS 'Id of a queue by name; 0 for "-".';

-- The next p_limit orders of a list behind (p_after, p_after_at, p_after_id), nulls for the beginning. sort_key is the
-- position (of pending ones the lease number), sort_at the due time of scheduled ones.
CREATE OR REPLACE FUNCTION siding.list_orders(
    p_queue int, p_list text, p_after bigint, p_after_at timestamptz, p_after_id bigint, p_limit int
) RETURNS TABLE (order_id bigint, sort_key bigint, sort_at timestamptz) LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_after bigint := coalesce(p_after, -9223372036854775808);
    v_id    bigint := coalesce(p_after_id, 0);
BEGIN
    CASE p_list
    WHEN 'waiting' THEN
        -- The streams of the queue in the claim index, of all lines, merged with those behind gates. No candidate that was
        -- ready from the start stands below the floor of its line, but dead index entries may.
        RETURN QUERY
        SELECT w.id, w.position, NULL::timestamptz
        FROM (
            SELECT c.id, c.position
            FROM siding.streams s JOIN siding.lines l ON l.line_id = s.line_id
            CROSS JOIN LATERAL (
                (SELECT o.id, o.position FROM siding.orders o
                 WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id AND o.candidate AND NOT o.late
                   AND o.position >= l.floor AND (o.position, o.id) > (v_after, v_id)
                 ORDER BY o.position, o.id LIMIT p_limit)
                UNION ALL
                (SELECT o.id, o.position FROM siding.orders o
                 WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id AND o.candidate AND o.late
                   AND (o.position, o.id) > (v_after, v_id)
                 ORDER BY o.position, o.id LIMIT p_limit)) c
            WHERE s.queue_id = p_queue
            UNION ALL
            (SELECT o.id, o.position FROM siding.orders o
             WHERE o.queue_id = p_queue AND o.state = 'waiting' AND NOT o.candidate AND NOT o.due_closed
               AND (o.position, o.id) > (v_after, v_id)
             ORDER BY o.position, o.id LIMIT p_limit)
        ) w
        ORDER BY w.position, w.id LIMIT p_limit;
    WHEN 'pending' THEN
        -- As many as run at all, which the process limits bound; in the order in which they were claimed.
        RETURN QUERY
        SELECT o.id, o.lease_no, NULL::timestamptz FROM siding.orders o
        WHERE o.state = 'running' AND o.agent_id IN (SELECT r.resource_id FROM siding.resources r WHERE r.kind = 'agent')
          AND o.lease_no > v_after AND o.queue_id = p_queue
        ORDER BY o.lease_no LIMIT p_limit;
    WHEN 'scheduled' THEN
        RETURN QUERY
        SELECT o.id, o.position, o.due_at FROM siding.orders o
        WHERE o.queue_id = p_queue AND o.state = 'waiting' AND o.due_closed
          AND (o.due_at, o.id) > (coalesce(p_after_at, '-infinity'), v_id)
        ORDER BY o.due_at, o.id LIMIT p_limit;
    WHEN 'dead', 'attention', 'suspended' THEN
        RETURN QUERY
        SELECT o.id, o.position, NULL::timestamptz FROM siding.orders o
        WHERE o.state = p_list::siding.order_state AND o.state IN ('suspended', 'attention', 'dead') AND o.queue_id = p_queue
          AND (o.position, o.id) > (v_after, v_id)
        ORDER BY o.position, o.id LIMIT p_limit;
    ELSE
        PERFORM siding.refuse(404, 'unknown_list', format('there is no list %s', coalesce(p_list, '(none)')),
                              'One of: waiting, pending, scheduled, dead, attention, suspended.');
    END CASE;
END $$;
COMMENT ON FUNCTION siding.list_orders(int, text, bigint, timestamptz, bigint, int) IS 'A page of a list of a queue (0: of the orders without one), in the order of the list.';

-- The same with what people want to see of each order.
CREATE OR REPLACE FUNCTION siding.list_page(
    p_queue int, p_list text, p_after bigint, p_after_at timestamptz, p_after_id bigint, p_limit int
) RETURNS TABLE (
    order_id bigint, sort_key bigint, sort_at timestamptz, ref text, workflow text, step_path text, job text, line_kind text, line text,
    state text, "position" bigint, key text, attempt int, added_at timestamptz, due_at timestamptz, ready_at timestamptz,
    started_at timestamptz, leased_at timestamptz, agent text, reason text
) LANGUAGE sql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    SELECT o.id, l.sort_key, l.sort_at, i.ref, w.name, s.step_path, s.job, r.kind, r.name,
           siding.state_word(o, EXISTS (SELECT FROM siding.pauses p WHERE p.kind = 'queue' AND p.subject_id = o.queue_id OR p.kind IN ('agent', 'lock') AND p.subject_id = o.line_id)), o.position, o.key, o.attempt, o.added_at, o.due_at, o.ready_at,
           o.started_at, o.leased_at, a.name, t.reason
    FROM siding.list_orders(p_queue, p_list, p_after, p_after_at, p_after_id, p_limit) WITH ORDINALITY AS l
    JOIN siding.orders o ON o.id = l.order_id
    JOIN siding.steps s ON s.step_id = o.step_id
    JOIN siding.workflow_versions v ON v.version_id = s.version_id
    JOIN siding.workflows w ON w.workflow_id = v.workflow_id
    JOIN siding.resources r ON r.resource_id = o.line_id
    LEFT JOIN siding.inputs i ON i.order_id = o.id AND i.added_at = o.added_at
    LEFT JOIN siding.resources a ON a.resource_id = o.agent_id
    LEFT JOIN siding.attentions t ON t.order_id = o.id AND o.state IN ('suspended', 'attention', 'dead')
    ORDER BY l.ordinality
$$;
COMMENT ON FUNCTION siding.list_page(int, text, bigint, timestamptz, bigint, int) IS 'A page of a list with the facts shown of each order.';

-- Who is in a queue, and who is its overflow, at the resources that list it: its first `capacity` candidates there, and those
-- behind them. Per resource at most the capacity and p_limit more, or p_limit where the queue has no capacity.
CREATE OR REPLACE FUNCTION siding.in_queue(p_queue int, p_limit int)
RETURNS TABLE (kind text, resource text, order_id bigint, "position" bigint, overflow boolean) LANGUAGE sql STABLE
SET jit = off
AS $$
    SELECT r.kind, r.name, c.id, c.position, coalesce(c.place > q.capacity, false)
    FROM siding.queues q
    JOIN siding.resource_queues rq ON rq.queue_id = q.queue_id
    JOIN siding.resources r ON r.resource_id = rq.resource_id
    CROSS JOIN LATERAL (
        SELECT x.id, x.position, row_number() OVER (ORDER BY x.position, x.id) AS place
        FROM siding.candidates(r.resource_id, coalesce(q.capacity, 0) + p_limit) x
        WHERE x.queue_id = q.queue_id
        ORDER BY x.position, x.id LIMIT coalesce(q.capacity, 0) + p_limit) c
    WHERE q.queue_id = p_queue AND r.removed_at IS NULL
    ORDER BY c.position, c.id, r.kind, r.name
$$;
COMMENT ON FUNCTION siding.in_queue(int, int) IS 'Candidates of a queue at the resources that list it, within and beyond its capacity.';
