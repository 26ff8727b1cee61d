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

-- Wakes the workers of a queue when the transaction commits; the database folds repetitions.
CREATE OR REPLACE FUNCTION :"schema".announce(p_queue text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM pg_notify(current_schema() || '.push', p_queue);
END $$;

CREATE OR REPLACE FUNCTION :"schema".ensure_queue(p_queue text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM queue q WHERE q.name = p_queue) THEN
        RETURN;
    END IF;
    IF p_queue IS NULL OR char_length(p_queue) NOT BETWEEN 1 AND 128 OR p_queue ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'a queue name has 1 to 128 characters and no control characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO queue (name) VALUES (p_queue) ON CONFLICT DO NOTHING;
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

-- One request, in the caller's transaction; workers hear of it when that commits. Returns its id.
CREATE OR REPLACE FUNCTION :"schema".push(queue text, entity text, kind text DEFAULT 'create',
    payload jsonb DEFAULT NULL, run_at timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
#variable_conflict use_variable
DECLARE
    new_id bigint;
BEGIN
    IF kind IS NULL OR kind NOT IN ('create', 'update') THEN
        RAISE EXCEPTION 'kind is "create" or "update", not "%"', kind USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF entity IS NULL OR octet_length(entity) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'an entity has 1 to 512 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF pg_column_size(payload) > 1048576 THEN
        RAISE EXCEPTION 'the payload is larger than 1 MiB' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    PERFORM ensure_queue(queue);
    INSERT INTO request AS r (queue, entity, kind, payload, run_at)
        VALUES (queue, entity, kind, payload, CASE WHEN run_at > clock_timestamp() THEN run_at END)
        RETURNING r.id INTO new_id;
    PERFORM pg_notify(current_schema() || '.push', queue);
    RETURN new_id;
EXCEPTION WHEN unique_violation THEN
    RAISE EXCEPTION 'entity "%" of queue "%" has a create already', entity, queue
        USING ERRCODE = 'unique_violation';
END $$;

-- Many at once: an array of {"entity", "kind", "payload", "run_at"}; all or none, ids in their order.
CREATE OR REPLACE FUNCTION :"schema".push_many(p_queue text, p_requests jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    bad text;
BEGIN
    IF jsonb_typeof(p_requests) IS DISTINCT FROM 'array' OR jsonb_array_length(p_requests) > 10000 THEN
        RAISE EXCEPTION 'requests are an array of at most 10000 objects' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT CASE WHEN jsonb_typeof(e) <> 'object' THEN 'request ' || n || ' is not an object'
                WHEN coalesce(octet_length(e->>'entity'), 0) NOT BETWEEN 1 AND 512
                    THEN 'request ' || n || ': an entity has 1 to 512 bytes'
                WHEN coalesce(e->>'kind', 'create') NOT IN ('create', 'update')
                    THEN 'request ' || n || ': kind is "create" or "update"'
                WHEN pg_column_size(e->'payload') > 1048576
                    THEN 'request ' || n || ': the payload is larger than 1 MiB' END
    INTO bad FROM jsonb_array_elements(p_requests) WITH ORDINALITY x (e, n)
    WHERE jsonb_typeof(e) <> 'object' OR coalesce(octet_length(e->>'entity'), 0) NOT BETWEEN 1 AND 512
          OR coalesce(e->>'kind', 'create') NOT IN ('create', 'update') OR pg_column_size(e->'payload') > 1048576
    LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%', bad USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM ensure_queue(p_queue);
    RETURN QUERY INSERT INTO request AS r (queue, entity, kind, payload, run_at)
        SELECT p_queue, e->>'entity', coalesce(e->>'kind', 'create'), e->'payload',
               CASE WHEN (e->>'run_at')::timestamptz > clock_timestamp() THEN (e->>'run_at')::timestamptz END
        FROM jsonb_array_elements(p_requests) WITH ORDINALITY x (e, n) ORDER BY n
        RETURNING r.id;
    PERFORM announce(p_queue);
EXCEPTION WHEN unique_violation THEN
    RAISE EXCEPTION 'an entity of queue "%" has a create already', p_queue
        USING ERRCODE = 'unique_violation', DETAIL = SQLERRM;
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

-- Something other than a lock keeps a row of this kind from being started.
CREATE OR REPLACE FUNCTION :"schema".blocked(p_queue text, p_entity text, p_kind text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM request l WHERE is_of(l, p_queue, p_entity) AND l.status = 'in-progress')
        OR (SELECT r.due_kind IS DISTINCT FROM p_kind FROM request r WHERE is_of(r, p_queue, p_entity) AND r.decides
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
-- stands before it is taken.
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
    attempts integer, pushed_at json, payload jsonb, refuse text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
#variable_conflict use_column
DECLARE
    at bigint;
    n bigint;
    entities text[];
    passed text[]; -- so that not every row of an entity with many is met
    noted bigint;
    bundled bigint;
BEGIN
    IF p_careful THEN
        RETURN QUERY SELECT * FROM claim_careful(p_queue, p_line, p_cell, p_processes, p_require_created, p_below);
        RETURN;
    END IF;
    LOOP
        IF p_upto IS NULL THEN
            p_upto := coalesce(pg_sequence_last_value('request_id_seq'), 9223372036854775807);
            IF pg_relation_size('bundle', 'main') > 0 THEN
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
            r.attempts, to_json(r.pushed_at), r.payload, claim.refuse
        FROM request r
        WHERE is_of(r, p_queue, p_entity) AND r.decides AND r.id + 0 <= p_upto AND CASE WHEN r.due_kind = p_kind THEN true ELSE in_the_way(r.id) END
              AND NOT EXISTS (SELECT FROM request l WHERE is_of(l, p_queue, p_entity) AND l.status = 'in-progress')
        ORDER BY r.kind, r.run_at, r.id LIMIT CASE p_kind WHEN 'create' THEN 1 ELSE 5000 END FOR UPDATE OF r NOWAIT;
        EXIT WHEN FOUND;
        -- Blocked, or done by somebody else since it was found. A lock of an entity that is blocked must not be
        -- kept until this transaction ends, which may be after minutes of other work.
        IF blocked(p_queue, p_entity, p_kind) THEN
            PERFORM in_the_way(p_line);
        END IF;
        met := coalesce(met, 0) + 1;
        p_entity := NULL;
        p_upto := NULL;
    END LOOP;
    noted := CASE WHEN p_cell > 0 AND pg_try_advisory_xact_lock('cell'::regclass::oid::integer, p_cell)
                  THEN setval(('attempt_' || p_cell)::regclass, p_line) END;
    IF p_ahead IS NOT NULL THEN
        RETURN QUERY SELECT p_upto, NULL::integer, a.id, a.entity, a.kind, NULL::uuid, NULL::bigint, NULL::integer, NULL::json,
            NULL::jsonb, NULL
        FROM (SELECT DISTINCT ON (d.entity) d.id, d.entity, d.kind
              FROM due(p_queue, greatest(p_ahead, p_line), p_upto, ARRAY[p_entity]) d ORDER BY d.entity, d.id) a
        ORDER BY a.id;
    END IF;
END $$;

-- The same, around what a stranger has locked and what is blocked: it looks first, and pays for a savepoint.
CREATE OR REPLACE FUNCTION :"schema".claim_careful(p_queue text, p_line bigint, p_cell integer, p_processes uuid[],
    p_require_created boolean, p_below boolean)
RETURNS TABLE (line bigint, met integer, id bigint, entity text, kind text, process uuid, fence bigint,
    attempts integer, pushed_at json, payload jsonb, refuse text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c record;
    why text;
    passed text[] := '{}'; -- so that not every row of an entity with many is met
    upto bigint := coalesce(pg_sequence_last_value('request_id_seq'), 9223372036854775807);
    bundled bigint;
BEGIN
    SELECT b.id INTO bundled FROM bundle b WHERE b.queue = p_queue ORDER BY b.id LIMIT 1;
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
                        RETURN QUERY SELECT * FROM claim(p_queue, c.id, p_cell, p_processes, p_require_created, false, c.entity, c.kind,
                                                          NULL, p_below);
                        RETURN;
                    END IF;
                EXCEPTION WHEN lock_not_available THEN
                    why := 'a row is locked (55P03)';
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

-- Through this a worker completes what claim() took, in the same transaction, by an UPDATE of its own: half the price of a
-- function. It gives a worker no more than settle() does.
CREATE OR REPLACE VIEW :"schema".claimed AS
    SELECT r.id, r.status, r.outcome, r.process, r.fence, r.worker, r.attempts, r.claimed_at, r.settled_at, r.error FROM :"schema".request r;

-- Any other end of it.
CREATE OR REPLACE FUNCTION :"schema".settle(p_ids bigint[], p_status text, p_outcome text, p_error text,
    p_process uuid, p_fence bigint, p_worker text, p_cell integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    n integer;
    noted bigint;
BEGIN
    UPDATE request SET status = p_status, outcome = p_outcome, error = p_error, process = p_process,
        fence = p_fence, worker = p_worker, attempts = attempts + 1, claimed_at = now(),
        settled_at = clock_timestamp()
    WHERE id = ANY (p_ids);
    GET DIAGNOSTICS n = ROW_COUNT;
    IF p_cell > 0 AND p_status <> 'complete' THEN -- what is complete stays so; an error may be opened again
        noted := setval(('attempt_' || p_cell)::regclass, 1, false);
    END IF;
    RETURN n;
END $$;

-- Before a rollback on purpose (graceful stop, a command that could not be started): no attempt was made.
CREATE OR REPLACE FUNCTION :"schema".unbegin(p_cell integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    IF p_cell > 0 THEN
        PERFORM setval(('attempt_' || p_cell)::regclass, 1, false);
    END IF;
END $$;

-- Puts rows that were tried and not finished back, or gives them up when they had their attempts. For an
-- update the whole group goes the same way. Returns 'new' or 'error'.
CREATE OR REPLACE FUNCTION :"schema".put_back(p_ids bigint[], p_error text, p_max_attempts integer,
    p_base_ms integer, p_max_ms integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    tried integer;
BEGIN
    SELECT max(r.attempts) + 1 INTO tried FROM request r WHERE r.id = ANY (p_ids);
    IF tried >= p_max_attempts THEN
        UPDATE request SET status = 'error', attempts = tried, settled_at = clock_timestamp(), lease_until = NULL,
            run_at = NULL, error = 'gave up after ' || tried || ' attempts: ' || p_error
        WHERE id = ANY (p_ids);
        RETURN 'error';
    END IF;
    UPDATE request SET status = 'new', attempts = tried, lease_until = NULL, error = p_error,
        run_at = clock_timestamp() + backoff(tried, p_base_ms, p_max_ms)
    WHERE id = ANY (p_ids);
    RETURN 'new';
END $$;

-- As settle(), for a group that should be tried again later.
CREATE OR REPLACE FUNCTION :"schema".again(p_ids bigint[], p_error text, p_max_attempts integer,
    p_base_ms integer, p_max_ms integer, p_cell integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    became text := put_back(p_ids, p_error, p_max_attempts, p_base_ms, p_max_ms);
BEGIN
    IF p_cell > 0 THEN
        PERFORM setval(('attempt_' || p_cell)::regclass, 1, false);
    END IF;
    RETURN became;
END $$;

-- ------------------------------------------------------------------------------------------ lease mode

-- As many groups as p_processes has names for, in one short transaction, each with a fence and a lease, visible to
-- all. Rows as those of claim(). A row that a stranger has locked raises 55P03, here after the time-out below (cheaper than a lock in
-- advance for each row); with p_careful it takes one group and passes over such a row.
CREATE OR REPLACE FUNCTION :"schema".claim_lease(p_queue text, p_line bigint, p_processes uuid[], p_lease_ms integer,
    p_worker text, p_require_created boolean, p_careful boolean, p_below boolean DEFAULT false)
RETURNS TABLE (line bigint, met integer, id bigint, entity text, kind text, process uuid, fence bigint,
    attempts integer, pushed_at json, payload jsonb, refuse text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET lock_timeout = '50ms' AS $$
#variable_conflict use_column
DECLARE
    entities text[];
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
    WITH c AS MATERIALIZED (
        SELECT r.id, r.entity FROM request r
        WHERE r.queue = p_queue AND r.status = 'new' AND r.run_at IS NULL AND r.id + 0 > p_line
              AND r.id + 0 < coalesce((SELECT CASE WHEN p_below THEN b.id ELSE 0 END FROM bundle b WHERE b.queue = p_queue
                                       ORDER BY b.id LIMIT 1), 9223372036854775807)
        ORDER BY r.id + 0 LIMIT cardinality(p_processes)
    ), e AS MATERIALIZED (
        SELECT c.entity FROM c GROUP BY c.entity ORDER BY min(c.id)
    )
    SELECT (SELECT max(c.id) FROM c), (SELECT count(*) FROM e),
           ARRAY(SELECT e.entity FROM e
                 WHERE pg_try_advisory_xact_lock(entity_key(p_queue, e.entity) # 'request'::regclass::oid::bigint)),
           CASE WHEN NOT EXISTS (SELECT FROM c) AND EXISTS (SELECT FROM bundle b WHERE b.queue = p_queue) THEN 'bundle' END
    INTO line, met, entities, refuse;
    -- Locked; now the rows, with a snapshot that sees what the last owners of the entities committed.
    RETURN QUERY WITH g AS MATERIALIZED (
        SELECT e.entity, nextval('fence') AS fence, e.process,
               CASE WHEN p_require_created THEN create_failed(p_queue, e.entity) END AS refuse
        FROM unnest(entities, p_processes[1:cardinality(entities)]) e (entity, process)
    ), p AS MATERIALIZED (
        SELECT o.tid, g.fence, g.process, g.refuse
        FROM g CROSS JOIN LATERAL (
            SELECT n.ctid AS tid, n.due_kind AS own, first_value(n.due_kind) OVER (ORDER BY n.kind, n.run_at, n.id) AS first
            FROM request n WHERE is_of(n, p_queue, g.entity) AND n.decides
                AND n.id + 0 < coalesce((SELECT b.id FROM bundle b WHERE b.queue = p_queue ORDER BY b.id LIMIT 1), 9223372036854775807)
            ORDER BY n.kind, n.run_at, n.id LIMIT 5000) o
        WHERE o.own = o.first
              AND NOT EXISTS (SELECT FROM request l WHERE is_of(l, p_queue, g.entity) AND l.status = 'in-progress' OFFSET 0)
    ), u AS (
        UPDATE request r SET status = 'in-progress', fence = p.fence, process = p.process, worker = p_worker,
            attempts = r.attempts + 1, claimed_at = now(), lease_until = until
        FROM p WHERE r.ctid = p.tid AND r.status || '' = 'new'
        RETURNING r.id, r.entity, r.kind, r.process, r.fence, r.attempts - 1 AS attempts, r.pushed_at, r.payload, p.refuse)
    (SELECT NULL::bigint, NULL::integer, u.id, u.entity::text, u.kind::text, u.process, u.fence, u.attempts,
            to_json(u.pushed_at), u.payload, CASE u.kind WHEN 'update' THEN u.refuse END
     FROM u ORDER BY u.fence, u.id)
    UNION ALL
    SELECT claim_lease.line, CASE WHEN (SELECT count(*) FROM p) = (SELECT count(*) FROM u) THEN claim_lease.met ELSE conflict() END,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, claim_lease.refuse;
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
    UPDATE request r SET status = k.status, outcome = k.outcome, error = k.error, lease_until = NULL, settled_at = at
    FROM unnest(p_ids, p_fences, p_status, p_outcome, p_error) k (ids, fence, status, outcome, error)
    WHERE k.status <> 'new' AND r.id = ANY (k.ids::bigint[]) AND r.fence = k.fence AND r.status || '' = 'in-progress';
    GET DIAGNOSTICS n = ROW_COUNT;
    IF n = p_count THEN
        RETURN;
    END IF;
    FOR g IN SELECT s.fence, s.error, array_agg(r.id) AS ids
             FROM unnest(p_ids, p_fences, p_status, p_error) s (ids, fence, status, error)
             JOIN request r ON r.id = ANY (s.ids::bigint[]) AND r.fence = s.fence AND r.status || '' = 'in-progress'
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
                 UPDATE request r SET status = 'new', attempts = r.attempts - 1, lease_until = NULL
                 FROM unnest(p_ids, p_fences) k (ids, fence)
                 WHERE r.id = ANY (k.ids::bigint[]) AND r.fence = k.fence AND r.status || '' = 'in-progress' RETURNING r.queue)
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
        WHERE r.id = ANY (k.ids::bigint[]) AND r.fence = k.fence AND r.status || '' = 'in-progress' RETURNING r.fence)
    SELECT DISTINCT u.fence FROM u;
END $$;

-- --------------------------------------------------------------------------------------------- workers

-- p_count cells of the attempt journal that nobody uses at the moment, made when there are not enough.
CREATE OR REPLACE FUNCTION :"schema".ready(p_count integer) RETURNS integer[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
DECLARE
    cells integer[] := '{}';
    n integer := 0;
    last bigint;
BEGIN
    IF p_count NOT BETWEEN 1 AND 1024 THEN
        RAISE EXCEPTION 'a worker has 1 to 1024 slots' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOCK TABLE cell IN SHARE ROW EXCLUSIVE MODE;
    WHILE cardinality(cells) < p_count AND n < 4096 LOOP
        n := n + 1;
        IF NOT EXISTS (SELECT FROM cell c WHERE c.no = n) THEN
            EXECUTE format('CREATE SEQUENCE attempt_%s', n);
            INSERT INTO cell (no) VALUES (n);
        ELSIF EXISTS (SELECT FROM pg_locks k WHERE k.locktype = 'advisory' AND k.classid = 'cell'::regclass
                      AND k.objid = n AND k.objsubid = 2 AND k.granted) THEN
            CONTINUE; -- in use
        ELSE
            last := pg_sequence_last_value(('attempt_' || n)::regclass);
            -- An attempt that tend() has yet to count.
            CONTINUE WHEN last IS NOT NULL AND NOT EXISTS (SELECT FROM request r WHERE r.id = last AND r.status || '' = 'complete');
        END IF;
        cells := cells || n;
    END LOOP;
    RETURN cells;
END $$;

-- What time brings about: attempts of dead workers are counted, lapsed leases go back, what is due becomes
-- due. Returns how long until there is more of it (NULL: nothing is planned), and whether it changed anything.
CREATE OR REPLACE FUNCTION :"schema".tend(p_queues text[], p_max_attempts integer, p_base_ms integer, p_max_ms integer,
    OUT next_ms bigint, OUT changed integer)
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
    FOR c IN SELECT cell.no, pg_sequence_last_value(('attempt_' || cell.no)::regclass) AS id FROM cell
             WHERE pg_sequence_last_value(('attempt_' || cell.no)::regclass) IS NOT NULL
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM request q WHERE q.id = c.id AND q.status || '' = 'complete');
        CONTINUE WHEN NOT pg_try_advisory_xact_lock('cell'::regclass::oid::int, c.no);
        CONTINUE WHEN pg_sequence_last_value(('attempt_' || c.no)::regclass) IS DISTINCT FROM c.id;
        -- Left alone while someone has the row: the next tend() counts it.
        SELECT q.id, q.queue, q.entity, q.kind, q.status INTO r FROM request q WHERE q.id = c.id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND AND EXISTS (SELECT FROM request q WHERE q.id = c.id);
        PERFORM setval(('attempt_' || c.no)::regclass, 1, false);
        IF r.status = 'new' THEN
            changed := changed + count_death(r.id, r.queue, r.entity, r.kind, p_max_attempts, p_base_ms, p_max_ms);
        END IF;
    END LOOP;

    FOR r IN SELECT q.fence, q.worker, array_agg(q.id) AS ids FROM
                 (SELECT x.id, x.fence, x.worker FROM request x
                  WHERE x.status = 'in-progress' AND x.lease_until < at
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
        SELECT min(y.lease_until) FROM request y WHERE y.status = 'in-progress') x (moment);
    IF next_ms < 0 THEN -- NULL stays NULL: nothing is planned
        next_ms := 0;
    END IF;
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
    UPDATE request SET attempts = attempts + 1, error = 'its worker died' WHERE id = p_id RETURNING attempts INTO tried;
    IF tried < least(2, p_max_attempts) THEN
        RETURN 1;
    END IF;
    IF p_kind = 'update' THEN
        BEGIN
            SELECT array_agg(g.id) INTO ids FROM
                (SELECT r.id FROM request r WHERE is_of(r, p_queue, p_entity) AND r.status = 'new' AND r.kind = 'update'
                     AND coalesce(r.run_at, '-infinity') = '-infinity' FOR UPDATE NOWAIT) g;
        EXCEPTION WHEN lock_not_available THEN
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
           (b.head || coalesce(u.body, u.entity) || b.tail)::jsonb, NULL::text, NULL::text
    FROM unnest(b.ids, b.entities, b.bodies) u (id, entity, body);
$$;
SET LOCAL check_function_bodies = on;

-- Makes requests of the bundle, unless somebody else did: then it has waited for that, and there are 0.
CREATE OR REPLACE FUNCTION :"schema".unfold_one(p_queue text, p_id bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    WITH d AS (DELETE FROM bundle b WHERE b.queue = p_queue AND b.id = p_id RETURNING b AS it)
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
    at bigint;
    n integer := 0;
BEGIN
    WHILE n < 1024 LOOP
        SELECT b.id INTO at FROM bundle b WHERE b.queue = p_queue ORDER BY b.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        n := n + unfold_one(p_queue, at);
    END LOOP;
    IF n = 0 THEN
        SELECT b.id INTO at FROM bundle b WHERE b.queue = p_queue ORDER BY b.id LIMIT 1 FOR UPDATE;
    END IF;
    RETURN n;
END $$;

-- Before something is done to one request: it shall be a row.
CREATE OR REPLACE FUNCTION :"schema".unfold_request(p_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unfold_one(b.queue, b.id) FROM bundle b WHERE p_id BETWEEN b.id AND b.last AND p_id = ANY (b.ids);
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
    FROM (SELECT cell.no, pg_sequence_last_value(('attempt_' || cell.no)::regclass) AS id FROM cell OFFSET 0) c
    JOIN pg_locks k ON k.locktype = 'advisory' AND k.classid = 'cell'::regclass AND k.objid = c.no AND k.objsubid = 2
         AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    JOIN request r ON r.id = c.id AND r.status || '' = 'new'
    LEFT JOIN pg_stat_activity a ON a.pid = k.pid
    WHERE p_queue IS NULL OR r.queue = p_queue
    ORDER BY 1;
$$;

-- One line per queue, or for one queue. What is in bundles is new.
CREATE OR REPLACE FUNCTION :"schema".status(p_queue text DEFAULT NULL)
RETURNS TABLE (queue text, new bigint, later bigint, in_progress bigint, complete bigint, error bigint,
    oldest_ms bigint, per_minute bigint)
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
         AND r.settled_at > clock_timestamp() - interval '1 minute')
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

-- For watchers: what was settled during the last p_ago, oldest first. The time is taken before the commit, so
-- a watcher looks back some seconds further than it must, and remembers which ids it has seen.
CREATE OR REPLACE FUNCTION :"schema".settled_within(p_queue text, p_ago interval) RETURNS SETOF :"schema".request
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
BEGIN
    PERFORM known_queue(p_queue);
    RETURN QUERY SELECT * FROM request r
        WHERE r.queue = p_queue AND r.status IN ('complete', 'error') AND r.settled_at > clock_timestamp() - p_ago
        ORDER BY r.settled_at, r.id LIMIT 10000;
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
-- loses the claim at the next heartbeat. In transaction mode such a request is locked, and this refuses.
CREATE OR REPLACE FUNCTION :"schema".cancel(p_id bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    r record;
BEGIN
    PERFORM unfold_request(p_id);
    SELECT q.status INTO r FROM request q WHERE q.id = p_id FOR UPDATE NOWAIT;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no request %', p_id USING ERRCODE = 'no_data_found';
    ELSIF r.status NOT IN ('new', 'in-progress') THEN
        RAISE EXCEPTION 'request % is settled (%)', p_id, r.status USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    UPDATE request SET status = 'error', error = 'cancelled', run_at = NULL, lease_until = NULL,
        settled_at = clock_timestamp() WHERE id = p_id;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'request % is being worked on', p_id USING ERRCODE = 'lock_not_available';
END $$;

-- Deletes up to p_limit settled requests that are older than p_age; call it until it returns 0. Takes no lock
-- that a worker waits for. An entity whose completed create is purged may be created again.
CREATE OR REPLACE FUNCTION :"schema".purge(p_queue text, p_age interval, p_limit integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
DECLARE
    n integer;
BEGIN
    PERFORM known_queue(p_queue);
    IF p_age < interval '0' OR p_limit NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION 'the age is not negative and the limit is 1 to 100000' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM request WHERE id IN
        (SELECT r.id FROM request r WHERE r.queue = p_queue AND r.status IN ('complete', 'error')
             AND r.settled_at < clock_timestamp() - p_age LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
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
-- with its rights and with this schema as search_path.
CREATE OR REPLACE FUNCTION :"schema".capture(p_table regclass, p_queue text, p_entity text,
    p_columns text[] DEFAULT '{}', p_condition text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    n integer;
    unknown text;
    op text;
BEGIN
    PERFORM ensure_queue(p_queue);
    SELECT min(c) INTO unknown FROM unnest(p_columns) c
    WHERE c <> '*' AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = p_table AND a.attname = c
                                   AND a.attnum > 0 AND NOT a.attisdropped);
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'table % has no column "%"', p_table, unknown USING ERRCODE = 'undefined_column';
    END IF;
    IF EXISTS (SELECT FROM capture c WHERE c.source = p_table AND c.queue = p_queue AND c.entity = p_entity) THEN
        RAISE EXCEPTION 'table % is captured for queue "%" by that entity already', p_table, p_queue
            USING ERRCODE = 'unique_violation';
    END IF;
    INSERT INTO capture (source, queue, entity, columns, condition)
        VALUES (p_table, p_queue, p_entity, p_columns, p_condition) RETURNING no INTO n;
    EXECUTE capture_source(n);
    EXECUTE format('REVOKE ALL ON FUNCTION capture_%s() FROM PUBLIC', n);
    FOREACH op IN ARRAY ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE'] LOOP
        EXECUTE format('CREATE TRIGGER belay_capture_%s_%s %s %s ON %s %s FOR EACH STATEMENT EXECUTE FUNCTION capture_%s()',
            n, lower(op), CASE op WHEN 'TRUNCATE' THEN 'BEFORE' ELSE 'AFTER' END, op, p_table,
            CASE op WHEN 'INSERT' THEN 'REFERENCING NEW TABLE AS belay_new'
                    WHEN 'UPDATE' THEN 'REFERENCING OLD TABLE AS belay_old NEW TABLE AS belay_new'
                    WHEN 'DELETE' THEN 'REFERENCING OLD TABLE AS belay_old' ELSE '' END, n);
    END LOOP;
    RETURN n;
END $$;

-- The text of the trigger function of capture n. A few rows become requests at once, more than that bundles.
CREATE OR REPLACE FUNCTION :"schema".capture_source(n integer) RETURNS text
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    few constant integer := 256;
    c capture;
    keys text[];      -- the primary key
    plain regtype;    -- of the entity, where that is the primary key and its text tells all of it
    entity text;      -- SQL
    key text;         -- SQL, over one row
    branches text := '';
    op text;
    rows_of text;
BEGIN
    SELECT * INTO STRICT c FROM capture x WHERE x.no = n;
    SELECT CASE WHEN count(*) > 0 THEN quote_ident(c.entity) ELSE '(' || c.entity || ')' END INTO entity
    FROM pg_attribute a WHERE a.attrelid = c.source AND a.attname = c.entity AND a.attnum > 0 AND NOT a.attisdropped;
    SELECT array_agg(a.attname::text ORDER BY k.ord),
           CASE WHEN count(*) = 1 AND min(a.attname) = c.entity THEN min(a.atttypid) END INTO keys, plain
    FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY k (attnum, ord)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = c.source AND i.indisprimary;
    IF keys IS NULL AND (c.columns <> '{}' OR c.condition IS NOT NULL) THEN
        RAISE EXCEPTION 'table % has no primary key, which columns and conditions need', c.source
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    key := CASE coalesce(cardinality(keys), 0) WHEN 0 THEN 'NULL::text' WHEN 1 THEN quote_ident(keys[1])
           ELSE 'jsonb_build_array(' || (SELECT string_agg(quote_ident(k), ', ') FROM unnest(keys) k) || ')' END;
    FOREACH op IN ARRAY ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE'] LOOP
        IF c.columns = '{}' AND c.condition IS NULL OR op = 'TRUNCATE' THEN
            rows_of := capture_rows(op, c.source, entity, key, plain IS NOT NULL);
        ELSE
            rows_of := capture_rows_paired(op, c, keys, entity, key);
        END IF;
        branches := branches || format($f$
    %s TG_OP = %L THEN
        IF (SELECT count(*) FROM (SELECT FROM %s LIMIT %s) x) <= %s THEN
            INSERT INTO request (queue, entity, kind, payload)
            SELECT %L, g.e, 'update', (belay_head || g.body || belay_tail)::jsonb FROM (%s) g WHERE g.e IS NOT NULL;
        ELSE
            INSERT INTO bundle (id, last, queue, size, head, tail, ids, entities, bodies) %s;
        END IF;$f$,
            CASE op WHEN 'INSERT' THEN 'IF' ELSE 'ELSIF' END, op,
            CASE op WHEN 'TRUNCATE' THEN c.source::text WHEN 'DELETE' THEN 'belay_old' ELSE 'belay_new' END, few + 1, few,
            c.queue, rows_of,
            CASE WHEN plain IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'uuid'::regtype)
                      AND (c.columns = '{}' AND c.condition IS NULL OR op = 'TRUNCATE')
                 THEN capture_keys_bundled(op, c.source, c.queue, key, CASE plain WHEN 'uuid'::regtype THEN '"' ELSE '' END)
                 ELSE capture_rows_bundled(c.queue, rows_of) END);
    END LOOP;
    -- What is the same in every payload of a statement is made once: text is cheaper to put together than jsonb.
    -- The body is quoted as a literal: no name in it can end it.
    RETURN format('CREATE OR REPLACE FUNCTION capture_%s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = %I, pg_temp AS %L',
        n, current_schema(), format($f$
#variable_conflict use_column
DECLARE
    belay_head text := '{"op": "' || TG_OP || '", "table": ' || to_json(%L::text) || ', "rows": ';
    belay_tail text := ', "xid": "' || pg_current_xact_id() || '", "at": ' || to_json(now()) || '}';
BEGIN%s
    END IF;
    IF FOUND THEN
        PERFORM pg_notify(%L, %L);
    END IF;
    RETURN NULL;
END $f$, c.source::text, branches, current_schema() || '.push', c.queue));
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
        WHEN 'INSERT' THEN format('belay_new AS new LEFT JOIN %s AS old ON false', c.source)
        WHEN 'DELETE' THEN format('belay_old AS old LEFT JOIN %s AS new ON false', c.source)
        ELSE 'belay_old AS old FULL JOIN belay_new AS new ON '
             || (SELECT string_agg(format('old.%I = new.%I', k, k), ' AND ') FROM unnest(keys) k) END;
    SELECT array_agg(format('CASE WHEN %s.%I IS NOT NULL THEN %s END', side, keys[1],
               CASE WHEN '*' = ANY (c.columns) THEN format('to_jsonb(%s)', side)
                    WHEN c.columns = '{}' THEN 'NULL::jsonb'
                    ELSE 'jsonb_build_object(' || (SELECT string_agg(format('%L, %s.%I', x, side, x), ', ')
                                                   FROM unnest(c.columns) x) || ')' END) ORDER BY n)
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
CREATE OR REPLACE FUNCTION :"schema".capture_rows_bundled(queue text, rows_of text) RETURNS text
LANGUAGE sql STABLE SET search_path = :"schema", pg_temp AS $$
    SELECT format($q$SELECT min(x.id), max(x.id), %L, count(*), belay_head, belay_tail, array_agg(x.id), array_agg(x.e::request_entity), array_agg(x.body)
        FROM (SELECT nextval('request_id_seq') AS id, g.e, g.body, sum(octet_length(g.body)) OVER (ROWS UNBOUNDED PRECEDING) >> 24 AS part
              FROM (%s) g WHERE g.e IS NOT NULL) x GROUP BY x.id >> 10, x.part$q$, queue, rows_of);
$$;

-- The same where each row is an entity of its own, by a key that looks the same in JSON (but for quotes): nothing but the keys is kept.
CREATE OR REPLACE FUNCTION :"schema".capture_keys_bundled(op text, source regclass, queue text, key text, quote text) RETURNS text
LANGUAGE sql STABLE SET search_path = :"schema", pg_temp AS $$
    SELECT format($q$SELECT min(x.id), max(x.id), %L, count(*), belay_head || '1, "keys": [%s', '%s]' || belay_tail, array_agg(x.id), array_agg(x.e::request_entity), NULL
        FROM (SELECT nextval('request_id_seq') AS id, g.e FROM (%s) g) x GROUP BY x.id >> 10$q$, queue, quote, quote,
        CASE op WHEN 'TRUNCATE' THEN format('SELECT %s::text AS e FROM %s', key, source)
                WHEN 'DELETE' THEN format('SELECT %s::text AS e FROM belay_old', key)
                WHEN 'INSERT' THEN format('SELECT %s::text AS e FROM belay_new', key)
                ELSE format('SELECT %1$s::text AS e FROM belay_new UNION ALL SELECT o.%1$s::text FROM belay_old o
                             WHERE NOT EXISTS (SELECT FROM belay_new n WHERE n.%1$s = o.%1$s)', key) END);
$$;

CREATE OR REPLACE FUNCTION :"schema".uncapture(p_no integer) RETURNS void
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
BEGIN
    DELETE FROM capture c WHERE c.no = p_no;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no capture %', p_no USING ERRCODE = 'no_data_found';
    END IF;
    EXECUTE format('DROP FUNCTION IF EXISTS capture_%s() CASCADE', p_no); -- its triggers go with it
END $$;

CREATE OR REPLACE FUNCTION :"schema".captures()
RETURNS TABLE (no integer, source text, queue text, entity text, columns text[], condition text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = :"schema", pg_temp AS $$
    SELECT c.no, c.source::text, c.queue, c.entity, c.columns, c.condition FROM capture c ORDER BY c.no;
$$;

-- --------------------------------------------------------------------------------------------- rights

-- producer: push and see. worker: also claim and settle. admin: also retry, cancel, purge.
CREATE OR REPLACE FUNCTION :"schema".grant_to(p_role name, p_what text) RETURNS void
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    may text[] := ARRAY['version', 'push', 'push_many', 'status', 'working', 'list', 'history', 'show', 'settled_within',
                         'guard', 'captures'];
    f regprocedure;
BEGIN
    IF p_what = 'worker' THEN
        may := may || ARRAY['claim', 'settle', 'again', 'unbegin', 'claim_lease', 'settle_lease', 'give_back', 'beat', 'ready', 'tend',
                            'unfold', 'drained', 'create_failed', 'announce_done', 'announce'];
    ELSIF p_what = 'admin' THEN
        may := may || ARRAY['retry', 'cancel', 'purge'];
    ELSIF p_what <> 'producer' THEN
        RAISE EXCEPTION 'a role is producer, worker or admin, not "%"', p_what USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), p_role);
    IF p_what = 'worker' THEN
        EXECUTE format('GRANT SELECT, UPDATE ON claimed TO %I', p_role);
    END IF;
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
             WHERE p.pronamespace = current_schema()::regnamespace AND p.proname = ANY (may)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', f, p_role);
    END LOOP;
END $$;

-- Captures of an older version get the trigger functions of this one.
CREATE OR REPLACE FUNCTION :"schema".recapture() RETURNS void
LANGUAGE plpgsql SET search_path = :"schema", pg_temp AS $$
DECLARE
    n integer;
BEGIN
    FOR n IN SELECT c.no FROM capture c JOIN pg_class t ON t.oid = c.source LOOP
        EXECUTE capture_source(n);
    END LOOP;
END $$;
SELECT :"schema".recapture();

-- Who had rights before an upgrade has them on what is new as well.
SELECT :"schema".grant_to(r.rolname, m.what)
FROM (VALUES ('push', 'producer'), ('tend', 'worker'), ('purge', 'admin')) m (mark, what)
JOIN pg_proc p ON p.proname = m.mark AND p.pronamespace = (SELECT c.relnamespace FROM pg_class c JOIN :"schema".meta x ON c.oid = x.tableoid)
CROSS JOIN LATERAL aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee AND r.oid <> p.proowner;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA :"schema" FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA :"schema" FROM PUBLIC;
ALTER DEFAULT PRIVILEGES IN SCHEMA :"schema" REVOKE ALL ON FUNCTIONS FROM PUBLIC;
