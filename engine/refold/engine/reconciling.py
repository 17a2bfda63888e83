"""Asking a tool what became of a call whose end nobody saw."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from refold.engine.faults import somebody_elses, worded
from refold.engine.tools.protocol import DidNot, Happened, Reconciled, Unknown
from refold.reducers import composing
from refold.reducers.effects import Reconcile
from refold.reducers.events import DoubtResolved, Fact
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt

if TYPE_CHECKING:
    from refold.engine.outcomes import Maker


async def asked(answer: Awaitable[object]) -> Reconciled:
    """What a reconciler says. One that fails does not know, and the note says why."""
    try:
        found = await answer
    except BaseException as error:
        if not somebody_elses(error):
            raise
        return Unknown(note=worded(error))
    if isinstance(found, Happened | DidNot | Unknown):
        return found
    return Unknown(note=f"its reconcile gave a {type(found).__name__}, not Happened, DidNot or Unknown")


def found_out(effect: Reconcile, found: Reconciled, note: str) -> "Maker":
    """The fact of what a tool said. The first of the two that tell of a call that happened."""
    match found:
        case Happened():
            doubt = Doubt.HAPPENED
        case DidNot():
            doubt = Doubt.DID_NOT
        case Unknown():
            doubt = Doubt.UNKNOWN

    def make(state: RunState, at: int, salt: bytes) -> Fact:
        fact = DoubtResolved(at=at, call=effect.call, doubt=doubt, by=f"tool:{effect.name}", reconciled=True)
        return composing.resolved(state, fact, note, salt)

    return make
