"""On an answer: dispatch its calls, or say what a finished turn means."""

from msgspec.structs import replace

from refold.reducers.events import Fact, ToolsDispatched
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.rules.ends import injected, may_inject, move, refuse_open, refused
from refold.reducers.rules.flow import Flow, in_flight, one
from refold.reducers.rules.limits import SPENT, limit_move
from refold.reducers.rules.requests import request_grace
from refold.reducers.state import Batch, LastAnswer, RunState
from refold.reducers.usage import call_deadline
from refold.reducers.vocabulary import Cause, Refusal, StopReason


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
    return (
        yield move(
            state,
            Trigger.CALL_TOOLS,
            "tool_use",
            f"{sum(call.result is None for call in batch.calls)} tool calls to run",
        )
    )


def _next_calls(state: RunState, batch: Batch) -> ToolsDispatched:
    calls = tuple(call.id for call in batch.calls if call.result is None)
    if state.policy.batch == "in_order":
        calls = calls[:1]
    begun = any(call.dispatched for call in batch.calls)
    return ToolsDispatched(calls=calls, deadline=call_deadline(state, batch.until if begun else None))


def provider_refusal(state: RunState, fact: Fact) -> Flow | None:
    """R13: the provider's filter stopped the answer."""
    if (
        state.answer is None
        or state.answer.event.stop is not StopReason.CONTENT_FILTER
        or state.answer.event.calls
    ):
        return None
    if state.policy.refusal == "wait":
        return None  # a finished turn like any other
    sentence = "the provider's content filter stopped the answer"
    if state.policy.refusal == "complete":
        return one(move(state, Trigger.COMPLETE, "refused", sentence))
    return one(move(state, Trigger.FAIL, "content_filter", sentence))


def not_offered(state: RunState, fact: Fact) -> Flow | None:
    """R6: a call of a tool that its request did not offer is refused."""
    answer = state.answer
    return None if answer is None or answer.asked.tools is None else _refuse_others(state, answer.asked.tools)


def _refuse_others(state: RunState, names: tuple[str, ...]) -> Flow:
    for call in state.batch.calls if state.batch else ():
        if call.result is None and call.name not in names:
            state = yield refused(state, call.id, "refused:not_offered", Cause.OFFER)
    return state


def turned_down(state: RunState, fact: Fact) -> Flow | None:
    """R10: what a person has rejected does not run, though a new policy asks nobody any more."""
    calls = state.batch.calls if state.batch and state.policy.approvals is None else ()
    refused_by_person = [call.id for call in calls if call.rejected and call.result is None]
    return _turned_down(state, refused_by_person) if refused_by_person else None


def _turned_down(state: RunState, calls: list[str]) -> Flow:
    for call in calls:
        decision = refused(state, call, "refused:rejected", Cause.APPROVAL)
        state = yield replace(decision, why=Refusal.REJECTED, code="rejected")
    return state


def graced(state: RunState, fact: Fact) -> Flow | None:
    """The answer to the one request that a limit granted: kept, its calls refused; then the limit ends the run."""
    answer = state.answer
    return _last_word(state, answer) if answer is not None and answer.asked.purpose == "grace" else None


def _last_word(state: RunState, answer: LastAnswer) -> Flow:
    state = yield from refuse_open(state, "refused:limit", Cause.GRACE)
    grace = state.policy.grace
    again = answer.event.hollow and grace is not None and answer.graces <= grace.again_if_empty
    if again and SPENT.first(state) is None:  # what was spent is looked at here as after any answer
        return (yield request_grace(state))
    return (yield limit_move(state, "" if answer.event.hollow else "grace"))


def end_of_turn(state: RunState, fact: Fact) -> Flow | None:
    """R17: an answer without calls is a finished turn; the policy says what follows."""
    answer = state.answer
    if answer is None or answer.event.calls:
        return None
    if state.policy.end_of_turn == "continue":
        return _go_on(state)
    if state.policy.end_of_turn == "wait":
        return one(move(state, Trigger.ASK, "end_turn", "the turn is over; a person's message comes next"))
    code, reason = "end_turn", "the model finished its turn"
    if answer.event.stop is StopReason.MAX_TOKENS:
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
    return one(injected(state, "continue", Cause.END_OF_TURN)) if may_inject(state) else None
