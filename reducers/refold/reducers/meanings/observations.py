"""What an observed change of the context means: see `refold.reducers.events.ContextObserved`."""

from msgspec.structs import replace

from refold.reducers.batches import joined
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import ContextObserved
from refold.reducers.machine import AgentState
from refold.reducers.meanings.common import check_ranges, given, no_longer_asked
from refold.reducers.state import Observed, RunState
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef


def context_observed(state: RunState, event: ContextObserved) -> RunState:
    """Messages join the window, those of an open batch first; what was dropped leaves before the next request."""
    if state.request or state.summary or state.approval:
        raise _unexpected("the model, or a person, is being asked already")
    _check(state, event)
    before = state.observed
    if event.kept is not None and before is not None and before.kept is not None:
        raise _unexpected("of what was dropped before, nothing was carried out yet")
    upto = state.messages
    observed = Observed(
        upto=upto if event.kept is not None or before is None else before.upto,
        kept=event.kept if before is None or event.kept is not None else before.kept,
        joining=(*(before.joining if before else ()), *_joining(state, event)),
    )
    state = replace(state, observed=observed, messages=upto + len(event.messages))
    if state.batch is None:
        state = joined(state)
    return _asked_again(state, event) if event.goes_on else state


def _check(state: RunState, event: ContextObserved) -> None:
    """A forged log may say anything: ranges lie apart among the messages that there are, a result has its call."""
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
    waits = state.agent_state is AgentState.WAITING_FOR_INPUT and state.asked_at is not None
    if not waits or state.batch is not None:
        raise _unexpected(f"the run is {state.agent_state}: it goes on by itself")
    return replace(no_longer_asked(state), parts=(), unasked=event.unasked)


def _unexpected(why: str) -> UnexpectedEvent:
    return UnexpectedEvent("context_observed", why)
