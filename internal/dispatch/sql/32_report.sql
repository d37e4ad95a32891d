-- Reports of many attempts in one transaction. What is usual, success, goes through two set statements; the rest one by
-- one, each in a sub-transaction of its own, so that one bad row is set aside with its reason and the rest goes on.
--
-- A lease is checked by order, session and lease number: a stale report changes nothing, whatever the state or the attempt.
CREATE OR REPLACE FUNCTION siding.report(
    p_sessions bigint[], p_orders bigint[], p_leases bigint[], p_outcomes text[], p_exit_codes int[], p_messages text[], p_outputs jsonb[],
    OUT accepted boolean[], OUT codes text[], OUT lines int[]
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_now    timestamptz := siding.clock();
    v_total  int := cardinality(p_orders);
    v_hashes bigint[];
    v_spaces int[];
    v_keys   text[];
    v_after  bigint[];
    v_done   int[];
    v_some   int[];
    v_touched int[];
BEGIN
    accepted := array_fill(false, ARRAY[v_total]);
    codes := array_fill(NULL::text, ARRAY[v_total]);
    lines := '{}';

    IF EXISTS (SELECT FROM siding.grants) THEN
        PERFORM siding.lock_resources_of(p_orders);
    END IF;
    SELECT array_agg(key_hash) INTO v_hashes FROM siding.orders WHERE id = ANY (p_orders) AND key_hash IS NOT NULL;
    IF v_hashes IS NOT NULL THEN
        PERFORM siding.lock_stripes(v_hashes);
    END IF;

    -- Succeeded at the last step: the order ends.
    WITH reported AS (
        SELECT * FROM unnest(p_sessions, p_orders, p_leases, p_outcomes, p_exit_codes, p_messages, p_outputs)
            WITH ORDINALITY AS r (session_id, order_id, lease_no, outcome, exit_code, message, outputs, n)
    ), ended AS (
        DELETE FROM siding.orders o USING reported r, siding.steps s
        WHERE o.id = r.order_id AND o.lease_no = r.lease_no AND o.session_id = r.session_id AND o.state = 'running'
          AND r.outcome = 'succeeded' AND o.stop IS NULL
          AND s.step_id = o.step_id AND s.next_step_id IS NULL AND s.lock_path IS NULL
        RETURNING o.*, r.n, r.exit_code, r.message, r.outputs
    ), outcome AS (
        INSERT INTO siding.outcomes (order_id, ended_at, added_at, ready_at, started_at, leased_at, position, lease_no, session_id,
                                     key_arrival, step_id, line_id, queue_id, agent_id, key_space_id, state, attempt, released,
                                     has_attachments, exit_code, key, message)
        SELECT id, v_now, added_at, ready_at, started_at, leased_at, position, lease_no, session_id,
               key_arrival, step_id, line_id, queue_id, agent_id, key_space_id, 'finished', attempt, released,
               has_attachments, exit_code, key, message
        FROM ended
    ), output AS (
        INSERT INTO siding.step_outputs (order_id, lease_no, ended_at, step_id, outputs)
        SELECT id, lease_no, v_now, step_id, outputs FROM ended WHERE outputs IS NOT NULL
    )
    SELECT array_agg(n::int), array_agg(DISTINCT line_id),
           array_agg(key_hash) FILTER (WHERE key_hash IS NOT NULL), array_agg(key_space_id) FILTER (WHERE key_hash IS NOT NULL),
           array_agg(key) FILTER (WHERE key_hash IS NOT NULL),
           array_agg(CASE WHEN released OR key_contested THEN 0 ELSE key_arrival END) FILTER (WHERE key_hash IS NOT NULL)
    INTO v_done, v_touched, v_hashes, v_spaces, v_keys, v_after
    FROM ended;
    IF v_done IS NOT NULL THEN
        lines := lines || v_touched;
        IF v_hashes IS NOT NULL THEN
            lines := lines || siding.settle_keys(v_hashes, v_spaces, v_keys, v_after);
        END IF;
    END IF;

    -- Succeeded with a step to follow: it goes on there, at its position.
    IF v_total > coalesce(cardinality(v_done), 0) THEN
        WITH reported AS (
            SELECT * FROM unnest(p_sessions, p_orders, p_leases, p_outcomes, p_exit_codes, p_messages, p_outputs)
                WITH ORDINALITY AS r (session_id, order_id, lease_no, outcome, exit_code, message, outputs, n)
        ), moved AS (
            UPDATE siding.orders o
            SET state = 'waiting', step_id = t.step_id, line_id = t.line_id, class_id = t.class_id, attempt = 0, late = true,
                session_id = NULL, agent_id = NULL, lease_no = NULL, leased_at = NULL, acknowledged = false
            FROM reported r, siding.steps s, siding.steps t
            WHERE o.id = r.order_id AND o.lease_no = r.lease_no AND o.session_id = r.session_id AND o.state = 'running'
              AND r.outcome = 'succeeded' AND o.stop IS NULL
              AND s.step_id = o.step_id AND t.step_id = s.next_step_id AND s.lock_path IS NOT DISTINCT FROM t.lock_path
            RETURNING r.n, o.id, o.added_at, o.line_id, o.class_id, o.queue_id, s.step_id AS old_step_id, s.line_id AS old_line_id,
                      r.session_id, r.lease_no, r.exit_code, r.message, r.outputs
        ), run AS (
            -- The attempt's start is in the claim; the row of orders has let go of it.
            INSERT INTO siding.runs (order_id, lease_no, ended_at, started_at, session_id, step_id, agent_id, attempt, outcome, exit_code, message)
            SELECT m.id, m.lease_no, v_now, was.leased_at, m.session_id, m.old_step_id, was.agent_id, was.attempt, 'succeeded', m.exit_code, m.message
            FROM moved m JOIN siding.orders was ON was.id = m.id
        ), output AS (
            INSERT INTO siding.step_outputs (order_id, lease_no, ended_at, step_id, outputs)
            SELECT id, lease_no, v_now, old_step_id, outputs FROM moved WHERE outputs IS NOT NULL
        ), stream AS (
            INSERT INTO siding.streams (line_id, class_id, queue_id)
            SELECT DISTINCT line_id, class_id, queue_id FROM moved m
            WHERE NOT EXISTS (SELECT FROM siding.streams x WHERE (x.line_id, x.class_id, x.queue_id) = (m.line_id, m.class_id, m.queue_id))
            ON CONFLICT DO NOTHING
        )
        SELECT array_agg(n::int), array_agg(DISTINCT line_id) || array_agg(DISTINCT old_line_id) INTO v_some, v_touched FROM moved;
        v_done := v_done || v_some;
        lines := lines || coalesce(v_touched, '{}');
    END IF;

    IF coalesce(cardinality(v_done), 0) = v_total THEN
        accepted := array_fill(true, ARRAY[v_total]);
        lines := siding.grant_locks(lines);
        RETURN;
    END IF;
    FOR i IN 1 .. v_total LOOP
        IF i = ANY (v_done) THEN
            accepted[i] := true;
            CONTINUE;
        END IF;
        BEGIN
            v_touched := siding.end_attempt(p_orders[i], p_leases[i], p_sessions[i], p_outcomes[i], p_exit_codes[i], p_messages[i], p_outputs[i]);
            accepted[i] := v_touched IS NOT NULL;
            lines := lines || coalesce(v_touched, '{}');
            IF v_touched IS NULL THEN
                codes[i] := 'stale_lease';
            END IF;
        EXCEPTION
            WHEN serialization_failure OR deadlock_detected OR query_canceled OR admin_shutdown OR lock_not_available THEN
                RAISE;
            WHEN OTHERS THEN
                codes[i] := 'invalid_report: ' || SQLERRM;
        END;
    END LOOP;
    lines := siding.grant_locks(lines);
END $$;
COMMENT ON FUNCTION siding.report(bigint[], bigint[], bigint[], text[], int[], text[], jsonb[]) IS
'Takes the ends of attempts; tells of each whether it was accepted, or why not, and the lines where something changed.';
