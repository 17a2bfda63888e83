"""The SQLite file: its tables and every statement that the store runs on it. No I/O.

An event's key has its run's number in the upper bits and its own number in the lower 32, so that a run is
contiguous on disk and needs no second index. Columns are ordered from small to large: SQLite reads a row from
the start, and reading the hash of a head must not read a megabyte of content.
"""

APPLICATION_ID = 0x72666C64
"""The application id in the file's header: "rfld"."""

SEQ_BITS = 32
SEQ_MASK = 2**SEQ_BITS - 1
MAX_NUMBER = 2**31 - 1
"""The highest number of a run: a key has 63 bits and a sign bit."""


def _keep_rows(table: str, same: str, what: str) -> tuple[str, str]:
    """Return the triggers that prevent deleting and replacing rows. REPLACE does not fire DELETE triggers."""
    return (
        f"CREATE TRIGGER {table}_stays BEFORE DELETE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{what} is never deleted'); END",
        f"CREATE TRIGGER {table}_is_new BEFORE INSERT ON {table} "  # noqa: S608
        f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
        f"BEGIN SELECT RAISE(ABORT, '{what} is never replaced'); END",
    )


def _forbid_updates(table: str, what: str) -> str:
    return f"CREATE TRIGGER {table}_is_final BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, '{what} is never changed'); END"


VERSION = 3
"""Version of the tables below. Files of earlier versions were made before any release."""

TABLES: tuple[str, ...] = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
    """
    CREATE TABLE run (
        number INTEGER PRIMARY KEY CHECK (number BETWEEN 1 AND 2147483647),
        id TEXT NOT NULL UNIQUE,
        token INTEGER NOT NULL DEFAULT 1  -- the fencing token of the lease under which one may append
    ) STRICT
    """,
    """
    CREATE TABLE event (
        -- run.number << 32 | the event's number in its run, from 1
        key INTEGER PRIMARY KEY CHECK (key & 4294967295 > 0),
        at INTEGER NOT NULL,  -- nanoseconds since 1970, UTC
        kind TEXT NOT NULL,
        hash BLOB NOT NULL,
        content_digest BLOB,  -- stays when the content is erased
        salt BLOB,
        body TEXT NOT NULL,
        content TEXT
    ) STRICT
    """,
    # The only allowed update of an event erases its content. The digest stays, so there must be one.
    """
    CREATE TRIGGER event_is_final BEFORE UPDATE ON event
    WHEN NOT (NEW.content IS NULL AND NEW.salt IS NULL AND OLD.content_digest IS NOT NULL
              AND NEW.key IS OLD.key AND NEW.at IS OLD.at AND NEW.kind IS OLD.kind AND NEW.hash IS OLD.hash
              AND NEW.content_digest IS OLD.content_digest AND NEW.body IS OLD.body)
    BEGIN SELECT RAISE(ABORT, 'a recorded event is never changed'); END
    """,
    *_keep_rows("event", "key = NEW.key", "a recorded event"),
    """
    CREATE TRIGGER run_is_final BEFORE UPDATE OF number, id ON run
    BEGIN SELECT RAISE(ABORT, 'a run keeps its id'); END
    """,
    *_keep_rows("run", "number = NEW.number OR id = NEW.id", "a run"),
    # For users of the sqlite3 shell. CROSS JOIN fixes the order of the loops: run by run, and a run's events
    # by their key.
    """
    CREATE VIEW log (run, seq, at, kind, body, content) AS
    SELECT run.id, event.key & 4294967295, event.at, event.kind, event.body, event.content
    FROM run CROSS JOIN event
    ON event.key BETWEEN run.number << 32 AND (run.number << 32) + 4294967295
    """,
    # A run has a row here while it has an engine or is runnable. Rows are changed and deleted.
    """
    CREATE TABLE claim (
        number INTEGER PRIMARY KEY,  -- run.number
        holder TEXT NOT NULL,  -- who drives it; '': nobody, it is to be taken up
        until INTEGER NOT NULL,  -- when the lease ends, or the run is to be taken up: ms since 1970, UTC
        length INTEGER NOT NULL,  -- how far away that was when it was written, ms
        woken INTEGER NOT NULL  -- 1: to be taken up again as soon as its holder lets go
    ) STRICT
    """,
    "CREATE INDEX claim_until ON claim (until)",
    # A cache: deleting it only costs time.
    """
    CREATE TABLE snapshot (
        number INTEGER PRIMARY KEY,  -- run.number
        seq INTEGER NOT NULL,
        hash BLOB NOT NULL,  -- of that event: what the snapshot is a snapshot of
        version TEXT NOT NULL,
        data BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE sealed_head (
        place INTEGER PRIMARY KEY CHECK (place > 0),
        run TEXT NOT NULL,
        seq INTEGER NOT NULL,
        hash BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE seal (
        number INTEGER PRIMARY KEY CHECK (number > 0),
        size INTEGER NOT NULL,  -- the last place that it covers
        at INTEGER NOT NULL,  -- nanoseconds since 1970, UTC
        root BLOB NOT NULL,
        key BLOB NOT NULL,
        signature BLOB NOT NULL
    ) STRICT
    """,
    _forbid_updates("sealed_head", "an entry of the log of heads"),
    *_keep_rows("sealed_head", "place = NEW.place", "an entry of the log of heads"),
    _forbid_updates("seal", "a seal"),
    *_keep_rows("seal", "number = NEW.number", "a seal"),
)

# The objects by which a store's schema is recognised, without the tables of ANALYZE.
OBJECTS = """
SELECT type, name, tbl_name, sql FROM sqlite_schema
WHERE sql IS NULL OR sql NOT IN
('CREATE TABLE sqlite_stat1(tbl,idx,stat)', 'CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)')
ORDER BY rowid
"""

_COLUMNS = "key, at, kind, hash, content_digest, salt, body, content"

# Text is bound as bytes and cast: a decoded string would be encoded again.
INSERT = f"INSERT INTO event ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT))"  # noqa: S608

ADD_RUN = "INSERT INTO run (id) VALUES (?)"

# The database's own time, ms since 1970. SQLite has `unixepoch('subsec')` only since 3.42. Julian days are
# whole ms internally, and one statement uses one instant.
NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"

# At least the current time in ms, so that tokens of a copied, restored or unpacked store are above those
# given before in the original.
FENCE = f"UPDATE run SET token = max(token + 1, {NOW}) WHERE number = ? RETURNING token"  # noqa: S608

# Parameters: run's number, holder ('' if the run is free), ms from now.
SET_CLAIM = f"""
INSERT INTO claim VALUES (?1, ?2, {NOW} + ?3, ?3, 0)
ON CONFLICT (number) DO UPDATE SET holder = ?2, until = {NOW} + ?3, length = ?3, woken = 0
"""  # noqa: S608
RENEW_CLAIM = f"UPDATE claim SET until = {NOW} + ?2, length = ?2 WHERE number = ?1 AND holder <> ''"  # noqa: S608
DROP_CLAIM = "DELETE FROM claim WHERE number = ?"
WAKE = f"""
INSERT INTO claim VALUES (?, '', {NOW}, 0, 0) ON CONFLICT (number) DO UPDATE SET
    woken = holder <> '',
    length = iif(holder = '', 0, length),
    until = iif(holder = '', min(until, {NOW}), until)
"""  # noqa: S608

# Claims written before the clock was set back: see `base`. The first condition is for the index.
_ASTRAY = f"until > {NOW} AND until > {NOW} + length"
CUT_CLAIMS = f"UPDATE claim SET until = {NOW} + length WHERE {_ASTRAY}"  # noqa: S608
CUT_CLAIM = f"{CUT_CLAIMS} AND number = ?"
ANY_ASTRAY = f"SELECT EXISTS (SELECT 1 FROM claim WHERE {_ASTRAY})"  # noqa: S608

# Runs that are due and free. A run with a number but without events is not runnable.
DUE = f"""
SELECT claim.number, run.id FROM claim CROSS JOIN run ON run.number = claim.number
WHERE until <= {NOW}
AND EXISTS (SELECT 1 FROM event WHERE key BETWEEN claim.number << 32 AND (claim.number << 32) + 4294967295)
ORDER BY until, claim.number LIMIT ?
"""  # noqa: S608

# ms left, whether it was woken, the token, the holder.
CLAIM = f"""
SELECT min(claim.until - {NOW}, claim.length), claim.woken, run.token, claim.holder
FROM run CROSS JOIN claim ON claim.number = run.number WHERE run.id = ?
"""  # noqa: S608

# Parameters: run's id, number of the event, version, data. Inserts nothing if the event does not exist.
SAVE_SNAPSHOT = """
INSERT INTO snapshot SELECT run.number, ?2, event.hash, ?3, ?4 FROM run CROSS JOIN event
ON event.key = (run.number << 32) + ?2 WHERE run.id = ?1
ON CONFLICT (number) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, version = excluded.version, data = excluded.data
WHERE excluded.seq > snapshot.seq
"""
# Snapshots of the run and of every fork (a run without an event 1 of its own), which may contain the erased
# content of a parent.
DROP_SNAPSHOT = """
DELETE FROM snapshot
WHERE number = ? OR NOT EXISTS (SELECT 1 FROM event WHERE key = (snapshot.number << 32) + 1)
"""

# The key of a run's first own event (parameter: its number << 32), and that event: see `checks.origin_of`.
FIRST = "SELECT key FROM event WHERE key BETWEEN ?1 AND ?1 + 4294967295 ORDER BY key LIMIT 1"
BEGINNING = "SELECT kind, body FROM event WHERE key = ?"

# An event's hash, and its content's digest or NULL.
DIGEST = "SELECT hash, content_digest FROM event WHERE key = ?"
ERASE = "UPDATE event SET content = NULL, salt = NULL WHERE key = ?"

SEALED = "SELECT coalesce(max(place), 0) FROM sealed_head"
ADD_SEALED = "INSERT INTO sealed_head VALUES (?, ?, ?, ?)"
ADD_SEAL = "INSERT INTO seal (size, at, root, key, signature) VALUES (?, ?, ?, ?, ?)"

# The statements below are read in pages, which measure a row by its last two columns
# (`connection.PagedCursor`).

# Number, token, the head's key or NULL, id, the head's hash or NULL.
PLACE = """
SELECT run.number, run.token, event.key, run.id, event.hash FROM run LEFT JOIN event
ON event.key = (SELECT max(key) FROM event WHERE key BETWEEN run.number << 32 AND (run.number << 32) + 4294967295)
WHERE run.id = ?
"""

# Runs below a number and with a prefix, newest first.
RUNS = """
SELECT run.number, event.key, run.id, event.hash FROM run CROSS JOIN event
ON event.key = (SELECT max(key) FROM event WHERE key BETWEEN run.number << 32 AND (run.number << 32) + 4294967295)
WHERE run.number < ?1 AND substr(run.id, 1, length(?2)) = ?2
ORDER BY run.number DESC
"""

KEYS = "SELECT key FROM event WHERE key > ? ORDER BY key"
EVENTS = f"SELECT {_COLUMNS} FROM event WHERE key > ? AND key <= ? ORDER BY key"  # noqa: S608

# Events of the kinds in a JSON array.
KINDS_OF_EVENTS = f"""
SELECT {_COLUMNS} FROM event
WHERE key > ?1 AND key <= ?2 AND kind IN (SELECT value FROM json_each(?3)) ORDER BY key
"""  # noqa: S608

# Events above a key, of a run (its number << 32), with the numbers in a JSON array.
SOME_EVENTS = f"""
SELECT {_COLUMNS} FROM event
WHERE key > ?1 AND key IN (SELECT ?2 + value FROM json_each(?3)) ORDER BY key
"""  # noqa: S608

# Hashes of events with the keys in a JSON array.
HASHES = "SELECT key, kind, hash FROM event WHERE key > ?1 AND key IN (SELECT value FROM json_each(?2)) ORDER BY key"

# Number of the event, version, data.
SNAPSHOT = """
SELECT snapshot.seq, snapshot.version, snapshot.data FROM run CROSS JOIN snapshot ON snapshot.number = run.number
CROSS JOIN event ON event.key = (run.number << 32) + snapshot.seq AND event.hash = snapshot.hash
WHERE run.id = ? AND snapshot.version = ?
"""

SEALED_HEADS = "SELECT place, seq, run, hash FROM sealed_head WHERE place > ? ORDER BY place"
SEALS = "SELECT number, size, at, key, signature, root FROM seal WHERE number > ? ORDER BY number"

# The row with a key and the two rows after it: see `rows.check_end`.
END = "SELECT key, kind, hash FROM event WHERE key >= ? ORDER BY key LIMIT 3"

# The key of the first row that no store writes: see `wal.file_problem`.
ORPHAN = "SELECT key FROM event WHERE key >> 32 NOT IN (SELECT number FROM run) LIMIT 1"
HEADLESS = """
SELECT event.key FROM run CROSS JOIN event
ON event.key = (SELECT min(key) FROM event WHERE key BETWEEN run.number << 32 AND (run.number << 32) + 4294967295)
WHERE event.key & 4294967295 > 1 AND event.kind <> 'run_forked' LIMIT 1
"""
AHEAD = """
SELECT (number << 32) + seq FROM snapshot
WHERE NOT EXISTS (SELECT 1 FROM event WHERE key = (snapshot.number << 32) + snapshot.seq) LIMIT 1
"""
