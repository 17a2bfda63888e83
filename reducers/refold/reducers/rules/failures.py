"""Failed, broken, cut and empty answers.

Each is counted in its own scope, by what it says or does, and none is tried once its count is used up.
"""

from refold.reducers.events import AnswerDiscarded, ContextOverflowed, RetryScheduled
from refold.reducers.failures import allows, chance, delay, failure_of, in_window, next_model
from refold.reducers.machine import Trigger
from refold.reducers.policy import Empty, Overflow, Policy, Stream, Truncation
from refold.reducers.rules.flow import Flow, injected, may_inject, move, refuse_open, refused, switched_by
from refold.reducers.rules.history import make_room
from refold.reducers.rules.limits import limit_move
from refold.reducers.state import LastAnswer, LastFailure, RunState
from refold.reducers.vocabulary import Cause, FailureClass, StopReason


def retry(flow: Flow) -> bool:
    """F4, F5: a failure is tried again after a back-off, of the same model or of the policy's next one."""
    state, failed = flow.state, flow.state.failure
    if failed is None:
        return False
    policy, failure = state.policy.retry, failed.event.failure
    number = _number(state, failed)
    wait = delay(policy, number, chance(state.setup.seed, failed.seq), failed.event.retry_after, failure)
    elapsed = state.at - (state.at if state.failed_at is None else state.failed_at)
    again = allows(policy, number, elapsed, wait, failure)
    retryable = failure in policy.classes
    attempt = failed.asked.event.attempt
    other = _next_model(state, attempt, retryable=retryable, exhausted=retryable and not again)
    if other is not None and in_window(policy, elapsed, wait):
        # A model that has failed for good is left at once, and the next begins anew; one that is only left at
        # this attempt was going to be asked again, and the attempts go on.
        following, pause = (attempt + 1, wait) if again else (1, 0)
        flow.say(scheduled(state, failure, following, pause, other, Cause.FALLBACK))
        return True
    if again:
        flow.say(scheduled(state, failure, attempt + 1, wait, state.model, Cause.RETRY))
    return again


def _number(state: RunState, failed: LastFailure) -> int:
    """How many failures of its kind this model has had in this step: a class with numbers of its own has a
    count.
    """
    own = state.policy.retry.by_class
    if not own:
        return failed.asked.event.attempt
    if failed.event.failure in own:
        return _count(state, failed.event.failure)
    return max(1, failed.asked.event.attempt - sum(_count(state, failure) for failure in own))


def _count(state: RunState, failure: FailureClass) -> int:
    name = failure_of(failure, state.model)
    return state.spent.count(Cause.FAILED, name) - state.step.spent.count(Cause.FAILED, name)


def model_after_break(state: RunState) -> str:
    """The model of the step that follows a broken stream: another one, once so many streams of this one
    broke.
    """
    return _next_model(state, 0, retryable=True, exhausted=False) or state.model


def _next_model(state: RunState, attempt: int, *, retryable: bool, exhausted: bool) -> str | None:
    fallback = state.policy.retry.fallback
    if fallback is None:
        return None
    models = ("", *fallback.models)
    current = models.index(state.model) if state.model in models else len(models) - 1
    broken = state.spent.count(Cause.FAILED, failure_of(FailureClass.STREAM_BROKEN, state.model))
    return next_model(
        fallback, current, attempt, retryable=retryable, exhausted=exhausted, stream_failures=broken
    )


def scheduled(
    state: RunState,
    failure: FailureClass,
    attempt: int,
    wait: int,
    model: str,
    cause: Cause,
    *,
    keeps: bool = False,
) -> RetryScheduled:
    """The decision to ask `model` after `wait` nanoseconds; `keeps`: what had arrived stays."""
    until = state.at + wait
    return RetryScheduled(
        attempt=attempt, delay=wait, until=until, failure=failure, model=model, cause=cause, keeps=keeps
    )


def give_up(flow: Flow) -> bool:
    """F6: ERROR, with the failure's class. Of the one request that a limit granted, the end by that limit."""
    state, failed = flow.state, flow.state.failure
    assert failed is not None
    if state.limit is not None:
        flow.say(limit_move(state))
        return True
    overflow = failed.event.failure is FailureClass.CONTEXT_OVERFLOW
    code = "context_overflow" if overflow else f"provider:{failed.event.failure}"
    asked = failed.asked.event
    reason = (
        f"the model request failed ({failed.event.failure}) at attempt {asked.attempt} of step {asked.step}"
    )
    flow.say(move(state, Trigger.FAIL, code, reason))
    return True


def _truncation(policy: Policy) -> Truncation | None:
    return policy.truncation if policy.truncation and policy.truncation.max else None


def _stream(policy: Policy) -> Stream | None:
    return policy.stream if policy.stream and policy.stream.max else None


@switched_by(_truncation)
def broken_calls(knob: Truncation, flow: Flow) -> bool:
    """R6: an answer cut inside a call.

    What is incomplete is refused and not shown; so are the calls beside it.
    """
    answer = _cut(flow.state)
    if answer is None or not _incomplete(answer):
        return False
    if knob.when == "no_calls" and _incomplete(answer) < len(answer.event.calls):
        return False
    batch = flow.state.batch
    for call in batch.calls if batch else ():
        if call.result is None and not call.complete:
            flow.say(refused(flow.state, call.id, "refused:truncated", Cause.TRUNCATION, hidden=True))
    refuse_open(flow, "refused:truncated", Cause.TRUNCATION)
    _go_on(flow, knob, answer)
    return True


@switched_by(_truncation)
def truncation(knob: Truncation, flow: Flow) -> bool:
    """R14: an answer without calls that was cut at the output limit: the model is asked to go on from
    there.
    """
    answer = _cut(flow.state)
    if answer is None or answer.event.calls or knob.when == "broken_calls":
        return False
    _go_on(flow, knob, answer)
    return True


def _cut(state: RunState) -> LastAnswer | None:
    answer = state.answer
    return answer if answer is not None and answer.event.stop is StopReason.MAX_TOKENS else None


def _incomplete(answer: LastAnswer) -> int:
    """How many of its calls were never finished."""
    return sum(not call.complete for call in answer.event.calls)


def _go_on(flow: Flow, knob: Truncation, answer: LastAnswer) -> None:
    state = flow.state
    hopeless = knob.needs_text and answer.blank
    if hopeless or state.count(Cause.TRUNCATION, knob.scope) >= knob.max:
        fails = knob.exhausted == "fail" or (knob.exhausted == "fail_if_broken" and _incomplete(answer) > 0)
        trigger = Trigger.FAIL if fails else Trigger.COMPLETE
        flow.say(move(state, trigger, "truncated", "the model's answer was cut at the output limit"))
    elif may_inject(state):
        flow.say(injected(state, "truncated", Cause.TRUNCATION, stitches=knob.stitch))


@switched_by(lambda policy: None if policy.end_of_turn == "continue" else policy.empty)
def empty(knob: Empty, flow: Flow) -> bool:
    """R16: an answer of nothing is asked for again, some times. Nothing of it is kept."""
    answer = flow.state.answer
    if answer is None or answer.event.calls or not answer.blank:
        return False
    if knob.again is None or answer.empties < knob.again:
        flow.say(AnswerDiscarded(count=answer.empties + 1))
        return True
    if knob.then == "complete":
        return False  # a finished turn like any other
    flow.say(move(flow.state, Trigger.FAIL, "empty_answers", "the model answered with nothing"))
    return True


@switched_by(_stream)
def broken_stream(knob: Stream, flow: Flow) -> bool:
    """F3: a stream that broke is asked for again as a new step; text that had arrived is kept and gone on
    from.
    """
    state, failed = flow.state, flow.state.failure
    if failed is None or failed.event.failure is not FailureClass.STREAM_BROKEN:
        return False
    if failed.event.failure not in state.policy.retry.classes:
        return False
    if state.limit is not None:
        return False  # the one request that a limit grants is no step: it is tried again as any other
    _again(flow, knob, failed)
    return True


@switched_by(_stream)
def silent_stream(knob: Stream, flow: Flow) -> bool:
    """F3, of an answer: it ended without text, calls and usage, as a stream does that was cut off."""
    answer = flow.state.answer
    if answer is None or not answer.silent:
        return False
    _again(flow, knob, None)
    return True


def _again(flow: Flow, knob: Stream, failed: LastFailure | None) -> None:
    state, count = flow.state, flow.state.count(Cause.STREAM, knob.scope)
    if count >= knob.max:
        flow.say(move(state, Trigger.FAIL, "stream_broken", "the model's stream broke too often"))
        return
    seq = state.seq if failed is None else failed.seq
    keeps = failed is not None and failed.event.partial is not None and not failed.event.partial_calls
    broken, after = FailureClass.STREAM_BROKEN, failed.event.retry_after if failed else None
    wait = delay(state.policy.retry, count + 1, chance(state.setup.seed, seq), after, broken)
    flow.say(scheduled(state, broken, 1, wait, model_after_break(state), Cause.STREAM, keeps=keeps))
    if keeps and may_inject(flow.state):
        flow.say(injected(flow.state, "interrupted", Cause.INTERRUPTION, stitches=True))


@switched_by(lambda policy: policy.overflow if policy.overflow and policy.overflow.do is not None else None)
def overflow(knob: Overflow, flow: Flow) -> bool:
    """F2: the context was too long. The passes of the policy run before the next request, if there is one."""
    state, failed = flow.state, flow.state.failure
    if failed is None or failed.event.failure is not FailureClass.CONTEXT_OVERFLOW or state.limit is not None:
        return False
    _overflowed(flow, knob, now=True)
    return True


@switched_by(lambda policy: policy.overflow if policy.overflow and policy.overflow.stops else None)
def overflow_stop(knob: Overflow, flow: Flow) -> bool:
    """R2: the provider said so by the word with which it stopped. The answer is kept, its calls are
    refused.
    """
    answer = flow.state.answer
    if answer is None or answer.event.stop_raw not in knob.stops:
        return False
    _overflowed(flow, knob, now=False)
    return True


def room(flow: Flow) -> bool:
    """R2, once no limit and no keyword has ended the run by the answer: what is to be done about the
    overflow.
    """
    if flow.state.overflowed:
        make_room(flow)
    return flow.state.overflowed


def _overflowed(flow: Flow, knob: Overflow, *, now: bool) -> None:
    refuse_open(flow, "refused:overflow", Cause.OVERFLOW)
    state = flow.state
    if knob.do is None or (knob.max is not None and state.count(Cause.OVERFLOW, knob.scope) >= knob.max):
        flow.say(move(state, Trigger.FAIL, "context_overflow", "the context was too long"))
        return
    flow.say(ContextOverflowed(gives_back=0 if knob.counts_step else 1))
    if now:
        make_room(flow)
