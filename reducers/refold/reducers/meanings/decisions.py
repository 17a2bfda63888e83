"""One small function for each kind of decision: how it changes the state. See `meanings.facts`."""

from msgspec.structs import replace

from refold.reducers import events
from refold.reducers.errors import IllegalMove, UnexpectedEvent
from refold.reducers.limits import code_of
from refold.reducers.machine import Trigger, target
from refold.reducers.meanings.common import (
    add_message,
    check_ranges,
    count_cause,
    make_reference,
    name_activity,
)
from refold.reducers.messages import Gap
from refold.reducers.pending import ended, find, is_fresh, pending, summary_done
from refold.reducers.state import Mark, Outcome, RunState, Stopping
from refold.reducers.vocabulary import Cause, Role, Verdict
from refold.reducers.window import Shown, insert, numbers_outside, quoted_refs, refs, resize, without


def model_requested(state: RunState, event: events.ModelRequested) -> RunState:
    """Open a request: of a new step, or the next attempt at the same step."""
    if state.request or state.batch or state.summary:
        raise UnexpectedEvent("model_requested", "a request, a summary or a batch of calls is still open")
    if event.step not in (state.spent.steps, state.spent.steps + 1):
        raise UnexpectedEvent("model_requested", f"step {event.step} after step {state.spent.steps}")
    fresh = state.backoff is None or is_fresh(state.backoff)
    for text in event.request_only:
        if text.tier:
            state = count_cause(state, Cause.PRESSURE, text.tier)
    spent = replace(state.spent, steps=event.step, requests=state.spent.requests + 1)
    return replace(
        state,
        request=pending(state, event, event.deadline),
        backoff=None,
        failure=None,
        spent=spent,
        step=Mark(at=state.at, spent=spent) if fresh else state.step,
        failed_at=None if fresh else state.failed_at,
        model=event.model,
        overflowed=False,
        pruned_by="",
        observed=None,
    )


def tools_dispatched(state: RunState, event: events.ToolsDispatched) -> RunState:
    """Mark the calls as started."""
    batch = state.batch
    calls = list(batch.calls) if batch else []
    for name in event.calls:
        call = find(state, "tools_dispatched", name)
        if call.refused:
            raise UnexpectedEvent("tools_dispatched", f"call {name} was refused in its source")
        calls[call.position] = replace(call, dispatched=state.seq)
    if batch is None or not event.calls:
        raise UnexpectedEvent("tools_dispatched", "it lists no calls")
    batch = replace(batch, calls=tuple(calls), until=event.deadline)
    answer = replace(state.answer, ran=True) if state.answer else None
    return replace(state, batch=batch, answer=answer, parts=())


def call_refused(state: RunState, event: events.CallRefused) -> RunState:
    """End a call that is not run; its refusal is its result."""
    call = replace(find(state, "call_refused", event.call), hidden=event.hidden)
    return ended(state, call, event.size)


def approval_requested(state: RunState, event: events.ApprovalRequested) -> RunState:
    """Open the wait for an approver's decision about calls that have not started."""
    if not event.calls or state.approval:
        raise UnexpectedEvent("approval_requested", "it lists no calls, or an approval is already open")
    for call in event.calls:
        if find(state, "approval_requested", call).dispatched:
            raise UnexpectedEvent("approval_requested", f"call {call} was started already")
    return replace(state, approval=pending(state, event, event.deadline))


def summary_requested(state: RunState, event: events.SummaryRequested) -> RunState:
    """Open the request for a summary."""
    if state.request or state.batch or state.summary:
        raise UnexpectedEvent("summary_requested", "a request, a summary or a batch of calls is still open")
    check_ranges("summary_requested", event.messages, state.messages)
    if not event.messages:
        raise UnexpectedEvent("summary_requested", "it lists no messages")
    return replace(state, summary=pending(state, event, event.deadline))


def history_pruned(state: RunState, event: events.HistoryPruned) -> RunState:
    """Remove messages from the window."""
    check_ranges("history_pruned", event.kept, state.messages)
    # The window may be long, and usually few messages leave: remove those instead of rebuilding the rest.
    window = without(state.window, numbers_outside(state.window.ranges, event.kept))
    if window.count != event.after:
        raise UnexpectedEvent(
            "history_pruned", f"it records {event.after} remaining messages, but {window.count} remain"
        )
    return replace(state, window=window, eased=True)


def message_trimmed(state: RunState, event: events.MessageTrimmed) -> RunState:
    """Shorten a message in the window."""
    ref = next((ref for ref in refs(state.window) if ref.number == event.message), None)
    if ref is None:
        raise UnexpectedEvent("message_trimmed", f"message {event.message} is not in the window")
    shown = Shown(seq=state.seq, whole=ref.whole, cuts=event.cuts) if event.cuts else None
    window = resize(state.window, event.message, event.size, shown)
    return replace(state, window=window, eased=True)


def message_injected(state: RunState, event: events.MessageInjected) -> RunState:
    """Add a message of the harness at the end, or in place of the messages that it stands for."""
    state = count_cause(state, event.cause, event.name)
    if event.gap is not None:
        return _insert_message(state, event, event.gap)
    if (
        event.cause is not Cause.PROGRESS
    ):  # a time report between two partial responses does not separate them
        state = replace(state, parts=_extend_parts(state) if event.continues_response else ())
    return add_message(state, make_reference(state, event.role, event.size))


def _extend_parts(state: RunState) -> tuple[int, ...]:
    # After a broken stream, the last part is its partial text, which is newer than any response.
    last = state.answer
    older = last is None or last.blank or last.seq <= max(state.parts, default=0)
    return state.parts if last is None or older else (*state.parts, last.seq)


def _insert_message(state: RunState, event: events.MessageInjected, gap: Gap) -> RunState:
    check_ranges("message_injected", gap.sources, state.messages)
    sources, came = quoted_refs(state.window, gap.sources), state.summed_up
    # A digest of a digest quotes the original messages; the first digest itself is gone.
    if sources and (gap.source or any(source.sources for source in sources)):
        raise UnexpectedEvent("message_injected", "its sources are not the messages of a digest")
    if gap.source:
        if came is None or came.seq != gap.source or not isinstance(came.event, events.SummaryReturned):
            raise UnexpectedEvent(
                "message_injected", f"event {gap.source} is not a summary that waits to be inserted"
            )
        state = summary_done(state)
    ref = replace(make_reference(state, event.role, event.size), gap=gap, sources=sources)
    return replace(state, window=insert(state.window, ref, gap.after), messages=ref.number)


def guard_tripped(state: RunState, event: events.GuardTripped) -> RunState:
    """Count a guard's warnings. Decisions that carry out other verdicts follow as events of their own."""
    return count_cause(state, Cause.GUARD, event.guard) if event.verdict is Verdict.WARN else state


def limit_reached(state: RunState, event: events.LimitReached) -> RunState:
    """Record a reached limit. For a time limit, wait until everything in flight has settled."""
    if not code_of(event.limit):
        raise UnexpectedEvent("limit_reached", f"no limit of type {event.limit.type!r} ends a run")
    if event.deferred:
        return replace(state, deferred=event.limit)
    if event.limit.type != "time" or state.stopping is not None:
        return replace(state, limit=event.limit)
    stopping = Stopping(
        trigger=Trigger.TIME_OUT,
        code="time_limit",
        reason=f"the time limit {event.limit.name!r} was reached",
        where=name_activity(state),
    )
    return replace(state, limit=event.limit, stopping=stopping)


def limit_neared(state: RunState, event: events.LimitNeared) -> RunState:
    """Record that users were warned, so that the warning is not repeated."""
    return count_cause(state, Cause.NEAR, event.of)


def step_exempted(state: RunState, event: events.StepExempted) -> RunState:
    """Record that a step limit does not count the step."""
    return count_cause(state, Cause.FREE, event.limit)


def context_overflowed(state: RunState, event: events.ContextOverflowed) -> RunState:
    """Record that the context overflowed; the next request is not made yet."""
    state = count_cause(state, Cause.OVERFLOW)
    spent = replace(state.spent, steps=max(0, state.spent.steps - event.uncounted_steps))
    return replace(state, spent=spent, overflowed=True, eased=False)


def response_discarded(state: RunState, event: events.ResponseDiscarded) -> RunState:
    """Record that an empty response was discarded."""
    state = count_cause(state, Cause.EMPTY)
    return replace(state, answer=replace(state.answer, empties=event.count)) if state.answer else state


def summary_abandoned(state: RunState, event: events.SummaryAbandoned) -> RunState:
    """Stop waiting for a summary that failed; later compaction steps continue."""
    state = count_cause(state, Cause.HISTORY, event.name)
    return state if state.summary is None else summary_done(state)


def retry_scheduled(state: RunState, event: events.RetryScheduled) -> RunState:
    """Open the wait before the next attempt. The partial text of a broken stream may stay as a message."""
    state = count_cause(state, event.cause)
    spent = replace(state.spent, planned_wait=state.spent.planned_wait + event.delay)
    failed = state.failure
    backoff = pending(state, event, event.until)
    state = replace(state, backoff=backoff, spent=spent, model=event.model)
    if not event.keeps or failed is None or failed.event.partial is None:
        return state
    ref = replace(make_reference(state, Role.ASSISTANT, failed.event.partial), seq=failed.seq)
    before = () if failed.event.replaces_partial else state.parts
    return replace(add_message(state, ref), parts=(*before, failed.seq))


def state_changed(state: RunState, event: events.StateChanged) -> RunState:
    """Move the machine, if its table has the move."""
    if event.source is not state.agent_state:
        raise IllegalMove(state.agent_state, event.trigger, event.target)
    if target(event.source, event.trigger, state.came_from) is not event.target:
        raise IllegalMove(event.source, event.trigger, event.target)
    asks = event.target.awaits_operator
    state = replace(
        state,
        agent_state=event.target,
        came_from=event.source if asks else None,
        asked_at=state.at if asks else state.asked_at,
    )
    if not event.target.terminal:
        return state
    if state.request or state.batch:
        raise UnexpectedEvent("state_changed", f"{event.target} while a request or calls are still open")
    return replace(state, outcome=_make_outcome(state, event), stopping=None, backoff=None)


def state_digested(state: RunState, event: events.StateDigested) -> RunState:  # noqa: ARG001
    """Record a checkpoint; the next one follows after a fixed number of events."""
    return replace(state, digested=state.seq)


def _make_outcome(state: RunState, event: events.StateChanged) -> Outcome:
    answer = state.answer
    if answer is not None and answer.seq < max(state.parts, default=0):
        answer = None  # the partial text of a broken stream is newer
    text = answer is not None and not answer.blank and event.outcome != "fallback"
    completed = event.target.succeeded
    said_so_far = text or (bool(state.parts) and event.outcome != "fallback")
    source = event.outcome or (("answer" if completed else "partial") if said_so_far else "none")
    return Outcome(
        seq=state.seq,
        event=event,
        step=state.spent.steps,
        source=source,
        answer=answer.seq if answer is not None and text else None,
        parts=tuple(seq for seq in state.parts if answer is None or seq != answer.seq) if said_so_far else (),
    )
