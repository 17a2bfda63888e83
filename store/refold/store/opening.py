"""Addresses of stores, and opening a store by its address.

| address | store |
|---|---|
| `runs.db`, or a `Path` | a SQLite file; to read, also a recording |
| `sqlite:PATH` | a SQLite file |
| `postgresql://HOST/DATABASE` | a schema in PostgreSQL: see `refold.store.postgres.address` |
| `bundle:PATH` | a bundle, to read |
| `memory:` | a new store in memory |

Write a path that looks like another address, such as `old:runs.db`, as `./old:runs.db` or
`sqlite:old:runs.db`; a `Path` is always a path.
"""

import re
from collections.abc import Callable
from importlib.util import find_spec
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
POSTGRES: Final = "postgresql"
BUNDLE: Final = "bundle"

Scheme = Literal["memory", "sqlite", "postgresql", "bundle"]

_KNOWN = "the path of a file, sqlite:PATH, postgresql://HOST/DATABASE, bundle:PATH, or memory:"
_ALIASES = {"postgres": POSTGRES}

# At least two letters, so that the drive in `C:\\runs.db` is not a scheme.
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]+):")

# A path like these is probably an address that was mistyped or quoted, or libpq's `host=h password=p`. It may
# have a password, and messages display paths.
_LIKE_POSTGRES = re.compile(
    r"://|(?:passw\w*|secret|_key)\s*=|//[^/]*:[^/]*@|\bpostgres\w*\W*/.*@", re.IGNORECASE | re.DOTALL
)


class StoreAddress(NamedTuple):
    """The kind of a store, and where it is: a path, the URL of a database, or "" for one in memory."""

    scheme: Scheme
    path: str

    @property
    def shown(self) -> str:
        """The address for messages and reports, without passwords."""
        if self.scheme == POSTGRES:
            return _without_passwords(self.path)
        return self.path if self.scheme == SQLITE else f"{self.scheme}:{self.path}"

    @property
    def file(self) -> Path | None:
        """The file in which the store is; None if it is in none."""
        return Path(self.path) if self.scheme in (SQLITE, BUNDLE) else None


def store_address(address: str | PathLike[str]) -> StoreAddress:
    """Parse an address. Raises `WrongUse` for an unknown scheme, or a path that the scheme does not allow."""
    text = fspath(address)
    match = _SCHEME.match(text) if isinstance(address, str) else None
    if match is None:
        return StoreAddress(SQLITE, _path(text))
    scheme, rest = match[1].lower(), text[match.end() :]
    scheme = _ALIASES.get(scheme, scheme)
    if scheme == POSTGRES:
        if not rest.startswith("//"):
            raise WrongUse(f"store {match[0]!r}...: expected postgresql://HOST/DATABASE")
        return StoreAddress(POSTGRES, text)
    if scheme == MEMORY and not rest:
        return StoreAddress(MEMORY, "")
    if scheme in (SQLITE, BUNDLE) and rest and not rest.startswith("//"):
        return StoreAddress(SQLITE if scheme == SQLITE else BUNDLE, _path(rest))
    shown = _without_passwords(text)
    if scheme == MEMORY:
        raise WrongUse(f"store {shown!r}: a store in memory has no name: use memory:")
    if scheme not in (SQLITE, BUNDLE):
        raise WrongUse(
            f"store {shown!r}: unknown scheme {match[1]!r}; expected {_KNOWN} (for a file: ./{shown})"
        )
    example = "sqlite:runs.db" if scheme == SQLITE else "bundle:runs.zip"
    raise WrongUse(f"store {shown!r}: expected a path after {scheme}:, as in {example}")


def _path(text: str) -> str:
    """Return a path. Raises `WrongUse`, without the text, if it looks like an address with a password."""
    if _LIKE_POSTGRES.search(text):
        raise WrongUse(
            "store: this looks like a PostgreSQL address, not a path: write it as postgresql://HOST/DATABASE, "
            "without quotes or spaces"
        )
    return text


def _without_passwords(text: str) -> str:
    from refold.store.postgres.address import show_address

    return show_address(text)


async def open_store(
    address: str | PathLike[str],
    *,
    durability: Literal["fsync", "process"] = "fsync",
    readonly: bool = False,
) -> "BaseStore":
    """Open the store at an address; create it if it does not exist.

        async with await open_store("runs.db") as store: ...

    Args:
        address: see above.
        durability: with `"fsync"` a returned append survives a power cut, with `"process"` the end of this
            process but not always a power cut. PostgreSQL promises what its settings say; with `"process"` it
            does not wait for its disk. A store in memory survives neither.
        readonly: for audits: no store is created or written; the path may be that of a recording. SQLite may
            still create its `-shm` and `-wal` beside the file.

    Raises:
        WrongUse: an invalid address; `readonly` for a store in memory, which would stay empty; a bundle
            without it; or psycopg is not installed.
        NotAStore: another kind of file, another schema, or no folder; nothing was changed.
        StoreUnavailable: the disk, the database or the network failed.
        DamagedStore: the database is corrupt.
    """
    scheme, path = store_address(address)
    if scheme == MEMORY:
        if readonly:
            raise WrongUse("store 'memory:': a new store in memory is empty: open it without readonly")
        return open_memory()
    if scheme == POSTGRES:
        _require_psycopg()
        from refold.store.postgres.store import PostgresStore

        return await PostgresStore.open(path, durability=durability, readonly=readonly)
    if scheme == BUNDLE:
        if not readonly:
            raise WrongUse(
                f"store 'bundle:{path}': a bundle is read-only: `refold unpack` makes a store of it"
            )
        return open_bundle_store(path)
    if readonly and is_recording(path):
        return open_recording(path)
    from refold.store.sqlite import SqliteStore

    return await SqliteStore.open(path, durability=durability, readonly=readonly)


def open_memory(now: Callable[[], float] = monotonic) -> "BaseStore":
    """Create a store in memory, without awaiting. `now` is the clock of its leases, in seconds."""
    from refold.store.memory import MemoryStore

    return MemoryStore(now)


def open_here(address: str | PathLike[str]) -> "BaseStore":
    """Open a store for reading in the calling thread, for sequential programs.

    It needs no event loop and starts no thread: the store's methods never wait. Raises as `open_store`.
    """
    scheme, path = store_address(address)
    if scheme == MEMORY:
        raise WrongUse("store 'memory:': a new store in memory is empty: name another store")
    if scheme == POSTGRES:
        _require_psycopg()
        from refold.store.postgres.store import PostgresStore

        return PostgresStore.open_here(path)
    if scheme == BUNDLE:
        return open_bundle_store(path)
    if is_recording(path):
        return open_recording(path)
    from refold.store.sqlite import SqliteStore

    return SqliteStore.open_here(path)


def open_bundle_store(path: str | PathLike[str]) -> "BaseStore":
    """Check a bundle and load its runs into memory, for reading. Raises as `bundles.open_bundle`."""
    from refold.store.bundles import BundleStore

    return BundleStore(Path(path))


def _require_psycopg() -> None:
    if find_spec("psycopg") is None:
        raise WrongUse(
            "a store in PostgreSQL needs `psycopg`, which is not installed: pip install 'refold[postgres]'"
        )


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
