"""Leaving a run to a worker: what was said is recorded, and nothing is started here."""

from collections.abc import Callable

import msgspec

from refold.console import claims
from refold.console.next_steps import next_words, waits_for
from refold.console.places import StorePlace, changing
from refold.console.screen import Screen, note
from refold.engine import Run, unattended
from refold.engine.compatibility import installed_guards
from refold.reducers.state import RunState


class LeftRun(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="left"):
    """A run that was left, as JSON: its log has `events` events. `waits_for` a worker, a person, or nothing any more."""

    run: str
    state: str
    events: int
    waits_for: str


async def leave(screen: Screen, place: StorePlace, run: Run, means: str = "") -> int:
    """Record what is queued for a run, and tell who goes on with it. Exit code 0.

    Raises `Elsewhere` where an engine has the run.
    """
    with claims.told(place):
        await run.detach()
    tell_left(screen, place, run.state, means)
    return 0


async def say_and_leave(
    screen: Screen, place: StorePlace, run_id: str, say: Callable[[Run], None], means: str = ""
) -> int:
    """As `leave`, for a run of which nothing is needed but its log: `say` tells it something. Exit code 0."""
    async with changing(place) as store:
        run = unattended(store, run_id, installed_guards())
        say(run)
        return await leave(screen, place, run, means)


async def wake(screen: Screen, place: StorePlace, state: RunState, means: str = "") -> int:
    """Have a run taken up by the next worker, whatever it was to wait for before. Exit code 0."""
    async with changing(place) as store:
        await store.wake(state.setup.run)
    tell_left(screen, place, state, means)
    return 0


def tell_left(screen: Screen, place: StorePlace, state: RunState, means: str = "") -> None:
    """Print the id of a run that was left, and beside it who goes on with it."""
    waits = "" if state.ended else waits_for(state)
    line = LeftRun(run=state.setup.run, state=str(state.agent_state), events=state.seq, waits_for=waits)
    screen.result(line, lambda: _tell(screen, place, state, line, means))


def _tell(screen: Screen, place: StorePlace, state: RunState, left: LeftRun, means: str) -> None:
    screen.say(left.run)
    stands = f"waits for {left.waits_for}" if left.waits_for else f"is {left.state}"
    note(f"recorded up to event {left.events}; the run {stands}")
    for words in next_words(state, means):
        note(f"next    refold {words}{place.option}")
