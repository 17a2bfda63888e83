"""How every connection to the file is made: by URI, in autocommit, with pages for results and bytes for
text.
"""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from refold.store import rows, schema
from refold.store.checks import BYTES, ROWS
from refold.store.rows import SqlRow

BUSY_SECONDS = 5.0
"""How long a statement waits for another program's lock."""

CHECKPOINT_PAGES = 1000
"""So many pages of the write-ahead log are brought into the file at the end of a commit that may take its
time.
"""

MOST_BYTES = 2**28
"""Bytes of the largest value of a file, a body or a content: what is larger is neither written nor read into
memory.
"""
STEPS = 1_000_000
"""Of SQLite's machine, between two looks at whether a statement goes on for ever: some ten milliseconds."""
LOOKS, LOOK_BYTES = 50, 100_000
"""So often it is looked at before that is so, and once more for so many bytes of the file: a row takes less.
"""


class PagedCursor(sqlite3.Cursor):
    """A cursor whose `fetchall` gives a page: a bounded number of rows and bytes. Once only.

    So a page is one round trip, whatever the sizes of its rows turn out to be. A row's bulk is in its last
    two columns, which are bytes or NULL: see `schema`.
    """

    def fetchall(self) -> list[SqlRow]:
        """The first rows, until there are `ROWS` of them or `BYTES` bytes, or the next holds more than
        `MOST_BYTES`.
        """
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
    """A connection with paged cursors, text as the bytes that are on disk, and no trust in the file at
    `path`.

    A forged file can make a statement of ours go round in circles. One that takes more steps than a file of
    its size can need ends by SQLITE_INTERRUPT.

    A cursor that dies resets its statement: one that another thread may be running again by then, out of the
    statement cache. So cursors are closed by who made them. Ask for rows by `row_page` alone, or close their
    cursor.
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
        """Let functions that the file's schema may name do no harm, and no statement go on for ever."""
        self.path = str(path)
        super().execute("PRAGMA trusted_schema = OFF").close()
        self.set_progress_handler(lambda: self._goes_on(path), STEPS)

    def hurry(self, *, hurried: bool) -> None:
        """Whether statements from here on fail where they would wait for a lock, and commits leave
        checkpoints to others.
        """
        if hurried != self._hurried:
            seconds, pages = (0, 0) if hurried else (BUSY_SECONDS, CHECKPOINT_PAGES)
            super().execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}").close()
            super().execute(f"PRAGMA wal_autocheckpoint = {pages}").close()
            self._hurried = hurried

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement on a cursor of its own, closed if there are no rows to come."""
        self._looks = 0
        cursor = self.cursor(PagedCursor).execute(sql, parameters)
        if cursor.description is None:
            cursor.close()
        return cursor

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """Run a statement for each of the parameters; the cursor is closed."""
        self._looks = 0
        cursor = super().executemany(sql, parameters)
        cursor.close()
        return cursor

    def _goes_on(self, path: Path) -> bool:
        """Whether the statement has taken more than it can need."""
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
    """One transaction that writes. Committed when this is left, rolled back when it is left by an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction, if SQLite has not done so by itself, as it does when the disk fails."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def uri(path: Path, options: str) -> str:
    """The file as SQLite's URI; `options` as in `mode=ro`."""
    return f"{path.absolute().as_uri()}?{options}"


def direct(path: Path, options: str) -> PagedConnection:
    """A connection in autocommit: what is no transaction of ours commits by itself.

    Any thread may use it, one at a time.
    """
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
    """The first page of a query."""
    return connection.execute(sql, parameters).fetchall()


def event_page(connection: PagedConnection, run: str, sql: str, parameters: Sequence[Any]) -> list[SqlRow]:
    """A page of the run's events, whose keys lie above the first parameter.

    Raises `DamagedStore` for one too large.
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
        with connection.blobopen("event", column, key, readonly=True) as value:  # opens it, and reads nothing
            return len(value)
    except sqlite3.Error:  # it is NULL
        return 0


def one(connection: sqlite3.Connection, sql: str) -> SqlRow:
    """The only row of a statement that always has one."""
    with closing(connection.execute(sql)) as cursor:
        row: SqlRow = cursor.fetchone()
    return row
