-- What was added with some orders. The bounds on added_at let the executor leave out the other months before it starts.
CREATE OR REPLACE FUNCTION siding.inputs_of(p_ids bigint[], p_first timestamptz, p_last timestamptz)
RETURNS TABLE (order_id bigint, ref text, args jsonb) LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT i.order_id, i.ref, i.args FROM siding.inputs i
    WHERE i.order_id = ANY (p_ids) AND i.added_at BETWEEN p_first AND p_last;
END $$;
COMMENT ON FUNCTION siding.inputs_of(bigint[], timestamptz, timestamptz) IS 'Reference and arguments of orders that were added between two instants.';
