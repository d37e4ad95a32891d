-- Pauses: of a queue, an agent's line, a lock or a workflow, until a time or until resumed.

CREATE OR REPLACE FUNCTION siding.pause_subject(p_kind text, p_subject int) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE p_kind
        WHEN 'queue' THEN (SELECT name FROM siding.queues WHERE queue_id = p_subject)
        WHEN 'workflow' THEN (SELECT name FROM siding.workflows WHERE workflow_id = p_subject)
        ELSE (SELECT name FROM siding.resources WHERE resource_id = p_subject) END
$$;
COMMENT ON FUNCTION siding.pause_subject(text, int) IS 'Name of what is paused.';

CREATE OR REPLACE FUNCTION siding.lines_of_pause(p_kind text, p_subject int) RETURNS int[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(CASE p_kind
        WHEN 'queue' THEN (SELECT array_agg(DISTINCT line_id) FROM siding.streams WHERE queue_id = p_subject)
        WHEN 'workflow' THEN '{}'::int[]
        ELSE ARRAY[p_subject] END, '{}')
$$;
COMMENT ON FUNCTION siding.lines_of_pause(text, int) IS 'Lines that a pause concerns; those of a workflow come as its orders are unmarked.';

CREATE OR REPLACE FUNCTION siding.subject_named(p_kind text, p_name text) RETURNS int LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_id int;
BEGIN
    CASE p_kind
        WHEN 'queue' THEN SELECT queue_id INTO v_id FROM siding.queues WHERE name = p_name AND removed_at IS NULL;
        WHEN 'workflow' THEN SELECT workflow_id INTO v_id FROM siding.workflows WHERE name = p_name AND removed_at IS NULL;
        WHEN 'agent', 'lock' THEN SELECT resource_id INTO v_id FROM siding.resources WHERE kind = p_kind AND name = p_name AND removed_at IS NULL;
        ELSE PERFORM siding.refuse(422, 'invalid_pause', format('%s cannot be paused', coalesce(p_kind, '(nothing)')), 'One of: queue, agent, lock, workflow.');
    END CASE;
    IF v_id IS NULL THEN
        PERFORM siding.refuse(404, 'unknown_' || p_kind, format('there is no %s %s', p_kind, p_name), 'Check the name.');
    END IF;
    RETURN v_id;
END $$;
COMMENT ON FUNCTION siding.subject_named(text, text) IS 'Id of a queue, agent, lock or workflow.';

CREATE OR REPLACE FUNCTION siding.pause(p_kind text, p_name text, p_until timestamptz, p_person text, p_reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM siding.require_reason(p_person, p_reason);
    INSERT INTO siding.pauses (kind, subject_id, until, reason, person, since)
    VALUES (p_kind, siding.subject_named(p_kind, p_name), p_until, p_reason, p_person, siding.clock())
    ON CONFLICT (kind, subject_id) DO UPDATE SET until = excluded.until, reason = excluded.reason, person = excluded.person;
    PERFORM siding.record(NULL, 'pause', p_kind || '/' || p_name, p_person, p_reason, jsonb_build_object('until', p_until));
END $$;
COMMENT ON FUNCTION siding.pause(text, text, timestamptz, text, text) IS 'Pauses a queue, agent, lock or workflow.';

CREATE OR REPLACE FUNCTION siding.unpause(p_kind text, p_name text, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_id int := siding.subject_named(p_kind, p_name);
BEGIN
    DELETE FROM siding.pauses WHERE (kind, subject_id) = (p_kind, v_id);
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    PERFORM siding.record(NULL, 'unpause', p_kind || '/' || p_name, p_person, p_reason);
    RETURN siding.grant_locks(siding.lines_of_pause(p_kind, v_id));
END $$;
COMMENT ON FUNCTION siding.unpause(text, text, text, text) IS 'Ends a pause.';
