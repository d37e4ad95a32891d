-- Claims for waiting sessions of one agent, in one transaction. Row locks in the documented order: sessions, resources by
-- name (the agent, its clusters, their directors), job limits, then (only for contested keys, and without waiting) key stripes, orders.
--
-- What was added with the orders never changes and is read by the caller afterwards, when the resource's row is free again
-- (dispatch/sql/33_inputs.sql).
--
-- p_lease_floor: no running lease of this agent is below it (lease numbers grow, and are drawn under the agent's row lock,
-- so that what was the lowest running one stays a bound for ever); the count of what runs starts there, behind dead
-- index entries.
CREATE OR REPLACE FUNCTION siding.claim(
    p_agent int, p_sessions bigint[], p_requests uuid[], p_slots int[], p_lease_floor bigint DEFAULT 0
) RETURNS TABLE (
    request_no int, order_id bigint, lease_no bigint, step_id int, queue_id int, attempt int, key text,
    has_attachments boolean, added_at timestamptz, waited_seconds float8
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_now      timestamptz;
    v_live     bigint[];
    v_old      int[];       -- requests that were answered before
    v_owners   int[];       -- per free slot, the request it belongs to
    v_n        int;
    v_running  int;
    v_limit    int;
    v_lines    int[];
    v_pick     record;
    v_ids      bigint[];
    v_leases   bigint[];
    v_skip     bigint[] := '{}';
    v_contested bigint[];
BEGIN
    SELECT array_agg(s.session_id) INTO v_live
    FROM (SELECT session_id FROM siding.sessions
          WHERE session_id = ANY (p_sessions) AND agent_id = p_agent AND ended_at IS NULL
          ORDER BY session_id FOR KEY SHARE) s;
    IF v_live IS NULL THEN
        RETURN;
    END IF;

    -- The rows of all limits that hold for this agent, before the statements that read what is in use.
    v_lines := siding.lock_limits(p_agent);
    SELECT r.processes INTO v_limit FROM siding.resources r WHERE r.resource_id = p_agent AND r.removed_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT array_agg(r.n) INTO v_old
    FROM (SELECT n::int AS n FROM unnest(p_sessions, p_requests) WITH ORDINALITY AS x (session_id, request_id, n)
          WHERE EXISTS (SELECT FROM siding.claims c WHERE c.session_id = x.session_id AND c.request_id = x.request_id)) r;
    IF v_old IS NOT NULL THEN
        RETURN QUERY
        SELECT n::int, o.id, o.lease_no, o.step_id, o.queue_id, o.attempt::int, o.key, o.has_attachments, o.added_at, NULL::float8
        FROM unnest(p_sessions, p_requests) WITH ORDINALITY AS x (session_id, request_id, n)
        JOIN siding.claims c ON c.session_id = x.session_id AND c.request_id = x.request_id
        CROSS JOIN LATERAL unnest(c.order_ids, c.lease_nos) AS l (id, lease_no)
        CROSS JOIN LATERAL (SELECT o.* FROM siding.orders o
                            WHERE o.id = l.id AND (o.lease_no = l.lease_no AND o.state = 'running') IS TRUE OFFSET 0) o
        ORDER BY o.lease_no;
    END IF;

    -- Free processes are given out one each in turn.
    SELECT array_agg(n::int ORDER BY turn, n) INTO v_owners
    FROM unnest(p_sessions, p_slots) WITH ORDINALITY AS x (session_id, slots, n)
    CROSS JOIN LATERAL generate_series(1, x.slots) AS turn
    WHERE x.session_id = ANY (v_live) AND (v_old IS NULL OR n <> ALL (v_old));
    v_n := coalesce(cardinality(v_owners), 0);
    IF v_n > 0 AND v_limit IS NOT NULL THEN
        SELECT count(*) INTO v_running
        FROM (SELECT FROM siding.orders o WHERE o.agent_id = p_agent AND o.state = 'running' AND o.lease_no >= p_lease_floor
              LIMIT v_limit) o;
        v_n := least(v_n, v_limit - v_running);
    END IF;
    IF v_n <= 0 THEN
        RETURN;
    END IF;

    LOOP
        IF cardinality(v_lines) = 1 AND v_lines[1] = p_agent THEN
            SELECT * INTO v_pick FROM siding.pick(p_agent, v_n, v_skip);
        ELSE
            SELECT * INTO v_pick FROM siding.pick_of_lines(p_agent, v_lines, v_n, v_skip);
        END IF;
        v_n := cardinality(v_pick.ids);
        IF v_n = 0 THEN
            RETURN;
        END IF;
        SELECT array_agg(o.id) INTO v_contested FROM siding.orders o WHERE o.id = ANY (v_pick.ids) AND o.key_contested;
        EXIT WHEN v_contested IS NULL;
        v_contested := siding.yield_contested(v_pick.ids);
        EXIT WHEN cardinality(v_contested) = 0;
        v_skip := v_skip || v_contested;
    END LOOP;

    -- The start is after the ends and gates that the pick has seen, also where this statement had waited for its turn. Lease
    -- numbers follow the picks.
    v_now := siding.clock_late();
    SELECT array_agg(nextval('siding.lease_numbers')) INTO v_leases FROM generate_series(1, v_n);
    IF cardinality(v_lines) = 1 AND v_lines[1] = p_agent THEN
        PERFORM siding.book(p_agent, v_pick.ids, v_leases, v_pick.queue_ids, v_pick.waived, v_pick.listed, v_pick.served, v_pick.penalty_left);
    ELSE
        PERFORM siding.book_of_lines(v_pick.ids, v_leases, v_pick.books);
    END IF;

    INSERT INTO siding.claims (session_id, request_id, claimed_at, order_ids, lease_nos)
    SELECT p_sessions[p.request_no], p_requests[p.request_no], v_now,
           array_agg(p.id ORDER BY p.lease_no), array_agg(p.lease_no ORDER BY p.lease_no)
    FROM unnest(v_pick.ids, v_leases, v_owners[1:v_n]) AS p (id, lease_no, request_no)
    GROUP BY p.request_no;

    SELECT array_agg(p.id ORDER BY p.id), array_agg(p.lease_no ORDER BY p.id), array_agg(p.request_no ORDER BY p.id)
    INTO v_ids, v_leases, v_owners
    FROM unnest(v_pick.ids, v_leases, v_owners[1:v_n]) AS p (id, lease_no, request_no);

    RETURN QUERY
    WITH started AS (
        UPDATE siding.orders o
        SET state = 'running', session_id = p_sessions[v_owners[width_bucket(o.id, v_ids)]], agent_id = p_agent,
            lease_no = v_leases[width_bucket(o.id, v_ids)], leased_at = v_now,
            started_at = coalesce(o.started_at, v_now), attempt = o.attempt + 1, acknowledged = false
        WHERE o.id = ANY (v_ids)
        RETURNING o.id, o.lease_no, o.step_id, o.queue_id, o.attempt, o.key, o.has_attachments, o.added_at,
                  CASE WHEN o.started_at = v_now THEN extract(epoch FROM v_now - o.ready_at)::float8 END AS waited_seconds
    )
    SELECT v_owners[width_bucket(s.id, v_ids)], s.id, s.lease_no, s.step_id, s.queue_id, s.attempt::int, s.key, s.has_attachments, s.added_at, s.waited_seconds
    FROM started s
    ORDER BY s.lease_no;
END $$;
COMMENT ON FUNCTION siding.claim(int, bigint[], uuid[], int[], bigint) IS 'Claims orders for sessions of an agent; a repeated request id gets its first answer.';

-- Of picked orders whose key has several that may start, keeps the first of each key and closes the gates of the others.
-- Never waits: an order whose stripe or rivals somebody else holds at this moment is given up for now. Returns those given up.
CREATE OR REPLACE FUNCTION siding.yield_contested(p_ids bigint[]) RETURNS bigint[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_order  record;
    v_yield  bigint[] := '{}';
    v_kept   bigint[] := '{}';
    v_rivals bigint[];
    v_held   bigint[];
    v_close  bigint[] := '{}';
BEGIN
    FOR v_order IN
        SELECT o.id, o.key_hash, o.key_space_id, o.key
        FROM unnest(p_ids) WITH ORDINALITY AS p (id, n) JOIN siding.orders o ON o.id = p.id
        WHERE o.key_contested ORDER BY p.n
    LOOP
        PERFORM 1 FROM siding.key_stripes WHERE stripe = (v_order.key_hash & 65535)::int FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            v_yield := v_yield || v_order.id;
            CONTINUE;
        END IF;
        -- Rivals: the other orders of the key whose gate is open. Only the head and released ones can be.
        SELECT coalesce(array_agg(DISTINCT r.id), '{}') INTO v_rivals
        FROM (
            (SELECT o.id, o.key_closed FROM siding.orders o
             WHERE o.key_hash = v_order.key_hash AND o.key_arrival > 0 AND o.key_space_id = v_order.key_space_id AND o.key = v_order.key
             ORDER BY o.key_arrival LIMIT 1)
            UNION ALL
            (SELECT o.id, o.key_closed FROM siding.orders o
             WHERE o.key_hash = v_order.key_hash AND o.released AND o.key_space_id = v_order.key_space_id AND o.key = v_order.key
             OFFSET 0)) r
        WHERE r.id <> v_order.id AND NOT r.key_closed;
        SELECT coalesce(array_agg(l.id), '{}') INTO v_held
        FROM (SELECT o.id FROM siding.orders o WHERE o.id = ANY (v_rivals) ORDER BY o.id FOR UPDATE SKIP LOCKED) l;
        IF v_rivals && v_kept OR cardinality(v_held) < cardinality(v_rivals)
           OR NOT EXISTS (SELECT FROM siding.orders o WHERE o.id = v_order.id AND NOT o.key_closed)
           OR EXISTS (SELECT FROM siding.orders o WHERE o.id = ANY (v_rivals) AND o.started_at IS NOT NULL AND o.state IN ('waiting', 'running')) THEN
            v_yield := v_yield || v_order.id;
            -- Without this pick those behind it may be others, so nothing is said about them yet.
            EXIT;
        END IF;
        v_kept := v_kept || v_order.id;
        v_close := v_close || v_rivals;
    END LOOP;
    IF cardinality(v_yield) = 0 THEN
        UPDATE siding.orders o SET key_closed = true WHERE o.id = ANY (v_close);
    END IF;
    RETURN v_yield;
END $$;
COMMENT ON FUNCTION siding.yield_contested(bigint[]) IS 'Settles picks of contested keys before they start.';
