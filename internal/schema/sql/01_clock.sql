-- The one clock. In production it is the statement's timestamp; siding.clock_late is that of a statement that may have waited
-- for a lock meanwhile and records what it found behind it. In a schema created for scenarios and tests it is an
-- instant that only moves when told; siding.set_clock refuses to work anywhere else.
DO $install$
BEGIN
    IF current_setting('siding.clock_kind') = 'scenario' THEN
        CREATE TABLE IF NOT EXISTS siding.scenario_clock (
            one     boolean PRIMARY KEY DEFAULT true CHECK (one),
            instant timestamptz NOT NULL
        );
        COMMENT ON TABLE siding.scenario_clock IS 'The instant a scenario stands at.';
        COMMENT ON COLUMN siding.scenario_clock.one IS 'There is one row.';
        COMMENT ON COLUMN siding.scenario_clock.instant IS 'Now.';
        INSERT INTO siding.scenario_clock (instant) VALUES (date_trunc('second', now())) ON CONFLICT DO NOTHING;

        CREATE OR REPLACE FUNCTION siding.clock() RETURNS timestamptz
            LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT instant FROM siding.scenario_clock';
        CREATE OR REPLACE FUNCTION siding.clock_late() RETURNS timestamptz
            LANGUAGE sql VOLATILE AS 'SELECT instant FROM siding.scenario_clock';
        CREATE OR REPLACE FUNCTION siding.jitter() RETURNS double precision
            LANGUAGE sql VOLATILE AS 'SELECT 0.0::double precision';
        CREATE OR REPLACE FUNCTION siding.set_clock(p_instant timestamptz) RETURNS void
            LANGUAGE sql AS 'UPDATE siding.scenario_clock SET instant = p_instant';
    ELSE
        CREATE OR REPLACE FUNCTION siding.clock() RETURNS timestamptz
            LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT statement_timestamp()';
        CREATE OR REPLACE FUNCTION siding.clock_late() RETURNS timestamptz
            LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';
        CREATE OR REPLACE FUNCTION siding.jitter() RETURNS double precision
            LANGUAGE sql VOLATILE AS 'SELECT random() * 0.1';
        CREATE OR REPLACE FUNCTION siding.set_clock(p_instant timestamptz) RETURNS void
            LANGUAGE plpgsql AS $f$
            BEGIN
                RAISE EXCEPTION 'this is a production schema: its clock cannot be set'
                    USING ERRCODE = 'SD409', CONSTRAINT = 'production_clock';
            END $f$;
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION siding.channel() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L',
                   format('SELECT %L::text', current_setting('siding.channel')));
END
$install$;

COMMENT ON FUNCTION siding.clock() IS 'Now, for everything that Siding decides or records.';
COMMENT ON FUNCTION siding.clock_late() IS 'Now, within a statement that has waited.';
COMMENT ON FUNCTION siding.jitter() IS 'A fraction between 0 and 0.1 that spreads retries; 0 in scenarios.';
COMMENT ON FUNCTION siding.set_clock(timestamptz) IS 'Moves the clock of a scenario schema.';
COMMENT ON FUNCTION siding.channel() IS 'The NOTIFY channel of this schema.';
