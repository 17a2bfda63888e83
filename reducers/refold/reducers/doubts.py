"""Calls in doubt: they were started, and nobody saw how they ended.

A call is in doubt from the `run_resumed` that finds it so until it has a result, or somebody says that it did not
happen: then it runs, once more, under the same idempotency key. Whom to ask follows from the replay class of its
tool and from the policy's `doubt`. Whoever does not know may be asked again, or know better later. That a call
happened is final, whoever said it: it never runs again.
"""

from collections.abc import Iterator
from typing import Literal

from refold.reducers.events import RunForked
from refold.reducers.state import CallState, RunState
from refold.reducers.vocabulary import Doubt, Replay, ToolError

Course = Literal["run", "reconcile", "ask", "tell"]


def course(state: RunState, call: CallState) -> Course:
    """What comes next for a call that was started: run it, ask its tool or a person how it ended, or tell the model."""
    if not call.in_doubt:
        return "run"
    said_by_person = call.doubt is not None and not call.reconciled
    if said_by_person:
        return "tell"
    if call.doubt is not Doubt.UNKNOWN and _reconcilable(state, call):
        return "reconcile"
    return state.policy.doubt


def repeatable(replay: Replay | None) -> bool:
    """Whether a call may simply be run again. A name outside the manifest (None) has no code to run: it may."""
    return replay in (None, Replay.READ_ONLY, Replay.IDEMPOTENT)


def may_be_said(call: CallState, doubt: Doubt) -> bool:
    """Whether this may still be said of a call: once it is known to have happened, nothing else."""
    return call.in_doubt and (call.doubt is not Doubt.HAPPENED or doubt is Doubt.HAPPENED)


def underway(state: RunState) -> Iterator[CallState]:
    """The calls that were started and have no result."""
    for call in state.batch.calls if state.batch else ():
        if call.dispatched and call.result is None:
            yield call


def doubted(state: RunState) -> bool:
    """Whether a call of the open batch is or was in doubt."""
    if state.batch is None:
        return False
    # A plain loop, here and below: this is asked after every result, of every call.
    for call in state.batch.calls:  # noqa: SIM110
        if call.in_doubt or call.doubt is not None:
            return True
    return False


def unknown(state: RunState) -> tuple[str, ...]:
    """The calls that only a person can tell about."""
    if state.batch is None:
        return ()
    begun = [call for call in state.batch.calls if call.in_doubt and call.result is None and call.dispatched]
    return tuple(call.id for call in begun if course(state, call) == "ask")


def left_open(state: RunState, fact: RunForked) -> tuple[str, ...]:
    """The calls that are in doubt in a fork at this state: those under way that cannot simply be run again, and get no result there."""
    # By both manifests: a call that the parent began does not become harmless because the fork lacks its tool.
    offers = (*state.setup.tools, *(fact.tools or ()))
    # The run that a call started is the parent's: its end is not this one's to wait for, and another would act again.
    once = {tool.name for tool in offers if tool.agent or not repeatable(tool.replay)}
    return tuple(
        call.id
        for call in underway(state)
        if call.name in once and call.id not in fact.results and not call.in_doubt
    )


def asks_anew(state: RunState, fact: RunForked, *, text: bool) -> bool:
    """Whether a fork at this state makes the request that is under way anew: it changes what is asked, or adds a text."""
    changes = (fact.policy, fact.model, fact.settings, fact.tools, fact.address)
    changed = text or any(each is not None for each in changes)
    return changed and bool(state.request or state.summary)


def happened(state: RunState, call: str) -> bool:
    """Whether a call without a result is known to have had its effect."""
    return any(each.id == call and each.doubt is Doubt.HAPPENED for each in underway(state))


def unseen(state: RunState, call: str) -> tuple[ToolError, str]:
    """The result of a call whose end nobody saw, and that nobody will run: its error, and the text for the model."""
    known = next((each.doubt for each in underway(state) if each.id == call), None)
    if known is Doubt.DID_NOT:
        return ToolError.CANCELLED, "cancelled"
    return ToolError.IN_DOUBT, "in_doubt:happened" if known is Doubt.HAPPENED else "in_doubt"


def _reconcilable(state: RunState, call: CallState) -> bool:
    return any(tool.name == call.name and tool.replay is Replay.RECONCILABLE for tool in state.setup.tools)
