"""Functions that the meanings of events share, and the observed changes of a context."""

from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import ContextObserved, MessageHead
from refold.reducers.messages import Size
from refold.reducers.pending import find, joined, unknown_calls, with_call
from refold.reducers.state import Batch, Observed, Pending, RunState, Spent
from refold.reducers.vocabulary import Cause, Ranges, Role
from refold.reducers.window import MessageRef, append

Waiting = TypeVar("Waiting", bound=Pending[Any] | Batch)


def name_activity(state: RunState) -> str:
    """Return what is in progress: `model`, `tools`, `waiting`, or `between`."""
    if state.request or state.summary:
        return "model"
    if state.agent_state.awaits_operator:
        return "waiting"
    if state.batch:
        return "tools"
    return "waiting" if state.backoff else "between"


def count_cause(state: RunState, cause: Cause, name: str = "") -> RunState:
    """Count one more occurrence of `cause` and `name`."""
    return replace(state, spent=increment_tally(state.spent, cause, name))


def increment_tally(spent: Spent, cause: Cause, name: str = "") -> Spent:
    """Return `spent` with one more occurrence of `cause` and `name`."""
    named = spent.tally.get(cause, {})
    return replace(spent, tally={**spent.tally, cause: {**named, name: named.get(name, 0) + 1}})


def make_reference(state: RunState, role: Role, size: Size) -> MessageRef:
    """Return a reference to the event's own message, with the next number."""
    number = state.messages + 1
    return MessageRef(number=number, role=role, seq=state.seq, unit=number, size=size)


def make_references(state: RunState, heads: Iterable[MessageHead]) -> list[MessageRef]:
    """Return references to the messages of an event, with the next numbers.

    A forged log may name a unit that is not an earlier response; the message is then a unit of its own.
    """
    first, reply = state.messages + 1, 0
    made: list[MessageRef] = []
    for part, head in enumerate(heads):
        reply = reply if head.unit == reply else part
        made.append(
            MessageRef(
                number=first + part,
                role=head.role,
                seq=state.seq,
                part=part,
                unit=first + reply,
                size=head.size,
                call=head.call,
            )
        )
    return made


def check_ranges(kind: str, ranges: Ranges, messages: int) -> None:
    """Check that ranges do not overlap and contain only existing messages.

    They are in window order, where a summary precedes messages that are older than itself.

    Raises:
        UnexpectedEvent: A range overlaps another or names a missing message, as a forged log may.
    """
    following = 1
    for first, last in sorted(ranges):
        if not following <= first <= last <= messages:
            raise UnexpectedEvent(
                kind, f"the range {first} to {last} overlaps another or has a message that does not exist"
            )
        following = last + 1


def add_message(state: RunState, ref: MessageRef) -> RunState:
    """Add one message to the window."""
    return replace(state, window=append(state.window, ref), messages=ref.number)


def end_wait(state: RunState) -> RunState:
    """End the wait for an operator, because of an answer or a time-out, and record how long it took."""
    assert state.asked_at is not None
    waited = state.spent.person_wait + state.at - state.asked_at
    spent = replace(state.spent, person_wait=waited)
    return replace(state, spent=spent, asked_at=None, approval=None, no_request=False)


def end_settled_wait(state: RunState) -> RunState:
    """End the wait for an operator once no call of the batch needs an operator's answer."""
    # Calls that run then get their remaining time: none of it passed during the wait.
    asked = state.asked_at
    if asked is None or state.approval is not None or unknown_calls(state):
        return state
    return postpone_deadlines(end_wait(state), state.at - asked)


def mark_in_doubt(state: RunState, kind: str, calls: Iterable[str]) -> RunState:
    """Mark the calls as in doubt: their outcome is unknown."""
    for name in calls:
        call = find(state, kind, name)
        state = with_call(state, replace(call, in_doubt=True, doubt=None, reconciled=False))
    return state


def add_downtime(state: RunState, downtime: int) -> RunState:
    """Record that no engine had the run for `downtime` nanoseconds."""
    spent = replace(state.spent, downtime=state.spent.downtime + downtime)
    return postpone_deadlines(replace(state, spent=spent), downtime)


def postpone_deadlines(state: RunState, downtime: int) -> RunState:
    """Extend deadlines, so that what starts again has its remaining time.

    The run's time limit is not extended.
    """
    if state.summary is not None:
        return replace(state, summary=postpone(state.summary, downtime))
    if state.request is not None:
        return replace(state, request=postpone(state.request, downtime))
    return state if state.batch is None else replace(state, batch=postpone(state.batch, downtime))


def postpone(waiting: Waiting, by: int) -> Waiting:
    """Move the deadline of something pending by `by` nanoseconds; without a deadline, return it unchanged."""
    return waiting if waiting.until is None else replace(waiting, until=waiting.until + by)


def context_observed(state: RunState, event: ContextObserved) -> RunState:
    """Add messages to the window, those of an open batch first; dropped messages leave before the next
    request.
    """
    if state.request or state.summary or state.approval:
        raise _make_error("a request or an approval is already open")
    _check_observed(state, event)
    observed = state.observed or Observed(upto=state.messages)
    if event.kept is not None:
        if observed.kept is not None:
            raise _make_error("the messages dropped before it are still in the window")
        observed = replace(observed, upto=state.messages, kept=event.kept)
    observed = replace(observed, joining=(*observed.joining, *_place_messages(state, event)))
    state = replace(state, observed=observed, messages=state.messages + len(event.messages))
    if state.batch is None:
        state = joined(state)
    return _continue_run(state, event) if event.continues else state


def _check_observed(state: RunState, event: ContextObserved) -> None:
    """Check ranges and pairs of calls and results, which a forged log may get wrong."""
    check_ranges("context_observed", event.kept or (), state.messages)
    units = {head.unit for head in event.messages if head.role is Role.TOOL}
    if any(unit >= len(event.messages) or event.messages[unit].role is not Role.ASSISTANT for unit in units):
        raise _make_error("a result has no response that it belongs to")


def _place_messages(state: RunState, event: ContextObserved) -> tuple[tuple[MessageRef, int | None], ...]:
    first = state.messages + 1
    if event.after and len(event.after) != len(event.messages):
        raise _make_error("its places and its messages differ in number")
    if any(place >= first + index for index, place in enumerate(event.after)):
        raise _make_error("a message comes after one that does not exist yet")
    places = event.after or (None,) * len(event.messages)
    return tuple(zip(make_references(state, event.messages), places, strict=True))


def _continue_run(state: RunState, event: ContextObserved) -> RunState:
    waits = state.agent_state.awaits_operator and state.asked_at is not None
    if not waits or state.batch is not None:
        raise _make_error(f"the run is {state.agent_state} and waits for no message")
    return replace(end_wait(state), parts=(), no_request=event.no_request)


def _make_error(why: str) -> UnexpectedEvent:
    return UnexpectedEvent("context_observed", why)
