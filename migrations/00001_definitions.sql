-- Definitions: what operators apply. Small tables, changed rarely, read by every room.
--
-- A removed definition keeps its row (removed_at) and its id, so that orders, outcomes and log rows that name it stay
-- readable and a transaction that was open meanwhile can't leave a dangling id. Applying the name again revives the row.

-- +goose Up

CREATE SCHEMA IF NOT EXISTS siding_report;
COMMENT ON SCHEMA siding IS 'Siding, a workflow controller. Tables and functions here are internal unless docs/sql.md lists them.';
COMMENT ON SCHEMA siding_report IS 'Views for reports; their columns are kept stable. See docs/sql.md.';

CREATE TABLE siding.queues (
    queue_id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL UNIQUE,
    capacity    int CHECK (capacity >= 1),
    penalty     int NOT NULL DEFAULT 0 CHECK (penalty >= 0),
    revision    int NOT NULL DEFAULT 1,
    updated_at  timestamptz NOT NULL,
    removed_at  timestamptz
);
COMMENT ON TABLE  siding.queues IS 'Named priority queues (docs/concepts.md, Queues).';
COMMENT ON COLUMN siding.queues.queue_id IS 'Id used on orders; 0 on an order means: no queue.';
COMMENT ON COLUMN siding.queues.name IS 'Name, unique for ever.';
COMMENT ON COLUMN siding.queues.capacity IS 'How many candidates are in the queue at a resource; null: unbounded.';
COMMENT ON COLUMN siding.queues.penalty IS 'How many picks of others a queue waits for after `capacity` picks of its own.';
COMMENT ON COLUMN siding.queues.revision IS 'Counts changes; the ETag of the REST API.';
COMMENT ON COLUMN siding.queues.updated_at IS 'When the definition last changed.';
COMMENT ON COLUMN siding.queues.removed_at IS 'When it was removed; null while it exists.';

CREATE TABLE siding.resources (
    resource_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind        text NOT NULL CHECK (kind IN ('agent', 'lock')),
    name        text COLLATE "C" NOT NULL,
    agent_type  text CHECK (agent_type IN ('standalone', 'director', 'cluster')),
    processes   int CHECK (processes >= 0),
    max_blocked int CHECK (max_blocked >= 0),
    director_id int,
    capacity    int CHECK (capacity >= 0),
    grant_idle_limit interval,
    pick_order_id bigint,
    revision    int NOT NULL DEFAULT 1,
    updated_at  timestamptz NOT NULL,
    removed_at  timestamptz,
    UNIQUE (kind, name)
);
COMMENT ON TABLE  siding.resources IS 'What orders compete for: agents and clusters (processes), locks (units). The row is locked FOR UPDATE while a pick is made.';
COMMENT ON COLUMN siding.resources.resource_id IS 'Id; also the id of the line of orders that wait here.';
COMMENT ON COLUMN siding.resources.kind IS 'agent (also a cluster or director) or lock.';
COMMENT ON COLUMN siding.resources.name IS 'Name, unique within its kind for ever.';
COMMENT ON COLUMN siding.resources.agent_type IS 'standalone, director or cluster; null for locks.';
COMMENT ON COLUMN siding.resources.processes IS 'Process limit of an agent or cluster; null: none stated.';
COMMENT ON COLUMN siding.resources.max_blocked IS 'More attachment-blocked orders than this turn the line strict; null: no such stop.';
COMMENT ON COLUMN siding.resources.director_id IS 'The director that leads this cluster.';
COMMENT ON COLUMN siding.resources.capacity IS 'Units of a lock.';
COMMENT ON COLUMN siding.resources.grant_idle_limit IS 'A grant idle for longer is shown and counted (locks).';
COMMENT ON COLUMN siding.resources.pick_order_id IS 'Lock: the order that was picked and waits until it fits; nobody passes it.';
COMMENT ON COLUMN siding.resources.revision IS 'Counts changes; the ETag of the REST API.';
COMMENT ON COLUMN siding.resources.updated_at IS 'When the definition last changed.';
COMMENT ON COLUMN siding.resources.removed_at IS 'When it was removed; null while it exists.';

CREATE TABLE siding.resource_queues (
    resource_id int NOT NULL REFERENCES siding.resources,
    rank        int NOT NULL,
    queue_id    int NOT NULL REFERENCES siding.queues,
    PRIMARY KEY (resource_id, rank),
    UNIQUE (resource_id, queue_id)
);
COMMENT ON TABLE  siding.resource_queues IS 'The queues that a resource lists, in precedence order.';
COMMENT ON COLUMN siding.resource_queues.resource_id IS 'The resource.';
COMMENT ON COLUMN siding.resource_queues.rank IS 'Precedence, 1 first.';
COMMENT ON COLUMN siding.resource_queues.queue_id IS 'The queue.';

CREATE TABLE siding.cluster_members (
    cluster_id int NOT NULL REFERENCES siding.resources,
    agent_id   int NOT NULL REFERENCES siding.resources,
    priority   int NOT NULL,
    PRIMARY KEY (cluster_id, agent_id)
);
COMMENT ON TABLE  siding.cluster_members IS 'Members of clusters; the highest priority alive gets the work.';
COMMENT ON COLUMN siding.cluster_members.cluster_id IS 'The cluster.';
COMMENT ON COLUMN siding.cluster_members.agent_id IS 'The member.';
COMMENT ON COLUMN siding.cluster_members.priority IS 'Higher goes first.';

CREATE TABLE siding.key_spaces (
    key_space_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE  siding.key_spaces IS 'Sets of keys that workflows share; by default one per workflow.';
COMMENT ON COLUMN siding.key_spaces.key_space_id IS 'Id used on orders.';
COMMENT ON COLUMN siding.key_spaces.name IS 'Name: of the workflow, unless workflows state a common one.';

CREATE TABLE siding.workflows (
    workflow_id        int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name               text COLLATE "C" NOT NULL UNIQUE,
    current_version_id int,
    revision           int NOT NULL DEFAULT 1,
    updated_at         timestamptz NOT NULL,
    removed_at         timestamptz
);
COMMENT ON TABLE  siding.workflows IS 'Workflows by name; what they do stands in their versions.';
COMMENT ON COLUMN siding.workflows.workflow_id IS 'Id.';
COMMENT ON COLUMN siding.workflows.name IS 'Name, unique for ever.';
COMMENT ON COLUMN siding.workflows.current_version_id IS 'The version that new orders get.';
COMMENT ON COLUMN siding.workflows.revision IS 'Counts changes; the ETag of the REST API.';
COMMENT ON COLUMN siding.workflows.updated_at IS 'When the definition last changed.';
COMMENT ON COLUMN siding.workflows.removed_at IS 'When it was removed; null while it exists.';

CREATE TABLE siding.workflow_versions (
    version_id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow_id   int NOT NULL REFERENCES siding.workflows,
    version       int NOT NULL,
    definition    jsonb NOT NULL,
    ordering      text NOT NULL CHECK (ordering IN ('independent', 'strict', 'key_from_order', 'key_template')),
    key_template  text,
    key_space_id  int NOT NULL REFERENCES siding.key_spaces,
    wait_limit    interval,
    attachments   jsonb NOT NULL DEFAULT '[]',
    first_step_id int,
    created_at    timestamptz NOT NULL,
    created_by    text NOT NULL,
    UNIQUE (workflow_id, version)
);
COMMENT ON TABLE  siding.workflow_versions IS 'Immutable versions of workflows. An order keeps the version it was added with.';
COMMENT ON COLUMN siding.workflow_versions.version_id IS 'Id.';
COMMENT ON COLUMN siding.workflow_versions.workflow_id IS 'The workflow.';
COMMENT ON COLUMN siding.workflow_versions.version IS 'Number within the workflow, from 1.';
COMMENT ON COLUMN siding.workflow_versions.definition IS 'The definition as applied, in normal form.';
COMMENT ON COLUMN siding.workflow_versions.ordering IS 'How orders are kept in sequence.';
COMMENT ON COLUMN siding.workflow_versions.key_template IS 'Template of the key over argument paths, for key_template.';
COMMENT ON COLUMN siding.workflow_versions.key_space_id IS 'The key space.';
COMMENT ON COLUMN siding.workflow_versions.wait_limit IS 'How long an order may wait for its attachments; null: no limit.';
COMMENT ON COLUMN siding.workflow_versions.attachments IS 'Attachments expected of each order that states none itself.';
COMMENT ON COLUMN siding.workflow_versions.first_step_id IS 'Where orders begin.';
COMMENT ON COLUMN siding.workflow_versions.created_at IS 'When it was applied.';
COMMENT ON COLUMN siding.workflow_versions.created_by IS 'Who applied it.';

CREATE TABLE siding.job_classes (
    class_id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workflow_id int NOT NULL REFERENCES siding.workflows,
    job         text COLLATE "C" NOT NULL,
    processes   int CHECK (processes >= 0),
    UNIQUE (workflow_id, job)
);
COMMENT ON TABLE  siding.job_classes IS 'Jobs that state a process limit of their own. Their orders stand apart in the claim index.';
COMMENT ON COLUMN siding.job_classes.class_id IS 'Id used on orders; 0 on an order means: no limit of its own.';
COMMENT ON COLUMN siding.job_classes.workflow_id IS 'The workflow.';
COMMENT ON COLUMN siding.job_classes.job IS 'The job''s name.';
COMMENT ON COLUMN siding.job_classes.processes IS 'The limit as the newest version states it; null: none any more.';

CREATE TABLE siding.steps (
    step_id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version_id       int NOT NULL REFERENCES siding.workflow_versions,
    step_path        text NOT NULL,
    next_step_id     int,
    line_id          int NOT NULL REFERENCES siding.resources,
    class_id         int NOT NULL DEFAULT 0,
    job              text NOT NULL,
    max_attempts     int NOT NULL,
    backoff_first    interval NOT NULL,
    backoff_max      interval NOT NULL,
    timeout_ms       bigint NOT NULL DEFAULT 0,
    on_lost          text NOT NULL CHECK (on_lost IN ('retry', 'attention')),
    job_spec         jsonb,
    lock_path        text,
    UNIQUE (version_id, step_path)
);
COMMENT ON TABLE  siding.steps IS 'The job steps of each version, flattened. An order''s step_id names version and place at once.';
COMMENT ON COLUMN siding.steps.step_id IS 'Id used on orders.';
COMMENT ON COLUMN siding.steps.version_id IS 'The version.';
COMMENT ON COLUMN siding.steps.step_path IS 'Place in the definition: 1, 2, 2.1 ...';
COMMENT ON COLUMN siding.steps.next_step_id IS 'The step that follows; null at the end.';
COMMENT ON COLUMN siding.steps.line_id IS 'The agent or cluster whose process the step needs.';
COMMENT ON COLUMN siding.steps.class_id IS 'The job''s own limit, 0 for none.';
COMMENT ON COLUMN siding.steps.job IS 'The job''s name.';
COMMENT ON COLUMN siding.steps.max_attempts IS 'Attempts before the order is dead.';
COMMENT ON COLUMN siding.steps.backoff_first IS 'Delay after the first failed attempt; after the n-th, n*n times as long.';
COMMENT ON COLUMN siding.steps.backoff_max IS 'Longest delay.';
COMMENT ON COLUMN siding.steps.timeout_ms IS 'The agent ends the job after this many milliseconds; 0: never.';
COMMENT ON COLUMN siding.steps.on_lost IS 'What happens when the session that runs it is lost.';
COMMENT ON COLUMN siding.steps.job_spec IS 'What the agent runs; null for a step that runs no process.';
COMMENT ON COLUMN siding.steps.lock_path IS 'Path of the innermost lock block around the step; null for none.';

CREATE TABLE siding.lock_blocks (
    version_id int NOT NULL REFERENCES siding.workflow_versions,
    block_path text NOT NULL,
    parent_path text,
    first_step_id int NOT NULL,
    resume_at  text NOT NULL DEFAULT 'block' CHECK (resume_at IN ('block', 'step')),
    PRIMARY KEY (version_id, block_path)
);
COMMENT ON TABLE  siding.lock_blocks IS 'Lock blocks of each version.';
COMMENT ON COLUMN siding.lock_blocks.version_id IS 'The version.';
COMMENT ON COLUMN siding.lock_blocks.block_path IS 'Place of the block in the definition.';
COMMENT ON COLUMN siding.lock_blocks.parent_path IS 'The lock block around it; null for an outermost one.';
COMMENT ON COLUMN siding.lock_blocks.first_step_id IS 'The first job step inside.';
COMMENT ON COLUMN siding.lock_blocks.resume_at IS 'Where an order goes on that lost its locks by attention or death: block (its outermost lock block again) or step.';

CREATE TABLE siding.lock_needs (
    version_id int NOT NULL,
    block_path text NOT NULL,
    lock_id    int NOT NULL REFERENCES siding.resources,
    weight     int CHECK (weight >= 1),
    PRIMARY KEY (version_id, block_path, lock_id),
    FOREIGN KEY (version_id, block_path) REFERENCES siding.lock_blocks
);
COMMENT ON TABLE  siding.lock_needs IS 'What each lock block takes.';
COMMENT ON COLUMN siding.lock_needs.version_id IS 'The version.';
COMMENT ON COLUMN siding.lock_needs.block_path IS 'The block.';
COMMENT ON COLUMN siding.lock_needs.lock_id IS 'The lock.';
COMMENT ON COLUMN siding.lock_needs.weight IS 'Units taken shared; null: exclusive.';

CREATE TABLE siding.streams (
    line_id  int NOT NULL,
    class_id int NOT NULL,
    queue_id int NOT NULL,
    PRIMARY KEY (line_id, class_id, queue_id)
);
COMMENT ON TABLE  siding.streams IS 'Which (job limit, queue) pairs occur in a line: the heads that a pick merges. Rows are made before the first order is ready and never removed while the line exists.';
COMMENT ON COLUMN siding.streams.line_id IS 'The resource.';
COMMENT ON COLUMN siding.streams.class_id IS 'The job''s own limit, 0 for none.';
COMMENT ON COLUMN siding.streams.queue_id IS 'The queue, 0 for none.';

CREATE TABLE siding.lines (
    line_id       int PRIMARY KEY REFERENCES siding.resources,
    mode          text NOT NULL DEFAULT 'pass' CHECK (mode IN ('pass', 'strict')),
    reason        text CHECK (reason IN ('fact_unreadable', 'too_many_blocked', 'set_by_person')),
    since         timestamptz,
    person_mode   text CHECK (person_mode IN ('pass', 'strict')),
    person        text,
    person_reason text,
    too_many      boolean NOT NULL DEFAULT false,
    floor         bigint NOT NULL DEFAULT -9223372036854775808
);
COMMENT ON TABLE  siding.lines IS 'One row per resource: whether its line passes blocked orders, and where the scan for candidates starts.';
COMMENT ON COLUMN siding.lines.line_id IS 'The resource.';
COMMENT ON COLUMN siding.lines.mode IS 'pass: ready orders pass blocked ones; strict: nothing that has not started passes the first blocked one.';
COMMENT ON COLUMN siding.lines.reason IS 'Why it is strict, or that a person set it.';
COMMENT ON COLUMN siding.lines.since IS 'When the mode or reason last changed.';
COMMENT ON COLUMN siding.lines.person_mode IS 'What a person set; null: automatic.';
COMMENT ON COLUMN siding.lines.person IS 'Who set it.';
COMMENT ON COLUMN siding.lines.person_reason IS 'Why they set it.';
COMMENT ON COLUMN siding.lines.too_many IS 'The number of blocked orders turned it and is not yet at or below 80 % of the limit.';
COMMENT ON COLUMN siding.lines.floor IS 'No order that was ready from the start stands below this position: the scan starts here, behind dead index entries.';

CREATE TABLE siding.pauses (
    kind       text NOT NULL CHECK (kind IN ('queue', 'agent', 'lock', 'workflow')),
    subject_id int NOT NULL,
    until      timestamptz,
    reason     text NOT NULL,
    person     text NOT NULL,
    since      timestamptz NOT NULL,
    PRIMARY KEY (kind, subject_id)
);
COMMENT ON TABLE  siding.pauses IS 'What people paused at the moment.';
COMMENT ON COLUMN siding.pauses.kind IS 'queue, agent (a line), lock or workflow.';
COMMENT ON COLUMN siding.pauses.subject_id IS 'Id of the queue, resource or workflow.';
COMMENT ON COLUMN siding.pauses.until IS 'When it ends by itself; null: until resumed.';
COMMENT ON COLUMN siding.pauses.reason IS 'Why.';
COMMENT ON COLUMN siding.pauses.person IS 'Who.';
COMMENT ON COLUMN siding.pauses.since IS 'Since when.';

CREATE TABLE siding.tokens (
    name       text COLLATE "C" PRIMARY KEY,
    role       text NOT NULL CHECK (role IN ('viewer', 'submitter', 'operator', 'agent', 'admin')),
    sha256     bytea NOT NULL UNIQUE,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    revoked_at timestamptz
);
COMMENT ON TABLE  siding.tokens IS 'Access tokens of the REST API, stored hashed.';
COMMENT ON COLUMN siding.tokens.name IS 'Name; recorded as the person of every decision made with it.';
COMMENT ON COLUMN siding.tokens.role IS 'What it may do.';
COMMENT ON COLUMN siding.tokens.sha256 IS 'SHA-256 of the token.';
COMMENT ON COLUMN siding.tokens.created_at IS 'When it was made.';
COMMENT ON COLUMN siding.tokens.created_by IS 'Who made it.';
COMMENT ON COLUMN siding.tokens.revoked_at IS 'When it was revoked; null while valid.';

-- +goose Down
DROP TABLE siding.tokens, siding.pauses, siding.lines, siding.streams, siding.lock_needs, siding.lock_blocks, siding.steps,
    siding.job_classes, siding.workflow_versions, siding.workflows, siding.key_spaces, siding.cluster_members,
    siding.resource_queues, siding.resources, siding.queues CASCADE;
DROP SCHEMA siding_report CASCADE;
