-- Which orders get the next units of a resource (docs/concepts.md, Who goes next).
--
-- One function for agents and locks. The caller holds the resource's row FOR UPDATE, by a statement before this one, so
-- that decisions on one resource come one after the other and each reads what the one before has written.
--
-- The picks are rows of the claim index only, read as heads of the streams (job limit, queue) of the line and merged by
-- (position, id). Every condition stands before the LIMIT. Picked rows are locked with SKIP LOCKED; a row that somebody
-- else holds at that moment is no candidate, and the rule is applied again without it.
--
-- Planner settings: the plan is made once and kept; on a table that is empty at that moment a sequential scan would look
-- cheap and then be wrong for hours.
CREATE OR REPLACE FUNCTION siding.pick(
    p_resource int,
    p_n int,
    p_skip bigint[] DEFAULT '{}',
    OUT ids bigint[],          -- the picks in order
    OUT queue_ids int[],       -- the queue of each
    OUT waived boolean[],      -- whether its penalty was waived
    OUT listed int[],          -- queues that the resource lists, in precedence order; empty if none is penalised
    OUT served int[],          -- after each pick the numbers of the listed queues, cardinality(listed) each
    OUT penalty_left int[]
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_resource  siding.resources;
    v_floor     bigint;
    v_strict    boolean;
    v_barrier   bigint;
    v_barrier_id bigint;
    v_paused    int[];         -- steps of paused workflows whose orders the sweeper may not have marked yet
    v_skip      bigint[] := p_skip;
    v_locked    bigint[];
    v_listed    int[];
    v_capacity  int[];
    v_penalty   int[];
    v_penalised boolean;
    v_limited   boolean;
    v_served    int[];
    v_left      int[];
    v_c_ids     bigint[];      -- candidates by (precedence, position, id); precedence of others is after the listed
    v_c_ranks   int[];
    v_c_queues  int[];
    v_c_classes int[];
BEGIN
    SELECT * INTO v_resource FROM siding.resources r WHERE r.resource_id = p_resource;
    SELECT l.floor, l.mode = 'strict' INTO v_floor, v_strict FROM siding.lines l WHERE l.line_id = p_resource;
    IF v_strict THEN
        SELECT o.position, o.id INTO v_barrier, v_barrier_id FROM siding.orders o
        WHERE o.line_id = p_resource AND o.state = 'waiting' AND o.attachment_closed AND NOT o.due_closed
        ORDER BY o.position, o.id LIMIT 1;
    END IF;
    SELECT array_agg(s.step_id) INTO v_paused
    FROM siding.pauses p
    JOIN siding.workflow_versions v ON v.workflow_id = p.subject_id
    JOIN siding.steps s ON s.version_id = v.version_id
    WHERE p.kind = 'workflow';

    SELECT array_agg(q.queue_id ORDER BY rq.rank), array_agg(q.capacity ORDER BY rq.rank), array_agg(q.penalty ORDER BY rq.rank),
           coalesce(bool_or(q.capacity IS NOT NULL AND q.penalty > 0), false)
    INTO v_listed, v_capacity, v_penalty, v_penalised
    FROM siding.resource_queues rq JOIN siding.queues q ON q.queue_id = rq.queue_id
    WHERE rq.resource_id = p_resource;
    v_listed := coalesce(v_listed, '{}');
    v_limited := v_resource.kind = 'agent' AND EXISTS (SELECT FROM siding.streams WHERE line_id = p_resource AND class_id > 0);

    -- The usual case, a line with one stream and nothing that became ready late: the scan itself is the order, and locks.
    IF cardinality(v_listed) = 0 AND v_barrier IS NULL AND v_paused IS NULL AND v_skip = '{}'
       AND v_resource.kind = 'agent' AND NOT v_limited
       AND NOT EXISTS (SELECT FROM siding.pauses)
       AND NOT EXISTS (SELECT FROM siding.streams s WHERE s.line_id = p_resource AND s.queue_id <> 0)
       AND NOT EXISTS (SELECT FROM siding.orders o
                       WHERE o.line_id = p_resource AND o.class_id = 0 AND o.queue_id = 0 AND o.candidate AND o.late) THEN
        SELECT coalesce(array_agg(c.id ORDER BY c.position, c.id), '{}') INTO ids
        FROM (SELECT o.id, o.position FROM siding.orders o
              WHERE o.line_id = p_resource AND o.class_id = 0 AND o.queue_id = 0 AND o.candidate AND NOT o.late AND o.position >= v_floor
              ORDER BY o.position, o.id LIMIT p_n FOR UPDATE SKIP LOCKED) c;
        queue_ids := array_fill(0, ARRAY[cardinality(ids)]);
        waived := array_fill(false, ARRAY[cardinality(ids)]);
        listed := '{}';
        RETURN;
    END IF;

    LOOP
        SELECT array_agg(c.id ORDER BY c.rank, c.position, c.id), array_agg(c.rank ORDER BY c.rank, c.position, c.id),
               array_agg(c.queue_id ORDER BY c.rank, c.position, c.id), array_agg(c.class_id ORDER BY c.rank, c.position, c.id)
        INTO v_c_ids, v_c_ranks, v_c_queues, v_c_classes
        FROM siding.pick_candidates(p_resource, v_resource.capacity, p_n, v_floor, v_barrier, v_barrier_id, v_paused, v_skip, v_listed) c;
        IF NOT v_limited THEN
            v_c_classes := NULL;
        END IF;

        IF v_c_ids IS NULL THEN
            ids := '{}';
        ELSIF cardinality(v_listed) = 0 AND NOT v_limited THEN
            -- Nobody takes precedence: the order of the line is the order of the picks.
            ids := v_c_ids[1:p_n];
            queue_ids := v_c_queues[1:p_n];
            waived := array_fill(false, ARRAY[cardinality(ids)]);
        ELSE
            SELECT r.ids, r.queue_ids, r.waived, r.served, r.penalty_left
            INTO ids, queue_ids, waived, served, penalty_left
            FROM siding.apply_rule(p_resource, p_n, v_listed, v_capacity, v_penalty, v_c_ids, v_c_ranks, v_c_queues, v_c_classes) r;
        END IF;
        EXIT WHEN cardinality(ids) = 0;

        SELECT coalesce(array_agg(l.id), '{}') INTO v_locked
        FROM (SELECT o.id FROM siding.orders o
              WHERE o.id = ANY (ids) AND (o.candidate AND o.line_id = p_resource) IS TRUE
              ORDER BY o.id FOR UPDATE SKIP LOCKED) l;
        EXIT WHEN cardinality(v_locked) = cardinality(ids);
        v_skip := v_skip || ARRAY(SELECT unnest(ids) EXCEPT SELECT unnest(v_locked));
    END LOOP;

    IF cardinality(ids) = 0 THEN
        queue_ids := '{}';
        waived := '{}';
    END IF;
    listed := CASE WHEN v_penalised THEN v_listed ELSE '{}' END;
END $$;
COMMENT ON FUNCTION siding.pick(int, int, bigint[]) IS 'The next p_n picks of a resource by the rule, their rows locked. Books nothing.';

-- The candidates that up to p_n picks may concern: of each stream of the line its first p_n. p_capacity is that of a lock.
CREATE OR REPLACE FUNCTION siding.pick_candidates(
    p_line int, p_capacity int, p_n int, p_floor bigint, p_barrier bigint, p_barrier_id bigint, p_paused int[], p_skip bigint[], p_listed int[]
) RETURNS TABLE (id bigint, "position" bigint, queue_id int, class_id int, rank int) LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    IF EXISTS (SELECT FROM siding.pauses p JOIN siding.resources r ON r.kind = p.kind AND r.resource_id = p.subject_id
               WHERE p.subject_id = p_line AND p.kind IN ('agent', 'lock')) THEN
        RETURN;
    END IF;

    RETURN QUERY
    SELECT c.id, c.position, s.queue_id, s.class_id,
           coalesce(array_position(p_listed, s.queue_id), cardinality(p_listed) + 1)
    FROM siding.streams s
    CROSS JOIN LATERAL (
        (SELECT o.id, o.position FROM siding.orders o
         WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id
           AND o.candidate AND NOT o.late
           AND o.position >= p_floor
           AND (p_barrier IS NULL OR (o.position, o.id) < (p_barrier, p_barrier_id))
           AND (p_paused IS NULL OR o.step_id <> ALL (p_paused))
           AND (p_skip = '{}' OR o.id <> ALL (p_skip))
         ORDER BY o.position, o.id LIMIT p_n)
        UNION ALL
        (SELECT o.id, o.position FROM siding.orders o
         WHERE o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id
           AND o.candidate AND o.late
           AND (p_barrier IS NULL OR (o.position, o.id) < (p_barrier, p_barrier_id))
           AND (p_paused IS NULL OR o.step_id <> ALL (p_paused))
           AND (p_skip = '{}' OR o.id <> ALL (p_skip))
         ORDER BY o.position, o.id LIMIT p_n)
        UNION ALL
        -- Behind the barrier of a strict line only what has started goes on.
        (SELECT o.id, o.position FROM siding.orders o
         WHERE p_barrier IS NOT NULL
           AND o.line_id = s.line_id AND o.class_id = s.class_id AND o.queue_id = s.queue_id
           AND o.candidate AND o.started_at IS NOT NULL
           AND (o.position, o.id) > (p_barrier, p_barrier_id)
           AND (p_paused IS NULL OR o.step_id <> ALL (p_paused))
           AND (p_skip = '{}' OR o.id <> ALL (p_skip))
         ORDER BY o.position, o.id LIMIT p_n)
    ) c
    WHERE s.line_id = p_line
      -- At a lock the class is the weight, 0 for exclusive; what could never fit is no candidate.
      AND (p_capacity IS NULL OR s.class_id <= p_capacity)
      AND NOT EXISTS (SELECT FROM siding.pauses p WHERE p.kind = 'queue' AND p.subject_id = s.queue_id)
    ORDER BY c.position, c.id;
END $$;
COMMENT ON FUNCTION siding.pick_candidates(int, int, int, bigint, bigint, bigint, int[], bigint[], int[]) IS 'Heads of the streams of a line.';
