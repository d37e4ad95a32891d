-- Live orders and what stands beside them.
--
-- The live row holds only what decides. Arguments are written once into inputs and never moved; an ended order leaves this
-- table and becomes one row of outcomes (docs/architecture.md, Storage). No foreign keys lead into or out of the live
-- table: a caller's open transaction that adds an order must not lock a definition.

-- +goose Up

CREATE SEQUENCE siding.order_numbers;
COMMENT ON SEQUENCE siding.order_numbers IS 'Ids of orders; a position is such a number shifted by 20 bits, so that moves find room between two of them.';
CREATE SEQUENCE siding.key_arrivals;
COMMENT ON SEQUENCE siding.key_arrivals IS 'Arrival of orders within their key, drawn under the key''s lock.';
CREATE SEQUENCE siding.lease_numbers;
COMMENT ON SEQUENCE siding.lease_numbers IS 'Lease numbers; they only grow. After a point-in-time recovery start a new epoch (docs/operations.md).';

CREATE TYPE siding.order_state AS ENUM ('waiting', 'running', 'suspended', 'attention', 'dead', 'finished', 'cancelled');
CREATE TYPE siding.stop_request AS ENUM ('cancel', 'suspend', 'kill');

CREATE TABLE siding.orders (
    -- First what is never null, so that its place in the row is fixed: reading a column behind a null one means walking there.
    id                bigint PRIMARY KEY,
    position          bigint NOT NULL,
    added_at          timestamptz NOT NULL,
    step_id           int NOT NULL,
    line_id           int NOT NULL,
    class_id          int NOT NULL DEFAULT 0,
    queue_id          int NOT NULL DEFAULT 0,
    state             siding.order_state NOT NULL DEFAULT 'waiting',
    attempt           smallint NOT NULL DEFAULT 0,
    intake_closed     boolean NOT NULL DEFAULT false,
    due_closed        boolean NOT NULL DEFAULT false,
    attachment_closed boolean NOT NULL DEFAULT false,
    key_closed        boolean NOT NULL DEFAULT false,
    lock_closed       boolean NOT NULL DEFAULT false,
    pause_closed      boolean NOT NULL DEFAULT false,
    candidate         boolean NOT NULL GENERATED ALWAYS AS (
                          state = 'waiting' AND NOT (intake_closed OR due_closed OR attachment_closed OR key_closed OR pause_closed)
                      ) STORED,
    late              boolean NOT NULL DEFAULT false,
    acknowledged      boolean NOT NULL DEFAULT false,
    has_attachments   boolean NOT NULL DEFAULT false,
    released          boolean NOT NULL DEFAULT false,
    key_contested     boolean NOT NULL DEFAULT false,
    ready_at          timestamptz,
    started_at        timestamptz,
    leased_at         timestamptz,
    lease_no          bigint,
    session_id        bigint,
    agent_id          int,
    key_space_id      int,
    key_hash          bigint,
    key_arrival       bigint,
    due_at            timestamptz,
    wait_deadline     timestamptz,
    stop              siding.stop_request,
    key               text COLLATE "C"
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
COMMENT ON TABLE  siding.orders IS 'Live orders. Ended ones stand in outcomes.';
COMMENT ON COLUMN siding.orders.id IS 'The order.';
COMMENT ON COLUMN siding.orders.position IS 'Place in every line; lower goes first. At first id << 20.';
COMMENT ON COLUMN siding.orders.added_at IS 'When it was added.';
COMMENT ON COLUMN siding.orders.ready_at IS 'When the last gate opened (for a due order: its due time); kept once started.';
COMMENT ON COLUMN siding.orders.started_at IS 'When it first started.';
COMMENT ON COLUMN siding.orders.due_at IS 'Due time, or the time of the next attempt.';
COMMENT ON COLUMN siding.orders.wait_deadline IS 'When waiting for attachments becomes attention.';
COMMENT ON COLUMN siding.orders.leased_at IS 'When the running attempt was claimed.';
COMMENT ON COLUMN siding.orders.key_hash IS '64-bit hash of key space and key; the low 16 bits name its stripe.';
COMMENT ON COLUMN siding.orders.key_arrival IS 'Arrival within the key, given by the intake; never changed.';
COMMENT ON COLUMN siding.orders.lease_no IS 'Number of the running lease.';
COMMENT ON COLUMN siding.orders.session_id IS 'Session that holds the lease.';
COMMENT ON COLUMN siding.orders.step_id IS 'Where it stands: version and step path.';
COMMENT ON COLUMN siding.orders.line_id IS 'The resource whose line it is in (when running: was claimed from).';
COMMENT ON COLUMN siding.orders.class_id IS 'The job''s own limit, 0 for none.';
COMMENT ON COLUMN siding.orders.queue_id IS 'Assigned queue, 0 for none.';
COMMENT ON COLUMN siding.orders.agent_id IS 'The agent that runs it.';
COMMENT ON COLUMN siding.orders.key_space_id IS 'Key space; null without a key.';
COMMENT ON COLUMN siding.orders.state IS 'State of the order.';
COMMENT ON COLUMN siding.orders.stop IS 'What a person asked for while it runs: cancel, suspend (after this step) or kill (suspend now).';
COMMENT ON COLUMN siding.orders.attempt IS 'Attempts of this step in this round, the running one included.';
COMMENT ON COLUMN siding.orders.intake_closed IS 'Gate: has no place yet.';
COMMENT ON COLUMN siding.orders.due_closed IS 'Gate: due or retry time lies ahead.';
COMMENT ON COLUMN siding.orders.attachment_closed IS 'Gate: an expected attachment is not complete.';
COMMENT ON COLUMN siding.orders.key_closed IS 'Gate: held by its key.';
COMMENT ON COLUMN siding.orders.lock_closed IS 'Gate: stands at a lock that is not granted. Its line is then the lock''s.';
COMMENT ON COLUMN siding.orders.pause_closed IS 'Gate: its workflow is paused (queues and lines are paused as a whole).';
COMMENT ON COLUMN siding.orders.candidate IS 'Waiting with every gate open but, at a lock, the lock''s: stands in the claim index.';
COMMENT ON COLUMN siding.orders.late IS 'Became a candidate after it was placed: stands in the small index of late ones.';
COMMENT ON COLUMN siding.orders.acknowledged IS 'A heartbeat named the running lease.';
COMMENT ON COLUMN siding.orders.has_attachments IS 'Rows in attachments exist.';
COMMENT ON COLUMN siding.orders.released IS 'May go ahead of its predecessors in the key (a recorded decision).';
COMMENT ON COLUMN siding.orders.key_contested IS 'Another order of the key may start too; the one that starts closes the others.';
COMMENT ON COLUMN siding.orders.key IS 'Key, at most 256 bytes; null: independent.';

-- The claim index: heads of (line, job limit, queue), merged by a pick.
CREATE INDEX orders_candidates ON siding.orders (line_id, class_id, queue_id, position, id) WHERE candidate AND NOT late;
CREATE INDEX orders_candidates_late ON siding.orders (line_id, class_id, queue_id, position, id) WHERE candidate AND late;
-- For a strict line, whose started orders go on behind the barrier.
CREATE INDEX orders_candidates_started ON siding.orders (line_id, class_id, queue_id, position, id) WHERE candidate AND started_at IS NOT NULL;
-- What runs on an agent, for its limits; lease numbers grow, so the scan can start behind dead entries.
CREATE INDEX orders_running ON siding.orders (agent_id, lease_no) WHERE state = 'running';
CREATE INDEX orders_running_class ON siding.orders (class_id) WHERE state = 'running' AND class_id > 0;
CREATE INDEX orders_stopping ON siding.orders (session_id) WHERE stop IS NOT NULL AND state = 'running';
-- Orders of one key in the order of arrival, and those that were released.
CREATE INDEX orders_by_key ON siding.orders (key_hash, key_arrival) WHERE key_arrival IS NOT NULL;
CREATE INDEX orders_released ON siding.orders (key_hash) WHERE released;
-- Tripwire and look-up: at most one order of a key is active.
CREATE UNIQUE INDEX orders_active_key ON siding.orders (key_space_id, key)
    WHERE key IS NOT NULL AND started_at IS NOT NULL AND NOT key_closed AND state IN ('waiting', 'running');
-- Work of the sweepers.
CREATE INDEX orders_intake ON siding.orders (id) WHERE intake_closed;
CREATE INDEX orders_due ON siding.orders (due_at) WHERE state = 'waiting' AND due_closed;
CREATE INDEX orders_wait_deadline ON siding.orders (wait_deadline) WHERE state = 'waiting' AND attachment_closed AND wait_deadline IS NOT NULL;
CREATE INDEX orders_blocked ON siding.orders (line_id, position, id) WHERE state = 'waiting' AND attachment_closed AND NOT due_closed;
CREATE INDEX orders_paused ON siding.orders (step_id) WHERE pause_closed;
-- The lists of queues: candidates are read from the claim index, running ones from orders_running.
CREATE INDEX orders_list_scheduled ON siding.orders (queue_id, due_at, id) WHERE state = 'waiting' AND due_closed;
CREATE INDEX orders_list_scheduled_position ON siding.orders (queue_id, position, id) WHERE state = 'waiting' AND due_closed;
CREATE INDEX orders_list_behind_gates ON siding.orders (queue_id, position, id) WHERE state = 'waiting' AND NOT candidate AND NOT due_closed;
CREATE INDEX orders_list_parked ON siding.orders (state, queue_id, position, id) WHERE state IN ('suspended', 'attention', 'dead');

CREATE TABLE siding.key_stripes (
    stripe int PRIMARY KEY
) WITH (fillfactor = 100);
COMMENT ON TABLE  siding.key_stripes IS 'A fixed set of rows that are locked, never updated: whoever places, promotes or ends an order of a key locks the stripe of its hash.';
COMMENT ON COLUMN siding.key_stripes.stripe IS 'Low 16 bits of the key''s hash.';
INSERT INTO siding.key_stripes SELECT generate_series(0, 65535);

CREATE TABLE siding.order_references (
    ref          text COLLATE "C" PRIMARY KEY CHECK (length(ref) BETWEEN 1 AND 256),
    order_id     bigint NOT NULL,
    content_hash bytea NOT NULL
);
CREATE INDEX order_references_order ON siding.order_references (order_id);
COMMENT ON TABLE  siding.order_references IS 'References that users gave; they make adding idempotent.';
COMMENT ON COLUMN siding.order_references.ref IS 'The reference.';
COMMENT ON COLUMN siding.order_references.order_id IS 'The order.';
COMMENT ON COLUMN siding.order_references.content_hash IS 'SHA-256 of what was added.';

CREATE TABLE siding.attentions (
    order_id bigint PRIMARY KEY,
    reason   text NOT NULL,
    detail   jsonb NOT NULL DEFAULT '{}',
    since    timestamptz NOT NULL
);
COMMENT ON TABLE  siding.attentions IS 'Why an order is in attention or dead, or who suspended it. History stands in events.';
COMMENT ON COLUMN siding.attentions.order_id IS 'The order.';
COMMENT ON COLUMN siding.attentions.reason IS 'Stable code: attachment_wait_limit, attachment_check_failed, lost, attempts_used_up, suspended ...';
COMMENT ON COLUMN siding.attentions.detail IS 'What is known: attachment, limit, expected, actual, error, person.';
COMMENT ON COLUMN siding.attentions.since IS 'Since when.';

CREATE TABLE siding.sessions (
    session_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_id     int NOT NULL,
    processes    int NOT NULL CHECK (processes >= 1),
    host         text NOT NULL DEFAULT '',
    pid          int NOT NULL DEFAULT 0,
    opened_at    timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    draining     boolean NOT NULL DEFAULT false,
    ended_at     timestamptz,
    end_reason   text
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX sessions_live ON siding.sessions (agent_id) WHERE ended_at IS NULL;
COMMENT ON TABLE  siding.sessions IS 'Runs of agent processes.';
COMMENT ON COLUMN siding.sessions.session_id IS 'The session; never used again.';
COMMENT ON COLUMN siding.sessions.agent_id IS 'The agent.';
COMMENT ON COLUMN siding.sessions.processes IS 'How many orders this process runs at once.';
COMMENT ON COLUMN siding.sessions.host IS 'Where it runs; shown, never used.';
COMMENT ON COLUMN siding.sessions.pid IS 'Its process id there; shown, never used.';
COMMENT ON COLUMN siding.sessions.opened_at IS 'When it was opened.';
COMMENT ON COLUMN siding.sessions.heartbeat_at IS 'Last sign of life.';
COMMENT ON COLUMN siding.sessions.draining IS 'Runs what it has and asks for nothing more: not alive for its clusters.';
COMMENT ON COLUMN siding.sessions.ended_at IS 'When it ended; null while open.';
COMMENT ON COLUMN siding.sessions.end_reason IS 'closed, replaced or lost.';

CREATE TABLE siding.claims (
    session_id bigint NOT NULL,
    request_id uuid NOT NULL,
    claimed_at timestamptz NOT NULL,
    order_ids  bigint[] NOT NULL,
    lease_nos  bigint[] NOT NULL,
    settled    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (session_id, request_id)
);
ALTER TABLE siding.claims ALTER COLUMN order_ids SET STORAGE EXTERNAL, ALTER COLUMN lease_nos SET STORAGE EXTERNAL;
CREATE INDEX claims_unsettled ON siding.claims (claimed_at) WHERE NOT settled;
COMMENT ON TABLE  siding.claims IS 'Answers to claims, so that a repeated request gets the same one and unacknowledged leases go back. Rows are kept for minutes.';
COMMENT ON COLUMN siding.claims.session_id IS 'The session that asked.';
COMMENT ON COLUMN siding.claims.request_id IS 'Its request id.';
COMMENT ON COLUMN siding.claims.claimed_at IS 'When.';
COMMENT ON COLUMN siding.claims.order_ids IS 'The orders it got, in the order of the picks.';
COMMENT ON COLUMN siding.claims.lease_nos IS 'Their lease numbers.';
COMMENT ON COLUMN siding.claims.settled IS 'Checked for leases that were never acknowledged.';

CREATE TABLE siding.bookings (
    booking_no   bigint GENERATED ALWAYS AS IDENTITY,
    resource_id  int NOT NULL,
    order_id     bigint,
    lease_no     bigint,
    queue_id     int NOT NULL DEFAULT 0,
    waived       boolean NOT NULL DEFAULT false,
    queue_ids    int[] NOT NULL,
    served       int[] NOT NULL,
    penalty_left int[] NOT NULL,
    booked_at    timestamptz NOT NULL,
    PRIMARY KEY (resource_id, booking_no)
);
COMMENT ON TABLE  siding.bookings IS 'Log of the picks at resources with penalised queues; the newest row of a resource holds its numbers.';
COMMENT ON COLUMN siding.bookings.booking_no IS 'Number; grows.';
COMMENT ON COLUMN siding.bookings.resource_id IS 'The resource.';
COMMENT ON COLUMN siding.bookings.order_id IS 'The order picked; null where a changed definition set the numbers.';
COMMENT ON COLUMN siding.bookings.lease_no IS 'Lease of the pick at an agent.';
COMMENT ON COLUMN siding.bookings.queue_id IS 'Queue of the order, 0 for none or one that is not listed.';
COMMENT ON COLUMN siding.bookings.waived IS 'Only penalised queues had candidates: the penalty was waived.';
COMMENT ON COLUMN siding.bookings.queue_ids IS 'The queues listed, in precedence order.';
COMMENT ON COLUMN siding.bookings.served IS 'Picks of each since its last penalty, after this booking.';
COMMENT ON COLUMN siding.bookings.penalty_left IS 'Picks of others that each waits for, after this booking.';
COMMENT ON COLUMN siding.bookings.booked_at IS 'When.';

CREATE TABLE siding.grants (
    order_id   bigint NOT NULL,
    lock_id    int NOT NULL,
    version_id int NOT NULL,
    block_path text NOT NULL,
    weight     int,
    granted_at timestamptz NOT NULL,
    grant_no   bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (lock_id, order_id)
);
CREATE INDEX grants_order ON siding.grants (order_id);
COMMENT ON TABLE  siding.grants IS 'What orders hold of locks. Use is the sum of these rows, never a counter.';
COMMENT ON COLUMN siding.grants.order_id IS 'The holder.';
COMMENT ON COLUMN siding.grants.lock_id IS 'The lock.';
COMMENT ON COLUMN siding.grants.version_id IS 'Version of the workflow.';
COMMENT ON COLUMN siding.grants.block_path IS 'The block that ends it.';
COMMENT ON COLUMN siding.grants.weight IS 'Units held shared; null: exclusive.';
COMMENT ON COLUMN siding.grants.granted_at IS 'Since when.';
COMMENT ON COLUMN siding.grants.grant_no IS 'Number; grows.';

CREATE TYPE siding.attachment_state AS ENUM ('pending', 'uploading', 'complete', 'failed', 'unknown', 'discarded');

CREATE TABLE siding.attachments (
    attachment_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id        bigint NOT NULL,
    name            text COLLATE "C" NOT NULL,
    state           siding.attachment_state NOT NULL DEFAULT 'pending',
    expected_size   bigint CHECK (expected_size >= 0),
    expected_sha256 bytea CHECK (length(expected_sha256) = 32),
    size            bigint,
    sha256          bytea,
    upload_id       bigint,
    store           text NOT NULL DEFAULT 'postgres',
    problem         text,
    late            boolean NOT NULL DEFAULT false,
    added_at        timestamptz NOT NULL,
    changed_at      timestamptz NOT NULL,
    UNIQUE (order_id, name)
);
CREATE INDEX attachments_unknown ON siding.attachments (order_id) WHERE state = 'unknown';
COMMENT ON TABLE  siding.attachments IS 'Named inputs of orders that arrive separately: the facts of readiness.';
COMMENT ON COLUMN siding.attachments.attachment_id IS 'Id.';
COMMENT ON COLUMN siding.attachments.order_id IS 'The order.';
COMMENT ON COLUMN siding.attachments.name IS 'Name, unique within the order.';
COMMENT ON COLUMN siding.attachments.state IS 'pending, uploading, complete, failed (its check), unknown (cannot be read) or discarded.';
COMMENT ON COLUMN siding.attachments.expected_size IS 'Size in bytes that was announced.';
COMMENT ON COLUMN siding.attachments.expected_sha256 IS 'SHA-256 that was announced.';
COMMENT ON COLUMN siding.attachments.size IS 'Bytes received.';
COMMENT ON COLUMN siding.attachments.sha256 IS 'SHA-256 of the bytes received, once all are there.';
COMMENT ON COLUMN siding.attachments.upload_id IS 'The upload that holds the bytes; null without bytes.';
COMMENT ON COLUMN siding.attachments.store IS 'Where the bytes lie.';
COMMENT ON COLUMN siding.attachments.problem IS 'What the check found, for failed and unknown.';
COMMENT ON COLUMN siding.attachments.late IS 'Became complete when the order was already in attention.';
COMMENT ON COLUMN siding.attachments.added_at IS 'When it was expected.';
COMMENT ON COLUMN siding.attachments.changed_at IS 'When its state last changed.';

CREATE TABLE siding.stores (
    store            text PRIMARY KEY,
    failed_reads     int NOT NULL DEFAULT 0,
    first_failure_at timestamptz,
    unreadable       boolean NOT NULL DEFAULT false,
    problem          text
);
COMMENT ON TABLE  siding.stores IS 'Whether the facts of a store can be read: 3 failed reads over 30 s make it unreadable.';
COMMENT ON COLUMN siding.stores.store IS 'Name of the store.';
COMMENT ON COLUMN siding.stores.failed_reads IS 'Failed reads in a row.';
COMMENT ON COLUMN siding.stores.first_failure_at IS 'The first of them.';
COMMENT ON COLUMN siding.stores.unreadable IS 'The pending facts in it are unknown.';
COMMENT ON COLUMN siding.stores.problem IS 'What the last read said.';
INSERT INTO siding.stores (store) VALUES ('postgres');

CREATE TABLE siding.uploads (
    upload_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    attachment_id bigint NOT NULL,
    received      bigint NOT NULL DEFAULT 0,
    sha256_state  bytea,
    started_at    timestamptz NOT NULL,
    touched_at    timestamptz NOT NULL,
    settled_at    timestamptz,
    dropped_at    timestamptz
);
CREATE INDEX uploads_attachment ON siding.uploads (attachment_id);
-- Work of the sweepers.
CREATE INDEX uploads_unsettled ON siding.uploads (touched_at) WHERE settled_at IS NULL AND dropped_at IS NULL;
CREATE INDEX uploads_kept ON siding.uploads (settled_at) WHERE settled_at IS NOT NULL AND dropped_at IS NULL;
CREATE INDEX uploads_dropped ON siding.uploads (upload_id) WHERE dropped_at IS NOT NULL;
COMMENT ON TABLE  siding.uploads IS 'Bytes on their way in, kept, or thrown away.';
COMMENT ON COLUMN siding.uploads.upload_id IS 'Id.';
COMMENT ON COLUMN siding.uploads.attachment_id IS 'The attachment.';
COMMENT ON COLUMN siding.uploads.received IS 'Bytes stored so far.';
COMMENT ON COLUMN siding.uploads.sha256_state IS 'State of the running SHA-256 at that offset; null at 0 and once settled.';
COMMENT ON COLUMN siding.uploads.started_at IS 'When it began.';
COMMENT ON COLUMN siding.uploads.touched_at IS 'When bytes last came.';
COMMENT ON COLUMN siding.uploads.settled_at IS 'When it was checked; no bytes come after that.';
COMMENT ON COLUMN siding.uploads.dropped_at IS 'When it was thrown away; its chunks follow in small transactions, the row an hour later.';

CREATE TABLE siding.upload_chunks (
    upload_id    bigint NOT NULL,
    start_offset bigint NOT NULL,
    data         bytea NOT NULL,
    PRIMARY KEY (upload_id, start_offset)
);
ALTER TABLE siding.upload_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE  siding.upload_chunks IS 'Bytes of uploads in the Postgres store.';
COMMENT ON COLUMN siding.upload_chunks.upload_id IS 'The upload.';
COMMENT ON COLUMN siding.upload_chunks.start_offset IS 'Offset of the first byte.';
COMMENT ON COLUMN siding.upload_chunks.data IS 'The bytes.';

CREATE TABLE siding.keeper_ticks (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    last_tick_at   timestamptz NOT NULL,
    unbroken_since timestamptz NOT NULL,
    floor_number   bigint,
    floor_xmax     xid8
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 100);
COMMENT ON TABLE  siding.keeper_ticks IS 'When sweepers ticked: a session is lost only if they did without a break for a whole TTL after its last heartbeat.';
COMMENT ON COLUMN siding.keeper_ticks.one IS 'There is one row.';
COMMENT ON COLUMN siding.keeper_ticks.last_tick_at IS 'The last tick of any replica.';
COMMENT ON COLUMN siding.keeper_ticks.unbroken_since IS 'Since when there was no break.';
COMMENT ON COLUMN siding.keeper_ticks.floor_number IS 'Last order number drawn when floors were last considered.';
COMMENT ON COLUMN siding.keeper_ticks.floor_xmax IS 'Transactions before this one were under way or done at that time.';

CREATE TABLE siding.list_counts (
    queue_id   int NOT NULL,
    list       text NOT NULL,
    orders     bigint NOT NULL,
    counted_at timestamptz NOT NULL,
    PRIMARY KEY (queue_id, list)
);
COMMENT ON TABLE  siding.list_counts IS 'Counts shown to people, refreshed every few seconds by one replica.';
COMMENT ON COLUMN siding.list_counts.queue_id IS 'The queue, 0 for orders without one.';
COMMENT ON COLUMN siding.list_counts.list IS 'waiting, pending, scheduled, dead, attention or suspended.';
COMMENT ON COLUMN siding.list_counts.orders IS 'How many.';
COMMENT ON COLUMN siding.list_counts.counted_at IS 'As of when.';

-- +goose Down
DROP TABLE siding.list_counts, siding.keeper_ticks, siding.upload_chunks, siding.uploads, siding.stores, siding.attachments,
    siding.grants, siding.bookings, siding.claims, siding.sessions, siding.attentions, siding.order_references,
    siding.key_stripes, siding.orders CASCADE;
DROP TYPE siding.attachment_state, siding.stop_request, siding.order_state CASCADE;
DROP SEQUENCE siding.order_numbers, siding.key_arrivals, siding.lease_numbers CASCADE;
