"""Files of an import, opened.

Other programs append to these files while refold reads each several times: to compute its digest, detect its
format and derive its runs. All passes see the same bytes; later ones are left to the next import.
"""

import io
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from refold.reducers.errors import ExternalFailure

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 1 << 18


class Unreadable(ExternalFailure):
    """A file that the operating system refuses to read."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return f"{self.name}: cannot be read: {self.problem}"


@contextmanager
def open_snapshot(path: Path, name: str, size: int | None = None) -> Generator[BinaryIO]:
    """Open a file up to its current size, or to `size`. Raises `Unreadable`, also if a later read fails."""
    try:
        file = io.FileIO(path, "rb", opener=_open_without_blocking)
    except OSError as error:
        raise Unreadable(name, error.strerror or str(error)) from error
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable(name, "it is not a regular file")
        yield cast("BinaryIO", io.BufferedReader(_Upto(file, name, size), _BUFFER))


def _open_without_blocking(path: str, flags: int) -> int:
    # Never block on a pipe that replaced the file meanwhile.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class _Upto(io.RawIOBase):
    """A file up to the size that it had when it was opened."""

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


_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""Replaces line breaks, which JSON allows only between tokens."""


class FoundFile(msgspec.Struct, frozen=True):
    """A file. `name` is its name in reports: its path below the given folder, else as typed.

    `walked`: it was found in a folder. `skipped`: why it is not opened. `parts`: it is a folder, and these of
    its files, in order, form one transcript with a JSON value per line.
    """

    path: Path
    name: str
    walked: bool = False
    skipped: str = ""
    parts: tuple[Path, ...] = ()

    @property
    def looks_like_transcript(self) -> bool:
        """Whether its name marks it as a transcript, so that it is reported if it cannot be read."""
        return bool(self.parts) or (self.path.suffix in (".jsonl", ".eval") and self.path.stat().st_size > 0)

    @contextmanager
    def open(self, upto: int | None = None) -> Generator[BinaryIO]:
        """Open its bytes, at most `upto` of them. Raises `Unreadable` as `open_snapshot` does."""
        if not self.parts:
            with open_snapshot(self.path, self.name, upto) as file:
                yield file
            return
        with TemporaryFile() as joined:
            for part in self.parts:
                with open_snapshot(part, self.name) as file:
                    joined.write(file.read().translate(_ONE_LINE) + b"\n")
            joined.truncate(joined.tell() if upto is None else min(upto, joined.tell()))
            joined.seek(0)
            yield cast("BinaryIO", joined)
