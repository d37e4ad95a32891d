-- Recovery: sessions that went silent, leases that never arrived.

-- A tick of the sweepers of any replica. A longer gap than p_max_gap (an outage of the database or of all controllers)
-- begins the time anew that a silent session is given.
CREATE OR REPLACE FUNCTION siding.tick(p_max_gap interval) RETURNS void LANGUAGE sql AS $$
    INSERT INTO siding.keeper_ticks AS t (last_tick_at, unbroken_since) VALUES (siding.clock(), siding.clock())
    ON CONFLICT (one) DO UPDATE
    SET last_tick_at = greatest(t.last_tick_at, excluded.last_tick_at),
        unbroken_since = CASE WHEN excluded.last_tick_at - t.last_tick_at > p_max_gap THEN excluded.last_tick_at ELSE t.unbroken_since END
$$;
COMMENT ON FUNCTION siding.tick(interval) IS 'Records that sweepers are at work.';

-- Sessions silent for a whole TTL during which sweepers ticked without a break.
CREATE OR REPLACE FUNCTION siding.silent_sessions(p_ttl interval) RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    SELECT s.session_id FROM siding.sessions s CROSS JOIN siding.keeper_ticks t
    WHERE s.ended_at IS NULL AND greatest(s.heartbeat_at, t.unbroken_since) + p_ttl <= siding.clock()
    ORDER BY s.session_id
$$;
COMMENT ON FUNCTION siding.silent_sessions(interval) IS 'Sessions that are lost.';

CREATE OR REPLACE FUNCTION siding.lose_sessions(p_ttl interval) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_session bigint;
    v_lines   int[] := '{}';
BEGIN
    FOR v_session IN SELECT s FROM siding.silent_sessions(p_ttl) AS s LIMIT 10 LOOP
        -- Look again under the row's lock: a heartbeat may have come in between.
        PERFORM 1 FROM siding.sessions WHERE session_id = v_session FOR UPDATE;
        IF v_session IN (SELECT s FROM siding.silent_sessions(p_ttl) AS s) THEN
            v_lines := v_lines || siding.end_session(v_session, 'lost');
        END IF;
    END LOOP;
    RETURN v_lines;
END $$;
COMMENT ON FUNCTION siding.lose_sessions(interval) IS 'Ends silent sessions; their orders are lost.';

-- Leases that no heartbeat ever named go back, not counted as an attempt. Looks at up to p_limit claims and says how many.
CREATE OR REPLACE FUNCTION siding.return_unacknowledged(p_limit int, p_after interval, OUT looked_at int, OUT lines int[]) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_claim record;
    v_lease record;
    v_lines int[];
BEGIN
    looked_at := 0;
    lines := '{}';
    FOR v_claim IN
        SELECT session_id, request_id, order_ids, lease_nos FROM siding.claims
        WHERE NOT settled AND claimed_at + p_after <= siding.clock()
        ORDER BY claimed_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM siding.lock_resources_of(v_claim.order_ids);
        PERFORM siding.lock_stripes(ARRAY(SELECT key_hash FROM siding.orders WHERE id = ANY (v_claim.order_ids)));
        FOR v_lease IN
            SELECT o.id, o.lease_no FROM unnest(v_claim.order_ids, v_claim.lease_nos) AS l (id, lease_no)
            CROSS JOIN LATERAL (
                SELECT o.* FROM siding.orders o
                WHERE o.id = l.id AND (o.lease_no = l.lease_no AND o.session_id = v_claim.session_id AND o.state = 'running'
                                       AND NOT o.acknowledged) IS TRUE OFFSET 0) o
            ORDER BY o.id
        LOOP
            v_lines := siding.end_attempt(v_lease.id, v_lease.lease_no, v_claim.session_id, 'handed_back', NULL, 'never acknowledged', NULL);
            IF v_lines IS NOT NULL THEN
                lines := lines || v_lines;
            END IF;
        END LOOP;
        UPDATE siding.claims SET settled = true WHERE (session_id, request_id) = (v_claim.session_id, v_claim.request_id);
        looked_at := looked_at + 1;
    END LOOP;
    lines := siding.grant_locks(lines);
END $$;
COMMENT ON FUNCTION siding.return_unacknowledged(int, interval) IS 'Gives leases back that no heartbeat named within the time.';

-- Answers that no agent asks for again any more.
CREATE OR REPLACE FUNCTION siding.forget_claims() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_forgotten int;
BEGIN
    DELETE FROM siding.claims WHERE settled AND claimed_at + interval '10 minutes' <= siding.clock();
    GET DIAGNOSTICS v_forgotten = ROW_COUNT;
    RETURN v_forgotten;
END $$;
COMMENT ON FUNCTION siding.forget_claims() IS 'Deletes claims that were settled and are ten minutes old; returns how many.';
