-- Attachments: the facts of readiness (docs/concepts.md, Attachments). The bytes come in by
-- sql/41_uploads.sql. Row locks are taken in the order: order, attachment, upload.

-- One more expected attachment, for an order that has not started. With content it is complete at once.
CREATE OR REPLACE FUNCTION siding.expect_attachment(p_order bigint, p_item jsonb, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order   siding.orders;
    v_problem text := siding.attachments_problem(jsonb_build_array(p_item));
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
    IF v_order.has_attachments AND (SELECT count(*) FROM siding.attachments a WHERE a.order_id = p_order) >= 1000 THEN
        PERFORM siding.refuse(422, 'invalid_attachment', 'more than 1000 attachments', 'Split the order.');
    END IF;
    INSERT INTO siding.attachments (order_id, name, expected_size, expected_sha256, added_at, changed_at)
    VALUES (p_order, p_item ->> 'name', (p_item ->> 'size')::bigint, decode(p_item ->> 'sha256', 'hex'), siding.clock(), siding.clock())
    ON CONFLICT (order_id, name) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM siding.refuse(409, 'attachment_exists', format('order %s expects an attachment %s already', p_order, p_item ->> 'name'), 'Use another name.');
    END IF;
    PERFORM siding.record(p_order, 'attachment_expected', p_item ->> 'name', p_person, p_reason);
    IF p_item ? 'content' THEN
        UPDATE siding.orders SET has_attachments = true WHERE id = p_order AND NOT has_attachments;
        PERFORM siding.store_inline(p_order, p_item ->> 'name', decode(p_item ->> 'content', 'base64'));
        RETURN '{}';
    END IF;
    UPDATE siding.orders SET has_attachments = true WHERE id = p_order;
    PERFORM siding.close_attachment_gate(p_order);
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

-- Closes the gate, since an attachment is missing (again). A gate that was open means a new wait, so the limit is counted
-- from now; one that was closed keeps its deadline. The caller holds the order.
CREATE OR REPLACE FUNCTION siding.close_attachment_gate(p_order bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE siding.orders o
    SET attachment_closed = true, late = true,
        wait_deadline = greatest(siding.clock(), o.due_at)
                        + (SELECT i.wait_limit FROM siding.inputs i WHERE i.order_id = o.id AND i.added_at = o.added_at)
    WHERE o.id = p_order AND NOT o.attachment_closed
$$;
COMMENT ON FUNCTION siding.close_attachment_gate(bigint) IS 'Closes the attachment gate and starts the wait limit.';

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

-- Marks complete what has neither a stated size nor a stated hash, and no bytes.
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
    -- Half of a file is no complete attachment, and bytes go only by a decision of their own.
    IF EXISTS (SELECT FROM siding.uploads u WHERE u.attachment_id = v_row.attachment_id AND u.dropped_at IS NULL AND u.received > 0) THEN
        PERFORM siding.refuse(409, 'attachment_uploading', format('attachment %s of order %s has bytes of an unfinished upload', p_name, p_order),
                              'Finish the upload, or discard its bytes first.');
    END IF;
    UPDATE siding.attachments
    SET state = 'complete', late = v_order.state = 'attention', changed_at = siding.clock(), problem = NULL
    WHERE attachment_id = v_row.attachment_id;
    PERFORM siding.drop_uploads(v_row.attachment_id, NULL, true);
    PERFORM siding.record(p_order, 'attachment_complete', p_name, p_person, NULL, jsonb_build_object('late', v_order.state = 'attention'));
    RETURN siding.open_attachment_gate(p_order);
END $$;
COMMENT ON FUNCTION siding.mark_attachment_complete(bigint, text, text) IS 'Completes an attachment without stated size and hash.';

-- A person throws bytes away, also those of a complete attachment, as long as the order doesn't run. The gate closes again,
-- for an order that has started too: its next step would miss the bytes. Where there is nothing, nothing changes.
CREATE OR REPLACE FUNCTION siding.discard_attachment(p_order bigint, p_name text, p_person text, p_reason text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
    v_order siding.orders;
    v_row   siding.attachments;
    v_bytes bigint;
BEGIN
    PERFORM siding.require_reason(p_person, p_reason);
    v_order := siding.take_order(p_order);
    v_row := siding.take_attachment(p_order, p_name);
    IF v_order.state = 'running' THEN
        PERFORM siding.refuse(409, 'order_running', format('order %s runs', p_order), 'Its attachments are in use.');
    END IF;
    v_bytes := siding.drop_uploads(v_row.attachment_id, NULL, true);
    IF v_row.state IN ('pending', 'discarded') AND v_bytes IS NULL THEN
        RETURN '{}';
    END IF;
    UPDATE siding.attachments
    SET state = 'discarded', size = NULL, sha256 = NULL, upload_id = NULL, problem = NULL, late = false, changed_at = siding.clock()
    WHERE attachment_id = v_row.attachment_id;
    PERFORM siding.close_attachment_gate(p_order);
    PERFORM siding.record(p_order, 'attachment_discarded', p_name, p_person, p_reason,
                          jsonb_build_object('bytes', coalesce(v_bytes, 0), 'state', v_row.state));
    RETURN siding.grant_locks(ARRAY[v_order.line_id]);
END $$;
COMMENT ON FUNCTION siding.discard_attachment(bigint, text, text, text) IS 'Throws the bytes of an attachment away, with a reason.';
