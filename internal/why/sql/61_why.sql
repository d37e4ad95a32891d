-- The whole answer for one order: its obstacles, and whose turn it is (docs/concepts.md, Why is it waiting). Turn and rank are computed on
-- demand from the candidates and the rule that decide, never stored.

-- The first that applies of queue_overflow, queue_turn, lock_turn, process_limit, job_limit, no_agent and behind, for an
-- order with every gate open (but, at a lock, the lock's) that nothing keeps from being a candidate but a job's limit. No
-- code if it is next.
--
-- Decided, where the rules leave room:
-- - queue_turn: the rule's next pick is of another queue than the order's. Orders without a queue and those of queues that the
--   resource doesn't list count as of one.
-- - The pick that a lock has stored has its turn, whatever the rule would pick now. An order that the rule would pick now but
--   for a stored pick waits for that: lock_turn.
-- - An order whose job's limit is used up is no candidate: it has no place in its queue and no turn.
-- - process_limit is also told when the live sessions together have no process left though the agent's limit would allow
--   one: nobody asks for more work then.
CREATE OR REPLACE FUNCTION siding.turn_of(
    p_order bigint, OUT class text, OUT code text, OUT subject text, OUT numbers jsonb, OUT ends_by text
) LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_order    siding.orders;
    v_line     siding.resources;
    v_listed   int[];
    v_rank     int;             -- precedence of its queue here; others come behind the listed ones
    v_capacity int;             -- of its queue, if that is listed here
    v_ahead    bigint;
    v_stored   bigint;          -- the pick that the lock has stored
    v_next     record;
    v_limit    record;
    v_full     boolean := false;
    c_counted  CONSTANT int := 1000;
BEGIN
    SELECT * INTO v_order FROM siding.orders o WHERE o.id = p_order;
    SELECT * INTO v_line FROM siding.resources r WHERE r.resource_id = v_order.line_id;
    IF v_line.pick_order_id = p_order THEN
        RETURN;
    END IF;
    IF v_line.kind = 'agent' AND v_order.class_id > 0 THEN
        v_full := siding.job_limit_used_up(v_order.class_id);
    END IF;
    class := 'later';

    IF NOT v_full THEN
        v_listed := ARRAY(SELECT rq.queue_id FROM siding.resource_queues rq WHERE rq.resource_id = v_order.line_id ORDER BY rq.rank);
        v_rank := coalesce(array_position(v_listed, v_order.queue_id), cardinality(v_listed) + 1);
        SELECT q.capacity INTO v_capacity FROM siding.queues q WHERE q.queue_id = v_listed[v_rank];
        IF v_capacity IS NOT NULL THEN
            SELECT count(*) INTO v_ahead FROM siding.candidates(v_order.line_id, v_capacity) c
            WHERE c.queue_id = v_order.queue_id AND (c.position, c.id) < (v_order.position, v_order.id);
            IF v_ahead >= v_capacity THEN
                code := 'queue_overflow';
                SELECT q.name INTO subject FROM siding.queues q WHERE q.queue_id = v_order.queue_id;
                numbers := jsonb_build_object('capacity', v_capacity, 'resource', v_line.name);
                ends_by := 'orders before it in the queue are picked';
                RETURN;
            END IF;
        END IF;

        SELECT n.* INTO v_next FROM siding.next_pick(v_order.line_id, v_order.queue_id) n;
        IF v_next.rank <> v_rank THEN
            code := 'queue_turn';
            subject := coalesce((SELECT q.name FROM siding.queues q WHERE q.queue_id = v_next.queue_id), '-');
            numbers := jsonb_build_object('first', v_next.order_id, 'penalty_left', v_next.penalty_left, 'resource', v_line.name);
            ends_by := CASE WHEN v_next.penalty_left > 0 THEN 'its queue has waited for its penalty' ELSE 'those before it are picked' END;
            RETURN;
        END IF;

        IF v_line.kind = 'lock' THEN
            SELECT o.id INTO v_stored FROM siding.orders o WHERE o.id = v_line.pick_order_id AND o.line_id = v_line.resource_id AND o.candidate;
            IF coalesce(v_stored, v_next.order_id) <> p_order THEN
                code := 'lock_turn';
                subject := v_line.name;
                numbers := jsonb_build_object('first', coalesce(v_stored, v_next.order_id), 'stored', v_stored IS NOT NULL);
                ends_by := 'that order gets the lock or leaves its line';
            END IF;
            RETURN;
        END IF;
    END IF;

    SELECT u.* INTO v_limit FROM siding.used_up_limit(v_order.line_id) u;
    IF v_limit.subject IS NOT NULL THEN
        class := CASE WHEN v_limit.processes = 0 THEN 'needs_you' ELSE 'later' END;
        code := 'process_limit';
        subject := v_limit.subject;
        numbers := jsonb_build_object('processes', v_limit.processes, 'running', v_limit.running);
        ends_by := CASE WHEN v_limit.processes = 0 THEN 'the process limit is raised' ELSE 'a running order ends' END;
        RETURN;
    END IF;
    IF v_full THEN
        code := 'job_limit';
        SELECT k.job, jsonb_build_object('processes', k.processes) INTO subject, numbers
        FROM siding.job_classes k WHERE k.class_id = v_order.class_id;
        class := CASE WHEN (numbers ->> 'processes')::int = 0 THEN 'needs_you' ELSE 'later' END;
        ends_by := CASE WHEN class = 'needs_you' THEN 'the limit of the job is raised' ELSE 'a running order of the job ends' END;
        RETURN;
    END IF;
    IF NOT siding.is_served(v_order.line_id) THEN
        class := 'needs_you';
        code := 'no_agent';
        subject := v_line.name;
        numbers := '{}';
        ends_by := 'an agent process opens a session';
        RETURN;
    END IF;
    IF v_next.order_id <> p_order THEN
        SELECT count(*) INTO v_ahead FROM siding.candidates(v_order.line_id, c_counted) c
        WHERE c.rank = v_next.rank AND (c.position, c.id) < (v_order.position, v_order.id);
        code := 'behind';
        subject := v_line.name;
        numbers := jsonb_strip_nulls(jsonb_build_object('rank', least(v_ahead, c_counted) + 1, 'first', v_next.order_id,
            'at_least', CASE WHEN v_ahead >= c_counted THEN true END));
        ends_by := 'those before it are picked';
    END IF;
END $$;
COMMENT ON FUNCTION siding.turn_of(bigint) IS 'What keeps a candidate from being the next pick; no code if it is next.';

CREATE OR REPLACE FUNCTION siding.why(p_order bigint)
RETURNS TABLE (order_id bigint, state text, next boolean, class text, code text, subject text, numbers jsonb, since timestamptz, ends_by text)
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_order siding.orders;
    v_turn  record;
    v_row   record;
    v_codes text[] := '{}';
BEGIN
    SELECT * INTO v_order FROM siding.orders o WHERE o.id = p_order;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM siding.outcomes x WHERE x.order_id = p_order) THEN
            PERFORM siding.refuse(409, 'order_final', format('order %s has ended', p_order), 'It waits for nothing any more.');
        END IF;
        PERFORM siding.refuse(404, 'order_not_found', format('there is no order %s', p_order), 'Give its id, or ref:REFERENCE.');
    END IF;
    order_id := v_order.id;
    state := siding.state_word(v_order, EXISTS (
        SELECT FROM siding.pauses p
        WHERE p.kind = 'queue' AND p.subject_id = v_order.queue_id OR p.kind IN ('agent', 'lock') AND p.subject_id = v_order.line_id));
    next := false;
    FOR v_row IN
        SELECT b.* FROM siding.obstacles b WHERE b.order_id = p_order
        ORDER BY array_position('{intake,due,retry,attachment_pending,attachment_unknown,key_held,key_running,lock_busy,exceeds_capacity,line_strict,paused}'::text[], b.code), b.subject
    LOOP
        v_codes := v_codes || v_row.code;
        class := v_row.class;
        code := v_row.code;
        subject := v_row.subject;
        numbers := v_row.numbers;
        since := v_row.since;
        ends_by := v_row.ends_by;
        RETURN NEXT;
    END LOOP;
    IF v_order.candidate AND v_codes <@ '{lock_busy}' THEN
        SELECT t.* INTO v_turn FROM siding.turn_of(p_order) t;
        IF v_turn.code IS NOT NULL THEN
            class := v_turn.class;
            code := v_turn.code;
            subject := v_turn.subject;
            numbers := v_turn.numbers;
            since := v_order.ready_at;
            ends_by := v_turn.ends_by;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF v_codes = '{}' THEN
        -- Nothing to tell: the order is next, or it runs.
        next := v_order.candidate;
        class := NULL;
        code := NULL;
        subject := NULL;
        numbers := NULL;
        since := NULL;
        ends_by := NULL;
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION siding.why(bigint) IS
'Why an order waits: a row per obstacle. One row without a code: no obstacle; next says that it is picked as soon as somebody asks.';
