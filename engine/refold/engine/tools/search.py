"""Walking and searching below a root."""

import contextlib
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

from refold.engine.tools.root import FileError, Root, is_file, is_link, names, refuse_link, shown

MAX_LISTED = 1000  # lines an answer holds
MAX_VISITED = 20_000  # names a walk looks at
_CLOSED = {".git"}  # listed but not walked into: thousands of files that nobody wrote


class Entry(NamedTuple):
    """A name below the place where a walk began: its path from the root, and what it is."""

    path: str
    mode: int
    link: bool

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory, itself and not by a link."""
        return stat.S_ISDIR(self.mode) and not self.link

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, itself and not by a link."""
        return stat.S_ISREG(self.mode) and not self.link

    @property
    def line(self) -> str:
        """How a listing shows it."""
        if self.is_directory:
            return f"{shown(self.path)}/"
        if self.is_file:
            return shown(self.path)
        return (
            f"{shown(self.path)} [{'symbolic link' if self.link else 'not a regular file'}: cannot be opened]"
        )


def entries(root: Root, path: str) -> list[Entry]:
    """What is in a directory, by name, as far as a walk looks. Raises `FileError`."""
    found: list[Entry] = []
    with root.directory(path) as directory:
        for name in directory.names()[: MAX_VISITED + 1]:
            with contextlib.suppress(FileNotFoundError):  # gone since
                status = directory.stat(name)
                found.append(Entry("/".join((*names(path), name)), status.st_mode, is_link(status)))
    return found


def walk(root: Root, path: str) -> Iterator[Entry]:
    """Everything below a directory, each directory before what is in it. Links are told, never followed.

    A directory that cannot be opened, but for the first, is told and passed over. Raises `FileError` for the
    first.
    """
    waiting = list(reversed(entries(root, path)))
    while waiting:
        entry = waiting.pop()
        yield entry
        if entry.is_directory and entry.path.rpartition("/")[2] not in _CLOSED:
            with contextlib.suppress(FileError):
                waiting += reversed(entries(root, entry.path))


def listing(root: Root, path: str, *, recursive: bool) -> str:
    """The lines of `list_files`; a last one in brackets when there is more. Raises `FileError`."""
    lines: list[str] = []
    for count, entry in enumerate(walk(root, path) if recursive else iter(entries(root, path))):
        if len(lines) == MAX_LISTED or count == MAX_VISITED:
            return "\n".join([*lines, f"[the first {len(lines)} of more; list a directory further down]"])
        lines.append(entry.line)
    return "\n".join(lines) or "[the directory is empty]"


MAX_FOUND = 100  # lines an answer holds
MAX_BYTES = 64 * 1024 * 1024  # read in one search, all files together
MAX_FILE = 8 * 1024 * 1024  # of one file; the rest of a larger one is not searched, and the answer says so
_PROBE = 8192  # bytes in which a zero byte makes a file binary, as git has it
_WIDTH = 200  # characters shown of a line


class Query(NamedTuple):
    """What to find, and in files of which name."""

    pattern: str
    glob: str = "*"
    ignore_case: bool = False


class _Search:
    """One search and its bounds: what is left of them, and which were met."""

    def __init__(self, root: Root, query: Query) -> None:
        self.root, self.query = root, query
        self.bytes_left = MAX_BYTES
        self.met: dict[str, None] = {}  # in order, each once

    def found(self, path: str) -> Iterator[str]:
        """A line of the answer for each line of a text that matches, in every file."""
        for file in self.files(path):
            if not self.bytes_left:
                self.met[f"only the first {MAX_BYTES} bytes were searched"] = None
                return
            with contextlib.suppress(FileError):  # gone, or not ours to read
                yield from (f"{shown(file)}:{number}: {text}" for number, text in self.lines(file))

    def files(self, path: str) -> Iterator[str]:
        """The paths to search: the file itself, or all below a directory that the glob lets through."""
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
            if entry.is_file and _named(entry.path, self.query.glob):
                yield entry.path

    def lines(self, path: str) -> Iterator[tuple[int, str]]:
        """The lines of a file that match, with their numbers from 1. A binary file has none."""
        data = self.read(path)
        needle = self.query.pattern.encode(errors="replace")
        if b"\0" in data[:_PROBE] or (needle not in data and not self.query.ignore_case):
            return
        for number, line in enumerate(data.split(b"\n"), 1):
            text = line.decode(errors="replace").rstrip("\r")
            if (at := self.position(text)) >= 0:
                yield number, _around(text, at)

    def read(self, path: str) -> bytes:
        """The bytes of a file, within the bounds."""
        with self.root.parent(path) as (directory, name), os.fdopen(directory.file(name), "rb") as file:
            data = file.read(min(MAX_FILE, self.bytes_left))
            if file.read(1):
                self.met["the ends of large files were not searched"] = None
        self.bytes_left -= len(data)
        return data

    def position(self, text: str) -> int:
        """Where the pattern is in a line, -1 for nowhere."""
        if self.query.ignore_case:
            return text.casefold().find(self.query.pattern.casefold())
        return text.find(self.query.pattern)


def search(root: Root, path: str, query: Query) -> str:
    """The lines of `search_files`; a last one in brackets when a bound was met. Raises `FileError`."""
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


def _named(path: str, glob: str) -> bool:
    """Whether a glob lets a path through: by the last name, or by the whole path if the glob has a slash."""
    return fnmatchcase(path if "/" in glob else path.rpartition("/")[2], glob)


def _around(text: str, at: int) -> str:
    """A line as the answer shows it: whole, or what is around the place."""
    if len(text) <= _WIDTH:
        return text
    start = min(max(0, at - _WIDTH // 4), max(0, len(text) - _WIDTH))
    end = start + _WIDTH
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
