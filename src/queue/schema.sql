-- schema.sql - everything that `belay queue install` puts into a database. Plain SQL for a DBA to read:
-- `belay queue install --print` shows it, and into an empty schema `psql -v schema=NAME -1 -f` does the same.
--
-- A request is one row of `request`:   new -> in-progress -> complete | error
--   transaction mode  the row stays `new` and locked while it is worked on; commit settles it
--   lease mode        the row is `in-progress` with a fence and a lease until it is settled
--
-- One entity is worked on by one process at a time. Who may start is decided under a lock of the entity
-- (pg_try_advisory_xact_lock on a 64-bit hash; a collision only makes an entity look busy), and only
-- after it is held are the entity's rows read, with a fresh snapshot. They are row-locked too, with NOWAIT, so
-- that processes which speak plain SQL to this table (SELECT ... FOR UPDATE NOWAIT) are respected and respect us.
--
-- A captured statement that changes many rows writes bundles, not requests: one row of `bundle` holds up to 1024 requests with
-- their ids. A worker unfolds them before it takes anything of the queue, so that nothing is overtaken and the updates of an entity
-- are worked on together; a statement sees either a bundle or its requests. When bundles come faster than that, workers take what
-- has a lower id than the first of them.
--
-- Plans must not depend on statistics: they stay the same from an empty table to millions of rows. Workers switch
-- sequential scans, bitmaps, hash and merge joins off for their session (per call that would cost more than the
-- work). And some spells: "coalesce(run_at, '-infinity')", where an entity's rows are meant, cannot lead to the index of
-- due rows; "status || ''", where a row is known or its time is meant, cannot lead to an index on status; a row is joined by
-- "id = ANY (...)", because for "id = x" the planner may walk the primary key while the table is small, and keep doing so.
--
-- Sections: each "-- == version N ==" runs once, in order; "-- == functions ==" on every install.

-- == version 1 ==

CREATE TABLE :"schema".meta (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    product    text NOT NULL DEFAULT 'belay queue',
    version    integer NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO :"schema".meta (version) VALUES (1);

CREATE TABLE :"schema".queue (
    name       text COLLATE "C" PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT queue_name CHECK (char_length(name) BETWEEN 1 AND 128 AND name !~ '[[:cntrl:]]')
);

CREATE TABLE :"schema".request (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue       text COLLATE "C" NOT NULL,   -- compared as bytes: cheaper, and the same everywhere
    entity      text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL DEFAULT 'create',
    status      text COLLATE "C" NOT NULL DEFAULT 'new',
    attempts    integer NOT NULL DEFAULT 0,  -- how often a worker began it and came to an end, good or bad
    run_at      timestamptz,                 -- NULL: due; else not before (asked for, or back-off)
    fence       bigint,                      -- of the last claim
    lease_until timestamptz,                 -- lease mode, while in-progress
    pushed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_at  timestamptz,
    settled_at  timestamptz,
    process     uuid,                        -- of the last claim
    worker      text,                        -- who claimed it, for people
    payload     jsonb,
    outcome     text,
    error       text,
    CONSTRAINT request_status CHECK (status IN ('new', 'in-progress', 'complete', 'error')),
    CONSTRAINT request_kind CHECK (kind IN ('create', 'update')),
    CONSTRAINT request_entity CHECK (octet_length(entity) BETWEEN 1 AND 512)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- What a search reads: due rows only, so neither history nor what is planned for later slows it down.
-- "id + 0" because the primary key cannot serve that: whatever the statistics say, no plan walks the history.
CREATE INDEX request_due ON :"schema".request (queue, (id + 0)) WHERE status = 'new' AND run_at IS NULL;
CREATE INDEX request_later ON :"schema".request (queue, run_at) WHERE status = 'new' AND run_at IS NOT NULL;
-- The outstanding updates of an entity: what a group is made of.
CREATE INDEX request_group ON :"schema".request (queue, entity, id) WHERE status = 'new' AND kind = 'update';
-- What keeps an entity from being started: a lease, or an earlier attempt that waits for its back-off.
CREATE INDEX request_leased ON :"schema".request (queue, entity) WHERE status = 'in-progress';
CREATE INDEX request_waits ON :"schema".request (queue, entity)
    WHERE status = 'new' AND run_at IS NOT NULL AND attempts > 0;
-- At most one open or completed create per entity.
CREATE UNIQUE INDEX request_create ON :"schema".request (queue, entity) WHERE kind = 'create' AND status <> 'error';
CREATE INDEX request_settled ON :"schema".request (queue, entity, id) WHERE status IN ('complete', 'error');
CREATE INDEX request_age ON :"schema".request USING brin (settled_at);

CREATE SEQUENCE :"schema".fence;

-- == version 2 ==

-- Journal of attempts. A crash rolls the claim back, so the count of attempts must live outside of the
-- transaction: every slot of a worker writes the id it begins into a sequence of its own (setval is not
-- undone by a rollback, needs no commit of its own and costs microseconds) and 0 when it is done, unless that is
-- told by the request, which is complete. A cell that nobody holds locked and that is not 0 is an attempt whose worker
-- died; tend() counts it.
CREATE TABLE :"schema".cell (
    no integer PRIMARY KEY CHECK (no BETWEEN 1 AND 4096)
);

CREATE TABLE :"schema".guard (
    resource text PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 1024),
    fence    bigint NOT NULL CHECK (fence > 0),
    seen_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE :"schema".capture (
    no         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source     regclass NOT NULL,
    queue      text NOT NULL,
    entity     text NOT NULL,      -- SQL, over the columns of the table
    columns    text[] NOT NULL,
    condition  text,               -- SQL, over old and new
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (source, queue, entity)
);

UPDATE :"schema".meta SET version = 2, changed_at = now();

-- == version 3 ==

DROP INDEX :"schema".request_later, :"schema".request_group, :"schema".request_leased, :"schema".request_waits,
    :"schema".request_settled, :"schema".request_age;
DROP FUNCTION IF EXISTS :"schema".claim(text, bigint, integer, boolean, boolean), :"schema".gather(text, text, text),
    :"schema".claim_lease(text, bigint, integer, integer, text, boolean, boolean),
    :"schema".take_lease(text, text[], integer, text, boolean),
    :"schema".settle_lease(text[], bigint[], text[], text[], text[], integer, integer, integer),
    :"schema".capture_rows_folded(text, regclass, text, text);

-- A domain is checked where a value is given. The CHECK of a table is read from its text again by each statement,
-- which was a tenth of a settle.
CREATE DOMAIN :"schema".request_status AS text COLLATE "C" CHECK (VALUE IN ('new', 'in-progress', 'complete', 'error'));
CREATE DOMAIN :"schema".request_kind AS text COLLATE "C" CHECK (VALUE IN ('create', 'update'));
CREATE DOMAIN :"schema".request_entity AS text COLLATE "C" CHECK (octet_length(VALUE) BETWEEN 1 AND 512);
ALTER TABLE :"schema".request
    DROP CONSTRAINT request_status, DROP CONSTRAINT request_kind, DROP CONSTRAINT request_entity,
    ALTER status TYPE :"schema".request_status, ALTER kind TYPE :"schema".request_kind,
    ALTER entity TYPE :"schema".request_entity;

-- The rows of an entity are found by a hash of its name: narrow keys that are quick to compare. The new ones in this
-- order: its create, updates that wait for a time, due updates.
CREATE INDEX request_open ON :"schema".request (hashtextextended(entity, hashtextextended(queue, 0)), kind, run_at, id)
    WHERE status = 'new';
CREATE INDEX request_leased ON :"schema".request (hashtextextended(entity, hashtextextended(queue, 0)))
    WHERE status = 'in-progress';
CREATE INDEX request_settled ON :"schema".request (hashtextextended(entity, hashtextextended(queue, 0)), id)
    WHERE status IN ('complete', 'error');
-- What was settled when.
CREATE INDEX request_age ON :"schema".request (queue, settled_at) WHERE settled_at IS NOT NULL;
-- What waits for a time: for its first attempt, for another one.
CREATE INDEX request_later ON :"schema".request (queue, (attempts > 0), run_at) WHERE run_at IS NOT NULL;

UPDATE :"schema".meta SET version = 3, changed_at = now();

-- == version 4 ==

-- The requests of a statement that changed many rows (capture), in arrays: one row costs the statement a tenth of what 1024 rows
-- with their indexes do. A request's payload is head || body || tail, and all of them are updates. Written outside of the table
-- and as they are: to compress them would take longer.
CREATE TABLE :"schema".bundle (
    id        bigint NOT NULL,     -- of the first request
    last      bigint NOT NULL,     -- of the last one; ids of others may lie between
    queue     text COLLATE "C" NOT NULL,
    pushed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    size      integer NOT NULL,
    head      text NOT NULL,
    tail      text NOT NULL,
    ids       bigint[] NOT NULL,
    entities  :"schema".request_entity[] NOT NULL,
    bodies    text[],              -- NULL: the entities themselves
    PRIMARY KEY (queue, id)
);
ALTER TABLE :"schema".bundle ALTER ids SET STORAGE EXTERNAL, ALTER entities SET STORAGE EXTERNAL, ALTER bodies SET STORAGE EXTERNAL;

DROP FUNCTION IF EXISTS :"schema".due(text, bigint, text[]), :"schema".claim(text, bigint, integer, uuid[], boolean, boolean),
    :"schema".claim_careful(text, bigint, integer, uuid[], boolean),
    :"schema".claim_lease(text, bigint, uuid[], integer, text, boolean, boolean);

UPDATE :"schema".meta SET version = 4, changed_at = now();

-- == version 5 ==

-- A cell belongs to one worker: numbers are given out once. A cell whose worker was not heard of for long gets a new number, and
-- its sequence the name that goes with it, before another worker has it.
ALTER TABLE :"schema".cell DROP CONSTRAINT cell_no_check, ADD seen_at timestamptz NOT NULL DEFAULT now();
CREATE SEQUENCE :"schema".cell_no AS integer;
SELECT setval(c.oid::regclass, (SELECT max(no) FROM :"schema".cell)) FROM pg_class c JOIN pg_class o USING (relnamespace)
WHERE c.relname = 'cell_no' AND o.oid = (SELECT tableoid FROM :"schema".meta) AND EXISTS (SELECT FROM :"schema".cell);

-- The role that holds a lease: only that one settles it.
ALTER TABLE :"schema".request ADD holder text;

-- Columns of a captured table by number, which stays the same when they are renamed; 0: all of them.
ALTER TABLE :"schema".capture ADD entity_number smallint, ADD column_numbers smallint[] NOT NULL DEFAULT '{}',
    ADD always boolean NOT NULL DEFAULT false, ADD notify boolean NOT NULL DEFAULT true;
UPDATE :"schema".capture c SET
    entity_number = (SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.source AND a.attname = c.entity AND a.attnum > 0 AND NOT a.attisdropped),
    column_numbers = ARRAY(SELECT coalesce((SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.source AND a.attname = x.name
                                            AND a.attnum > 0 AND NOT a.attisdropped), CASE x.name WHEN '*' THEN 0 ELSE -1 END)
                           FROM unnest(c.columns) WITH ORDINALITY x (name, n) ORDER BY x.n);

-- Every captured statement writes bundles: many of them come and go.
ALTER TABLE :"schema".bundle SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Queues of which nothing is taken. While there is none the table has no page, which costs next to nothing to see.
CREATE TABLE :"schema".paused (
    queue text COLLATE "C" PRIMARY KEY,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 0);

-- What a request asks for itself; NULL: what its worker says.
ALTER TABLE :"schema".request ADD max_attempts integer, ADD timeout_ms integer;

-- How its attempts failed: the last twenty, [{"attempt", "at", "error"}].
ALTER TABLE :"schema".request ADD failures jsonb;

-- Keys that are taken: a push with the same key makes nothing until then (push_once).
CREATE TABLE :"schema".once (
    queue text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL,
    id    bigint, -- of the request
    PRIMARY KEY (queue, key),
    CONSTRAINT once_key CHECK (octet_length(key) BETWEEN 1 AND 512)
);
CREATE INDEX once_until ON :"schema".once (until);

-- What is kept of settled requests; NULL: all.
ALTER TABLE :"schema".queue ADD keep_age interval, ADD keep_count bigint, ADD swept_at timestamptz NOT NULL DEFAULT '-infinity',
    ADD CONSTRAINT queue_keep CHECK (keep_age >= interval '0' AND keep_count >= 0);

DROP VIEW IF EXISTS :"schema".claimed;
DROP FUNCTION IF EXISTS :"schema".capture(regclass, text, text, text[], text), :"schema".uncapture(integer), :"schema".captures(),
    :"schema".capture_source(integer), :"schema".capture_keys_bundled(text, regclass, text, text, text),
    :"schema".capture_keys_bundled(text, text, text, text), :"schema".capture_rows_bundled(text, text),
    :"schema".tend(text[], integer, integer, integer), :"schema".purge(text, interval, integer),
    :"schema".announce(text), :"schema".ensure_queue(text), :"schema".settled_within(text, interval), :"schema".unfold_one(text, bigint),
    :"schema".status(text), :"schema".claim(text, bigint, integer, uuid[], boolean, boolean, text, text, bigint, boolean, bigint),
    :"schema".claim_careful(text, bigint, integer, uuid[], boolean, boolean),
    :"schema".claim_lease(text, bigint, uuid[], integer, text, boolean, boolean, boolean);

UPDATE :"schema".meta SET version = 5, changed_at = now();

-- == functions ==

-- The number that a worker and the command line compare with their own.
CREATE OR REPLACE FUNCTION :"schema".version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
    SELECT version FROM meta;
$$;

-- Plain SQL bodies without settings: such a function is put in place of its call, so that it costs nothing and
-- the indexes on the same expressions are found.

CREATE OR REPLACE FUNCTION :"schema".entity_key(p_queue text, p_entity text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(p_entity, hashtextextended(p_queue, 0));
$$;

-- The row is one of this entity; a collision of the hash is sorted out by the names.
CREATE OR REPLACE FUNCTION :"schema".is_of(r :"schema".request, p_queue text, p_entity text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended(r.entity, hashtextextended(r.queue, 0)) = hashtextextended(p_entity, hashtextextended(p_queue, 0))
       AND r.entity = p_entity AND r.queue = p_queue;
$$;

-- One of the new rows of an entity that decide what may be done with it. The first of them in the order of
-- request_open tells all: due, it and its like may be worked on; else it is in the way. Planned updates that were
-- never tried are not.
CREATE OR REPLACE FUNCTION :"schema".decides(r :"schema".request) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT r.status = 'new' AND (r.kind = 'create' OR r.attempts > 0 OR coalesce(r.run_at, '-infinity') = '-infinity');
$$;

CREATE OR REPLACE FUNCTION :"schema".due_kind(r :"schema".request) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN r.run_at IS NULL THEN r.kind END;
$$;

-- How much a payload is for who reads it: not less than its text, but a small one is not looked at.
CREATE OR REPLACE FUNCTION :"schema".weight(payload jsonb) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN pg_column_size(payload) > 200 THEN octet_length(payload::text) ELSE 200 END;
$$;

-- Wakes the workers of a queue when the transaction commits; the database folds repetitions. What is planned for later makes all of
-- them look what time brings, and when (tend).
CREATE OR REPLACE FUNCTION :"schema".announce(p_queue text, p_run_at timestamptz DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM pg_notify(current_schema() || '.push', CASE WHEN p_run_at IS NULL THEN p_queue ELSE E'\x02' || '0' END);
END $$;

-- Is there a worker that waits for requests of this queue? Such a worker has the queue's lock, shared (fall_asleep), and only then is it
-- worth a notification: NOTIFY makes the commits of the whole database wait for each other. The lock is tried for a moment; two who
-- try at once take each other for a worker. This is put in place of its call, and as one expression nothing ends it halfway.
SET LOCAL check_function_bodies = off;
CREATE OR REPLACE FUNCTION :"schema".asleep(p_queue text) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT NOT (pg_try_advisory_lock('queue'::regclass::oid::integer, hashtext(p_queue))
                AND pg_advisory_unlock('queue'::regclass::oid::integer, hashtext(p_queue)));
$$;
SET LOCAL check_function_bodies = on;

-- A worker is about to wait on this connection: from here on it is notified of what is pushed. It must look for requests once more,
-- and again later while transactions run that are older than this and may have asked asleep() before: as long as `alone` is false.
-- p_before is what the last call gave as `before`; NULL: there was none, or it gave none, because somebody tried the lock just then.
CREATE OR REPLACE FUNCTION :"schema".fall_asleep(p_queues text[], p_before xid8 DEFAULT NULL, OUT before xid8, OUT alone boolean)
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
BEGIN
    alone := false;
    IF p_before IS NULL THEN
        FOR i IN 1..cardinality(p_queues) LOOP
            IF NOT pg_try_advisory_lock_shared('queue'::regclass::oid::integer, hashtext(p_queues[i])) THEN
                PERFORM get_up(p_queues[1:i - 1]);
                RETURN;
            END IF;
        END LOOP;
    END IF;
    before := coalesce(p_before, pg_snapshot_xmax(pg_current_snapshot()));
    alone := pg_snapshot_xmin(pg_current_snapshot()) >= before;
END $$;

-- It has enough to do, and need not be told of more.
CREATE OR REPLACE FUNCTION :"schema".get_up(p_queues text[]) RETURNS void
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM pg_advisory_unlock_shared('queue'::regclass::oid::integer, hashtext(q)) FROM unnest(p_queues) q;
END $$;

-- A worker that takes leases tells the others when to look whether it still lives. Each lease that begins until then has not
-- ended before.
CREATE OR REPLACE FUNCTION :"schema".announce_look(p_ms integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM pg_notify(current_schema() || '.push', E'\x02' || p_ms);
END $$;

-- True when there was no such queue.
CREATE OR REPLACE FUNCTION :"schema".ensure_queue(p_queue text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM queue q WHERE q.name = p_queue) THEN
        RETURN false;
    END IF;
    IF p_queue IS NULL OR char_length(p_queue) NOT BETWEEN 1 AND 128 OR p_queue ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'a queue name has 1 to 128 characters and no control characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO queue (name) VALUES (p_queue) ON CONFLICT DO NOTHING;
    RETURN true;
END $$;

-- Refuses a queue that has never been pushed to: a typing error must not look like an empty queue.
CREATE OR REPLACE FUNCTION :"schema".known_queue(p_queue text) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM queue q WHERE q.name = p_queue) THEN
        RAISE EXCEPTION 'unknown queue "%"', p_queue USING ERRCODE = 'undefined_object',
            HINT = coalesce('Known: ' || (SELECT string_agg(name, ', ' ORDER BY name)
                                          FROM (SELECT name FROM queue ORDER BY name LIMIT 20) q),
                            'There is no queue yet: the first push makes one.');
    END IF;
END $$;

-- One request, in the caller's transaction; workers hear of it when that commits. Returns its id. There is no EXCEPTION here: it
-- would take a transaction id of its own. A queue that is known costs nothing but a look within the insert.
CREATE OR REPLACE FUNCTION :"schema".push(queue text, entity text, kind text DEFAULT 'create',
    payload jsonb DEFAULT NULL, run_at timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
#variable_conflict use_variable
DECLARE
    new_id bigint;
    told boolean;
BEGIN
    IF kind IS NULL OR kind NOT IN ('create', 'update') THEN
        RAISE EXCEPTION 'kind is "create" or "update", not "%"', kind USING ERRCODE = 'invalid_parameter_value';
    ELSIF entity IS NULL OR octet_length(entity) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'an entity has 1 to 512 bytes' USING ERRCODE = 'invalid_parameter_value';
    ELSIF octet_length(payload::text) > 1048576 THEN
        RAISE EXCEPTION 'the payload is larger than 1 MiB' USING ERRCODE = 'program_limit_exceeded';
    ELSIF run_at <= clock_timestamp() THEN
        run_at := NULL;
    END IF;
    LOOP
        IF kind = 'update' THEN
            INSERT INTO request AS r (queue, entity, kind, payload, run_at)
                SELECT queue, entity, kind, payload, run_at WHERE EXISTS (SELECT FROM queue q WHERE q.name = queue)
                RETURNING r.id INTO new_id;
        ELSE
            INSERT INTO request AS r (queue, entity, kind, payload, run_at)
                SELECT queue, entity, kind, payload, run_at WHERE EXISTS (SELECT FROM queue q WHERE q.name = queue)
                ON CONFLICT DO NOTHING RETURNING r.id INTO new_id;
        END IF;
        EXIT WHEN new_id IS NOT NULL;
        IF NOT ensure_queue(queue) THEN
            RAISE EXCEPTION 'entity "%" of queue "%" has a create already', entity, queue
                USING ERRCODE = 'unique_violation';
        END IF;
    END LOOP;
    told := (run_at IS NOT NULL OR asleep(queue))
        AND pg_notify(current_schema() || '.push', CASE WHEN run_at IS NULL THEN queue ELSE E'\x02' || '0' END) IS NULL;
    RETURN new_id;
END $$;

-- Many at once: an array of {"entity", "kind", "payload", "run_at", "max_attempts", "timeout_ms"}; all or none, ids in their order.
CREATE OR REPLACE FUNCTION :"schema".push_many(p_queue text, p_requests jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    bad text;
    made integer;
BEGIN
    IF jsonb_typeof(p_requests) IS DISTINCT FROM 'array' OR jsonb_array_length(p_requests) > 10000 THEN
        RAISE EXCEPTION 'requests are an array of at most 10000 objects' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT 'request ' || x.n || x.why INTO bad FROM
        (SELECT e.n, CASE WHEN jsonb_typeof(e.it) <> 'object' THEN ' is not an object'
                          WHEN coalesce(octet_length(e.it->>'entity'), 0) NOT BETWEEN 1 AND 512 THEN ': an entity has 1 to 512 bytes'
                          WHEN coalesce(e.it->>'kind', 'create') NOT IN ('create', 'update') THEN ': kind is "create" or "update"'
                          WHEN octet_length((e.it->'payload')::text) > 1048576 THEN ': the payload is larger than 1 MiB'
                          WHEN (e.it->>'max_attempts')::integer NOT BETWEEN 1 AND 1000 THEN ': max_attempts is 1 to 1000'
                          WHEN (e.it->>'timeout_ms')::integer NOT BETWEEN 1 AND 604800000 THEN ': timeout_ms is 1 to 604800000' END AS why
         FROM jsonb_array_elements(p_requests) WITH ORDINALITY e (it, n)) x
    WHERE x.why IS NOT NULL ORDER BY x.n LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%', bad USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM ensure_queue(p_queue);
    RETURN QUERY INSERT INTO request AS r (queue, entity, kind, payload, run_at, max_attempts, timeout_ms)
        SELECT p_queue, e->>'entity', coalesce(e->>'kind', 'create'), e->'payload',
               CASE WHEN (e->>'run_at')::timestamptz > clock_timestamp() THEN (e->>'run_at')::timestamptz END,
               (e->>'max_attempts')::integer, (e->>'timeout_ms')::integer
        FROM jsonb_array_elements(p_requests) WITH ORDINALITY x (e, n) ORDER BY n
        ON CONFLICT DO NOTHING RETURNING r.id;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made < jsonb_array_length(p_requests) THEN
        RAISE EXCEPTION 'an entity of queue "%" has a create already', p_queue USING ERRCODE = 'unique_violation';
    END IF;
    PERFORM announce(p_queue);
    IF p_requests @? '$[*].run_at' THEN
        PERFORM announce(p_queue, 'infinity');
    END IF;
END $$;

-- One of them, unless one with this key was pushed to the queue within p_within, whatever became of that: then its id, and `made` is
-- false. Whoever comes second while the first has not committed waits for it.
CREATE OR REPLACE FUNCTION :"schema".push_once(p_queue text, p_key text, p_within interval, p_request jsonb, OUT id bigint, OUT made boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF p_key IS NULL OR octet_length(p_key) NOT BETWEEN 1 AND 512 OR p_within IS NULL OR p_within NOT BETWEEN interval '1 ms' AND interval '1 year' THEN
        RAISE EXCEPTION 'a key has 1 to 512 bytes, and is taken for 1 ms to 1 year' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO once AS o (queue, key, until) VALUES (p_queue, p_key, clock_timestamp() + p_within)
        ON CONFLICT (queue, key) DO UPDATE SET until = excluded.until WHERE o.until <= clock_timestamp();
    made := FOUND;
    IF made THEN
        id := (SELECT x FROM push_many(p_queue, jsonb_build_array(p_request)) x);
        UPDATE once o SET id = push_once.id WHERE o.queue = p_queue AND o.key = p_key;
    ELSE
        id := (SELECT o.id FROM once o WHERE o.queue = p_queue AND o.key = p_key);
    END IF;
END $$;

-- For HTTP: one of push_many(), or with "once" and "within_ms" push_once().
CREATE OR REPLACE FUNCTION :"schema".push_json(p_queue text, p_request jsonb) RETURNS json
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    IF p_request ? 'once' THEN
        RETURN (SELECT row_to_json(x) FROM push_once(p_queue, p_request->>'once',
                    make_interval(secs => (p_request->>'within_ms')::bigint / 1000.0), p_request) x);
    END IF;
    RETURN (SELECT json_build_object('id', x) FROM push_many(p_queue, jsonb_build_array(p_request)) x);
END $$;

-- How long to wait before attempt number `attempts` + 1: doubles from p_base_ms to p_max_ms, half of it jitter.
CREATE OR REPLACE FUNCTION :"schema".backoff(attempts integer, p_base_ms integer, p_max_ms integer) RETURNS interval
LANGUAGE sql VOLATILE SET search_path = :"schema", pg_temp AS $$
    SELECT make_interval(secs => least(p_max_ms, p_base_ms * power(2, least(greatest(attempts - 1, 0), 30)))
                                 * (0.5 + random() / 2) / 1000);
$$;

-- ------------------------------------------------------------------------------------ transaction mode

-- The next rows of a search, above the line and up to where it may go. Also put in place of its call, so it has no search_path of its own by which its table
-- could be looked up here.
SET LOCAL check_function_bodies = off;
CREATE OR REPLACE FUNCTION :"schema".due(p_queue text, p_line bigint, p_upto bigint, p_not text[])
RETURNS TABLE (id bigint, entity text, kind text)
LANGUAGE sql STABLE AS $$
    SELECT r.id, r.entity, r.kind FROM request r
    WHERE r.queue = p_queue AND r.status = 'new' AND r.run_at IS NULL AND r.id + 0 > p_line AND r.id + 0 <= p_upto
          AND r.entity <> ALL (p_not)
    ORDER BY r.id + 0 LIMIT 50;
$$;
SET LOCAL check_function_bodies = on;

-- Nothing of this queue is to be taken.
CREATE OR REPLACE FUNCTION :"schema".is_paused(p_queue text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM paused p WHERE p.queue = p_queue);
END $$;

-- Something other than a lock keeps a row of this kind, or of any, from being started.
CREATE OR REPLACE FUNCTION :"schema".blocked(p_queue text, p_entity text, p_kind text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM request l WHERE is_of(l, p_queue, p_entity) AND l.status = 'in-progress')
        OR (SELECT r.due_kind IS DISTINCT FROM coalesce(p_kind, r.kind) FROM request r WHERE is_of(r, p_queue, p_entity) AND r.decides
            ORDER BY r.kind, r.run_at LIMIT 1);
END $$;

-- For --verbose: the rows above p_line, up to p_upto, that were passed over.
CREATE OR REPLACE FUNCTION :"schema".tell_passed(p_queue text, p_line bigint, p_upto bigint, p_not text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    FOR n IN SELECT d.id FROM due(p_queue, p_line, p_upto, p_not) d LOOP
        RAISE DEBUG 'skip id=% line=% why="its entity is busy"', n, n;
    END LOOP;
END $$;

-- The row that decides is not the one that was to be started.
CREATE OR REPLACE FUNCTION :"schema".in_the_way(p_id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'request % blocks its entity', p_id USING ERRCODE = 'lock_not_available';
END $$;

-- One group, held by the caller's transaction: the first due row above the line whose entity is free decides
-- which. A row per request; each tells the line from which the pass goes on and how many rows the search met. Where there
-- is no group, one row that is no request tells it. `refuse` says why the group must end in error unworked; where
-- there is none 'bundle', when a bundle is in the way: unfold() it in a transaction of its own, and ask again. With p_below what
-- stands before it is taken. Or 'late', when another worker has just done what was found: ask again in a new transaction, so that
-- a transaction has the lock of one entity at most.
--
-- First the lock of the entity, then its rows, with a snapshot that sees what its last owner committed. 55P03 when a
-- row is locked by a process that takes no entity locks (plain SQL), or when the entity is blocked by more than a lock (a
-- lease, a back-off, a create that waits): the caller rolls back and asks again with p_careful.
--
-- One search may look ahead for the claims after it: with p_ahead the last rows are what is due next above it (id, entity,
-- kind, and as their line the highest id that there was). A claim that is given one of them, with its id as the line, tries that before
-- it searches. With p_upto too, that highest id, it need not look for bundles: what has come since is not touched.
--
-- Nothing is taken that was pushed after the claim began, nor anything behind a bundle that was there then: what was pushed
-- behind a bundle that comes meanwhile has a higher id. A table of bundles without a page has none, and to ask for that costs
-- next to nothing.
--
-- An expression of PL/pgSQL costs a microsecond in each transaction, a statement more than ten: there are few on that way.
CREATE OR REPLACE FUNCTION :"schema".claim(p_queue text, p_line bigint, p_cell integer, p_processes uuid[],
    p_require_created boolean, p_careful boolean, p_entity text DEFAULT NULL, p_kind text DEFAULT NULL, p_ahead bigint DEFAULT NULL,
    p_below boolean DEFAULT false, p_upto bigint DEFAULT NULL)
RETURNS TABLE (line bigint, met integer, id bigint, entity text, kind text, process uuid, fence bigint,
    attempts integer, pushed_at json, payload jsonb, refuse text, timeout_ms integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    at bigint;
    n bigint;
    entities text[];
    passed text[]; -- so that not every row of an entity with many is met
    noted bigint;
    bundled bigint;
    more record;
    bytes bigint := 0;
BEGIN
    IF p_careful THEN
        RETURN QUERY SELECT * FROM claim_careful(p_queue, p_line, p_cell, p_processes, p_require_created, p_below);
        RETURN;
    END IF;
    LOOP
        IF p_upto IS NULL THEN
            p_upto := coalesce(pg_sequence_last_value('request_id_seq'), 9223372036854775807);
            IF pg_relation_size('paused', 'main') > 0 AND is_paused(p_queue) THEN
                p_upto := 0;
                p_entity := NULL;
            ELSIF pg_relation_size('bundle', 'main') > 0 THEN
                SELECT b.id INTO bundled FROM bundle b WHERE b.queue = p_queue ORDER BY b.id LIMIT 1;
                p_upto := least(p_upto, CASE WHEN p_below THEN bundled - 1 WHEN bundled > 0 THEN 0 END);
                p_entity := CASE WHEN p_line <= p_upto THEN p_entity END;
            END IF;
        END IF;
        IF p_entity IS NULL OR NOT pg_try_advisory_xact_lock(entity_key(p_queue, p_entity) # 'request'::regclass::oid::bigint) THEN
            IF p_entity IS NOT NULL THEN
                RAISE DEBUG 'skip id=% line=% why="its entity is busy"', p_line, p_line;
                met := 1;
                p_entity := NULL;
                p_upto := NULL;
                CONTINUE;
            END IF;
            SELECT d.id, d.entity, d.kind INTO at, p_entity, p_kind FROM due(p_queue, p_line, p_upto, coalesce(passed, '{}')) d
            WHERE pg_try_advisory_xact_lock(entity_key(p_queue, d.entity) # 'request'::regclass::oid::bigint) LIMIT 1;
            IF NOT FOUND THEN
                SELECT max(d.id), count(*), array_agg(DISTINCT d.entity) INTO at, n, entities
                FROM due(p_queue, p_line, p_upto, coalesce(passed, '{}')) d;
                IF n = 0 THEN
                    line := p_line;
                    met := coalesce(met, 0);
                    refuse := CASE WHEN bundled IS NOT NULL THEN 'bundle' END;
                    RETURN NEXT;
                    RETURN;
                END IF;
            END IF;
            IF current_setting('client_min_messages') = 'debug1' THEN
                PERFORM tell_passed(p_queue, p_line, at - (p_entity IS NOT NULL)::integer, coalesce(passed, '{}'));
            END IF;
            p_line := at;
            IF p_entity IS NULL THEN
                met := coalesce(met, 0) + n;
                passed := (passed || entities)[1:256];
                CONTINUE;
            END IF;
        END IF;
        fence := nextval('fence');
        IF p_require_created AND p_kind = 'update' THEN
            refuse := create_failed(p_queue, p_entity);
        END IF;
        RETURN QUERY SELECT p_line, coalesce(claim.met, 0) + 1, r.id, r.entity::text, r.kind::text, p_processes[1], claim.fence,
            r.attempts, to_json(r.pushed_at), r.payload, claim.refuse, r.timeout_ms
        FROM request r
        WHERE is_of(r, p_queue, p_entity) AND r.decides AND r.id + 0 <= p_upto AND CASE WHEN r.due_kind = p_kind THEN true ELSE in_the_way(r.id) END
              AND NOT EXISTS (SELECT FROM request l WHERE is_of(l, p_queue, p_entity) AND l.status = 'in-progress')
        ORDER BY r.kind, r.run_at, r.id LIMIT CASE p_kind WHEN 'create' THEN 1 ELSE 16 END FOR UPDATE OF r NOWAIT;
        GET DIAGNOSTICS n = ROW_COUNT;
        EXIT WHEN n > 0;
        -- Blocked, or done by somebody else since it was found. The lock of its entity must not be kept until this
        -- transaction ends, which may be after minutes of other work.
        IF blocked(p_queue, p_entity, p_kind) THEN
            PERFORM in_the_way(p_line);
        END IF;
        line := p_line;
        met := coalesce(met, 0) + 1;
        refuse := 'late';
        RETURN NEXT;
        RETURN;
    END LOOP;
    IF n = 16 THEN -- up to 5000, and about 16 MiB, of the others; the rest is the next group
        line := p_line;
        process := p_processes[1];
        FOR more IN
            SELECT r.id, r.entity, r.kind, r.attempts, r.pushed_at, r.payload, r.timeout_ms FROM request r
            WHERE is_of(r, p_queue, p_entity) AND r.decides AND r.id + 0 <= p_upto AND r.due_kind = p_kind
            ORDER BY r.kind, r.run_at, r.id LIMIT 4984 OFFSET 16 FOR UPDATE OF r NOWAIT
        LOOP
            SELECT more.id, more.entity, more.kind, more.attempts, to_json(more.pushed_at), more.payload, more.timeout_ms, bytes + weight(more.payload)
            INTO id, entity, kind, attempts, pushed_at, payload, timeout_ms, bytes;
            EXIT WHEN bytes > 16777216;
            RETURN NEXT;
        END LOOP;
    END IF;
    -- Waits for nobody but a tend() that looks at the cell just now.
    noted := CASE WHEN p_cell > 0 AND pg_advisory_xact_lock('cell'::regclass::oid::integer, p_cell) IS NOT NULL
                  THEN setval(to_regclass('attempt_' || p_cell), p_line) END;
    IF p_ahead IS NOT NULL THEN
        RETURN QUERY SELECT p_upto, NULL::integer, a.id, a.entity, a.kind, NULL::uuid, NULL::bigint, NULL::integer, NULL::json,
            NULL::jsonb, NULL, NULL::integer
        FROM (SELECT DISTINCT ON (d.entity) d.id, d.entity, d.kind
              FROM due(p_queue, greatest(p_ahead, p_line), p_upto, ARRAY[p_entity]) d ORDER BY d.entity, d.id) a
        ORDER BY a.id;
    END IF;
END $$;

-- The same, around what a stranger has locked and what is blocked: it looks first, and tries in a savepoint that is always rolled
-- back. The claim itself is no part of one, so that its rows carry the id of the transaction (claimed).
CREATE OR REPLACE FUNCTION :"schema".claim_careful(p_queue text, p_line bigint, p_cell integer, p_processes uuid[],
    p_require_created boolean, p_below boolean)
RETURNS TABLE (line bigint, met integer, id bigint, entity text, kind text, process uuid, fence bigint,
    attempts integer, pushed_at json, payload jsonb, refuse text, timeout_ms integer)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c record;
    why text;
    passed text[] := '{}'; -- so that not every row of an entity with many is met
    upto bigint := coalesce(pg_sequence_last_value('request_id_seq'), 9223372036854775807);
    bundled bigint;
BEGIN
    IF is_paused(p_queue) THEN
        upto := 0;
    ELSE
        SELECT b.id INTO bundled FROM bundle b WHERE b.queue = p_queue ORDER BY b.id LIMIT 1;
    END IF;
    upto := least(upto, CASE WHEN p_below THEN bundled - 1 WHEN bundled > 0 THEN 0 END);
    refuse := CASE WHEN bundled IS NOT NULL THEN 'bundle' END;
    line := p_line;
    met := 0;
    LOOP
        why := NULL;
        FOR c IN SELECT * FROM due(p_queue, claim_careful.line, upto, passed) LOOP
            why := 'its entity is busy';
            IF NOT blocked(p_queue, c.entity, c.kind) THEN
                BEGIN
                    IF pg_try_advisory_xact_lock(entity_key(p_queue, c.entity) # 'request'::regclass::oid::bigint) THEN
                        PERFORM FROM claim(p_queue, c.id, 0, p_processes, false, false, c.entity, c.kind, NULL, p_below);
                        RAISE EXCEPTION USING ERRCODE = 'BL002';
                    END IF;
                EXCEPTION
                    WHEN lock_not_available THEN
                        why := 'a row is locked (55P03)';
                    WHEN SQLSTATE 'BL002' THEN
                        IF pg_try_advisory_xact_lock(entity_key(p_queue, c.entity) # 'request'::regclass::oid::bigint) THEN
                            RETURN QUERY SELECT * FROM claim(p_queue, c.id, p_cell, p_processes, p_require_created, false, c.entity,
                                                              c.kind, NULL, p_below);
                            RETURN;
                        END IF;
                END;
            END IF;
            RAISE DEBUG 'skip id=% line=% why="%"', c.id, c.id, why;
            line := c.id;
            met := met + 1;
            IF met > 16 AND cardinality(passed) < 256 AND c.entity <> ALL (passed) THEN
                passed := passed || c.entity;
            END IF;
        END LOOP;
        EXIT WHEN why IS NULL;
    END LOOP;
    RETURN NEXT;
END $$;

-- The failures of a request and one more. Errors are cut: the last one is in full in `error`.
CREATE OR REPLACE FUNCTION :"schema".failed_again(failures jsonb, attempt integer, error text) RETURNS jsonb
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN jsonb_array_length(failures) < 20 THEN failures ELSE coalesce(failures - 0, '[]') END
        || jsonb_build_object('attempt', attempt, 'at', clock_timestamp(), 'error', left(error, 1000));
$$;

-- Through this a worker completes what claim() took, in the same transaction, by an UPDATE of its own: half the price of a
-- function. It shows nothing else, and gives a worker no more than settle() does.
CREATE OR REPLACE VIEW :"schema".claimed AS
    SELECT r.id, r.status, r.outcome, r.process, r.fence, r.worker, r.attempts, r.claimed_at, r.settled_at, r.error, r.failures FROM :"schema".request r
    WHERE r.xmax = pg_current_xact_id()::xid AND r.status || '' = 'new';

-- Refuses requests that this transaction did not claim.
CREATE OR REPLACE FUNCTION :"schema".need_claim(p_ids bigint[], n bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF n IS DISTINCT FROM cardinality(p_ids) THEN
        RAISE EXCEPTION 'not all of the requests % were claimed by this transaction', p_ids
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;

-- Any other end of it.
CREATE OR REPLACE FUNCTION :"schema".settle(p_ids bigint[], p_status text, p_outcome text, p_error text,
    p_process uuid, p_fence bigint, p_worker text, p_cell integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    n integer;
    noted bigint;
BEGIN
    UPDATE claimed SET status = p_status, outcome = p_outcome, error = p_error, process = p_process,
        fence = p_fence, worker = p_worker, attempts = attempts + 1, claimed_at = now(),
        settled_at = clock_timestamp(),
        failures = CASE p_status WHEN 'error' THEN failed_again(failures, attempts + 1, p_error) ELSE failures END
    WHERE id = ANY (p_ids);
    GET DIAGNOSTICS n = ROW_COUNT;
    PERFORM need_claim(p_ids, n);
    IF p_cell > 0 AND p_status <> 'complete' THEN -- what is complete stays so; an error may be opened again
        noted := setval(to_regclass('attempt_' || p_cell), 1, false);
    END IF;
    RETURN n;
END $$;

-- Before a rollback on purpose (graceful stop, a command that could not be started): no attempt was made.
CREATE OR REPLACE FUNCTION :"schema".unbegin(p_cell integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    IF p_cell > 0 THEN
        PERFORM setval(to_regclass('attempt_' || p_cell), 1, false);
    END IF;
END $$;

-- Puts rows that were tried and not finished back, or gives them up when they had their attempts. For an
-- update the whole group goes the same way. Returns 'new' or 'error'.
CREATE OR REPLACE FUNCTION :"schema".put_back(p_ids bigint[], p_error text, p_max_attempts integer,
    p_base_ms integer, p_max_ms integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    tried integer;
    most integer; -- of those that a request of the group asks for
BEGIN
    SELECT max(r.attempts) + 1, max(r.max_attempts) INTO tried, most FROM request r WHERE r.id = ANY (p_ids);
    IF tried >= coalesce(most, p_max_attempts) THEN
        UPDATE request SET status = 'error', attempts = tried, settled_at = clock_timestamp(), lease_until = NULL,
            holder = NULL, run_at = NULL, error = 'gave up after ' || tried || ' attempts: ' || p_error,
            failures = failed_again(failures, tried, p_error)
        WHERE id = ANY (p_ids);
        RETURN 'error';
    END IF;
    UPDATE request SET status = 'new', attempts = tried, lease_until = NULL, holder = NULL, error = p_error,
        failures = failed_again(failures, tried, p_error),
        run_at = clock_timestamp() + backoff(tried, p_base_ms, p_max_ms)
    WHERE id = ANY (p_ids);
    RETURN 'new';
END $$;

-- As settle(), for a group that should be tried again later.
CREATE OR REPLACE FUNCTION :"schema".again(p_ids bigint[], p_error text, p_max_attempts integer,
    p_base_ms integer, p_max_ms integer, p_cell integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    became text;
BEGIN
    PERFORM need_claim(p_ids, (SELECT count(*) FROM claimed c WHERE c.id = ANY (p_ids)));
    became := put_back(p_ids, p_error, p_max_attempts, p_base_ms, p_max_ms);
    IF p_cell > 0 THEN
        PERFORM setval(to_regclass('attempt_' || p_cell), 1, false);
    END IF;
    RETURN became;
END $$;

-- ------------------------------------------------------------------------------------------ lease mode

-- How many entities a claim may lock that would like to lock p_wanted. All locks of a cluster are in one table of a fixed size, for
-- max_locks_per_transaction of each connection; when it is full, statements of anybody fail. So a claim has half of what a connection
-- is due, or, if it has one of eight places until it commits, a sixteenth of the table: together never more than there is. All schemas
-- of a database have the same places, and the databases, which do not see each other's, share the table.
CREATE OR REPLACE FUNCTION :"schema".lock_room(p_wanted integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    due integer := current_setting('max_locks_per_transaction')::integer;
BEGIN
    IF p_wanted > due / 2 THEN
        FOR place IN 1..8 LOOP
            IF pg_try_advisory_xact_lock('pg_locks'::regclass::oid::integer, place) THEN
                RETURN greatest(due / 2, due * current_setting('max_connections')::integer / 16
                    / (SELECT count(*) FROM pg_database d WHERE d.datallowconn AND (NOT d.datistemplate OR d.datname = current_database())));
            END IF;
        END LOOP;
    END IF;
    RETURN due / 2;
END $$;

-- Where a search goes on that met nothing but blocked entities: before the first row above p_line of one that is not, nor one of
-- p_passed. It locks nothing.
CREATE OR REPLACE FUNCTION :"schema".past_blocked(p_queue text, p_line bigint, p_passed text[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    at bigint;
    entities text[];
BEGIN
    FOR i IN 1..256 LOOP
        SELECT d.id INTO at FROM due(p_queue, p_line, 9223372036854775807, p_passed) d WHERE NOT blocked(p_queue, d.entity) LIMIT 1;
        IF FOUND THEN
            RETURN at - 1;
        END IF;
        SELECT max(d.id), array_agg(DISTINCT d.entity) INTO at, entities FROM due(p_queue, p_line, 9223372036854775807, p_passed) d;
        EXIT WHEN at IS NULL;
        p_line := at;
        p_passed := (p_passed || entities)[1:256];
    END LOOP;
    RETURN p_line;
END $$;

-- As many groups as p_processes has names for, as far as there is room for locks, in one short transaction, each with a fence and a
-- lease, visible to all. Rows as those of claim(). A row that a stranger has locked raises 55P03, here after the time-out below (cheaper
-- than a lock in advance for each row); with p_careful it takes one group and passes over such a row.
CREATE OR REPLACE FUNCTION :"schema".claim_lease(p_queue text, p_line bigint, p_processes uuid[], p_lease_ms integer,
    p_worker text, p_require_created boolean, p_careful boolean, p_below boolean DEFAULT false)
RETURNS TABLE (line bigint, met integer, id bigint, entity text, kind text, process uuid, fence bigint,
    attempts integer, pushed_at json, payload jsonb, refuse text, timeout_ms integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET lock_timeout = '50ms' AS $$
#variable_conflict use_column
DECLARE
    entities text[];
    passed text[] := '{}'; -- busy ones, so that not every row of an entity with many is met
    seen text[];
    room integer; -- for locks; those of entities that were blocked, or done by others, are not given back
    until timestamptz := clock_timestamp() + make_interval(secs => p_lease_ms / 1000.0);
BEGIN
    IF p_careful THEN
        BEGIN
            RETURN QUERY SELECT * FROM claim_lease(p_queue, p_line, p_processes[1:1], p_lease_ms, p_worker,
                                                     p_require_created, false, p_below);
        EXCEPTION WHEN lock_not_available THEN
            line := (SELECT min(d.id) FROM due(p_queue, p_line, 9223372036854775807, '{}') d);
            met := 1;
            RAISE DEBUG 'skip id=% line=% why="a row is locked (55P03)"', line, line;
            RETURN NEXT;
        END;
        RETURN;
    END IF;
    IF pg_relation_size('paused', 'main') > 0 AND is_paused(p_queue) THEN
        met := 0;
        RETURN NEXT;
        RETURN;
    END IF;
    room := lock_room(cardinality(p_processes));
    p_processes := p_processes[1:room];
    FOR i IN 1..256 LOOP
        WITH c AS MATERIALIZED (
            SELECT r.id, r.entity FROM request r
            WHERE r.queue = p_queue AND r.status = 'new' AND r.run_at IS NULL AND r.id + 0 > p_line
                  AND r.entity <> ALL (passed)
                  AND r.id + 0 < coalesce((SELECT CASE WHEN p_below THEN b.id ELSE 0 END FROM bundle b WHERE b.queue = p_queue
                                           ORDER BY b.id LIMIT 1), 9223372036854775807)
            ORDER BY r.id + 0 LIMIT cardinality(p_processes)
        ), e AS MATERIALIZED (
            SELECT c.entity FROM c GROUP BY c.entity ORDER BY min(c.id)
        )
        SELECT (SELECT max(c.id) FROM c), ARRAY(SELECT e.entity FROM e),
               ARRAY(SELECT e.entity FROM e
                     WHERE pg_try_advisory_xact_lock(entity_key(p_queue, e.entity) # 'request'::regclass::oid::bigint)),
               CASE WHEN NOT EXISTS (SELECT FROM c) AND EXISTS (SELECT FROM bundle b WHERE b.queue = p_queue) THEN 'bundle' END
        INTO line, seen, entities, refuse;
        met := coalesce(met, 0) + cardinality(seen);
        room := room - cardinality(entities);
        -- Locked; now the rows, with a snapshot that sees what the last owners of the entities committed.
        RETURN QUERY WITH g AS MATERIALIZED (
            SELECT e.entity, nextval('fence') AS fence, e.process,
                   CASE WHEN p_require_created THEN create_failed(p_queue, e.entity) END AS refuse
            FROM unnest(entities, p_processes[1:cardinality(entities)]) e (entity, process)
        ), o AS MATERIALIZED (
            -- Their rows, up to some 16 MiB of each as it is stored, which costs nothing to see.
            SELECT x.tid, x.id, x.size, g.fence, g.process, g.refuse
            FROM g CROSS JOIN LATERAL (
                SELECT n.ctid AS tid, n.id, n.due_kind AS own, pg_column_size(n.payload) AS size,
                       first_value(coalesce(n.due_kind, 'waits')) OVER w AS first, sum(pg_column_size(n.payload)) OVER w AS stored
                FROM request n WHERE is_of(n, p_queue, g.entity) AND n.decides
                    AND n.id + 0 < coalesce((SELECT b.id FROM bundle b WHERE b.queue = p_queue ORDER BY b.id LIMIT 1), 9223372036854775807)
                WINDOW w AS (ORDER BY n.kind, n.run_at, n.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                ORDER BY n.kind, n.run_at, n.id LIMIT 5000) x
            WHERE x.own = coalesce(x.first, x.own) AND coalesce(x.stored, 0) < 16777216 -- what waits has no own kind; nothing is behind it
                  AND NOT EXISTS (SELECT FROM request l WHERE is_of(l, p_queue, g.entity) AND l.status = 'in-progress' OFFSET 0)
        ), s AS MATERIALIZED (
            SELECT count(*) < 65536 AND coalesce(max(o.size), 0) <= 200 AS small FROM o
        ), p AS MATERIALIZED (
            -- About 16 MiB of text in all; what is left out waits for the next claim. Only where there are many or large payloads is it added up.
            SELECT o.tid, o.fence, o.process, o.refuse FROM o WHERE (SELECT s.small FROM s)
            UNION ALL
            SELECT x.tid, x.fence, x.process, x.refuse
            FROM (SELECT o.tid, o.fence, o.process, o.refuse,
                         sum(weight(r.payload)) OVER (ORDER BY o.fence, o.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                  FROM o JOIN request r ON r.ctid = o.tid WHERE NOT (SELECT s.small FROM s)) x
            WHERE coalesce(x.before, 0) < 16777216
        ), u AS (
            UPDATE request r SET status = 'in-progress', fence = p.fence, process = p.process, worker = p_worker,
                attempts = r.attempts + 1, claimed_at = now(), lease_until = until, holder = session_user
            FROM p WHERE r.ctid = p.tid AND r.status || '' = 'new'
            RETURNING r.id, r.entity, r.kind, r.process, r.fence, r.attempts - 1 AS attempts, r.pushed_at, r.payload, p.refuse, r.timeout_ms)
        (SELECT NULL::bigint, NULL::integer, u.id, u.entity::text, u.kind::text, u.process, u.fence, u.attempts,
                to_json(u.pushed_at), u.payload, CASE u.kind WHEN 'update' THEN u.refuse END, u.timeout_ms
         FROM u ORDER BY u.fence, u.id)
        UNION ALL
        SELECT claim_lease.line, CASE WHEN (SELECT count(*) FROM p) = (SELECT count(*) FROM u) THEN claim_lease.met ELSE conflict() END,
               NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, claim_lease.refuse, NULL
        WHERE EXISTS (SELECT FROM p);
        EXIT WHEN FOUND;
        -- All of them are busy. What is behind them may not be.
        IF cardinality(entities) > 0 THEN
            line := past_blocked(p_queue, line, passed);
        END IF;
        IF line IS NULL OR i = 256 OR room < cardinality(p_processes) THEN
            RETURN NEXT;
            EXIT;
        END IF;
        p_line := line;
        passed := (passed || seen)[1:64]; -- each row is compared with all of them
    END LOOP;
END $$;

-- A row was changed under our hands, and half a group must not be taken.
CREATE OR REPLACE FUNCTION :"schema".conflict() RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a request was changed while it was claimed' USING ERRCODE = 'lock_not_available';
END $$;

-- Settles groups: an element per group; p_ids are array literals, p_count requests in all; p_status is complete, error
-- or new (again later). Returns the fences that were no longer current: what their workers found out too late
-- changes nothing.
CREATE OR REPLACE FUNCTION :"schema".settle_lease(p_ids text[], p_fences bigint[], p_status text[], p_outcome text[],
    p_error text[], p_count integer, p_max_attempts integer, p_base_ms integer, p_max_ms integer) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    g record;
    at timestamptz := clock_timestamp(); -- marks what is settled here
    again bigint[] := '{}';
    n integer;
BEGIN
    UPDATE request r SET status = k.status, outcome = k.outcome, error = k.error, lease_until = NULL, settled_at = at, holder = NULL,
        failures = CASE k.status WHEN 'error' THEN failed_again(r.failures, r.attempts, k.error) ELSE r.failures END
    FROM unnest(p_ids, p_fences, p_status, p_outcome, p_error) k (ids, fence, status, outcome, error)
    WHERE k.status <> 'new' AND r.id = ANY (k.ids::bigint[]) AND r.fence = k.fence AND r.holder = session_user;
    GET DIAGNOSTICS n = ROW_COUNT;
    IF n = p_count THEN
        RETURN;
    END IF;
    FOR g IN SELECT s.fence, s.error, array_agg(r.id) AS ids
             FROM unnest(p_ids, p_fences, p_status, p_error) s (ids, fence, status, error)
             JOIN request r ON r.id = ANY (s.ids::bigint[]) AND r.fence = s.fence AND r.holder = session_user
             WHERE s.status = 'new' GROUP BY s.fence, s.error
    LOOP
        UPDATE request SET attempts = attempts - 1 WHERE id = ANY (g.ids); -- put_back counts it again
        PERFORM put_back(g.ids, g.error, p_max_attempts, p_base_ms, p_max_ms);
        again := again || g.fence;
    END LOOP;
    RETURN QUERY SELECT s.fence FROM unnest(p_ids, p_fences) s (ids, fence)
        WHERE s.fence <> ALL (again) AND NOT EXISTS (
            SELECT FROM request r WHERE r.id = ANY (s.ids::bigint[]) AND r.fence = s.fence
                AND r.settled_at IS NOT DISTINCT FROM at);
END $$;

-- Gives claims back unworked (graceful stop): the attempt does not count.
CREATE OR REPLACE FUNCTION :"schema".give_back(p_ids text[], p_fences bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    q text;
BEGIN
    FOR q IN WITH u AS (
                 UPDATE request r SET status = 'new', attempts = r.attempts - 1, lease_until = NULL, holder = NULL
                 FROM unnest(p_ids, p_fences) k (ids, fence)
                 WHERE r.id = ANY (k.ids::bigint[]) AND r.fence = k.fence AND r.holder = session_user RETURNING r.queue)
             SELECT DISTINCT u.queue FROM u
    LOOP
        PERFORM announce(q);
    END LOOP;
END $$;

-- Heartbeat: prolongs the leases that are still held and returns their fences.
CREATE OR REPLACE FUNCTION :"schema".beat(p_ids text[], p_fences bigint[], p_lease_ms integer) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY WITH u AS (
        UPDATE request r SET lease_until = clock_timestamp() + make_interval(secs => p_lease_ms / 1000.0)
        FROM unnest(p_ids, p_fences) k (ids, fence)
        WHERE r.id = ANY (k.ids::bigint[]) AND r.fence = k.fence AND r.holder = session_user RETURNING r.fence)
    SELECT DISTINCT u.fence FROM u;
END $$;

-- --------------------------------------------------------------------------------------------- workers

-- Cells of the attempt journal for one worker: p_count, or fewer, one at least; who needs more asks again. A cell costs two locks until
-- the end of the transaction, one that is looked at in vain costs one. Each has a number that nobody had before. The sequences of cells
-- whose workers were not heard of for long, and which tell no attempt that is still to be counted, are used again; any of them are
-- looked at, so that those which cannot be used hide no others.
CREATE OR REPLACE FUNCTION :"schema".ready(p_count integer) RETURNS integer[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
DECLARE
    cells integer[] := '{}';
    c record;
    began bigint;
    n integer;
BEGIN
    IF p_count NOT BETWEEN 1 AND 1024 THEN
        RAISE EXCEPTION 'a worker has 1 to 1024 slots' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    p_count := least(p_count, lock_room(1) / 2);
    LOCK TABLE cell IN SHARE ROW EXCLUSIVE MODE;
    FOR c IN SELECT x.no FROM cell x WHERE x.seen_at < clock_timestamp() - interval '5 minutes' ORDER BY random() LIMIT p_count LOOP
        began := pg_sequence_last_value(to_regclass('attempt_' || c.no));
        CONTINUE WHEN began IS NOT NULL AND NOT EXISTS (SELECT FROM request r WHERE r.id = began AND r.status || '' = 'complete')
            OR NOT pg_try_advisory_xact_lock('cell'::regclass::oid::integer, c.no);
        n := nextval('cell_no');
        EXECUTE format('ALTER SEQUENCE attempt_%s RENAME TO attempt_%s', c.no, n);
        UPDATE cell SET no = n, seen_at = clock_timestamp() WHERE no = c.no;
        cells := cells || n;
    END LOOP;
    WHILE cardinality(cells) < p_count LOOP
        n := nextval('cell_no');
        PERFORM make_cell(n);
        cells := cells || n;
    END LOOP;
    RETURN cells;
END $$;

CREATE OR REPLACE FUNCTION :"schema".make_cell(n integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE SEQUENCE attempt_%s', n);
    INSERT INTO cell (no) VALUES (n);
END $$;

-- The worker that has these cells is there. One that was away for so long that others have its sequences gets new ones, some with
-- each call: each costs a lock.
CREATE OR REPLACE FUNCTION :"schema".keep_cells(p_cells integer[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    UPDATE cell SET seen_at = clock_timestamp() WHERE no = ANY (p_cells) AND seen_at < clock_timestamp() - interval '30 seconds';
    FOR n IN SELECT x FROM unnest(p_cells) x WHERE x BETWEEN 1 AND pg_sequence_last_value('cell_no')
             AND NOT EXISTS (SELECT FROM cell c WHERE c.no = x) LIMIT lock_room(1) / 2 LOOP
        PERFORM make_cell(n);
    END LOOP;
END $$;

-- What time brings about in these queues: attempts of dead workers are counted, lapsed leases go back, what is due becomes
-- due. Other queues are left to their own workers, who may have other limits. Returns how long until there is more of
-- it (NULL: nothing is planned), and whether it changed anything. To look at a cell costs a lock until the end of the transaction:
-- it looks at some of them, above p_from, and `upto` is the p_from of the next call, which follows at once; 0: that were all.
CREATE OR REPLACE FUNCTION :"schema".tend(p_queues text[], p_max_attempts integer, p_base_ms integer, p_max_ms integer,
    p_cells integer[], p_from integer DEFAULT 0, OUT next_ms bigint, OUT changed integer, OUT upto integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    c record;
    r record;
    n integer;
    at timestamptz := clock_timestamp(); -- one value, so that an index can be asked for what lies before it
BEGIN
    changed := 0;
    PERFORM keep_cells(p_cells);
    SELECT CASE count(*) WHEN lock_room(1) THEN max(x.no) ELSE 0 END INTO upto
    FROM (SELECT y.no FROM cell y WHERE y.no > p_from ORDER BY y.no LIMIT lock_room(1)) x;
    FOR c IN SELECT x.no, pg_sequence_last_value(to_regclass('attempt_' || x.no)) AS id FROM cell x
             WHERE x.no > p_from AND (upto = 0 OR x.no <= upto)
    LOOP
        CONTINUE WHEN c.id IS NULL OR EXISTS (SELECT FROM request q WHERE q.id = c.id AND (q.status || '' = 'complete' OR q.queue <> ALL (p_queues)));
        CONTINUE WHEN NOT pg_try_advisory_xact_lock('cell'::regclass::oid::int, c.no);
        CONTINUE WHEN pg_sequence_last_value(to_regclass('attempt_' || c.no)) IS DISTINCT FROM c.id;
        -- Left alone while someone has the row: the next tend() counts it.
        SELECT q.id, q.queue, q.entity, q.kind, q.status INTO r FROM request q WHERE q.id = c.id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND AND EXISTS (SELECT FROM request q WHERE q.id = c.id);
        PERFORM setval(to_regclass('attempt_' || c.no), 1, false);
        IF r.status = 'new' THEN
            changed := changed + count_death(r.id, r.queue, r.entity, r.kind, p_max_attempts, p_base_ms, p_max_ms);
        END IF;
    END LOOP;

    FOR r IN SELECT q.fence, q.worker, array_agg(q.id) AS ids FROM
                 (SELECT x.id, x.fence, x.worker FROM request x
                  WHERE x.status = 'in-progress' AND x.lease_until < at AND x.queue || '' = ANY (p_queues)
                  FOR UPDATE SKIP LOCKED) q GROUP BY q.fence, q.worker
    LOOP
        UPDATE request SET attempts = attempts - 1 WHERE id = ANY (r.ids); -- put_back counts it again
        PERFORM put_back(r.ids, 'the lease of worker ' || r.worker || ' ran out', p_max_attempts, p_base_ms, p_max_ms);
        changed := changed + 1;
    END LOOP;

    FOR r IN SELECT q.name, s.tried FROM unnest(p_queues) q (name), unnest(ARRAY[false, true]) s (tried) LOOP
        UPDATE request SET run_at = NULL WHERE id = ANY (ARRAY(
            SELECT x.id FROM request x WHERE x.status || '' = 'new' AND x.queue = r.name AND (x.attempts > 0) = r.tried
                AND x.run_at <= at ORDER BY x.run_at LIMIT 1000 FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS n = ROW_COUNT;
        changed := changed + n;
    END LOOP;
    -- A moment may be infinity, which has no distance.
    SELECT ceil(extract(epoch FROM min(least(x.moment, at + interval '1 day')) - at) * 1000) INTO next_ms FROM (
        SELECT (SELECT y.run_at FROM request y
                WHERE y.status || '' = 'new' AND y.run_at IS NOT NULL AND y.queue = q.name AND (y.attempts > 0) = s.tried
                ORDER BY y.run_at LIMIT 1)
        FROM unnest(p_queues) q (name), unnest(ARRAY[false, true]) s (tried)
        UNION ALL
        SELECT min(y.lease_until) FROM request y WHERE y.status = 'in-progress' AND y.queue || '' = ANY (p_queues)) x (moment);
    IF next_ms < 0 THEN -- NULL stays NULL: nothing is planned
        next_ms := 0;
    END IF;
    DELETE FROM once o WHERE (o.queue, o.key) = ANY (ARRAY(
        SELECT (x.queue, x.key) FROM once x WHERE x.until < at ORDER BY x.until LIMIT 100 FOR UPDATE SKIP LOCKED));
    IF sweep(p_queues) THEN
        next_ms := 0;
        changed := changed + 1;
    ELSIF EXISTS (SELECT FROM queue x WHERE x.name = ANY (p_queues) AND (x.keep_age IS NOT NULL OR x.keep_count IS NOT NULL)) THEN
        next_ms := least(next_ms, 10000);
    END IF;
    IF EXISTS (SELECT FROM capture x WHERE NOT x.notify AND x.queue = ANY (p_queues)) THEN
        next_ms := least(next_ms, 1000); -- nobody tells of those
    END IF;
END $$;

-- What workers of version 4 and before call, at the latest every minute: one that was running when the schema was upgraded ends with
-- this. It would not be notified of anything.
CREATE OR REPLACE FUNCTION :"schema".tend(p_queues text[], p_max_attempts integer, p_base_ms integer, p_max_ms integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the schema has version % now, this program needs an older one: use a newer program', (SELECT m.version FROM meta m)
        USING ERRCODE = 'undefined_function';
END $$;

-- The worker that had begun request p_id is gone. The first time the request is simply new again, as the
-- rollback left it; from then on it waits, and at last it is given up with its whole group.
CREATE OR REPLACE FUNCTION :"schema".count_death(p_id bigint, p_queue text, p_entity text, p_kind text,
    p_max_attempts integer, p_base_ms integer, p_max_ms integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := ARRAY[p_id];
    tried integer;
BEGIN
    UPDATE request SET attempts = attempts + 1, error = 'its worker died' WHERE id = p_id
        RETURNING attempts, coalesce(max_attempts, p_max_attempts) INTO tried, p_max_attempts;
    IF tried < least(2, p_max_attempts) THEN
        UPDATE request SET failures = failed_again(failures, tried, error) WHERE id = p_id;
        RETURN 1;
    END IF;
    IF p_kind = 'update' THEN
        BEGIN
            SELECT array_agg(g.id) INTO ids FROM
                (SELECT r.id FROM request r WHERE is_of(r, p_queue, p_entity) AND r.status = 'new' AND r.kind = 'update'
                     AND coalesce(r.run_at, '-infinity') = '-infinity' FOR UPDATE NOWAIT) g;
        EXCEPTION WHEN lock_not_available THEN
            UPDATE request SET failures = failed_again(failures, tried, error) WHERE id = p_id;
            RETURN 1; -- somebody works on it again: that attempt will be counted too
        END;
    END IF;
    UPDATE request SET attempts = tried - 1 WHERE id = p_id;
    PERFORM put_back(ids, 'its worker died', p_max_attempts, p_base_ms, p_max_ms);
    RETURN 1;
END $$;

-- The requests of a bundle. Put in place of its call, as due() is.
SET LOCAL check_function_bodies = off;
CREATE OR REPLACE FUNCTION :"schema".in_bundle(b :"schema".bundle) RETURNS SETOF :"schema".request
LANGUAGE sql STABLE AS $$
    SELECT u.id, b.queue, u.entity, 'update'::request_kind, 'new'::request_status, 0, NULL::timestamptz, NULL::bigint,
           NULL::timestamptz, b.pushed_at, NULL::timestamptz, NULL::timestamptz, NULL::uuid, NULL::text,
           (b.head || coalesce(u.body, u.entity) || b.tail)::jsonb, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::integer, NULL::jsonb
    FROM unnest(b.ids, b.entities, b.bodies) u (id, entity, body);
$$;
SET LOCAL check_function_bodies = on;

-- Makes requests of bundles, but for those of which somebody else did: for that it has waited. Returns how many it made.
CREATE OR REPLACE FUNCTION :"schema".unfold_these(p_queue text, p_ids bigint[]) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    WITH d AS (DELETE FROM bundle b WHERE b.queue = p_queue AND b.id = ANY (p_ids) RETURNING b AS it)
    INSERT INTO request OVERRIDING SYSTEM VALUE SELECT r.* FROM d CROSS JOIN LATERAL in_bundle(d.it) r;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- Makes requests of the first bundles of a queue, 1024 or a few more, so that a statement of a million does not become one long
-- transaction. Others do the same with the bundles behind. When all that are left are in others' hands it waits for
-- the first of them. Returns how many it made.
CREATE OR REPLACE FUNCTION :"schema".unfold(p_queue text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    -- Fetched one by one: what is fetched is locked.
    free CURSOR FOR SELECT b.id, b.size FROM bundle b WHERE b.queue = p_queue ORDER BY b.id FOR UPDATE SKIP LOCKED;
    at bigint;
    held integer;
    ids bigint[] := '{}';
    n integer := 0;
BEGIN
    OPEN free;
    WHILE n < 1024 LOOP
        FETCH free INTO at, held;
        EXIT WHEN NOT FOUND;
        ids := ids || at;
        n := n + held;
    END LOOP;
    CLOSE free;
    IF n > 0 THEN
        RETURN unfold_these(p_queue, ids);
    END IF;
    SELECT b.id INTO at FROM bundle b WHERE b.queue = p_queue ORDER BY b.id LIMIT 1 FOR UPDATE;
    RETURN 0;
END $$;

-- Before something is done to one request: it shall be a row.
CREATE OR REPLACE FUNCTION :"schema".unfold_request(p_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unfold_these(b.queue, ARRAY[b.id]) FROM bundle b WHERE p_id BETWEEN b.id AND b.last AND p_id = ANY (b.ids);
END $$;

-- True when nothing is due, being worked on or waiting for another attempt. What is planned for later
-- (run_at) and was never tried does not count.
CREATE OR REPLACE FUNCTION :"schema".drained(p_queues text[]) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT NOT EXISTS (SELECT FROM unnest(p_queues) q (name) WHERE EXISTS (SELECT FROM due(q.name, 0, 9223372036854775807, '{}')))
       AND NOT EXISTS (SELECT FROM bundle b WHERE b.queue = ANY (p_queues))
       AND NOT EXISTS (SELECT FROM request r WHERE r.queue = ANY (p_queues) AND r.status = 'in-progress')
       AND NOT EXISTS (SELECT FROM request r WHERE r.queue = ANY (p_queues) AND r.status || '' = 'new'
                       AND r.run_at IS NOT NULL AND r.attempts > 0);
$$;

-- What a worker that drains is waiting for when nothing can be begun and nobody has anything in progress; NULL: neither is so.
CREATE OR REPLACE FUNCTION :"schema".drain_waits(p_queues text[]) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    q text;
    d record;
    c record;
BEGIN
    FOREACH q IN ARRAY p_queues LOOP
        IF is_paused(q) THEN
            RETURN format('queue %s is paused', q);
        END IF;
        FOR d IN SELECT x.id, x.entity FROM due(q, 0, 9223372036854775807, '{}') x LOOP
            -- One at most, by the unique index request_create, and by no other one: the rest is looked at behind it.
            SELECT r.id, r.run_at, r.status INTO c FROM request r
            WHERE r.queue = q AND r.entity = d.entity AND r.kind = 'create' AND r.status <> 'error';
            IF FOUND AND c.status = 'new' AND c.run_at IS NOT NULL THEN
                RETURN format('request %s of queue %s is due, but request %s, the create of its entity %s, is planned for %s',
                              d.id, q, c.id, d.entity, c.run_at);
            END IF;
        END LOOP;
    END LOOP;
    RETURN NULL;
END $$;

-- For --require-created: why the entity may not be updated, or NULL.
CREATE OR REPLACE FUNCTION :"schema".create_failed(p_queue text, p_entity text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT 'the create of this entity ended in error (request ' || r.id || ')'
    FROM request r WHERE is_of(r, p_queue, p_entity) AND r.status IN ('complete', 'error') AND r.kind = 'create'
        AND NOT EXISTS (SELECT FROM request c WHERE c.queue = p_queue AND c.entity = p_entity AND c.kind = 'create'
                        AND c.status <> 'error')
    ORDER BY r.id DESC LIMIT 1;
$$;

-- Tells watchers that requests were settled. Workers call it a few times a second, on a connection that
-- does no work, because NOTIFY takes a lock on the whole database at commit.
CREATE OR REPLACE FUNCTION :"schema".announce_done(p_queue text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM pg_notify(current_schema() || '.done', p_queue);
END $$;

-- --------------------------------------------------------------------------------------------- seeing

-- Who works on what. In transaction mode the rows themselves say nothing until the commit; the attempt
-- journal, which no transaction hides, does.
CREATE OR REPLACE FUNCTION :"schema".working(p_queue text DEFAULT NULL)
RETURNS TABLE (id bigint, queue text, entity text, kind text, mode text, process uuid, worker text, age interval)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
    SELECT r.id, r.queue, r.entity, r.kind, 'lease', r.process, r.worker, clock_timestamp() - r.claimed_at
    FROM request r WHERE r.status = 'in-progress' AND (p_queue IS NULL OR r.queue = p_queue)
    UNION ALL
    SELECT r.id, r.queue, r.entity, r.kind, 'transaction', NULL, coalesce(a.application_name, '') || ' pid ' || k.pid,
           clock_timestamp() - a.xact_start
    FROM (SELECT l.pid, pg_sequence_last_value(to_regclass('attempt_' || l.objid)) AS id FROM pg_locks l
          WHERE l.granted AND l.locktype = 'advisory' AND l.classid = 'cell'::regclass AND l.objsubid = 2
              AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) OFFSET 0) k
    JOIN request r ON r.id = k.id AND r.status || '' = 'new'
    LEFT JOIN pg_stat_activity a ON a.pid = k.pid
    WHERE p_queue IS NULL OR r.queue = p_queue
    ORDER BY 1;
$$;

-- One line per queue, or for one queue. What is in bundles is new.
CREATE OR REPLACE FUNCTION :"schema".status(p_queue text DEFAULT NULL)
RETURNS TABLE (queue text, new bigint, later bigint, in_progress bigint, complete bigint, error bigint,
    oldest_ms bigint, per_minute bigint, paused boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    IF p_queue IS NOT NULL THEN
        PERFORM known_queue(p_queue);
    END IF;
    RETURN QUERY SELECT q.name,
        (SELECT count(*) FROM request r WHERE r.queue = q.name AND r.status = 'new' AND r.run_at IS NULL)
            + (SELECT coalesce(sum(b.size), 0) FROM bundle b WHERE b.queue = q.name),
        (SELECT count(*) FROM request r WHERE r.queue = q.name AND r.status = 'new' AND r.run_at IS NOT NULL),
        (SELECT count(*) FROM working(q.name)),
        (SELECT count(*) FROM request r WHERE r.queue = q.name AND r.status = 'complete'),
        (SELECT count(*) FROM request r WHERE r.queue = q.name AND r.status = 'error'),
        (SELECT (extract(epoch FROM clock_timestamp() - least(
             (SELECT r.pushed_at FROM request r WHERE r.queue = q.name AND r.status = 'new' AND r.run_at IS NULL ORDER BY r.id + 0 LIMIT 1),
             (SELECT b.pushed_at FROM bundle b WHERE b.queue = q.name ORDER BY b.id LIMIT 1))) * 1000)::bigint),
        (SELECT count(*) FROM request r WHERE r.queue = q.name AND r.status IN ('complete', 'error')
         AND r.settled_at > clock_timestamp() - interval '1 minute'),
        is_paused(q.name)
    FROM queue q WHERE p_queue IS NULL OR q.name = p_queue ORDER BY q.name;
END $$;

-- Requests of a queue in the order of their ids, above p_after.
CREATE OR REPLACE FUNCTION :"schema".list(p_queue text, p_status text DEFAULT NULL, p_entity text DEFAULT NULL,
    p_after bigint DEFAULT 0, p_limit integer DEFAULT 100) RETURNS SETOF :"schema".request
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM known_queue(p_queue);
    IF p_status IS NOT NULL AND p_status NOT IN ('new', 'in-progress', 'complete', 'error') THEN
        RAISE EXCEPTION 'status is new, in-progress, complete or error, not "%"', p_status
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_limit NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'limit is 1 to 1000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY SELECT * FROM (
        (SELECT * FROM request r
         WHERE r.queue = p_queue AND r.id > p_after AND (p_status IS NULL OR r.status = p_status)
               AND (p_entity IS NULL OR r.entity = p_entity)
         ORDER BY r.id LIMIT p_limit)
        UNION ALL
        (SELECT r.* FROM bundle b CROSS JOIN LATERAL in_bundle(b) r
         WHERE b.queue = p_queue AND b.last > p_after AND r.id > p_after AND coalesce(p_status, 'new') = 'new'
               AND (p_entity IS NULL OR r.entity = p_entity)
         ORDER BY r.id LIMIT p_limit)) l
    ORDER BY l.id LIMIT p_limit;
END $$;

-- The requests of one entity, newest first.
CREATE OR REPLACE FUNCTION :"schema".history(p_queue text, p_entity text, p_limit integer DEFAULT 100)
RETURNS SETOF :"schema".request
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM known_queue(p_queue);
    RETURN QUERY SELECT * FROM (
        (SELECT * FROM request r WHERE is_of(r, p_queue, p_entity) AND r.status IN ('complete', 'error')
         ORDER BY r.id DESC LIMIT p_limit)
        UNION ALL
        (SELECT * FROM request r WHERE is_of(r, p_queue, p_entity) AND r.status = 'in-progress')
        UNION ALL
        (SELECT * FROM request r WHERE is_of(r, p_queue, p_entity) AND r.status = 'new' AND (r.kind = 'create' OR r.run_at IS NOT NULL))
        UNION ALL
        (SELECT * FROM request r WHERE is_of(r, p_queue, p_entity) AND r.status = 'new' AND r.kind = 'update'
             AND r.run_at IS NULL ORDER BY r.run_at DESC, r.id DESC LIMIT p_limit)
        UNION ALL
        (SELECT r.* FROM bundle b CROSS JOIN LATERAL in_bundle(b) r WHERE b.queue = p_queue AND r.entity = p_entity)) h
    ORDER BY h.id DESC LIMIT p_limit;
END $$;

-- For watchers: what was settled during the last p_ago, oldest first, a page of 1000; the next one begins after the last one's
-- settled_at and id. The time is taken before the commit, so a watcher looks back some seconds further than it must, and remembers
-- which ids it has seen.
CREATE OR REPLACE FUNCTION :"schema".settled_page(p_queue text, p_ago interval, p_at timestamptz DEFAULT NULL, p_id bigint DEFAULT NULL)
RETURNS SETOF :"schema".request
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM known_queue(p_queue);
    RETURN QUERY SELECT * FROM request r
        WHERE r.queue = p_queue AND r.status IN ('complete', 'error') AND r.settled_at >= coalesce(p_at, clock_timestamp() - p_ago)
              AND (p_at IS NULL OR (r.settled_at, r.id) > (p_at, p_id))
        ORDER BY r.settled_at, r.id LIMIT 1000;
END $$;

-- For HTTP: list() as {"requests": [...]}, of which a page has not much more than p_bytes; "more": there are more of them.
CREATE OR REPLACE FUNCTION :"schema".page(p_queue text, p_status text, p_entity text, p_after bigint, p_limit integer, p_bytes integer)
RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    r request;
    rows text[] := '{}';
    bytes bigint := 0;
    more boolean := false;
BEGIN
    FOR r IN SELECT * FROM list(p_queue, p_status, p_entity, p_after, p_limit) LOOP
        more := bytes >= p_bytes;
        EXIT WHEN more;
        rows := rows || row_to_json(r)::text;
        bytes := bytes + octet_length(rows[cardinality(rows)]);
    END LOOP;
    RETURN '{"requests": [' || array_to_string(rows, ', ') || '], "more": ' || (more OR cardinality(rows) = p_limit) || '}';
END $$;

CREATE OR REPLACE FUNCTION :"schema".show(p_id bigint) RETURNS SETOF :"schema".request
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM request r WHERE r.id = p_id
        UNION ALL
        SELECT r.* FROM bundle b CROSS JOIN LATERAL in_bundle(b) r WHERE p_id BETWEEN b.id AND b.last AND r.id = p_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no request %', p_id USING ERRCODE = 'no_data_found';
    END IF;
END $$;

-- Opens a request that ended in error again (a create too, unless the entity has a new one), or brings one
-- that waits for its next attempt forward. Its attempts start from 0.
CREATE OR REPLACE FUNCTION :"schema".retry(p_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    r record;
BEGIN
    PERFORM unfold_request(p_id);
    SELECT q.queue, q.status, q.run_at INTO r FROM request q WHERE q.id = p_id FOR UPDATE NOWAIT;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no request %', p_id USING ERRCODE = 'no_data_found';
    ELSIF r.status <> 'error' AND NOT (r.status = 'new' AND r.run_at IS NOT NULL) THEN
        RAISE EXCEPTION 'request % is %: only errors and waiting requests can be retried', p_id, r.status
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    UPDATE request SET status = 'new', attempts = 0, run_at = NULL, settled_at = NULL, outcome = NULL WHERE id = p_id;
    PERFORM announce(r.queue);
EXCEPTION
    WHEN lock_not_available THEN
        RAISE EXCEPTION 'request % is being worked on', p_id USING ERRCODE = 'lock_not_available';
    WHEN unique_violation THEN
        RAISE EXCEPTION 'request % cannot be opened again: its entity has another create', p_id
            USING ERRCODE = 'unique_violation';
END $$;

-- Settles an open request as error "cancelled". In lease mode also one that is being worked on: its worker
-- loses the claim and is told. In transaction mode such a request is locked, and this refuses.
CREATE OR REPLACE FUNCTION :"schema".cancel(p_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    r record;
BEGIN
    PERFORM unfold_request(p_id);
    SELECT q.status, q.queue INTO r FROM request q WHERE q.id = p_id FOR UPDATE NOWAIT;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no request %', p_id USING ERRCODE = 'no_data_found';
    ELSIF r.status NOT IN ('new', 'in-progress') THEN
        RAISE EXCEPTION 'request % is settled (%)', p_id, r.status USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    UPDATE request SET status = 'error', error = 'cancelled', run_at = NULL, lease_until = NULL, holder = NULL,
        settled_at = clock_timestamp() WHERE id = p_id;
    IF r.status = 'in-progress' THEN -- its worker looks at once whether its claims still stand
        PERFORM pg_notify(current_schema() || '.push', chr(3) || r.queue);
    END IF;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'request % is being worked on', p_id USING ERRCODE = 'lock_not_available';
END $$;

-- Deletes up to p_limit settled requests that are older than p_age, the oldest first; call it until it returns 0. Takes no lock
-- that a worker waits for. An entity whose completed create is purged may be created again. `upto` is the time when the last of them
-- was settled: given as p_from to the next call, that does not read again what is deleted.
CREATE OR REPLACE FUNCTION :"schema".purge(p_queue text, p_age interval, p_limit integer DEFAULT 1000,
    p_from timestamptz DEFAULT '-infinity', OUT deleted integer, OUT upto timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    before timestamptz := clock_timestamp() - p_age; -- one value, so that the index can be asked for it
BEGIN
    PERFORM known_queue(p_queue);
    IF p_age < interval '0' OR p_limit NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION 'the age is not negative and the limit is 1 to 100000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH d AS (
        DELETE FROM request x WHERE x.id = ANY (ARRAY(
            SELECT r.id FROM request r WHERE r.queue = p_queue AND r.settled_at >= p_from AND r.settled_at < before
                AND r.status || '' IN ('complete', 'error')
            ORDER BY r.settled_at LIMIT p_limit FOR UPDATE SKIP LOCKED)) RETURNING x.settled_at)
    SELECT count(*), max(d.settled_at) INTO deleted, upto FROM d;
END $$;

-- Workers take nothing of the queue from here on; what they have begun they end. False: it is paused already.
CREATE OR REPLACE FUNCTION :"schema".pause(p_queue text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM known_queue(p_queue);
    INSERT INTO paused (queue) VALUES (p_queue) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- False: it was not paused.
CREATE OR REPLACE FUNCTION :"schema".resume(p_queue text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM known_queue(p_queue);
    DELETE FROM paused p WHERE p.queue = p_queue;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM announce(p_queue);
    RETURN true;
END $$;

-- retry() for up to p_limit errors of a queue that fit: of an entity, of a kind, with a text in their error. Oldest first; call it
-- with `upto` and `before` of the last call as p_from and p_before until it returns 0: what is an error again since then is not met
-- twice. Left alone: what somebody has locked, and a create whose entity has another one.
CREATE OR REPLACE FUNCTION :"schema".retry_where(p_queue text, p_entity text DEFAULT NULL, p_kind text DEFAULT NULL,
    p_error text DEFAULT NULL, p_limit integer DEFAULT 1000, p_from timestamptz DEFAULT '-infinity',
    p_before timestamptz DEFAULT NULL, OUT retried integer, OUT upto timestamptz, OUT before timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM known_queue(p_queue);
    PERFORM check_filter(p_kind, p_limit);
    before := coalesce(p_before, clock_timestamp());
    WITH d AS (
        UPDATE request x SET status = 'new', attempts = 0, run_at = NULL, settled_at = NULL, outcome = NULL
        FROM (SELECT r.id, r.settled_at FROM request r
              WHERE r.queue = p_queue AND r.settled_at >= p_from AND r.settled_at < retry_where.before AND r.status || '' = 'error'
                  AND (p_entity IS NULL OR r.entity = p_entity) AND (p_kind IS NULL OR r.kind = p_kind)
                  AND (p_error IS NULL OR strpos(r.error, p_error) > 0)
                  AND (r.kind = 'update' OR NOT EXISTS (
                      SELECT FROM request c WHERE c.queue = p_queue AND c.entity = r.entity AND c.kind = 'create' AND c.status <> 'error')
                      AND NOT EXISTS (SELECT FROM request c WHERE is_of(c, p_queue, r.entity) AND c.status IN ('complete', 'error')
                                      AND c.kind = 'create' AND c.status || '' = 'error' AND c.id > r.id))
              ORDER BY r.settled_at LIMIT p_limit FOR UPDATE SKIP LOCKED) o
        WHERE x.id = ANY (ARRAY[o.id]) RETURNING o.settled_at)
    SELECT count(*), max(d.settled_at) INTO retried, upto FROM d;
    IF retried > 0 THEN
        PERFORM announce(p_queue);
    END IF;
END $$;

-- cancel() for up to p_limit requests of a queue that wait: due or planned, of an entity, of a kind. Call it until it returns 0. What is
-- being worked on is left alone.
CREATE OR REPLACE FUNCTION :"schema".cancel_where(p_queue text, p_entity text DEFAULT NULL, p_kind text DEFAULT NULL,
    p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    n integer;
BEGIN
    PERFORM known_queue(p_queue);
    PERFORM check_filter(p_kind, p_limit);
    LOOP
        UPDATE request x SET status = 'error', error = 'cancelled', run_at = NULL, settled_at = clock_timestamp()
        WHERE x.id = ANY (ARRAY(
            (SELECT r.id FROM request r WHERE r.queue = p_queue AND r.status = 'new' AND r.run_at IS NULL
                 AND (p_entity IS NULL OR r.entity = p_entity) AND (p_kind IS NULL OR r.kind = p_kind)
             ORDER BY r.id + 0 LIMIT p_limit FOR UPDATE SKIP LOCKED)))
           OR x.id = ANY (ARRAY(
            (SELECT r.id FROM request r WHERE r.queue = p_queue AND r.status || '' = 'new' AND r.run_at IS NOT NULL
                 AND (p_entity IS NULL OR r.entity = p_entity) AND (p_kind IS NULL OR r.kind = p_kind)
             LIMIT p_limit FOR UPDATE SKIP LOCKED)));
        GET DIAGNOSTICS n = ROW_COUNT;
        EXIT WHEN n > 0 OR NOT EXISTS (SELECT FROM bundle b WHERE b.queue = p_queue);
        PERFORM unfold(p_queue);
    END LOOP;
    RETURN n;
END $$;

CREATE OR REPLACE FUNCTION :"schema".check_filter(p_kind text, p_limit integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_kind NOT IN ('create', 'update') OR p_limit NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'kind is "create" or "update" and the limit is 1 to 10000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

-- How long settled requests of a queue are kept, and how many of them; NULL: without limit. Workers delete what is more (tend).
CREATE OR REPLACE FUNCTION :"schema".keep(p_queue text, p_age interval DEFAULT NULL, p_count bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM known_queue(p_queue);
    IF p_age < interval '0' OR p_count < 0 THEN
        RAISE EXCEPTION 'what is kept has an age and a number that are not negative' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE queue SET keep_age = p_age, keep_count = p_count, swept_at = '-infinity' WHERE name = p_queue;
    PERFORM announce(p_queue, 'infinity');
END $$;

-- Deletes what is more than keep() says, a thousand at most, in one of these queues: by one worker at a time, every ten seconds, or
-- at once when there is more of it. Returns whether there is.
CREATE OR REPLACE FUNCTION :"schema".sweep(p_queues text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    q record;
    before timestamptz;
    n integer;
BEGIN
    SELECT x.name, x.keep_age, x.keep_count INTO q FROM queue x
    WHERE x.name = ANY (p_queues) AND (x.keep_age IS NOT NULL OR x.keep_count IS NOT NULL)
        AND x.swept_at < clock_timestamp() - interval '10 seconds' ORDER BY x.swept_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    before := greatest(clock_timestamp() - q.keep_age, (SELECT r.settled_at FROM request r
        WHERE r.queue = q.name AND r.settled_at IS NOT NULL AND q.keep_count IS NOT NULL
        ORDER BY r.settled_at DESC OFFSET q.keep_count LIMIT 1));
    DELETE FROM request x WHERE x.id = ANY (ARRAY(
        SELECT r.id FROM request r WHERE r.queue = q.name AND r.settled_at <= before AND r.status || '' IN ('complete', 'error')
        ORDER BY r.settled_at LIMIT 1000 FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS n = ROW_COUNT;
    UPDATE queue SET swept_at = CASE WHEN n = 1000 THEN '-infinity' ELSE clock_timestamp() END WHERE name = q.name;
    RETURN n = 1000;
END $$;

-- For HTTP: what an administrator may do to a queue, with options as JSON; those that are not known are refused.
CREATE OR REPLACE FUNCTION :"schema".manage(p_queue text, p_what text, p_options jsonb) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    known text[] := CASE p_what WHEN 'retry' THEN ARRAY['entity', 'kind', 'error'] WHEN 'cancel' THEN ARRAY['entity', 'kind']
                                WHEN 'keep' THEN ARRAY['age_ms', 'count'] ELSE '{}' END;
BEGIN
    IF jsonb_typeof(p_options) <> 'object' OR p_options - known <> '{}' THEN
        RAISE EXCEPTION 'the options of % are an object with %', p_what, CASE known WHEN '{}' THEN 'nothing in it' ELSE array_to_string(known, ', ') END
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN CASE p_what
        WHEN 'pause' THEN json_build_object('paused', true, 'changed', pause(p_queue))
        WHEN 'resume' THEN json_build_object('paused', false, 'changed', resume(p_queue))
        WHEN 'retry' THEN (SELECT json_build_object('retried', r.retried, 'more', r.retried = 1000)
                           FROM retry_where(p_queue, p_options->>'entity', p_options->>'kind', p_options->>'error') r)
        WHEN 'cancel' THEN (SELECT json_build_object('cancelled', n, 'more', n >= 1000)
                            FROM cancel_where(p_queue, p_options->>'entity', p_options->>'kind') n)
        WHEN 'keep' THEN (SELECT json_build_object('kept', true)
                          FROM keep(p_queue, make_interval(secs => (p_options->>'age_ms')::bigint / 1000.0), (p_options->>'count')::bigint)) END;
END $$;

-- ---------------------------------------------------------------------------------------------- guard

-- In the caller's transaction: an error when a higher fence has been seen for the resource, else records
-- this one. Writers of one resource queue up behind each other until they commit, so a late write of a paused
-- holder cannot slip in after a newer holder's.
CREATE OR REPLACE FUNCTION :"schema".guard(resource text, fence bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    seen bigint;
BEGIN
    IF guard.resource IS NULL OR octet_length(guard.resource) NOT BETWEEN 1 AND 1024 OR coalesce(guard.fence, 0) < 1 THEN
        RAISE EXCEPTION 'a resource has 1 to 1024 bytes and a fence is 1 or more'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO guard AS g (resource, fence) VALUES (guard.resource, guard.fence)
        ON CONFLICT ON CONSTRAINT guard_pkey DO UPDATE SET fence = excluded.fence, seen_at = clock_timestamp()
        WHERE g.fence <= excluded.fence;
    IF NOT FOUND THEN
        SELECT g.fence INTO seen FROM guard g WHERE g.resource = guard.resource;
        RAISE EXCEPTION 'stale fence % for "%": % has been seen', guard.fence, guard.resource, seen
            USING ERRCODE = 'BL001', HINT = 'The lock was lost; another holder has written since.';
    END IF;
END $$;

-- -------------------------------------------------------------------------------------------- capture

-- Attaches triggers to a table: every change of a row becomes an update request for its entity, in the
-- transaction that makes the change. Per statement one insert, in which the rows of one entity are folded
-- into one request, and one notification; for many rows (capture_source) requests are written as bundles. p_entity is a column, or SQL over the table's columns; NULL means
-- no request. p_columns chooses what of the old and new rows goes into the payload ({*}: everything).
-- p_condition is SQL over the rows `old` and `new`. Both are SQL of the role that installs the capture; they run
-- with its rights and with this schema as search_path. p_always: also what a replica applies. Without p_notify transactions can
-- be prepared (two-phase commit), and workers look every second. The locks of the triggers are waited for up to p_lock_ms.
CREATE OR REPLACE FUNCTION :"schema".capture(p_table regclass, p_queue text, p_entity text,
    p_columns text[] DEFAULT '{}', p_condition text DEFAULT NULL, p_always boolean DEFAULT false, p_notify boolean DEFAULT true,
    p_lock_ms integer DEFAULT 3000) RETURNS integer
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    n integer;
    unknown text;
BEGIN
    PERFORM ensure_queue(p_queue);
    SELECT min(c) INTO unknown FROM unnest(p_columns) c WHERE c <> '*' AND column_number(p_table, c) IS NULL;
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'table % has no column "%"', p_table, unknown USING ERRCODE = 'undefined_column';
    END IF;
    IF EXISTS (SELECT FROM capture c WHERE c.source = p_table AND c.queue = p_queue AND c.entity = p_entity) THEN
        RAISE EXCEPTION 'table % is captured for queue "%" by that entity already', p_table, p_queue
            USING ERRCODE = 'unique_violation';
    END IF;
    INSERT INTO capture (source, queue, entity, columns, condition, always, notify, entity_number, column_numbers)
        VALUES (p_table, p_queue, p_entity, p_columns, p_condition, p_always, p_notify, column_number(p_table, p_entity),
                ARRAY(SELECT CASE c WHEN '*' THEN 0 ELSE column_number(p_table, c) END FROM unnest(p_columns) c))
        RETURNING no INTO n;
    PERFORM set_config('lock_timeout', p_lock_ms || 'ms', true);
    PERFORM capture_attach(n);
    RETURN n;
END $$;

CREATE OR REPLACE FUNCTION :"schema".column_number(p_table regclass, p_name text) RETURNS smallint
LANGUAGE sql STABLE AS $$
    SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = p_table AND a.attname = p_name AND a.attnum > 0 AND NOT a.attisdropped;
$$;

-- What a column is called now: as before, or, when there is no such column any more, as the one that had this number.
CREATE OR REPLACE FUNCTION :"schema".column_name(p_table regclass, p_name text, p_number smallint) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = p_table AND (a.attname = p_name AND a.attnum > 0 OR a.attnum = p_number)
        AND NOT a.attisdropped ORDER BY a.attname = p_name DESC LIMIT 1;
$$;

-- The table of a capture and what is below it: partitions, inheritance children.
CREATE OR REPLACE FUNCTION :"schema".captured_tables(p_table regclass) RETURNS TABLE (relation regclass, kind "char")
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE t (oid) AS (
        SELECT p_table::oid UNION SELECT i.inhrelid FROM t JOIN pg_inherits i ON i.inhparent = t.oid)
    SELECT c.oid::regclass, c.relkind FROM t JOIN pg_class c ON c.oid = t.oid ORDER BY c.oid;
$$;

-- Makes what capture n needs, or brings it up to date: from here on columns are known by the names they have now. Each table has triggers per statement, because those of a parent are not
-- called for statements that name a partition. A partition that is made or attached later has none; it gets the triggers per row
-- of its parent, by PostgreSQL itself, and those let what has triggers per statement pass.
CREATE OR REPLACE FUNCTION :"schema".capture_attach(n integer) RETURNS void
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    c capture;
    t record;
    op text;
    name text;
    tables oid[] := '{}';
BEGIN
    UPDATE capture x SET entity = column_name(x.source, x.entity, x.entity_number) WHERE x.no = n AND NOT EXISTS (
        SELECT FROM capture y WHERE y.source = x.source AND y.queue = x.queue AND y.entity = column_name(x.source, x.entity, x.entity_number))
        AND column_name(x.source, x.entity, x.entity_number) IS NOT NULL AND x.entity_number IS NOT NULL;
    UPDATE capture x SET
        entity_number = CASE WHEN x.entity_number IS NOT NULL THEN coalesce(column_number(x.source, x.entity), x.entity_number) END,
        columns = ARRAY(SELECT coalesce(column_name(x.source, y.name, y.number), y.name)
                        FROM unnest(x.columns, x.column_numbers) WITH ORDINALITY y (name, number, place) ORDER BY y.place),
        column_numbers = ARRAY(SELECT coalesce(column_number(x.source, y.name), y.number)
                               FROM unnest(x.columns, x.column_numbers) WITH ORDINALITY y (name, number, place) ORDER BY y.place)
    WHERE x.no = n;
    SELECT * INTO STRICT c FROM capture x WHERE x.no = n;
    EXECUTE capture_source(n, false);
    EXECUTE capture_source(n, true);
    EXECUTE format('REVOKE ALL ON FUNCTION capture_%1$s(), capture_%1$s_row() FROM PUBLIC', n);
    FOR t IN SELECT x.relation, x.kind FROM captured_tables(c.source) x WHERE x.kind IN ('r', 'p') LOOP
        tables := tables || t.relation::oid;
        FOREACH op IN ARRAY ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE'] LOOP
            name := format('belay_capture_%s_%s', n, lower(op));
            CONTINUE WHEN EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = t.relation AND g.tgname = name);
            EXECUTE format('CREATE TRIGGER %s %s %s ON %s %s FOR EACH STATEMENT EXECUTE FUNCTION capture_%s()',
                name, CASE op WHEN 'TRUNCATE' THEN 'BEFORE' ELSE 'AFTER' END, op, t.relation,
                CASE op WHEN 'INSERT' THEN 'REFERENCING NEW TABLE AS belay_new'
                        WHEN 'UPDATE' THEN 'REFERENCING OLD TABLE AS belay_old NEW TABLE AS belay_new'
                        WHEN 'DELETE' THEN 'REFERENCING OLD TABLE AS belay_old' ELSE '' END, n);
            IF c.always THEN
                EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %s', t.relation, name);
            END IF;
        END LOOP;
    END LOOP;
    FOREACH op IN ARRAY ARRAY['INSERT', 'UPDATE', 'DELETE'] LOOP
        name := format('belay_capture_%s_row_%s', n, lower(op));
        CONTINUE WHEN (SELECT x.relkind FROM pg_class x WHERE x.oid = c.source) <> 'p'
            OR EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.source AND g.tgname = name AND g.tgargs = capture_mark(tables));
        EXECUTE format('DROP TRIGGER IF EXISTS %s ON %s', name, c.source);
        EXECUTE format('CREATE TRIGGER %s AFTER %s ON %s FOR EACH ROW WHEN (%s.tableoid <> ALL (%L::oid[])) EXECUTE FUNCTION capture_%s_row(%L)',
            name, op, c.source, CASE op WHEN 'DELETE' THEN 'OLD' ELSE 'NEW' END, tables, n, tables);
        IF c.always THEN
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %s', c.source, name);
        END IF;
    END LOOP;
    -- A partition that was detached is a table like any other.
    FOR t IN SELECT g.tgname, g.tgrelid::regclass AS relation FROM pg_trigger g
             WHERE g.tgfoid = to_regprocedure(format('capture_%s()', n)) AND g.tgrelid <> ALL (tables) LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', t.tgname, t.relation);
    END LOOP;
END $$;

-- How pg_trigger keeps the one argument of a trigger.
CREATE OR REPLACE FUNCTION :"schema".capture_mark(tables oid[]) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT convert_to(tables::text, 'SQL_ASCII') || '\x00';
$$;

-- The SQL of capture c for one kind of statement, by the names that columns have now: entities, and payloads without head and
-- tail. `relation` is read for a TRUNCATE. NULL when the column of the entity was dropped.
CREATE OR REPLACE FUNCTION :"schema".capture_query(c :"schema".capture, op text, relation regclass) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = :"schema", pg_temp AS $$
DECLARE
    keys text[] := capture_keys(c.source);
    entity text := capture_entity(c);
    key text; -- SQL, over one row
BEGIN
    IF keys IS NULL AND (c.columns <> '{}' OR c.condition IS NOT NULL) THEN
        RAISE EXCEPTION 'table % has no primary key, which columns and conditions need', c.source
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    key := capture_key(keys);
    IF c.columns = '{}' AND c.condition IS NULL OR op = 'TRUNCATE' THEN
        RETURN capture_rows(op, relation, entity, key, capture_own_key(c) IS NOT NULL);
    END IF;
    RETURN capture_rows_paired(op, c, keys, entity, key);
END $$;

-- The primary key.
CREATE OR REPLACE FUNCTION :"schema".capture_keys(p_table regclass) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(a.attname::text ORDER BY k.ord)
    FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY k (attnum, ord)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = p_table AND i.indisprimary;
$$;

-- SQL over one row: the value of its primary key.
CREATE OR REPLACE FUNCTION :"schema".capture_key(keys text[]) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE coalesce(cardinality(keys), 0) WHEN 0 THEN 'NULL::text' WHEN 1 THEN quote_ident(keys[1])
           ELSE 'jsonb_build_array(' || (SELECT string_agg(quote_ident(k), ', ') FROM unnest(keys) k) || ')' END;
$$;

CREATE OR REPLACE FUNCTION :"schema".capture_entity(c :"schema".capture) RETURNS text
LANGUAGE sql STABLE SET search_path = :"schema", pg_temp AS $$
    SELECT CASE WHEN c.entity_number IS NULL THEN '(' || c.entity || ')' ELSE quote_ident(column_name(c.source, c.entity, c.entity_number)) END;
$$;

-- The type of the entity, where that is the primary key and its text tells all of it.
CREATE OR REPLACE FUNCTION :"schema".capture_own_key(c :"schema".capture) RETURNS regtype
LANGUAGE sql STABLE SET search_path = :"schema", pg_temp AS $$
    SELECT a.atttypid::regtype FROM pg_attribute a WHERE a.attrelid = c.source AND c.entity_number IS NOT NULL
        AND a.attname = column_name(c.source, c.entity, c.entity_number) AND capture_keys(c.source) = ARRAY[a.attname::text];
$$;

-- What stands around a value of this type in JSON; NULL when that depends on the value.
CREATE OR REPLACE FUNCTION :"schema".capture_quote(p_type regtype) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN p_type IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) THEN '' WHEN p_type = 'uuid'::regtype THEN '"' END;
$$;

-- The text of a trigger function of capture n. What it captures is written as bundles: a row with one index is a third of the price of a
-- request with all of its own, and the application's statement is what must be quick. A statement that changed one row is the common
-- case, and has a way of its own.
-- What the statement changed is read first in a block that writes nothing, so that it costs no transaction id: when the table was
-- changed so that the SQL does not fit any more, capture_now() makes it anew. The application's statement does not fail for that.
CREATE OR REPLACE FUNCTION :"schema".capture_source(n integer, by_row boolean) RETURNS text
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    c capture;
    op text;
    tables text;
    rows_of text;
    quote text; -- of a key that needs no JSON of its own
    reads text := '';
    writes text := '';
    bundle text := 'INSERT INTO bundle (id, last, queue, size, head, tail, ids, entities, bodies)';
    -- What is the same in every payload of a statement: text is cheaper to put together than jsonb.
    head text;
    tail text := $h$', "xid": "' || pg_current_xact_id() || '", "at": ' || to_json(now()) || '}'$h$;
BEGIN
    SELECT * INTO STRICT c FROM capture x WHERE x.no = n;
    head := format($h$'{"op": "' || TG_OP || '", "table": ' || to_json(%s::oid::regclass::text) || ', "rows": '$h$, c.source::oid);
    quote := CASE WHEN c.columns = '{}' AND c.condition IS NULL THEN capture_quote(capture_own_key(c)) END;
    FOREACH op IN ARRAY ARRAY['UPDATE', 'INSERT', 'DELETE'] LOOP
        tables := CASE WHEN by_row THEN capture_row(op) ELSE '' END;
        rows_of := coalesce(capture_query(c, op, c.source), 'SELECT NULL::text AS e, NULL::text AS body FROM belay_gone');
        reads := reads || format(E'\n        %s TG_OP = %L THEN\n            %s %s;', CASE op WHEN 'UPDATE' THEN 'IF' ELSE 'ELSIF' END, op, tables,
            coalesce(capture_one(c, op), format('SELECT count(*) = 0 INTO belay_many FROM (%s) g WHERE false', rows_of)));
        writes := writes || format(E'\n        %s TG_OP = %L THEN\n            %s %s %s;', CASE op WHEN 'UPDATE' THEN 'IF' ELSE 'ELSIF' END, op, tables, bundle,
            CASE WHEN quote IS NOT NULL THEN capture_keys_bundled(op, c.queue, capture_entity(c), quote, head, tail)
                 ELSE capture_rows_bundled(c.queue, rows_of, head, tail) END);
    END LOOP;
    -- The body is quoted as a literal: no name in it can end it.
    RETURN format('CREATE OR REPLACE FUNCTION capture_%s%s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = %I, pg_temp AS %L',
        n, CASE WHEN by_row THEN '_row' ELSE '' END, current_schema(), format($f$
#variable_conflict use_column
DECLARE
    belay_many boolean;
    belay_e text; -- of one row: its entity, the entity that it had before, and its payload between head and tail
    belay_was text;
    belay_body text;
    belay_sql text;
    belay_entities text[];
    belay_bodies text[];
    belay_id bigint;
    belay_told boolean;
BEGIN
    BEGIN%s
        ELSE
            belay_sql := capture_now(%s, TG_OP, TG_RELID, %L, NULL);
        END IF;
    EXCEPTION
        WHEN no_data_found THEN
            RETURN NULL;
        WHEN too_many_rows THEN
            belay_many := true;
        WHEN syntax_error_or_access_rule_violation THEN
            belay_sql := capture_now(%s, TG_OP, TG_RELID, %L, SQLERRM);
    END;
    IF belay_sql IS NOT NULL THEN
        EXECUTE belay_sql INTO belay_entities, belay_bodies%s;
        %s %s;
    ELSIF belay_many OR belay_was IS DISTINCT FROM belay_e THEN%s
        END IF;
    ELSIF belay_e IS NOT NULL THEN
        belay_id := nextval('request_id_seq');
        %s VALUES (belay_id, belay_id, %L, 1, %s, %s, ARRAY[belay_id], ARRAY[belay_e]::request_entity[], ARRAY[belay_body]);
    ELSE
        RETURN NULL;
    END IF;
    %s
    RETURN NULL;
END $f$, reads, n, by_row, n, by_row, CASE WHEN by_row THEN ' USING to_jsonb(NEW), to_jsonb(OLD)' ELSE '' END, bundle,
            capture_rows_bundled(c.queue, 'SELECT u.e, u.body FROM unnest(belay_entities, belay_bodies) u (e, body)', head, tail),
            writes, bundle, c.queue, head, tail,
            CASE WHEN c.notify THEN format('belay_told := FOUND AND asleep(%2$L) AND pg_notify(%1$L, %2$L) IS NULL;', current_schema() || '.push', c.queue) ELSE '' END));
END $$;

-- The entity and the payload of the one row that a statement has changed, and the entity that it had before. NULL where old and new rows
-- have to be looked at side by side. A key whose bundles need no JSON of its own is read so that this fails when it has got another type.
CREATE OR REPLACE FUNCTION :"schema".capture_one(c :"schema".capture, op text) RETURNS text
LANGUAGE sql STABLE SET search_path = :"schema", pg_temp AS $$
    SELECT format('SELECT x.e, %s, x.body INTO STRICT belay_e, belay_was, belay_body FROM (SELECT %s AS e, %s AS body FROM %s) x %s',
        CASE op WHEN 'UPDATE' THEN 'y.e' ELSE 'x.e' END, t.text_of,
        format($q$'1, "keys": [' || coalesce(to_json(%s)::text, 'null') || ']'$q$, capture_key(capture_keys(c.source))),
        CASE op WHEN 'DELETE' THEN 'belay_old' ELSE 'belay_new' END,
        CASE op WHEN 'UPDATE' THEN format('CROSS JOIN (SELECT %s AS e FROM belay_old) y', t.text_of) ELSE '' END)
    FROM (SELECT format(CASE capture_quote(capture_own_key(c)) WHEN '' THEN 'textin(int8out(%s))' WHEN '"' THEN 'textin(uuid_out(%s))' ELSE '%s::text' END,
                        capture_entity(c))) t (text_of)
    WHERE capture_entity(c) IS NOT NULL AND c.columns = '{}' AND c.condition IS NULL;
$$;

-- What stands before a query of a trigger per row: its row in place of the tables of a statement.
CREATE OR REPLACE FUNCTION :"schema".capture_row(op text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE op WHEN 'INSERT' THEN 'WITH belay_new AS (SELECT NEW.*)' WHEN 'DELETE' THEN 'WITH belay_old AS (SELECT OLD.*)'
                   ELSE 'WITH belay_new AS (SELECT NEW.*), belay_old AS (SELECT OLD.*)' END;
$$;

-- The query of capture n by what its table is now; `why` the one of the trigger function does not do. It is tried without rows first:
-- when it cannot be, the capture is set aside with a warning, and NULL is returned.
CREATE OR REPLACE FUNCTION :"schema".capture_now(n integer, op text, relation regclass, by_row boolean, why text) RETURNS text
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    c capture;
    query text;
    tables text := 'WITH belay_new AS (SELECT * FROM %1$s %2$s), belay_old AS (SELECT * FROM %1$s %2$s) ';
BEGIN
    SELECT * INTO c FROM capture x WHERE x.no = n;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    query := format('SELECT array_agg(g.e), array_agg(g.body) FROM (%s) g WHERE g.e IS NOT NULL', capture_query(c, op, relation));
    IF query IS NULL THEN
        RAISE EXCEPTION 'the column of its entity ("%") was dropped', c.entity USING ERRCODE = 'undefined_column';
    END IF;
    EXECUTE format(tables, relation, 'LIMIT 0') || query || ' AND false';
    RETURN CASE WHEN by_row THEN format('WITH belay_new AS (SELECT * FROM jsonb_populate_record(NULL::%1$s, $1)),
               belay_old AS (SELECT * FROM jsonb_populate_record(NULL::%1$s, $2)) ', relation) ELSE '' END || query;
EXCEPTION WHEN syntax_error_or_access_rule_violation OR object_not_in_prerequisite_state THEN
    RAISE WARNING 'belay: capture % of table % is set aside, changes of it are not captured: %', n, relation, SQLERRM
        USING HINT = 'belay queue capture --check tells more.';
    RETURN NULL;
END $$;

-- Entities with the number and the keys of their rows (JSON), without a look at what changed: cheap for any number of
-- rows. After an update that moves rows from one entity to another, both are in. Where the entity is the primary key
-- there is nothing to fold.
CREATE OR REPLACE FUNCTION :"schema".capture_rows(op text, source regclass, entity text, key text, own boolean) RETURNS text
LANGUAGE sql STABLE SET search_path = :"schema", pg_temp AS $$
    SELECT CASE op
        WHEN 'INSERT' THEN format(f, entity, key, 'belay_new', '')
        WHEN 'DELETE' THEN format(f, entity, key, 'belay_old', '')
        WHEN 'TRUNCATE' THEN format(f, entity, key, source, '')
        ELSE format('WITH n AS MATERIALIZED (%s) SELECT n.* FROM n UNION ALL (%s)', format(f, entity, key, 'belay_new', ''),
                    format(f, entity, key, 'belay_old', 'WHERE NOT EXISTS (SELECT FROM n WHERE n.e = x.e)')) END
    FROM (SELECT CASE WHEN own THEN $q$SELECT x.e, '1, "keys": [' || to_json(x.k)::text || ']' AS body
                                       FROM (SELECT %1$s::text AS e, %2$s AS k FROM %3$s) x %4$s$q$
                      ELSE $q$SELECT x.e, count(*) || ', "keys": ' || to_json((array_agg(x.k))[1:100])::text AS body
                              FROM (SELECT %1$s::text AS e, %2$s AS k FROM %3$s) x %4$s GROUP BY x.e$q$ END) t (f);
$$;

-- The same with old and new rows side by side, for conditions and payloads with columns. Rows are paired by
-- primary key; a row whose key was changed appears as one without new and one without old.
CREATE OR REPLACE FUNCTION :"schema".capture_rows_paired(op text, c :"schema".capture, keys text[], entity text, key text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = :"schema", pg_temp AS $$
DECLARE
    pairs text;
    images text[]; -- of the old row and of the new one
BEGIN
    pairs := CASE op
        WHEN 'INSERT' THEN 'belay_new AS new LEFT JOIN belay_new AS old ON false'
        WHEN 'DELETE' THEN 'belay_old AS old LEFT JOIN belay_old AS new ON false'
        ELSE 'belay_old AS old FULL JOIN belay_new AS new ON '
             || (SELECT string_agg(format('old.%I = new.%I', k, k), ' AND ') FROM unnest(keys) k) END;
    SELECT array_agg(format('CASE WHEN %s.%I IS NOT NULL THEN %s END', side, keys[1],
               CASE WHEN '*' = ANY (c.columns) THEN format('to_jsonb(%s)', side)
                    WHEN c.columns = '{}' THEN 'NULL::jsonb'
                    ELSE 'jsonb_build_object(' || coalesce((SELECT string_agg(format('%1$L, %2$s.%1$I', x, side), ', ')
                                                   FROM (SELECT column_name(c.source, y.name, y.number) AS x FROM unnest(c.columns, c.column_numbers) y (name, number)) z
                                                   WHERE x IS NOT NULL), '') || ')' END) ORDER BY n)
    INTO images FROM unnest(ARRAY['old', 'new']) WITH ORDINALITY t (side, n);
    RETURN format($q$SELECT x.e, count(*) || ', "keys": ' || to_json((array_agg(x.k))[1:100])::text
            || ', "changes": ' || to_json((array_agg(x.change))[1:100])::text AS body
        FROM (SELECT v.e, v.k, jsonb_build_object('key', v.k, 'old', %s, 'new', %s) AS change
              FROM %s
              CROSS JOIN LATERAL (SELECT DISTINCT ON (i.e) i.e, i.k FROM
                  (SELECT %s::text AS e, %s AS k FROM (SELECT new.*) r UNION ALL
                   SELECT %s::text AS e, %s AS k FROM (SELECT old.*) r) i WHERE i.e IS NOT NULL AND i.k IS NOT NULL) v
              WHERE %s) x GROUP BY x.e$q$,
        images[1], images[2], pairs, entity, key, entity, key,
        coalesce('(' || c.condition || ')', 'true'));
END $$;

-- Rows of `bundle` instead of those of `request`: each holds the ids of a range of 1024, and not much more than 16 MB.
CREATE OR REPLACE FUNCTION :"schema".capture_rows_bundled(queue text, rows_of text, head text, tail text) RETURNS text
LANGUAGE sql STABLE SET search_path = :"schema", pg_temp AS $$
    SELECT format($q$SELECT min(x.id), max(x.id), %L, count(*), %s, %s, array_agg(x.id), array_agg(x.e::request_entity), array_agg(x.body)
        FROM (SELECT nextval('request_id_seq') AS id, g.e, g.body, sum(octet_length(g.body)) OVER (ROWS UNBOUNDED PRECEDING) >> 24 AS part
              FROM (%s) g WHERE g.e IS NOT NULL) x GROUP BY x.id >> 10, x.part$q$, queue, head, tail, rows_of);
$$;

-- The same where each row is an entity of its own, by a key that looks the same in JSON (but for quotes): nothing but the keys is kept.
CREATE OR REPLACE FUNCTION :"schema".capture_keys_bundled(op text, queue text, key text, quote text, head text, tail text)
RETURNS text
LANGUAGE sql STABLE SET search_path = :"schema", pg_temp AS $$
    SELECT format($q$SELECT min(x.id), max(x.id), %L, count(*), %s || '1, "keys": [%s', '%s]' || %s, array_agg(x.id), array_agg(x.e::request_entity), NULL
        FROM (SELECT nextval('request_id_seq') AS id, g.e FROM (%s) g) x GROUP BY x.id >> 10$q$, queue, head, quote, quote, tail,
        CASE op WHEN 'DELETE' THEN format('SELECT %s::text AS e FROM belay_old', key)
                WHEN 'INSERT' THEN format('SELECT %s::text AS e FROM belay_new', key)
                ELSE format('SELECT %1$s::text AS e FROM belay_new UNION ALL SELECT o.%1$s::text FROM belay_old o
                             WHERE NOT EXISTS (SELECT FROM belay_new n WHERE n.%1$s = o.%1$s)', key) END);
$$;

CREATE OR REPLACE FUNCTION :"schema".uncapture(p_no integer, p_lock_ms integer DEFAULT 3000) RETURNS void
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
BEGIN
    DELETE FROM capture c WHERE c.no = p_no;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no capture %', p_no USING ERRCODE = 'no_data_found';
    END IF;
    PERFORM set_config('lock_timeout', p_lock_ms || 'ms', true);
    EXECUTE format('DROP FUNCTION IF EXISTS capture_%1$s(), capture_%1$s_row() CASCADE', p_no); -- its triggers go with it
END $$;

CREATE OR REPLACE FUNCTION :"schema".captures()
RETURNS TABLE (no integer, source text, queue text, entity text, columns text[], condition text, always boolean, notify boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
    SELECT c.no, c.source::text, c.queue, c.entity, c.columns, c.condition, c.always, c.notify FROM capture c ORDER BY c.no;
$$;

-- What captures do not see (broken), and what else is worth knowing.
CREATE OR REPLACE FUNCTION :"schema".capture_check() RETURNS TABLE (no integer, source text, broken boolean, problem text)
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    c capture;
    root "char";
BEGIN
    FOR c IN SELECT * FROM capture x ORDER BY x.no LOOP
        SELECT x.relkind INTO root FROM pg_class x WHERE x.oid = c.source;
        IF NOT FOUND THEN
            RETURN QUERY SELECT c.no, c.source::text, true, 'its table is gone: belay queue capture --remove ' || c.no;
            CONTINUE;
        END IF;
        RETURN QUERY SELECT c.no, c.source::text, NOT s.row_wise, CASE
                WHEN t.kind NOT IN ('r', 'p') THEN format('changes made directly in %s, which is no plain table, are not seen', t.relation)
                WHEN s.row_wise THEN format('%s is captured row by row until the next belay queue install', t.relation)
                ELSE format('changes made directly in %s are not seen until the next belay queue install, or its triggers are disabled', t.relation) END
            FROM captured_tables(c.source) t CROSS JOIN LATERAL (
                SELECT count(*) FILTER (WHERE g.tgname !~ '_row_') AS n, root = 'p' AND t.kind = 'r' AND count(*) FILTER (WHERE g.tgname ~ '_row_') = 3 AS row_wise
                FROM pg_trigger g WHERE g.tgrelid = t.relation AND g.tgname ~ format('^belay_capture_%s_', c.no) AND g.tgenabled IN ('O', 'A')) s
            WHERE s.n < 4;
        BEGIN
            IF capture_entity(c) IS NULL THEN
                RAISE EXCEPTION 'the column of its entity ("%") was dropped', c.entity USING ERRCODE = 'undefined_column';
            END IF;
            EXECUTE format('WITH belay_new AS (SELECT * FROM %1$s LIMIT 0), belay_old AS (SELECT * FROM %1$s LIMIT 0) SELECT FROM (%2$s) g', c.source,
                           capture_query(c, 'UPDATE', c.source));
            IF NOT EXISTS (SELECT FROM pg_proc p WHERE p.oid = to_regprocedure(format('capture_%s()', c.no))
                           AND strpos(capture_source(c.no, false), quote_literal(p.prosrc)) > 0) THEN
                RETURN QUERY SELECT c.no, c.source::text, false, 'the table was changed: slower until the next belay queue install';
            END IF;
        EXCEPTION WHEN syntax_error_or_access_rule_violation OR object_not_in_prerequisite_state THEN
            RETURN QUERY SELECT c.no, c.source::text, true, 'the capture is set aside: ' || SQLERRM;
        END;
        RETURN QUERY SELECT c.no, c.source::text, false, format('column "%s" was dropped and is left out of payloads', x.name)
            FROM unnest(c.columns, c.column_numbers) x (name, number) WHERE x.number <> 0 AND column_name(c.source, x.name, x.number) IS NULL;
        IF NOT c.always THEN
            RETURN QUERY SELECT c.no, c.source::text, false, 'what is changed with session_replication_role = replica is not seen (--always)';
        END IF;
    END LOOP;
END $$;

-- --------------------------------------------------------------------------------------------- rights

-- producer: push and see. worker: also claim and settle. admin: also retry, cancel, purge, pause, resume, keep.
CREATE OR REPLACE FUNCTION :"schema".grant_to(p_role name, p_what text) RETURNS void
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    may text[] := ARRAY['version', 'push', 'push_many', 'push_once', 'push_json', 'status', 'working', 'list', 'history', 'show', 'settled_page', 'page',
                         'guard', 'captures'];
    f regprocedure;
BEGIN
    IF p_what = 'worker' THEN
        may := may || ARRAY['fall_asleep', 'get_up', 'announce_look', 'claim', 'settle', 'again', 'unbegin', 'claim_lease', 'settle_lease', 'give_back', 'beat', 'ready', 'tend',
                            'unfold', 'drained', 'drain_waits', 'create_failed', 'announce_done', 'announce'];
    ELSIF p_what = 'admin' THEN
        may := may || ARRAY['retry', 'cancel', 'purge', 'retry_where', 'cancel_where', 'pause', 'resume', 'keep', 'manage'];
    ELSIF p_what <> 'producer' THEN
        RAISE EXCEPTION 'a role is producer, worker or admin, not "%"', p_what USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), p_role);
    IF p_what = 'worker' THEN
        EXECUTE format('GRANT SELECT, UPDATE (status, outcome, process, fence, worker, attempts, claimed_at, settled_at, error)
                         ON claimed TO %I', p_role);
    END IF;
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
             JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = current_schema() AND p.proname = ANY (may)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', f, p_role);
    END LOOP;
END $$;

-- Captures get the triggers of this version, and of what their tables are now. One that cannot be followed stays as it is.
CREATE OR REPLACE FUNCTION :"schema".recapture() RETURNS void
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    n integer;
BEGIN
    PERFORM set_config('lock_timeout', '3s', true);
    FOR n IN SELECT c.no FROM capture c JOIN pg_class t ON t.oid = c.source LOOP
        BEGIN
            PERFORM capture_attach(n);
        EXCEPTION WHEN syntax_error_or_access_rule_violation OR object_not_in_prerequisite_state THEN
            RAISE WARNING 'belay: capture % is set aside: %', n, SQLERRM;
        END;
    END LOOP;
END $$;
SELECT :"schema".recapture();

-- Who had rights before an upgrade has them on what is new as well.
SELECT :"schema".grant_to(r.rolname, m.what)
FROM (VALUES ('push', 'producer'), ('beat', 'worker'), ('cancel', 'admin')) m (mark, what)
JOIN pg_proc p ON p.proname = m.mark AND p.pronamespace = (SELECT c.relnamespace FROM pg_class c JOIN :"schema".meta x ON c.oid = x.tableoid)
CROSS JOIN LATERAL aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee AND r.oid <> p.proowner;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA :"schema" FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA :"schema" FROM PUBLIC;
ALTER DEFAULT PRIVILEGES IN SCHEMA :"schema" REVOKE ALL ON FUNCTIONS FROM PUBLIC;
