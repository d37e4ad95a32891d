-- Evaluates a key template over arguments: {a} and {a.b} are argument paths, everything else stands for itself.
-- Null where a part is missing, null, empty, or not a string, number or boolean. internal/definition has the same rule in
-- Go for `validate`; a test holds the two together.
CREATE OR REPLACE FUNCTION siding.key_from(p_template text, p_args jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    v_piece text[];
    v_key   text := '';
    v_value jsonb;
    v_name  text;
    v_part  text;
BEGIN
    FOR v_piece IN SELECT regexp_matches(p_template, '([^{}]+)|\{([^{}]+)\}', 'g') LOOP
        IF v_piece[1] IS NOT NULL THEN
            v_key := v_key || v_piece[1];
        ELSE
            -- By name only: a list has no members here.
            v_value := p_args;
            FOREACH v_name IN ARRAY string_to_array(v_piece[2], '.') LOOP
                v_value := v_value -> v_name;
            END LOOP;
            v_part := CASE jsonb_typeof(v_value)
                          WHEN 'string' THEN v_value #>> '{}'
                          WHEN 'number' THEN v_value::text
                          WHEN 'boolean' THEN v_value::text
                      END;
            IF coalesce(v_part, '') = '' THEN
                RETURN NULL;
            END IF;
            v_key := v_key || v_part;
        END IF;
    END LOOP;
    RETURN v_key;
END $$;
COMMENT ON FUNCTION siding.key_from(text, jsonb) IS 'The key that a template gives for arguments; null if a part is missing.';

CREATE OR REPLACE FUNCTION siding.key_hash(p_key_space int, p_key text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended(p_key, p_key_space)
$$;
COMMENT ON FUNCTION siding.key_hash(int, text) IS 'Hash of a key in its space; equal hashes are always checked against the key itself.';

-- Locks the stripes of keys, in order. Whoever changes which orders of a key may start does so first.
CREATE OR REPLACE FUNCTION siding.lock_stripes(p_hashes bigint[]) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_stripes int[] := ARRAY(SELECT DISTINCT (h & 65535)::int FROM unnest(p_hashes) AS h WHERE h IS NOT NULL ORDER BY 1);
BEGIN
    PERFORM 1 FROM siding.key_stripes WHERE stripe = ANY (v_stripes) ORDER BY stripe FOR UPDATE;
END $$;
COMMENT ON FUNCTION siding.lock_stripes(bigint[]) IS 'Locks the stripe rows of key hashes, sorted.';

-- Brings the key gates of some keys up to date, after an order of each ended, stopped being active, was placed or
-- released. The caller holds their stripes.
--
-- Eligible are the head (the earliest arrival that isn't final) and the released ones; their gate is closed only while
-- another order of the key is active: started, its gate open, waiting or running. Everybody else's gate stays closed.
--
-- On the shape of these statements, and of all that touch many orders: a plan is made once and kept, perhaps while the table
-- was empty. Joins of orders with a list of ids are then easily turned round, and read the table once per element. So rows
-- are fetched by LATERAL with OFFSET 0, which cannot be turned, or by id = ANY (sorted ids) without a join, where
-- width_bucket finds a row's place in the list by binary search.
CREATE OR REPLACE FUNCTION siding.settle_keys(p_hashes bigint[], p_spaces int[], p_keys text[])
RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids       bigint[];
    v_closed    boolean[];
    v_contested boolean[];
    v_lines     int[] := '{}';
BEGIN
    LOOP
        WITH keys AS (
            SELECT DISTINCT hash, space, key
            FROM unnest(p_hashes, p_spaces, p_keys) AS k (hash, space, key)
            WHERE hash IS NOT NULL
        ), eligible AS (
            SELECT k.hash, k.space, k.key, head.id
            FROM keys k CROSS JOIN LATERAL (
                SELECT o.id FROM siding.orders o
                WHERE o.key_hash = k.hash AND o.key_arrival IS NOT NULL AND o.key_space_id = k.space AND o.key = k.key
                ORDER BY o.key_arrival LIMIT 1) head
            UNION
            SELECT k.hash, k.space, k.key, o.id
            FROM keys k CROSS JOIN LATERAL (
                SELECT o.id FROM siding.orders o
                WHERE o.key_hash = k.hash AND o.key_space_id = k.space AND o.key = k.key AND o.released OFFSET 0) o
        ), ranked AS (
            SELECT e.space, e.key, e.id,
                   o.started_at IS NOT NULL AND o.state IN ('waiting', 'running') AS startable,
                   o.state = 'running' AS running, o.key_closed, o.key_contested, o.position
            FROM eligible e CROSS JOIN LATERAL (SELECT o.* FROM siding.orders o WHERE o.id = e.id OFFSET 0) o
        ), gates AS (
            -- The active order is the one that runs or, started before, waits with its gate open; if there is none, the first
            -- started one takes the place.
            SELECT id, key_closed, key_contested,
                   coalesce(first_value(CASE WHEN startable THEN id END) OVER w <> id, false) AS closed,
                   count(*) OVER (PARTITION BY space, key) > 1 AS contested
            FROM ranked
            WINDOW w AS (PARTITION BY space, key ORDER BY startable DESC, running DESC, key_closed, position, id)
        )
        SELECT array_agg(id ORDER BY id), array_agg(closed ORDER BY id), array_agg(contested ORDER BY id)
        INTO v_ids, v_closed, v_contested
        FROM gates WHERE (key_closed, key_contested) IS DISTINCT FROM (closed, contested);
        EXIT WHEN v_ids IS NULL;

        WITH changed AS (
            UPDATE siding.orders o
            SET key_closed    = v_closed[width_bucket(o.id, v_ids)],
                key_contested = v_contested[width_bucket(o.id, v_ids)],
                late          = true,
                ready_at      = CASE WHEN o.started_at IS NULL AND o.key_closed AND NOT v_closed[width_bucket(o.id, v_ids)]
                                     THEN siding.clock() ELSE o.ready_at END
            WHERE o.id = ANY (v_ids)
            RETURNING o.line_id, o.candidate
        )
        SELECT v_lines || array_agg(DISTINCT line_id) FILTER (WHERE candidate) INTO v_lines FROM changed;
        -- Of several that may start, a claim under way may have started one before the update got its row: then the gates
        -- must be settled by what is so now. A claim that comes later sees that they are contested.
        EXIT WHEN true <> ALL (v_contested);
    END LOOP;
    RETURN v_lines;
END $$;
COMMENT ON FUNCTION siding.settle_keys(bigint[], int[], text[]) IS 'Opens and closes key gates as the facts say; returns the lines that gained a candidate.';

-- The usual end of an order with a key: it was the head and the only one of its key that might start, so the next to arrive
-- takes its place. The caller holds the stripes; arrivals are those of the orders that ended.
CREATE OR REPLACE FUNCTION siding.promote_successors(p_hashes bigint[], p_spaces int[], p_keys text[], p_arrivals bigint[])
RETURNS int[] LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids   bigint[];
    v_lines int[];
BEGIN
    SELECT array_agg(next.id ORDER BY next.id) INTO v_ids
    FROM unnest(p_hashes, p_spaces, p_keys, p_arrivals) AS k (hash, space, key, arrival)
    CROSS JOIN LATERAL (
        SELECT o.id FROM siding.orders o
        WHERE o.key_hash = k.hash AND o.key_arrival > k.arrival AND o.key_space_id = k.space AND o.key = k.key
        ORDER BY o.key_arrival LIMIT 1) next;
    WITH changed AS (
        UPDATE siding.orders o
        SET key_closed = false, late = true,
            ready_at = CASE WHEN o.started_at IS NULL THEN siding.clock() ELSE o.ready_at END
        WHERE o.id = ANY (v_ids)
        RETURNING o.line_id, o.candidate
    )
    SELECT array_agg(DISTINCT line_id) FILTER (WHERE candidate) INTO v_lines FROM changed;
    RETURN coalesce(v_lines, '{}');
END $$;
COMMENT ON FUNCTION siding.promote_successors(bigint[], int[], text[], bigint[]) IS 'Opens the gate of the next order of each key whose head has ended; returns the lines that gained a candidate.';
