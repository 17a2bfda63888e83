"""A store in memory, with every promise of a store but durability. For tests, and for runs nobody will ask about."""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from refold.reducers.errors import WrongUse
from refold.store.asking import check_append, check_prefix, check_run
from refold.store.chain import GENESIS, extend
from refold.store.pages import BYTES, ROWS, Pages
from refold.store.protocol import Conflict, Head, Lease, LeaseLost, Record, Stored

_TOKEN = 1


class MemoryStore:
    """A real store that forgets everything at the end.

    Works on every event loop that anyio knows, without threads; belongs to the loop's thread. Every method lets
    other tasks run first, as a store on disk would, so that races show in tests.
    """

    def __init__(self) -> None:
        # Late: whoever imports `refold.store` for its types should not pay for an event loop.
        from anyio.lowlevel import checkpoint

        self._checkpoint = checkpoint
        self._logs: dict[str, list[Stored]] = {}
        self._closed = False

    async def append(self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> Head:
        """See `Store.append`."""
        check_append(run, expected_seq, lease, records)
        await self._turn()
        head = self._head(run)
        if lease.token != _TOKEN:
            raise LeaseLost(run, lease.token, _TOKEN)
        if head.seq != expected_seq:
            raise Conflict(run, expected_seq, head.seq)
        self._logs.setdefault(run, []).extend(extend(run, head, records))
        return self._head(run)

    async def head(self, run: str) -> Head:
        """See `Store.head`."""
        check_run(run)
        await self._turn()
        return self._head(run)

    def read(self, run: str, after: int = 0, upto: int | None = None) -> AsyncIterator[Sequence[Stored]]:
        """See `Store.read`."""
        check_run(run)
        after = max(after, 0)
        last: int | None = None

        async def following() -> Sequence[Stored]:
            nonlocal after, last
            await self._turn()
            log = self._logs.get(run, [])
            if last is None:  # fixed once: a reader must come to an end, however fast the log grows
                last = len(log) if upto is None else min(len(log), max(upto, 0))
            page = _page(log, after, last)
            after += len(page)
            return page

        return Pages(following)

    async def read_some(self, run: str, seqs: Sequence[int]) -> Sequence[Stored]:
        """See `Store.read_some`."""
        check_run(run)
        await self._turn()
        log = self._logs.get(run, [])
        return [log[seq - 1] for seq in sorted(set(seqs)) if 0 < seq <= len(log)]

    async def lease(self, run: str) -> Lease:
        """See `Store.lease`."""
        check_run(run)
        await self._turn()
        return Lease(run=run, token=_TOKEN)

    def runs(self, prefix: str = "") -> AsyncIterator[Sequence[tuple[str, Head]]]:
        """See `Store.runs`. Runs are as new as their first event."""
        check_prefix(prefix)
        names: list[str] | None = None

        async def following() -> Sequence[tuple[str, Head]]:
            nonlocal names
            await self._turn()
            if names is None:
                names = [run for run in reversed(self._logs) if run.startswith(prefix)]
            page, names = names[:ROWS], names[ROWS:]
            return [(run, self._head(run)) for run in page]

        return Pages(following)

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _turn(self) -> None:
        if self._closed:
            raise WrongUse("this store is closed")
        await self._checkpoint()

    def _head(self, run: str) -> Head:
        log = self._logs.get(run)
        return Head(seq=log[-1].seq, hash=log[-1].hash) if log else Head(seq=0, hash=GENESIS)


def _page(log: Sequence[Stored], after: int, upto: int) -> Sequence[Stored]:
    """The events with `after < seq <= upto`, as far as they fit one chunk."""
    page, size = list[Stored](), 0
    for event in log[after : min(upto, after + ROWS)]:
        if size >= BYTES:
            break
        page.append(event)
        size += len(event.body) + len(event.content or b"")
    return page
