"""Rules for a response: dispatch its calls, or decide what a finished turn means."""

from msgspec.structs import replace

from refold.reducers.events import ToolsDispatched
from refold.reducers.machine import Trigger
from refold.reducers.meters import call_deadline
from refold.reducers.pending import underway
from refold.reducers.rules.flow import (
    Flow,
    make_injection,
    make_move,
    make_refusal,
    may_inject,
    refuse_open,
    switched_by,
)
from refold.reducers.rules.limits import SPENT, make_limit_move
from refold.reducers.rules.requests import make_grace_request
from refold.reducers.state import Batch, RunState
from refold.reducers.vocabulary import Cause, Refusal, StopReason


def dispatch(flow: Flow) -> bool:
    """R11: run the remaining calls of the batch: all, or the first if the policy's `batch` is `in_order`.

    A call that an imported run's harness refused never runs; only its result is awaited.
    """
    batch = flow.state.batch
    if batch is None:
        return False
    calls = _runnable_calls(batch)
    if calls:
        flow.say(_next_calls(flow.state, batch, calls))
    refused = sum([call.result is None for call in batch.calls]) - len(calls)
    more = f", {refused} refused in the source" if refused else ""
    flow.say(make_move(flow.state, Trigger.CALL_TOOLS, "tool_use", f"{len(calls)} tool calls to run{more}"))
    return True


def dispatch_next(flow: Flow) -> bool:
    """Start the next call of an `in_order` batch when the one before it has its result."""
    state = flow.state
    if state.batch is None or state.stopping is not None or any(True for _ in underway(state)):
        return False
    calls = _runnable_calls(state.batch)
    if calls:
        flow.say(_next_calls(state, state.batch, calls))
    return bool(calls)


def _runnable_calls(batch: Batch) -> tuple[str, ...]:
    return tuple([call.id for call in batch.calls if call.result is None and not call.refused])


def _next_calls(state: RunState, batch: Batch, calls: tuple[str, ...]) -> ToolsDispatched:
    begun = any(call.dispatched for call in batch.calls)
    calls = calls[:1] if state.policy.batch == "in_order" else calls
    return ToolsDispatched(calls=calls, deadline=call_deadline(state, batch.until if begun else None))


@switched_by(lambda policy: None if policy.refusal == "wait" else policy.refusal)
def provider_refusal(means: str, flow: Flow) -> bool:
    """R13: end the run if the provider's filter stopped the response. Under `wait`, the turn just ends."""
    answer = flow.state.answer
    if answer is None or answer.event.stop is not StopReason.CONTENT_FILTER or answer.event.calls:
        return False
    end = (Trigger.COMPLETE, "refused") if means == "complete" else (Trigger.FAIL, "content_filter")
    flow.say(make_move(flow.state, *end, "the provider's content filter stopped the answer"))
    return True


def refuse_not_offered(flow: Flow) -> bool:
    """R6: refuse calls of tools that the request did not offer."""
    answer, batch = flow.state.answer, flow.state.batch
    if answer is None or answer.asked.tools is None:
        return False
    for call in batch.calls if batch else ():
        if call.result is None and call.name not in answer.asked.tools:
            flow.say(make_refusal(flow.state, call.id, "refused:not_offered", Cause.OFFER))
    return True


def refuse_rejected(flow: Flow) -> bool:
    """R10: refuse calls that an approver rejected, even if a new policy requires no approval."""
    batch = flow.state.batch if flow.state.policy.approvals is None else None
    rejected = [call.id for call in batch.calls if call.rejected and call.result is None] if batch else []
    for call in rejected:
        decision = make_refusal(flow.state, call, "refused:rejected", Cause.APPROVAL)
        flow.say(replace(decision, why=Refusal.REJECTED, code="rejected"))
    return bool(rejected)


def end_after_grace(flow: Flow) -> bool:
    """Keep the response to a grace request, refuse its calls, and end the run by the limit."""
    answer = flow.state.answer
    if answer is None or answer.asked.purpose != "grace":
        return False
    refuse_open(flow, "refused:limit", Cause.GRACE)
    grace = flow.state.policy.grace
    again = answer.event.blank_outside_think and grace is not None and answer.graces <= grace.again_if_empty
    if again and SPENT.first(flow.state) is None:  # spending is checked here as after any response
        flow.say(make_grace_request(flow.state))
    else:
        flow.say(make_limit_move(flow.state, "" if answer.event.blank_outside_think else "grace"))
    return True


def end_of_turn(flow: Flow) -> bool:
    """R17: end the turn after a response without calls, as the policy says."""
    state, answer = flow.state, flow.state.answer
    if answer is None or answer.event.calls:
        return False
    if state.policy.end_of_turn == "continue":
        if may_inject(state):
            flow.say(make_injection(state, "continue", Cause.END_OF_TURN))
        return True
    if state.policy.end_of_turn == "wait":
        flow.say(make_move(state, Trigger.ASK, "end_turn", "the turn is over; a person's message comes next"))
        return True
    code, reason = "end_turn", "the model finished its turn"
    if answer.event.stop is StopReason.MAX_TOKENS:
        code, reason = "truncated", "the model's answer was cut at the output limit"
    elif answer.blank:
        code, reason = "empty", "the model answered with nothing"
    flow.say(make_move(state, Trigger.COMPLETE, code, reason))
    return True


def finish_batch(flow: Flow) -> bool:
    """Return to the model once the batch is complete. If all calls were refused, the batch never started."""
    if not flow.state.agent_state.awaits_tools:
        return False
    flow.say(
        make_move(flow.state, Trigger.TOOLS_DONE, "tools_done", "every call of the batch has its result")
    )
    return True
