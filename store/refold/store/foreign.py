"""Reading of tables from the bytes of another program's SQLite database.

The file is untrusted, and its schema is code. So it is opened in memory, and only stored columns of plain
tables are read, under an authorizer that denies everything else: no view, virtual table or generated column
is evaluated. Nothing is written, neither to the file nor beside it. Data that is only in its write-ahead log
is not read.
"""

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager

from refold.reducers.errors import Damaged

MAGIC = b"SQLite format 3\x00"
"""The first bytes of every SQLite database."""

MOST_ROWS = 1_000_000
"""Maximum rows read from one table."""

MOST_VALUE = 64 << 20
"""Maximum bytes of one value."""

MOST_TEXT = 1 << 30
"""Maximum characters of all values of one table. Rows of a forged file can share pages, so the file's size is
not a bound.
"""

Value = int | float | str | None

# Header bytes that are 2 in WAL mode, which a database in memory does not support; the pages are the same.
_VERSIONS = slice(18, 20)
_STEPS = 100_000  # virtual machine instructions between two progress callbacks
_OF_SCHEMA = 300_000  # maximum instructions for the schema, enough for some 15,000 objects
# Maximum progress callbacks for the tables: 2 * 10**9 instructions, about ten seconds. A table of a gigabyte
# takes one second.
_MOST_STEPS = 20_000
_READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})


class BadDatabase(Damaged):
    """Bytes that are not a database, or a damaged or malicious one. `problem` is one sentence."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class ForeignTable:
    """One table: its name, its columns, and its rows in stored order.

    `cut`: the table has more than `MOST_ROWS` rows, and the rest was not read.
    """

    def __init__(
        self, name: str, columns: tuple[str, ...], rows: list[tuple[Value, ...]], *, cut: bool
    ) -> None:
        self.name, self.columns, self.rows, self.cut = name, columns, rows, cut

    def __iter__(self) -> Iterator[dict[str, Value]]:
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))


def tables(data: bytes) -> dict[str, ForeignTable]:
    """Return all plain tables of a database, by name. Raises `BadDatabase`.

    Blobs and texts are decoded as UTF-8, with U+FFFD for invalid bytes.
    """
    if not data.startswith(MAGIC):
        raise BadDatabase("not an SQLite database")
    with _translate_errors(), closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(_rollback(data))
        _bound(connection, _OF_SCHEMA // _STEPS)
        _restrict(connection)
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # parses the schema within the bound
        _bound(connection, _MOST_STEPS)
        plain = {name: _columns(connection, name) for name in _names(connection)}
        connection.set_authorizer(_authorize)
        return {name: _table(connection, name, columns) for name, columns in plain.items() if columns}


def _names(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    return [
        name
        for name, sql in found
        if isinstance(name, str) and not name.startswith("sqlite_") and not _virtual(sql)
    ]


def _columns(connection: sqlite3.Connection, name: str) -> tuple[str, ...]:
    """Return the stored columns, without generated ones: reading those would evaluate an expression."""
    told = connection.execute(f"PRAGMA table_xinfo({_quote(name)})").fetchall()
    return tuple(str(column[1]) for column in told if column[6] == 0)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(connection: sqlite3.Connection, name: str, columns: tuple[str, ...]) -> ForeignTable:
    wanted = ", ".join(map(_quote, columns))
    cursor = connection.execute(f"SELECT {wanted} FROM {_quote(name)} LIMIT {MOST_ROWS + 1}")  # noqa: S608 - quoted as identifiers
    rows: list[tuple[Value, ...]] = []
    size = 0
    for row in cursor:
        rows.append(tuple(_plain(value) for value in row))
        size += sum(len(value) for value in rows[-1] if isinstance(value, str))
        if size > MOST_TEXT:
            raise BadDatabase(f"table {name!r} holds more than {MOST_TEXT} characters")
    return ForeignTable(name, columns, rows[:MOST_ROWS], cut=len(rows) > MOST_ROWS)


def _plain(value: object) -> Value:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    assert value is None or isinstance(value, int | float | str)
    return value


def _virtual(sql: object) -> bool:
    return isinstance(sql, str) and sql.lstrip()[:14].upper() == "CREATE VIRTUAL"


def _rollback(data: bytes) -> bytes:
    """Return the bytes with the header's WAL mode set to rollback mode."""
    changed = bytearray(data)
    changed[_VERSIONS] = b"\x01\x01"
    return bytes(changed)


def _text(stored: bytes) -> str:
    return stored.decode(errors="replace")


def _authorize(action: int, *_where: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def _restrict(connection: sqlite3.Connection) -> None:
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
    connection.text_factory = _text
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)


def _bound(connection: sqlite3.Connection, looks: int) -> None:
    """Limit the connection to `looks` times `_STEPS` instructions from now on."""
    left = iter(range(looks))
    connection.set_progress_handler(lambda: next(left, None) is None, _STEPS)


@contextmanager
def _translate_errors() -> Generator[None]:
    try:
        yield
    except (sqlite3.Error, OverflowError, MemoryError) as error:
        raise BadDatabase(f"SQLite: {error}") from error
