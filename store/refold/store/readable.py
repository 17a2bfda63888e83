"""A file of a store that can be read, and its connection: in a thread of its own, or where it is asked."""

import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, Self, TypeVar, TypeVarTuple

from refold.reducers.errors import WrongUse
from refold.store.access import look, open_reader
from refold.store.connection import PagedConnection
from refold.store.problems import translated
from refold.store.protocol import StoreUnavailable

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Reader(Protocol):
    """A connection whose work is done by functions."""

    def run(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> Awaitable[T]:
        """What `function(connection, ...)` returns or raises."""
        ...

    async def close(self) -> None:
        """Close it, after what it was asked for."""
        ...


class Readable:
    """The open file, to be read; `writes` says whether it may be written, too."""

    def __init__(self, path: str, reader: Reader, *, writes: bool = False) -> None:
        self.path, self.writes = path, writes
        self._reader = reader
        self._files = _file(path), _file(f"{path}-wal") if writes else None

    @classmethod
    def open_here(cls, path: Path) -> Self:
        """Open a file that is there. It is read in the thread that asks, and every other task of it waits meanwhile."""
        look(path, readonly=True)
        with translated(str(path)):
            return cls(str(path), _Here(open_reader(path)))
        raise AssertionError  # for the type checkers: nothing is kept back

    def unwritable(self) -> WrongUse:
        """What is said of who wants to write nevertheless."""
        return WrongUse(f"store {self.path}: opened to be read only; open it without `readonly`")

    def check_file(self) -> None:
        """Raise `StoreUnavailable` if the file or its journal was removed or replaced: SQLite would go on in one without a name."""
        file, journal = _file(self.path), _file(f"{self.path}-wal") if self.writes else None
        if self._files[1] is None:
            self._files = self._files[0], journal  # it is made with the first page that is written
        if (file, journal) != self._files:
            what = "file" if file != self._files[0] else "-wal"
            problem = f"the {what} was removed or replaced while it was open: stop what uses the store, put it back, then go on"
            raise StoreUnavailable(self.path, problem)

    async def read(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        """Run a function on the connection that reads. It waits for no writer."""
        self.check_file()
        with translated(self.path):
            return await self._reader.run(function, *args)

    async def close(self) -> None:
        """Close the connection that reads."""
        with translated(self.path):
            await self._reader.close()


class _Here:
    """A connection whose work is done at once, in the thread that asks."""

    def __init__(self, connection: PagedConnection) -> None:
        self._connection = connection

    async def run(self, function: Callable[[PagedConnection, *Args], T], *args: *Args) -> T:
        try:
            return function(self._connection, *args)
        except sqlite3.OperationalError as error:
            # SQLite asks us now and then whether it is to go on. Ctrl-C is heard there, and SQLite only told to end.
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT and not self._connection.endless:
                raise KeyboardInterrupt from error
            raise

    async def close(self) -> None:
        self._connection.close()


def _file(path: str) -> tuple[int, int] | None:
    """Which file it is; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
