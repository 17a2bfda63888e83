"""How every connection to the file is made: by URI, in autocommit, with pages for results and bytes for text."""

import sqlite3
from pathlib import Path
from typing import Any

import aiosqlite

from refold.store import schema
from refold.store.pages import BYTES, ROWS

Row = tuple[Any, ...]

BUSY_SECONDS = 5.0
"""How long a statement waits for another program's lock."""


class PagedCursor(sqlite3.Cursor):
    """A cursor whose `fetchall` gives a page: a bounded number of rows and bytes. Once only.

    So a page is one round trip, whatever the sizes of its rows turn out to be. A row's bulk is in its last two
    columns, which are bytes or NULL: see `schema`.
    """

    def fetchall(self) -> list[Row]:
        """The first rows, until there are `ROWS` of them or `BYTES` bytes."""
        page, size = list[Row](), 0
        for row in self:
            page.append(row)
            size += _size(row[-2]) + _size(row[-1])
            if len(page) >= ROWS or size >= BYTES:
                break
        self.close()
        return page


def _size(value: object) -> int:
    return len(value) if isinstance(value, bytes) else 0  # a damaged page may hold anything


class PagedConnection(sqlite3.Connection):
    """A connection with paged cursors, and text as the bytes that are on disk.

    aiosqlite hands cursors to the event loop's thread, and a cursor that dies there resets its statement: one
    that the database's thread may be running again, out of the statement cache. So cursors are closed here, in
    the thread where they were made. Ask for rows by `execute_fetchall` alone, or close their cursor.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.text_factory = bytes

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement on a cursor of its own, closed if there are no rows to come."""
        cursor = self.cursor(PagedCursor).execute(sql, parameters)
        if cursor.description is None:
            cursor.close()
        return cursor

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """Run a statement for each of the parameters; the cursor is closed."""
        cursor = super().executemany(sql, parameters)
        cursor.close()
        return cursor


def uri(path: Path, options: str) -> str:
    """The file as SQLite's URI; `options` as in `mode=ro`."""
    return f"{path.absolute().as_uri()}?{options}"


async def connect(path: Path, options: str) -> aiosqlite.Connection:
    """A connection in autocommit: each statement commits by itself, and no transaction stays open between two."""
    return await aiosqlite.connect(
        uri(path, options),
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
        cached_statements=2 * schema.MAX_ROWS,
        factory=PagedConnection,
    )


async def one(connection: aiosqlite.Connection, sql: str) -> Row:
    """The only row of a statement that always has one."""
    async with connection.execute(sql) as cursor:
        row = await cursor.fetchone()
    assert row is not None, sql
    return tuple(row)
