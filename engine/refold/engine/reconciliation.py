"""Asking a tool what became of a call whose end is unknown, and whether that may be believed.

That a call did not happen is no answer while an engine that was replaced may be in the middle of it: its process may
only be suspended, and wake up. So it is believed when every process that has had the run since the call was begun is
surely gone, or when the world outside refuses whatever comes under an older epoch. Else the call stays in doubt.
"""

from collections.abc import Awaitable

import msgspec

from refold.engine.faults import somebody_elses, worded
from refold.engine.journal import Journal
from refold.engine.makers import Maker, maker
from refold.engine.presence import lingers
from refold.engine.tools.protocol import CannotTell, DidNot, Happened, Reconciled
from refold.reducers import composition
from refold.reducers.doubts import underway
from refold.reducers.effects import Reconcile
from refold.reducers.events import DoubtResolved
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt


async def ask(answer: Awaitable[object]) -> Reconciled:
    """What a reconciler says. One that fails does not know, and the note says why."""
    try:
        found = await answer
    except BaseException as error:
        if not somebody_elses(error):
            raise
        return CannotTell(note=worded(error))
    if isinstance(found, Happened | DidNot | CannotTell):
        return found
    return CannotTell(note=f"its reconcile gave a {type(found).__name__}, not Happened, DidNot or CannotTell")


class Doer(msgspec.Struct, frozen=True):
    """Who may still be about to do a call. `fenced`: a newer epoch keeps it from that, where that is looked at."""

    name: str
    fenced: bool = True


async def doer(journal: Journal, state: RunState, effect: Reconcile) -> Doer | None:
    """Who may still be about to do this call, beside the engine that asks; None: surely no one else."""
    call = next((each for each in underway(state) if each.id == effect.call), None)
    if call is None:  # a person has said meanwhile how it ended
        return None
    if call.begun_in:  # epochs are counted by run: a fork's says nothing of its parent's
        return Doer(f"run {call.begun_in}, which began it,", fenced=False)
    for process in await journal.processes(call.dispatched):
        if lingers(process, state.setup.run):
            return Doer(process or "an engine that the log does not name")
    return None


def credible(found: Reconciled, other: Doer | None) -> Reconciled:
    """What may be believed of it, when this is who may still do the call."""
    if not isinstance(found, DidNot) or other is None or (found.final and other.fenced):
        return found
    said = f" ({found.note})" if found.note else ""
    return CannotTell(
        note=f"the tool says that it did not{said}, but {other.name} may still be about to do it"
    )


def doubt_resolved(effect: Reconcile, found: Reconciled, note: str) -> Maker:
    """The fact of what a tool said. The first of the two that tell of a call that happened."""
    doubt = {Happened: Doubt.HAPPENED, DidNot: Doubt.DID_NOT, CannotTell: Doubt.UNKNOWN}[type(found)]
    fact = DoubtResolved(at=0, call=effect.call, doubt=doubt, by=f"tool:{effect.name}", reconciled=True)
    return maker(fact, lambda state, fact, _: composition.resolved(state, fact, note))
