-- Lets a role read the reports, and nothing else: the views run with their owner's rights. Views that later versions add are
-- readable too, if the same role installs them.
CREATE OR REPLACE FUNCTION siding.grant_report(p_role text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA siding_report TO %I', p_role);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA siding_report TO %I', p_role);
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA siding_report GRANT SELECT ON TABLES TO %I', p_role);
END $$;
COMMENT ON FUNCTION siding.grant_report(text) IS 'Lets a role read all views of siding_report.';
