-- How long the lists are, as shown to people: counted every few seconds by one replica, never by a request. Reads the narrow
-- indexes of the lists, once each.
--
-- False if the numbers are younger than p_min_age or another replica is at it. The caller keeps the cost bounded by that
-- age: it grows with what the last count took (internal/queue).
CREATE OR REPLACE FUNCTION siding.refresh_list_counts(p_min_age interval) RETURNS boolean LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(siding.channel() || '/list_counts', 0))
       OR EXISTS (SELECT FROM siding.list_counts c WHERE c.counted_at > siding.clock() - p_min_age) THEN
        RETURN false;
    END IF;

    WITH counted AS (
        SELECT o.queue_id, 'waiting' AS list, count(*) AS orders FROM siding.orders o WHERE o.candidate AND NOT o.late GROUP BY 1
        UNION ALL
        SELECT o.queue_id, 'waiting', count(*) FROM siding.orders o WHERE o.candidate AND o.late GROUP BY 1
        UNION ALL
        SELECT o.queue_id, 'waiting', count(*) FROM siding.orders o
        WHERE o.state = 'waiting' AND NOT o.candidate AND NOT o.due_closed GROUP BY 1
        UNION ALL
        SELECT o.queue_id, 'scheduled', count(*) FROM siding.orders o WHERE o.state = 'waiting' AND o.due_closed GROUP BY 1
        UNION ALL
        SELECT o.queue_id, 'pending', count(*) FROM siding.orders o WHERE o.state = 'running' GROUP BY 1
        UNION ALL
        SELECT o.queue_id, o.state::text, count(*) FROM siding.orders o
        WHERE o.state IN ('suspended', 'attention', 'dead') GROUP BY 1, 2
    ), queues AS (
        SELECT 0 AS queue_id UNION ALL SELECT q.queue_id FROM siding.queues q WHERE q.removed_at IS NULL
    )
    INSERT INTO siding.list_counts AS c (queue_id, list, orders, counted_at)
    SELECT q.queue_id, l.list, coalesce(sum(n.orders), 0), siding.clock()
    FROM queues q
    CROSS JOIN unnest('{waiting,pending,scheduled,dead,attention,suspended}'::text[]) AS l (list)
    LEFT JOIN counted n ON n.queue_id = q.queue_id AND n.list = l.list
    GROUP BY q.queue_id, l.list
    ORDER BY q.queue_id, l.list
    ON CONFLICT (queue_id, list) DO UPDATE SET orders = excluded.orders, counted_at = excluded.counted_at;

    DELETE FROM siding.list_counts c
    WHERE EXISTS (SELECT FROM siding.queues q WHERE q.queue_id = c.queue_id AND q.removed_at IS NOT NULL);
    RETURN true;
END $$;
COMMENT ON FUNCTION siding.refresh_list_counts(interval) IS 'Counts the lists of all queues, unless the numbers are young or somebody else counts.';
