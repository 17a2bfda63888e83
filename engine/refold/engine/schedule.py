"""When a run on which nothing can be done now wants an engine again, and which other one its end brings back."""

from contextlib import suppress

from refold.reducers.effects import RunTool, WaitUntil, next_effects
from refold.reducers.state import RunState
from refold.reducers.vocabulary import NANO
from refold.store.protocol import Store, UnknownRun


def rings_in(state: RunState, now: int) -> float | None:
    """In how many seconds from the instant `now` the next clock rings, 0 for one that has; None: not before a person acts."""
    instants = [effect.at for effect in next_effects(state) if isinstance(effect, WaitUntil)]
    return max(0.0, (min(instants) - now) / NANO) if instants else None


def due_in(state: RunState, now: int) -> float | None:
    """The same for any state: 0 where something is to be done in the world right away."""
    at_once = any(not isinstance(effect, WaitUntil) for effect in next_effects(state))
    return 0.0 if at_once else rings_in(state, now)


def is_lost(state: RunState, now: int) -> bool:
    """Whether a run that has no engine and waits for none never gets one: something is to be done, now or at an instant, that
    neither a person nor the end of a child run begins.
    """
    children = {tool.name for tool in state.setup.tools if tool.agent}
    waits = (isinstance(effect, RunTool) and effect.name in children for effect in next_effects(state))
    return due_in(state, now) is not None and not all(waits)


async def wake_parent(store: Store, state: RunState) -> None:
    """Have the run taken up that waits for the result of this one, if it has ended. It may be in another store.

    To be called before the lease is given back: an engine that dies in between is found, and it is done again.
    """
    if state.ended and state.setup.parent is not None:
        with suppress(UnknownRun):
            await store.wake(state.setup.parent.run)
