-- Who goes next at a resource, as a question and not as a pick: the same candidates and the same rule (siding.pick_candidates,
-- siding.apply_rule), but no row is locked and nothing is booked. What siding.pick leaves out besides, rows that another
-- transaction has locked at that moment, lasts for milliseconds and is nothing to tell people about.

-- The first p_n candidates of every stream of a resource's line, by position. Left out are also those whose job limit is
-- used up. rank is the precedence of the order's queue; others come behind the listed ones.
CREATE OR REPLACE FUNCTION siding.candidates(p_resource int, p_n int)
RETURNS TABLE (id bigint, "position" bigint, queue_id int, class_id int, rank int) LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_resource   siding.resources;
    v_floor      bigint;
    v_strict     boolean;
    v_barrier    bigint;
    v_barrier_id bigint;
    v_paused     int[];
    v_listed     int[];
    v_full       int[] := '{}';   -- job limits that are used up
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
    SELECT coalesce(array_agg(rq.queue_id ORDER BY rq.rank), '{}') INTO v_listed
    FROM siding.resource_queues rq WHERE rq.resource_id = p_resource;
    IF v_resource.kind = 'agent' THEN
        SELECT coalesce(array_agg(DISTINCT s.class_id), '{}') INTO v_full
        FROM siding.streams s WHERE s.line_id = p_resource AND s.class_id > 0 AND siding.job_limit_used_up(s.class_id);
    END IF;

    RETURN QUERY
    SELECT c.id, c.position, c.queue_id, c.class_id, c.rank
    FROM siding.pick_candidates(p_resource, v_resource.capacity, p_n, v_floor, v_barrier, v_barrier_id, v_paused, '{}', v_listed) c
    WHERE c.class_id <> ALL (v_full)
    ORDER BY c.position, c.id;
END $$;
COMMENT ON FUNCTION siding.candidates(int, int) IS 'The first candidates of each stream of a line, by position; locks nothing.';

CREATE OR REPLACE FUNCTION siding.job_limit_used_up(p_class int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT k.processes IS NOT NULL AND k.processes <= (
               SELECT count(*) FROM (SELECT FROM siding.orders o
                                     WHERE o.state = 'running' AND o.class_id = k.class_id AND o.class_id > 0 LIMIT k.processes) r)
    FROM siding.job_classes k WHERE k.class_id = p_class
$$;
COMMENT ON FUNCTION siding.job_limit_used_up(int) IS 'Whether as many orders of a job run as its own limit allows.';

-- What the rule would pick now, and what the queue of p_queue has to wait for. A pick that a lock has stored is not looked at.
CREATE OR REPLACE FUNCTION siding.next_pick(
    p_resource int, p_queue int DEFAULT 0, OUT order_id bigint, OUT queue_id int, OUT rank int, OUT penalty_left int
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_listed   int[];
    v_capacity int[];
    v_penalty  int[];
    v_ids      bigint[];
    v_ranks    int[];
    v_queues   int[];
    v_classes  int[];
    v_left     int[];
    v_rule     record;
BEGIN
    SELECT coalesce(array_agg(q.queue_id ORDER BY rq.rank), '{}'), coalesce(array_agg(q.capacity ORDER BY rq.rank), '{}'),
           coalesce(array_agg(q.penalty ORDER BY rq.rank), '{}')
    INTO v_listed, v_capacity, v_penalty
    FROM siding.resource_queues rq JOIN siding.queues q ON q.queue_id = rq.queue_id
    WHERE rq.resource_id = p_resource;
    SELECT n.penalty_left INTO v_left FROM siding.numbers(p_resource, v_listed, v_capacity, v_penalty) n;
    penalty_left := coalesce(v_left[array_position(v_listed, p_queue)], 0);

    SELECT array_agg(c.id ORDER BY c.rank, c.position, c.id), array_agg(c.rank ORDER BY c.rank, c.position, c.id),
           array_agg(c.queue_id ORDER BY c.rank, c.position, c.id), array_agg(c.class_id ORDER BY c.rank, c.position, c.id)
    INTO v_ids, v_ranks, v_queues, v_classes
    FROM siding.candidates(p_resource, 1) c;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    -- The job limits were looked at already; at a lock the class is a weight.
    SELECT * INTO v_rule
    FROM siding.apply_rule(p_resource, 1, v_listed, v_capacity, v_penalty, v_ids, v_ranks, v_queues, NULL);
    order_id := v_rule.ids[1];
    queue_id := v_rule.queue_ids[1];
    rank := coalesce(array_position(v_listed, queue_id), cardinality(v_listed) + 1);
END $$;
COMMENT ON FUNCTION siding.next_pick(int, int) IS 'The order that the rule would pick next at a resource, and the penalty that a queue has left there; locks nothing.';

-- The process limit that keeps a line from starting anything: its agent's, or that of its live sessions together; of a
-- cluster its own, its director's, or that of all members whose turn it is. Null if none is used up.
CREATE OR REPLACE FUNCTION siding.used_up_limit(p_line int, OUT subject text, OUT processes int, OUT running int) LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_line siding.resources;
    v_free boolean := false;
BEGIN
    SELECT * INTO v_line FROM siding.resources r WHERE r.resource_id = p_line;
    IF v_line.agent_type <> 'cluster' THEN
        SELECT v_line.name, u.processes, u.running INTO subject, processes, running
        FROM siding.process_use(p_line) u WHERE u.running >= u.processes;
        RETURN;
    END IF;

    SELECT v_line.name, v_line.processes, count(*) INTO subject, processes, running
    FROM siding.cluster_members m JOIN siding.orders o ON o.agent_id = m.agent_id
    WHERE m.cluster_id = p_line AND o.state = 'running' AND o.line_id = p_line
    HAVING count(*) >= v_line.processes;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT d.name, d.processes, u.running INTO subject, processes, running
    FROM siding.resources d CROSS JOIN LATERAL (
        SELECT count(*)::int AS running
        FROM siding.resources c JOIN siding.cluster_members m ON m.cluster_id = c.resource_id
        JOIN siding.orders o ON o.agent_id = m.agent_id AND o.line_id = c.resource_id
        WHERE c.director_id = d.resource_id AND o.state = 'running') u
    WHERE d.resource_id = v_line.director_id AND u.running >= d.processes;
    IF FOUND THEN
        RETURN;
    END IF;
    -- The members with the highest priority among those alive, whose turn it is.
    SELECT bool_or(u.processes IS NULL OR u.running < u.processes), v_line.name, sum(u.processes), sum(u.running)
    INTO v_free, subject, processes, running
    FROM (SELECT m.agent_id, m.priority, max(m.priority) OVER () AS highest
          FROM siding.cluster_members m
          WHERE m.cluster_id = p_line
            AND EXISTS (SELECT FROM siding.sessions s WHERE s.agent_id = m.agent_id AND s.ended_at IS NULL)) m
    CROSS JOIN LATERAL siding.process_use(m.agent_id) u
    WHERE m.priority = m.highest;
    IF v_free IS NOT FALSE THEN
        subject := NULL;
        processes := NULL;
        running := NULL;
    END IF;
END $$;
COMMENT ON FUNCTION siding.used_up_limit(int) IS 'The process limit that keeps a line from starting an order now; null if none does.';

-- How many processes an agent may run at once, its own limit and that of its live sessions, and how many it runs (counted
-- up to the limit). No limit: null.
CREATE OR REPLACE FUNCTION siding.process_use(p_agent int, OUT processes int, OUT running int) LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    SELECT least(r.processes, (SELECT sum(s.processes) FROM siding.sessions s WHERE s.agent_id = p_agent AND s.ended_at IS NULL))
    INTO processes FROM siding.resources r WHERE r.resource_id = p_agent;
    SELECT count(*) INTO running
    FROM (SELECT FROM siding.orders o WHERE o.agent_id = p_agent AND o.state = 'running' LIMIT processes) o;
END $$;
COMMENT ON FUNCTION siding.process_use(int) IS 'Processes that an agent may run and does run.';

-- Whether a live session serves a line: one of its agent, of a cluster one of any member.
CREATE OR REPLACE FUNCTION siding.is_served(p_line int) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM siding.sessions s WHERE s.agent_id = p_line AND s.ended_at IS NULL)
        OR EXISTS (SELECT FROM siding.cluster_members m JOIN siding.sessions s ON s.agent_id = m.agent_id
                   WHERE m.cluster_id = p_line AND s.ended_at IS NULL)
$$;
COMMENT ON FUNCTION siding.is_served(int) IS 'Whether a live session serves a line.';
