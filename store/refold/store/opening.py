"""Addresses of stores, and how each is opened.

An address is the path of a SQLite file (`runs.db`, or a `Path`), `sqlite:PATH` for the same said in full, or
`memory:` for a new store in memory. A path whose text could be an address, as `old:runs.db`, is written
`./old:runs.db` or `sqlite:old:runs.db`; a `Path` is always a path.
"""

import re
from collections.abc import Callable
from os import PathLike, fspath
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from refold.reducers.errors import WrongUse

if TYPE_CHECKING:
    from refold.store.base import BaseStore

MEMORY: Final = "memory"
SQLITE: Final = "sqlite"

_KNOWN = "the path of a file, sqlite:PATH, or memory:"

# Two letters at least, so that the drive in `C:\\runs.db` is none.
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]+):")


class StoreAddress(NamedTuple):
    """Which kind of store, and where: `path` is "" for one in memory."""

    scheme: Literal["memory", "sqlite"]
    path: str


def store_address(address: str | PathLike[str]) -> StoreAddress:
    """Read an address. Raises `WrongUse` for an unknown scheme, or a place that the scheme does not take."""
    text = fspath(address)
    match = _SCHEME.match(text) if isinstance(address, str) else None
    if match is None:
        return StoreAddress(SQLITE, text)
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme == MEMORY:
        if rest:
            raise WrongUse(f"store {text!r}: a store in memory has no name: write memory:")
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
    """Open the store at an address; make it if there is none.

        async with await open_store("runs.db") as store: ...

    Args:
        address: the path of a SQLite file, `sqlite:PATH`, or `memory:` for a new store in memory.
        durability: with `"fsync"` an append that returned survives a power cut, with `"process"` the end of
            this process but not always a power cut. A store in memory survives neither.
        readonly: for audits: no store is made or written. SQLite may still put its `-shm` and `-wal` beside
            the file.

    Raises:
        WrongUse: an address that names no store, or `readonly` for one in memory, which would stay empty.
        NotAStore: another kind of file, another schema, no folder; nothing was changed.
        StoreUnavailable: the disk or the database failed.
        DamagedStore: the database is corrupt.
    """
    scheme, path = store_address(address)
    if scheme == MEMORY:
        if readonly:
            raise WrongUse("store 'memory:': a new store in memory is empty: open it without readonly")
        return open_memory()
    from refold.store.sqlite import SqliteStore

    return await SqliteStore.open(path, durability=durability, readonly=readonly)


def open_memory(now: Callable[[], float] = monotonic) -> "BaseStore":
    """Make a store in memory, without awaiting. `now` is the clock, in seconds, by which its leases run
    out.
    """
    from refold.store.memory import MemoryStore

    return MemoryStore(now)


def open_here(path: str | PathLike[str]) -> "BaseStore":
    """Open a SQLite file to be read in the calling thread, for a program that does one thing after another.

    No event loop is needed and no thread is made: none of the store's methods ever waits. Raises as
    `open_store`.
    """
    from refold.store.sqlite import SqliteStore

    return SqliteStore.open_here(path)
