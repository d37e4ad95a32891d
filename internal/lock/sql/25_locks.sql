-- Locks (docs/concepts.md, Locks). A grant is a row; use is their sum. At a lock's line class_id holds the
-- weight (0: exclusive), so that orders that could never fit are left out as whole streams and not row by row.

-- The chain of lock blocks around a path, outermost first. Paths nest by dots, and a lock block's children stand below it.
CREATE OR REPLACE FUNCTION siding.lock_chain(p_lock_path text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_lock_path IS NULL THEN '{}'::text[] ELSE (
        SELECT array_agg(array_to_string(parts[1:n], '.') ORDER BY n)
        FROM (SELECT string_to_array(p_lock_path, '.') AS parts) p, generate_series(1, cardinality(parts)) AS n)
    END
$$;
COMMENT ON FUNCTION siding.lock_chain(text) IS 'A path and all paths above it, outermost first.';

-- The first lock that a step's blocks need and the order doesn't hold: blocks outermost first, locks of a block by name.
CREATE OR REPLACE FUNCTION siding.next_lock(p_order bigint, p_step int) RETURNS TABLE (lock_id int, weight int, block_path text, version_id int)
LANGUAGE sql STABLE AS $$
    SELECT n.lock_id, n.weight, n.block_path, n.version_id
    FROM siding.steps s
    JOIN siding.lock_needs n ON n.version_id = s.version_id AND n.block_path = ANY (siding.lock_chain(s.lock_path))
    JOIN siding.resources r ON r.resource_id = n.lock_id
    WHERE s.step_id = p_step AND s.lock_path IS NOT NULL
      AND NOT EXISTS (SELECT FROM siding.grants g WHERE g.lock_id = n.lock_id AND g.order_id = p_order)
    ORDER BY length(n.block_path) - length(replace(n.block_path, '.', '')), r.name LIMIT 1
$$;
COMMENT ON FUNCTION siding.next_lock(bigint, int) IS 'The lock that an order must take next for a step; no row if it holds all.';

-- Gives back what an order holds for blocks other than p_keep. Returns the locks, so that the caller lets siding.grant_locks
-- make the next grants in the same transaction.
CREATE OR REPLACE FUNCTION siding.release_locks(p_order bigint, p_keep text[]) RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_locks int[];
BEGIN
    WITH gone AS (
        DELETE FROM siding.grants WHERE order_id = p_order AND block_path <> ALL (p_keep) RETURNING lock_id
    )
    SELECT coalesce(array_agg(lock_id), '{}') INTO v_locks FROM gone;
    RETURN v_locks;
END $$;
COMMENT ON FUNCTION siding.release_locks(bigint, text[]) IS 'Gives locks back; returns which.';

-- Whether a weight (null: exclusive) fits beside what is granted.
CREATE OR REPLACE FUNCTION siding.fits(p_lock int, p_capacity int, p_weight int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN p_capacity = 0 THEN false
        WHEN p_weight IS NULL THEN count(*) = 0
        ELSE count(*) FILTER (WHERE weight IS NULL) = 0 AND coalesce(sum(weight), 0) + p_weight <= p_capacity
    END
    FROM siding.grants WHERE lock_id = p_lock
$$;
COMMENT ON FUNCTION siding.fits(int, int, int) IS 'Whether a weight fits on a lock now.';

-- One grant of a lock, by the rule; null if nothing can be granted now. The picked order stays the pick until it fits; nobody
-- passes it. The caller holds the lock's row.
CREATE OR REPLACE FUNCTION siding.grant_next(p_lock int, OUT order_id bigint, OUT lines int[]) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_lock  siding.resources;
    v_pick  record;
    v_need  record;
    v_order siding.orders;
BEGIN
    SELECT * INTO v_lock FROM siding.resources WHERE resource_id = p_lock;
    IF v_lock.removed_at IS NOT NULL OR v_lock.capacity = 0
       OR EXISTS (SELECT FROM siding.pauses WHERE kind = 'lock' AND subject_id = p_lock) THEN
        RETURN;
    END IF;
    IF v_lock.pick_order_id IS NOT NULL THEN
        -- The stored pick holds while its order is in this line with every other gate open and could fit.
        SELECT o.* INTO v_order FROM siding.orders o
        WHERE o.id = v_lock.pick_order_id AND o.line_id = p_lock AND o.candidate AND o.lock_closed AND o.class_id <= v_lock.capacity
          AND NOT EXISTS (SELECT FROM siding.pauses p WHERE p.kind = 'queue' AND p.subject_id = o.queue_id)
          AND NOT EXISTS (SELECT FROM siding.pauses p JOIN siding.workflow_versions v ON v.workflow_id = p.subject_id
                          JOIN siding.steps s ON s.version_id = v.version_id
                          WHERE p.kind = 'workflow' AND s.step_id = o.step_id);
        IF FOUND THEN
            -- Somebody changes it at this moment, and will see to the lock's grants.
            PERFORM 1 FROM siding.orders o WHERE o.id = v_order.id FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                RETURN;
            END IF;
        ELSE
            UPDATE siding.resources SET pick_order_id = NULL WHERE resource_id = p_lock;
            v_lock.pick_order_id := NULL;
        END IF;
    END IF;
    IF v_lock.pick_order_id IS NULL THEN
        SELECT * INTO v_pick FROM siding.pick(p_lock, 1);
        IF cardinality(v_pick.ids) = 0 THEN
            RETURN;
        END IF;
        SELECT o.* INTO v_order FROM siding.orders o WHERE o.id = v_pick.ids[1];
    END IF;

    IF NOT siding.fits(p_lock, v_lock.capacity, nullif(v_order.class_id, 0)) THEN
        IF v_lock.pick_order_id IS NULL THEN
            UPDATE siding.resources SET pick_order_id = v_order.id WHERE resource_id = p_lock;
        END IF;
        RETURN;
    END IF;

    SELECT * INTO v_need FROM siding.next_lock(v_order.id, v_order.step_id);
    INSERT INTO siding.grants (order_id, lock_id, version_id, block_path, weight, granted_at)
    VALUES (v_order.id, p_lock, v_need.version_id, v_need.block_path, v_need.weight, siding.clock());
    PERFORM siding.book_grant(p_lock, v_order.id, v_order.queue_id);
    PERFORM siding.record(v_order.id, 'lock_granted', v_lock.name, NULL, NULL,
        jsonb_strip_nulls(jsonb_build_object('weight', v_need.weight, 'queue', (SELECT q.name FROM siding.queues q WHERE q.queue_id = v_order.queue_id))));
    IF v_lock.pick_order_id IS NOT NULL THEN
        UPDATE siding.resources SET pick_order_id = NULL WHERE resource_id = p_lock;
    END IF;
    order_id := v_order.id;
    lines := siding.stand_in_line(v_order.id, false);
END $$;
COMMENT ON FUNCTION siding.grant_next(int) IS 'Makes one grant of a lock by the rule, if one fits now; returns the order and the lines that gained one.';

-- Grants of one lock until nothing more fits.
CREATE OR REPLACE FUNCTION siding.grant_lock(p_lock int) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_grant record;
    v_lines int[] := '{}';
BEGIN
    PERFORM 1 FROM siding.resources WHERE resource_id = p_lock AND kind = 'lock' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN v_lines;
    END IF;
    LOOP
        SELECT * INTO v_grant FROM siding.grant_next(p_lock);
        EXIT WHEN v_grant.order_id IS NULL;
        v_lines := v_lines || v_grant.lines;
    END LOOP;
    RETURN v_lines;
END $$;
COMMENT ON FUNCTION siding.grant_lock(int) IS 'Makes the grants of a lock that fit now, by the rule; returns the lines that gained an order.';

-- Books the grant of an order: by the rule at the moment of the grant, for the queue of the order that was picked.
CREATE OR REPLACE FUNCTION siding.book_grant(p_lock int, p_order bigint, p_queue int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_listed   int[];
    v_capacity int[];
    v_penalty  int[];
    v_rule     record;
BEGIN
    SELECT array_agg(q.queue_id ORDER BY rq.rank), array_agg(q.capacity ORDER BY rq.rank), array_agg(q.penalty ORDER BY rq.rank)
    INTO v_listed, v_capacity, v_penalty
    FROM siding.resource_queues rq JOIN siding.queues q ON q.queue_id = rq.queue_id
    WHERE rq.resource_id = p_lock
    HAVING bool_or(q.capacity IS NOT NULL AND q.penalty > 0);
    IF v_listed IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO v_rule FROM siding.apply_rule(p_lock, 1, v_listed, v_capacity, v_penalty, ARRAY[p_order],
        ARRAY[coalesce(array_position(v_listed, p_queue), cardinality(v_listed) + 1)], ARRAY[p_queue], ARRAY[0]);
    PERFORM siding.book(p_lock, v_rule.ids, NULL, v_rule.queue_ids, v_rule.waived, v_listed, v_rule.served, v_rule.penalty_left);
END $$;
COMMENT ON FUNCTION siding.book_grant(int, bigint, int) IS 'Books one grant.';

-- Makes the next grants of the locks among these lines, in name order, again until nothing changes. Returns the lines to wake.
CREATE OR REPLACE FUNCTION siding.grant_locks(p_lines int[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_lock  int;
    v_todo  int[] := p_lines;
    v_next  int[];
    v_lines int[] := p_lines;
BEGIN
    LOOP
        v_next := '{}';
        FOR v_lock IN
            SELECT r.resource_id FROM siding.resources r
            WHERE r.resource_id = ANY (v_todo) AND r.kind = 'lock' ORDER BY r.name
        LOOP
            v_next := v_next || siding.grant_lock(v_lock);
        END LOOP;
        EXIT WHEN cardinality(v_next) = 0;
        v_lines := v_lines || v_next;
        v_todo := v_next;
    END LOOP;
    RETURN ARRAY(SELECT DISTINCT l FROM unnest(v_lines) AS l WHERE l IS NOT NULL);
END $$;
COMMENT ON FUNCTION siding.grant_locks(int[]) IS 'Grants at the locks among the lines until nothing changes; returns all lines touched.';

-- Locks the rows of the locks that some orders hold, stand at or may need next, by name, before any key or order is locked:
-- the grants that a change of these orders leads to lock them anyhow, and then in another order.
CREATE OR REPLACE FUNCTION siding.lock_resources_of(p_orders bigint[]) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM 1 FROM siding.resources r
    WHERE r.resource_id IN (
        SELECT g.lock_id FROM siding.grants g WHERE g.order_id = ANY (p_orders)
        UNION ALL
        SELECT n.lock_id
        FROM siding.orders o
        JOIN siding.steps s ON s.step_id = o.step_id
        LEFT JOIN siding.steps t ON t.step_id = s.next_step_id
        JOIN siding.lock_needs n ON n.version_id = s.version_id
             AND (n.block_path = ANY (siding.lock_chain(s.lock_path)) OR n.block_path = ANY (siding.lock_chain(t.lock_path)))
        WHERE o.id = ANY (p_orders))
    ORDER BY r.name FOR UPDATE;
END $$;
COMMENT ON FUNCTION siding.lock_resources_of(bigint[]) IS 'Locks the resource rows of the locks that orders hold or may need next, in name order.';
