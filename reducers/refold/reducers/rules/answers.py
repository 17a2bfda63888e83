"""On an answer: dispatch its calls, or say what a finished turn means."""

from msgspec.structs import replace

from refold.reducers.events import ToolsDispatched
from refold.reducers.machine import Trigger
from refold.reducers.meters import call_deadline
from refold.reducers.pending import underway
from refold.reducers.rules.flow import Flow, injected, may_inject, move, refuse_open, refused, switched_by
from refold.reducers.rules.limits import SPENT, limit_move
from refold.reducers.rules.requests import request_grace
from refold.reducers.state import Batch, RunState
from refold.reducers.vocabulary import Cause, Refusal, StopReason


def dispatch(flow: Flow) -> bool:
    """R11: run what is left of the batch, if anything is: all of it at once, or `in_order` the first of it.

    A call that an imported run's harness refused is never run: only its result is waited for.
    """
    batch = flow.state.batch
    if batch is None:
        return False
    calls = _to_run(batch)
    if calls:
        flow.say(_next_calls(flow.state, batch, calls))
    refused = sum([call.result is None for call in batch.calls]) - len(calls)
    more = f", {refused} refused in the source" if refused else ""
    flow.say(move(flow.state, Trigger.CALL_TOOLS, "tool_use", f"{len(calls)} tool calls to run{more}"))
    return True


def dispatch_next(flow: Flow) -> bool:
    """`in_order`: a call is only begun, and only said to be, when the one before it has its result."""
    state = flow.state
    if state.batch is None or state.stopping is not None or any(True for _ in underway(state)):
        return False
    calls = _to_run(state.batch)
    if calls:
        flow.say(_next_calls(state, state.batch, calls))
    return bool(calls)


def _to_run(batch: Batch) -> tuple[str, ...]:
    return tuple([call.id for call in batch.calls if call.result is None and not call.refused])


def _next_calls(state: RunState, batch: Batch, calls: tuple[str, ...]) -> ToolsDispatched:
    begun = any(call.dispatched for call in batch.calls)
    calls = calls[:1] if state.policy.batch == "in_order" else calls
    return ToolsDispatched(calls=calls, deadline=call_deadline(state, batch.until if begun else None))


@switched_by(lambda policy: None if policy.refusal == "wait" else policy.refusal)
def provider_refusal(means: str, flow: Flow) -> bool:
    """R13: the provider's filter stopped the answer. Where it `wait`s that is a finished turn like any
    other.
    """
    answer = flow.state.answer
    if answer is None or answer.event.stop is not StopReason.CONTENT_FILTER or answer.event.calls:
        return False
    end = (Trigger.COMPLETE, "refused") if means == "complete" else (Trigger.FAIL, "content_filter")
    flow.say(move(flow.state, *end, "the provider's content filter stopped the answer"))
    return True


def not_offered(flow: Flow) -> bool:
    """R6: a call of a tool that its request did not offer is refused."""
    answer, batch = flow.state.answer, flow.state.batch
    if answer is None or answer.asked.tools is None:
        return False
    for call in batch.calls if batch else ():
        if call.result is None and call.name not in answer.asked.tools:
            flow.say(refused(flow.state, call.id, "refused:not_offered", Cause.OFFER))
    return True


def turned_down(flow: Flow) -> bool:
    """R10: what a person has rejected does not run, though a new policy asks nobody any more."""
    batch = flow.state.batch if flow.state.policy.approvals is None else None
    rejected = [call.id for call in batch.calls if call.rejected and call.result is None] if batch else []
    for call in rejected:
        decision = refused(flow.state, call, "refused:rejected", Cause.APPROVAL)
        flow.say(replace(decision, why=Refusal.REJECTED, code="rejected"))
    return bool(rejected)


def graced(flow: Flow) -> bool:
    """The answer to the one request that a limit granted: kept, its calls refused; then the limit ends the
    run.
    """
    answer = flow.state.answer
    if answer is None or answer.asked.purpose != "grace":
        return False
    refuse_open(flow, "refused:limit", Cause.GRACE)
    grace = flow.state.policy.grace
    again = answer.event.hollow and grace is not None and answer.graces <= grace.again_if_empty
    if again and SPENT.first(flow.state) is None:  # what was spent is looked at here as after any answer
        flow.say(request_grace(flow.state))
    else:
        flow.say(limit_move(flow.state, "" if answer.event.hollow else "grace"))
    return True


def end_of_turn(flow: Flow) -> bool:
    """R17: an answer without calls is a finished turn; the policy says what follows."""
    state, answer = flow.state, flow.state.answer
    if answer is None or answer.event.calls:
        return False
    if state.policy.end_of_turn == "continue":
        if may_inject(state):
            flow.say(injected(state, "continue", Cause.END_OF_TURN))
        return True
    if state.policy.end_of_turn == "wait":
        flow.say(move(state, Trigger.ASK, "end_turn", "the turn is over; a person's message comes next"))
        return True
    code, reason = "end_turn", "the model finished its turn"
    if answer.event.stop is StopReason.MAX_TOKENS:
        code, reason = "truncated", "the model's answer was cut at the output limit"
    elif answer.blank:
        code, reason = "empty", "the model answered with nothing"
    flow.say(move(state, Trigger.COMPLETE, code, reason))
    return True


def tools_done(flow: Flow) -> bool:
    """The batch is complete: back to the model. One whose calls were all refused was never left for."""
    if not flow.state.agent_state.awaits_tools:
        return False
    flow.say(move(flow.state, Trigger.TOOLS_DONE, "tools_done", "every call of the batch has its result"))
    return True
