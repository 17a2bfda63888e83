"""Opening the file: checks of which program made it, whether it is writable, and its schema.

A database's schema is code: a view may replace a table and never end. So the file is first queried with
PRAGMA statements, whose names cannot be redefined, then for the text of its schema. No other query runs until
that text is the one that we wrote.
"""

import os
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Literal

from refold.store import schema, wal
from refold.store.connection import PagedConnection, direct, one
from refold.store.protocol import DamagedStore, NotAStore, StoreUnavailable
from refold.store.rows import SqlRow, translate_errors

_STEPS = 1_000
_MOST_LOOKS = 50
"""Steps of SQLite's virtual machine that reading a schema of some thousand objects takes, in units of
`_STEPS`.
"""
_MOST_BYTES = 20_000
"""Maximum bytes of one object's SQL text: ours have less than 2,000."""

# SQLite's error codes for a schema beyond these bounds.
_BEYOND = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG)


def bound_schema(connection: sqlite3.Connection) -> None:
    """Limit a connection that only reads a schema to the steps and sizes that a store's schema needs."""
    looks = iter(range(_MOST_LOOKS))
    connection.set_progress_handler(lambda: next(looks, None) is None, _STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MOST_BYTES)


def is_empty(path: Path, connection: sqlite3.Connection) -> bool:
    """Return whether the database is empty. Raises `NotAStore` if it is not a store of this schema."""
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
        problem = f"has schema {version}, and this refold supports {schema.VERSION}: a newer one wrote it; install that"
        raise NotAStore(str(path), problem)
    return False


def check_shape(path: Path, connection: sqlite3.Connection, *, to_read: bool = False) -> None:
    """Raise `DamagedStore` if tables, views, indexes or triggers differ from those that a store creates.

    With `to_read`, triggers are ignored: reading fires none, and a reader must still be able to examine a
    file that was edited after a trigger was removed.
    """
    made = _objects()
    try:
        # More rows than a valid schema has; the rest need not be read.
        found = connection.execute(schema.OBJECTS).fetchmany(2 * len(made) + 2)
    except sqlite3.Error as error:
        if _primary(error) not in _BEYOND:
            raise
        problem = "its schema is larger than a store's: the schema was changed"
        raise DamagedStore(str(path), problem) from error
    differing = [row for row in made if row not in found] + [row for row in found if row not in made]
    for kind, name, *_ in differing:
        if not (to_read and kind == b"trigger"):
            problem = f"{_display(kind)} {_display(name)!r} differs from a store's: the schema was changed"
            raise DamagedStore(str(path), problem)


def refuses_edits(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the triggers that prevent changes of the log are those that a store creates."""
    try:
        check_shape(path, connection)
    except DamagedStore:
        return False
    return True


def _has_anything(connection: sqlite3.Connection) -> bool:
    try:
        return connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
    except sqlite3.Error as error:
        if _primary(error) not in _BEYOND:
            raise
        return True


@cache
def _objects() -> tuple[SqlRow, ...]:
    """Return the objects of a store's schema."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        fresh.text_factory = bytes
        for statement in schema.TABLES:
            fresh.execute(statement)
        return tuple(fresh.execute(schema.OBJECTS))


def _primary(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF  # the upper bits are detail


def _display(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


Durability = Literal["fsync", "process"]

SYNCHRONOUS: dict[Durability, str] = {"fsync": "FULL", "process": "NORMAL"}

# Bytes. SQLite treats a shorter file as empty.
_HEADER = 100

# STRICT tables came with 3.37.
_OLDEST_SQLITE = (3, 37, 0)


def look(path: Path, *, readonly: bool) -> None:
    """Check the file before SQLite opens it.

    Raises `NotAStore`, `StoreUnavailable`, `DamagedStore`.
    """
    try:
        _check_place(path, readonly=readonly)
        # SQLite makes a database of an empty file, and deletes a -wal beside it.
        size = _size(path)
        if size is not None and size < _HEADER and _holds(path, "-wal"):
            problem = "the file is empty, and its -wal is not: copy both, and find out what emptied the file"
            raise DamagedStore(str(path), problem)
        if size or (readonly and size is not None):
            with translate_errors(str(path)):
                _probe(path, readonly=readonly)
        # The first commit would overwrite what follows the damage. Readers call `Store.check` instead.
        if not readonly and (problem := wal.wal_problem(path)):
            raise DamagedStore(str(path), problem)
    except OSError as error:
        raise StoreUnavailable(str(path), f"cannot be checked: {error}") from error


def open_writer(path: Path, durability: Durability) -> PagedConnection:
    """Open the writing connection; create the store if it does not exist."""
    connection = direct(path, "mode=rwc")
    try:
        _configure(connection, path, durability)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: PagedConnection, path: Path, durability: Durability) -> None:
    # Functions that the schema of a foreign file names must not have side effects.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    # Only on macOS does a plain flush not reach the disk.
    connection.execute(f"PRAGMA fullfsync = {int(durability == 'fsync')}")
    # Overwrite deleted bytes: erased texts, and snapshots that contain them.
    connection.execute("PRAGMA secure_delete = ON").close()
    _use_wal(path, connection)
    _create_tables(path, connection)


def open_reader(path: Path) -> PagedConnection:
    """Open a connection that cannot write and creates no file except SQLite's own `-shm` and `-wal`."""
    try:
        return _reader(path, "mode=ro")
    except sqlite3.OperationalError as error:
        cannot_write = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not cannot_write or _has_journal(path):
            raise
        # The journal's index cannot be created, and there is no journal: the file has all the data.
        return _reader(path, "mode=ro&immutable=1")


def _reader(path: Path, options: str) -> PagedConnection:
    connection = direct(path, options)
    try:
        connection.execute("PRAGMA query_only = ON")
        check_shape(path, connection, to_read=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_place(path: Path, *, readonly: bool) -> None:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        had = sqlite3.sqlite_version
        raise StoreUnavailable(
            str(path), f"needs SQLite 3.37 or newer, and this Python has {had}: use another Python"
        )
    if path.is_dir():
        raise NotAStore(str(path), "is a directory; name a file in it")
    if path.exists() and not path.is_file():
        raise NotAStore(str(path), "is not a regular file; name another")
    if not path.parent.is_dir():
        raise NotAStore(
            str(path), f"the folder {path.parent} does not exist; create it, or name another file"
        )
    if not readonly:
        _check_writable(path)
    elif not path.exists():
        raise NotAStore(str(path), "the file does not exist")


def _check_writable(path: Path) -> None:
    # SQLite would open it and fail at the first append.
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreUnavailable(
            str(path), "the file is read-only: make it writable, or copy it to a writable folder"
        )
    # SQLite names its journal after the path: a file with two names would get two journals.
    if (status := _status(path)) is not None and status.st_nlink > 1:
        raise NotAStore(
            str(path), "has several names (hard links), and each would get another journal: keep one name"
        )


def _probe(path: Path, *, readonly: bool) -> None:
    """Check which program made the file without changing anything. Raises `NotAStore` or `sqlite3.Error`.

    `immutable` prevents SQLite from creating journal files beside another program's database. It also
    ignores an existing journal, so it is not used if there is one.
    """
    immutable = "" if _has_journal(path) else "&immutable=1"
    with closing(direct(path, f"mode=ro{immutable}")) as connection:
        bound_schema(connection)
        try:
            empty = is_empty(path, connection)
            if not empty:
                check_shape(path, connection, to_read=readonly)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise
            # A power cut interrupted the creation of the file. Opening it for writing rolls that back and
            # checks again.
            if readonly:
                raise StoreUnavailable(
                    str(path), "its creation was interrupted: open it once for writing"
                ) from error
            return
    if readonly and empty:
        if problem := wal.wal_problem(path):
            raise DamagedStore(str(path), problem)
        raise NotAStore(str(path), "is an empty database, not a store")


def _has_journal(path: Path) -> bool:
    """Return whether a journal may hold data that is not in the file yet."""
    return _holds(path, "-wal") or _holds(path, "-journal")


def _holds(path: Path, suffix: str) -> bool:
    return bool(_size(path.with_name(path.name + suffix)))


def _size(path: Path) -> int | None:
    """Return the size of a file in bytes; None if there is no file.

    One `stat` call answers both, because another process may create or remove the file meanwhile.
    """
    status = _status(path)
    return None if status is None else status.st_size


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _use_wal(path: Path, connection: PagedConnection) -> None:
    (mode,) = one(connection, "PRAGMA journal_mode = WAL")
    if mode != b"wal":
        problem = (
            f"does not support a write-ahead log here (SQLite uses {mode.decode()}): use a local file system"
        )
        raise StoreUnavailable(str(path), problem)


def _create_tables(path: Path, connection: PagedConnection) -> None:
    # Take the lock first: another process may be creating the same file, and a file that cannot be written
    # should fail now instead of in the middle of a run.
    connection.execute("BEGIN IMMEDIATE")
    if is_empty(path, connection):
        for statement in schema.TABLES:
            connection.execute(statement)
    check_shape(path, connection)
    connection.execute("COMMIT")
