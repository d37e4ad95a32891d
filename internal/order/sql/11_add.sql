-- Adding orders. Takes no lock on a resource, line, key or other order, so that a caller's open transaction holds up nobody
-- (the one exception is asked for: two transactions that add the same reference).
--
-- Orders with a key, and the first ones of a (line, limit, queue) that has no stream yet, are inserted with the intake gate
-- closed; siding.intake gives them their place after the commit. Also where the controller itself adds: placing in the same
-- transaction would hold the locks of all keys of a call for as long as its rows are written, and reports would wait.

-- What is wrong with a list of expected attachments; null if nothing is.
CREATE OR REPLACE FUNCTION siding.attachments_problem(p_attachments jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_item jsonb;
    v_seen text[] := '{}';
BEGIN
    IF jsonb_typeof(p_attachments) IS DISTINCT FROM 'array' THEN
        RETURN 'attachments must be a list';
    END IF;
    IF jsonb_array_length(p_attachments) > 1000 THEN
        RETURN 'more than 1000 attachments';
    END IF;
    FOR v_item IN SELECT value FROM jsonb_array_elements(p_attachments) LOOP
        IF jsonb_typeof(v_item) <> 'object' THEN
            RETURN 'an attachment must be an object';
        END IF;
        IF v_item - '{name,size,sha256,content}'::text[] <> '{}' THEN
            RETURN format('unknown field of an attachment: %s', (SELECT k FROM jsonb_object_keys(v_item - '{name,size,sha256,content}'::text[]) AS k LIMIT 1));
        END IF;
        IF jsonb_typeof(v_item -> 'name') IS DISTINCT FROM 'string' OR NOT siding.is_name(v_item ->> 'name') THEN
            RETURN format('%s is no attachment name (letters, digits, ".", "_", "-"; at most 128)', coalesce((v_item -> 'name')::text, 'nothing'));
        END IF;
        IF v_item ->> 'name' = ANY (v_seen) THEN
            RETURN format('attachment %s is listed twice', v_item ->> 'name');
        END IF;
        v_seen := v_seen || (v_item ->> 'name');
        IF v_item ? 'size' AND (jsonb_typeof(v_item -> 'size') <> 'number' OR (v_item ->> 'size') !~ '^[0-9]{1,18}$') THEN
            RETURN format('size of attachment %s must be a whole number of bytes', v_item ->> 'name');
        END IF;
        IF v_item ? 'sha256' AND (jsonb_typeof(v_item -> 'sha256') <> 'string' OR (v_item ->> 'sha256') !~ '^[0-9a-fA-F]{64}$') THEN
            RETURN format('sha256 of attachment %s must be 64 hexadecimal digits', v_item ->> 'name');
        END IF;
        IF v_item ? 'content' THEN
            IF jsonb_typeof(v_item -> 'content') <> 'string' OR (v_item ->> 'content') !~ '^[A-Za-z0-9+/]*={0,2}$'
               OR length(v_item ->> 'content') % 4 <> 0 THEN
                RETURN format('content of attachment %s must be base64', v_item ->> 'name');
            END IF;
            IF v_item ? 'size' AND octet_length(decode(v_item ->> 'content', 'base64')) <> (v_item ->> 'size')::bigint THEN
                RETURN format('content of attachment %s has %s bytes, not %s', v_item ->> 'name',
                              octet_length(decode(v_item ->> 'content', 'base64')), v_item ->> 'size');
            END IF;
            IF v_item ? 'sha256' AND encode(sha256(decode(v_item ->> 'content', 'base64')), 'hex') <> lower(v_item ->> 'sha256') THEN
                RETURN format('content of attachment %s does not have the sha256 given', v_item ->> 'name');
            END IF;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION siding.attachments_problem(jsonb) IS 'What is wrong with a list of expected attachments; null if nothing.';

-- A due time: RFC 3339 or a duration from now. Null for anything else.
CREATE OR REPLACE FUNCTION siding.due_time(p_text text, p_now timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_text ~ '^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)$' THEN
        RETURN p_text::timestamptz;
    END IF;
    RETURN p_now + siding.duration(p_text);
EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format OR interval_field_overflow THEN
    RETURN NULL;
END $$;
COMMENT ON FUNCTION siding.due_time(text, timestamptz) IS 'An instant in RFC 3339 or a duration from now; null if the text is neither.';

-- Claims references for the elements that have one. Returns, per element, the order that has the reference already (same
-- content), or null. Refuses another content.
CREATE OR REPLACE FUNCTION siding.claim_references(p_orders jsonb, p_ids bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_existing bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]);
    v_row record;
BEGIN
    INSERT INTO siding.order_references (ref, order_id, content_hash)
    SELECT e ->> 'ref', p_ids[n], sha256(convert_to(e::text, 'UTF8'))
    FROM jsonb_array_elements(p_orders) WITH ORDINALITY AS x (e, n)
    -- What is no reference is refused with the rest of what is wrong.
    WHERE jsonb_typeof(e -> 'ref') = 'string' AND length(e ->> 'ref') BETWEEN 1 AND 256
    ORDER BY e ->> 'ref'
    ON CONFLICT (ref) DO NOTHING;

    FOR v_row IN
        SELECT n::int AS n, e ->> 'ref' AS ref, r.order_id, r.content_hash <> sha256(convert_to(e::text, 'UTF8')) AS differs
        FROM jsonb_array_elements(p_orders) WITH ORDINALITY AS x (e, n)
        JOIN siding.order_references r ON r.ref = e ->> 'ref'
        WHERE r.order_id <> p_ids[n]
        ORDER BY n
    LOOP
        IF v_row.differs THEN
            PERFORM siding.refuse(409, 'reference_conflict',
                format('orders[%s]: reference %s belongs to order %s, which was added with other content', v_row.n - 1, v_row.ref, v_row.order_id),
                'Use another reference, or add the same content again.',
                jsonb_build_object('index', v_row.n - 1, 'ref', v_row.ref, 'order', v_row.order_id)::text);
        END IF;
        v_existing[v_row.n] := v_row.order_id;
    END LOOP;
    RETURN v_existing;
END $$;
COMMENT ON FUNCTION siding.claim_references(jsonb, bigint[]) IS 'Takes references for new orders; tells which exist already.';

-- Says what is wrong with one element of a call.
CREATE OR REPLACE FUNCTION siding.refuse_order(p_index int, p_problem text, p_order jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at     text := format('orders[%s]: ', p_index);
    v_detail text := jsonb_build_object('index', p_index, 'ref', p_order -> 'ref')::text;
BEGIN
    CASE p_problem
        WHEN 'not_an_object' THEN
            PERFORM siding.refuse(422, 'invalid_order', v_at || 'an order must be an object', 'Give at least {"workflow": "NAME"}.', v_detail);
        WHEN 'unknown_field' THEN
            PERFORM siding.refuse(422, 'invalid_order',
                v_at || format('unknown field %I', (SELECT k FROM jsonb_object_keys(p_order - '{workflow,ref,key,queue,due,args,wait_limit,attachments}'::text[]) AS k LIMIT 1)),
                'Known fields: workflow, ref, key, queue, due, args, wait_limit, attachments.', v_detail);
        WHEN 'unknown_workflow' THEN
            PERFORM siding.refuse(422, 'unknown_workflow', v_at || format('there is no workflow %s', coalesce((p_order -> 'workflow')::text, '(none given)')),
                'Apply the workflow first; `controller list workflow` shows what is there.', v_detail);
        WHEN 'unknown_queue' THEN
            PERFORM siding.refuse(422, 'unknown_queue', v_at || format('there is no queue %s', p_order -> 'queue'),
                'Apply the queue first, or leave "queue" out.', v_detail);
        WHEN 'key_not_allowed' THEN
            PERFORM siding.refuse(422, 'key_not_allowed', v_at || format('workflow %s takes no key from its orders', p_order ->> 'workflow'),
                'Leave "key" out, or give the workflow "ordering: {key: order}".', v_detail);
        WHEN 'key_required' THEN
            PERFORM siding.refuse(422, 'key_required', v_at || format('workflow %s needs a key and this order gives none, or an empty part of one', p_order ->> 'workflow'),
                coalesce((SELECT format('The key is "%s": give these arguments, as text or numbers (given: %s).', v.key_template,
                                        coalesce((SELECT string_agg(k, ', ') FROM jsonb_object_keys(
                                            CASE jsonb_typeof(p_order -> 'args') WHEN 'object' THEN p_order -> 'args' ELSE '{}' END) AS k), 'none'))
                          FROM siding.workflows w JOIN siding.workflow_versions v ON v.version_id = w.current_version_id
                          WHERE w.name = p_order ->> 'workflow' AND v.key_template IS NOT NULL), 'Give "key".'), v_detail);
        WHEN 'invalid_key' THEN
            PERFORM siding.refuse(422, 'invalid_key', v_at || 'the key has more than 256 bytes', 'Use a shorter key, for example a hash.', v_detail);
        WHEN 'key_type' THEN
            PERFORM siding.refuse(422, 'invalid_order', v_at || 'key must be a string', 'Write it in quotes.', v_detail);
        WHEN 'ref' THEN
            PERFORM siding.refuse(422, 'invalid_order', v_at || 'ref must be a string of 1 to 256 characters', NULL, v_detail);
        WHEN 'args' THEN
            PERFORM siding.refuse(422, 'invalid_order', v_at || 'args must be an object', NULL, v_detail);
        WHEN 'args_size' THEN
            PERFORM siding.refuse(422, 'invalid_order', v_at || format('args have %s; at most 1 MiB', pg_size_pretty(pg_column_size(p_order -> 'args')::bigint)),
                'Every agent that runs a step gets them whole: give large data as an attachment.', v_detail);
        WHEN 'due' THEN
            PERFORM siding.refuse(422, 'invalid_order', v_at || format('due %s is neither an instant (RFC 3339) nor a duration from now', p_order -> 'due'),
                'For example "2030-01-31T08:00:00Z" or "15m".', v_detail);
        WHEN 'wait_limit' THEN
            PERFORM siding.refuse(422, 'invalid_order', v_at || format('wait_limit %s is no duration', p_order -> 'wait_limit'),
                'For example "15m" or "24h"; negative ones make no sense.', v_detail);
        ELSE
            PERFORM siding.refuse(422, 'invalid_attachment', v_at || p_problem, 'See docs/api.md, Attachments.', v_detail);
    END CASE;
END $$;
COMMENT ON FUNCTION siding.refuse_order(int, text, jsonb) IS 'Refuses one order of a call with a clear message.';

CREATE OR REPLACE FUNCTION siding.add_orders(
    p_orders jsonb,
    p_person text DEFAULT NULL,
    p_notify boolean DEFAULT true
) RETURNS TABLE (ordinal int, order_id bigint, existing boolean, line_id int, needs_intake boolean)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now      timestamptz := siding.clock();
    v_person   text := coalesce(p_person, session_user);
    v_count    int;
    v_ids      bigint[];
    v_existing bigint[];
    v_inline   record;
BEGIN
    IF jsonb_typeof(p_orders) IS DISTINCT FROM 'array' THEN
        PERFORM siding.refuse(422, 'invalid_order', 'a list of orders is expected', 'Pass a JSON array of objects, each with at least "workflow".');
    END IF;
    v_count := jsonb_array_length(p_orders);
    IF v_count = 0 THEN
        RETURN;
    END IF;
    IF v_count > 10000 THEN
        PERFORM siding.refuse(413, 'too_many_orders', format('%s orders in one call; at most 10000', v_count), 'Split the call.');
    END IF;
    IF jsonb_path_exists(p_orders, 'strict $[*] ? (@.type() != "object")') THEN
        PERFORM siding.refuse_order(n::int - 1, 'not_an_object', e)
        FROM jsonb_array_elements(p_orders) WITH ORDINALITY AS x (e, n) WHERE jsonb_typeof(e) <> 'object' ORDER BY n LIMIT 1;
    END IF;

    -- The transaction's id is drawn before any position is (siding.raise_floors relies on it), and the numbers in the
    -- order of the call.
    PERFORM pg_current_xact_id();
    SELECT array_agg(nextval('siding.order_numbers')) INTO v_ids FROM generate_series(1, v_count);

    IF jsonb_path_exists(p_orders, '$[*].ref') THEN
        v_existing := siding.claim_references(p_orders, v_ids);
    END IF;

    RETURN QUERY
    WITH given AS (
        SELECT n::int AS n, e, args, v_ids[n] AS id, v_existing[n] AS existing_id,
               x.ref, x.given_key, x.due, x.own_limit_text, x.own_attachments,
               v.version_id, v.ordering, v.key_space_id, v.first_step_id, v.wait_limit AS default_limit,
               s.line_id, s.class_id, s.lock_path, p.subject_id IS NOT NULL AS paused, t.line_id IS NULL AS no_stream,
               coalesce(q.queue_id, 0) AS queue_id, q.queue_id IS NULL AND x.queue IS NOT NULL AS no_queue,
               CASE v.ordering
                   WHEN 'strict' THEN '*'
                   WHEN 'key_from_order' THEN given_key
                   WHEN 'key_template' THEN siding.key_from(v.key_template, args)
               END AS key,
               CASE WHEN due IS NOT NULL THEN siding.due_time(due, v_now) END AS due_at,
               CASE WHEN own_limit_text IS NOT NULL THEN siding.duration(own_limit_text) END AS own_limit,
               CASE WHEN jsonb_typeof(own_attachments) = 'array' THEN own_attachments ELSE v.attachments END AS attachments
        FROM ROWS FROM (
            jsonb_array_elements(p_orders),
            jsonb_to_recordset(p_orders) AS (workflow text, ref text, "key" text, queue text, due text, wait_limit text, args jsonb, attachments jsonb)
        ) WITH ORDINALITY AS x (e, workflow, ref, given_key, queue, due, own_limit_text, args, own_attachments, n)
        LEFT JOIN siding.workflows w ON w.name = x.workflow AND w.removed_at IS NULL
        LEFT JOIN siding.workflow_versions v ON v.version_id = w.current_version_id
        LEFT JOIN siding.steps s ON s.step_id = v.first_step_id
        LEFT JOIN siding.queues q ON q.name = x.queue AND q.removed_at IS NULL
        LEFT JOIN siding.pauses p ON p.kind = 'workflow' AND p.subject_id = w.workflow_id
        LEFT JOIN siding.streams t ON (t.line_id, t.class_id, t.queue_id) = (s.line_id, s.class_id, coalesce(q.queue_id, 0))
    ), judged AS (
        SELECT g.*,
               CASE
                   WHEN e - '{workflow,ref,key,queue,due,args,wait_limit,attachments}'::text[] <> '{}' THEN 'unknown_field'
                   WHEN version_id IS NULL THEN 'unknown_workflow'
                   WHEN no_queue THEN 'unknown_queue'
                   WHEN given_key IS NOT NULL AND ordering <> 'key_from_order' THEN 'key_not_allowed'
                   WHEN given_key IS NOT NULL AND jsonb_typeof(e -> 'key') <> 'string' THEN 'key_type'
                   WHEN ordering <> 'independent' AND coalesce(key, '') = '' THEN 'key_required'
                   WHEN octet_length(key) > 256 THEN 'invalid_key'
                   WHEN ref IS NOT NULL AND (jsonb_typeof(e -> 'ref') <> 'string' OR length(ref) NOT BETWEEN 1 AND 256) THEN 'ref'
                   WHEN args IS NOT NULL AND jsonb_typeof(args) NOT IN ('object', 'null') THEN 'args'
                   WHEN pg_column_size(args) > 1048576 THEN 'args_size'
                   WHEN due IS NOT NULL AND (jsonb_typeof(e -> 'due') <> 'string' OR due_at IS NULL) THEN 'due'
                   WHEN own_limit_text IS NOT NULL AND (jsonb_typeof(e -> 'wait_limit') <> 'string' OR own_limit IS NULL) THEN 'wait_limit'
                   WHEN own_attachments IS NOT NULL AND own_attachments <> 'null' THEN siding.attachments_problem(own_attachments)
               END AS problem
        FROM given g
    ), checked AS MATERIALIZED (
        SELECT n, id, existing_id, version_id, key_space_id, first_step_id, line_id, class_id, lock_path, paused, no_stream, queue_id, key,
               due_at, attachments, ref, args, coalesce(own_limit, default_limit) AS wait_limit,
               attachments <> '[]' AND jsonb_path_exists(attachments, '$[*] ? (!exists(@.content))') AS blocked,
               CASE WHEN problem IS NOT NULL THEN siding.refuse_order(n - 1, problem, e) END AS refused
        FROM judged j
    ), fresh AS (
        SELECT * FROM checked WHERE existing_id IS NULL
    ), live AS (
        INSERT INTO siding.orders (id, position, added_at, ready_at, due_at, wait_deadline, key_hash, key_space_id, key,
                                   step_id, line_id, class_id, queue_id,
                                   intake_closed, due_closed, attachment_closed, key_closed, lock_closed, pause_closed, has_attachments)
        SELECT id, id << 20, v_now, v_now, due_at,
               CASE WHEN blocked THEN greatest(v_now, due_at) + wait_limit END,
               siding.key_hash(key_space_id, key), CASE WHEN key IS NOT NULL THEN key_space_id END, key,
               first_step_id, line_id, class_id, queue_id,
               key IS NOT NULL OR lock_path IS NOT NULL OR no_stream,
               coalesce(due_at > v_now, false), blocked, key IS NOT NULL, lock_path IS NOT NULL, paused, attachments <> '[]'
        FROM fresh f
        RETURNING orders.id, orders.line_id, orders.intake_closed
    ), input AS (
        INSERT INTO siding.inputs (order_id, added_at, ref, added_by, wait_limit, args)
        SELECT id, v_now, ref, v_person, wait_limit, nullif(args, 'null')
        FROM fresh
    ), expected AS (
        INSERT INTO siding.attachments (order_id, name, expected_size, expected_sha256, added_at, changed_at)
        SELECT f.id, a ->> 'name', (a ->> 'size')::bigint, decode(a ->> 'sha256', 'hex'), v_now, v_now
        FROM fresh f CROSS JOIN LATERAL jsonb_array_elements(f.attachments) AS a
        WHERE f.attachments <> '[]'
    ), told AS (
        SELECT count(pg_notify(siding.channel(), t.topic)) AS topics
        FROM (SELECT DISTINCT CASE WHEN l.intake_closed THEN 'intake' ELSE r.kind || '/' || r.name END AS topic
              FROM live l JOIN siding.resources r ON r.resource_id = l.line_id
              WHERE p_notify) t
    )
    SELECT c.n, coalesce(c.existing_id, c.id), c.existing_id IS NOT NULL, c.line_id, coalesce(l.intake_closed, false)
    FROM checked c LEFT JOIN live l ON l.id = c.id
    WHERE (SELECT topics FROM told) >= 0;

    IF jsonb_path_exists(p_orders, '$[*].attachments[*].content') THEN
        FOR v_inline IN
            SELECT v_ids[n] AS id, a ->> 'name' AS name, decode(a ->> 'content', 'base64') AS bytes
            FROM jsonb_array_elements(p_orders) WITH ORDINALITY AS x (e, n)
            CROSS JOIN LATERAL jsonb_array_elements(nullif(e -> 'attachments', 'null')) AS a
            WHERE a ? 'content' AND v_existing[n] IS NULL
        LOOP
            PERFORM siding.store_inline(v_inline.id, v_inline.name, v_inline.bytes);
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION siding.add_orders(jsonb, text, boolean) IS
'Adds orders in the caller''s transaction: a JSON array of {workflow, ref, key, queue, due, args, wait_limit, attachments}. All or none. p_notify: wake the controllers at commit (they poll as well). Returns one row per element, in no particular order.';
