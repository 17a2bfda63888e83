"""Listing and searching of files below a root."""

import contextlib
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

from refold.engine.tools.root import FileError, Root, is_file, is_link, names, refuse_link, shown

MAX_LISTED = 1000  # lines in one result
MAX_VISITED = 20_000  # names that a walk visits
_CLOSED = {".git"}  # listed but not walked into: thousands of generated files


class Entry(NamedTuple):
    """A name found by a walk: its path from the root, and its type."""

    path: str
    mode: int
    link: bool

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory and not a link."""
        return stat.S_ISDIR(self.mode) and not self.link

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file and not a link."""
        return stat.S_ISREG(self.mode) and not self.link

    @property
    def line(self) -> str:
        """Its line in a listing."""
        if self.is_directory:
            return f"{shown(self.path)}/"
        if self.is_file:
            return shown(self.path)
        return (
            f"{shown(self.path)} [{'symbolic link' if self.link else 'not a regular file'}: cannot be opened]"
        )


def entries(root: Root, path: str) -> list[Entry]:
    """Return a directory's entries, sorted by name, at most `MAX_VISITED + 1`. Raises `FileError`."""
    found: list[Entry] = []
    with root.directory(path) as directory:
        for name in directory.names()[: MAX_VISITED + 1]:
            with contextlib.suppress(FileNotFoundError):  # gone since
                status = directory.stat(name)
                found.append(Entry("/".join((*names(path), name)), status.st_mode, is_link(status)))
    return found


def walk(root: Root, path: str) -> Iterator[Entry]:
    """Yield everything below a directory, each directory before its entries. Links are not followed.

    A directory that cannot be opened is yielded and not entered. Raises `FileError` if `path` itself cannot
    be opened.
    """
    waiting = list(reversed(entries(root, path)))
    while waiting:
        entry = waiting.pop()
        yield entry
        if entry.is_directory and entry.path.rpartition("/")[2] not in _CLOSED:
            with contextlib.suppress(FileError):
                waiting += reversed(entries(root, entry.path))


def listing(root: Root, path: str, *, recursive: bool) -> str:
    """Return the result of `list_files`; a last line in brackets if there is more. Raises `FileError`."""
    lines: list[str] = []
    for count, entry in enumerate(walk(root, path) if recursive else iter(entries(root, path))):
        if len(lines) == MAX_LISTED or count == MAX_VISITED:
            return "\n".join([*lines, f"[the first {len(lines)} of more; list a directory further down]"])
        lines.append(entry.line)
    return "\n".join(lines) or "[the directory is empty]"


MAX_FOUND = 100  # lines in one result
MAX_BYTES = 64 * 1024 * 1024  # read in one search, over all files
MAX_FILE = 8 * 1024 * 1024  # bytes of one file; the rest is not searched, and the result notes that
_PROBE = 8192  # bytes in which a zero byte makes a file binary, as in git
_WIDTH = 200  # characters of a line in a result


class Query(NamedTuple):
    """The text to find, and a pattern for the names of files."""

    pattern: str
    glob: str = "*"
    ignore_case: bool = False


class _Search:
    """One search, with what remains of its bounds, and notes on the bounds reached."""

    def __init__(self, root: Root, query: Query) -> None:
        self.root, self.query = root, query
        self.bytes_left = MAX_BYTES
        self.met: dict[str, None] = {}  # in order, each once

    def found(self, path: str) -> Iterator[str]:
        """Yield a line of the result for each matching line in every file."""
        for file in self.files(path):
            if not self.bytes_left:
                self.met[f"only the first {MAX_BYTES} bytes were searched"] = None
                return
            with contextlib.suppress(FileError):  # deleted meanwhile, or not readable
                yield from (f"{shown(file)}:{number}: {text}" for number, text in self.lines(file))

    def files(self, path: str) -> Iterator[str]:
        """Yield the paths to search: the file itself, or all files below a directory that match the glob."""
        if names(path):
            with self.root.parent(path) as (directory, name):
                status = directory.stat(name)
            refuse_link(status, path)
            if is_file(status):
                yield path
                return
        for count, entry in enumerate(walk(self.root, path)):
            if count == MAX_VISITED:
                self.met[f"only the first {MAX_VISITED} names were looked at"] = None
                return
            if entry.is_file and _matches(entry.path, self.query.glob):
                yield entry.path

    def lines(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield a file's matching lines with their numbers from 1. Binary files are skipped."""
        data = self.read(path)
        needle = self.query.pattern.encode(errors="replace")
        if b"\0" in data[:_PROBE] or (needle not in data and not self.query.ignore_case):
            return
        for number, line in enumerate(data.split(b"\n"), 1):
            text = line.decode(errors="replace").rstrip("\r")
            if (at := self.position(text)) >= 0:
                yield number, _shorten(text, at)

    def read(self, path: str) -> bytes:
        """Read the bytes of a file, within the bounds."""
        with self.root.parent(path) as (directory, name), os.fdopen(directory.file(name), "rb") as file:
            data = file.read(min(MAX_FILE, self.bytes_left))
            if file.read(1):
                self.met["the ends of large files were not searched"] = None
        self.bytes_left -= len(data)
        return data

    def position(self, text: str) -> int:
        """Return the position of the pattern in a line, -1 if it does not occur."""
        if self.query.ignore_case:
            return text.casefold().find(self.query.pattern.casefold())
        return text.find(self.query.pattern)


def search(root: Root, path: str, query: Query) -> str:
    """Return the result of `search_files`, with notes in brackets on reached bounds. Raises `FileError`."""
    if "\n" in query.pattern:
        raise FileError(
            "pattern: has a line end, and lines are searched one by one; search for a part of one line"
        )
    searching = _Search(root, query)
    found = list(islice(searching.found(path), MAX_FOUND + 1))
    notes = [
        *searching.met,
        *([f"the first {MAX_FOUND} of more; narrow it down"] if found[MAX_FOUND:] else []),
    ]
    lines = found[:MAX_FOUND] or ["[nothing found]"]
    return "\n".join([*lines, *([f"[{'; '.join(notes)}]"] if notes else [])])


def _matches(path: str, glob: str) -> bool:
    """Return whether a path matches a glob: by its last name, or completely if the glob has a slash."""
    return fnmatchcase(path if "/" in glob else path.rpartition("/")[2], glob)


def _shorten(text: str, at: int) -> str:
    """Return a line for the result, shortened to the surroundings of the match if it is long."""
    if len(text) <= _WIDTH:
        return text
    start = min(max(0, at - _WIDTH // 4), max(0, len(text) - _WIDTH))
    end = start + _WIDTH
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
