"""Recoveries: an answer that was cut, a stream that broke, a context that was too long, an answer of nothing.

Each is counted in its own scope, by what it says or does, and none is tried once its count is used up.
"""

from refold.reducers.events import AnswerDiscarded, ContextOverflowed, Fact, RetryScheduled, StateChanged
from refold.reducers.knobs import Overflow, Stream, Truncation
from refold.reducers.machine import Trigger
from refold.reducers.retry import chance, delay
from refold.reducers.rules.ends import injected, may_inject, move, refuse_open, refused
from refold.reducers.rules.failures import model_after_break
from refold.reducers.rules.flow import Flow, one
from refold.reducers.rules.history import make_room
from refold.reducers.state import LastAnswer, LastFailure, RunState
from refold.reducers.vocabulary import Cause, FailureClass, StopReason


def broken_calls(state: RunState, fact: Fact) -> Flow | None:
    """R6: an answer cut inside a call. What is incomplete is refused and not shown; so are the calls beside it."""
    cut = _cut(state)
    if cut is None or not _incomplete(cut[1]):
        return None
    knob, answer = cut
    whole = knob.when == "no_calls" and _incomplete(answer) < len(answer.event.calls)
    return None if whole else _broken(state, knob, answer)


def _broken(state: RunState, knob: Truncation, answer: LastAnswer) -> Flow:
    for call in state.batch.calls if state.batch else ():
        if call.result is None and not call.complete:
            state = yield refused(state, call.id, "refused:truncated", Cause.TRUNCATION, hidden=True)
    state = yield from refuse_open(state, "refused:truncated", Cause.TRUNCATION)
    return (yield from _go_on(state, knob, answer))


def _incomplete(answer: LastAnswer) -> int:
    """How many of its calls were never finished."""
    return sum(not call.complete for call in answer.event.calls)


def truncation(state: RunState, fact: Fact) -> Flow | None:
    """R14: an answer without calls that was cut at the output limit: the model is asked to go on from there."""
    cut = _cut(state)
    return None if cut is None or cut[1].event.calls or cut[0].when == "broken_calls" else _go_on(state, *cut)


def _cut(state: RunState) -> tuple[Truncation, LastAnswer] | None:
    knob, answer = state.policy.truncation, state.answer
    if knob is None or not knob.max or answer is None or answer.event.stop is not StopReason.MAX_TOKENS:
        return None
    return knob, answer


def _go_on(state: RunState, knob: Truncation, answer: LastAnswer) -> Flow:
    hopeless = knob.needs_text and answer.blank
    if hopeless or state.count(Cause.TRUNCATION, knob.scope) >= knob.max:
        return (yield from _given_up(state, knob, answer))
    if may_inject(state):
        state = yield injected(state, "truncated", Cause.TRUNCATION, stitches=knob.stitch)
    return state


def _given_up(state: RunState, knob: Truncation, answer: LastAnswer) -> Flow:
    fails = knob.exhausted == "fail" or (knob.exhausted == "fail_if_broken" and _incomplete(answer) > 0)
    trigger = Trigger.FAIL if fails else Trigger.COMPLETE
    return (yield move(state, trigger, "truncated", "the model's answer was cut at the output limit"))


def empty(state: RunState, fact: Fact) -> Flow | None:
    """R16: an answer of nothing is asked for again, some times. Nothing of it is kept."""
    knob, answer = state.policy.empty, state.answer
    if knob is None or answer is None or answer.event.calls or not answer.blank:
        return None
    if state.policy.end_of_turn == "continue":
        return None
    if knob.again is None or answer.empties < knob.again:
        return one(AnswerDiscarded(count=answer.empties + 1))
    if knob.then == "complete":
        return None  # a finished turn like any other
    return one(move(state, Trigger.FAIL, "empty_answers", "the model answered with nothing"))


def broken_stream(state: RunState, fact: Fact) -> Flow | None:
    """F3: a stream that broke is asked for again as a new step; text that had arrived is kept and gone on from."""
    knob, failed = state.policy.stream, state.failure
    if (
        knob is None
        or not knob.max
        or failed is None
        or failed.event.failure is not FailureClass.STREAM_BROKEN
    ):
        return None
    if failed.event.failure not in state.policy.retry.classes:
        return None
    if state.limit is not None:
        return None  # the one request that a limit grants is no step: it is tried again as any other
    return _again(state, knob, failed) or one(_broke(state))


def silent_stream(state: RunState, fact: Fact) -> Flow | None:
    """F3, of an answer: it ended without text, calls and usage, as a stream does that was cut off."""
    knob, answer = state.policy.stream, state.answer
    if knob is None or not knob.max or answer is None or not answer.silent:
        return None
    return _again(state, knob, None) or one(_broke(state))


def _broke(state: RunState) -> StateChanged:
    return move(state, Trigger.FAIL, "stream_broken", "the model's stream broke too often")


def _again(state: RunState, knob: Stream, failed: LastFailure | None) -> Flow | None:
    count = state.count(Cause.STREAM, knob.scope)
    return None if count >= knob.max else _reconnected(state, count + 1, failed)


def _reconnected(state: RunState, count: int, failed: LastFailure | None) -> Flow:
    seq = state.seq if failed is None else failed.seq
    keeps = failed is not None and failed.event.partial is not None and not failed.event.partial_calls
    wait = delay(
        state.policy.retry,
        count,
        chance(state.setup.seed, seq),
        failed.event.retry_after if failed else None,
        FailureClass.STREAM_BROKEN,
    )
    state = yield RetryScheduled(
        attempt=1,
        delay=wait,
        until=state.at + wait,
        failure=FailureClass.STREAM_BROKEN,
        model=model_after_break(state),
        cause="stream",
        keeps=keeps,
    )
    if keeps and may_inject(state):
        state = yield injected(state, "interrupted", Cause.INTERRUPTION, stitches=True)
    return state


def overflow(state: RunState, fact: Fact) -> Flow | None:
    """F2: the context was too long. The passes of the policy run before the next request, if there is one."""
    knob, failed = state.policy.overflow, state.failure
    if failed is None or failed.event.failure is not FailureClass.CONTEXT_OVERFLOW or state.limit is not None:
        return None
    return None if knob is None or knob.do is None else _overflowed(state, knob, now=True)


def overflow_stop(state: RunState, fact: Fact) -> Flow | None:
    """R2: the provider said so by the word with which it stopped. The answer is kept, its calls are refused."""
    knob, answer = state.policy.overflow, state.answer
    if knob is None or answer is None or answer.event.stop_raw not in knob.stops:
        return None
    return _overflowed(state, knob, now=False)


def room(state: RunState, fact: Fact) -> Flow | None:
    """R2, once no limit and no keyword has ended the run by the answer: what is to be done about the overflow."""
    return make_room(state) if state.overflowed else None


def _overflowed(state: RunState, knob: Overflow, *, now: bool) -> Flow:
    state = yield from refuse_open(state, "refused:overflow", Cause.OVERFLOW)
    if knob.do is None or (knob.max is not None and state.count(Cause.OVERFLOW, knob.scope) >= knob.max):
        sentence = "the context was too long"
        return (yield move(state, Trigger.FAIL, "context_overflow", sentence))
    state = yield ContextOverflowed(gives_back=0 if knob.counts_step else 1)
    return (yield from make_room(state)) if now else state
