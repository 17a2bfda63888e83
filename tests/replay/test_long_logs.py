"""Logs that are long, or wrong all the way: what is kept of them is bounded."""

from collections.abc import AsyncIterator, Sequence
from importlib import import_module

import pytest

from bench.workload import Group, answered, begun, returned
from refold.reducers import advance
from refold.reducers.guards import Registry
from refold.replay import Audit
from refold.replay.audit import MOST
from refold.replay.timeline import turns
from refold.store import MemoryStore
from refold.store.protocol import Stored
from support import audits, runs

AUDITING = import_module("refold.replay.audit")  # the package has a function of this name
STEPS = 130
SAME = {"limits": [], "guards": [{"guard": "stall", "identical": [3, 1000]}]}


@pytest.fixture(scope="module")
def circle() -> list[Group]:
    """A run that makes the same call again and again, and is warned in nearly every request."""
    state, group = begun(SAME)
    groups = [group]
    for _ in range(STEPS):
        state, group = advance(state, answered(state, 0))
        groups.append(group)
        state, group = advance(state, returned(state, 0))
        groups.append(group)
    return groups


def audited(log: list[Group], registry: Registry) -> Audit:
    """What an audit finds that has these guards."""
    return audits.audited((event for group in log for event in group), registry)


def test_what_cannot_be_judged_is_counted_and_not_kept(circle: list[Group]) -> None:
    """Of groups without their guard the first hundred are kept, and all are counted."""
    found = audited(circle, {})
    assert (MOST, 0, False) == (len(found.unreplayable), found.differences, found.clean)
    assert found.unjudged > MOST


def test_states_are_kept_while_there_is_room(circle: list[Group], monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding beyond the bytes for states has none; the first always has its own."""
    whole = audited(circle, {})
    room = sum(len(each.state) for each in whole.unreplayable[:3])
    monkeypatch.setattr(AUDITING, "_STATES", room)
    assert [True] * 3 + [False] * 97 == [bool(each.state) for each in audited(circle, {}).unreplayable]
    monkeypatch.setattr(AUDITING, "_STATES", 0)
    assert [True] + [False] * 99 == [bool(each.state) for each in audited(circle, {}).unreplayable]


class Counting(MemoryStore):
    """Counts the pages that were read of it."""

    pages = 0

    def read(
        self, run: str, after: int = 0, upto: int | None = None, *, checked: bool = True
    ) -> AsyncIterator[Sequence[Stored]]:
        """See `Store.read`; a page for each event."""
        return self._one_by_one(super().read(run, after, upto, checked=checked))

    async def _one_by_one(self, chunks: AsyncIterator[Sequence[Stored]]) -> AsyncIterator[Sequence[Stored]]:
        async for chunk in chunks:
            for stored in chunk:
                self.pages += 1
                yield (stored,)


@pytest.mark.anyio
async def test_a_turn_is_told_when_the_next_begins() -> None:
    """Whoever reads the turns one by one has no more than one of them in memory, and no log."""
    store = Counting()
    await runs.recorded_run(store)
    store.pages = 0
    last = (await store.head(runs.RUN)).seq
    told: list[tuple[int, int, int]] = []
    async for turn in turns(store, runs.RUN, last):
        told.append((turn.step, turn.first, store.pages))
    assert [1, 2, 3, 4] == [step for step, *_ in told]
    following = [first for _, first, _ in told[1:]]
    assert [*following, last] == [read for *_, read in told]
