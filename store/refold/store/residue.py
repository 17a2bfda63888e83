"""Erased text that is left in the gaps of the file.

`secure_delete` overwrites what is deleted. It does not overwrite the gap that is left in a page when SQLite makes room
by moving rows to the page beside it: there a copy of a row may stand that nothing leads to (seen at one to four of 200
small events of 20 runs that grew side by side). Only VACUUM, which writes the whole file anew, takes it away, so it is
worth looking first whether there is one: a row has its hash and its content's digest side by side, 64 bytes that stand
in the file once, or too often.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from refold.store.connection import direct

CHUNK = 2**20

# Files that were looked into, by device and inode. Closing any one would drop every lock that this process has on the
# file, SQLite's too (https://sqlite.org/howtocorrupt.html, 2.2): so each stays open, once, until the process ends.
_open: dict[tuple[int, int], int] = {}


def stands(path: str, marks: Sequence[bytes]) -> bool:
    """Whether any of the marks stands in the file more than once. They are of equal length."""
    counts = dict.fromkeys(marks, 0)
    with closing(direct(Path(path), "mode=ro")) as connection:
        # While a reader holds the state of now, no checkpoint moves a row under our eyes.
        connection.execute("BEGIN")
        connection.execute("SELECT EXISTS (SELECT 1 FROM run)").fetchone()
        for piece in _pieces(_descriptor(path), overlap=len(marks[0]) - 1 if marks else 0):
            for mark in marks:
                counts[mark] += piece.count(mark)
    return any(count > 1 for count in counts.values())


def _pieces(descriptor: int, overlap: int) -> Iterator[bytes]:
    """The file in pieces; what a boundary would cut is whole in the second of two, and in that one alone."""
    place, kept = 0, b""
    while read := _read(descriptor, place):
        place += len(read)
        yield kept + read
        kept = (kept + read)[-overlap:]


def _read(descriptor: int, place: int) -> bytes:
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, CHUNK)


def _descriptor(path: str) -> int:
    found = os.stat(path)
    key = found.st_dev, found.st_ino
    if key not in _open:
        _open[key] = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    return _open[key]
