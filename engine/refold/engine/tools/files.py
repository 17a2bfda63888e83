"""Tools for files below one root, and a to-do list.

`root.py` defines which files are accessible. Everything is bounded: a read returns a page of a file, a result
notes whether there is more and how to get it, and a model cannot pass regular expressions.

Each call of `write_todos` writes and returns the complete list, so the log has all its states and nothing is
stored elsewhere: a fork, a resumed run and a replay have the list that is in the prompt.
"""

import os
import stat
import threading
from typing import Annotated, BinaryIO, Literal, NamedTuple

import msgspec
from msgspec import Meta

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import Tool
from refold.engine.tools.root import FileError, Root, is_file, refuse_link, shown
from refold.engine.tools.search import Query, listing, search
from refold.reducers.text import clean, size_of


class EditError(Exception):
    """The old text does not occur exactly once. The message is for the model and does not repeat the text."""


class Edit(NamedTuple):
    """The text after an edit, and the line, from 1, at which the old text began."""

    text: str
    line: int


def replace_once(text: str, old: str, new: str) -> Edit:
    """Replace `old`, which must occur exactly once, by `new`. Raises `EditError`.

    Occurrences may overlap: `aa` occurs twice in `aaa`, which is ambiguous.
    """
    if not old:
        raise EditError("the old text is empty; give the text to replace, or use write_file")
    if old == new:
        raise EditError("the old and the new text are the same, so there is nothing to do")
    first = text.find(old)
    if first < 0:
        raise EditError(_absent(text, old))
    if text.find(old, first + 1) >= 0:
        raise EditError(
            f"the old text occurs {occurrences(text, old)} times; add lines around it until it is the only one"
        )
    return Edit(text[:first] + new + text[first + len(old) :], text.count("\n", 0, first) + 1)


def occurrences(text: str, piece: str) -> int:
    """Count occurrences of a non-empty piece, including overlapping ones."""
    count = 0
    at = text.find(piece)
    while at >= 0:
        count += 1
        at = text.find(piece, at + 1)
    return count


def _absent(text: str, old: str) -> str:
    if "\r\n" in text and "\r\n" not in old and old.replace("\n", "\r\n") in text:
        return "the old text does not occur: lines of this file end in \\r\\n, so write \\r\\n in old and new"
    if old.strip() and old.strip() in text:
        return "the old text occurs only with other space around it; copy it exactly"
    return "the old text does not occur; read the file and copy the text exactly, spaces and line ends too"


MAX_SCAN = 32 * 1024 * 1024  # bytes from the start of a file that are read to find and count lines
_CHUNK = 1024 * 1024
_PROBE = 8192  # bytes in which a zero byte makes a file binary, as in git


class _Lines(NamedTuple):
    """The lines of a page as bytes, their number, the number of lines read, and whether the file ended."""

    data: bytes
    shown: int
    seen: int
    whole: bool
    cut: int | None  # the size of the page's one line, if it did not fit


def page(file: BinaryIO, name: str, offset: int, limit: int, size: int) -> str:
    """Return lines `offset` (from 1) to `offset + limit - 1` of a file, at most `size` bytes.

    Unless that is the complete file, a last line in brackets names what was omitted and how to get it. Raises
    `FileError`, with `name` for the file, if it is binary or ends before the offset.
    """
    head = file.read(_PROBE)
    file.seek(0)
    if b"\0" in head:
        raise FileError(f"{name}: is binary, not text, and cannot be shown")
    lines = _lines(file, offset, limit, size)
    if not lines.seen:
        return "[the file is empty]"
    if offset > lines.seen:
        where = "the file" if lines.whole else f"the first {MAX_SCAN} bytes, the most that is read,"
        raise FileError(f"{name}: {where} has {lines.seen} lines, so offset {offset} is beyond its end")
    if b"\0" in lines.data:
        raise FileError(f"{name}: is binary from line {offset} on, not text, and cannot be shown")
    text = lines.data.decode(errors="replace")
    if not (notes := _notes(lines, offset)):
        return text
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}[{'; '.join(notes)}]"


def _lines(file: BinaryIO, offset: int, limit: int, size: int) -> _Lines:
    """Read the page, then count the lines up to the end or `MAX_SCAN`."""
    kept: list[bytes] = []
    room, seen, scanned, cut, full = size, 0, 0, None, False
    while not full and scanned < MAX_SCAN and (line := file.readline(MAX_SCAN - scanned)):
        seen, scanned = seen + 1, scanned + len(line)
        if seen < offset:
            continue
        fits = len(line) <= room
        if fits or not kept:  # a line longer than a page is cut, because no page can hold it
            kept.append(line if fits else _cut(line, room))
            room -= len(line)
            cut = None if fits else len(line)
        full = not fits or len(kept) == limit
    seen += _count(file, MAX_SCAN - scanned)
    return _Lines(b"".join(kept), len(kept), seen, whole=not file.read(1), cut=cut)


def _count(file: BinaryIO, limit: int) -> int:
    """Count lines in the next `limit` bytes, from the start of a line."""
    lines, last = 0, b"\n"
    while limit > 0 and (data := file.read(min(limit, _CHUNK))):
        lines += data.count(b"\n")
        limit -= len(data)
        last = data[-1:]
    return lines + (last != b"\n")


def _cut(line: bytes, size: int) -> bytes:
    """Return at most `size` bytes of a line, cut between characters."""
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


PAGE = (
    12 * 1024
)  # bytes of a file in one result: below the default limit of an output, so that pages are not cut
MAX_EDIT = 4 * 1024 * 1024  # bytes; an edit has two copies of the file in memory

Line = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Glob = Annotated[str, Meta(min_length=1, max_length=100)]  # short, because matching takes quadratic time


def files(root: str | os.PathLike[str], *, write: bool = True, page_size: int = PAGE) -> list[Tool]:
    """Make tools for the files below `root`: `read_file`, `list_files`, `search_files`, and with `write` also
    `write_file` and `edit_file`.

    Paths are relative to the root and cannot leave it by `..`, an absolute path or a symbolic link (links are
    refused even inside). `page_size` is the maximum size of one `read_file` result in bytes. Errors contain
    the path as the model gave it and never the root. Raises `WrongUse` if `root` is not a directory.
    """
    place = Root(root)
    return [*_readers(place, page_size), *(_writers(place) if write else [])]


def _readers(root: Root, page_size: int) -> list[Tool]:
    @tool(replay="read_only")
    def read_file(path: str, offset: Line = 1, limit: Count = 2000) -> str:
        """Read a text file.

        Args:
            path: file to read, relative to the root
            offset: first line to read, from 1
            limit: how many lines at most
        """
        with root.parent(path) as (directory, name):
            _require_file(directory.stat(name), path)
            with os.fdopen(directory.file(name), "rb") as file:
                return page(file, shown(path), offset, limit, page_size)

    @tool(replay="read_only")
    def list_files(path: str = ".", recursive: bool = False) -> str:  # noqa: FBT001, FBT002 - a model names it
        """List the files of a directory. Names of directories end with a slash.

        Args:
            path: directory to list, relative to the root
            recursive: list the directories in it too, as far down as they go
        """
        return listing(root, path, recursive=recursive)

    @tool(replay="read_only")
    def search_files(pattern: Text, path: str = ".", glob: Glob = "*", ignore_case: bool = False) -> str:  # noqa: FBT001, FBT002
        """Find the lines of text files that contain a text. Gives path:line: text.

        Args:
            pattern: the text to find, taken literally
            path: file or directory to search, relative to the root
            glob: which files, by name, like *.py
            ignore_case: let A match a
        """
        return search(root, path, Query(pattern, glob, ignore_case))

    return [read_file, list_files, search_files]


def _writers(root: Root) -> list[Tool]:
    # Calls of a batch run concurrently: the second of two edits must see the result of the first.
    writing = threading.Lock()

    @tool(replay="idempotent")
    def write_file(path: str, content: str) -> str:
        """Write a text file. It is made, with its directories, or replaced as a whole.

        Args:
            path: file to write, relative to the root
            content: the whole text of the file
        """
        text = clean(content)
        with writing, root.parent(path, create=True) as (directory, name):
            try:
                mode = _require_file(directory.stat(name), path)
            except FileNotFoundError:
                mode = None
            directory.replace(name, text.encode(), mode)
        return f"{shown(path)}: {'replaced' if mode is not None else 'created'}, {size_of(text)} bytes"

    @tool(replay="at_most_once")
    def edit_file(path: str, old: str, new: str) -> str:
        """Replace a piece of a text file. The piece must occur exactly once.

        Args:
            path: file to edit, relative to the root
            old: the text to replace, copied exactly from the file
            new: the text to put there
        """
        with writing, root.parent(path) as (directory, name):
            mode = _require_file(directory.stat(name), path)
            with os.fdopen(directory.file(name), "rb") as file:
                text = _editable(file.read(MAX_EDIT + 1), path)
            try:
                edit = replace_once(text, old, clean(new))
            except EditError as error:
                raise FileError(f"{shown(path)}: {error}") from error
            directory.replace(name, edit.text.encode(), mode)
        return f"{shown(path)}: edited at line {edit.line}"

    return [write_file, edit_file]


def _require_file(status: os.stat_result, path: str) -> int:
    """Return the permission bits of a regular file. Raises `FileError` for anything else."""
    refuse_link(status, path)
    if stat.S_ISDIR(status.st_mode):
        raise FileError(f"{shown(path)}: is a directory; list_files shows what is in it")
    if not is_file(status):
        raise FileError(f"{shown(path)}: is a device, pipe or socket, not a file; it is never opened")
    return stat.S_IMODE(status.st_mode) & 0o777


def _editable(data: bytes, path: str) -> str:
    """Decode a file's text. Raises `FileError` if it is not UTF-8, because it could not be written back."""
    if len(data) > MAX_EDIT:
        raise FileError(
            f"{shown(path)}: is larger than {MAX_EDIT} bytes, too large to edit; write a new file instead"
        )
    if b"\0" in data:
        raise FileError(f"{shown(path)}: is binary, not text, and cannot be edited")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileError(
            f"{shown(path)}: is not UTF-8 at byte {error.start}, so it cannot be edited without damage"
        ) from error


_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class Todo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do."""

    text: Annotated[str, Meta(min_length=1, max_length=500)]
    status: Literal["pending", "in_progress", "done"] = "pending"


def todos() -> list[Tool]:
    """Return the tool `write_todos`."""
    return [write_todos]


@tool(replay="idempotent")
def write_todos(items: Annotated[list[Todo], Meta(max_length=100)]) -> str:
    """Write the to-do list. Give the whole list each time: it replaces the one before.

    Args:
        items: all things to do, in order, those that are done too
    """
    if not items:
        return "The to-do list is empty."
    done = sum(item.status == "done" for item in items)
    # One line for each item, also if its text has several.
    lines = [
        f"{number}. {_MARKS[item.status]} {' '.join(item.text.split())}"
        for number, item in enumerate(items, 1)
    ]
    return "\n".join([f"{done} of {len(items)} done", *lines])
