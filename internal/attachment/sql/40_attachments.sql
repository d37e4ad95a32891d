-- Attachments: the facts of readiness. The bytes come in by Go (internal/attachment), which appends chunks to an upload and
-- then settles it here, in one transaction with the gate.

-- One more expected attachment, for an order that has not started.
CREATE OR REPLACE FUNCTION siding.expect_attachment(p_order bigint, p_item jsonb, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order   siding.orders;
    v_problem text := siding.attachments_problem(jsonb_build_array(p_item - 'content'));
BEGIN
    IF v_problem IS NOT NULL THEN
        PERFORM siding.refuse(422, 'invalid_attachment', v_problem, 'See docs/api.md, Attachments.');
    END IF;
    v_order := siding.take_order(p_order);
    IF v_order.state = 'running' THEN
        PERFORM siding.refuse(409, 'order_running', format('order %s runs', p_order), 'Attachments are added before the first start.');
    ELSIF v_order.started_at IS NOT NULL THEN
        PERFORM siding.refuse(409, 'order_started', format('order %s has started', p_order), 'Attachments are added before the first start.');
    END IF;
    INSERT INTO siding.attachments (order_id, name, expected_size, expected_sha256, added_at, changed_at)
    VALUES (p_order, p_item ->> 'name', (p_item ->> 'size')::bigint, decode(p_item ->> 'sha256', 'hex'), siding.clock(), siding.clock())
    ON CONFLICT (order_id, name) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM siding.refuse(409, 'attachment_exists', format('order %s expects an attachment %s already', p_order, p_item ->> 'name'), 'Use another name.');
    END IF;
    UPDATE siding.orders o
    SET has_attachments = true, attachment_closed = true, late = true,
        wait_deadline = coalesce(o.wait_deadline, greatest(siding.clock(), o.due_at) + i.wait_limit)
    FROM siding.inputs i WHERE o.id = p_order AND i.order_id = o.id AND i.added_at = o.added_at;
    PERFORM siding.record(p_order, 'attachment_expected', p_item ->> 'name', p_person, p_reason);
    RETURN siding.grant_locks(ARRAY[v_order.line_id]);
END $$;
COMMENT ON FUNCTION siding.expect_attachment(bigint, jsonb, text, text) IS 'Adds an expected attachment to an order that has not started.';

-- The attachment with its row locked; refuses what isn't there.
CREATE OR REPLACE FUNCTION siding.take_attachment(p_order bigint, p_name text) RETURNS siding.attachments LANGUAGE plpgsql AS $$
DECLARE
    v_row siding.attachments;
BEGIN
    SELECT * INTO v_row FROM siding.attachments WHERE order_id = p_order AND name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM siding.refuse(404, 'attachment_not_found', format('order %s expects no attachment %s', p_order, p_name),
                              'Only expected attachments are taken; add it to the order first.');
    END IF;
    RETURN v_row;
END $$;
COMMENT ON FUNCTION siding.take_attachment(bigint, text) IS 'Locks an attachment, or refuses.';

-- Whether bytes may come in: the order lives and the attachment isn't complete. Begins an upload.
CREATE OR REPLACE FUNCTION siding.begin_upload(p_order bigint, p_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_row    siding.attachments;
    v_upload bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM siding.orders WHERE id = p_order) THEN
        PERFORM siding.take_order(p_order);
    END IF;
    v_row := siding.take_attachment(p_order, p_name);
    IF v_row.state = 'complete' THEN
        PERFORM siding.refuse(409, 'attachment_complete', format('attachment %s of order %s is complete', p_name, p_order), 'Complete attachments are not replaced.');
    END IF;
    INSERT INTO siding.uploads (attachment_id, started_at, touched_at) VALUES (v_row.attachment_id, siding.clock(), siding.clock())
    RETURNING upload_id INTO v_upload;
    IF v_row.state IN ('pending', 'discarded') THEN
        UPDATE siding.attachments SET state = 'uploading', changed_at = siding.clock() WHERE attachment_id = v_row.attachment_id;
    END IF;
    RETURN v_upload;
END $$;
COMMENT ON FUNCTION siding.begin_upload(bigint, text) IS 'Begins an upload of an attachment that is not complete.';

-- Ends an upload that came to nothing: its bytes go.
CREATE OR REPLACE FUNCTION siding.abandon_upload(p_upload bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_attachment bigint;
BEGIN
    DELETE FROM siding.uploads WHERE upload_id = p_upload RETURNING attachment_id INTO v_attachment;
    DELETE FROM siding.upload_chunks WHERE upload_id = p_upload;
    UPDATE siding.attachments SET state = 'pending', changed_at = siding.clock()
    WHERE attachment_id = v_attachment AND state = 'uploading'
      AND NOT EXISTS (SELECT FROM siding.uploads u WHERE u.attachment_id = v_attachment);
END $$;
COMMENT ON FUNCTION siding.abandon_upload(bigint) IS 'Removes an upload that came to nothing.';

-- All bytes of an upload are there: the check. Complete opens the gate, if it was the last; failed turns the order to
-- attention. Settling twice changes nothing.
CREATE OR REPLACE FUNCTION siding.settle_upload(p_order bigint, p_name text, p_upload bigint, p_size bigint, p_sha256 bytea, OUT state siding.attachment_state, OUT lines int[])
LANGUAGE plpgsql AS $$
DECLARE
    v_row     siding.attachments;
    v_order   siding.orders;
    v_problem text;
BEGIN
    lines := '{}';
    v_order := siding.take_order(p_order);
    v_row := siding.take_attachment(p_order, p_name);
    IF v_row.state = 'complete' THEN
        state := v_row.state;
        IF v_row.upload_id IS DISTINCT FROM p_upload THEN
            PERFORM siding.refuse(409, 'attachment_complete', format('attachment %s of order %s is complete', p_name, p_order), 'Complete attachments are not replaced.');
        END IF;
        RETURN;
    END IF;
    IF v_row.expected_size IS NOT NULL AND v_row.expected_size <> p_size THEN
        v_problem := format('size: expected %s bytes, actual %s', v_row.expected_size, p_size);
    ELSIF v_row.expected_sha256 IS NOT NULL AND v_row.expected_sha256 <> p_sha256 THEN
        v_problem := format('sha256: expected %s, actual %s', encode(v_row.expected_sha256, 'hex'), encode(p_sha256, 'hex'));
    END IF;
    state := CASE WHEN v_problem IS NULL THEN 'complete' ELSE 'failed' END;
    UPDATE siding.attachments a
    SET state = settle_upload.state, size = p_size, sha256 = p_sha256, upload_id = p_upload, problem = v_problem,
        late = v_order.state = 'attention', changed_at = siding.clock()
    WHERE a.attachment_id = v_row.attachment_id;
    IF v_row.upload_id IS NOT NULL AND v_row.upload_id <> p_upload THEN
        DELETE FROM siding.upload_chunks WHERE upload_id = v_row.upload_id;
        DELETE FROM siding.uploads WHERE upload_id = v_row.upload_id;
    END IF;
    IF v_problem IS NOT NULL THEN
        PERFORM siding.record(p_order, 'attachment_failed', p_name, NULL, NULL, jsonb_build_object('problem', v_problem));
        IF v_order.state IN ('waiting', 'suspended') THEN
            lines := siding.grant_locks(siding.park(p_order, 'attention', 'attachment_check_failed',
                jsonb_build_object('attachment', p_name, 'problem', v_problem, 'expected_size', v_row.expected_size, 'size', p_size,
                                   'expected_sha256', encode(v_row.expected_sha256, 'hex'), 'sha256', encode(p_sha256, 'hex'))));
        END IF;
    ELSE
        PERFORM siding.record(p_order, 'attachment_complete', p_name, NULL, NULL, jsonb_build_object('size', p_size, 'late', v_order.state = 'attention'));
        lines := siding.open_attachment_gate(p_order);
    END IF;
END $$;
COMMENT ON FUNCTION siding.settle_upload(bigint, text, bigint, bigint, bytea) IS 'Checks a whole upload: complete, or failed and attention.';

-- Opens the gate if no expected attachment is missing. The caller holds the order.
CREATE OR REPLACE FUNCTION siding.open_attachment_gate(p_order bigint) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_line int;
BEGIN
    UPDATE siding.orders o
    SET attachment_closed = false, late = true,
        ready_at = CASE WHEN o.started_at IS NULL THEN siding.clock() ELSE o.ready_at END
    WHERE o.id = p_order AND o.attachment_closed
      AND NOT EXISTS (SELECT FROM siding.attachments a WHERE a.order_id = p_order AND a.state <> 'complete')
    RETURNING o.line_id INTO v_line;
    RETURN siding.grant_locks(CASE WHEN v_line IS NULL THEN '{}' ELSE ARRAY[v_line] END);
END $$;
COMMENT ON FUNCTION siding.open_attachment_gate(bigint) IS 'Opens the attachment gate if every attachment is complete.';

-- Marks complete what has neither a stated size nor a stated hash.
CREATE OR REPLACE FUNCTION siding.mark_attachment_complete(p_order bigint, p_name text, p_person text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order siding.orders := siding.take_order(p_order);
    v_row   siding.attachments := siding.take_attachment(p_order, p_name);
BEGIN
    IF v_row.state = 'complete' THEN
        RETURN '{}';
    END IF;
    IF v_row.expected_size IS NOT NULL OR v_row.expected_sha256 IS NOT NULL THEN
        PERFORM siding.refuse(409, 'attachment_needs_bytes', format('attachment %s of order %s states a size or hash', p_name, p_order),
                              'Upload its bytes; the check completes it.');
    END IF;
    UPDATE siding.attachments SET state = 'complete', late = v_order.state = 'attention', changed_at = siding.clock(), problem = NULL
    WHERE attachment_id = v_row.attachment_id;
    PERFORM siding.record(p_order, 'attachment_complete', p_name, p_person, NULL, jsonb_build_object('late', v_order.state = 'attention'));
    RETURN siding.open_attachment_gate(p_order);
END $$;
COMMENT ON FUNCTION siding.mark_attachment_complete(bigint, text, text) IS 'Completes an attachment without stated size and hash.';

-- Bytes given with the order itself. The content was checked before it was added.
CREATE OR REPLACE FUNCTION siding.store_inline(p_order bigint, p_name text, p_bytes bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_upload bigint;
BEGIN
    INSERT INTO siding.uploads (attachment_id, received, started_at, touched_at)
    SELECT attachment_id, octet_length(p_bytes), siding.clock(), siding.clock() FROM siding.attachments WHERE order_id = p_order AND name = p_name
    RETURNING upload_id INTO v_upload;
    INSERT INTO siding.upload_chunks (upload_id, start_offset, data) SELECT v_upload, 0, p_bytes WHERE octet_length(p_bytes) > 0;
    UPDATE siding.attachments
    SET state = 'complete', size = octet_length(p_bytes), sha256 = sha256(p_bytes), upload_id = v_upload, changed_at = siding.clock()
    WHERE order_id = p_order AND name = p_name;
END $$;
COMMENT ON FUNCTION siding.store_inline(bigint, text, bytea) IS 'Stores an attachment that came inside its order.';

-- A person throws bytes away. A complete one closes the gate again as long as the order has not started.
CREATE OR REPLACE FUNCTION siding.discard_attachment(p_order bigint, p_name text, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order siding.orders;
    v_row   siding.attachments;
BEGIN
    PERFORM siding.require_reason(p_person, p_reason);
    v_order := siding.take_order(p_order);
    IF v_order.state = 'running' THEN
        PERFORM siding.refuse(409, 'order_running', format('order %s runs', p_order), 'Its attachments are in use.');
    END IF;
    v_row := siding.take_attachment(p_order, p_name);
    DELETE FROM siding.upload_chunks c USING siding.uploads u WHERE u.attachment_id = v_row.attachment_id AND c.upload_id = u.upload_id;
    DELETE FROM siding.uploads WHERE attachment_id = v_row.attachment_id;
    UPDATE siding.attachments
    SET state = 'discarded', size = NULL, sha256 = NULL, upload_id = NULL, problem = NULL, changed_at = siding.clock()
    WHERE attachment_id = v_row.attachment_id;
    UPDATE siding.orders SET attachment_closed = true, late = true WHERE id = p_order;
    PERFORM siding.record(p_order, 'attachment_discarded', p_name, p_person, p_reason, jsonb_build_object('size', v_row.size, 'state', v_row.state));
    RETURN siding.grant_locks(ARRAY[v_order.line_id]);
END $$;
COMMENT ON FUNCTION siding.discard_attachment(bigint, text, text, text) IS 'Throws the bytes of an attachment away, with a reason.';
