-- Sessions: one run of an agent process each.

CREATE OR REPLACE FUNCTION siding.open_session(
    p_agent text, p_processes int, p_previous bigint, p_host text, p_pid int, OUT session_id bigint, OUT agent_id int, OUT lines int[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT r.resource_id INTO agent_id FROM siding.resources r
    WHERE r.kind = 'agent' AND r.name = p_agent AND r.removed_at IS NULL AND r.agent_type <> 'cluster';
    IF agent_id IS NULL THEN
        PERFORM siding.refuse(404, 'unknown_agent', format('there is no agent %s', p_agent),
                              'Apply its definition first: kind: agent, name, processes.');
    END IF;
    lines := '{}';
    IF p_previous > 0 AND EXISTS (SELECT FROM siding.sessions s WHERE s.session_id = p_previous AND s.agent_id = open_session.agent_id) THEN
        lines := siding.end_session(p_previous, 'replaced');
    END IF;
    INSERT INTO siding.sessions (agent_id, processes, host, pid, opened_at, heartbeat_at)
    VALUES (agent_id, p_processes, p_host, p_pid, siding.clock(), siding.clock())
    RETURNING sessions.session_id INTO session_id;
END $$;
COMMENT ON FUNCTION siding.open_session(text, int, bigint, text, int) IS 'Opens a session; ends the previous one that is named, whose orders are lost.';

-- Ends a session; what it still runs is lost. FOR UPDATE, so that no claim (FOR KEY SHARE) is under way for it.
CREATE OR REPLACE FUNCTION siding.end_session(p_session bigint, p_reason text) RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_agent  int;
    v_name   text;
    v_hashes bigint[];
    v_order  record;
    v_lines  int[] := '{}';
    v_count  int := 0;
BEGIN
    SELECT s.agent_id INTO v_agent FROM siding.sessions s WHERE s.session_id = p_session AND s.ended_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN v_lines;
    END IF;
    UPDATE siding.sessions SET ended_at = siding.clock(), end_reason = p_reason WHERE session_id = p_session;

    PERFORM siding.lock_resources_of(ARRAY(SELECT id FROM siding.orders
        WHERE agent_id = v_agent AND state = 'running' AND session_id = p_session));
    SELECT array_agg(key_hash) INTO v_hashes FROM siding.orders
    WHERE agent_id = v_agent AND state = 'running' AND session_id = p_session;
    PERFORM siding.lock_stripes(v_hashes);
    FOR v_order IN
        SELECT id, lease_no FROM siding.orders
        WHERE agent_id = v_agent AND state = 'running' AND session_id = p_session
        ORDER BY id FOR UPDATE
    LOOP
        v_lines := v_lines || siding.end_attempt(v_order.id, v_order.lease_no, p_session,
            CASE WHEN p_reason = 'closed' THEN 'stopped' ELSE 'lost' END, NULL, NULL, NULL);
        v_count := v_count + 1;
    END LOOP;
    SELECT name INTO v_name FROM siding.resources WHERE resource_id = v_agent;
    PERFORM siding.record(NULL, 'session_' || p_reason, v_name, NULL, NULL,
                          jsonb_build_object('session', p_session, 'orders', v_count));
    -- Processes came free, and other members of its clusters may be called.
    RETURN siding.grant_locks(v_lines || v_agent || ARRAY(SELECT cluster_id FROM siding.cluster_members WHERE agent_id = v_agent));
END $$;
COMMENT ON FUNCTION siding.end_session(bigint, text) IS 'Ends a session for a reason: closed, replaced or lost.';

-- A sign of life. Returns null when the session has ended; otherwise which running attempts to stop and which leases of
-- the request it doesn't hold any more.
CREATE OR REPLACE FUNCTION siding.heartbeat(
    p_session bigint, p_orders bigint[], p_leases bigint[], p_draining boolean DEFAULT false,
    OUT alive boolean, OUT stop_orders bigint[], OUT stop_leases bigint[], OUT stop_reasons text[], OUT gone int[]
) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_new bigint[];
BEGIN
    UPDATE siding.sessions SET heartbeat_at = siding.clock(), draining = p_draining WHERE session_id = p_session AND ended_at IS NULL;
    alive := FOUND;
    IF NOT alive THEN
        RETURN;
    END IF;
    SELECT array_agg(h.n::int) FILTER (WHERE o.id IS NULL), array_agg(h.order_id ORDER BY h.order_id) FILTER (WHERE NOT o.acknowledged)
    INTO gone, v_new
    FROM unnest(p_orders, p_leases) WITH ORDINALITY AS h (order_id, lease_no, n)
    LEFT JOIN LATERAL (
        SELECT o.id, o.acknowledged FROM siding.orders o
        WHERE o.id = h.order_id AND (o.lease_no = h.lease_no AND o.session_id = p_session AND o.state = 'running') IS TRUE OFFSET 0) o ON true;
    IF v_new IS NOT NULL THEN
        UPDATE siding.orders o SET acknowledged = true
        WHERE o.id = ANY (v_new) AND (o.session_id = p_session AND o.state = 'running') IS TRUE;
    END IF;

    SELECT array_agg(o.id), array_agg(o.lease_no), array_agg(CASE o.stop WHEN 'cancel' THEN 'cancel' ELSE 'suspend' END)
    INTO stop_orders, stop_leases, stop_reasons
    FROM siding.orders o
    WHERE o.session_id = p_session AND o.state = 'running' AND o.stop IS NOT NULL AND o.stop <> 'suspend';
END $$;
COMMENT ON FUNCTION siding.heartbeat(bigint, bigint[], bigint[], boolean) IS 'Keeps a session and acknowledges its leases.';
