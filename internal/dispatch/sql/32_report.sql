-- Reports of many attempts in one transaction. What is usual, success, goes through two set statements; the rest one by
-- one, each in a sub-transaction of its own, so that one bad row is set aside with its reason and the rest goes on.
--
-- p_orders is sorted, so that rows are locked in the order of their ids and width_bucket finds a row's report.
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
    v_arrivals bigint[];
    v_other_hashes bigint[];
    v_other_spaces int[];
    v_other_keys text[];
    v_done   int[];
    v_some   int[];
    v_moving bigint[];
    v_touched int[];
    v_exit_codes int[];
    v_messages text[];
    v_outputs jsonb[];
BEGIN
    accepted := array_fill(false, ARRAY[v_total]);
    codes := array_fill(NULL::text, ARRAY[v_total]);
    lines := '{}';

    IF EXISTS (SELECT FROM siding.lock_needs) THEN
        PERFORM siding.lock_resources_of(p_orders);
    END IF;
    SELECT array_agg(key_hash) INTO v_hashes FROM siding.orders WHERE id = ANY (p_orders) AND (key_hash IS NOT NULL) IS TRUE;
    IF v_hashes IS NOT NULL THEN
        PERFORM siding.lock_stripes(v_hashes);
    END IF;

    -- Arrays with nothing in them are left out: finding an element of one with nulls walks it.
    v_exit_codes := CASE WHEN cardinality(array_remove(p_exit_codes, NULL)) > 0 THEN p_exit_codes END;
    v_messages := CASE WHEN cardinality(array_remove(p_messages, NULL)) > 0 THEN p_messages END;
    v_outputs := CASE WHEN cardinality(array_remove(p_outputs, NULL)) > 0 THEN p_outputs END;

    -- Succeeded at the last step: the order ends.
    WITH ended AS (
        DELETE FROM siding.orders o
        WHERE o.id = ANY (p_orders)
          AND (o.state = 'running' AND o.stop IS NULL
               AND o.lease_no = p_leases[width_bucket(o.id, p_orders)]
               AND o.session_id = p_sessions[width_bucket(o.id, p_orders)]
               AND p_outcomes[width_bucket(o.id, p_orders)] = 'succeeded'
               AND (SELECT s.next_step_id IS NULL AND s.lock_path IS NULL FROM siding.steps s WHERE s.step_id = o.step_id)) IS TRUE
        RETURNING o.*, width_bucket(o.id, p_orders) AS n
    ), outcome AS (
        INSERT INTO siding.outcomes (order_id, ended_at, added_at, ready_at, started_at, leased_at, position, lease_no, session_id,
                                     key_arrival, step_id, line_id, queue_id, agent_id, key_space_id, state, attempt, released,
                                     has_attachments, exit_code, key, message)
        SELECT id, v_now, added_at, ready_at, started_at, leased_at, position, lease_no, session_id,
               key_arrival, step_id, line_id, queue_id, agent_id, key_space_id, 'finished', attempt, released,
               has_attachments, v_exit_codes[n], key, v_messages[n]
        FROM ended
    ), output AS (
        INSERT INTO siding.step_outputs (order_id, lease_no, ended_at, step_id, outputs)
        SELECT id, lease_no, v_now, step_id, v_outputs[n] FROM ended WHERE v_outputs[n] IS NOT NULL
    )
    SELECT array_agg(n), array_agg(DISTINCT line_id),
           array_agg(key_hash) FILTER (WHERE alone), array_agg(key_space_id) FILTER (WHERE alone), array_agg(key) FILTER (WHERE alone),
           array_agg(key_arrival) FILTER (WHERE alone),
           array_agg(key_hash) FILTER (WHERE NOT alone), array_agg(key_space_id) FILTER (WHERE NOT alone), array_agg(key) FILTER (WHERE NOT alone)
    INTO v_done, v_touched, v_hashes, v_spaces, v_keys, v_arrivals, v_other_hashes, v_other_spaces, v_other_keys
    -- Alone: no other order of its key might start. Null without a key.
    FROM (SELECT e.*, CASE WHEN key_hash IS NOT NULL THEN NOT (released OR key_contested) END AS alone FROM ended e) e;
    IF v_done IS NOT NULL THEN
        lines := lines || v_touched;
        IF v_hashes IS NOT NULL THEN
            lines := lines || siding.promote_successors(v_hashes, v_spaces, v_keys, v_arrivals);
        END IF;
        IF v_other_hashes IS NOT NULL THEN
            lines := lines || siding.settle_keys(v_other_hashes, v_other_spaces, v_other_keys);
        END IF;
    END IF;

    -- Succeeded with a step to follow: it goes on there, at its position. The runs are written first, from the rows as they
    -- are; then the rows are moved.
    IF v_total > coalesce(cardinality(v_done), 0) THEN
        WITH moving AS (
            SELECT o.id, o.lease_no, o.leased_at, o.session_id, o.step_id, o.line_id, o.agent_id, o.attempt,
                   width_bucket(o.id, p_orders) AS n
            FROM siding.orders o
            WHERE o.id = ANY (p_orders)
              AND (o.state = 'running' AND o.stop IS NULL
                   AND o.lease_no = p_leases[width_bucket(o.id, p_orders)]
                   AND o.session_id = p_sessions[width_bucket(o.id, p_orders)]
                   AND p_outcomes[width_bucket(o.id, p_orders)] = 'succeeded'
                   AND (SELECT s.lock_path IS NOT DISTINCT FROM t.lock_path
                        FROM siding.steps s JOIN siding.steps t ON t.step_id = s.next_step_id WHERE s.step_id = o.step_id)) IS TRUE
            ORDER BY o.id FOR UPDATE
        ), run AS (
            INSERT INTO siding.runs (order_id, lease_no, ended_at, started_at, session_id, step_id, agent_id, attempt, outcome, exit_code, message)
            SELECT id, lease_no, v_now, leased_at, session_id, step_id, agent_id, attempt, 'succeeded', v_exit_codes[n], v_messages[n]
            FROM moving
        ), output AS (
            INSERT INTO siding.step_outputs (order_id, lease_no, ended_at, step_id, outputs)
            SELECT id, lease_no, v_now, step_id, v_outputs[n] FROM moving WHERE v_outputs[n] IS NOT NULL
        )
        SELECT array_agg(n ORDER BY id), array_agg(id ORDER BY id), array_agg(DISTINCT line_id)
        INTO v_some, v_moving, v_touched FROM moving;
    END IF;
    IF v_moving IS NOT NULL THEN
        v_done := v_done || v_some;
        lines := lines || v_touched;
        WITH moved AS (
            UPDATE siding.orders o
            SET (state, step_id, line_id, class_id) = (
                    SELECT 'waiting'::siding.order_state, t.step_id, t.line_id, t.class_id
                    FROM siding.steps s JOIN siding.steps t ON t.step_id = s.next_step_id WHERE s.step_id = o.step_id),
                attempt = 0, late = true, due_at = NULL,
                session_id = NULL, agent_id = NULL, lease_no = NULL, leased_at = NULL, acknowledged = false
            WHERE o.id = ANY (v_moving)
            RETURNING o.line_id, o.class_id, o.queue_id
        ), stream AS (
            INSERT INTO siding.streams (line_id, class_id, queue_id)
            SELECT DISTINCT line_id, class_id, queue_id FROM moved m
            WHERE NOT EXISTS (SELECT FROM siding.streams x WHERE (x.line_id, x.class_id, x.queue_id) = (m.line_id, m.class_id, m.queue_id))
            ON CONFLICT DO NOTHING
        )
        SELECT array_agg(DISTINCT line_id) INTO v_touched FROM moved;
        lines := lines || v_touched;
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
