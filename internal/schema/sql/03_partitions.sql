-- Monthly partitions of the append-only tables. A partition is created LIKE its parent with a CHECK and then attached: a
-- plain CREATE TABLE ... PARTITION OF takes a lock that stalls every insert behind one long reader.
CREATE OR REPLACE FUNCTION siding.ensure_partitions(p_months_ahead int DEFAULT 3) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_parent text;
    v_column text;
    v_name   text;
    v_from   timestamptz;
    v_to     timestamptz;
    v_made   int := 0;
BEGIN
    FOR v_parent, v_column IN
        VALUES ('inputs', 'added_at'), ('outcomes', 'ended_at'), ('runs', 'ended_at'), ('step_outputs', 'ended_at'),
               ('output_text', 'written_at'), ('events', 'at')
    LOOP
        -- One month back as well: a transaction that began before midnight of the first may end after it.
        FOR i IN -1 .. p_months_ahead LOOP
            v_from := date_trunc('month', siding.clock() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
            v_from := ((v_from AT TIME ZONE 'UTC') + make_interval(months => i)) AT TIME ZONE 'UTC';
            v_to   := ((v_from AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC';
            v_name := v_parent || '_' || to_char(v_from AT TIME ZONE 'UTC', 'YYYY_MM');
            CONTINUE WHEN to_regclass(format('siding.%I', v_name)) IS NOT NULL;
            EXECUTE format('CREATE TABLE siding.%I (LIKE siding.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name, v_parent);
            EXECUTE format('ALTER TABLE siding.%I ADD CONSTRAINT %I CHECK (%I >= %L AND %I < %L)',
                           v_name, v_name || '_bounds', v_column, v_from, v_column, v_to);
            EXECUTE format('ALTER TABLE siding.%I ATTACH PARTITION siding.%I FOR VALUES FROM (%L) TO (%L)',
                           v_parent, v_name, v_from, v_to);
            EXECUTE format('ALTER TABLE siding.%I DROP CONSTRAINT %I', v_name, v_name || '_bounds');
            v_made := v_made + 1;
        END LOOP;
    END LOOP;
    RETURN v_made;
END $$;
COMMENT ON FUNCTION siding.ensure_partitions(int) IS 'Makes the partitions of last month, this one and the months ahead; returns how many were made.';

SELECT siding.ensure_partitions(3);
