"""Damage that SQLite does not report: in the write-ahead log, and in rows that a reader skips.

A frame's checksum covers its page and the checksum of the frame before it. SQLite stops at the first frame
that does not fit, because a power cut leaves such a frame at the end. A damaged frame differs from a torn one
in three ways:

- One flipped bit explains the difference between its checksum and its bytes. A torn frame has random bytes.
- Its checksum fits, and its salts are not those of the log.
- After it, one transaction follows another with the same salts. With `fsync`, a transaction begins only when
  the one before it is on disk, so the bad frame was on disk too.

Frames of older generations have other salts. Frames of a rolled back transaction have no commit mark.

Format: https://sqlite.org/fileformat2.html#walformat

SQLite finds a row by binary search and reads on to the end of the requested range. One flipped bit that puts
a key out of order, or shortens a page's list of rows, hides other rows without an error.
The end of a log is recorded only in its last row, so rows hidden there are found only by the order of the
complete table.
"""

import os
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct, unpack
from sys import byteorder
from typing import NamedTuple

from refold.store import schema
from refold.store.rows import RECOVER

HEADER, FRAME = 32, 24
"""Bytes of the header of the log, and of the header of each frame. All numbers in them are big-endian."""

_BLOCK = 256  # frames checked together: about a megabyte
_SCANS = 10  # another process may write while the log is read; only damage is the same in two scans
_MASK = 2**32 - 1
_ORDERS = {0x377F0682: "little", 0x377F0683: "big"}  # byte order of the words of a checksum
_HEAD = Struct(">8I")
_PAIR = Struct(">2I")
_INDEX = Struct("=3I2B H 2I 2I 2I 2I")  # the -shm is in the machine's own order
_INDEX_BYTES = 100  # its header twice, then the number of frames already in the file

# Not "remove the -shm": without it, a process that has the store open and one that opens it now overwrite
# each other.
_GIVE_UP = (
    "To give up the lost events: `sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'`; "
    "then find out which calls of a run happened before you resume it"
)
WAY_OUT = f"Copy the file and its -wal, and keep both. {_GIVE_UP}"

Sums = tuple[int, int]


class Damage(NamedTuple):
    """How a log differs from what was written.

    `header` is its header or its index, by which a log that another writer restarted differs.
    """

    header: bytes
    problem: str


class _Stop(NamedTuple):
    """The first frame that SQLite does not accept, from 0, and the checksum before it."""

    number: int
    sums: Sums


def wal_problem(path: Path) -> str:
    """Return why events recorded in the `-wal` of the store at `path` are lost; "" if no damage is found.

    A scan reads the complete log, about 9 microseconds for a frame of 4 KiB. The log may be written, created
    or removed meanwhile. Raises `OSError`.
    """
    log = path.with_name(f"{path.name}-wal")
    last: Damage | None = None
    for _ in range(_SCANS):
        try:
            found = _scan_file(log)
        except FileNotFoundError:
            found = _removed_log_damage(path)
            if found is not None and log.exists():  # it was created before the index was read
                last = None
                continue
        if found is None:
            return ""
        if found == last:
            return found.problem
        last = found
    return ""


def _removed_log_damage(path: Path) -> Damage | None:
    """Return the loss that the index of a removed `-wal` shows. Only a killed process leaves an index."""
    try:
        data = path.with_name(f"{path.name}-shm").read_bytes()[:_INDEX_BYTES]
    except FileNotFoundError:
        return None
    if len(data) < _INDEX_BYTES or data[:48] != data[48:96]:
        return None
    _, _, _, valid, _, _, frames, *_, first, second = _INDEX.unpack_from(data)
    words = array("I", data[:40])
    in_file = int.from_bytes(data[96:100], byteorder)
    if not valid or _add((0, 0), words) != (first, second) or frames <= in_file:
        return None
    return Damage(
        data,
        f"its -wal was removed: according to its -shm, {frames - in_file} of {frames} frames were not in the file yet. "
        f"Recorded events are missing. Stop every process that has the store open, and restore the -wal. {_GIVE_UP}",
    )


def _scan_file(log: Path) -> Damage | None:
    with log.open("rb", buffering=0) as file:
        return _scan(file.fileno(), os.fstat(file.fileno()).st_size)


def _scan(file: int, size: int) -> Damage | None:
    header = os.pread(file, HEADER, 0)
    if len(header) < HEADER or not any(header + os.pread(file, FRAME, HEADER)):
        return None  # cut off, or never written
    magic, _, page, _, _, _, *sums = _HEAD.unpack(header)
    order = _ORDERS.get(magic, "")
    if not order or _add((0, 0), _words(header[:24], order)) != tuple(sums):
        return _damage(header, "the header of its -wal is damaged")
    log = _WalFrames(file, order, FRAME + page, (size - HEADER) // (FRAME + page), header[16:24])
    stop = log.find_end((sums[0], sums[1]))
    if stop.number == log.total:
        return None
    why = log.flaw(stop) or log.successor(stop)
    return (
        _damage(header, f"frame {stop.number + 1} of {log.total} in its -wal is damaged: {why}")
        if why
        else None
    )


def _damage(header: bytes, what: str) -> Damage:
    return Damage(header, f"{what}. SQLite reads no further, so recorded events are missing. {WAY_OUT}")


class _WalFrames(NamedTuple):
    """The frames of a log: `length` bytes each, `salts` those of its header."""

    file: int
    order: str
    length: int
    total: int
    salts: bytes

    def find_end(self, sums: Sums) -> _Stop:
        """Find the first frame that does not fit the checksum before it, as SQLite does."""
        number = 0
        while number < self.total:
            block = list(self._read(number, min(_BLOCK, self.total - number)))
            taken = next((at for at, each in enumerate(block) if each[8:16] != self.salts), len(block))
            if not taken:
                break
            befores = [sums, *map(_stored_sums, block[: taken - 1])]
            if not all(self._fit(block[at:taken:2], befores[at::2]) for at in (0, 1)):
                return self._walk(block[:taken], number, sums)
            number, sums = number + taken, _stored_sums(block[taken - 1])
            if taken < len(block):
                break
        return _Stop(number, sums)

    def flaw(self, stop: _Stop) -> str:
        """Explain why a power cut cannot have torn this frame; "" if it can."""
        (frame,) = self._read(stop.number, 1)
        computed, stored = self._sums(frame, stop.sums), _stored_sums(frame)
        salted = frame[8:16] == self.salts
        if computed == stored:
            return "its salts are not those of the log, and its checksum fits"
        if not salted:
            return ""
        one = _bits(computed, stored) == 1 or self._is_flipped(frame, computed, stored)
        return "one flipped bit explains its checksum" if one else ""

    def successor(self, stop: _Stop) -> str:
        """Name the first frame of a transaction that follows another one after the end; "" if not found."""
        head = os.pread(self.file, FRAME, HEADER + stop.number * self.length)
        for number in range(stop.number + 1, self.total):
            before, head = head, os.pread(self.file, FRAME, HEADER + number * self.length)
            if before[8:16] == head[8:16] == self.salts and any(before[4:8]):
                (frame,) = self._read(number, 1)
                if self._sums(frame, _stored_sums(before)) == _stored_sums(frame):
                    return f"frame {number + 1} begins a later transaction, so this one was on disk"
        return ""

    def _read(self, number: int, count: int) -> Iterator[bytes]:
        data = os.pread(self.file, count * self.length, HEADER + number * self.length)
        data = data.ljust(count * self.length, b"\0")  # it was cut off meanwhile
        return (data[at : at + self.length] for at in range(0, len(data), self.length))

    def _fit(self, frames: Sequence[bytes], befores: Sequence[Sums]) -> bool:
        """Return whether the frames fit the checksums before them.

        Do not pass two neighbours at once: a flipped checksum, which ends one and begins the other, could
        cancel out. Checksums are linear: the sum of the frames has the sum of their checksums. So this takes
        one addition for each frame and one pass over the words of the sum.
        """
        if not frames:
            return True
        lanes = self.length // 8
        mask = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * lanes, "little")
        firsts = seconds = 0
        for frame in frames:
            number = int.from_bytes(_swap_bytes(frame) if self.order == "big" else frame, "little")
            firsts += number & mask
            seconds += number >> 32 & mask
        ones, twos = (
            unpack(f"<{lanes}Q", each.to_bytes(self.length, "little")) for each in (firsts, seconds)
        )
        words = [each for lane in (0, *range(FRAME // 8, lanes)) for each in (ones[lane], twos[lane])]
        return _add(_total(befores), words) == _total(map(_stored_sums, frames))

    def _walk(self, frames: list[bytes], number: int, sums: Sums) -> _Stop:
        for frame in frames:
            if self._sums(frame, sums) != _stored_sums(frame):
                break
            number, sums = number + 1, _stored_sums(frame)
        return _Stop(number, sums)

    def _sums(self, frame: bytes, before: Sums) -> Sums:
        return _add(before, _words(frame[:8] + frame[FRAME:], self.order))

    def _is_flipped(self, frame: bytes, computed: Sums, stored: Sums) -> bool:
        """Return whether the checksum would fit after flipping one bit of the frame. Several bits may do."""
        words = _words(frame[:8] + frame[FRAME:], self.order)
        wanted = ((stored[0] - computed[0]) & _MASK, (stored[1] - computed[1]) & _MASK)
        weights = ((1, 1), (0, 1))  # what the words of the last pair add to the two sums
        for pair in range(len(words) - 2, -1, -2):
            for word, (one, two) in zip(words[pair : pair + 2], weights, strict=True):
                for bit in range(32):
                    change = -(1 << bit) if word >> bit & 1 else 1 << bit
                    if ((change * one) & _MASK, (change * two) & _MASK) == wanted:
                        return True
            (a, b), (c, d) = weights
            weights = ((a + b & _MASK, a + 2 * b & _MASK), (c + d & _MASK, c + 2 * d & _MASK))
        return False


def _bits(some: Sums, other: Sums) -> int:
    """Return the number of differing bits."""
    return (some[0] ^ other[0]).bit_count() + (some[1] ^ other[1]).bit_count()


def _stored_sums(frame: bytes) -> Sums:
    first, second = _PAIR.unpack_from(frame, 16)
    return first, second


def _total(sums: Iterable[Sums]) -> Sums:
    firsts, seconds = zip(*sums, strict=True)
    return sum(firsts) & _MASK, sum(seconds) & _MASK


def _add(sums: Sums, words: Sequence[int]) -> Sums:
    """Continue a checksum over an even number of words."""
    first, second = sums
    pairs = iter(words)
    for one, two in zip(pairs, pairs, strict=True):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second


def _words(data: bytes, order: str) -> "array[int]":
    words = array("I", data)
    if order != byteorder:
        words.byteswap()
    return words


def _swap_bytes(data: bytes) -> bytes:
    words = array("I", data)
    words.byteswap()
    return words.tobytes()


_STRAYS = (
    (schema.ORPHAN, "belongs to no run"),
    (schema.HEADLESS, "is the first event of its run"),
    (schema.AHEAD, "has a snapshot, but is missing"),
)


def file_problem(connection: sqlite3.Connection, path: Path) -> str:
    """Return why events may be hidden; "" if no damage is found.

    Time grows with the file: 0.3 s for a GB in memory.
    """
    if lost := wal_problem(path):
        return lost
    found = _page_problem(connection) or _row_problem(connection)
    return found and f"events may be hidden: {found}; {RECOVER}"


def _page_problem(connection: sqlite3.Connection) -> str:
    (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    told = " ".join(said.decode(errors="backslashreplace").split())
    return "" if said == b"ok" else f"SQLite: {told[:200]}"


def _row_problem(connection: sqlite3.Connection) -> str:
    for asked, file_problem in _STRAYS:
        if stray := connection.execute(asked).fetchone():
            number, seq = stray[0] >> schema.SEQ_BITS, stray[0] & schema.SEQ_MASK
            return f"event {seq} of run number {number} {file_problem}"
    return ""
