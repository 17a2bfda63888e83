"""Logs of a bundle, loaded into memory to be read like a store."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from refold.reducers.errors import WrongUse
from refold.store.base import Claims
from refold.store.durability import Durability
from refold.store.memory import MemoryStore
from refold.store.protocol import Head, Lease, Record

T = TypeVar("T")
Args = TypeVarTuple("Args")


class LoadedStore(MemoryStore):
    """Logs in memory that were read from a file. It never waits, so it needs no event loop.

    Every method that writes raises `WrongUse`.
    """

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(waits=False)
        self._path, self._kind = path, kind

    async def _append(
        self,
        run: str,
        expected_seq: int,  # noqa: ARG002
        lease: Lease,  # noqa: ARG002
        records: Sequence[Record],  # noqa: ARG002
        *,
        release: bool,  # noqa: ARG002
    ) -> Head:
        raise self._refusal(run)

    async def _transact(self, rule: Callable[[Claims, *Args], T], *args: *Args) -> T:  # noqa: ARG002
        raise self._refusal(str(args[0]) if args else "")

    async def durability(self) -> Durability:
        """See `Store.durability`. What the file survives is not known."""
        return Durability()

    def _refusal(self, run: str) -> WrongUse:
        return WrongUse(f"{self._path}: run {run}: {self._kind} are read-only: name a store, such as runs.db")
