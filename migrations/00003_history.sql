-- What is only ever appended, partitioned by month. Partitions are made by siding.ensure_partitions (room keeper), three
-- months ahead; there is no default partition, so that a missing one is an error and not a slow trap.

-- +goose Up

CREATE TABLE siding.inputs (
    order_id  bigint NOT NULL,
    added_at  timestamptz NOT NULL,
    ref       text,
    added_by  text NOT NULL,
    wait_limit interval,
    args      jsonb,
    PRIMARY KEY (order_id, added_at)
) PARTITION BY RANGE (added_at);
COMMENT ON TABLE  siding.inputs IS 'What was added with each order: written once, never moved.';
COMMENT ON COLUMN siding.inputs.order_id IS 'The order.';
COMMENT ON COLUMN siding.inputs.added_at IS 'When it was added.';
COMMENT ON COLUMN siding.inputs.ref IS 'The user''s reference.';
COMMENT ON COLUMN siding.inputs.added_by IS 'Token or database role that added it.';
COMMENT ON COLUMN siding.inputs.wait_limit IS 'Wait limit that holds for this order''s attachments.';
COMMENT ON COLUMN siding.inputs.args IS 'Arguments.';

CREATE TABLE siding.outcomes (
    order_id     bigint NOT NULL,
    ended_at     timestamptz NOT NULL,
    added_at     timestamptz NOT NULL,
    position     bigint NOT NULL,
    step_id      int NOT NULL,
    line_id      int NOT NULL,
    queue_id     int NOT NULL,
    state        siding.order_state NOT NULL,
    attempt      smallint NOT NULL,
    released     boolean NOT NULL,
    has_attachments boolean NOT NULL,
    ready_at     timestamptz,
    started_at   timestamptz,
    leased_at    timestamptz,
    lease_no     bigint,
    session_id   bigint,
    key_arrival  bigint,
    agent_id     int,
    key_space_id int,
    exit_code    int,
    key          text COLLATE "C",
    message      text
) PARTITION BY RANGE (ended_at);
CREATE INDEX outcomes_order ON siding.outcomes (order_id);
-- Orders end about in the order in which they are stored; lists of ended ones go by id.
CREATE INDEX outcomes_ended ON siding.outcomes USING brin (ended_at);
COMMENT ON TABLE  siding.outcomes IS 'Ended orders, with their last attempt: one row each.';
COMMENT ON COLUMN siding.outcomes.order_id IS 'The order.';
COMMENT ON COLUMN siding.outcomes.ended_at IS 'When it ended.';
COMMENT ON COLUMN siding.outcomes.added_at IS 'When it was added.';
COMMENT ON COLUMN siding.outcomes.ready_at IS 'When it became ready before its first start.';
COMMENT ON COLUMN siding.outcomes.started_at IS 'When it first started.';
COMMENT ON COLUMN siding.outcomes.leased_at IS 'When its last attempt was claimed.';
COMMENT ON COLUMN siding.outcomes.position IS 'Its position at the end.';
COMMENT ON COLUMN siding.outcomes.lease_no IS 'Lease of its last attempt.';
COMMENT ON COLUMN siding.outcomes.session_id IS 'Session of its last attempt.';
COMMENT ON COLUMN siding.outcomes.key_arrival IS 'Arrival within its key.';
COMMENT ON COLUMN siding.outcomes.step_id IS 'The step it ended at.';
COMMENT ON COLUMN siding.outcomes.line_id IS 'The line of that step.';
COMMENT ON COLUMN siding.outcomes.queue_id IS 'Its queue, 0 for none.';
COMMENT ON COLUMN siding.outcomes.agent_id IS 'The agent of its last attempt.';
COMMENT ON COLUMN siding.outcomes.key_space_id IS 'Its key space.';
COMMENT ON COLUMN siding.outcomes.state IS 'finished or cancelled.';
COMMENT ON COLUMN siding.outcomes.attempt IS 'Attempts of the last step in its last round.';
COMMENT ON COLUMN siding.outcomes.released IS 'Went ahead of its predecessors by a release.';
COMMENT ON COLUMN siding.outcomes.has_attachments IS 'Had attachments.';
COMMENT ON COLUMN siding.outcomes.exit_code IS 'Exit code of the last attempt.';
COMMENT ON COLUMN siding.outcomes.key IS 'Its key.';
COMMENT ON COLUMN siding.outcomes.message IS 'What the last attempt said, if anything.';

CREATE TABLE siding.runs (
    order_id   bigint NOT NULL,
    lease_no   bigint NOT NULL,
    ended_at   timestamptz NOT NULL,
    started_at timestamptz NOT NULL,
    session_id bigint NOT NULL,
    step_id    int NOT NULL,
    agent_id   int NOT NULL,
    attempt    smallint NOT NULL,
    outcome    text NOT NULL,
    exit_code  int,
    message    text
) PARTITION BY RANGE (ended_at);
CREATE INDEX runs_order ON siding.runs (order_id, lease_no);
COMMENT ON TABLE  siding.runs IS 'Attempts that did not end their order. The last one of an ended order stands in outcomes; siding_report.runs shows both.';
COMMENT ON COLUMN siding.runs.order_id IS 'The order.';
COMMENT ON COLUMN siding.runs.lease_no IS 'The lease.';
COMMENT ON COLUMN siding.runs.ended_at IS 'When it ended.';
COMMENT ON COLUMN siding.runs.started_at IS 'When it was claimed.';
COMMENT ON COLUMN siding.runs.session_id IS 'The session that ran it.';
COMMENT ON COLUMN siding.runs.step_id IS 'The step.';
COMMENT ON COLUMN siding.runs.agent_id IS 'The agent.';
COMMENT ON COLUMN siding.runs.attempt IS 'Number of the attempt within step and round.';
COMMENT ON COLUMN siding.runs.outcome IS 'succeeded, failed, timed_out, rejected, stopped, handed_back or lost.';
COMMENT ON COLUMN siding.runs.exit_code IS 'Exit code of the process.';
COMMENT ON COLUMN siding.runs.message IS 'What went wrong, in a line.';

CREATE TABLE siding.step_outputs (
    order_id  bigint NOT NULL,
    lease_no  bigint NOT NULL,
    ended_at  timestamptz NOT NULL,
    step_id   int NOT NULL,
    outputs   jsonb NOT NULL
) PARTITION BY RANGE (ended_at);
CREATE INDEX step_outputs_order ON siding.step_outputs (order_id);
COMMENT ON TABLE  siding.step_outputs IS 'Values that jobs handed back.';
COMMENT ON COLUMN siding.step_outputs.order_id IS 'The order.';
COMMENT ON COLUMN siding.step_outputs.lease_no IS 'The lease.';
COMMENT ON COLUMN siding.step_outputs.ended_at IS 'When the attempt ended.';
COMMENT ON COLUMN siding.step_outputs.step_id IS 'The step.';
COMMENT ON COLUMN siding.step_outputs.outputs IS 'A JSON object.';

CREATE TABLE siding.output_text (
    order_id     bigint NOT NULL,
    lease_no     bigint NOT NULL,
    written_at   timestamptz NOT NULL,
    stream       text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    start_offset bigint NOT NULL,
    data         bytea NOT NULL
) PARTITION BY RANGE (written_at);
CREATE INDEX output_text_lease ON siding.output_text (order_id, lease_no, stream, start_offset);
COMMENT ON TABLE  siding.output_text IS 'What jobs wrote to stdout and stderr, in pieces.';
COMMENT ON COLUMN siding.output_text.order_id IS 'The order.';
COMMENT ON COLUMN siding.output_text.lease_no IS 'The lease.';
COMMENT ON COLUMN siding.output_text.written_at IS 'When the piece was stored.';
COMMENT ON COLUMN siding.output_text.stream IS 'stdout or stderr.';
COMMENT ON COLUMN siding.output_text.start_offset IS 'Offset of the first byte in its stream.';
COMMENT ON COLUMN siding.output_text.data IS 'The bytes.';

CREATE SEQUENCE siding.event_numbers;
CREATE TABLE siding.events (
    event_no  bigint NOT NULL DEFAULT nextval('siding.event_numbers'),
    at        timestamptz NOT NULL,
    order_id  bigint,
    kind      text NOT NULL,
    subject   text,
    person    text,
    reason    text,
    detail    jsonb NOT NULL DEFAULT '{}'
) PARTITION BY RANGE (at);
CREATE INDEX events_order ON siding.events (order_id, event_no) WHERE order_id IS NOT NULL;
CREATE INDEX events_no ON siding.events (event_no);
CREATE INDEX events_person ON siding.events (at) WHERE person IS NOT NULL;
COMMENT ON TABLE  siding.events IS 'What happened besides adding, starting and ending (which stand in inputs, runs and outcomes): decisions of people, gates opened late, attention, retries, line modes.';
COMMENT ON COLUMN siding.events.event_no IS 'Number; grows.';
COMMENT ON COLUMN siding.events.at IS 'When.';
COMMENT ON COLUMN siding.events.order_id IS 'The order; null for events of definitions, lines and sessions.';
COMMENT ON COLUMN siding.events.kind IS 'Stable code of what happened.';
COMMENT ON COLUMN siding.events.subject IS 'What else it is about: attachment, queue, line, session.';
COMMENT ON COLUMN siding.events.person IS 'Who decided; null for what the controller did itself.';
COMMENT ON COLUMN siding.events.reason IS 'Why they did.';
COMMENT ON COLUMN siding.events.detail IS 'Numbers and names.';

-- +goose Down
DROP TABLE siding.events, siding.output_text, siding.step_outputs, siding.runs, siding.outcomes, siding.inputs CASCADE;
DROP SEQUENCE siding.event_numbers CASCADE;
