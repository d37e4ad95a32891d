-- What time opens and ends. Each function does a bounded part in one short transaction and returns the lines to wake.

-- Due orders and retries whose time has come.
CREATE OR REPLACE FUNCTION siding.open_due(p_limit int, OUT opened int, OUT lines int[]) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    SELECT array_agg(id) INTO v_ids FROM (
        SELECT id FROM siding.orders
        WHERE state = 'waiting' AND due_closed AND due_at <= siding.clock()
        ORDER BY due_at LIMIT p_limit FOR UPDATE SKIP LOCKED) due;
    WITH changed AS (
        UPDATE siding.orders o
        SET due_closed = false, late = true, ready_at = CASE WHEN o.started_at IS NULL THEN o.due_at ELSE o.ready_at END
        WHERE o.id = ANY (v_ids)
        RETURNING o.line_id
    )
    SELECT count(*), coalesce(array_agg(DISTINCT line_id), '{}') INTO opened, lines FROM changed;
    lines := siding.grant_locks(lines);
END $$;
COMMENT ON FUNCTION siding.open_due(int) IS 'Opens the due gate of orders whose time has come.';

-- Orders that waited too long for an attachment. One that somebody else holds at this moment is left to the next tick.
CREATE OR REPLACE FUNCTION siding.expire_waits(p_limit int, OUT expired int, OUT lines int[]) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_id bigint;
    v_order record;
    v_missing text;
BEGIN
    expired := 0;
    lines := '{}';
    FOR v_id IN
        SELECT id FROM siding.orders
        -- IS TRUE keeps the planner from the index of blocked orders, which would have to be read whole.
        WHERE state = 'waiting' AND attachment_closed AND wait_deadline <= siding.clock() AND (NOT due_closed) IS TRUE
        ORDER BY wait_deadline LIMIT p_limit
    LOOP
        PERFORM siding.take_order(v_id);
        SELECT o.id, i.wait_limit INTO v_order
        FROM siding.orders o JOIN siding.inputs i ON i.order_id = o.id AND i.added_at = o.added_at
        WHERE o.id = v_id AND o.state = 'waiting' AND o.attachment_closed AND o.wait_deadline <= siding.clock() AND NOT o.due_closed;
        CONTINUE WHEN NOT FOUND;
        SELECT string_agg(name, ', ' ORDER BY name) INTO v_missing FROM siding.attachments WHERE order_id = v_id AND state <> 'complete';
        lines := lines || siding.park(v_id, 'attention', 'attachment_wait_limit',
            jsonb_build_object('attachment', v_missing, 'limit', v_order.wait_limit));
        expired := expired + 1;
    END LOOP;
    lines := siding.grant_locks(lines);
EXCEPTION WHEN SQLSTATE 'SD404' OR SQLSTATE 'SD409' THEN
    -- It ended between the look and the lock; the next tick finds the rest.
    expired := 1;
    lines := '{}';
END $$;
COMMENT ON FUNCTION siding.expire_waits(int) IS 'Turns orders whose wait limit has passed to attention.';

-- Pauses that have an end.
CREATE OR REPLACE FUNCTION siding.expire_pauses(OUT ended int, OUT lines int[]) LANGUAGE plpgsql AS $$
DECLARE
    v_pause record;
BEGIN
    ended := 0;
    lines := '{}';
    FOR v_pause IN SELECT kind, subject_id FROM siding.pauses WHERE until <= siding.clock() ORDER BY kind, subject_id FOR UPDATE SKIP LOCKED LOOP
        DELETE FROM siding.pauses WHERE (kind, subject_id) = (v_pause.kind, v_pause.subject_id);
        PERFORM siding.record(NULL, 'unpause', v_pause.kind || '/' || siding.pause_subject(v_pause.kind, v_pause.subject_id));
        lines := lines || siding.lines_of_pause(v_pause.kind, v_pause.subject_id);
        ended := ended + 1;
    END LOOP;
    lines := siding.grant_locks(lines);
END $$;
COMMENT ON FUNCTION siding.expire_pauses() IS 'Ends pauses whose time has come.';

-- The pause gate of orders of paused workflows. Picks leave them out from the moment of the pause; the gate keeps them out
-- of the claim index too, and shows.
CREATE OR REPLACE FUNCTION siding.mark_paused(p_limit int, OUT marked int, OUT lines int[]) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    WITH paused AS (
        SELECT s.step_id, s.line_id FROM siding.pauses p
        JOIN siding.workflow_versions v ON v.workflow_id = p.subject_id JOIN siding.steps s ON s.version_id = v.version_id
        WHERE p.kind = 'workflow'
    )
    SELECT array_agg(id) INTO v_ids FROM (
        SELECT o.id FROM siding.orders o
        WHERE EXISTS (SELECT FROM siding.pauses WHERE kind = 'workflow')
          AND o.candidate AND o.line_id IN (SELECT x.line_id FROM siding.streams x)
          AND o.step_id IN (SELECT step_id FROM paused)
        LIMIT p_limit FOR UPDATE SKIP LOCKED) found;
    UPDATE siding.orders o SET pause_closed = true, late = true WHERE o.id = ANY (v_ids);
    GET DIAGNOSTICS marked = ROW_COUNT;
    lines := '{}';
END $$;
COMMENT ON FUNCTION siding.mark_paused(int) IS 'Closes the pause gate of candidates whose workflow is paused.';

CREATE OR REPLACE FUNCTION siding.unmark_paused(p_limit int, OUT unmarked int, OUT lines int[]) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids bigint[];
BEGIN
    SELECT array_agg(id) INTO v_ids FROM (
        SELECT o.id FROM siding.orders o
        WHERE o.pause_closed AND NOT EXISTS (
            SELECT FROM siding.steps s JOIN siding.workflow_versions v ON v.version_id = s.version_id
            JOIN siding.pauses p ON p.kind = 'workflow' AND p.subject_id = v.workflow_id
            WHERE s.step_id = o.step_id)
        LIMIT p_limit FOR UPDATE SKIP LOCKED) found;
    WITH changed AS (
        UPDATE siding.orders o SET pause_closed = false, late = true,
               ready_at = CASE WHEN o.started_at IS NULL THEN siding.clock() ELSE o.ready_at END
        WHERE o.id = ANY (v_ids) RETURNING o.line_id
    )
    SELECT count(*), coalesce(array_agg(DISTINCT line_id), '{}') INTO unmarked, lines FROM changed;
    lines := siding.grant_locks(lines);
END $$;
COMMENT ON FUNCTION siding.unmark_paused(int) IS 'Opens the pause gate of orders whose workflow is not paused any more.';
