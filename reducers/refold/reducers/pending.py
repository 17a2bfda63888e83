"""Work in progress: the open batch, decisions that wait for their facts, and calls in doubt.

Results get their message numbers when the response is folded, in call order. They join the window together
when the last one arrives, so nothing depends on the order of arrival.

A call is in doubt from the `run_resumed` that lists it until it has a result, or an operator confirms that it
did not run: then it runs again, under the same idempotency key. The replay class of its tool and the policy's
`doubt` determine who is asked. An unknown outcome may be asked about again. An outcome `happened` is final:
the call never runs again.

A fact and its decisions are written as one group, and a log is cut only between groups. A run that has ended
takes no more facts: to continue it, fork it before the fact that ended it.
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
from refold.reducers.window import MessageRef, extend, insert_all, insert_results, without

MOST_CALLS = 1024
"""The maximum number of calls of a response, because each result checks all of them.

An engine refuses a response with more. An importer keeps the others beside the log, with their results.
"""


def opened(seq: int, number: int, calls: tuple[ev.Call, ...]) -> Batch | None:
    """Return the batch of a response that is message `number`, None without calls."""
    if not calls:
        return None
    states = [CallState(**asdict(call), position=place) for place, call in enumerate(calls)]
    return Batch(seq=seq, number=number, calls=tuple(states))


def find(state: RunState, kind: str, call: str) -> CallState:
    """Return the open call with this id. Raises `UnexpectedEvent` with the event's kind if there is none."""
    found = state.batch.open_call(call) if state.batch else None
    if found is None:
        raise UnexpectedEvent(kind, f"no call {call} is open")
    return found


def with_call(state: RunState, call: CallState) -> RunState:
    """Replace one call of the batch."""
    assert state.batch is not None
    return replace(state, batch=replace(state.batch, calls=_placed(state.batch.calls, call)))


def ended(state: RunState, call: CallState, size: Size, preview: int = 0) -> RunState:
    """Record the result of a call. The last result closes the batch."""
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
    window = insert_results(state.window, batch.number, results)
    if not results and state.answer is not None and state.answer.blank:
        # Nothing of the response remains: providers refuse a message without text and calls.
        window = without(window, {batch.number})
    return joined(replace(state, window=window, batch=None))


def joined(state: RunState) -> RunState:
    """Insert the messages that an imported run's harness added; no batch may be open."""
    observed = state.observed
    if observed is None or not observed.joining:
        return state
    window = state.window
    for at_end, group in groupby(observed.joining, lambda pair: pair[1] is None):
        # A response and its results stay together, even if a message's place is between them.
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
    """Return the event without its content: a state has no texts."""
    return event if getattr(event, "content", None) is None else replace(event, content=None)


def pending(state: RunState, event: DecisionT, until: int | None) -> Pending[DecisionT]:
    """Return the state's current decision as one that waits for its fact."""
    return Pending(seq=state.seq, at=state.at, until=until, event=bare(event))


def remembered(state: RunState, event: FactT) -> Remembered[FactT]:
    """Return the state's current fact, for later decisions."""
    return Remembered(seq=state.seq, event=bare(event))


def asked_of(state: RunState, seq: int) -> Pending[ev.ModelRequested] | Pending[ev.SummaryRequested]:
    """Return the pending request that was decided at event `seq`. Raises `LookupError` without one."""
    for asks in (state.request, state.summary):
        if asks is not None and asks.seq == seq:
            return asks
    raise LookupError(f"event {seq} is not an open model request")


def is_fresh(backoff: Pending[ev.RetryScheduled]) -> bool:
    """Return whether a new step follows the wait, not another attempt at the same step."""
    return backoff.event.cause is Cause.STREAM


def waits(state: RunState) -> bool:
    """Return whether the run waits before another attempt and the wait is not over."""
    return state.backoff is not None and state.backoff.until is not None


def summary_done(state: RunState) -> RunState:
    """Close the summary of a compaction step, inserted or given up."""
    assert state.summary is not None
    return replace(state, summary=None, summed_up=None, pruned_by=state.summary.event.name)


Course = Literal["run", "reconcile", "ask", "tell"]


def course(state: RunState, call: CallState) -> Course:
    """Return what comes next for a started call: run it, ask its tool or an operator, or tell the model."""
    if not call.in_doubt:
        return "run"
    said_by_person = call.doubt is not None and not call.reconciled
    if said_by_person:
        return "tell"
    if call.doubt is not Doubt.UNKNOWN and _reconcilable(state, call):
        return "reconcile"
    return state.policy.doubt


def repeatable(replay: Replay | None) -> bool:
    """Return whether a call may simply run again.

    A tool outside the manifest (None) has no code to run, so it may.
    """
    return replay in (None, Replay.READ_ONLY, Replay.IDEMPOTENT)


def may_be_said(call: CallState, doubt: Doubt) -> bool:
    """Return whether this outcome may be recorded: after `happened`, no other outcome may."""
    return call.in_doubt and (call.doubt is not Doubt.HAPPENED or doubt is Doubt.HAPPENED)


def underway(state: RunState) -> Iterator[CallState]:
    """Return the calls that were started and have no result."""
    for call in state.batch.calls if state.batch else ():
        if call.dispatched and call.result is None:
            yield call


def doubted(state: RunState) -> bool:
    """Return whether a call of the open batch is or was in doubt."""
    if state.batch is None:
        return False
    # Plain loops, here and below: they run after every result.
    for call in state.batch.calls:  # noqa: SIM110
        if call.in_doubt or call.doubt is not None:
            return True
    return False


def unknown_calls(state: RunState) -> tuple[str, ...]:
    """Return the calls whose outcome only an operator can give."""
    if state.batch is None:
        return ()
    begun = [call for call in state.batch.calls if call.in_doubt and call.result is None and call.dispatched]
    return tuple(call.id for call in begun if course(state, call) == "ask")


def left_open(state: RunState, fact: ev.RunForked) -> tuple[str, ...]:
    """Return the calls in progress that are in doubt in a fork at this state.

    They cannot simply run again, and get no result in the fork.
    """
    # By both manifests: a call that the parent started stays unrepeatable even if the fork lacks its tool.
    offers = (*state.setup.tools, *(fact.tools or ()))
    # A child run belongs to the parent: the fork does not wait for its end, and a new child would act again.
    once = {tool.name for tool in offers if tool.agent or not repeatable(tool.replay)}
    return tuple(
        call.id
        for call in underway(state)
        if call.name in once and call.id not in fact.results and not call.in_doubt
    )


def asks_anew(state: RunState, fact: ev.RunForked, *, text: bool) -> bool:
    """Return whether a fork makes the open request again: it changes the request, or adds a text."""
    changes = (fact.policy, fact.model, fact.settings, fact.tools, fact.address)
    changed = text or any(each is not None for each in changes)
    return changed and bool(state.request or state.summary)


def happened(state: RunState, call: str) -> bool:
    """Return whether a call without a result is known to have run."""
    return any(each.id == call and each.doubt is Doubt.HAPPENED for each in underway(state))


def unseen(state: RunState, call: str) -> tuple[ToolError, str]:
    """Return the result of a call that will not run and whose end is unknown: error, and key of the text."""
    known = next((each.doubt for each in underway(state) if each.id == call), None)
    if known is Doubt.DID_NOT:
        return ToolError.CANCELLED, "cancelled"
    return ToolError.IN_DOUBT, "in_doubt:happened" if known is Doubt.HAPPENED else "in_doubt"


def _reconcilable(state: RunState, call: CallState) -> bool:
    return any(tool.name == call.name and tool.replay is Replay.RECONCILABLE for tool in state.setup.tools)


DECIDED: Container[str | None] = frozenset(map(ev.kind_of, ev.DECISIONS))
"""The kinds of decisions: none of them begins a group."""


def whole(state: RunState, following: str | None) -> bool:
    """Return whether a log may be cut after this state.

    `following` is the kind of the next event, None at the end of the log.
    """
    return state.seq > 0 and not state.ended and following not in DECIDED
