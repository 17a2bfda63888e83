"""The simulation can fail: it detects an engine or a store without one of its promises."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

import refold.engine.run
import refold.engine.service
import refold.engine.world
from refold.engine import CallContext, Finished, Update
from refold.engine.journal import Journal
from refold.engine.loop import Driver
from refold.engine.tenure import Tenure
from refold.engine.tools.protocol import Reconciled
from refold.engine.updates import Subscription
from refold.reducers.effects import Reconcile
from refold.reducers.events import Event
from refold.reducers.state import RunState
from refold.store import MemoryStore
from refold.store.protocol import Head, Lease, Record
from refold.testing.simulation.faults import Fault
from simulation.plays import of_faults

Patch = pytest.MonkeyPatch


def found(scenario: str, *faults: str) -> list[str]:
    """Return the violations after these faults, in five orders of tasks."""
    planned = tuple(map(Fault.parse, faults))
    plays = [of_faults(scenario, *planned, seed=seed) for seed in range(5)]
    return [str(violation) for each in plays for violation in each.play().violations]


def run_again(patch: Patch) -> None:
    """A resuming engine does not record which calls have an unknown outcome, and runs them again."""
    patch.setattr(refold.engine.run, "doubtful", lambda state: ())


def tell_first(patch: Patch) -> None:
    """An engine notifies before its append returned, and writes the events with the next ones."""
    real, late = Journal.append, dict[int, tuple[Any, ...]]()

    async def append(
        self: Journal, before: RunState, after: RunState, events: Sequence[Event], salt: bytes
    ) -> None:
        earlier = late.pop(id(self), None)
        if earlier is not None:
            await real(self, *earlier)
        late[id(self)] = (before, after, events, salt)
        self.keep(before, after, events)

    patch.setattr(Journal, "append", append)


def believe(patch: Patch) -> None:
    """An engine assumes that an append with unknown outcome was written."""

    async def read_again(
        self: Driver, before: RunState, after: RunState, waits: Iterable[float], error: Exception
    ) -> None:
        self.state = after

    patch.setattr(Driver, "_read_again", read_again)


def take_for_ones_own(patch: Patch) -> None:
    """An engine mistakes the events of another engine for its own if both lead to the same state."""

    async def confirm(self: Tenure) -> None:
        """Do not check the lease."""

    patch.setattr(Tenure, "confirm", confirm)


def fence_nobody(patch: Patch) -> None:
    """A store accepts appends under an old lease."""
    real = MemoryStore.append

    async def append(
        self: MemoryStore,
        run: str,
        expected_seq: int,
        lease: Lease,
        records: Sequence[Record],
        *,
        release: bool = False,
    ) -> Head:
        current = await self.claim(run)
        newest = lease if current is None else Lease(run=run, token=current.token)
        return await real(self, run, expected_seq, newest, records, release=release)

    patch.setattr(MemoryStore, "append", append)


def never_finish(patch: Patch) -> None:
    """A subscriber is not notified that a stream has ended."""
    real = Subscription.put

    def put(self: Subscription, update: Update) -> None:
        if not isinstance(update, Finished):
            real(self, update)

    patch.setattr(Subscription, "put", put)


def change_keys(patch: Patch) -> None:
    """Each execution of a call has another idempotency key."""
    attempts = iter(range(1_000_000))

    def context(run: str, call: str, key: str, epoch: int) -> CallContext:
        return CallContext(run=run, call=call, key=f"{key} {next(attempts)}", epoch=epoch)

    patch.setattr(refold.engine.world, "CallContext", context)


def take_for_final(patch: Patch) -> None:
    """An engine trusts that a call did not happen, although an earlier execution may still act."""

    def credible(state: RunState, effect: Reconcile, found: Reconciled) -> Reconciled:
        return found

    patch.setattr(refold.engine.service, "credible", credible)


def forget_epochs(patch: Patch) -> None:
    """Every engine calls tools with the newest epoch."""

    def context(run: str, call: str, key: str, epoch: int) -> CallContext:
        return CallContext(run=run, call=call, key=key, epoch=99)

    patch.setattr(refold.engine.world, "CallContext", context)


@pytest.mark.parametrize(
    ("mutate", "scenario", "faults", "said"),
    [
        pytest.param(run_again, "tools", ["kill:act:1"], "ran 2 times", id="a call is run again"),
        pytest.param(tell_first, "tools", [], "before it was", id="told before it is written"),
        pytest.param(tell_first, "tools", [], "before its dispatch", id="an effect before its intent"),
        pytest.param(believe, "tools", ["lose:append:3"], "before it was", id="believed written"),
        pytest.param(
            take_for_ones_own,
            "retries",
            ["kill:say:1", "rob:append:6"],
            "the log has another",
            id="another's event",
        ),
        pytest.param(
            fence_nobody, "tools", ["rob:act:1", "kill:append:3"], "under token", id="an old lease goes on"
        ),
        pytest.param(never_finish, "tools", [], "began, and [] finished", id="a stream that never ends"),
        pytest.param(
            take_for_final, "woken", ["pause:begin:1"], "book acted 2", id="the sleeper is forgotten"
        ),
        pytest.param(
            take_for_final,
            "tools",
            ["kill:send:5"],
            "book acted 2",
            id="what outlives its process is forgotten",
        ),
        pytest.param(forget_epochs, "woken", ["pause:begin:2"], "pay acted 2", id="no epoch to refuse by"),
        pytest.param(change_keys, "tools", ["kill:act:2"], "of another call", id="another key each time"),
    ],
)
def test_an_engine_without_one_promise_is_caught(
    mutate: Callable[[Patch], None],
    scenario: str,
    faults: list[str],
    said: str,
    monkeypatch: Patch,
) -> None:
    """A schedule without violations has one after the promise is removed."""
    assert [] == found(scenario, *faults)
    mutate(monkeypatch)
    assert [violation for violation in found(scenario, *faults) if said in violation]
