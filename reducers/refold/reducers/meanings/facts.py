"""What each kind of fact means: one small function for each.

Each is called with `seq` and `at` already moved to its event. `evolve` is the only caller.
"""

from msgspec.structs import asdict, replace

from refold.reducers import events
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import RunForked
from refold.reducers.failures import failure_of
from refold.reducers.machine import Trigger
from refold.reducers.meanings.common import (
    counted_once_more,
    found_out,
    given,
    idle,
    in_doubt,
    later,
    no_longer_asked,
    reference,
    said,
    tallied,
    where,
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
    """A run begins: with its policy, and the messages that are there from the start."""
    if state.seq != 1:
        raise UnexpectedEvent("run_started", "the run has begun already")
    setup = started_setup(event)
    # The task that is named is the one that is pinned; else it is the first message of a person.
    window = replace(state.window, estimator=event.policy.estimator, task_pinned=event.task is not None)
    for ref in given(state, event.messages):
        window = append(window, replace(ref, pinned=ref.part == event.task))
    mark = Mark(at=state.at)
    marked = replace(state, lineage=mark, origin=mark, turn=mark, unasked=event.unasked)
    return replace(marked, setup=setup, window=window, messages=len(event.messages))


def started_setup(event: events.RunStarted) -> Setup:
    """What the run begins with."""
    return Setup(**asdict(replace(event, messages=(), content=None)))


def model_responded(state: RunState, event: events.ModelResponded) -> RunState:
    """The answer is accounted for and becomes a message; its calls become the open batch."""
    request = _open_request(state, "model_responded", event.request).event
    spent = _charged(state.spent, event, len(event.calls))
    state = _first_response(state) if state.turn.first_response is None else state
    answer, before = _last_answer(state, event, request), state.answer
    window, messages = state.window, state.messages
    if event.calls or not answer.blank:
        ref = reference(state, Role.ASSISTANT, event.size)
        window, messages = append(window, ref), ref.number
    elif before is not None:
        # Nothing but thoughts is no last word: the model is not shown it when it is asked for one again.
        answer = replace(answer, empties=before.empties)
    return replace(
        state,
        spent=_settled(spent, state.step.spent),
        request=None,
        answer=answer,
        parts=() if answer.graces or event.starts_over else state.parts,
        window=window,
        messages=messages + len(event.calls),
        batch=opened(state.seq, messages, event.calls),
    )


def _last_answer(state: RunState, event: events.ModelResponded, request: events.ModelRequested) -> LastAnswer:
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
    """The request is over without an answer; so may a summary be. What it cost counts."""
    if event.usage != _NOTHING or event.cost_nanousd is not None:
        state = replace(state, spent=_charged(state.spent, event))
    if state.summary is not None and state.summary.seq == event.request:
        return replace(state, summed_up=remembered(state, event))
    request = _open_request(state, "model_failed", event.request)
    state = tallied(state, Cause.FAILED, failure_of(event.failure, request.event.model))
    failure = LastFailure(seq=state.seq, event=bare(event), asked=request)
    failed_at = state.at if state.failed_at is None else state.failed_at
    return replace(state, request=None, failure=failure, failed_at=failed_at)


def tool_returned(state: RunState, event: events.ToolReturned) -> RunState:
    """A call has its result."""
    call = find(state, "tool_returned", event.call)
    if call.refused and event.refused_by is None:
        raise UnexpectedEvent(
            "tool_returned", f"call {event.call} was refused, and its result does not record who refused it"
        )
    if not (call.dispatched or call.refused):
        raise UnexpectedEvent("tool_returned", f"call {event.call} was never dispatched")
    if event.error is not None:
        call = replace(call, error=event.error)
    if event.unasked:
        state = replace(state, unasked=True)
    return found_out(ended(state, call, event.size, event.preview))


def doubt_resolved(state: RunState, event: events.DoubtResolved) -> RunState:
    """Somebody looked into a call in doubt: its result follows, or it runs again."""
    call = find(state, "doubt_resolved", event.call)
    if not call.in_doubt:
        raise UnexpectedEvent("doubt_resolved", f"call {event.call} is not in doubt")
    if not may_be_said(call, event.doubt):
        raise UnexpectedEvent("doubt_resolved", f"call {event.call} is known to have happened")
    begins_again = event.doubt is Doubt.DID_NOT
    known = replace(call, doubt=event.doubt, reconciled=event.reconciled, in_doubt=not begins_again)
    return found_out(with_call(state, known))


def input_received(state: RunState, event: events.InputReceived) -> RunState:
    """A person's message joins the window and begins a turn."""
    state = no_longer_asked(_waiting(state, "input_received", "a message"))
    state = said(state, reference(state, Role.USER, event.size))
    last = replace(state.answer, empties=0) if state.answer else None
    mark = Mark(at=state.at, spent=state.spent)
    return replace(state, turn=mark, answer=last, parts=(), unasked=event.unasked)


def approval_answered(state: RunState, event: events.ApprovalAnswered) -> RunState:
    """A person decided about calls. What comes after its time counts as nothing said, here and for the
    chain.
    """
    asked = _waiting(state, "approval_answered", "an answer about calls").approval
    if asked is None or not event.answers:
        raise UnexpectedEvent("approval_answered", "nobody was asked about calls, or it answers about none")
    late = asked.until is not None and state.at >= asked.until
    state = no_longer_asked(state)
    for answer in event.answers:
        if answer.call not in asked.event.calls:
            raise UnexpectedEvent("approval_answered", f"nobody was asked about call {answer.call}")
        call = find(state, "approval_answered", answer.call)
        if answer.decision == "edit" and not late:
            state = with_call(state, replace(call, edited=state.seq))
        elif answer.decision in ("reject", "terminate"):
            state = with_call(state, replace(call, rejected=True))
    return state


def _waiting(state: RunState, kind: str, given: str) -> RunState:
    """The state, if it waits for what a person has `given`."""
    if not state.agent_state.awaits_operator or state.asked_at is None:
        raise UnexpectedEvent(kind, f"the run is {state.agent_state}, not waiting for a person")
    wanted = "an answer about calls" if state.approval else "how calls ended" if state.batch else "a message"
    if given != wanted:
        raise UnexpectedEvent(kind, f"what was asked for is {wanted}")
    return state


def summary_returned(state: RunState, event: events.SummaryReturned) -> RunState:
    """A summary came back. It is no message yet: the pass that asked for it puts it in its place."""
    pending = state.summary
    if pending is None or pending.seq != event.request or state.summed_up is not None:
        raise UnexpectedEvent("summary_returned", f"no summary was asked for at event {event.request}")
    spent = _charged(state.spent, event)
    return replace(state, summed_up=remembered(state, event), spent=spent)


def child_ended(state: RunState, event: events.ChildEnded) -> RunState:
    """A child run has ended: what it spent counts. The call's result follows."""
    find(state, "child_ended", event.call)
    return replace(state, spent=_charged(state.spent, event))


def cancel_requested(state: RunState, event: events.CancelRequested) -> RunState:
    """Somebody wants the run to stop. The first who asked is named."""
    if state.stopping is not None:
        return state
    stopping = Stopping(
        trigger=Trigger.CANCEL, code="cancelled", reason=f"cancelled by {event.by}", where=where(state)
    )
    return replace(state, stopping=stopping)


def clock_read(state: RunState, event: events.ClockRead) -> RunState:  # noqa: ARG001
    """Time passed: a wait that is over is known to be, for a back-off or for a person."""
    asked = state.approval
    waits = state.asked_at is not None  # a forged log may ask and not wait
    if waits and asked is not None and asked.until is not None and state.at >= asked.until:
        return no_longer_asked(state)
    backoff = state.backoff
    if backoff is None or backoff.until is None or state.at < backoff.until:
        return state
    waited = state.spent.retry_wait + state.at - backoff.at
    return replace(state, backoff=replace(backoff, until=None), spent=replace(state.spent, retry_wait=waited))


def run_resumed(state: RunState, event: events.RunResumed) -> RunState:
    """An engine took the run up again: calls whose end nobody saw are in doubt."""
    state = in_doubt(replace(state, unattended=event.unattended), "run_resumed", event.in_doubt)
    # A person's time is counted as such, whether an engine waited with them or not.
    return state if state.asked_at is not None else idle(state, event.downtime)


def policy_amended(state: RunState, event: events.PolicyAmended) -> RunState:
    """Another policy is in force from here on."""
    state = replace(state, setup=amended_setup(state.setup, event))
    return found_out(state) if state.batch else state


def amended_setup(old: Setup, event: events.PolicyAmended) -> Setup:
    """What the run goes on with."""
    return replace(old, policy=event.policy)


def _settled(spent: Spent, step: Spent) -> Spent:
    """What was spent, with the waits of a step that succeeded; `step` is what had been spent when it
    began.
    """
    waited = spent.retry_wait - step.retry_wait
    if not waited and spent.settled_wait == spent.retry_wait:
        return spent
    return replace(spent, succeeded_wait=spent.succeeded_wait + waited, settled_wait=spent.retry_wait)


def _first_response(state: RunState) -> RunState:
    marks = {"lineage": state.lineage, "origin": state.origin, "turn": state.turn}
    first = {
        name: replace(mark, first_response=state.at)
        for name, mark in marks.items()
        if mark.first_response is None
    }
    return replace(state, **first)


def _open_request(state: RunState, kind: str, seq: int) -> Pending[events.ModelRequested]:
    if state.request is None or state.request.seq != seq:
        raise UnexpectedEvent(kind, f"no request made at event {seq} is open")
    return state.request


_Charge = events.ModelResponded | events.ModelFailed | events.SummaryReturned | events.ChildEnded


def _charged(spent: Spent, event: _Charge, calls: int = 0) -> Spent:
    old, usage = spent.usage, event.usage
    total = Usage(  # by hand: asked at every answer, and a loop over the names takes seven times as long
        input=old.input + usage.input,
        output=old.output + usage.output,
        cache_read=old.cache_read + usage.cache_read,
        cache_write=old.cache_write + usage.cache_write,
        reasoning=old.reasoning + usage.reasoning,
    )
    for what in event.unknown:
        if what in UNMETERED:
            spent = counted_once_more(spent, Cause.UNKNOWN, what)
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
        raise UnexpectedEvent("run_forked", "a call that was refused has no result yet")


def run_forked(state: RunState, event: RunForked) -> RunState:
    """A run goes on from a prefix of another's: what it does not change stays as it was there."""
    _check_cut(state, event)
    state = _left_open(_later(state, event.downtime), event)
    if event.again:
        state = _withdrawn(state)
    if state.unasked:  # that the parent's source ends here ends nothing here
        state = no_longer_asked(state) if state.asked_at is not None else replace(state, unasked=False)
    mark = Mark(at=state.at, spent=state.spent)
    state = replace(state, setup=forked_setup(state.setup, event), origin=mark, turn=mark)
    if event.size is not None:
        if state.request or state.batch or state.asked_at is not None:
            raise UnexpectedEvent(
                "run_forked", "a message joins it, and something else is asked for or under way"
            )
        state = said(state, reference(state, Role.USER, event.size))
    return found_out(state) if state.batch else state


_GOES_ON = ("model", "address", "price", "settings", "tools", "seed", "context")


def forked_setup(old: Setup, event: RunForked) -> Setup:
    """What the fork goes on with: what it does not say is as it was in the parent."""
    said = {name: value for name in _GOES_ON if (value := getattr(event, name)) is not None}
    if event.context == 0:
        said["context"] = None
    # What follows is of an engine of ours: it says what it does, and what it offers.
    said["unknown"] = ()
    return replace(
        old, run=event.run, rules=event.rules, policy=event.policy or old.policy, parent=None, **said
    )


def _later(state: RunState, downtime: int) -> RunState:
    """The state, so much later: what is still asked for or under way has as long as it had when the parent
    went on.
    """
    if not downtime:
        return state
    if state.approval is not None:
        state = replace(state, approval=later(state.approval, downtime))
    if state.asked_at is not None:
        state = replace(state, asked_at=state.asked_at + downtime)
    return idle(state, downtime)


def _left_open(state: RunState, event: RunForked) -> RunState:
    """The parent began these calls, and how they ended is no part of the fork: they keep the keys that they
    had.
    """
    before = state.setup.run
    for call in underway(state):
        state = with_call(state, replace(call, begun_in=call.begun_in or before))
    return in_doubt(state, "run_forked", event.in_doubt)


def _withdrawn(state: RunState) -> RunState:
    """What the parent was about to ask the model was never asked here; nor was the step taken that it
    began.
    """
    request = state.request
    if request is not None:
        steps = state.spent.steps - (request.event.purpose == "step")
        spent = replace(state.spent, steps=steps, requests=state.spent.requests - 1)
        state = replace(state, request=None, spent=spent)
    return state if state.summary is None else replace(state, summary=None, summed_up=None, pruned_by="")
