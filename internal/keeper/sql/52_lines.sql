-- Line modes (docs/concepts.md, When passing must stop) and the floors of the claim index.

-- Whether a fact that some waiting order of the line needs can't be read.
CREATE OR REPLACE FUNCTION siding.line_has_unreadable(p_line int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM siding.attachments a JOIN siding.orders o ON o.id = a.order_id
        WHERE a.state = 'unknown' AND o.line_id = p_line AND o.state = 'waiting')
    OR EXISTS (SELECT FROM siding.stores WHERE unreadable) AND EXISTS (
        SELECT FROM siding.orders o JOIN siding.attachments a ON a.order_id = o.id JOIN siding.stores s ON s.store = a.store
        WHERE o.line_id = p_line AND o.state = 'waiting' AND o.attachment_closed
          AND a.state IN ('pending', 'uploading', 'discarded') AND s.unreadable)
$$;
COMMENT ON FUNCTION siding.line_has_unreadable(int) IS 'Whether a readiness fact of a waiting order of the line cannot be read.';

-- Brings the modes of lines (null: all) up to the facts. Returns the lines whose mode changed.
CREATE OR REPLACE FUNCTION siding.update_line_modes(p_lines int[] DEFAULT NULL) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_line    record;
    v_unread  boolean;
    v_blocked int;
    v_many    boolean;
    v_mode    text;
    v_reason  text;
    v_changed int[] := '{}';
BEGIN
    FOR v_line IN
        SELECT l.*, r.name, r.max_blocked FROM siding.lines l JOIN siding.resources r ON r.resource_id = l.line_id
        WHERE r.kind = 'agent' AND r.removed_at IS NULL AND (p_lines IS NULL OR l.line_id = ANY (p_lines))
        ORDER BY r.name
    LOOP
        v_unread := siding.line_has_unreadable(v_line.line_id);
        v_many := false;
        IF v_line.max_blocked IS NOT NULL THEN
            SELECT count(*) INTO v_blocked
            FROM (SELECT FROM siding.orders o WHERE o.line_id = v_line.line_id AND o.state = 'waiting' AND o.attachment_closed AND NOT o.due_closed
                  LIMIT v_line.max_blocked + 1) b;
            v_many := CASE WHEN v_line.too_many THEN v_blocked * 10 > v_line.max_blocked * 8 ELSE v_blocked > v_line.max_blocked END;
        END IF;
        v_mode := coalesce(v_line.person_mode, CASE WHEN v_unread OR v_many THEN 'strict' ELSE 'pass' END);
        v_reason := CASE
            WHEN v_line.person_mode IS NOT NULL THEN 'set_by_person'
            WHEN v_unread THEN 'fact_unreadable'
            WHEN v_many THEN 'too_many_blocked' END;
        IF (v_mode, v_reason, v_many) IS DISTINCT FROM (v_line.mode, v_line.reason, v_line.too_many) THEN
            UPDATE siding.lines l
            SET mode = v_mode, reason = v_reason, too_many = v_many,
                since = CASE WHEN (v_mode, v_reason) IS DISTINCT FROM (l.mode, l.reason) THEN siding.clock() ELSE l.since END
            WHERE l.line_id = v_line.line_id;
            IF (v_mode, v_reason) IS DISTINCT FROM (v_line.mode, v_line.reason) THEN
                PERFORM siding.record(NULL, 'line_mode', v_line.name, NULL, NULL,
                    jsonb_build_object('mode', v_mode, 'reason', v_reason, 'was', v_line.mode));
                v_changed := v_changed || v_line.line_id;
            END IF;
        END IF;
    END LOOP;
    RETURN v_changed;
END $$;
COMMENT ON FUNCTION siding.update_line_modes(int[]) IS 'Turns lines strict or back, as the facts say.';

CREATE OR REPLACE FUNCTION siding.set_line_mode(p_agent text, p_mode text, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_line int;
BEGIN
    PERFORM siding.require_reason(p_person, p_reason);
    IF p_mode NOT IN ('pass', 'strict', 'auto') OR p_mode IS NULL THEN
        PERFORM siding.refuse(422, 'invalid_mode', format('%s is no mode of a line', coalesce(p_mode, '(nothing)')), 'One of: pass, strict, auto.');
    END IF;
    SELECT resource_id INTO v_line FROM siding.resources WHERE kind = 'agent' AND name = p_agent AND removed_at IS NULL;
    IF NOT FOUND THEN
        PERFORM siding.refuse(404, 'unknown_agent', format('there is no agent %s', p_agent), '`controller list agent` shows what is there.');
    END IF;
    UPDATE siding.lines
    SET person_mode = nullif(p_mode, 'auto'), person = CASE WHEN p_mode <> 'auto' THEN p_person END,
        person_reason = CASE WHEN p_mode <> 'auto' THEN p_reason END
    WHERE line_id = v_line;
    PERFORM siding.record(NULL, 'set_line_mode', p_agent, p_person, p_reason, jsonb_build_object('mode', p_mode));
    PERFORM siding.update_line_modes(ARRAY[v_line]);
    RETURN ARRAY[v_line];
END $$;
COMMENT ON FUNCTION siding.set_line_mode(text, text, text, text) IS 'A person sets the mode of a line, or lets the facts decide again (auto).';

-- A read of a store's facts succeeded or failed: 3 failures in a row over 30 s make it unreadable, one success readable.
CREATE OR REPLACE FUNCTION siding.note_store_read(p_store text, p_problem text) RETURNS void LANGUAGE sql AS $$
    UPDATE siding.stores s
    SET failed_reads = CASE WHEN p_problem IS NULL THEN 0 ELSE s.failed_reads + 1 END,
        first_failure_at = CASE WHEN p_problem IS NOT NULL THEN coalesce(s.first_failure_at, siding.clock()) END,
        problem = p_problem,
        unreadable = p_problem IS NOT NULL AND (s.unreadable
            OR s.failed_reads + 1 >= 3 AND coalesce(s.first_failure_at, siding.clock()) + interval '30 seconds' <= siding.clock())
    WHERE s.store = p_store AND (p_problem IS NOT NULL OR s.failed_reads > 0 OR s.unreadable)
$$;
COMMENT ON FUNCTION siding.note_store_read(text, text) IS 'Notes that a store''s facts could be read, or why not.';

-- Lets the scan for candidates start behind dead index entries: raises the floor of each line to the lowest position that
-- an order which was ready from the start can still have.
--
-- Such an order has the position it was added with, and its transaction had an id before it drew the number. So once all
-- transactions that were under way when number N was the last have ended, and the intake has none left below, no further
-- order at or below N can come up; whatever becomes ready in another way is marked late and stands in the other index.
CREATE OR REPLACE FUNCTION siding.raise_floors() RETURNS int LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_tick    siding.keeper_ticks;
    v_safe    bigint;
    v_number  bigint;
    v_raised  int := 0;
BEGIN
    -- The number before this transaction has an id of its own: that id is then above the ids of all that drew a number up to
    -- this one. (That of a snapshot's xmax isn't: it only says which transaction was the newest to end.)
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RETURN 0;
    END IF;
    SELECT last_value - (NOT is_called)::int INTO v_number FROM siding.order_numbers;
    SELECT * INTO v_tick FROM siding.keeper_ticks FOR UPDATE;
    IF v_tick.floor_xmax IS NOT NULL THEN
        IF pg_snapshot_xmin(pg_current_snapshot()) < v_tick.floor_xmax THEN
            RETURN 0;
        END IF;
        SELECT least(v_tick.floor_number + 1, min(id)) << 20 INTO v_safe FROM siding.orders WHERE intake_closed;
        UPDATE siding.lines l SET floor = f.floor
        FROM (
            SELECT s.line_id, least(v_safe, min(c.position)) AS floor
            FROM siding.streams s JOIN siding.lines l ON l.line_id = s.line_id
            LEFT JOIN LATERAL (
                SELECT o.position FROM siding.orders o
                WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id
                  AND o.candidate AND NOT o.late AND o.position >= l.floor
                ORDER BY o.position, o.id LIMIT 1) c ON true
            GROUP BY s.line_id) f
        WHERE l.line_id = f.line_id AND l.floor < f.floor;
        GET DIAGNOSTICS v_raised = ROW_COUNT;
    END IF;
    UPDATE siding.keeper_ticks SET floor_number = v_number, floor_xmax = pg_current_xact_id();
    RETURN v_raised;
END $$;
COMMENT ON FUNCTION siding.raise_floors() IS 'Raises the floors of lines; returns how many. Must be the first of its transaction that writes; does nothing otherwise.';
