"""Ask a tool what became of a call whose outcome is unknown, and decide whether its answer may be followed.

`DidNot` alone is never enough to run a call again. An earlier attempt may outlive its engine: as a thread, a shielded
task, a child process, a request on the network, or a process that was suspended. No engine can prove that nothing of it is
left, not even after a `kill -9`. So only `DidNot(final=True)` counts: there the tool promises that earlier attempts can
have no effect any more. Without that promise the call stays in doubt.
"""

from collections.abc import Awaitable

from refold.engine.faults import somebody_elses, worded
from refold.engine.makers import Maker, maker
from refold.engine.tools.protocol import CannotTell, DidNot, Happened, Reconciled
from refold.reducers import composition
from refold.reducers.effects import Reconcile
from refold.reducers.events import DoubtResolved
from refold.reducers.pending import underway
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


def credible(state: RunState, effect: Reconcile, found: Reconciled) -> Reconciled:
    """Return the answer, or `CannotTell` in place of a `DidNot` that an earlier attempt may still prove wrong.

    In a fork that holds of a final one, too: its parent may go on with the call, and epochs are counted by run.
    """
    if not isinstance(found, DidNot):
        return found
    call = next((each for each in underway(state) if each.id == effect.call), None)
    parent = call.begun_in if call else ""
    if found.final and not parent:
        return found
    said = f" ({found.note})" if found.note else ""
    why = (
        f"run {parent}, which began the call, may still do it"
        if parent
        else "an earlier attempt may still act: only DidNot(final=True) rules that out"
    )
    return CannotTell(note=f"the tool found no effect{said}, but {why}")


def doubt_resolved(effect: Reconcile, found: Reconciled, note: str) -> Maker:
    """The fact of what a tool said. The first of the two that tell of a call that happened."""
    doubt = {Happened: Doubt.HAPPENED, DidNot: Doubt.DID_NOT, CannotTell: Doubt.UNKNOWN}[type(found)]
    fact = DoubtResolved(at=0, call=effect.call, doubt=doubt, by=f"tool:{effect.name}", reconciled=True)
    return maker(fact, lambda state, fact, _: composition.resolved(state, fact, note))
