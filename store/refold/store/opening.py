"""Addresses of stores, and opening a store by its address.

An address is the path of a SQLite file (`runs.db`, or a `Path`), `sqlite:PATH` for the same, or `memory:` for
a new store in memory. Write a path that looks like another address, such as `old:runs.db`, as `./old:runs.db`
or `sqlite:old:runs.db`; a `Path` is always a path.
"""

import re
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from refold.reducers.errors import WrongUse
from refold.store.protocol import RECORDING

if TYPE_CHECKING:
    from refold.store.base import BaseStore

MEMORY: Final = "memory"
SQLITE: Final = "sqlite"

_KNOWN = "the path of a file, sqlite:PATH, or memory:"

# At least two letters, so that the drive in `C:\\runs.db` is not a scheme.
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]+):")


class StoreAddress(NamedTuple):
    """The kind of a store and its path; `path` is "" for one in memory."""

    scheme: Literal["memory", "sqlite"]
    path: str


def store_address(address: str | PathLike[str]) -> StoreAddress:
    """Parse an address. Raises `WrongUse` for an unknown scheme, or a path that the scheme does not allow."""
    text = fspath(address)
    match = _SCHEME.match(text) if isinstance(address, str) else None
    if match is None:
        return StoreAddress(SQLITE, text)
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme == MEMORY:
        if rest:
            raise WrongUse(f"store {text!r}: a store in memory has no name: use memory:")
        return StoreAddress(MEMORY, "")
    if scheme != SQLITE:
        raise WrongUse(
            f"store {text!r}: unknown scheme {match[1]!r}; expected {_KNOWN} (for a file: ./{text})"
        )
    if not rest or rest.startswith("//"):
        raise WrongUse(f"store {text!r}: expected a path after sqlite:, as in sqlite:runs.db")
    return StoreAddress(SQLITE, rest)


async def open_store(
    address: str | PathLike[str],
    *,
    durability: Literal["fsync", "process"] = "fsync",
    readonly: bool = False,
) -> "BaseStore":
    """Open the store at an address; create it if it does not exist.

        async with await open_store("runs.db") as store: ...

    Args:
        address: the path of a SQLite file, `sqlite:PATH`, or `memory:` for a new store in memory.
        durability: with `"fsync"` a returned append survives a power cut, with `"process"` the end of this
            process but not always a power cut. A store in memory survives neither.
        readonly: for audits: no store is created or written; the path may be that of a recording. SQLite may
            still create its `-shm` and `-wal` beside the file.

    Raises:
        WrongUse: an invalid address, or `readonly` for a store in memory, which would stay empty.
        NotAStore: another kind of file, another schema, or no folder; nothing was changed.
        StoreUnavailable: the disk or the database failed.
        DamagedStore: the database is corrupt.
    """
    scheme, path = store_address(address)
    if scheme == MEMORY:
        if readonly:
            raise WrongUse("store 'memory:': a new store in memory is empty: open it without readonly")
        return open_memory()
    if readonly and is_recording(path):
        return open_recording(path)
    from refold.store.sqlite import SqliteStore

    return await SqliteStore.open(path, durability=durability, readonly=readonly)


def open_memory(now: Callable[[], float] = monotonic) -> "BaseStore":
    """Create a store in memory, without awaiting. `now` is the clock of its leases, in seconds."""
    from refold.store.memory import MemoryStore

    return MemoryStore(now)


def open_here(path: str | PathLike[str]) -> "BaseStore":
    """Open a SQLite file or a recording for reading in the calling thread, for sequential programs.

    It needs no event loop and starts no thread: the store's methods never wait. Raises as `open_store`.
    """
    if is_recording(path):
        return open_recording(path)
    from refold.store.sqlite import SqliteStore

    return SqliteStore.open_here(path)


def open_recording(path: str | PathLike[str]) -> "BaseStore":
    """Open a recording, a log as JSON lines, for reading. Raises as `read_recording`."""
    from refold.store.recordings import RecordingStore

    return RecordingStore(Path(path))


def is_recording(path: str | PathLike[str]) -> bool:
    """Return whether a file begins like a recording; False for one that is missing or cannot be read."""
    try:
        if not Path(path).is_file():  # opening a pipe would wait for a writer
            return False
        with open(path, "rb") as file:
            return file.read(len(RECORDING)) == RECORDING
    except (OSError, ValueError):
        return False
