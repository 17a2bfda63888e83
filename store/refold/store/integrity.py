"""What a reader passes over without a word where a file is damaged: looked for in the whole file.

SQLite finds a row by halving its page, and reads on until one is beyond what was asked for. One flipped bit that puts a
row's number out of order, or shortens a page's list of rows, hides others, and no error says so. A log has no
end that stands anywhere but in its last row, so what is hidden there shows only in the order of the whole table.
"""

import sqlite3
from pathlib import Path

from refold.store import schema, wal
from refold.store.problems import RECOVER

_STRAYS = (
    (schema.ORPHAN, "belongs to no run"),
    (schema.HEADLESS, "begins the log of its run"),
    (schema.AHEAD, "has a snapshot, and is not there"),
)


def problem(connection: sqlite3.Connection, path: Path) -> str:
    """Why events may be hidden; "" if nothing shows that. Time is in proportion to the file: 0.3 s a GB in memory."""
    if lost := wal.problem(path):
        return lost
    found = _of_pages(connection) or _of_rows(connection)
    return found and f"events may be hidden: {found}; {RECOVER}"


def _of_pages(connection: sqlite3.Connection) -> str:
    (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    told = " ".join(said.decode(errors="backslashreplace").split())
    return "" if said == b"ok" else f"SQLite said: {told[:200]}"


def _of_rows(connection: sqlite3.Connection) -> str:
    for asked, problem in _STRAYS:
        if stray := connection.execute(asked).fetchone():
            number, seq = stray[0] >> schema.SEQ_BITS, stray[0] & schema.SEQ_MASK
            return f"event {seq} of run number {number} {problem}"
    return ""
