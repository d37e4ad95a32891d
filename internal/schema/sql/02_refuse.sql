-- Refusals: SQLSTATE class SD, whose last three digits are the HTTP status; the stable code travels in CONSTRAINT.
CREATE OR REPLACE FUNCTION siding.refuse(p_status int, p_code text, p_message text, p_hint text DEFAULT NULL, p_detail text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'SD' || p_status,
        CONSTRAINT = p_code,
        MESSAGE = p_message,
        HINT = coalesce(p_hint, ''),
        DETAIL = coalesce(p_detail, '');
END $$;
COMMENT ON FUNCTION siding.refuse(int, text, text, text, text) IS 'Refuses: raises with a stable code; nothing of the transaction''s statement stays.';

-- Every decision of a person needs a name and a reason.
CREATE OR REPLACE FUNCTION siding.require_reason(p_person text, p_reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(btrim(p_reason), '') = '' THEN
        PERFORM siding.refuse(422, 'reason_required', 'a reason is required', 'Say why; it is recorded for ever.');
    END IF;
    IF coalesce(btrim(p_person), '') = '' THEN
        PERFORM siding.refuse(422, 'reason_required', 'who decides must be named', 'Say who; it is recorded for ever.');
    END IF;
END $$;
COMMENT ON FUNCTION siding.require_reason(text, text) IS 'Refuses an empty reason or person.';

-- A duration such as 90s, 15m, 1h30m, 24h, 2d, 250ms. Null for anything else.
CREATE OR REPLACE FUNCTION siding.duration(p_text text) RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_text ~ '^([0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h|d))+$' THEN (
        SELECT sum(m[1]::double precision * CASE m[2]
                       WHEN 'ms' THEN interval '1 millisecond'
                       WHEN 's'  THEN interval '1 second'
                       WHEN 'm'  THEN interval '1 minute'
                       WHEN 'h'  THEN interval '1 hour'
                       WHEN 'd'  THEN interval '24 hours' END)
        FROM regexp_matches(p_text, '([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)', 'g') AS m)
    END
$$;
COMMENT ON FUNCTION siding.duration(text) IS 'A duration such as 90s, 15m, 1h30m or 2d; null if the text is none.';

CREATE OR REPLACE FUNCTION siding.is_name(p_text text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT p_text ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'
$$;
COMMENT ON FUNCTION siding.is_name(text) IS 'Whether the text may name a definition or an attachment.';

-- Records what happened.
CREATE OR REPLACE FUNCTION siding.record(
    p_order bigint, p_kind text, p_subject text DEFAULT NULL, p_person text DEFAULT NULL, p_reason text DEFAULT NULL,
    p_detail jsonb DEFAULT '{}'
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO siding.events (at, order_id, kind, subject, person, reason, detail)
    VALUES (siding.clock(), p_order, p_kind, p_subject, p_person, p_reason, coalesce(p_detail, '{}'))
$$;
COMMENT ON FUNCTION siding.record(bigint, text, text, text, text, jsonb) IS 'Appends an event.';
