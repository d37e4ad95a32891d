-- What people decide about orders. Each is one transaction, recorded with who and why, and returns the lines to wake.

-- Locks an order for a decision, in the documented order: resources by name, key, order. Places it first if the intake
-- hasn't yet.
CREATE OR REPLACE FUNCTION siding.take_order(p_id bigint) RETURNS siding.orders LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_order siding.orders;
BEGIN
    SELECT * INTO v_order FROM siding.orders WHERE id = p_id;
    IF v_order.intake_closed THEN
        PERFORM siding.intake(10000, true);
    END IF;
    IF v_order.id IS NOT NULL THEN
        PERFORM siding.lock_resources_of(ARRAY[p_id]);
        PERFORM siding.lock_stripes(ARRAY[v_order.key_hash]);
        SELECT * INTO v_order FROM siding.orders WHERE id = p_id FOR UPDATE;
    END IF;
    IF v_order.id IS NULL THEN
        IF EXISTS (SELECT FROM siding.outcomes WHERE order_id = p_id) THEN
            PERFORM siding.refuse(409, 'order_final', format('order %s has ended', p_id), 'Nothing can be changed about it any more.');
        END IF;
        PERFORM siding.refuse(404, 'order_not_found', format('there is no order %s', p_id), 'Give its id, or ref:REFERENCE.');
    END IF;
    RETURN v_order;
END $$;
COMMENT ON FUNCTION siding.take_order(bigint) IS 'Locks a live order for a decision, or refuses.';

-- The order that a person names: an id, or ref:REFERENCE.
CREATE OR REPLACE FUNCTION siding.order_named(p_name text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_id bigint;
BEGIN
    IF p_name LIKE 'ref:%' THEN
        SELECT order_id INTO v_id FROM siding.order_references WHERE ref = substr(p_name, 5);
    ELSIF p_name ~ '^[0-9]{1,18}$' THEN
        v_id := p_name::bigint;
    END IF;
    IF v_id IS NULL THEN
        PERFORM siding.refuse(404, 'order_not_found', format('there is no order %s', p_name),
            CASE WHEN p_name ~ '^([0-9]+|ref:.*)$' THEN 'Give its id, or ref:REFERENCE.'
                 ELSE format('This is no id; for the reference write ref:%s.', p_name) END);
    END IF;
    RETURN v_id;
END $$;
COMMENT ON FUNCTION siding.order_named(text) IS 'Id of the order with this id or ref:REFERENCE.';

CREATE OR REPLACE FUNCTION siding.cancel_order_now(p_id bigint, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order siding.orders := siding.take_order(p_id);
BEGIN
    PERFORM siding.record(p_id, 'cancel', NULL, p_person, p_reason);
    IF v_order.state = 'running' THEN
        UPDATE siding.orders SET stop = 'cancel' WHERE id = p_id;
        RETURN '{}';
    END IF;
    RETURN siding.grant_locks(siding.end_order(p_id, 'cancelled'));
END $$;
COMMENT ON FUNCTION siding.cancel_order_now(bigint, text, text) IS 'Cancels an order; a running one is stopped first.';

CREATE OR REPLACE FUNCTION siding.suspend_order(p_id bigint, p_kill boolean, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order siding.orders := siding.take_order(p_id);
BEGIN
    CASE v_order.state
        WHEN 'suspended' THEN
            RETURN '{}';
        WHEN 'running' THEN
            IF v_order.stop = 'cancel' THEN
                PERFORM siding.refuse(409, 'order_running', format('order %s is being cancelled', p_id), 'Wait until it has ended.');
            END IF;
            UPDATE siding.orders SET stop = CASE WHEN p_kill THEN 'kill' ELSE 'suspend' END::siding.stop_request WHERE id = p_id;
            PERFORM siding.record(p_id, 'suspend', NULL, p_person, p_reason, jsonb_build_object('kill', p_kill));
            RETURN '{}';
        WHEN 'waiting' THEN
            PERFORM siding.record(p_id, 'suspend', NULL, p_person, p_reason);
            RETURN siding.grant_locks(siding.park(p_id, 'suspended', 'suspended', jsonb_build_object('reason', p_reason), p_person));
        ELSE
            PERFORM siding.refuse(409, 'not_suspendable', format('order %s is in state %s', p_id, v_order.state),
                                  'Only waiting and running orders can be suspended; resolve this one.');
    END CASE;
END $$;
COMMENT ON FUNCTION siding.suspend_order(bigint, boolean, text, text) IS 'Suspends an order: at once if it waits or with kill, else after its step.';

-- The limit for attachments starts anew.
CREATE OR REPLACE FUNCTION siding.restart_wait_limit(p_id bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE siding.orders o SET wait_deadline = greatest(siding.clock(), o.due_at) + i.wait_limit
    FROM siding.inputs i WHERE o.id = p_id AND i.order_id = o.id AND i.added_at = o.added_at AND o.has_attachments
$$;
COMMENT ON FUNCTION siding.restart_wait_limit(bigint) IS 'Counts the wait limit of an order from now.';

CREATE OR REPLACE FUNCTION siding.resume_order(p_id bigint, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order siding.orders := siding.take_order(p_id);
BEGIN
    IF v_order.state = 'running' AND v_order.stop = 'suspend' THEN
        UPDATE siding.orders SET stop = NULL WHERE id = p_id;
        PERFORM siding.record(p_id, 'resume', NULL, p_person, p_reason);
        RETURN '{}';
    END IF;
    IF v_order.state <> 'suspended' THEN
        PERFORM siding.refuse(409, 'not_suspended', format('order %s is in state %s', p_id, v_order.state),
                              'Only suspended orders are resumed; one in attention or dead is resolved.');
    END IF;
    PERFORM siding.record(p_id, 'resume', NULL, p_person, p_reason);
    DELETE FROM siding.attentions WHERE order_id = p_id;
    PERFORM siding.restart_wait_limit(p_id);
    RETURN siding.grant_locks(siding.stand_in_line(p_id));
END $$;
COMMENT ON FUNCTION siding.resume_order(bigint, text, text) IS 'Puts a suspended order back in line at its position.';

-- Decides about an order in attention (resume, skip, cancel) or dead (retry, skip, cancel).
CREATE OR REPLACE FUNCTION siding.resolve_order(p_id bigint, p_action text, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order     siding.orders;
    v_attention siding.attentions;
    v_failed    int;
BEGIN
    PERFORM siding.require_reason(p_person, p_reason);
    IF p_action NOT IN ('resume', 'retry', 'skip', 'cancel') OR p_action IS NULL THEN
        PERFORM siding.refuse(422, 'invalid_action', format('%s is no way to resolve an order', coalesce(p_action, '(nothing)')),
                              'Attention: resume, skip, cancel. Dead: retry, skip, cancel.');
    END IF;
    v_order := siding.take_order(p_id);
    IF p_action = 'retry' AND v_order.state <> 'dead' OR p_action = 'skip' AND v_order.state NOT IN ('dead', 'attention') THEN
        PERFORM siding.refuse(409, 'not_dead', format('order %s is in state %s', p_id, v_order.state), 'Only dead orders are retried or skipped.');
    END IF;
    IF p_action = 'resume' AND v_order.state <> 'attention' OR p_action = 'cancel' AND v_order.state NOT IN ('dead', 'attention') THEN
        PERFORM siding.refuse(409, 'not_in_attention', format('order %s is in state %s', p_id, v_order.state),
                              'Resume resolves attention; a dead order is retried, skipped or cancelled.');
    END IF;
    SELECT * INTO v_attention FROM siding.attentions WHERE order_id = p_id;
    v_failed := coalesce((v_attention.detail ->> 'step_id')::int, v_order.step_id);
    IF p_action = 'skip' AND v_order.state = 'attention' AND v_attention.reason LIKE 'attachment%' THEN
        PERFORM siding.refuse(409, 'nothing_to_skip', format('no step of order %s has failed', p_id),
                              'Resume it when its attachment is there, or cancel it.');
    END IF;

    PERFORM siding.record(p_id, p_action, v_attention.reason, p_person, p_reason);
    DELETE FROM siding.attentions WHERE order_id = p_id;
    IF p_action = 'cancel' THEN
        RETURN siding.grant_locks(siding.end_order(p_id, 'cancelled'));
    END IF;
    -- Attempts are counted per step: back at the start of its block it has none.
    UPDATE siding.orders
    SET attempt = CASE WHEN p_action = 'resume' AND step_id = v_failed THEN attempt ELSE 0 END,
        -- Only the time of a retry is passed over: an order that has not started is still due when it was.
        due_at = CASE WHEN started_at IS NULL THEN due_at END WHERE id = p_id;
    IF p_action = 'skip' THEN
        RETURN siding.grant_locks(siding.advance(p_id, v_failed));
    END IF;
    PERFORM siding.restart_wait_limit(p_id);
    RETURN siding.grant_locks(siding.stand_in_line(p_id));
END $$;
COMMENT ON FUNCTION siding.resolve_order(bigint, text, text, text) IS 'Resolves attention or death, with a reason.';

-- Lets one order go ahead of the predecessors in its key that exist now.
CREATE OR REPLACE FUNCTION siding.release_order_now(p_id bigint, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order  siding.orders;
    v_passed bigint[];
BEGIN
    PERFORM siding.require_reason(p_person, p_reason);
    v_order := siding.take_order(p_id);
    IF v_order.state = 'running' THEN
        PERFORM siding.refuse(409, 'order_running', format('order %s runs', p_id), 'There is nothing to release.');
    END IF;
    SELECT array_agg(p.id ORDER BY p.key_arrival) INTO v_passed
    FROM (SELECT o.id, o.key_arrival FROM siding.orders o
          WHERE o.key_hash = v_order.key_hash AND o.key_space_id = v_order.key_space_id AND o.key = v_order.key
            AND o.key_arrival < v_order.key_arrival
          ORDER BY o.key_arrival LIMIT 100) p;
    IF v_passed IS NULL OR v_order.released THEN
        PERFORM siding.refuse(409, 'nothing_to_release', format('order %s has no predecessor to pass', p_id),
                              'A release lets an order go ahead of earlier ones with its key; `controller why` shows what holds it.');
    END IF;
    UPDATE siding.orders SET released = true WHERE id = p_id;
    PERFORM siding.record(p_id, 'release', v_order.key, p_person, p_reason, jsonb_build_object('passes', to_jsonb(v_passed)));
    RETURN siding.grant_locks(v_order.line_id || siding.settle_keys(ARRAY[v_order.key_hash], ARRAY[v_order.key_space_id], ARRAY[v_order.key]));
END $$;
COMMENT ON FUNCTION siding.release_order_now(bigint, text, text) IS 'Releases an order from waiting for its predecessors; recorded for ever.';
