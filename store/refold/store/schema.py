"""The SQLite file: its tables, its migrations and every statement that the store runs on it. No I/O.

An event's key is its run's number in the upper bits and its own number in the lower 32, so that a run lies
together on disk and needs no second index. Columns stand from small to large: SQLite reads a row from its front,
and the hash of a head must not cost a walk through a megabyte of content.
"""

from functools import cache

APPLICATION_ID = 0x72666C64
"""What the file's header says about who made it: "rfld"."""

SEQ_BITS = 32
SEQ_MASK = 2**SEQ_BITS - 1
MAX_NUMBER = 2**31 - 1
"""The highest number of a run: a key has 63 bits and a sign."""

# One tuple of statements a version; `PRAGMA user_version` counts those that were applied. Released versions never
# change. There is no way to erase yet, so UPDATE and DELETE have no exception yet.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
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
        """
        CREATE TRIGGER event_is_final BEFORE UPDATE ON event
        BEGIN SELECT RAISE(ABORT, 'a recorded event is never changed'); END
        """,
        """
        CREATE TRIGGER event_stays BEFORE DELETE ON event
        BEGIN SELECT RAISE(ABORT, 'a recorded event is never deleted'); END
        """,
        # REPLACE deletes the old row without asking any DELETE trigger.
        """
        CREATE TRIGGER event_is_new BEFORE INSERT ON event
        WHEN EXISTS (SELECT 1 FROM event WHERE key = NEW.key)
        BEGIN SELECT RAISE(ABORT, 'a recorded event is never replaced'); END
        """,
        """
        CREATE TRIGGER run_is_final BEFORE UPDATE OF number, id ON run
        BEGIN SELECT RAISE(ABORT, 'a run keeps its id'); END
        """,
        """
        CREATE TRIGGER run_stays BEFORE DELETE ON run
        BEGIN SELECT RAISE(ABORT, 'a run is never deleted'); END
        """,
        """
        CREATE TRIGGER run_is_new BEFORE INSERT ON run
        WHEN EXISTS (SELECT 1 FROM run WHERE number = NEW.number OR id = NEW.id)
        BEGIN SELECT RAISE(ABORT, 'a run is never replaced'); END
        """,
        # For people with nothing but the sqlite3 shell. CROSS JOIN fixes the order of the loops: run by run,
        # and a run's events by their key.
        """
        CREATE VIEW log (run, seq, at, kind, body, content) AS
        SELECT run.id, event.key & 4294967295, event.at, event.kind, event.body, event.content
        FROM run CROSS JOIN event
        ON event.key BETWEEN run.number << 32 AND (run.number << 32) + 4294967295
        """,
    ),
)

VERSION = len(MIGRATIONS)

# Application, version, and whether there is anything in the file at all.
IDENTITY = """
SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
       EXISTS (SELECT 1 FROM sqlite_schema)
"""

# What a store's schema is known by. The tables of ANALYZE are SQLite's own.
OBJECTS = """
SELECT type, name, tbl_name, sql FROM sqlite_schema
WHERE NOT (type = 'table' AND name IN ('sqlite_stat1', 'sqlite_stat4')) ORDER BY rowid
"""

_COLUMNS = "key, at, kind, hash, content_digest, salt, body, content"
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?)"

# Parameters: the run's number << 32, three times over the expected head; then the run's number and the token.
_IF_UNMOVED = """
WHERE coalesce((SELECT key FROM event WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1), ?) = ?
AND (SELECT token FROM run WHERE number = ?) = ?
"""

MAX_ROWS = 64
"""The most rows of one INSERT: 64 statements fit the statement cache, and 512 parameters any SQLite."""


@cache
def insert(rows: int) -> str:
    """The statement that appends so many events if the run's head and lease are as expected, else none."""
    return f"INSERT INTO event ({_COLUMNS}) SELECT * FROM (VALUES {', '.join([_ROW] * rows)}) {_IF_UNMOVED}"  # noqa: S608


# A longer append is laid out in a table of this connection first, and copied by one statement: so no transaction
# is ever open between two round trips, where other appends or a cancellation could get into it.
STAGING = "CREATE TEMP TABLE IF NOT EXISTS staging (ticket, key, at, kind, hash, content_digest, salt, body, content)"
STAGE = "INSERT INTO temp.staging VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
UNSTAGE = "DELETE FROM temp.staging WHERE ticket = ?"
INSERT_STAGED = f"""
INSERT INTO event ({_COLUMNS})
SELECT {_COLUMNS} FROM (SELECT * FROM temp.staging WHERE ticket = ? ORDER BY key) {_IF_UNMOVED}
"""  # noqa: S608

ADD_RUN = "INSERT INTO run (id) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM run WHERE id = ?1)"

# The statements below are read in pages, which measure a row by its last two columns (`database.PagedCursor`).

# Number, token, the head's key or NULL, id, the head's hash or NULL.
PLACE = """
SELECT run.number, run.token, event.key, run.id, event.hash FROM run LEFT JOIN event
ON event.key = (SELECT max(key) FROM event WHERE key BETWEEN run.number << 32 AND (run.number << 32) + 4294967295)
WHERE run.id = ?
"""

# Newest first, below a run's number, with a prefix.
RUNS = """
SELECT run.number, event.key, run.id, event.hash FROM run CROSS JOIN event
ON event.key = (SELECT max(key) FROM event WHERE key BETWEEN run.number << 32 AND (run.number << 32) + 4294967295)
WHERE run.number < ?1 AND substr(run.id, 1, length(?2)) = ?2
ORDER BY run.number DESC
"""

EVENTS = f"SELECT {_COLUMNS} FROM event WHERE key > ? AND key <= ? ORDER BY key"  # noqa: S608

# Above a key, of a run (its number << 32), with the numbers of a JSON array.
SOME_EVENTS = f"""
SELECT {_COLUMNS} FROM event
WHERE key > ?1 AND key IN (SELECT ?2 + value FROM json_each(?3)) ORDER BY key
"""  # noqa: S608
