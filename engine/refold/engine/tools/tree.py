"""Walking below a root, in one order, within bounds."""

import contextlib
import stat
from collections.abc import Iterator
from typing import NamedTuple

from refold.engine.tools.root import FileError, Root, is_link, names, shown

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

    A directory that cannot be opened, but for the first, is told and passed over. Raises `FileError` for the first.
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
