"""One small function for each kind of fact: how it changes the state.

`evolve` is the only caller. It moves `seq` and `at` to the event before the call.
"""

from msgspec.structs import asdict, replace

from refold.reducers import events
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import RunForked
from refold.reducers.failures import failure_of
from refold.reducers.machine import Trigger
from refold.reducers.meanings.common import (
    add_downtime,
    add_message,
    count_cause,
    end_settled_wait,
    end_wait,
    increment_tally,
    make_reference,
    make_references,
    mark_in_doubt,
    name_activity,
    postpone,
)
from refold.reducers.messages import Usage
from refold.reducers.pending import bare, ended, find, may_be_said, opened, remembered, underway, with_call
from refold.reducers.state import (
    LastAnswer,
    LastFailure,
    Mark,
    Pending,
    RunState,
    Setup,
    Spent,
    Stopping,
)
from refold.reducers.vocabulary import UNMETERED, Cause, Doubt, Role
from refold.reducers.window import append

_NOTHING = Usage()


def run_started(state: RunState, event: events.RunStarted) -> RunState:
    """Begin the run, with its policy and its first messages."""
    if state.seq != 1:
        raise UnexpectedEvent("run_started", "the run has already started")
    setup = started_setup(event)
    # A task that the event names is pinned; otherwise the first user message is pinned.
    window = replace(state.window, estimator=event.policy.estimator, task_pinned=event.task is not None)
    for ref in make_references(state, event.messages):
        window = append(window, replace(ref, pinned=ref.part == event.task))
    mark = Mark(at=state.at)
    marked = replace(state, lineage=mark, origin=mark, turn=mark, no_request=event.no_request)
    return replace(marked, setup=setup, window=window, messages=len(event.messages))


def started_setup(event: events.RunStarted) -> Setup:
    """Return the setup that the run begins with."""
    return Setup(**asdict(replace(event, messages=(), content=None)))


def model_responded(state: RunState, event: events.ModelResponded) -> RunState:
    """Account for the response and add it as a message; its calls become the open batch."""
    request = _require_request(state, "model_responded", event.request).event
    spent = _add_spending(state.spent, event, len(event.calls))
    state = _mark_first_response(state) if state.turn.first_response is None else state
    answer, before = _make_last_answer(state, event, request), state.answer
    window, messages = state.window, state.messages
    if event.calls or not answer.blank:
        ref = make_reference(state, Role.ASSISTANT, event.size)
        window, messages = append(window, ref), ref.number
    elif before is not None:
        # A response of only reasoning text is not a final answer: the prompt of the next try leaves it out.
        answer = replace(answer, empties=before.empties)
    return replace(
        state,
        spent=_settle_waits(spent, state.step.spent),
        request=None,
        answer=answer,
        parts=() if answer.graces or event.replaces_partial else state.parts,
        window=window,
        messages=messages + len(event.calls),
        batch=opened(state.seq, messages, event.calls),
    )


def _make_last_answer(
    state: RunState, event: events.ModelResponded, request: events.ModelRequested
) -> LastAnswer:
    before = state.answer
    told = request.request_only and any(text.tier for text in request.request_only)
    return LastAnswer(
        seq=state.seq,
        event=bare(event),
        asked=request,
        graces=1 + (before.graces if before else 0) if request.purpose == "grace" else 0,
        ignored=bool(event.calls) and event.blank if told else before is not None and before.ignored,
    )


def model_failed(state: RunState, event: events.ModelFailed) -> RunState:
    """Close the request, or the summary, without a response. Its cost counts."""
    if event.usage != _NOTHING or event.cost_nanousd is not None:
        state = replace(state, spent=_add_spending(state.spent, event))
    if state.summary is not None and state.summary.seq == event.request:
        return replace(state, summed_up=remembered(state, event))
    request = _require_request(state, "model_failed", event.request)
    state = count_cause(state, Cause.FAILED, failure_of(event.failure, request.event.model))
    failure = LastFailure(seq=state.seq, event=bare(event), asked=request)
    failed_at = state.at if state.failed_at is None else state.failed_at
    return replace(state, request=None, failure=failure, failed_at=failed_at)


def tool_returned(state: RunState, event: events.ToolReturned) -> RunState:
    """Record the result of a call."""
    call = find(state, "tool_returned", event.call)
    if call.refused and event.refused_by is None:
        raise UnexpectedEvent(
            "tool_returned", f"call {event.call} was refused, and its result does not record who refused it"
        )
    if not (call.dispatched or call.refused):
        raise UnexpectedEvent("tool_returned", f"call {event.call} was never dispatched")
    if event.error is not None:
        call = replace(call, error=event.error)
    if event.no_request:
        state = replace(state, no_request=True)
    return end_settled_wait(ended(state, call, event.size, event.preview))


def doubt_resolved(state: RunState, event: events.DoubtResolved) -> RunState:
    """Record what became of a call in doubt: its result follows, or it runs again."""
    call = find(state, "doubt_resolved", event.call)
    if not call.in_doubt:
        raise UnexpectedEvent("doubt_resolved", f"call {event.call} is not in doubt")
    if not may_be_said(call, event.doubt):
        raise UnexpectedEvent("doubt_resolved", f"call {event.call} is known to have run")
    begins_again = event.doubt is Doubt.DID_NOT
    known = replace(call, doubt=event.doubt, reconciled=event.reconciled, in_doubt=not begins_again)
    return end_settled_wait(with_call(state, known))


def input_received(state: RunState, event: events.InputReceived) -> RunState:
    """Add a user's message to the window and begin a turn."""
    state = end_wait(_require_wait(state, "input_received", "a message"))
    state = add_message(state, make_reference(state, Role.USER, event.size))
    last = replace(state.answer, empties=0) if state.answer else None
    mark = Mark(at=state.at, spent=state.spent)
    return replace(state, turn=mark, answer=last, parts=(), no_request=event.no_request)


def approval_answered(state: RunState, event: events.ApprovalAnswered) -> RunState:
    """Apply an approver's decisions. After the deadline they count as no answer, here and in the chain."""
    asked = _require_wait(state, "approval_answered", "an approval").approval
    if asked is None or not event.answers:
        raise UnexpectedEvent("approval_answered", "no approval is open, or it has no answers")
    late = asked.until is not None and state.at >= asked.until
    state = end_wait(state)
    for answer in event.answers:
        if answer.call not in asked.event.calls:
            raise UnexpectedEvent("approval_answered", f"call {answer.call} does not wait for approval")
        call = find(state, "approval_answered", answer.call)
        if answer.decision == "edit" and not late:
            state = with_call(state, replace(call, edited=state.seq))
        elif answer.decision in ("reject", "terminate"):
            state = with_call(state, replace(call, rejected=True))
    return state


def _require_wait(state: RunState, kind: str, given: str) -> RunState:
    """Return the state if it waits for `make_references`, else raise `UnexpectedEvent`."""
    if not state.agent_state.awaits_operator or state.asked_at is None:
        raise UnexpectedEvent(kind, f"the run is {state.agent_state} and does not wait for an operator")
    wanted = "an approval" if state.approval else "the outcome of calls" if state.batch else "a message"
    if given != wanted:
        raise UnexpectedEvent(kind, f"the run waits for {wanted}")
    return state


def summary_returned(state: RunState, event: events.SummaryReturned) -> RunState:
    """Record a summary. It becomes a message once the compaction step that requested it inserts it."""
    pending = state.summary
    if pending is None or pending.seq != event.request or state.summed_up is not None:
        raise UnexpectedEvent("summary_returned", f"no summary requested at event {event.request} is open")
    spent = _add_spending(state.spent, event)
    return replace(state, summed_up=remembered(state, event), spent=spent)


def child_ended(state: RunState, event: events.ChildEnded) -> RunState:
    """Add a child run's spending. The result of its call follows."""
    find(state, "child_ended", event.call)
    return replace(state, spent=_add_spending(state.spent, event))


def cancel_requested(state: RunState, event: events.CancelRequested) -> RunState:
    """Mark the run as stopping. The first request to cancel is the one that counts."""
    if state.stopping is not None:
        return state
    stopping = Stopping(
        trigger=Trigger.CANCEL,
        code="cancelled",
        reason=f"cancelled by {event.by}",
        where=name_activity(state),
    )
    return replace(state, stopping=stopping)


def clock_read(state: RunState, event: events.ClockRead) -> RunState:  # noqa: ARG001
    """End a wait whose time is over: a back-off, or the wait for an approver."""
    asked = state.approval
    waits = state.asked_at is not None  # a forged log may have an approval but no wait
    if waits and asked is not None and asked.until is not None and state.at >= asked.until:
        return end_wait(state)
    backoff = state.backoff
    if backoff is None or backoff.until is None or state.at < backoff.until:
        return state
    waited = state.spent.retry_wait + state.at - backoff.at
    return replace(state, backoff=replace(backoff, until=None), spent=replace(state.spent, retry_wait=waited))


def run_resumed(state: RunState, event: events.RunResumed) -> RunState:
    """Record that an engine resumed the run; calls with an unknown outcome are in doubt."""
    state = mark_in_doubt(replace(state, unattended=event.unattended), "run_resumed", event.in_doubt)
    # The time of a wait for an operator counts as such, with or without an engine.
    return state if state.asked_at is not None else add_downtime(state, event.downtime)


def policy_amended(state: RunState, event: events.PolicyAmended) -> RunState:
    """Replace the policy."""
    state = replace(state, setup=amended_setup(state.setup, event))
    return end_settled_wait(state) if state.batch else state


def amended_setup(old: Setup, event: events.PolicyAmended) -> Setup:
    """Return the setup with the new policy."""
    return replace(old, policy=event.policy)


def _settle_waits(spent: Spent, step: Spent) -> Spent:
    """Add the waits of a step that succeeded; `step` is the spending at the start of the step."""
    waited = spent.retry_wait - step.retry_wait
    if not waited and spent.settled_wait == spent.retry_wait:
        return spent
    return replace(spent, succeeded_wait=spent.succeeded_wait + waited, settled_wait=spent.retry_wait)


def _mark_first_response(state: RunState) -> RunState:
    marks = {"lineage": state.lineage, "origin": state.origin, "turn": state.turn}
    first = {
        name: replace(mark, first_response=state.at)
        for name, mark in marks.items()
        if mark.first_response is None
    }
    return replace(state, **first)


def _require_request(state: RunState, kind: str, seq: int) -> Pending[events.ModelRequested]:
    if state.request is None or state.request.seq != seq:
        raise UnexpectedEvent(kind, f"no request made at event {seq} is open")
    return state.request


_Charge = events.ModelResponded | events.ModelFailed | events.SummaryReturned | events.ChildEnded


def _add_spending(spent: Spent, event: _Charge, calls: int = 0) -> Spent:
    old, usage = spent.usage, event.usage
    total = (
        Usage(  # written out: it runs for every response, and a loop over the names takes seven times as long
            input=old.input + usage.input,
            output=old.output + usage.output,
            cache_read=old.cache_read + usage.cache_read,
            cache_write=old.cache_write + usage.cache_write,
            reasoning=old.reasoning + usage.reasoning,
        )
    )
    for what in event.unknown:
        if what in UNMETERED:
            spent = increment_tally(spent, Cause.UNKNOWN, what)
    return replace(
        spent,
        calls=spent.calls + calls,
        usage=total,
        cost_nanousd=spent.cost_nanousd + (event.cost_nanousd or 0),
        unpriced=spent.unpriced + (event.cost_nanousd is None),
    )


def _check_cut(state: RunState, event: RunForked) -> None:
    if state.seq != event.parent_seq + 1:
        raise UnexpectedEvent("run_forked", f"it forks at event {event.parent_seq}, not at {state.seq - 1}")
    if state.batch and any(call.refused and call.result is None for call in state.batch.calls):
        raise UnexpectedEvent("run_forked", "a refused call has no result yet")


def run_forked(state: RunState, event: RunForked) -> RunState:
    """Continue a prefix of another run's log; everything that the fork does not change stays."""
    _check_cut(state, event)
    state = _keep_calls_open(_shift_times(state, event.downtime), event)
    if event.again:
        state = _withdraw_request(state)
    if state.no_request:  # the end of the parent's source does not end the fork
        state = end_wait(state) if state.asked_at is not None else replace(state, no_request=False)
    mark = Mark(at=state.at, spent=state.spent)
    state = replace(state, setup=forked_setup(state.setup, event), origin=mark, turn=mark)
    if event.size is not None:
        if state.request or state.batch or state.asked_at is not None:
            raise UnexpectedEvent("run_forked", "it adds a message while a request, calls or a wait are open")
        state = add_message(state, make_reference(state, Role.USER, event.size))
    return end_settled_wait(state) if state.batch else state


_GOES_ON = ("model", "address", "price", "settings", "tools", "seed", "context")


def forked_setup(old: Setup, event: RunForked) -> Setup:
    """Return the fork's setup: fields that the event does not set are as in the parent."""
    said = {name: value for name in _GOES_ON if (value := getattr(event, name)) is not None}
    if event.context == 0:
        said["context"] = None
    # An engine of ours continues the run and records what it offers, so nothing is unknown.
    said["unknown"] = ()
    return replace(
        old, run=event.run, rules=event.rules, policy=event.policy or old.policy, parent=None, **said
    )


def _shift_times(state: RunState, downtime: int) -> RunState:
    """Move times by `downtime`, so that everything pending keeps the time it had left in the parent."""
    if not downtime:
        return state
    if state.approval is not None:
        state = replace(state, approval=postpone(state.approval, downtime))
    if state.asked_at is not None:
        state = replace(state, asked_at=state.asked_at + downtime)
    return add_downtime(state, downtime)


def _keep_calls_open(state: RunState, event: RunForked) -> RunState:
    """Mark calls that the parent started: their outcome is not part of the fork. They keep their keys."""
    before = state.setup.run
    for call in underway(state):
        state = with_call(state, replace(call, begun_in=call.begun_in or before))
    return mark_in_doubt(state, "run_forked", event.in_doubt)


def _withdraw_request(state: RunState) -> RunState:
    """Remove the parent's pending request, which is not made in the fork, and the step that it began."""
    request = state.request
    if request is not None:
        steps = state.spent.steps - (request.event.purpose == "step")
        spent = replace(state.spent, steps=steps, requests=state.spent.requests - 1)
        state = replace(state, request=None, spent=spent)
    return state if state.summary is None else replace(state, summary=None, summed_up=None, pruned_by="")
