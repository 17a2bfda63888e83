"""Whose database a file is, and whether its schema is the store's: seen before anything that it holds is run.

A database's schema is code: a view may stand for a table and have no end. So a file is asked by PRAGMA statements, whose
names cannot be redefined, then for the text of its schema, and for nothing else until that is the text that we wrote.
"""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from refold.store import schema
from refold.store.protocol import DamagedStore, NotAStore
from refold.store.rows import SqlRow

_STEPS = 1_000
_MOST_LOOKS = 50
"""As many steps of SQLite's machine as a schema of some thousand objects takes to read, in lots of `_STEPS`."""
_MOST_BYTES = 20_000
"""Of one object's text: ours have less than 2,000."""

# What SQLite says of a schema beyond these bounds.
_BEYOND = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG)


def bound(connection: sqlite3.Connection) -> None:
    """Hold a connection, which is to read a schema and no more, to what the schema of a store can need."""
    looks = iter(range(_MOST_LOOKS))
    connection.set_progress_handler(lambda: next(looks, None) is None, _STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MOST_BYTES)


def is_empty(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether nothing is in the file yet. Raises `NotAStore` for what is no store of this schema."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if (application, version) == (0, 0) and not _has_anything(connection):
        return True
    if application != schema.APPLICATION_ID:
        problem = f"is another program's database (its application id is {application}); name another file"
        raise NotAStore(str(path), problem)
    if 0 < version < schema.VERSION:
        raise NotAStore(str(path), "was made by an unreleased version of refold: start a new store")
    if version != schema.VERSION:
        problem = (
            f"has schema {version}, this refold knows {schema.VERSION}: a newer one wrote it; install that"
        )
        raise NotAStore(str(path), problem)
    return False


def check(path: Path, connection: sqlite3.Connection, *, to_read: bool = False) -> None:
    """Raise `DamagedStore` if tables, views, indexes or triggers are others than the store makes.

    Who only reads fires no trigger, and shall still find what was edited after a trigger was taken out.
    """
    made = _objects()
    try:
        # One more than can be right is enough to know, however many there are.
        found = connection.execute(schema.OBJECTS).fetchmany(2 * len(made) + 2)
    except sqlite3.Error as error:
        if _primary(error) not in _BEYOND:
            raise
        problem = "its schema is larger than that of a store: it was changed"
        raise DamagedStore(str(path), problem) from error
    differing = [row for row in made if row not in found] + [row for row in found if row not in made]
    for kind, name, *_ in differing:
        if not (to_read and kind == b"trigger"):
            problem = f"{_shown(kind)} {_shown(name)!r} is not as the store makes it: the schema was changed"
            raise DamagedStore(str(path), problem)


def _has_anything(connection: sqlite3.Connection) -> bool:
    try:
        return connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
    except sqlite3.Error as error:
        if _primary(error) not in _BEYOND:
            raise
        return True


@cache
def _objects() -> tuple[SqlRow, ...]:
    """What is in the schema of a store."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        fresh.text_factory = bytes
        for statement in schema.TABLES:
            fresh.execute(statement)
        return tuple(fresh.execute(schema.OBJECTS))


def _primary(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF  # the upper bits are detail


def _shown(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
