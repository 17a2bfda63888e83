"""A file that may still be written to, read as far as it reached when it was opened.

Recorders write as they go, and an import reads a file more than once: to digest it, to tell its format, to make runs of
it. All of these see the same bytes; what was added meanwhile is the next import's.
"""

import io
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from refold.reducers.errors import WorldFailed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 1 << 18


class Unreadable(WorldFailed):
    """A file that the system does not let us read: which, and why."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return f"{self.name}: cannot be read: {self.problem}"


@contextmanager
def opened(path: Path, name: str, size: int | None = None) -> Generator[BinaryIO]:
    """The file, to be read, once more as far as it reached before, if `size` says so. Raises `Unreadable`, also whenever a
    reading of it fails.
    """
    try:
        file = io.FileIO(path, "rb", opener=_patient)
    except OSError as error:
        raise Unreadable(name, error.strerror or str(error)) from error
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable(name, "it is no regular file")
        yield cast("BinaryIO", io.BufferedReader(_Upto(file, name, size), _BUFFER))


def _patient(path: str, flags: int) -> int:
    # A pipe that took the file's place since it was looked at would be waited for, maybe for ever.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class _Upto(io.RawIOBase):
    """A file up to the size that it had."""

    def __init__(self, file: io.FileIO, name: str, size: int | None) -> None:
        self._file, self._name = file, name
        self._size = os.fstat(file.fileno()).st_size if size is None else size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_END:
            return self._file.seek(self._size + offset)
        return self._file.seek(offset, whence)

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)
        left = max(0, self._size - self._file.tell())
        try:
            return self._file.readinto(view[:left]) or 0
        except OSError as error:
            raise Unreadable(self._name, error.strerror or str(error)) from error
