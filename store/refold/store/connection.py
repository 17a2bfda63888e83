"""Connections to the file: opened by URI, in autocommit, with paged results and text as bytes."""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from refold.store import rows, schema
from refold.store.checks import BYTES, ROWS
from refold.store.rows import SqlRow

BUSY_SECONDS = 5.0
"""Seconds that a statement waits for another program's lock."""

CHECKPOINT_PAGES = 1000
"""Pages of the write-ahead log after which a commit outside the event loop's thread makes a checkpoint."""

MOST_BYTES = 2**28
"""Maximum bytes of a body or a content. Larger values are neither written nor read into memory."""
STEPS = 1_000_000
"""Steps of SQLite's virtual machine between two progress callbacks: some ten milliseconds."""
LOOKS, LOOK_BYTES = 50, 100_000
"""Progress callbacks allowed before a statement is considered endless, plus one per `LOOK_BYTES` of file."""


class PagedCursor(sqlite3.Cursor):
    """A cursor whose `fetchall` returns one page, bounded in rows and bytes, and then closes the cursor.

    A page is one round trip, whatever the sizes of its rows. Most of a row's bytes are in its last two
    columns, which are bytes or NULL: see `schema`.
    """

    def fetchall(self) -> list[SqlRow]:
        """Return rows until `ROWS` rows, `BYTES` bytes, or a row with a value above `MOST_BYTES`."""
        page, size = list[SqlRow](), 0
        try:
            for row in self:
                page.append(row)
                size += _size(row[-2]) + _size(row[-1])
                if len(page) >= ROWS or size >= BYTES:
                    break
        except sqlite3.DataError:
            if not page:  # else the next page raises it
                raise
        finally:
            self.close()
        return page


def _size(value: object) -> int:
    return len(value) if isinstance(value, bytes) else 0  # a damaged page may hold anything


class PagedConnection(sqlite3.Connection):
    """A connection with paged cursors and text as bytes, which does not trust the file at `path`.

    A forged file can make a statement loop forever. A statement that takes more steps than a file of its size
    can need ends with SQLITE_INTERRUPT.

    A garbage-collected cursor resets its statement, which another thread may be running again from the
    statement cache. So the code that creates a cursor must close it. Read rows with `row_page`, or close
    their cursor.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.text_factory = bytes
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
        self._looks = 0
        self._hurried = False
        self.endless = False  # a statement was ended because it took too many steps
        self.path = ""

    def distrust(self, path: Path) -> None:
        """Disable side effects of functions named in the file's schema, and end endless statements."""
        self.path = str(path)
        super().execute("PRAGMA trusted_schema = OFF").close()
        self.set_progress_handler(lambda: self._is_endless(path), STEPS)

    def hurry(self, *, hurried: bool) -> None:
        """Set whether statements fail instead of waiting for a lock, and commits make no checkpoints."""
        if hurried != self._hurried:
            seconds, pages = (0, 0) if hurried else (BUSY_SECONDS, CHECKPOINT_PAGES)
            super().execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}").close()
            super().execute(f"PRAGMA wal_autocheckpoint = {pages}").close()
            self._hurried = hurried

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement on a new cursor; close it if the statement returns no rows."""
        self._looks = 0
        cursor = self.cursor(PagedCursor).execute(sql, parameters)
        if cursor.description is None:
            cursor.close()
        return cursor

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """Run a statement for each of the parameters and close the cursor."""
        self._looks = 0
        cursor = super().executemany(sql, parameters)
        cursor.close()
        return cursor

    def _is_endless(self, path: Path) -> bool:
        """Return whether the statement has taken more steps than it can need."""
        self._looks += 1
        if self._looks <= LOOKS:
            return False
        size = 0
        for each in (path, path.with_name(f"{path.name}-wal")):
            with suppress(OSError):
                size += each.stat().st_size
        self.endless = self._looks > LOOKS + size // LOOK_BYTES
        return self.endless


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Run one write transaction: commit on exit, roll back on an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll back the transaction, unless SQLite already did, as after a disk failure."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def uri(path: Path, options: str) -> str:
    """Return the file's SQLite URI; `options` as in `mode=ro`."""
    return f"{path.absolute().as_uri()}?{options}"


def direct(path: Path, options: str) -> PagedConnection:
    """Open a connection in autocommit mode. Any thread may use it, one at a time."""
    connection = sqlite3.connect(
        uri(path, options),
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
        check_same_thread=False,
        factory=PagedConnection,
    )
    connection.distrust(path)
    return connection


def row_page(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[SqlRow]:
    """Return the first page of a query."""
    return connection.execute(sql, parameters).fetchall()


def event_page(connection: PagedConnection, run: str, sql: str, parameters: Sequence[Any]) -> list[SqlRow]:
    """Return a page of the run's events with keys above the first parameter.

    Raises `DamagedStore` if an event is too large.
    """
    try:
        return row_page(connection, sql, parameters)
    except sqlite3.DataError as error:
        with closing(connection.execute(schema.KEYS, (parameters[0],))) as keys:
            for (key,), column in ((row, name) for row in keys for name in ("body", "content")):
                size = _stored_size(connection, column, key)
                if size > MOST_BYTES:
                    raise rows.too_large(connection.path, run, key, column, size, MOST_BYTES) from error
        raise


def _stored_size(connection: sqlite3.Connection, column: str, key: int) -> int:
    try:
        with connection.blobopen(
            "event", column, key, readonly=True
        ) as value:  # opens the value without reading it
            return len(value)
    except sqlite3.Error:  # it is NULL
        return 0


def one(connection: sqlite3.Connection, sql: str) -> SqlRow:
    """Return the row of a statement that always has exactly one."""
    with closing(connection.execute(sql)) as cursor:
        row: SqlRow = cursor.fetchone()
    return row
