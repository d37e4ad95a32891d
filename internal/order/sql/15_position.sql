-- Positions: queues of orders, and moves.

-- A new place at the end.
CREATE OR REPLACE FUNCTION siding.last_position() RETURNS bigint LANGUAGE sql AS $$
    SELECT nextval('siding.order_numbers') << 20
$$;
COMMENT ON FUNCTION siding.last_position() IS 'A new position at the end.';

-- Assigns a queue (null: none). A new queue gives a new position at the end; without one the original position comes back.
CREATE OR REPLACE FUNCTION siding.assign_order(p_id bigint, p_queue text, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order siding.orders;
    v_queue int := 0;
BEGIN
    IF p_queue IS NOT NULL THEN
        SELECT queue_id INTO v_queue FROM siding.queues WHERE name = p_queue AND removed_at IS NULL;
        IF NOT FOUND THEN
            PERFORM siding.refuse(422, 'unknown_queue', format('there is no queue %s', p_queue), 'Apply the queue first.');
        END IF;
    END IF;
    v_order := siding.take_order(p_id);
    IF v_order.queue_id = v_queue THEN
        RETURN '{}';
    END IF;
    IF v_order.state = 'running' THEN
        PERFORM siding.refuse(409, 'order_running', format('order %s runs', p_id), 'Its queue can be changed when the attempt has ended.');
    END IF;
    INSERT INTO siding.streams (line_id, class_id, queue_id)
    SELECT v_order.line_id, v_order.class_id, v_queue
    WHERE NOT EXISTS (SELECT FROM siding.streams x WHERE (x.line_id, x.class_id, x.queue_id) = (v_order.line_id, v_order.class_id, v_queue))
    ON CONFLICT DO NOTHING;
    UPDATE siding.orders
    SET queue_id = v_queue, position = CASE WHEN v_queue = 0 THEN id << 20 ELSE siding.last_position() END, late = true
    WHERE id = p_id;
    PERFORM siding.record(p_id, 'assign', coalesce(p_queue, '-'), p_person, p_reason);
    RETURN siding.grant_locks(ARRAY[v_order.line_id]);
END $$;
COMMENT ON FUNCTION siding.assign_order(bigint, text, text, text) IS 'Assigns a queue to an order, or none.';

-- The nearest position below (or above) a place, among all orders that may still be picked.
CREATE OR REPLACE FUNCTION siding.neighbour(p_position bigint, p_id bigint, p_below boolean, p_queue int DEFAULT NULL) RETURNS bigint LANGUAGE sql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    WITH queues AS (
        SELECT 0 AS queue_id UNION SELECT q.queue_id FROM siding.queues q
    ), found AS (
        SELECT n.position FROM siding.streams s CROSS JOIN LATERAL (
            (SELECT o.position FROM siding.orders o WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id
               AND o.candidate AND NOT o.late AND p_below AND o.position < p_position AND o.id <> p_id ORDER BY o.position DESC LIMIT 1)
            UNION ALL
            (SELECT o.position FROM siding.orders o WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id
               AND o.candidate AND o.late AND p_below AND o.position < p_position AND o.id <> p_id ORDER BY o.position DESC LIMIT 1)
            UNION ALL
            (SELECT o.position FROM siding.orders o WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id
               AND o.candidate AND NOT o.late AND NOT p_below AND o.position > p_position AND o.id <> p_id ORDER BY o.position LIMIT 1)
            UNION ALL
            (SELECT o.position FROM siding.orders o WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id
               AND o.candidate AND o.late AND NOT p_below AND o.position > p_position AND o.id <> p_id ORDER BY o.position LIMIT 1)
        ) n
        WHERE p_queue IS NULL OR s.queue_id = p_queue
        UNION ALL
        SELECT n.position FROM queues q CROSS JOIN LATERAL (
            (SELECT o.position FROM siding.orders o WHERE o.queue_id = q.queue_id AND o.state = 'waiting' AND NOT o.candidate AND NOT o.due_closed
               AND p_below AND o.position < p_position AND o.id <> p_id ORDER BY o.position DESC LIMIT 1)
            UNION ALL
            (SELECT o.position FROM siding.orders o WHERE o.queue_id = q.queue_id AND o.state = 'waiting' AND NOT o.candidate AND NOT o.due_closed
               AND NOT p_below AND o.position > p_position AND o.id <> p_id ORDER BY o.position LIMIT 1)
            UNION ALL
            (SELECT o.position FROM siding.orders o WHERE o.queue_id = q.queue_id AND o.state = 'waiting' AND o.due_closed
               AND p_below AND o.position < p_position AND o.id <> p_id ORDER BY o.position DESC LIMIT 1)
            UNION ALL
            (SELECT o.position FROM siding.orders o WHERE o.queue_id = q.queue_id AND o.state = 'waiting' AND o.due_closed
               AND NOT p_below AND o.position > p_position AND o.id <> p_id ORDER BY o.position LIMIT 1)
        ) n
        WHERE p_queue IS NULL OR q.queue_id = p_queue
    )
    SELECT CASE WHEN p_below THEN max(position) ELSE min(position) END FROM found
$$;
COMMENT ON FUNCTION siding.neighbour(bigint, bigint, boolean, int) IS 'Nearest position of a waiting order below or above a place; of one queue or of all.';

-- Makes room on both sides of a position whose neighbours are used up, by spreading the orders above it.
CREATE OR REPLACE FUNCTION siding.make_room(p_position bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_window bigint := 1 << 20;
    v_ids    bigint[];
    v_top    bigint;
    v_step   bigint;
BEGIN
    LOOP
        SELECT array_agg(o.id) INTO v_ids
        FROM (SELECT id FROM siding.orders WHERE position >= p_position AND position < p_position + v_window AND state <> 'running'
              ORDER BY position, id FOR UPDATE) o;
        SELECT min(position) INTO v_top FROM siding.orders WHERE position >= p_position + v_window;
        v_step := (coalesce(v_top, p_position + 2 * v_window) - p_position) / (cardinality(v_ids) + 1);
        EXIT WHEN v_step >= 1024;
        v_window := v_window * 2;
    END LOOP;
    UPDATE siding.orders o SET position = p_position + n.n * v_step, late = true
    FROM unnest(v_ids) WITH ORDINALITY AS n (id, n) WHERE o.id = n.id;
END $$;
COMMENT ON FUNCTION siding.make_room(bigint) IS 'Renumbers orders from a position on, so that moves find room below the first of them.';

-- Moves a waiting order: first, last, or directly before or after another one of its queue.
CREATE OR REPLACE FUNCTION siding.move_order(p_id bigint, p_to text, p_other bigint, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order    siding.orders := siding.take_order(p_id);
    v_other    siding.orders;
    v_bound    bigint;
    v_position bigint;
BEGIN
    IF v_order.state = 'running' THEN
        PERFORM siding.refuse(409, 'order_running', format('order %s runs', p_id), 'Only waiting orders are moved.');
    ELSIF v_order.state <> 'waiting' THEN
        PERFORM siding.refuse(409, 'not_waiting', format('order %s is in state %s', p_id, v_order.state), 'Only waiting orders are moved.');
    END IF;
    CASE p_to
        WHEN 'last' THEN
            v_position := siding.last_position();
        WHEN 'first' THEN
            v_bound := siding.neighbour(-9223372036854775807, p_id, false, v_order.queue_id);
            v_position := CASE WHEN v_bound IS NULL OR v_bound > v_order.position THEN v_order.position ELSE v_bound - (1 << 20) END;
        WHEN 'before', 'after' THEN
            SELECT * INTO v_other FROM siding.orders WHERE id = p_other;
            IF NOT FOUND THEN
                IF EXISTS (SELECT FROM siding.outcomes WHERE order_id = p_other) THEN
                    PERFORM siding.refuse(409, 'order_final', format('order %s has ended', p_other), 'Move next to a live order.');
                END IF;
                PERFORM siding.refuse(404, 'order_not_found', format('there is no order %s', p_other), 'Give its id, or ref:REFERENCE.');
            END IF;
            IF v_other.queue_id <> v_order.queue_id THEN
                PERFORM siding.refuse(409, 'different_queue', format('orders %s and %s are assigned to different queues', p_id, p_other),
                                      'Assign the queue first, or move next to an order of the same one.');
            END IF;
            IF p_id = p_other THEN
                RETURN '{}';
            END IF;
            FOR i IN 1 .. 2 LOOP
                v_bound := siding.neighbour(v_other.position, p_id, p_to = 'before');
                IF p_to = 'before' THEN
                    v_position := CASE WHEN v_bound IS NULL THEN v_other.position - (1 << 20) ELSE v_bound + (v_other.position - v_bound) / 2 END;
                    EXIT WHEN v_position < v_other.position AND (v_bound IS NULL OR v_position > v_bound);
                    PERFORM siding.make_room(v_other.position);
                ELSE
                    v_position := CASE WHEN v_bound IS NULL THEN v_other.position + (1 << 19) ELSE v_other.position + (v_bound - v_other.position) / 2 END;
                    EXIT WHEN v_position > v_other.position AND (v_bound IS NULL OR v_position < v_bound);
                    PERFORM siding.make_room(v_bound);
                END IF;
                SELECT * INTO v_other FROM siding.orders WHERE id = p_other;
            END LOOP;
        ELSE
            PERFORM siding.refuse(422, 'invalid_move', format('cannot move to %s', coalesce(p_to, '(nothing)')), 'One of: first, last, before, after.');
    END CASE;
    UPDATE siding.orders SET position = v_position, late = true WHERE id = p_id;
    PERFORM siding.record(p_id, 'move', p_to, p_person, p_reason, jsonb_build_object('from', v_order.position, 'to', v_position, 'other', p_other));
    RETURN siding.grant_locks(ARRAY[v_order.line_id]);
END $$;
COMMENT ON FUNCTION siding.move_order(bigint, text, bigint, text, text) IS 'Moves a waiting order within its queue.';
