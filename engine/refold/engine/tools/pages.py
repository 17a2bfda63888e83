"""A page of a text file: whole lines, as many as fit."""

from typing import BinaryIO, NamedTuple

from refold.engine.tools.root import FileError

MAX_SCAN = 32 * 1024 * 1024  # bytes from a file's beginning; how far a page may lie, and what a line may cost
_CHUNK = 1024 * 1024
_PROBE = 8192  # bytes in which a zero byte makes a file binary, as git has it


class _Lines(NamedTuple):
    """Lines of a page, their bytes, how many lines were seen in all, and whether that was the whole file."""

    data: bytes
    shown: int
    seen: int
    whole: bool
    cut: int | None  # the size of the page's one line, if it did not fit


def page(file: BinaryIO, name: str, offset: int, limit: int, size: int) -> str:
    """Lines `offset` (from 1) to `offset + limit - 1` of a file, as far as `size` bytes go.

    A last line in brackets says what was left out and how to get it; a file that was shown whole has none. Raises
    `FileError`, with `name` for the file, for one that is binary or ends before the offset.
    """
    head = file.read(_PROBE)
    file.seek(0)
    if b"\0" in head:
        raise FileError(f"{name}: is binary, not text, and cannot be shown")
    lines = _lines(file, offset, limit, size)
    if not lines.seen:
        return "[the file is empty]"
    if offset > lines.seen:
        where = "the file" if lines.whole else f"the first {MAX_SCAN} bytes, which is as far as can be read,"
        raise FileError(f"{name}: {where} has {lines.seen} lines, so offset {offset} is beyond its end")
    if b"\0" in lines.data:
        raise FileError(f"{name}: is binary from line {offset} on, not text, and cannot be shown")
    text = lines.data.decode(errors="replace")
    if not (notes := _notes(lines, offset)):
        return text
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}[{'; '.join(notes)}]"


def _lines(file: BinaryIO, offset: int, limit: int, size: int) -> _Lines:
    """Read the page, then on to the end, or as far as we look, to know how much there is."""
    kept: list[bytes] = []
    room, seen, scanned, cut, full = size, 0, 0, None, False
    while not full and scanned < MAX_SCAN and (line := file.readline(MAX_SCAN - scanned)):
        seen, scanned = seen + 1, scanned + len(line)
        if seen < offset:
            continue
        fits = len(line) <= room
        if fits or not kept:  # a line longer than a page is cut: the next page could not begin with it either
            kept.append(line if fits else _cut(line, room))
            room -= len(line)
            cut = None if fits else len(line)
        full = not fits or len(kept) == limit
    seen += _count(file, MAX_SCAN - scanned)
    return _Lines(b"".join(kept), len(kept), seen, whole=not file.read(1), cut=cut)


def _count(file: BinaryIO, limit: int) -> int:
    """How many lines begin in the next `limit` bytes, from the beginning of one."""
    lines, last = 0, b"\n"
    while limit > 0 and (data := file.read(min(limit, _CHUNK))):
        lines += data.count(b"\n")
        limit -= len(data)
        last = data[-1:]
    return lines + (last != b"\n")


def _cut(line: bytes, size: int) -> bytes:
    """The first bytes of a line, cut between characters."""
    start = size
    while size - start < 3 and start and line[start] & 0xC0 == 0x80:  # within a character of UTF-8
        start -= 1
    return line[:start]


def _notes(lines: _Lines, offset: int) -> list[str]:
    notes: list[str] = []
    last = offset + lines.shown - 1
    if lines.cut is not None:
        notes.append(f"line {offset} is {lines.cut} bytes long and was cut; search_files finds text in it")
    if offset > 1 or last < lines.seen or not lines.whole:
        notes.append(f"lines {offset} to {last} of {lines.seen}{'' if lines.whole else ' or more'}")
    if last < lines.seen:
        notes.append(f"go on with offset {last + 1}")
    if not _is_text(lines.data):
        notes.append("bytes that are not UTF-8 are shown as \ufffd")
    return notes


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
