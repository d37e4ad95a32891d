-- Transitions of one order that the paths for many at once (claim, report) leave out. Each expects the caller to hold the
-- stripe of the order's key and the order's row, and returns the lines where something may have changed. They are the only
-- places besides claim, report and intake that write the state of an order.

-- The order ends.
CREATE OR REPLACE FUNCTION siding.end_order(
    p_id bigint, p_state siding.order_state, p_exit_code int DEFAULT NULL, p_message text DEFAULT NULL
) RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_order siding.orders;
    v_lines int[];
BEGIN
    DELETE FROM siding.orders WHERE id = p_id RETURNING * INTO v_order;
    INSERT INTO siding.outcomes (order_id, ended_at, added_at, ready_at, started_at, leased_at, position, lease_no, session_id,
                                 key_arrival, step_id, line_id, queue_id, agent_id, key_space_id, state, attempt, released,
                                 has_attachments, exit_code, key, message)
    VALUES (v_order.id, siding.clock(), v_order.added_at, v_order.ready_at, v_order.started_at, v_order.leased_at, v_order.position,
            v_order.lease_no, v_order.session_id, v_order.key_arrival, v_order.step_id, v_order.line_id, v_order.queue_id,
            v_order.agent_id, v_order.key_space_id, p_state, v_order.attempt, v_order.released, v_order.has_attachments,
            p_exit_code, v_order.key, p_message);
    DELETE FROM siding.attentions WHERE order_id = p_id;
    v_lines := ARRAY[v_order.line_id] || siding.release_locks(p_id, '{}');
    IF v_order.key_arrival IS NOT NULL THEN
        v_lines := v_lines || siding.settle_keys(ARRAY[v_order.key_hash], ARRAY[v_order.key_space_id], ARRAY[v_order.key]);
    END IF;
    RETURN v_lines;
END $$;
COMMENT ON FUNCTION siding.end_order(bigint, siding.order_state, int, text) IS 'Ends an order: outcome row, locks back, successor of its key.';

-- The order stops being in line: suspended, attention or dead. attention and dead give locks back and return to the start
-- of the outermost lock block, unless that says resume_at: step.
CREATE OR REPLACE FUNCTION siding.park(
    p_id bigint, p_state siding.order_state, p_reason text, p_detail jsonb DEFAULT '{}', p_person text DEFAULT NULL
) RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_order siding.orders;
    v_lines int[];
BEGIN
    SELECT * INTO v_order FROM siding.orders WHERE id = p_id;
    v_lines := ARRAY[v_order.line_id];
    UPDATE siding.orders o
    SET state = p_state, stop = NULL, session_id = NULL, agent_id = NULL, lease_no = NULL, leased_at = NULL, acknowledged = false
    WHERE id = p_id;
    IF p_state <> 'suspended' THEN
        v_lines := v_lines || siding.release_locks(p_id, '{}');
        p_detail := p_detail || jsonb_build_object('step_id', v_order.step_id);
        UPDATE siding.orders o SET step_id = b.first_step_id
        FROM siding.steps s JOIN siding.lock_blocks b ON b.version_id = s.version_id
        WHERE o.id = p_id AND s.step_id = o.step_id AND s.lock_path IS NOT NULL
          AND b.parent_path IS NULL AND (s.lock_path = b.block_path OR s.lock_path LIKE b.block_path || '.%')
          AND b.resume_at = 'block';
    END IF;
    INSERT INTO siding.attentions (order_id, reason, detail, since)
    VALUES (p_id, p_reason, p_detail, siding.clock())
    ON CONFLICT (order_id) DO UPDATE SET reason = excluded.reason, detail = excluded.detail, since = excluded.since;
    PERFORM siding.record(p_id, p_state::text, p_reason, p_person, NULL, p_detail);
    IF v_order.key_arrival IS NOT NULL AND v_order.started_at IS NOT NULL THEN
        v_lines := v_lines || siding.settle_keys(ARRAY[v_order.key_hash], ARRAY[v_order.key_space_id], ARRAY[v_order.key]);
    END IF;
    RETURN v_lines;
END $$;
COMMENT ON FUNCTION siding.park(bigint, siding.order_state, text, jsonb, text) IS 'Takes an order out of its line: suspended, attention or dead, with the reason.';

-- The order goes (back) into line at its position, at the step where it stands: at the first lock of it that it doesn't
-- hold, or at the step's agent. Gates are computed from the facts. p_settle: bring the gates of its key up to date, for which
-- the caller holds the key's stripe; a grant changes nothing about the key, and doesn't.
CREATE OR REPLACE FUNCTION siding.stand_in_line(p_id bigint, p_settle boolean DEFAULT true) RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_order siding.orders;
    v_lines int[];
BEGIN
    UPDATE siding.orders o
    SET state = 'waiting', stop = NULL, session_id = NULL, agent_id = NULL, lease_no = NULL, leased_at = NULL, acknowledged = false,
        late = true,
        line_id = coalesce(n.lock_id, s.line_id),
        class_id = CASE WHEN n.lock_id IS NOT NULL THEN coalesce(n.weight, 0) ELSE s.class_id END,
        lock_closed = n.lock_id IS NOT NULL,
        attachment_closed = o.has_attachments AND EXISTS (
            SELECT FROM siding.attachments a WHERE a.order_id = o.id AND a.state <> 'complete'),
        due_closed = coalesce(o.due_at > siding.clock(), false),
        pause_closed = EXISTS (SELECT FROM siding.pauses p JOIN siding.workflow_versions v ON v.workflow_id = p.subject_id
                               WHERE p.kind = 'workflow' AND v.version_id = s.version_id),
        ready_at = CASE WHEN o.started_at IS NULL THEN siding.clock() ELSE o.ready_at END
    FROM siding.steps s LEFT JOIN LATERAL siding.next_lock(p_id, s.step_id) n ON true
    WHERE o.id = p_id AND s.step_id = o.step_id
    RETURNING o.* INTO v_order;
    INSERT INTO siding.streams (line_id, class_id, queue_id)
    SELECT v_order.line_id, v_order.class_id, v_order.queue_id
    WHERE NOT EXISTS (SELECT FROM siding.streams x
                      WHERE (x.line_id, x.class_id, x.queue_id) = (v_order.line_id, v_order.class_id, v_order.queue_id))
    ON CONFLICT DO NOTHING;
    v_lines := ARRAY[v_order.line_id];
    IF p_settle AND v_order.key_arrival IS NOT NULL THEN
        v_lines := v_lines || siding.settle_keys(ARRAY[v_order.key_hash], ARRAY[v_order.key_space_id], ARRAY[v_order.key]);
    END IF;
    RETURN v_lines;
END $$;
COMMENT ON FUNCTION siding.stand_in_line(bigint, boolean) IS 'Puts an order into the line of the resource that it needs next.';

-- The step is done (or skipped): locks of blocks that end here go back, the order goes on or ends.
CREATE OR REPLACE FUNCTION siding.advance(p_id bigint, p_from_step int, p_exit_code int DEFAULT NULL, p_message text DEFAULT NULL)
RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_next siding.steps;
    v_lines int[];
BEGIN
    SELECT t.* INTO v_next FROM siding.steps s JOIN siding.steps t ON t.step_id = s.next_step_id WHERE s.step_id = p_from_step;
    IF NOT FOUND THEN
        UPDATE siding.orders SET step_id = p_from_step WHERE id = p_id AND step_id <> p_from_step;
        RETURN siding.end_order(p_id, 'finished', p_exit_code, p_message);
    END IF;
    v_lines := siding.release_locks(p_id, siding.lock_chain(v_next.lock_path));
    UPDATE siding.orders SET step_id = v_next.step_id, attempt = 0, due_at = NULL WHERE id = p_id;
    RETURN v_lines || siding.stand_in_line(p_id);
END $$;
COMMENT ON FUNCTION siding.advance(bigint, int, int, text) IS 'Lets an order go on behind a step, or finish.';

-- The end of one attempt. Null if the lease is not the running one (a repeated report of one's own that was accepted
-- before returns an empty list: it says the same as the first time; what says something else comes after the controller
-- ended the attempt, as a lease that was never acknowledged or one of a closed session). Outcomes: those of the agent, and lost.
CREATE OR REPLACE FUNCTION siding.end_attempt(
    p_order bigint, p_lease bigint, p_session bigint, p_outcome text, p_exit_code int, p_message text, p_outputs jsonb
) RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_order   siding.orders;
    v_step    siding.steps;
    v_agent   int;
    v_counts  boolean;
    v_lines   int[];
BEGIN
    SELECT * INTO v_order FROM siding.orders
    WHERE id = p_order AND lease_no = p_lease AND session_id = p_session AND state = 'running' FOR UPDATE;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM siding.outcomes WHERE order_id = p_order AND lease_no = p_lease AND session_id = p_session)
           OR EXISTS (SELECT FROM siding.runs WHERE order_id = p_order AND lease_no = p_lease AND session_id = p_session
                      AND outcome = p_outcome AND outcome <> 'lost') THEN
            RETURN '{}';
        END IF;
        RETURN NULL;
    END IF;
    IF p_outcome NOT IN ('succeeded', 'failed', 'timed_out', 'rejected', 'stopped', 'handed_back', 'lost') OR p_outcome IS NULL THEN
        RAISE EXCEPTION 'unknown outcome %', coalesce(p_outcome, '(none)');
    END IF;
    SELECT * INTO v_step FROM siding.steps WHERE step_id = v_order.step_id;
    v_agent := v_order.agent_id;
    -- What was stopped on purpose or never started is no attempt.
    v_counts := p_outcome NOT IN ('stopped', 'handed_back');

    IF NOT v_counts THEN
        UPDATE siding.orders SET attempt = attempt - 1 WHERE id = p_order;
        v_order.attempt := v_order.attempt - 1;
    END IF;
    IF p_outputs IS NOT NULL THEN
        INSERT INTO siding.step_outputs (order_id, lease_no, ended_at, step_id, outputs)
        VALUES (p_order, p_lease, siding.clock(), v_order.step_id, p_outputs);
    END IF;

    IF v_order.stop = 'cancel' THEN
        RETURN v_agent || siding.end_order(p_order, 'cancelled', p_exit_code, p_message);
    END IF;
    IF p_outcome = 'succeeded' AND v_step.next_step_id IS NULL THEN
        RETURN v_agent || siding.advance(p_order, v_order.step_id, p_exit_code, p_message);
    END IF;

    INSERT INTO siding.runs (order_id, lease_no, ended_at, started_at, session_id, step_id, agent_id, attempt, outcome, exit_code, message)
    VALUES (p_order, p_lease, siding.clock(), v_order.leased_at, p_session, v_order.step_id, v_agent,
            v_order.attempt + (NOT v_counts)::int, p_outcome, p_exit_code, p_message);

    IF p_outcome = 'succeeded' THEN
        v_lines := siding.advance(p_order, v_order.step_id);
    ELSIF p_outcome = 'stopped' AND v_order.stop IS NULL AND v_step.on_lost = 'attention' THEN
        -- Its agent was shut down in the middle of a job that must not simply run again.
        RETURN v_agent || siding.park(p_order, 'attention', 'stopped',
            jsonb_build_object('session', p_session, 'step', v_step.step_path, 'job', v_step.job, 'message', p_message));
    ELSIF NOT v_counts THEN
        v_lines := siding.stand_in_line(p_order);
    ELSIF p_outcome = 'lost' AND v_step.on_lost = 'attention' THEN
        RETURN v_agent || siding.park(p_order, 'attention', 'lost',
            jsonb_build_object('attempt', v_order.attempt, 'session', p_session, 'step', v_step.step_path, 'job', v_step.job));
    ELSIF v_order.attempt >= v_step.max_attempts THEN
        RETURN v_agent || siding.park(p_order, 'dead', 'attempts_used_up',
            jsonb_build_object('attempts', v_order.attempt, 'last', p_outcome, 'exit_code', p_exit_code, 'message', p_message,
                               'step', v_step.step_path, 'job', v_step.job));
    ELSE
        UPDATE siding.orders
        SET due_at = siding.clock()
                   + least(v_step.backoff_max,
                           v_step.backoff_first * (v_order.attempt::double precision * v_order.attempt) * (1 + siding.jitter()))
        WHERE id = p_order;
        v_lines := siding.stand_in_line(p_order);
        PERFORM siding.record(p_order, 'retry', v_step.job, NULL, NULL,
            jsonb_build_object('attempt', v_order.attempt, 'outcome', p_outcome, 'exit_code', p_exit_code, 'message', p_message));
    END IF;

    IF v_order.stop IN ('suspend', 'kill') THEN
        v_lines := v_lines || siding.park(p_order, 'suspended', 'suspended');
    END IF;
    RETURN v_agent || v_lines;
END $$;
COMMENT ON FUNCTION siding.end_attempt(bigint, bigint, bigint, text, int, text, jsonb) IS 'Ends one attempt, whatever its outcome; null for a stale lease.';
