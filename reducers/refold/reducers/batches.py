"""The open batch: the calls of one answer, until each has exactly one result.

Results get their message numbers when the answer is folded, in call order, and join the window together when
the last one is there: nothing depends on the order of arrival.
"""

from itertools import groupby

from msgspec.structs import asdict, replace

from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import Call
from refold.reducers.messages import Size
from refold.reducers.state import Batch, CallState, RunState
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, answered, extend, insert_all, without

MOST_CALLS = 1024
"""Calls of one answer: after each result all of them are looked at. An engine takes no answer with more, an importer
keeps the others beside the log, with their results."""


def opened(seq: int, number: int, calls: tuple[Call, ...]) -> Batch | None:
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
