"""One small function for each kind of decision: what it changes in the state. See `meanings.facts`."""

from msgspec.structs import replace

from refold.reducers.batches import ended, find
from refold.reducers.errors import IllegalMove, UnexpectedEvent
from refold.reducers.events import (
    ApprovalRequested,
    CallRefused,
    GuardTripped,
    HistoryPruned,
    MessageInjected,
    MessageTrimmed,
    ModelRequested,
    RetryScheduled,
    StateChanged,
    StateDigested,
    SummaryRequested,
    ToolsDispatched,
)
from refold.reducers.machine import AgentState, Trigger, target
from refold.reducers.meanings.common import said, where
from refold.reducers.state import (
    Backoff,
    Outcome,
    Request,
    RunState,
    Stopping,
)
from refold.reducers.vocabulary import Verdict
from refold.reducers.window import only, refs, resized


def model_requested(state: RunState, event: ModelRequested) -> RunState:
    """A request is under way: of a new step, or the next attempt at the same."""
    if state.request or state.batch:
        raise UnexpectedEvent("model_requested", "a request or a batch of calls is still open")
    if event.step not in (state.spent.steps, state.spent.steps + 1):
        raise UnexpectedEvent("model_requested", f"step {event.step} after step {state.spent.steps}")
    request = Request(
        seq=state.seq,
        step=event.step,
        attempt=event.attempt,
        deadline=event.deadline,
        purpose=event.purpose,
        tools=event.tools,
        max_output=event.max_output,
    )
    spent = state.spent
    spent = replace(spent, steps=event.step, requests=spent.requests + 1)
    return replace(state, request=request, backoff=None, failure=None, spent=spent)


def tools_dispatched(state: RunState, event: ToolsDispatched) -> RunState:
    """These calls are under way."""
    started = {find(state, "tools_dispatched", call).position for call in event.calls}
    if state.batch is None or not started:
        raise UnexpectedEvent("tools_dispatched", "it names no call")
    calls = tuple(
        replace(call, dispatched=state.seq) if call.position in started else call
        for call in state.batch.calls
    )
    return replace(state, batch=replace(state.batch, calls=calls, deadline=event.deadline))


def call_refused(state: RunState, event: CallRefused) -> RunState:
    """A call is not run; its refusal is its result."""
    call = replace(find(state, "call_refused", event.call), refused=True)
    return ended(state, call, event.chars, event.tokens, event.digest)


def approval_requested(state: RunState, event: ApprovalRequested) -> RunState:  # noqa: ARG001
    """A person is asked about calls."""
    raise UnexpectedEvent("approval_requested", "no rule of this version asks for approval")


def summary_requested(state: RunState, event: SummaryRequested) -> RunState:  # noqa: ARG001
    """A summary is asked for."""
    raise UnexpectedEvent("summary_requested", "no rule of this version asks for a summary")


def history_pruned(state: RunState, event: HistoryPruned) -> RunState:
    """Messages left the window."""
    kept = _spelt_out(event.kept, state.messages)
    window = only(state.window, kept)
    if window.count != event.after:
        raise UnexpectedEvent("history_pruned", f"{event.after} messages are said to stay, {window.count} do")
    return replace(state, window=window)


def _spelt_out(ranges: tuple[tuple[int, int], ...], messages: int) -> set[int]:
    # Ascending, apart, and within the messages that there are: in a damaged log they may be what they like.
    following = 1
    for first, last in ranges:
        if not following <= first <= last <= messages:
            raise UnexpectedEvent(
                "history_pruned", f"the range {first} to {last} is out of order, or holds no message"
            )
        following = last + 1
    return {number for first, last in ranges for number in range(first, last + 1)}


def message_trimmed(state: RunState, event: MessageTrimmed) -> RunState:
    """A message is shown shorter."""
    if not any(ref.number == event.message for ref in refs(state.window)):
        raise UnexpectedEvent("message_trimmed", f"message {event.message} is not in the window")
    return replace(state, window=resized(state.window, event.message, event.after, event.chars, event.digest))


def message_injected(state: RunState, event: MessageInjected) -> RunState:
    """The harness said something to the model."""
    return said(state, event.role, event.chars, event.tokens, event.digest)


def guard_tripped(state: RunState, event: GuardTripped) -> RunState:
    """A guard or limit spoke. A time limit may trip at any moment: what is in flight settles first."""
    if event.verdict is not Verdict.STOP or event.limit is None:
        return state
    if event.limit.type != "time" or state.stopping is not None:
        return replace(state, limit=event.limit)
    stopping = Stopping(
        trigger=Trigger.TIME_OUT,
        code="time_limit",
        reason=f"the time limit {event.limit.name!r} was reached",
        where=where(state),
    )
    return replace(state, limit=event.limit, stopping=stopping)


def retry_scheduled(state: RunState, event: RetryScheduled) -> RunState:
    """The run waits before the next attempt."""
    backoff = Backoff(until=event.until, since=state.at, attempt=event.attempt)
    return replace(state, backoff=backoff)


def state_changed(state: RunState, event: StateChanged) -> RunState:
    """The machine moves, if its table has the move."""
    if event.source is not state.agent_state:
        raise IllegalMove(state.agent_state, event.trigger, event.target)
    if target(event.source, event.trigger, state.came_from) is not event.target:
        raise IllegalMove(event.source, event.trigger, event.target)
    asks = event.target is AgentState.WAITING_FOR_INPUT
    state = replace(
        state,
        agent_state=event.target,
        came_from=event.source if asks else None,
        asked_at=state.at if asks else state.asked_at,
    )
    if not state.ended:
        return state
    if state.request or state.batch:
        raise UnexpectedEvent("state_changed", f"{event.target} while a request or calls are still open")
    return replace(state, outcome=_outcome(state, event), stopping=None, backoff=None)


def state_digested(state: RunState, event: StateDigested) -> RunState:  # noqa: ARG001
    """A checkpoint for people who compare logs: the next one comes so many events after it."""
    return replace(state, digested=state.seq)


def _outcome(state: RunState, event: StateChanged) -> Outcome:
    answer = state.answer
    text = answer is not None and not answer.blank
    completed = event.target is AgentState.COMPLETED
    source = ("answer" if completed else "partial") if text else "none"
    return Outcome(
        code=event.code,
        reason=event.reason,
        source=source,
        step=state.spent.steps,
        seq=state.seq,
        answer=answer.seq if answer is not None and text else None,
        where=event.where,
    )
