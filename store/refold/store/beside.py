"""Files that are there whole or not at all: written under a name beside their own, and renamed when they are done."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.reducers.errors import WorldFailed, WrongUse

_TRAILS = ("", "-wal", "-shm", "-journal")  # what SQLite leaves beside its file when it is stopped half-way


@contextmanager
def written_beside(path: Path) -> Generator[Path]:
    """A path to write at, which becomes `path` if all goes well; else nothing is left of it.

    Raises `WrongUse` where `path` is there already, at the beginning or at the end, `WorldFailed` where it
    cannot be written.
    """
    if os.path.lexists(path):
        raise _taken(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        _named(partial, path)
    except OSError as error:
        raise WorldFailed(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        for trail in _TRAILS:
            with suppress(FileNotFoundError):
                partial.with_name(partial.name + trail).unlink()


def _named(partial: Path, path: Path) -> None:
    # A link never replaces a file that came meanwhile. Not every file system has them.
    try:
        path.hardlink_to(partial)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError:
        partial.rename(path)


def _taken(path: Path) -> WrongUse:
    return WrongUse(f"{path}: is there already, and is not written over: choose another name")
