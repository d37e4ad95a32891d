-- Intake: gives committed orders their place in their key and at their first resource. One at a time, so that arrival within
-- a key follows the ids of what is committed; whoever finds it busy leaves it to the other one, unless told to wait.
--
-- Returns the lines that gained a candidate, and how many orders were placed.
CREATE OR REPLACE FUNCTION siding.intake(p_limit int, p_wait boolean DEFAULT false, OUT placed int, OUT lines int[]) LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_ids      bigint[];
    v_hashes   bigint[];
    v_spaces   int[];
    v_keys     text[];
    v_arrivals bigint[];
    v_held     boolean[];
    v_at_locks bigint[];
BEGIN
    placed := 0;
    lines := '{}';
    IF p_wait THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(siding.channel() || '/intake', 0));
    ELSIF NOT pg_try_advisory_xact_lock(hashtextextended(siding.channel() || '/intake', 0)) THEN
        RETURN;
    END IF;
    -- What decides about the place never changes, so it is read once, before any lock.
    SELECT array_agg(id ORDER BY id), array_agg(key_hash ORDER BY id), array_agg(key_space_id ORDER BY id), array_agg(key ORDER BY id)
    INTO v_ids, v_hashes, v_spaces, v_keys
    FROM (SELECT id, key_hash, key_space_id, key FROM siding.orders WHERE intake_closed ORDER BY id LIMIT p_limit) o;
    placed := coalesce(cardinality(v_ids), 0);
    IF placed = 0 THEN
        RETURN;
    END IF;

    IF EXISTS (SELECT FROM siding.lock_needs) THEN
        PERFORM siding.lock_resources_of(v_ids);
    END IF;
    PERFORM siding.lock_stripes(v_hashes);
    SELECT array_agg(nextval('siding.key_arrivals')) INTO v_arrivals FROM generate_series(1, placed);

    -- The first of a key that has no live order yet is its head.
    WITH new AS (
        SELECT id, key_hash, key_space_id, key, v_arrivals[n] AS arrival,
               key IS NOT NULL AND row_number() OVER (PARTITION BY key_space_id, key ORDER BY n) = 1 AS first_in_batch
        FROM unnest(v_ids, v_hashes, v_spaces, v_keys) WITH ORDINALITY AS x (id, key_hash, key_space_id, key, n)
    ), judged AS (
        SELECT new.*,
               key IS NULL OR first_in_batch AND NOT EXISTS (
                   SELECT FROM siding.orders p
                   WHERE p.key_hash = new.key_hash AND p.key_arrival IS NOT NULL
                     AND p.key_space_id = new.key_space_id AND p.key = new.key) AS head
        FROM new
    )
    SELECT array_agg(id ORDER BY id), array_agg(CASE WHEN key IS NOT NULL THEN arrival END ORDER BY id), array_agg(NOT head ORDER BY id)
    INTO v_ids, v_arrivals, v_held FROM judged;

    WITH opened AS (
        UPDATE siding.orders o
        SET intake_closed = false,
            key_arrival   = v_arrivals[width_bucket(o.id, v_ids)],
            key_closed    = v_held[width_bucket(o.id, v_ids)],
            ready_at      = siding.clock()
        WHERE o.id = ANY (v_ids) AND o.intake_closed IS TRUE
        RETURNING o.id, o.line_id, o.class_id, o.queue_id, o.candidate, o.lock_closed
    ), stream AS (
        INSERT INTO siding.streams (line_id, class_id, queue_id)
        SELECT DISTINCT line_id, class_id, queue_id FROM opened p
        WHERE NOT EXISTS (SELECT FROM siding.streams x WHERE (x.line_id, x.class_id, x.queue_id) = (p.line_id, p.class_id, p.queue_id))
        ON CONFLICT DO NOTHING
    )
    SELECT coalesce(array_agg(DISTINCT line_id) FILTER (WHERE candidate), '{}'), array_agg(id ORDER BY id) FILTER (WHERE lock_closed)
    INTO lines, v_at_locks FROM opened;

    -- Those that begin inside a lock block stand at its first lock.
    FOR i IN 1 .. coalesce(cardinality(v_at_locks), 0) LOOP
        lines := lines || siding.stand_in_line(v_at_locks[i]);
    END LOOP;
    lines := siding.grant_locks(lines);
END $$;
COMMENT ON FUNCTION siding.intake(int, boolean) IS 'Places up to p_limit committed orders in their keys and lines.';
