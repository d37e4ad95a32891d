-- The one word for an order's state (docs/concepts.md, States and gates): of a waiting order the first
-- closed gate in this order. One that only a person keeps is paused, one that only has no place yet is arriving; gates() of
-- internal/order says the same in Go. p_paused: the order's queue or line is paused; the function reads no table, so that the
-- reporting views can use it for roles without rights on this schema.
CREATE OR REPLACE FUNCTION siding.state_word(p_order siding.orders, p_paused boolean DEFAULT false) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN (p_order).state <> 'waiting' THEN (p_order).state::text
        WHEN (p_order).due_closed THEN 'scheduled'
        WHEN (p_order).attachment_closed THEN 'blocked'
        WHEN (p_order).key_closed THEN 'held'
        WHEN (p_order).lock_closed THEN 'locked_out'
        WHEN (p_order).pause_closed OR p_paused THEN 'paused'
        WHEN (p_order).intake_closed THEN 'arriving'
        ELSE 'ready'
    END
$$;
COMMENT ON FUNCTION siding.state_word(siding.orders, boolean) IS 'The state of a live order in one word: scheduled before blocked before held before locked_out before ready.';
