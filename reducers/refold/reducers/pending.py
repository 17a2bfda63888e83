"""Work in progress: the open batch, what waits for its fact, and calls in doubt.

Results get their message numbers when the answer is folded, in call order, and join the window together when
the last one is there: nothing depends on the order of arrival.

A call is in doubt from the `run_resumed` that finds it so until it has a result, or somebody says that it did
not happen: then it runs, once more, under the same idempotency key. Whom to ask follows from the replay class
of its tool and from the policy's `doubt`. Whoever does not know may be asked again, or know better later.
That a call happened is final, whoever said it: it never runs again.

A fact and what was decided on it are written as one, and mean nothing apart: a cut lies between two such
groups. A run that has ended takes no fact any more: to go on after an end is to fork before what ended it.
"""

from collections.abc import Container, Iterator
from itertools import groupby
from typing import Literal, TypeVar

from msgspec.structs import asdict, replace

from refold.reducers import events as ev
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.messages import Size
from refold.reducers.state import Batch, CallState, Pending, Remembered, RunState
from refold.reducers.vocabulary import Cause, Doubt, Replay, Role, ToolError
from refold.reducers.window import MessageRef, answered, extend, insert_all, without

MOST_CALLS = 1024
"""Calls of one answer: after each result all of them are looked at. An engine takes no answer with more, an
importer keeps the others beside the log, with their results.
"""


def opened(seq: int, number: int, calls: tuple[ev.Call, ...]) -> Batch | None:
    """The batch of an answer that is message `number`; None if it has no calls."""
    if not calls:
        return None
    states = [CallState(**asdict(call), position=place) for place, call in enumerate(calls)]
    return Batch(seq=seq, number=number, calls=tuple(states))


def find(state: RunState, kind: str, call: str) -> CallState:
    """The open call of this id. Raises `UnexpectedEvent` naming the event's kind if there is none."""
    found = state.batch.open_call(call) if state.batch else None
    if found is None:
        raise UnexpectedEvent(kind, f"no call {call} is open")
    return found


def with_call(state: RunState, call: CallState) -> RunState:
    """The state with one call of its batch replaced."""
    assert state.batch is not None
    return replace(state, batch=replace(state.batch, calls=_placed(state.batch.calls, call)))


def ended(state: RunState, call: CallState, size: Size, preview: int = 0) -> RunState:
    """The state after a call got its result. The last of a batch closes it."""
    batch = state.batch
    assert batch is not None
    result = MessageRef(
        number=batch.number + 1 + call.position,
        role=Role.TOOL,
        seq=state.seq,
        unit=batch.number,
        size=size,
        call=call.id,
        preview=preview,
    )
    calls = _placed(batch.calls, replace(call, result=result))
    results: list[MessageRef] = []
    for each in calls:
        if each.result is None:
            return replace(state, batch=replace(batch, calls=calls))
        if not each.hidden:
            results.append(each.result)
    window = answered(state.window, batch.number, results)
    if not results and state.answer is not None and state.answer.blank:
        # Nothing of the answer is left to show: a message without text and calls is refused by providers.
        window = without(window, {batch.number})
    return joined(replace(state, window=window, batch=None))


def joined(state: RunState) -> RunState:
    """The state in which what an imported run's harness added has its place; no batch may be open."""
    observed = state.observed
    if observed is None or not observed.joining:
        return state
    window = state.window
    for at_end, group in groupby(observed.joining, lambda pair: pair[1] is None):
        # A reply and its results are never parted, wherever a message is said to stand.
        some = [(ref, after or 0) for ref, after in group]
        window = extend(window, [ref for ref, _ in some]) if at_end else insert_all(window, some)
    return replace(state, window=window, observed=replace(observed, joining=()))


def _placed(calls: tuple[CallState, ...], call: CallState) -> tuple[CallState, ...]:
    made = list(calls)
    made[call.position] = call
    return tuple(made)


DecisionT = TypeVar("DecisionT", bound=ev.Decision)
EventT = TypeVar("EventT", bound=ev.Event)
FactT = TypeVar("FactT", bound=ev.Fact)


def bare(event: EventT) -> EventT:
    """The event without its content: a state holds no text that was said."""
    return event if getattr(event, "content", None) is None else replace(event, content=None)


def pending(state: RunState, event: DecisionT, until: int | None) -> Pending[DecisionT]:
    """The decision at which the state stands, as one that waits."""
    return Pending(seq=state.seq, at=state.at, until=until, event=bare(event))


def remembered(state: RunState, event: FactT) -> Remembered[FactT]:
    """The fact at which the state stands, as one that a later decision goes by."""
    return Remembered(seq=state.seq, event=bare(event))


def asked_of(state: RunState, seq: int) -> Pending[ev.ModelRequested] | Pending[ev.SummaryRequested]:
    """What the model is asked, as decided at event `seq`.

    Raises `LookupError` if that does not wait any more.
    """
    for asks in (state.request, state.summary):
        if asks is not None and asks.seq == seq:
            return asks
    raise LookupError(f"event {seq} asks no model, or has its answer")


def is_fresh(backoff: Pending[ev.RetryScheduled]) -> bool:
    """Whether a new step follows the wait, and not another attempt at the same."""
    return backoff.event.cause is Cause.STREAM


def waits(state: RunState) -> bool:
    """Whether the run waits before another try, and its time is not over."""
    return state.backoff is not None and state.backoff.until is not None


def summary_done(state: RunState) -> RunState:
    """The state after the pass that asked for a summary has it in its place, or does without."""
    assert state.summary is not None
    return replace(state, summary=None, summed_up=None, pruned_by=state.summary.event.name)


Course = Literal["run", "reconcile", "ask", "tell"]


def course(state: RunState, call: CallState) -> Course:
    """What comes next for a call that was started: run it, ask its tool or a person how it ended, or tell the
    model.
    """
    if not call.in_doubt:
        return "run"
    said_by_person = call.doubt is not None and not call.reconciled
    if said_by_person:
        return "tell"
    if call.doubt is not Doubt.UNKNOWN and _reconcilable(state, call):
        return "reconcile"
    return state.policy.doubt


def repeatable(replay: Replay | None) -> bool:
    """Whether a call may simply be run again. A name outside the manifest (None) has no code to run: it
    may.
    """
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


def unknown_calls(state: RunState) -> tuple[str, ...]:
    """The calls that only a person can tell about."""
    if state.batch is None:
        return ()
    begun = [call for call in state.batch.calls if call.in_doubt and call.result is None and call.dispatched]
    return tuple(call.id for call in begun if course(state, call) == "ask")


def left_open(state: RunState, fact: ev.RunForked) -> tuple[str, ...]:
    """The calls that are in doubt in a fork at this state: those under way that cannot simply be run again,
    and get no result there.
    """
    # By both manifests: a call that the parent began does not become harmless because the fork lacks its
    # tool.
    offers = (*state.setup.tools, *(fact.tools or ()))
    # The run that a call started is the parent's: its end is not this one's to wait for, and another would
    # act again.
    once = {tool.name for tool in offers if tool.agent or not repeatable(tool.replay)}
    return tuple(
        call.id
        for call in underway(state)
        if call.name in once and call.id not in fact.results and not call.in_doubt
    )


def asks_anew(state: RunState, fact: ev.RunForked, *, text: bool) -> bool:
    """Whether a fork at this state makes the request that is under way anew: it changes what is asked, or
    adds a text.
    """
    changes = (fact.policy, fact.model, fact.settings, fact.tools, fact.address)
    changed = text or any(each is not None for each in changes)
    return changed and bool(state.request or state.summary)


def happened(state: RunState, call: str) -> bool:
    """Whether a call without a result is known to have had its effect."""
    return any(each.id == call and each.doubt is Doubt.HAPPENED for each in underway(state))


def unseen(state: RunState, call: str) -> tuple[ToolError, str]:
    """The result of a call whose end nobody saw, and that nobody will run: its error, and the text for the
    model.
    """
    known = next((each.doubt for each in underway(state) if each.id == call), None)
    if known is Doubt.DID_NOT:
        return ToolError.CANCELLED, "cancelled"
    return ToolError.IN_DOUBT, "in_doubt:happened" if known is Doubt.HAPPENED else "in_doubt"


def _reconcilable(state: RunState, call: CallState) -> bool:
    return any(tool.name == call.name and tool.replay is Replay.RECONCILABLE for tool in state.setup.tools)


DECIDED: Container[str | None] = frozenset(map(ev.kind_of, ev.DECISIONS))
"""The kinds of what follows from a fact: none of them begins a group."""


def whole(state: RunState, following: str | None) -> bool:
    """Whether a log may be cut after this state, before an event of the kind `following` (None: it is the
    last).
    """
    return state.seq > 0 and not state.ended and following not in DECIDED
