"""Base of all our stores: checks of arguments, and the rules of leases.

A store is a `BaseStore` with hooks: each public method checks its arguments once for every store, then calls
the hook of the same name with an underscore. The lease rules work on a `Claims`, the store's table of claims
inside one transaction, so that memory and SQLite agree on who may take a run.

Time is the store's own clock, which all processes that share a file read. A lease is valid until an instant
of that clock. If a lease ends later than its length from now, the clock was set back after it was written.
The next read cuts it to its length, so that it does not block the run for longer.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Protocol, Self, TypeVar, TypeVarTuple

from refold.store.checks import (
    check_append,
    check_erasure,
    check_holder,
    check_prefix,
    check_run,
    check_seal,
    milliseconds,
)
from refold.store.durability import Durability
from refold.store.protocol import (
    LEASE_SECONDS,
    Claim,
    Conflict,
    Head,
    Held,
    Lease,
    LeaseLost,
    Origin,
    Record,
    Seal,
    SealedElsewhere,
    SealedHead,
    Snapshot,
    Stored,
    StoreError,
    UnknownRun,
)

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Claims(Protocol):
    """The claims of a store inside one transaction. Lengths are milliseconds."""

    def token(self, run: str) -> int:
        """Return the token of the run's last lease; 0 if it was never leased."""
        ...

    def has_events(self, run: str) -> bool:
        """Return whether the run has an event of its own."""
        ...

    def claim(self, run: str) -> Claim | None:
        """Return the run's claim, cut to its own length if it ends later."""
        ...

    def woken(self, run: str) -> bool:
        """Return whether the run was woken while an engine had it."""
        ...

    def fence(self, run: str) -> int:
        """Give the run a greater token and return it: all earlier leases are lost. The run may be new."""
        ...

    def set_claim(self, run: str, holder: str, length: int) -> None:
        """Claim the run for `length` from now; with `holder` "" it is free, and due then."""
        ...

    def renew_claim(self, run: str, length: int) -> None:
        """Set the end of the existing claim to `length` from now."""
        ...

    def drop_claim(self, run: str) -> None:
        """Delete the run's claim."""
        ...

    def wake(self, run: str) -> None:
        """Make a free run due now; mark a leased one as woken."""
        ...


def take_lease(claims: Claims, run: str, holder: str, length: int, over: int | None) -> Lease | Held:
    """Take the run for `length` ms. Returns `Held`, and changes nothing, if an engine has it."""
    held = claims.claim(run)
    if held and held.holder and held.seconds > 0 and held.token != over:
        return Held(run, held.holder, held.token, held.seconds)
    token = claims.fence(run)
    # The engine that takes the run reads its complete log, so an earlier wake needs no further answer.
    claims.set_claim(run, holder, length)
    return Lease(run=run, token=token)


def renew_lease(claims: Claims, lease: Lease, length: int) -> LeaseLost | None:
    """Extend the lease to `length` ms from now. Returns `LeaseLost` if it is no longer the run's lease."""
    token = claims.token(lease.run)
    if lease.token != token or not token:
        return LeaseLost(lease.run, lease.token, token)
    claims.renew_claim(lease.run, length)
    return None


def release_lease(claims: Claims, lease: Lease, after: int | None) -> None:
    """Release the run, to be due in `after` ms; None: when it is woken. A lost lease changes nothing."""
    token = claims.token(lease.run)
    if lease.token != token or not token:
        return
    length = 0 if claims.woken(lease.run) else after
    claims.fence(lease.run)
    if length is None:
        claims.drop_claim(lease.run)
    else:
        claims.set_claim(lease.run, "", length)


def give_up(claims: Claims, run: str) -> None:
    """Release the run after its last append: it waits for nothing, even if it was woken."""
    claims.fence(run)
    claims.drop_claim(run)


def wake_run(claims: Claims, run: str) -> None:
    """Make the run due as soon as it is free. Raises `UnknownRun`."""
    if not claims.has_events(run):
        raise UnknownRun(run)
    claims.wake(run)


def refusal(run: str, token: int, seq: int, expected_seq: int, lease: Lease) -> StoreError | None:
    """Return why a run with this token and last event `seq` refuses the append; None if it accepts it."""
    # The lease first: an engine that lost it should stop instead of reading again.
    if token != lease.token:
        return LeaseLost(run, lease.token, token)
    return None if seq == expected_seq else Conflict(run, expected_seq, seq)


def check_sealed(size: int, heads: Sequence[SealedHead], seal: Seal) -> None:
    """Raise `SealedElsewhere` unless the entries continue a log of heads of `size` entries."""
    expected = seal.size - len(heads)
    if size != expected:
        raise SealedElsewhere(expected, size)


class BaseStore(ABC):
    """A store whose hooks do the work.

    Opened by `open_store`, closed by `aclose` or at the end of `async with`.
    """

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        """See `Store.append`."""
        check_append(run, expected_seq, lease, records)
        return await self._append(run, expected_seq, lease, records, release=release)

    async def head(self, run: str) -> Head:
        """See `Store.head`."""
        check_run(run)
        return await self._head(run)

    def read(
        self, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
    ) -> AsyncIterator[Sequence[Stored]]:
        """See `Store.read`."""
        check_run(run)
        return self._pages(run, after, upto, checked=checked)

    async def read_some(self, run: str, seqs: Sequence[int], *, checked: bool = True) -> Sequence[Stored]:
        """See `Store.read_some`."""
        check_run(run)
        return await self._read_some(run, seqs, checked=checked)

    async def read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]:
        """See `Store.read_kinds`."""
        check_run(run)
        return await self._read_kinds(run, kinds)

    async def lineage(self, run: str) -> Sequence[Origin]:
        """See `Store.lineage`."""
        check_run(run)
        return await self._lineage(run)

    async def erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head:
        """See `Store.erase`."""
        check_erasure(run, expected_seq, lease, seqs, notice)
        return await self._erase(run, expected_seq, lease, seqs, notice)

    async def lease(
        self, run: str, *, holder: str, seconds: float = LEASE_SECONDS, over: int | None = None
    ) -> Lease:
        """See `Store.lease`."""
        check_run(run)
        check_holder(holder)
        taken = await self._transact(take_lease, run, holder, milliseconds(seconds), over)
        if isinstance(taken, Held):
            raise taken
        return taken

    async def renew(self, lease: Lease, seconds: float = LEASE_SECONDS) -> None:
        """See `Store.renew`."""
        if lost := await self._transact(renew_lease, lease, milliseconds(seconds)):
            raise lost

    async def release(self, lease: Lease, after: float | None = None) -> None:
        """See `Store.release`."""
        later = None if after is None else milliseconds(max(after, 0.0))
        await self._transact(release_lease, lease, later)

    async def wake(self, run: str) -> None:
        """See `Store.wake`."""
        check_run(run)
        await self._transact(wake_run, run)

    async def due(self, most: int) -> Sequence[str]:
        """See `Store.due`."""
        return await self._due(max(most, 0))

    async def take_due(
        self, most: int, *, holder: str, seconds: float = LEASE_SECONDS, skip: Collection[str] = ()
    ) -> Sequence[Lease]:
        """See `Store.take_due`."""
        check_holder(holder)
        return await self._take_due(max(most, 0), holder, milliseconds(seconds), frozenset(skip))

    async def wait_due(self, seconds: float) -> None:
        """See `Store.wait_due`."""
        from anyio import sleep

        await sleep(seconds)

    async def claim(self, run: str) -> Claim | None:
        """See `Store.claim`."""
        check_run(run)
        return await self._claim(run)

    async def save_snapshot(self, run: str, snapshot: Snapshot) -> None:
        """See `Store.save_snapshot`."""
        check_run(run)
        await self._save_snapshot(run, snapshot)

    async def snapshot(self, run: str, version: str) -> Snapshot | None:
        """See `Store.snapshot`."""
        check_run(run)
        return await self._snapshot(run, version)

    async def add_seal(self, heads: Sequence[SealedHead], seal: Seal) -> None:
        """See `Store.add_seal`."""
        check_seal(heads, seal)
        await self._add_seal(heads, seal)

    def sealed_heads(self, after: int = 0) -> AsyncIterator[Sequence[SealedHead]]:
        """See `Store.sealed_heads`."""
        return self._sealed_heads(max(after, 0))

    @abstractmethod
    def seals(self) -> AsyncIterator[Sequence[Seal]]:
        """See `Store.seals`."""

    def runs(self, prefix: str = "") -> AsyncIterator[Sequence[tuple[str, Head]]]:
        """See `Store.runs`. Runs are as new as their first append."""
        check_prefix(prefix)
        return self._runs(prefix)

    @abstractmethod
    async def check(self) -> None:
        """See `Store.check`."""

    async def durability(self) -> Durability:
        """See `Store.durability`. Unknown unless a store overrides it."""
        return Durability()

    @abstractmethod
    async def aclose(self) -> None:
        """See `Store.aclose`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # The hooks. Arguments are checked already. Each is one transaction and raises as its public method.

    @abstractmethod
    async def _transact(self, rule: Callable[[Claims, *Args], T], *args: *Args) -> T:
        """Run a lease rule in a write transaction."""

    @abstractmethod
    async def _append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool
    ) -> Head: ...

    @abstractmethod
    async def _head(self, run: str) -> Head: ...

    @abstractmethod
    def _pages(
        self, run: str, after: int, upto: int | None, *, checked: bool
    ) -> AsyncIterator[Sequence[Stored]]: ...

    @abstractmethod
    async def _read_some(self, run: str, seqs: Sequence[int], *, checked: bool) -> Sequence[Stored]: ...

    @abstractmethod
    async def _read_kinds(self, run: str, kinds: Collection[str]) -> Sequence[Stored]: ...

    @abstractmethod
    async def _lineage(self, run: str) -> Sequence[Origin]: ...

    @abstractmethod
    async def _erase(
        self, run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record
    ) -> Head: ...

    @abstractmethod
    async def _due(self, most: int) -> Sequence[str]: ...

    async def _take_due(self, most: int, holder: str, length: int, skip: Collection[str]) -> Sequence[Lease]:
        """Lease due runs one after another; a run that another caller leased meanwhile is left out."""
        taken = list[Lease]()
        listed = await self._due(most + len(skip)) if most else ()
        for run in [run for run in listed if run not in skip][:most]:
            lease = await self._transact(take_lease, run, holder, length, None)
            if isinstance(lease, Lease):
                taken.append(lease)
        return taken

    @abstractmethod
    async def _claim(self, run: str) -> Claim | None: ...

    @abstractmethod
    async def _save_snapshot(self, run: str, snapshot: Snapshot) -> None: ...

    @abstractmethod
    async def _snapshot(self, run: str, version: str) -> Snapshot | None: ...

    @abstractmethod
    async def _add_seal(self, heads: Sequence[SealedHead], seal: Seal) -> None: ...

    @abstractmethod
    def _sealed_heads(self, after: int) -> AsyncIterator[Sequence[SealedHead]]: ...

    @abstractmethod
    def _runs(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, Head]]]: ...
