"""The tables in PostgreSQL, and the statements that the store runs on them. No I/O.

All tables are in one schema, by default `refold`, and every statement names it, so a pooler may share one
session among many clients. A run's row has its head, its fencing token and its claim: one row is locked and
updated by every write to the run.

Times are milliseconds since 1970 by the server's clock, except `event.at` and `seal.at`, which are the
caller's nanoseconds.
"""

from functools import lru_cache

VERSION = 1
"""Version of the tables below."""

_NOW = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint"

TABLES: tuple[str, ...] = (
    "CREATE SCHEMA {s}",
    "CREATE TABLE {s}.meta (version integer NOT NULL)",
    f"INSERT INTO {{s}}.meta VALUES ({VERSION})",  # noqa: S608
    # Appends change columns without an index only, so with free space in its page a row stays in place.
    """
    CREATE TABLE {s}.run (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text NOT NULL UNIQUE,
        token bigint NOT NULL,  -- the fencing token of the lease under which one may append
        seq bigint NOT NULL DEFAULT 0,  -- the last event of the run's own log
        hash bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
        holder text NOT NULL DEFAULT '',  -- the engine that has the lease
        until bigint,  -- when the lease ends, or the run is runnable; null: it waits for nothing
        length bigint NOT NULL DEFAULT 0,  -- how far away that was when it was written, ms
        woken boolean NOT NULL DEFAULT false,  -- runnable again as soon as its holder releases it
        epoch bigint NOT NULL DEFAULT 0  -- raised by CONFIRM: an append of an earlier one is not committed
    ) WITH (fillfactor = 70)
    """,
    "CREATE INDEX run_until ON {s}.run (until, number) WHERE until IS NOT NULL",
    """
    CREATE TABLE {s}.event (
        run bigint NOT NULL,  -- run.number
        seq bigint NOT NULL,
        at bigint NOT NULL,
        kind text NOT NULL,
        hash bytea NOT NULL,
        content_digest bytea,  -- stays when the content is erased
        salt bytea,
        body text NOT NULL,
        content text,
        PRIMARY KEY (run, seq)
    )
    """,
    """
    CREATE TABLE {s}.snapshot (
        run bigint PRIMARY KEY,
        seq bigint NOT NULL,
        hash bytea NOT NULL,  -- of that event
        version text NOT NULL,
        data bytea NOT NULL
    )
    """,
    """
    CREATE TABLE {s}.sealed_head (
        place bigint PRIMARY KEY,
        run text NOT NULL,
        seq bigint NOT NULL,
        hash bytea NOT NULL
    )
    """,
    """
    CREATE TABLE {s}.seal (
        number bigint PRIMARY KEY,
        size bigint NOT NULL,  -- the last place that it covers
        at bigint NOT NULL,
        root bytea NOT NULL,
        key bytea NOT NULL,
        signature bytea NOT NULL
    )
    """,
    # For users of psql.
    """
    CREATE VIEW {s}.log (run, seq, at, kind, body, content) AS
    SELECT run.id, event.seq, to_timestamp(event.at / 1e9), event.kind, event.body, event.content
    FROM {s}.event JOIN {s}.run ON run.number = event.run
    """,
    """
    CREATE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION '% is never changed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation'; END $$
    """,
    # The only allowed update of an event erases its content. The digest stays, so there must be one.
    """
    CREATE FUNCTION {s}.allow_erasure() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.content IS NULL AND NEW.salt IS NULL AND OLD.content_digest IS NOT NULL
            AND (NEW.run, NEW.seq, NEW.at, NEW.kind, NEW.hash, NEW.content_digest, NEW.body)
              = (OLD.run, OLD.seq, OLD.at, OLD.kind, OLD.hash, OLD.content_digest, OLD.body)
        THEN RETURN NEW; END IF;
        RAISE EXCEPTION 'event is never changed' USING ERRCODE = 'restrict_violation';
    END $$
    """,
    # A head moves forward only, and with its hash.
    """
    CREATE FUNCTION {s}.allow_progress() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.seq > OLD.seq OR (NEW.seq = OLD.seq AND NEW.hash = OLD.hash) THEN RETURN NEW; END IF;
        RAISE EXCEPTION 'a head never moves back' USING ERRCODE = 'restrict_violation';
    END $$
    """,
    "CREATE TRIGGER run_head BEFORE UPDATE OF seq, hash ON {s}.run FOR EACH ROW EXECUTE FUNCTION {s}.allow_progress()",
    "CREATE TRIGGER event_erasure BEFORE UPDATE ON {s}.event FOR EACH ROW EXECUTE FUNCTION {s}.allow_erasure()",
    "CREATE TRIGGER run_id BEFORE UPDATE OF number, id ON {s}.run FOR EACH ROW EXECUTE FUNCTION {s}.refuse()",
    *(
        f"CREATE TRIGGER {table}_{when.lower()} BEFORE {when} ON {{s}}.{table} "
        f"FOR EACH {'STATEMENT' if when == 'TRUNCATE' else 'ROW'} EXECUTE FUNCTION {{s}}.refuse()"
        for table, whens in (
            ("event", ("DELETE", "TRUNCATE")),
            ("run", ("DELETE", "TRUNCATE")),
            ("sealed_head", ("UPDATE", "DELETE", "TRUNCATE")),
            ("seal", ("UPDATE", "DELETE", "TRUNCATE")),
        )
        for when in whens
    ),
)

COLUMNS: dict[str, str] = {
    "event": "run bigint!, seq bigint!, at bigint!, kind text!, hash bytea!, content_digest bytea, salt bytea, "
    "body text!, content text",
    "meta": "version integer!",
    "run": "number bigint!, id text!, token bigint!, seq bigint!, hash bytea!, holder text!, until bigint, "
    "length bigint!, woken boolean!, epoch bigint!",
    "seal": "number bigint!, size bigint!, at bigint!, root bytea!, key bytea!, signature bytea!",
    "sealed_head": "place bigint!, run text!, seq bigint!, hash bytea!",
    "snapshot": "run bigint!, seq bigint!, hash bytea!, version text!, data bytea!",
}
"""The columns of each table, in order; `!` is NOT NULL."""

KEYS: dict[str, str] = {
    "event": "run, seq",
    "run": "id; number",
    "seal": "number",
    "sealed_head": "place",
    "snapshot": "run",
}
"""The columns of each table's unique keys, in order."""

TRIGGERS: tuple[str, ...] = tuple(sorted(text for text in TABLES if text.startswith("CREATE TRIGGER")))
"""The definitions of all triggers, as PostgreSQL prints them."""

FUNCTIONS: dict[str, str] = {
    text.split("}.")[1].split("(")[0]: text.split("$$")[1] for text in TABLES if "CREATE FUNCTION" in text
}
"""The source of each trigger's function, by name."""

META = "SELECT version FROM {s}.meta"
# Parameter of the next four: the schema's name. Each table with its columns, and what makes it another kind
# of table: a view, a partition, rows of children, rules, hidden rows, or rows that a crash removes.
FOUND_COLUMNS = """
SELECT relname, string_agg(attname || ' ' || format_type(atttypid, NULL) || CASE WHEN attnotnull THEN '!' ELSE '' END,
    ', ' ORDER BY attnum),
    relkind = 'r' AND relpersistence = 'p' AND NOT relrowsecurity AND NOT relhasrules AND NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_inherits WHERE pg_class.oid IN (inhparent, inhrelid))
FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class ON pg_class.oid = attrelid
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relkind IN ('r', 'p', 'v', 'm', 'f') AND relname <> 'log' AND attnum > 0 AND NOT attisdropped
GROUP BY pg_class.oid, relname
"""
FOUND_KEYS = """
SELECT relname, string_agg(keys, '; ' ORDER BY keys) FROM (
    SELECT indrelid, (SELECT string_agg(attname, ', ' ORDER BY place) FROM unnest(indkey) WITH ORDINALITY AS k(key, place)
        JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = key) AS keys
    FROM pg_catalog.pg_index WHERE indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL
) AS unique_keys JOIN pg_catalog.pg_class ON pg_class.oid = indrelid
JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s GROUP BY relname
"""
FOUND_TRIGGERS = """
SELECT pg_get_triggerdef(pg_trigger.oid), prosrc, tgenabled FROM pg_catalog.pg_trigger
JOIN pg_catalog.pg_class ON pg_class.oid = tgrelid JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
JOIN pg_catalog.pg_proc ON pg_proc.oid = tgfoid WHERE nspname = %s AND NOT tgisinternal
"""
REPLICATION_ROLE = "SELECT current_setting('session_replication_role')"

SETTINGS = """
SELECT name, setting FROM pg_catalog.pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'server_encoding', 'synchronous_commit', 'synchronous_standby_names',
    'server_version', 'in_hot_standby', 'data_checksums')
"""
STANDBYS = "SELECT application_name, sync_state FROM pg_catalog.pg_stat_replication ORDER BY 1"

TIME = f"SELECT {_NOW}"

# The state of runs, by a JSON array of ids: what `claims.RunRow` has.
# Whether a head is the event of its number.
_HEAD_HOLDS = (
    "(run.seq = 0 OR run.hash IS NOT DISTINCT FROM "
    "(SELECT event.hash FROM {s}.event WHERE event.run = run.number AND event.seq = run.seq))"
)
RUNS_NOW = f"""
SELECT id, number, token, seq, hash, holder, until, until - {_NOW}, length, woken, epoch, {_NOW}, {_HEAD_HOLDS}
FROM {{s}}.run WHERE id IN (SELECT json_array_elements_text(%s::json))
"""  # noqa: S608

# The same, after every transaction that holds one of these rows has ended. A statement of an append that
# arrives later, from a connection that was lost, no longer matches the row: its epoch is over. Being an
# update, its commit waits for a standby: once it returns, everything committed before is as durable. Whether
# the head is an event is not checked: an update that waited sees the new row, and not yet its events.
CONFIRM = f"""
WITH locked AS (
    SELECT number FROM {{s}}.run WHERE id IN (SELECT json_array_elements_text(%s::json)) ORDER BY number FOR UPDATE
)
UPDATE {{s}}.run SET epoch = epoch + 1 FROM locked WHERE run.number = locked.number
RETURNING id, run.number, token, seq, hash, holder, until, until - {_NOW}, length, woken, epoch, {_NOW},
    true
"""  # noqa: S608

# Parameters, as JSON: each run's number, token, epoch and head, its new head, and whether it is released; and
# the events. A run that is not at that token, epoch and head is left out, with its events. Returns the
# numbers of the others.
_RELEASED = f"""
    , token = CASE WHEN new.release THEN greatest(run.token + 1, {_NOW}) ELSE run.token END
    , holder = CASE WHEN new.release THEN '' ELSE holder END
    , until = CASE WHEN NOT new.release THEN until END
    , length = CASE WHEN new.release THEN 0 ELSE length END
    , woken = woken AND NOT new.release
"""
_APPEND = """
WITH new AS (
    SELECT * FROM json_to_recordset(%s::json)
    AS r(number bigint, token bigint, epoch bigint, seq bigint, hash text, last bigint, head text, release boolean)
), moved AS (
    UPDATE {s}.run SET seq = new.last, hash = decode(new.head, 'hex')<released> FROM new
    WHERE run.number = new.number AND run.token = new.token AND run.epoch = new.epoch AND run.seq = new.seq
    AND run.hash = decode(new.hash, 'hex')
    RETURNING run.number, run.seq, run.hash
), added AS (
    INSERT INTO {s}.event (run, seq, at, kind, hash, content_digest, salt, body, content)
    SELECT e.run, e.seq, e.at, e.kind, decode(e.hash, 'hex'), decode(e.digest, 'hex'), decode(e.salt, 'hex'), e.body,
        e.content
    FROM json_to_recordset(%s::json)
    AS e(run bigint, seq bigint, at bigint, kind text, hash text, digest text, salt text, body text, content text)
    JOIN moved ON moved.number = e.run
    RETURNING 1
)
SELECT number, seq, hash, (SELECT count(*) FROM added) FROM moved
"""
APPEND = _APPEND.replace("<released>", "")
APPEND_AND_RELEASE = _APPEND.replace("<released>", _RELEASED)

# Claims that rules changed, as JSON. `old` is what the rule saw: a run that changed since is left out.
SET_CLAIMS = f"""
WITH new AS (
    SELECT * FROM json_to_recordset(%s::json) AS r(
        number bigint, old_token bigint, old_holder text, old_until bigint, old_woken boolean,
        token bigint, holder text, keeps boolean, due boolean, length bigint, woken boolean)
), changed AS (
    UPDATE {{s}}.run SET token = new.token, holder = new.holder, woken = new.woken,
        length = CASE WHEN new.keeps THEN run.length ELSE new.length END,
        until = CASE WHEN new.keeps THEN run.until WHEN new.due THEN {_NOW} + new.length END
    FROM new WHERE run.number = new.number AND run.token = new.old_token AND run.holder = new.old_holder
    AND run.until IS NOT DISTINCT FROM new.old_until AND run.woken = new.old_woken
    RETURNING run.number, run.id, new.due AND new.length = 0 AND new.holder = '' AS now
), told AS (SELECT pg_notify(%s, '') FROM changed WHERE now LIMIT 1)
SELECT changed.id FROM changed LEFT JOIN told ON true
"""  # noqa: S608
ADD_CLAIMS = f"""
INSERT INTO {{s}}.run (id, token, holder, until, length)
SELECT id, token, holder, CASE WHEN due THEN {_NOW} + length END, length
FROM json_to_recordset(%s::json) AS r(id text, token bigint, holder text, due boolean, length bigint)
ON CONFLICT (id) DO NOTHING RETURNING id
"""  # noqa: S608

# Claims written before the clock was set back: see `base`.
_ASTRAY = f"until > {_NOW} AND until > {_NOW} + length"  # the first condition is for the index
CUT_CLAIMS = f"UPDATE {{s}}.run SET until = {_NOW} + length WHERE {_ASTRAY}"  # noqa: S608
ANY_ASTRAY = f"SELECT EXISTS (SELECT 1 FROM {{s}}.run WHERE {_ASTRAY})"  # noqa: S608

DUE = f"""
SELECT id FROM {{s}}.run WHERE until <= {_NOW} AND seq > 0 ORDER BY until, number LIMIT %s
"""  # noqa: S608

# Parameters: ids to leave out as a JSON array, how many, holder, length twice. Skips rows of other workers.
TAKE_DUE = f"""
WITH found AS (
    SELECT number, until AS since FROM {{s}}.run
    WHERE until <= {_NOW} AND seq > 0 AND NOT id IN (SELECT json_array_elements_text(%s::json))
    ORDER BY until, number LIMIT %s FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE {{s}}.run SET token = greatest(token + 1, {_NOW}), holder = %s, until = {_NOW} + %s, length = %s, woken = false
    FROM found WHERE run.number = found.number RETURNING id, token, since, run.number
)
SELECT id, token FROM taken ORDER BY since, number
"""  # noqa: S608

_EVENT = "seq, at, left(kind, 200), hash, content_digest, salt, {body}, {content}"
# A value larger than the limit (a parameter) is not sent: null instead of the body is reported.
_BOUNDED = _EVENT.format(
    body="CASE WHEN octet_length(body) <= {most} THEN body END",
    content="CASE WHEN octet_length(content) <= {most} THEN content END, "
    "greatest(octet_length(body), octet_length(content))",
)


@lru_cache(maxsize=64)
def in_schema(statement: str, name: str) -> bytes:
    """Return a statement with its tables in the schema of this name."""
    return statement.replace("{s}", '"' + name.replace('"', '""') + '"').encode()


MOST_BYTES = 2**28
"""Maximum bytes of a body or a content. Larger values are neither written nor read into memory."""


def _events(condition: str) -> str:
    """Return the query for a page of events in order: parameters of the condition, then rows and bytes."""
    columns = _BOUNDED.replace("{most}", str(MOST_BYTES))
    return f"""
    SELECT {columns} FROM (
        SELECT *, sum(octet_length(body) + coalesce(octet_length(content), 0)) OVER (ORDER BY seq)
            - octet_length(body) - coalesce(octet_length(content), 0) AS before
        FROM (SELECT * FROM {{s}}.event WHERE {condition} ORDER BY seq LIMIT %s) AS page
    ) AS measured WHERE before < %s ORDER BY seq
    """  # noqa: S608


EVENTS = _events("run = %s AND seq > %s AND seq <= %s")
KINDS_OF_EVENTS = _events(
    "run = %s AND seq > %s AND seq <= %s AND kind IN (SELECT json_array_elements_text(%s::json))"
)
SOME_EVENTS = _events("run = %s AND seq > %s AND seq IN (SELECT json_array_elements_text(%s::json)::bigint)")
HASHES = "SELECT seq, hash FROM {s}.event WHERE run = %s AND seq IN (SELECT json_array_elements_text(%s::json)::bigint)"

FIRST = "SELECT seq, kind, body FROM {s}.event WHERE run = %s ORDER BY seq LIMIT 1"
DIGEST = "SELECT hash, content_digest FROM {s}.event WHERE run = %s AND seq = %s"
ERASE = "UPDATE {s}.event SET content = NULL, salt = NULL WHERE run = %s AND seq = ANY(%s)"

RUNS = f"""
SELECT number, id, seq, hash, {_HEAD_HOLDS} FROM {{s}}.run
WHERE number <= %s AND seq > 0 AND starts_with(id, %s) ORDER BY number DESC LIMIT %s
"""  # noqa: S608

SAVE_SNAPSHOT = """
INSERT INTO {s}.snapshot SELECT run.number, event.seq, event.hash, %s, %s FROM {s}.run JOIN {s}.event
ON event.run = run.number AND event.seq = %s WHERE run.id = %s
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, version = excluded.version,
data = excluded.data WHERE excluded.seq > snapshot.seq
"""
# Snapshots of the run and of every fork (a run without an event 1 of its own), which may contain the erased
# content of a parent.
DROP_SNAPSHOTS = """
DELETE FROM {s}.snapshot
WHERE run = %s OR NOT EXISTS (SELECT 1 FROM {s}.event WHERE event.run = snapshot.run AND event.seq = 1)
"""
SNAPSHOT = """
SELECT snapshot.seq, snapshot.data FROM {s}.run JOIN {s}.snapshot ON snapshot.run = run.number
JOIN {s}.event ON event.run = run.number AND event.seq = snapshot.seq AND event.hash = snapshot.hash
WHERE run.id = %s AND snapshot.version = %s
"""

LOCK_SEALS = "LOCK TABLE {s}.seal IN SHARE ROW EXCLUSIVE MODE"
SEALED = "SELECT coalesce(max(place), 0) FROM {s}.sealed_head"
# Parameter: a JSON array of arrays.
ADD_SEALED = """
INSERT INTO {s}.sealed_head (place, run, seq, hash)
SELECT (row->>0)::bigint, row->>1, (row->>2)::bigint, decode(row->>3, 'hex') FROM json_array_elements(%s::json) AS row
"""
ADD_SEAL = """
INSERT INTO {s}.seal (number, size, at, root, key, signature)
SELECT coalesce(max(number), 0) + 1, %s, %s, %s, %s, %s FROM {s}.seal
"""
SEALED_HEADS = "SELECT place, seq, run, hash FROM {s}.sealed_head WHERE place > %s ORDER BY place LIMIT %s"
SEALS = (
    "SELECT number, size, at, key, signature, root FROM {s}.seal WHERE number > %s ORDER BY number LIMIT %s"
)

# Rows that no store writes, and heads that are not the last event: a sentence for the first of each kind.
PROBLEMS: dict[str, str] = {
    "SELECT run.id, run.seq, found.last FROM {s}.run LEFT JOIN (SELECT run, max(seq) AS last FROM {s}.event GROUP BY run) "
    "AS found ON found.run = run.number WHERE run.seq <> coalesce(found.last, 0) LIMIT 1": (
        "run {0} ends at event {1} by its row, and its last stored event is {2}"
    ),
    "SELECT run, seq FROM {s}.event WHERE NOT EXISTS (SELECT 1 FROM {s}.run WHERE run.number = event.run) LIMIT 1": (
        "event {1} belongs to run number {0}, which does not exist"
    ),
    "SELECT id, first.seq FROM {s}.run CROSS JOIN LATERAL (SELECT seq, kind FROM {s}.event WHERE event.run = run.number "
    "ORDER BY seq LIMIT 1) AS first WHERE first.seq <> 1 AND first.kind <> 'run_forked' LIMIT 1": (
        "run {0} begins with event {1}, and it is not a fork"
    ),
    "SELECT run.id, run.seq FROM {s}.run JOIN {s}.event ON event.run = run.number AND event.seq = run.seq "
    "WHERE run.hash <> event.hash LIMIT 1": "run {0}: its row has another hash than its last event, {1}",
    "SELECT id, count(*) FROM {s}.run GROUP BY id HAVING count(*) > 1 LIMIT 1": "run {0} has {1} rows",
}
