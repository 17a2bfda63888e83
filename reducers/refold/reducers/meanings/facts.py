"""One small function for each kind of fact: what it changes in the state.

Each is called with `seq` and `at` already moved to its event, and is named as its kind. `evolve` is the only
caller.
"""

from msgspec.structs import replace

from refold.reducers.batches import ended, find, opened, with_call
from refold.reducers.checkpoint import offer_digest
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import (
    CancelRequested,
    ChildEnded,
    ClockRead,
    DoubtResolved,
    InputReceived,
    ModelFailed,
    ModelResponded,
    PolicyAmended,
    RunForked,
    RunResumed,
    RunStarted,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.meanings.common import said, where
from refold.reducers.messages import Usage
from refold.reducers.state import (
    LastAnswer,
    LastFailure,
    Mark,
    Request,
    RunState,
    Setup,
    Spent,
    Stopping,
)
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, append


def run_started(state: RunState, event: RunStarted) -> RunState:
    """A run begins: with its policy, and the messages that are there from the start."""
    if state.seq != 1:
        raise UnexpectedEvent("run_started", "the run has begun already")
    setup = Setup(
        run=event.run,
        rules=event.rules,
        policy=event.policy,
        model=event.model,
        address=event.address,
        settings=event.settings,
        tools=event.tools,
        offer=offer_digest(event.model, event.settings, event.tools),
        seed=event.seed,
        agent=event.agent,
        parent=event.parent,
    )
    window = state.window
    for part, size in enumerate(event.messages):
        ref = MessageRef(
            number=part + 1,
            role=size.role,
            seq=state.seq,
            part=part,
            unit=size.unit + 1,
            chars=size.chars,
            tokens=size.tokens,
            digest=event.digest,
            call=size.call,
        )
        window = append(window, ref)
    mark = Mark(at=state.at)
    count = len(event.messages)
    return replace(state, setup=setup, window=window, messages=count, lineage=mark, origin=mark, turn=mark)


def run_forked(state: RunState, event: RunForked) -> RunState:
    """A run goes on from a prefix of another's: what it does not change stays as it was there."""
    if state.seq != event.parent_seq + 1:
        raise UnexpectedEvent("run_forked", f"it forks at event {event.parent_seq}, not at {state.seq - 1}")
    old = state.setup
    model, tools = event.model or old.model, old.tools if event.tools is None else event.tools
    settings = old.settings if event.settings is None else event.settings
    setup = replace(
        old,
        run=event.run,
        rules=event.rules,
        policy=event.policy or old.policy,
        model=model,
        settings=settings,
        tools=tools,
        offer=offer_digest(model, settings, tools),
        seed=old.seed if event.seed is None else event.seed,
    )
    mark = Mark(at=state.at, spent=state.spent)
    return replace(state, setup=setup, origin=mark, turn=mark)


def model_responded(state: RunState, event: ModelResponded) -> RunState:
    """The answer is accounted for and becomes a message; its calls become the open batch."""
    request = _open_request(state, "model_responded", event.request)
    number = state.messages + 1
    calls = len(event.calls)
    spent = _charged(state.spent, event.usage, event.cost_nanousd, calls)
    answer = LastAnswer(
        seq=state.seq,
        step=request.step,
        stop=event.stop,
        chars=event.chars,
        blank=event.blank,
        calls=calls,
        tokens=event.tokens,
    )
    if not calls and event.blank:
        return replace(state, request=None, answer=answer, spent=spent)
    ref = MessageRef(
        number=number,
        role=Role.ASSISTANT,
        seq=state.seq,
        unit=number,
        chars=event.chars,
        tokens=event.tokens,
        digest=event.digest,
    )
    return replace(
        state,
        request=None,
        answer=answer,
        spent=spent,
        window=append(state.window, ref),
        messages=number + calls,
        batch=opened(state.seq, number, event.calls),
    )


def model_failed(state: RunState, event: ModelFailed) -> RunState:
    """The request is over without an answer."""
    request = _open_request(state, "model_failed", event.request)
    failure = LastFailure(
        seq=state.seq,
        step=request.step,
        attempt=request.attempt,
        failure=event.failure,
        retry_after=event.retry_after,
    )
    return replace(state, request=None, failure=failure)


def tool_returned(state: RunState, event: ToolReturned) -> RunState:
    """A call has its result."""
    call = find(state, "tool_returned", event.call)
    if not call.dispatched:
        raise UnexpectedEvent("tool_returned", f"call {event.call} was never dispatched")
    call = replace(call, error=event.error)
    return ended(state, call, event.chars, event.tokens, event.digest)


def doubt_resolved(state: RunState, event: DoubtResolved) -> RunState:
    """Somebody looked into a call in doubt; its result follows."""
    call = find(state, "doubt_resolved", event.call)
    if not call.in_doubt:
        raise UnexpectedEvent("doubt_resolved", f"call {event.call} is not in doubt")
    return state


def input_received(state: RunState, event: InputReceived) -> RunState:
    """A person answered. A message joins the window and begins a turn; approvals do neither."""
    if state.agent_state is not AgentState.WAITING_FOR_INPUT or state.asked_at is None:
        raise UnexpectedEvent("input_received", f"the run is {state.agent_state}, not waiting for a person")
    if event.approvals:
        raise UnexpectedEvent(
            "input_received", "it approves calls, and no rule of this version asks for that"
        )
    waited = state.at - state.asked_at
    spent = replace(state.spent, person_wait=state.spent.person_wait + waited)
    state = replace(state, spent=spent, asked_at=None)
    state = said(state, Role.USER, event.chars, event.tokens, event.digest)
    return replace(state, turn=Mark(at=state.at, spent=state.spent))


def summary_returned(state: RunState, event: SummaryReturned) -> RunState:  # noqa: ARG001
    """A summary came back."""
    raise UnexpectedEvent("summary_returned", "nothing asked for a summary")


def child_ended(state: RunState, event: ChildEnded) -> RunState:
    """A child run has ended: what it spent counts. The call's result follows."""
    find(state, "child_ended", event.call)
    return replace(state, spent=_charged(state.spent, event.usage, event.cost_nanousd))


def cancel_requested(state: RunState, event: CancelRequested) -> RunState:
    """Somebody wants the run to stop. The first who asked is named."""
    if state.stopping is not None:
        return state
    stopping = Stopping(
        trigger=Trigger.CANCEL, code="cancelled", reason=f"cancelled by {event.by}", where=where(state)
    )
    return replace(state, stopping=stopping)


def clock_read(state: RunState, event: ClockRead) -> RunState:  # noqa: ARG001
    """Time passed: a wait that is over is known to be."""
    backoff = state.backoff
    if backoff is None or backoff.passed or state.at < backoff.until:
        return state
    waited = state.spent.retry_wait + state.at - backoff.since
    return replace(
        state, backoff=replace(backoff, passed=True), spent=replace(state.spent, retry_wait=waited)
    )


def run_resumed(state: RunState, event: RunResumed) -> RunState:
    """An engine took the run up again: calls whose end nobody saw are in doubt."""
    for name in event.in_doubt:
        state = with_call(state, replace(find(state, "run_resumed", name), in_doubt=True))
    if state.asked_at is not None:
        return state  # a person's time is counted as such, whether an engine waited with them or not
    state = _postponed(state, event.downtime)
    return replace(state, spent=replace(state.spent, downtime=state.spent.downtime + event.downtime))


def policy_amended(state: RunState, event: PolicyAmended) -> RunState:
    """Another policy is in force from here on."""
    return replace(state, setup=replace(state.setup, policy=event.policy))


def _postponed(state: RunState, downtime: int) -> RunState:
    # What is begun again has as long as it had before. Whether the run has is the time limit's affair.
    request, batch = state.request, state.batch
    if request is not None and request.deadline is not None:
        return replace(state, request=replace(request, deadline=request.deadline + downtime))
    if batch is not None and batch.deadline is not None:
        return replace(state, batch=replace(batch, deadline=batch.deadline + downtime))
    return state


def _open_request(state: RunState, kind: str, seq: int) -> Request:
    if state.request is None or state.request.seq != seq:
        raise UnexpectedEvent(kind, f"no request made at event {seq} is open")
    return state.request


def _charged(spent: Spent, usage: Usage, cost_nanousd: int | None, calls: int = 0) -> Spent:
    old = spent.usage
    total = Usage(
        input=old.input + usage.input,
        output=old.output + usage.output,
        cache_read=old.cache_read + usage.cache_read,
        cache_write=old.cache_write + usage.cache_write,
        reasoning=old.reasoning + usage.reasoning,
    )
    return replace(
        spent,
        calls=spent.calls + calls,
        usage=total,
        cost_nanousd=spent.cost_nanousd + (cost_nanousd or 0),
        unpriced=spent.unpriced + (cost_nanousd is None),
    )
