"""What the meanings of events share, and the observed changes of a context."""

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


def where(state: RunState) -> str:
    """What was going on: `model`, `tools`, `waiting`, or `between`."""
    if state.request or state.summary:
        return "model"
    if state.agent_state.awaits_operator:
        return "waiting"
    if state.batch:
        return "tools"
    return "waiting" if state.backoff else "between"


def tallied(state: RunState, cause: Cause, name: str = "") -> RunState:
    """The state after what `cause` and `name` say was counted once more."""
    return replace(state, spent=counted_once_more(state.spent, cause, name))


def counted_once_more(spent: Spent, cause: Cause, name: str = "") -> Spent:
    """What was spent, where what `cause` and `name` say was counted once more."""
    named = spent.tally.get(cause, {})
    return replace(spent, tally={**spent.tally, cause: {**named, name: named.get(name, 0) + 1}})


def reference(state: RunState, role: Role, size: Size) -> MessageRef:
    """The event's own message, the next in number."""
    number = state.messages + 1
    return MessageRef(number=number, role=role, seq=state.seq, unit=number, size=size)


def given(state: RunState, heads: Iterable[MessageHead]) -> list[MessageRef]:
    """The messages that an event brings with it, the next in number.

    A forged log may name a unit that is no reply before them.
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
    """Raise `UnexpectedEvent` unless these lie apart, and within the messages that there are: a forged log
    may say anything.

    They stand in the order of the window, where a summary comes before messages that are older than itself.
    """
    following = 1
    for first, last in sorted(ranges):
        if not following <= first <= last <= messages:
            raise UnexpectedEvent(kind, f"the range {first} to {last} overlaps another, or holds no message")
        following = last + 1


def said(state: RunState, ref: MessageRef) -> RunState:
    """The state after somebody, or the harness, said something: one message more in the window."""
    return replace(state, window=append(state.window, ref), messages=ref.number)


def no_longer_asked(state: RunState) -> RunState:
    """The state after a person, or their time, answered what was asked: how long that took is known now."""
    assert state.asked_at is not None
    waited = state.spent.person_wait + state.at - state.asked_at
    spent = replace(state.spent, person_wait=waited)
    return replace(state, spent=spent, asked_at=None, approval=None, unasked=False)


def found_out(state: RunState) -> RunState:
    """Of a batch that has begun: nobody is asked any more once no call is left that only a person can tell
    about.
    """
    # What is run then has as long as it had: nothing of it ran while the person was asked.
    asked = state.asked_at
    if asked is None or state.approval is not None or unknown_calls(state):
        return state
    return postponed(no_longer_asked(state), state.at - asked)


def in_doubt(state: RunState, kind: str, calls: Iterable[str]) -> RunState:
    """The state in which nobody saw how these calls ended."""
    for name in calls:
        call = find(state, kind, name)
        state = with_call(state, replace(call, in_doubt=True, doubt=None, reconciled=False))
    return state


def idle(state: RunState, downtime: int) -> RunState:
    """The state after no engine had the run for so long."""
    spent = replace(state.spent, downtime=state.spent.downtime + downtime)
    return postponed(replace(state, spent=spent), downtime)


def postponed(state: RunState, downtime: int) -> RunState:
    """What is begun again has as long as it had before. Whether the run has is the time limit's affair."""
    if state.summary is not None:
        return replace(state, summary=later(state.summary, downtime))
    if state.request is not None:
        return replace(state, request=later(state.request, downtime))
    return state if state.batch is None else replace(state, batch=later(state.batch, downtime))


def later(waiting: Waiting, by: int) -> Waiting:
    """What waits, with so much more time; where there is no end to it, as it is."""
    return waiting if waiting.until is None else replace(waiting, until=waiting.until + by)


def context_observed(state: RunState, event: ContextObserved) -> RunState:
    """Messages join the window, those of an open batch first; what was dropped leaves before the next
    request.
    """
    if state.request or state.summary or state.approval:
        raise _unexpected("the model, or a person, is being asked already")
    _check(state, event)
    observed = state.observed or Observed(upto=state.messages)
    if event.kept is not None:
        if observed.kept is not None:
            raise _unexpected("of what was dropped before, nothing was carried out yet")
        observed = replace(observed, upto=state.messages, kept=event.kept)
    observed = replace(observed, joining=(*observed.joining, *_joining(state, event)))
    state = replace(state, observed=observed, messages=state.messages + len(event.messages))
    if state.batch is None:
        state = joined(state)
    return _asked_again(state, event) if event.goes_on else state


def _check(state: RunState, event: ContextObserved) -> None:
    """A forged log may say anything: ranges lie apart among the messages that there are, a result has its
    call.
    """
    check_ranges("context_observed", event.kept or (), state.messages)
    units = {head.unit for head in event.messages if head.role is Role.TOOL}
    if any(unit >= len(event.messages) or event.messages[unit].role is not Role.ASSISTANT for unit in units):
        raise _unexpected("a result stands without the answer that it belongs to")


def _joining(state: RunState, event: ContextObserved) -> tuple[tuple[MessageRef, int | None], ...]:
    first = state.messages + 1
    if event.after and len(event.after) != len(event.messages):
        raise _unexpected("not each of its messages has a place")
    if any(place >= first + index for index, place in enumerate(event.after)):
        raise _unexpected("a message stands behind one that is not there yet")
    places = event.after or (None,) * len(event.messages)
    return tuple(zip(given(state, event.messages), places, strict=True))


def _asked_again(state: RunState, event: ContextObserved) -> RunState:
    waits = state.agent_state.awaits_operator and state.asked_at is not None
    if not waits or state.batch is not None:
        raise _unexpected(f"the run is {state.agent_state}: it goes on by itself")
    return replace(no_longer_asked(state), parts=(), unasked=event.unasked)


def _unexpected(why: str) -> UnexpectedEvent:
    return UnexpectedEvent("context_observed", why)
