-- The rule of queues, applied p_n times in sequence to candidates that are given as arrays ordered by (precedence,
-- position, id). internal/selector/model.go says the same in Go; property tests hold the two together.
--
-- 1. In precedence order the first queue that is not penalised and has a candidate: its first one.
-- 2. Otherwise the first of the others (no queue, or one that the resource doesn't list).
-- 3. Otherwise the first penalised queue with a candidate; its penalty is waived.
-- Booking: every other penalised queue waits one pick less; the queue itself counts one served, and at its capacity
-- starts its penalty.
CREATE OR REPLACE FUNCTION siding.apply_rule(
    p_resource int, p_n int, p_listed int[], p_capacity int[], p_penalty int[],
    p_ids bigint[], p_ranks int[], p_queues int[], p_classes int[],
    OUT ids bigint[], OUT queue_ids int[], OUT waived boolean[], OUT served int[], OUT penalty_left int[]
) LANGUAGE plpgsql AS $$
DECLARE
    v_queues int := cardinality(p_listed);
    v_others int := cardinality(p_listed) + 1;   -- rank of the others
    v_served int[];
    v_left   int[];
    v_head   int[];           -- per rank: index of its first candidate not yet picked
    v_end    int[];           -- per rank: index behind its last
    v_class_left jsonb;       -- processes left of each job limit that occurs
    v_rank   int;
    v_choice int;
    v_waived boolean;
    v_class  text;
BEGIN
    ids := '{}'; queue_ids := '{}'; waived := '{}'; served := '{}'; penalty_left := '{}';
    SELECT n.served, n.penalty_left INTO v_served, v_left FROM siding.numbers(p_resource, p_listed, p_capacity, p_penalty) n;

    SELECT array_agg(coalesce(first, 1) ORDER BY r), array_agg(coalesce(last, 0) + 1 ORDER BY r) INTO v_head, v_end
    FROM generate_series(1, v_others) AS r
    LEFT JOIN (SELECT rank, min(n)::int AS first, max(n)::int AS last
               FROM unnest(p_ranks) WITH ORDINALITY AS c (rank, n) GROUP BY rank) c ON c.rank = r;

    IF EXISTS (SELECT FROM unnest(p_classes) AS c WHERE c > 0) THEN
        SELECT jsonb_object_agg(k.class_id, greatest(k.processes - (
                   SELECT count(*) FROM siding.orders o WHERE o.state = 'running' AND o.class_id = k.class_id AND o.class_id > 0), 0))
        INTO v_class_left
        FROM siding.job_classes k
        WHERE k.class_id = ANY (p_classes) AND k.processes IS NOT NULL;
    END IF;

    FOR i IN 1 .. p_n LOOP
        IF v_class_left IS NOT NULL THEN
            -- Orders whose job limit is used up are no candidates.
            FOR r IN 1 .. v_others LOOP
                WHILE v_head[r] < v_end[r] AND (v_class_left ->> p_classes[v_head[r]]::text)::int = 0 LOOP
                    v_head[r] := v_head[r] + 1;
                END LOOP;
            END LOOP;
        END IF;

        v_choice := NULL;
        v_waived := false;
        FOR r IN 1 .. v_queues LOOP
            IF v_left[r] = 0 AND v_head[r] < v_end[r] THEN
                v_choice := r;
                EXIT;
            END IF;
        END LOOP;
        IF v_choice IS NULL AND v_head[v_others] < v_end[v_others] THEN
            v_choice := v_others;
        END IF;
        IF v_choice IS NULL THEN
            FOR r IN 1 .. v_queues LOOP
                IF v_head[r] < v_end[r] THEN
                    v_choice := r;
                    v_waived := true;
                    v_left[r] := 0;
                    v_served[r] := 0;
                    EXIT;
                END IF;
            END LOOP;
        END IF;
        EXIT WHEN v_choice IS NULL;

        FOR r IN 1 .. v_queues LOOP
            IF r <> v_choice AND v_left[r] > 0 THEN
                v_left[r] := v_left[r] - 1;
            END IF;
        END LOOP;
        IF v_choice < v_others AND p_capacity[v_choice] IS NOT NULL AND p_penalty[v_choice] > 0 THEN
            v_served[v_choice] := v_served[v_choice] + 1;
            IF v_served[v_choice] >= p_capacity[v_choice] THEN
                v_left[v_choice] := p_penalty[v_choice];
                v_served[v_choice] := 0;
            END IF;
        END IF;

        ids := ids || p_ids[v_head[v_choice]];
        queue_ids := queue_ids || p_queues[v_head[v_choice]];
        waived := waived || v_waived;
        served := served || v_served;
        penalty_left := penalty_left || v_left;
        IF v_class_left IS NOT NULL THEN
            v_class := p_classes[v_head[v_choice]]::text;
            IF v_class_left ? v_class THEN
                v_class_left := jsonb_set(v_class_left, ARRAY[v_class], to_jsonb((v_class_left ->> v_class)::int - 1));
            END IF;
        END IF;
        v_head[v_choice] := v_head[v_choice] + 1;
    END LOOP;
END $$;
COMMENT ON FUNCTION siding.apply_rule(int, int, int[], int[], int[], bigint[], int[], int[], int[]) IS
'Applies the rule of queues p_n times to ordered candidates; returns the picks and the numbers after each.';

-- The numbers of a resource's listed queues: those of its newest booking, brought in line with today's definitions.
CREATE OR REPLACE FUNCTION siding.numbers(
    p_resource int, p_listed int[], p_capacity int[], p_penalty int[], OUT served int[], OUT penalty_left int[]
) LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(CASE WHEN kept THEN coalesce(b.served[at], 0) ELSE 0 END ORDER BY n), '{}'),
           coalesce(array_agg(CASE WHEN kept THEN least(coalesce(b.penalty_left[at], 0), p_penalty[n]) ELSE 0 END ORDER BY n), '{}')
    FROM (SELECT n, p_capacity[n] IS NOT NULL AND p_penalty[n] > 0 AS kept, array_position(newest.queue_ids, queue_id) AS at,
                 newest.served, newest.penalty_left
          FROM unnest(p_listed) WITH ORDINALITY AS l (queue_id, n)
          LEFT JOIN (SELECT queue_ids, served, penalty_left FROM siding.bookings
                     WHERE resource_id = p_resource ORDER BY booking_no DESC LIMIT 1) newest ON true) b
$$;
COMMENT ON FUNCTION siding.numbers(int, int[], int[], int[]) IS 'served and penalty_left of the listed queues of a resource, as of now.';

-- Writes picks to the log; the newest row of a resource holds its numbers.
CREATE OR REPLACE FUNCTION siding.book(
    p_resource int, p_orders bigint[], p_leases bigint[], p_queues int[], p_waived boolean[],
    p_listed int[], p_served int[], p_penalty_left int[]
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO siding.bookings (resource_id, order_id, lease_no, queue_id, waived, queue_ids, served, penalty_left, booked_at)
    SELECT p_resource, p_orders[n], p_leases[n], p_queues[n], p_waived[n], p_listed,
           p_served[(n - 1) * k + 1 : n * k], p_penalty_left[(n - 1) * k + 1 : n * k], siding.clock()
    FROM (SELECT cardinality(p_listed) AS k) s, generate_series(1, cardinality(p_orders)) AS n
    WHERE k > 0
    ORDER BY n
$$;
COMMENT ON FUNCTION siding.book(int, bigint[], bigint[], int[], boolean[], int[], int[], int[]) IS 'Appends bookings, one per pick, in order.';

-- After a definition changed: writes the numbers that hold from now on, so that what was left out isn't remembered.
CREATE OR REPLACE FUNCTION siding.rebook(p_resource int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO siding.bookings (resource_id, queue_ids, served, penalty_left, booked_at)
    SELECT p_resource, coalesce(d.listed, '{}'), n.served, n.penalty_left, siding.clock()
    FROM (SELECT array_agg(q.queue_id ORDER BY rq.rank) AS listed, array_agg(q.capacity ORDER BY rq.rank) AS capacity,
                 array_agg(q.penalty ORDER BY rq.rank) AS penalty
          FROM siding.resource_queues rq JOIN siding.queues q ON q.queue_id = rq.queue_id
          WHERE rq.resource_id = p_resource) d
    CROSS JOIN LATERAL siding.numbers(p_resource, coalesce(d.listed, '{}'), coalesce(d.capacity, '{}'), coalesce(d.penalty, '{}')) n
    WHERE EXISTS (SELECT FROM siding.bookings WHERE resource_id = p_resource)
$$;
COMMENT ON FUNCTION siding.rebook(int) IS 'Writes a resource''s numbers after a definition changed.';
