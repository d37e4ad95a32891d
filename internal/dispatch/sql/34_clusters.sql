-- Clusters: an agent serves its own line and those of the clusters whose highest priority alive it has. All limits hold at
-- every moment: the agent's (what runs on it), the cluster's (what runs in its line) and its director's (what runs in all
-- clusters that it leads together).

-- Locks the rows of all limits that hold for an agent and returns the lines that it serves now: its own and its clusters'.
CREATE OR REPLACE FUNCTION siding.lock_limits(p_agent int) RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_lines int[] := ARRAY[p_agent];
BEGIN
    PERFORM 1 FROM siding.resources r
    WHERE r.resource_id IN (
        SELECT p_agent
        UNION SELECT m.cluster_id FROM siding.cluster_members m WHERE m.agent_id = p_agent
        UNION SELECT c.director_id FROM siding.cluster_members m JOIN siding.resources c ON c.resource_id = m.cluster_id
              WHERE m.agent_id = p_agent)
    ORDER BY r.kind, r.name FOR UPDATE;
    IF EXISTS (SELECT FROM siding.cluster_members m WHERE m.agent_id = p_agent) THEN
        SELECT p_agent || coalesce(array_agg(m.cluster_id ORDER BY c.name), '{}') INTO v_lines
        FROM siding.cluster_members m JOIN siding.resources c ON c.resource_id = m.cluster_id
        WHERE m.agent_id = p_agent AND c.removed_at IS NULL AND m.priority = siding.serving_priority(m.cluster_id);
    END IF;
    PERFORM 1 FROM siding.job_classes k
    WHERE k.class_id IN (SELECT s.class_id FROM siding.streams s WHERE s.line_id = ANY (v_lines) AND s.class_id > 0)
    ORDER BY k.class_id FOR UPDATE;
    RETURN v_lines;
END $$;
COMMENT ON FUNCTION siding.lock_limits(int) IS 'Locks what limits an agent; returns the lines that it serves.';

-- The priority of the members that get a cluster's work: the highest of those alive. Draining isn't alive.
CREATE OR REPLACE FUNCTION siding.serving_priority(p_cluster int) RETURNS int LANGUAGE sql STABLE AS $$
    SELECT max(m.priority) FROM siding.cluster_members m
    WHERE m.cluster_id = p_cluster
      AND EXISTS (SELECT FROM siding.sessions s WHERE s.agent_id = m.agent_id AND s.ended_at IS NULL AND NOT s.draining)
$$;
COMMENT ON FUNCTION siding.serving_priority(int) IS 'Priority of the members that get a cluster''s work now; null if none is alive.';

-- How many orders of a line run, on whatever agent.
CREATE OR REPLACE FUNCTION siding.line_use(p_line int) RETURNS int LANGUAGE sql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT coalesce(sum(n), 0)::int
    FROM siding.resources a CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM siding.orders o WHERE o.agent_id = a.resource_id AND o.state = 'running' AND o.line_id = p_line) r
    WHERE a.kind = 'agent'
$$;
COMMENT ON FUNCTION siding.line_use(int) IS 'Orders of a line that run.';

-- The next picks over several lines: each time the line whose own next pick has the lowest position, as far as its limits
-- go; only that line books. A line's picks don't depend on the other lines, so each gives its own in order and they are
-- merged. books has, per line that was picked from, what siding.book needs.
CREATE OR REPLACE FUNCTION siding.pick_of_lines(
    p_agent int, p_lines int[], p_n int, p_skip bigint[], OUT ids bigint[], OUT books jsonb
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_line      int;
    v_cluster   record;
    v_left      int[] := '{}';      -- per line, processes left of its own limit
    v_directors int[] := '{}';      -- per line, its director or 0
    v_director_left jsonb := '{}';
    v_pick      record;
    v_all       bigint[] := '{}';   -- picks of all lines, line by line
    v_positions bigint[] := '{}';
    v_classes   int[] := '{}';
    v_class_left jsonb := '{}';     -- processes left of each job limit that occurs
    v_class     text;
    v_next      int[] := '{}';      -- per line, index of its next pick in v_all
    v_end       int[] := '{}';
    v_taken     int[] := '{}';
    v_picks     jsonb[] := '{}';
    v_choice    int;
BEGIN
    ids := '{}';
    books := '[]';
    FOREACH v_line IN ARRAY p_lines LOOP
        SELECT r.processes, coalesce(r.director_id, 0) AS director, d.processes AS director_processes INTO v_cluster
        FROM siding.resources r LEFT JOIN siding.resources d ON d.resource_id = r.director_id
        WHERE r.resource_id = v_line;
        -- The agent's own limit is the caller's business.
        v_left := v_left || CASE WHEN v_line = p_agent OR v_cluster.processes IS NULL THEN p_n
                                 ELSE greatest(v_cluster.processes - siding.line_use(v_line), 0) END;
        v_directors := v_directors || v_cluster.director;
        IF v_cluster.director > 0 AND v_cluster.director_processes IS NOT NULL AND NOT v_director_left ? v_cluster.director::text THEN
            v_director_left := v_director_left || jsonb_build_object(v_cluster.director::text, greatest(v_cluster.director_processes - (
                SELECT coalesce(sum(siding.line_use(c.resource_id)), 0)
                FROM siding.resources c WHERE c.director_id = v_cluster.director AND c.agent_type = 'cluster'), 0));
        END IF;
        SELECT * INTO v_pick FROM siding.pick(v_line, least(p_n, v_left[cardinality(v_left)]), p_skip);
        v_next := v_next || (cardinality(v_all) + 1);
        v_all := v_all || v_pick.ids;
        v_positions := v_positions || ARRAY(SELECT o.position FROM unnest(v_pick.ids) WITH ORDINALITY AS p (id, n)
                                            CROSS JOIN LATERAL (SELECT o.position FROM siding.orders o WHERE o.id = p.id OFFSET 0) o ORDER BY p.n);
        v_classes := v_classes || ARRAY(SELECT o.class_id FROM unnest(v_pick.ids) WITH ORDINALITY AS p (id, n)
                                        CROSS JOIN LATERAL (SELECT o.class_id FROM siding.orders o WHERE o.id = p.id OFFSET 0) o ORDER BY p.n);
        v_end := v_end || (cardinality(v_all) + 1);
        v_taken := v_taken || 0;
        v_picks := v_picks || to_jsonb(v_pick);
    END LOOP;

    -- Each line kept the jobs' own limits for itself; over all of them they are kept here.
    IF EXISTS (SELECT FROM unnest(v_classes) AS c WHERE c > 0) THEN
        SELECT jsonb_object_agg(k.class_id, k.processes - (
                   SELECT count(*) FROM siding.orders o WHERE o.state = 'running' AND o.class_id = k.class_id AND o.class_id > 0))
        INTO v_class_left
        FROM siding.job_classes k
        WHERE k.class_id = ANY (v_classes) AND k.processes IS NOT NULL;
    END IF;

    FOR i IN 1 .. p_n LOOP
        v_choice := NULL;
        FOR l IN 1 .. cardinality(p_lines) LOOP
            CONTINUE WHEN v_next[l] >= v_end[l] OR v_left[l] <= 0
                OR v_directors[l] > 0 AND (v_director_left ->> v_directors[l]::text)::int <= 0
                -- What follows in the line was picked as if this one were; it waits for the next claim.
                OR (v_class_left ->> v_classes[v_next[l]]::text)::int <= 0;
            IF v_choice IS NULL
               OR (v_positions[v_next[l]], v_all[v_next[l]]) < (v_positions[v_next[v_choice]], v_all[v_next[v_choice]]) THEN
                v_choice := l;
            END IF;
        END LOOP;
        EXIT WHEN v_choice IS NULL;
        ids := ids || v_all[v_next[v_choice]];
        v_class := v_classes[v_next[v_choice]]::text;
        IF v_class_left ? v_class THEN
            v_class_left := jsonb_set(v_class_left, ARRAY[v_class], to_jsonb((v_class_left ->> v_class)::int - 1));
        END IF;
        v_next[v_choice] := v_next[v_choice] + 1;
        v_taken[v_choice] := v_taken[v_choice] + 1;
        v_left[v_choice] := v_left[v_choice] - 1;
        IF v_directors[v_choice] > 0 AND v_director_left ? v_directors[v_choice]::text THEN
            v_director_left := jsonb_set(v_director_left, ARRAY[v_directors[v_choice]::text],
                to_jsonb((v_director_left ->> v_directors[v_choice]::text)::int - 1));
        END IF;
    END LOOP;
    FOR l IN 1 .. cardinality(p_lines) LOOP
        IF v_taken[l] > 0 THEN
            books := books || jsonb_build_array(v_picks[l] || jsonb_build_object('line', p_lines[l], 'taken', v_taken[l]));
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION siding.pick_of_lines(int, int[], int, bigint[]) IS 'The next picks of an agent over the lines that it serves.';

-- Books the picks that were taken, each at its line.
CREATE OR REPLACE FUNCTION siding.book_of_lines(p_ids bigint[], p_leases bigint[], p_books jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_book  jsonb;
    v_ids   bigint[];
    v_taken int;
BEGIN
    FOR v_book IN SELECT value FROM jsonb_array_elements(p_books) LOOP
        CONTINUE WHEN jsonb_array_length(v_book -> 'listed') = 0;
        v_taken := (v_book ->> 'taken')::int;
        v_ids := (ARRAY(SELECT e::bigint FROM jsonb_array_elements_text(v_book -> 'ids') WITH ORDINALITY AS x (e, n) ORDER BY n))[1:v_taken];
        PERFORM siding.book(
            (v_book ->> 'line')::int, v_ids,
            ARRAY(SELECT p_leases[array_position(p_ids, id)] FROM unnest(v_ids) WITH ORDINALITY AS x (id, n) ORDER BY n),
            ARRAY(SELECT e::int FROM jsonb_array_elements_text(v_book -> 'queue_ids') WITH ORDINALITY AS x (e, n) ORDER BY n),
            ARRAY(SELECT e::boolean FROM jsonb_array_elements_text(v_book -> 'waived') WITH ORDINALITY AS x (e, n) ORDER BY n),
            ARRAY(SELECT e::int FROM jsonb_array_elements_text(v_book -> 'listed') WITH ORDINALITY AS x (e, n) ORDER BY n),
            ARRAY(SELECT e::int FROM jsonb_array_elements_text(v_book -> 'served') WITH ORDINALITY AS x (e, n) ORDER BY n),
            ARRAY(SELECT e::int FROM jsonb_array_elements_text(v_book -> 'penalty_left') WITH ORDINALITY AS x (e, n) ORDER BY n));
    END LOOP;
END $$;
COMMENT ON FUNCTION siding.book_of_lines(bigint[], bigint[], jsonb) IS 'Books picks over several lines.';
