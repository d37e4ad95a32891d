-- The next picks of a resource, if each were to end at once and nothing else happened. They are found by doing it: picks,
-- bookings and ends are the real ones, so that the forecast can't differ from the rule. It leaves changes behind that must
-- never be committed; internal/forecast rolls them back.
--
-- What runs or is held now is set aside: it takes no process and no unit, and it doesn't end.
CREATE OR REPLACE FUNCTION siding.forecast(p_resource int, p_max int)
RETURNS TABLE (ordinal int, order_id bigint, queue_id int) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_resource siding.resources;
BEGIN
    SELECT * INTO v_resource FROM siding.resources r WHERE r.resource_id = p_resource FOR UPDATE;
    IF v_resource.kind = 'lock' THEN
        DELETE FROM siding.grants g WHERE g.lock_id = p_resource;
    ELSIF v_resource.processes = 0 THEN
        RETURN;
    ELSE
        UPDATE siding.orders o SET class_id = 0
        WHERE o.state = 'running' AND o.class_id > 0
          AND o.class_id IN (SELECT s.class_id FROM siding.streams s WHERE s.line_id = p_resource);
    END IF;
    FOR i IN 1 .. p_max LOOP
        order_id := CASE v_resource.kind WHEN 'lock' THEN siding.forecast_grant(p_resource) ELSE siding.forecast_start(p_resource) END;
        EXIT WHEN order_id IS NULL;
        ordinal := i;
        SELECT f.queue_id INTO queue_id FROM (
            SELECT o.queue_id FROM siding.orders o WHERE o.id = forecast.order_id
            UNION ALL
            SELECT x.queue_id FROM siding.outcomes x WHERE x.order_id = forecast.order_id) f;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION siding.forecast(int, int) IS 'The next picks of a resource if each were to end at once. Changes what it touches: only for a transaction that is rolled back.';

-- One start at an agent or a cluster, which then ends well. Null if there is no candidate.
CREATE OR REPLACE FUNCTION siding.forecast_start(p_agent int) RETURNS bigint LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_pick  record;
    v_skip  bigint[] := '{}';
    v_lease bigint;
BEGIN
    LOOP
        SELECT * INTO v_pick FROM siding.pick(p_agent, 1, v_skip);
        IF cardinality(v_pick.ids) = 0 THEN
            RETURN NULL;
        END IF;
        EXIT WHEN cardinality(siding.yield_contested(v_pick.ids)) = 0;
        v_skip := v_skip || v_pick.ids;
    END LOOP;
    v_lease := nextval('siding.lease_numbers');
    PERFORM siding.book(p_agent, v_pick.ids, ARRAY[v_lease], v_pick.queue_ids, v_pick.waived, v_pick.listed, v_pick.served, v_pick.penalty_left);
    UPDATE siding.orders o
    SET state = 'running', session_id = 0, agent_id = p_agent, lease_no = v_lease, leased_at = siding.clock(),
        started_at = coalesce(o.started_at, siding.clock()), attempt = o.attempt + 1
    WHERE o.id = v_pick.ids[1];
    PERFORM siding.grant_locks(siding.end_attempt(v_pick.ids[1], v_lease, 0, 'succeeded', NULL, NULL, NULL));
    RETURN v_pick.ids[1];
END $$;
COMMENT ON FUNCTION siding.forecast_start(int) IS 'Part of siding.forecast: one pick of an agent that ends at once.';

-- One grant of a lock, whose block then ends. Null if there is no candidate.
CREATE OR REPLACE FUNCTION siding.forecast_grant(p_lock int) RETURNS bigint LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_order bigint;
    v_last  int;
BEGIN
    SELECT n.order_id INTO v_order FROM siding.grant_next(p_lock) n;
    IF v_order IS NULL THEN
        RETURN NULL;
    END IF;
    -- The last step inside the block that holds the grant.
    SELECT s.step_id INTO v_last
    FROM siding.grants g
    JOIN siding.steps s ON s.version_id = g.version_id AND g.block_path = ANY (siding.lock_chain(s.lock_path))
    LEFT JOIN siding.steps n ON n.step_id = s.next_step_id
    WHERE g.lock_id = p_lock AND g.order_id = v_order AND g.block_path <> ALL (siding.lock_chain(n.lock_path));
    PERFORM siding.advance(v_order, v_last);
    RETURN v_order;
END $$;
COMMENT ON FUNCTION siding.forecast_grant(int) IS 'Part of siding.forecast: one grant of a lock that is given back at once.';
