"""Files that are there whole or not at all: written under a name beside their own, and renamed when they are done."""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.reducers.errors import WorldFailed, WrongUse

_TRAILS = ("", "-wal", "-shm", "-journal")  # what SQLite leaves beside its file when it is stopped half-way


@contextmanager
def written_beside(path: Path, *, force: bool = False) -> Generator[Path]:
    """A path to write at, which becomes `path` if all goes well; else nothing is left of it.

    Raises `WrongUse` where `path` is there already, at the beginning or at the end; with `force` only where it is no
    file. Raises `WorldFailed` where it cannot be written.
    """
    check_free(path, force=force)
    # A name that cannot be guessed: a link that was put there would be followed.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield partial
        if force:
            partial.replace(path)
        else:
            _named(partial, path)
    except OSError as error:
        raise WorldFailed(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        for trail in _TRAILS:
            with suppress(FileNotFoundError):
                partial.with_name(partial.name + trail).unlink()


def check_free(path: Path, *, force: bool = False) -> None:
    """Refuse a path that is taken. Raises `WrongUse`."""
    if not os.path.lexists(path) or (force and path.is_file()):
        return
    raise (
        WrongUse(f"{path}: is no file that could be written over: choose another name")
        if force
        else _taken(path)
    )


def _named(partial: Path, path: Path) -> None:
    # A link never replaces a file that came meanwhile. Not every file system has them.
    try:
        path.hardlink_to(partial)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError:
        partial.rename(path)


def _taken(path: Path) -> WrongUse:
    return WrongUse(
        f"{path}: is there already, and is not written over: choose another name, or --force where there is one"
    )
