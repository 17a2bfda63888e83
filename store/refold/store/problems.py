"""What SQLite's error codes mean for the caller, in plain words and with the way out."""

import sqlite3
from types import TracebackType

from refold.store.protocol import DamagedStore, NotAStore, StoreUnavailable

RECOVER = "copy the file and its -wal, then try `sqlite3 FILE .recover`"
"""The way out of a damaged file."""

_CORRUPT = f"the database is corrupt: {RECOVER}"

_UNAVAILABLE: dict[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, then go on",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make both writable, or copy the file elsewhere",
    sqlite3.SQLITE_BUSY: "another program holds its lock: close that, then go on",
    sqlite3.SQLITE_LOCKED: "another program holds its lock: close that, then go on",
    sqlite3.SQLITE_PROTOCOL: "another program holds its lock: close that, then go on",
    sqlite3.SQLITE_TOOBIG: "an event is larger than a store takes: a body and a content have 256 MiB at most",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened or made: look whether its folder exists and may be written",
    sqlite3.SQLITE_IOERR: "the disk failed: look at the system's log, then go on",
    sqlite3.SQLITE_NOMEM: "out of memory",
}

_DAMAGED: dict[int, str] = {
    sqlite3.SQLITE_CORRUPT: _CORRUPT,
    # Our statements are fixed: what they ask for is missing only from a file that was changed.
    sqlite3.SQLITE_ERROR: "its tables are not those of a store: the schema was changed",
    sqlite3.SQLITE_CONSTRAINT: "its tables refuse what the log needs: the schema or the rows were changed",
    sqlite3.SQLITE_INTERRUPT: "reading it takes more steps than a file of its size needs: it was changed to do so",
    sqlite3.SQLITE_MISMATCH: "its columns are not those of a store: the schema was changed",
}


FAILED = (sqlite3.Error, UnicodeDecodeError)
"""What a statement raises when SQLite fails. What it says quotes the file, and that can be damaged."""


class translated:  # noqa: N801 - it reads as a word: `with translated(path):`
    """Raise our own error for SQLite's, its cause chained. `writing`: whether a commit may be in doubt.

    A class, not a generator: it stands around every append.
    """

    def __init__(self, path: str, *, writing: bool = False) -> None:
        self._path, self._writing = path, writing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, FAILED):
            raise translate(self._path, error, writing=self._writing) from error


def translate(
    path: str, error: sqlite3.Error | UnicodeDecodeError, *, writing: bool = False
) -> StoreUnavailable | DamagedStore | NotAStore:
    """What `error` means for the caller of the store at `path`; its cause is set."""
    told = _translated(path, error, writing=writing)
    told.__cause__ = error
    return told


def _translated(
    path: str, error: sqlite3.Error | UnicodeDecodeError, *, writing: bool
) -> StoreUnavailable | DamagedStore | NotAStore:
    if isinstance(error, UnicodeDecodeError):
        return DamagedStore(path, f"{_CORRUPT} (what SQLite said is not UTF-8)")
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    primary = code & 0xFF if code is not None else None  # the upper bits are detail
    said = f" (SQLite said: {error}; {name})"
    if primary == sqlite3.SQLITE_NOTADB:
        return NotAStore(path, f"is no SQLite database{said}")
    if primary in _DAMAGED:
        return DamagedStore(path, _DAMAGED[primary] + said)
    problem = _UNAVAILABLE.get(primary, "SQLite failed") if primary is not None else "SQLite failed"
    # A failed flush leaves open what reached the disk.
    in_doubt = writing and primary == sqlite3.SQLITE_IOERR
    return StoreUnavailable(path, problem + said, outcome_known=not in_doubt)
