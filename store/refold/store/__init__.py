"""Bytes on disk: append-only logs, a hash chain over each, and what every store promises."""

from refold.store.chain import GENESIS, check
from refold.store.memory import MemoryStore
from refold.store.protocol import (
    Conflict,
    DamagedStore,
    Head,
    Lease,
    LeaseLost,
    NotAStore,
    Record,
    Store,
    Stored,
    StoreError,
    StoreUnavailable,
    UnknownRun,
)
from refold.store.sqlite import SqliteStore

__all__ = [
    "GENESIS",
    "Conflict",
    "DamagedStore",
    "Head",
    "Lease",
    "LeaseLost",
    "MemoryStore",
    "NotAStore",
    "Record",
    "SqliteStore",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "Stored",
    "UnknownRun",
    "check",
]
