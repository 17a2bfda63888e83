"""On an answer: dispatch its calls, or say what a finished turn means."""

from refold.reducers.events import Fact, ToolsDispatched
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.rules.ending import injected, may_inject, move
from refold.reducers.rules.flow import Flow, in_flight, one
from refold.reducers.state import Batch, RunState
from refold.reducers.usage import call_deadline
from refold.reducers.vocabulary import StopReason


def dispatch(state: RunState, fact: Fact) -> Flow | None:
    """R11: run what is left of the batch, if anything is: all of it at once, or `in_order` the first of it."""
    return None if state.batch is None else _dispatched(state, state.batch)


def dispatch_next(state: RunState, fact: Fact) -> Flow | None:
    """`in_order`: a call is only begun, and only said to be, when the one before it has its result."""
    if state.batch is None or state.stopping is not None or in_flight(state):
        return None
    return one(_next_calls(state, state.batch))


def _dispatched(state: RunState, batch: Batch) -> Flow:
    state = yield _next_calls(state, batch)
    return (yield move(state, Trigger.CALL_TOOLS, "tool_use", f"{batch.open} tool calls to run"))


def _next_calls(state: RunState, batch: Batch) -> ToolsDispatched:
    calls = tuple(call.id for call in batch.calls if call.result is None)
    if state.policy.batch == "in_order":
        calls = calls[:1]
    return ToolsDispatched(calls=calls, deadline=call_deadline(state))


def provider_refusal(state: RunState, fact: Fact) -> Flow | None:
    """R13: the provider's filter stopped the answer."""
    if state.answer is None or state.answer.stop is not StopReason.CONTENT_FILTER or state.answer.calls:
        return None
    return one(
        move(state, Trigger.FAIL, "content_filter", "the provider's content filter stopped the answer")
    )


def end_of_turn(state: RunState, fact: Fact) -> Flow | None:
    """R17: an answer without calls is a finished turn; the policy says what follows."""
    answer = state.answer
    if answer is None or answer.calls:
        return None
    if state.policy.end_of_turn == "continue":
        return _go_on(state)
    if state.policy.end_of_turn == "wait":
        return one(move(state, Trigger.ASK, "end_turn", "the turn is over; a person's message comes next"))
    code, reason = "end_turn", "the model finished its turn"
    if answer.stop is StopReason.MAX_TOKENS:
        code, reason = "truncated", "the model's answer was cut at the output limit"
    elif answer.blank:
        code, reason = "empty", "the model answered with nothing"
    return one(move(state, Trigger.COMPLETE, code, reason))


def tools_done(state: RunState, fact: Fact) -> Flow | None:
    """The batch is complete: back to the model. One whose calls were all refused was never left for."""
    if state.agent_state is not AgentState.WAITING_FOR_TOOL:
        return None
    return one(move(state, Trigger.TOOLS_DONE, "tools_done", "every call of the batch has its result"))


def _go_on(state: RunState) -> Flow | None:
    return one(injected(state, "continue", "end_of_turn")) if may_inject(state) else None
