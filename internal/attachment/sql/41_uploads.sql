-- Uploads: bytes on their way in. Each chunk is a transaction of its own that advances the offset by compare-and-set; only
-- begin and settle look at the order. Row locks are taken in the order: order, attachment, upload.
--
-- Throwing bytes away only marks the upload as dropped. Its chunks, perhaps a thousand of them, are deleted afterwards in
-- small transactions (siding.purge_uploads), so that nobody holds an order or a lock meanwhile.

-- Throws uploads of an attachment away: all but one (null: all), or only the checked ones. Returns how many bytes they had;
-- null if there was none. The caller holds the attachment.
CREATE OR REPLACE FUNCTION siding.drop_uploads(p_attachment bigint, p_keep bigint, p_unsettled boolean) RETURNS bigint LANGUAGE sql AS $$
    WITH dropped AS (
        UPDATE siding.uploads u SET dropped_at = siding.clock(), sha256_state = NULL
        WHERE u.attachment_id = p_attachment AND u.dropped_at IS NULL AND u.upload_id IS DISTINCT FROM p_keep
          AND (p_unsettled OR u.settled_at IS NOT NULL)
        RETURNING u.received
    )
    SELECT sum(received)::bigint FROM dropped
$$;
COMMENT ON FUNCTION siding.drop_uploads(bigint, bigint, boolean) IS 'Marks uploads of an attachment as thrown away.';

-- Begins an upload, if bytes may come in: the order lives and the attachment isn't complete. p_max is the store's limit.
-- The share lock keeps the order from ending in between, and hinders nothing else.
CREATE OR REPLACE FUNCTION siding.begin_upload(p_order bigint, p_name text, p_max bigint, OUT upload bigint, OUT expected bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_row siding.attachments;
BEGIN
    PERFORM 1 FROM siding.orders WHERE id = p_order FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM siding.take_order(p_order); -- says what is wrong
    END IF;
    v_row := siding.take_attachment(p_order, p_name);
    IF v_row.state = 'complete' THEN
        PERFORM siding.refuse(409, 'attachment_complete', format('attachment %s of order %s is complete', p_name, p_order), 'Complete attachments are not replaced.');
    END IF;
    IF v_row.expected_size > p_max THEN
        PERFORM siding.refuse(413, 'attachment_too_large',
            format('attachment %s of order %s has %s bytes; the store takes %s', p_name, p_order, v_row.expected_size, p_max),
            'Use another store, or raise the limit of this one.');
    END IF;
    INSERT INTO siding.uploads (attachment_id, started_at, touched_at) VALUES (v_row.attachment_id, siding.clock(), siding.clock())
    RETURNING upload_id INTO upload;
    expected := v_row.expected_size;
    IF v_row.state IN ('pending', 'discarded') THEN
        UPDATE siding.attachments SET state = 'uploading', changed_at = siding.clock() WHERE attachment_id = v_row.attachment_id;
    END IF;
END $$;
COMMENT ON FUNCTION siding.begin_upload(bigint, text, bigint) IS 'Begins an upload of an attachment that is not complete.';

-- Appends bytes at an offset, with the state of the SHA-256 behind them. Returns the new offset; refuses unless the upload
-- stands exactly at that offset, so that of two senders one gets on.
CREATE OR REPLACE FUNCTION siding.append_chunk(p_upload bigint, p_offset bigint, p_data bytea, p_sha256_state bytea) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_upload siding.uploads;
BEGIN
    UPDATE siding.uploads u
    SET received = u.received + octet_length(p_data), sha256_state = p_sha256_state, touched_at = siding.clock()
    WHERE u.upload_id = p_upload AND u.received = p_offset AND u.settled_at IS NULL AND u.dropped_at IS NULL
    RETURNING u.* INTO v_upload;
    IF NOT FOUND THEN
        SELECT * INTO v_upload FROM siding.uploads u WHERE u.upload_id = p_upload;
        PERFORM siding.refuse_ended_upload(p_upload);
        PERFORM siding.refuse(409, 'upload_offset', format('upload %s stands at %s, not at %s', p_upload, v_upload.received, p_offset),
                              'Go on at the offset where it stands.', jsonb_build_object('offset', v_upload.received)::text);
    END IF;
    IF NOT EXISTS (SELECT FROM siding.attachments a JOIN siding.orders o ON o.id = a.order_id WHERE a.attachment_id = v_upload.attachment_id) THEN
        PERFORM siding.take_order((SELECT order_id FROM siding.attachments WHERE attachment_id = v_upload.attachment_id));
    END IF;
    IF octet_length(p_data) > 0 THEN
        INSERT INTO siding.upload_chunks (upload_id, start_offset, data) VALUES (p_upload, p_offset, p_data);
    END IF;
    RETURN v_upload.received;
END $$;
COMMENT ON FUNCTION siding.append_chunk(bigint, bigint, bytea, bytea) IS 'Appends bytes to an upload by compare-and-set of its offset.';

-- Says why an upload takes no bytes any more; returns if it does.
CREATE OR REPLACE FUNCTION siding.refuse_ended_upload(p_upload bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
BEGIN
    SELECT u.settled_at IS NOT NULL OR u.dropped_at IS NOT NULL AS ended, a.order_id, a.name, a.state INTO v_row
    FROM siding.uploads u JOIN siding.attachments a ON a.attachment_id = u.attachment_id WHERE u.upload_id = p_upload;
    IF NOT FOUND THEN
        PERFORM siding.refuse(404, 'upload_not_found', format('there is no upload %s', p_upload), 'Begin a new one.');
    ELSIF v_row.ended AND v_row.state = 'complete' THEN
        PERFORM siding.refuse(409, 'attachment_complete', format('attachment %s of order %s is complete', v_row.name, v_row.order_id),
                              'Complete attachments are not replaced.');
    ELSIF v_row.ended THEN
        PERFORM siding.refuse(409, 'upload_ended', format('upload %s of attachment %s of order %s was checked or discarded', p_upload, v_row.name, v_row.order_id),
                              'Begin a new one.');
    END IF;
END $$;
COMMENT ON FUNCTION siding.refuse_ended_upload(bigint) IS 'Refuses for an upload that has ended.';

-- Ends an upload that came to nothing. False if there was nothing to end: one that was checked stays.
CREATE OR REPLACE FUNCTION siding.abandon_upload(p_upload bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_attachment bigint;
BEGIN
    SELECT attachment_id INTO v_attachment FROM siding.uploads WHERE upload_id = p_upload;
    PERFORM 1 FROM siding.attachments WHERE attachment_id = v_attachment FOR UPDATE;
    UPDATE siding.uploads SET dropped_at = siding.clock(), sha256_state = NULL
    WHERE upload_id = p_upload AND settled_at IS NULL AND dropped_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE siding.attachments SET state = 'pending', changed_at = siding.clock()
    WHERE attachment_id = v_attachment AND state = 'uploading'
      AND NOT EXISTS (SELECT FROM siding.uploads u WHERE u.attachment_id = v_attachment AND u.settled_at IS NULL AND u.dropped_at IS NULL);
    RETURN true;
END $$;
COMMENT ON FUNCTION siding.abandon_upload(bigint) IS 'Throws an upload away that was not checked.';

-- The check. Complete opens the gate, if it was the last; failed turns the order to attention. p_size and p_sha256 are of
-- what was received; without a hash the upload was cut, because it was longer than expected. Settling twice changes nothing.
CREATE OR REPLACE FUNCTION siding.settle_upload(p_order bigint, p_name text, p_upload bigint, p_size bigint, p_sha256 bytea, OUT state siding.attachment_state, OUT lines int[])
LANGUAGE plpgsql AS $$
DECLARE
    v_row     siding.attachments;
    v_order   siding.orders;
    v_upload  siding.uploads;
    v_problem text;
    v_detail  jsonb;
BEGIN
    lines := '{}';
    v_order := siding.take_order(p_order);
    v_row := siding.take_attachment(p_order, p_name);
    SELECT * INTO v_upload FROM siding.uploads u WHERE u.upload_id = p_upload AND u.attachment_id = v_row.attachment_id FOR UPDATE;
    IF v_row.upload_id = p_upload AND v_upload.settled_at IS NOT NULL THEN
        state := v_row.state;
        RETURN;
    END IF;
    IF v_row.state = 'complete' THEN
        PERFORM siding.refuse(409, 'attachment_complete', format('attachment %s of order %s is complete', p_name, p_order), 'Complete attachments are not replaced.');
    END IF;
    -- A person may have discarded it meanwhile.
    PERFORM siding.refuse_ended_upload(coalesce(v_upload.upload_id, -1));
    IF v_upload.received <> p_size THEN
        PERFORM siding.refuse(409, 'upload_offset', format('upload %s stands at %s, not at %s', p_upload, v_upload.received, p_size),
                              'Somebody else went on with it.', jsonb_build_object('offset', v_upload.received)::text);
    END IF;

    IF p_sha256 IS NULL THEN
        IF NOT coalesce(p_size > v_row.expected_size, false) THEN
            RAISE EXCEPTION 'upload % was cut at %, which is not more than expected', p_upload, p_size;
        END IF;
        v_problem := format('size: expected %s bytes, actual %s or more (not read to the end)', v_row.expected_size, p_size);
    ELSIF v_row.expected_size <> p_size THEN
        v_problem := format('size: expected %s bytes, actual %s', v_row.expected_size, p_size);
    ELSIF v_row.expected_sha256 <> p_sha256 THEN
        v_problem := format('sha256: expected %s, actual %s', encode(v_row.expected_sha256, 'hex'), encode(p_sha256, 'hex'));
    END IF;
    state := CASE WHEN v_problem IS NULL THEN 'complete' ELSE 'failed' END;
    UPDATE siding.uploads u SET settled_at = siding.clock(), sha256_state = NULL WHERE u.upload_id = p_upload;
    UPDATE siding.attachments a
    SET state = settle_upload.state, size = p_size, sha256 = p_sha256, upload_id = p_upload, problem = v_problem,
        late = v_problem IS NULL AND v_order.state = 'attention', changed_at = siding.clock()
    WHERE a.attachment_id = v_row.attachment_id;
    -- What failed before is replaced; once complete, whatever else is on its way is of no use.
    PERFORM siding.drop_uploads(v_row.attachment_id, p_upload, v_problem IS NULL);

    IF v_problem IS NULL THEN
        PERFORM siding.record(p_order, 'attachment_complete', p_name, NULL, NULL, jsonb_build_object('size', p_size, 'late', v_order.state = 'attention'));
        lines := siding.open_attachment_gate(p_order);
        RETURN;
    END IF;

    PERFORM siding.record(p_order, 'attachment_failed', p_name, NULL, NULL, jsonb_build_object('problem', v_problem));
    v_detail := jsonb_build_object('attachment', p_name, 'problem', v_problem, 'expected_size', v_row.expected_size, 'size', p_size,
                                   'expected_sha256', encode(v_row.expected_sha256, 'hex'), 'sha256', encode(p_sha256, 'hex'));
    IF v_order.state IN ('waiting', 'suspended') THEN
        IF v_order.state = 'suspended' THEN
            v_detail := v_detail || '{"was": "suspended"}';
        END IF;
        lines := siding.grant_locks(siding.park(p_order, 'attention', 'attachment_check_failed', v_detail));
    ELSIF v_order.state = 'attention' THEN
        -- What a person sees is the newest result. Another reason than an attachment's stays.
        UPDATE siding.attentions t SET reason = 'attachment_check_failed', detail = t.detail || v_detail
        WHERE t.order_id = p_order AND t.reason IN ('attachment_check_failed', 'attachment_wait_limit');
    END IF;
END $$;
COMMENT ON FUNCTION siding.settle_upload(bigint, text, bigint, bigint, bytea) IS 'Checks a whole upload: complete, or failed and attention.';

-- Bytes given with the order itself. The content was checked before it was added.
CREATE OR REPLACE FUNCTION siding.store_inline(p_order bigint, p_name text, p_bytes bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_upload bigint;
BEGIN
    INSERT INTO siding.uploads (attachment_id, received, started_at, touched_at, settled_at)
    SELECT attachment_id, octet_length(p_bytes), siding.clock(), siding.clock(), siding.clock()
    FROM siding.attachments WHERE order_id = p_order AND name = p_name
    RETURNING upload_id INTO v_upload;
    -- In chunks as everywhere, since a reader holds one in memory.
    INSERT INTO siding.upload_chunks (upload_id, start_offset, data)
    SELECT v_upload, start, substring(p_bytes FROM start + 1 FOR 1048576)
    FROM generate_series(0, octet_length(p_bytes) - 1, 1048576) AS start;
    UPDATE siding.attachments
    SET state = 'complete', size = octet_length(p_bytes), sha256 = sha256(p_bytes), upload_id = v_upload, changed_at = siding.clock()
    WHERE order_id = p_order AND name = p_name;
END $$;
COMMENT ON FUNCTION siding.store_inline(bigint, text, bytea) IS 'Stores an attachment that came inside its order.';

-- Uploads that were never checked and got no bytes for some time, of orders that have ended. Those of a live order stay
-- until a person discards them.
CREATE OR REPLACE FUNCTION siding.abandon_leftovers(p_untouched interval, p_limit int) RETURNS int LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_upload  bigint;
    v_dropped int := 0;
BEGIN
    FOR v_upload IN
        SELECT u.upload_id FROM siding.uploads u
        WHERE u.settled_at IS NULL AND u.dropped_at IS NULL AND u.touched_at <= siding.clock() - p_untouched
          AND NOT EXISTS (SELECT FROM siding.attachments a JOIN siding.orders o ON o.id = a.order_id WHERE a.attachment_id = u.attachment_id)
        ORDER BY u.touched_at, u.upload_id LIMIT p_limit
    LOOP
        v_dropped := v_dropped + siding.abandon_upload(v_upload)::int;
    END LOOP;
    RETURN v_dropped;
END $$;
COMMENT ON FUNCTION siding.abandon_leftovers(interval, int) IS 'Abandons unfinished uploads of orders that have ended; returns how many.';

-- Bytes of orders that ended before the retention began. What is known about them (name, size, hash, result) stays.
-- An order whose outcome is gone ended long ago.
CREATE OR REPLACE FUNCTION siding.drop_expired_bytes(p_keep interval, p_limit int) RETURNS int LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_before   timestamptz := siding.clock() - p_keep;
    v_uploads  bigint[];
    v_dropped  int;
BEGIN
    SELECT array_agg(upload_id) INTO v_uploads FROM (
        SELECT u.upload_id FROM siding.uploads u JOIN siding.attachments a ON a.attachment_id = u.attachment_id
        WHERE u.settled_at IS NOT NULL AND u.dropped_at IS NULL AND u.settled_at <= v_before
          AND NOT EXISTS (SELECT FROM siding.orders o WHERE o.id = a.order_id)
          AND NOT EXISTS (SELECT FROM siding.outcomes o WHERE o.order_id = a.order_id AND o.ended_at > v_before)
        ORDER BY u.settled_at, u.upload_id LIMIT p_limit) x;
    UPDATE siding.attachments a SET upload_id = NULL
    FROM siding.uploads u WHERE u.upload_id = ANY (v_uploads) AND a.attachment_id = u.attachment_id AND a.upload_id = u.upload_id;
    UPDATE siding.uploads SET dropped_at = siding.clock() WHERE upload_id = ANY (v_uploads) AND dropped_at IS NULL;
    GET DIAGNOSTICS v_dropped = ROW_COUNT;
    RETURN v_dropped;
END $$;
COMMENT ON FUNCTION siding.drop_expired_bytes(interval, int) IS 'Throws bytes of long ended orders away; returns of how many uploads.';

-- Deletes chunks of uploads that were thrown away (of one, or of all), a bounded number per call; returns how many. Nothing
-- can be appended any more once an upload is dropped. The row stays an hour, so that a sender who goes on is told why not.
CREATE OR REPLACE FUNCTION siding.purge_uploads(p_upload bigint, p_limit int) RETURNS int LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    v_chunks int;
BEGIN
    DELETE FROM siding.upload_chunks d USING (
        SELECT c.upload_id, c.start_offset FROM siding.uploads u JOIN siding.upload_chunks c ON c.upload_id = u.upload_id
        WHERE u.dropped_at IS NOT NULL AND u.upload_id BETWEEN coalesce(p_upload, 0) AND coalesce(p_upload, 9223372036854775807)
        ORDER BY c.upload_id, c.start_offset LIMIT p_limit) x
    WHERE d.upload_id = x.upload_id AND d.start_offset = x.start_offset;
    GET DIAGNOSTICS v_chunks = ROW_COUNT;
    DELETE FROM siding.uploads u
    WHERE u.upload_id IN (
            SELECT o.upload_id FROM siding.uploads o
            WHERE o.dropped_at IS NOT NULL AND o.dropped_at <= siding.clock() - interval '1 hour' LIMIT p_limit)
      AND NOT EXISTS (SELECT FROM siding.upload_chunks c WHERE c.upload_id = u.upload_id);
    RETURN v_chunks;
END $$;
COMMENT ON FUNCTION siding.purge_uploads(bigint, int) IS 'Deletes chunks of dropped uploads, a bounded number.';
