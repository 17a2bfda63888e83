"""Rules for failed, broken, cut and empty responses.

Each reaction is counted in its own scope, by its text or decision, and is not repeated beyond its maximum.
"""

from refold.reducers.events import ContextOverflowed, ResponseDiscarded, RetryScheduled
from refold.reducers.failures import allows, chance, delay, failure_of, in_window, next_model
from refold.reducers.machine import Trigger
from refold.reducers.policy import Empty, Overflow, Policy, Stream, Truncation
from refold.reducers.rules.flow import (
    Flow,
    make_injection,
    make_move,
    make_refusal,
    may_inject,
    refuse_open,
    switched_by,
)
from refold.reducers.rules.history import make_room
from refold.reducers.rules.limits import make_limit_move
from refold.reducers.state import LastAnswer, LastFailure, RunState
from refold.reducers.vocabulary import Cause, FailureClass, StopReason


def retry(flow: Flow) -> bool:
    """F4, F5: retry a failure after a back-off, with the same model or the policy's next one."""
    state, failed = flow.state, flow.state.failure
    if failed is None:
        return False
    policy, failure = state.policy.retry, failed.event.failure
    number = _count_attempts(state, failed)
    wait = delay(policy, number, chance(state.setup.seed, failed.seq), failed.event.retry_after, failure)
    elapsed = state.at - (state.at if state.failed_at is None else state.failed_at)
    again = allows(policy, number, elapsed, wait, failure)
    retryable = failure in policy.classes
    attempt = failed.asked.event.attempt
    other = _next_model(state, attempt, retryable=retryable, exhausted=retryable and not again)
    if other is not None and in_window(policy, elapsed, wait):
        # A model that failed for good is replaced at once, and the next model starts with attempt 1. If the
        # same model would have been retried, the next model continues its attempts.
        following, pause = (attempt + 1, wait) if again else (1, 0)
        flow.say(make_retry(state, failure, following, pause, other, Cause.FALLBACK))
        return True
    if again:
        flow.say(make_retry(state, failure, attempt + 1, wait, state.model, Cause.RETRY))
    return again


def _count_attempts(state: RunState, failed: LastFailure) -> int:
    """Return how many failures of its kind this model had in this step.

    A class with its own numbers in the policy is counted on its own.
    """
    own = state.policy.retry.by_class
    if not own:
        return failed.asked.event.attempt
    if failed.event.failure in own:
        return _count_class(state, failed.event.failure)
    return max(1, failed.asked.event.attempt - sum(_count_class(state, failure) for failure in own))


def _count_class(state: RunState, failure: FailureClass) -> int:
    name = failure_of(failure, state.model)
    return state.spent.count(Cause.FAILED, name) - state.step.spent.count(Cause.FAILED, name)


def model_after_break(state: RunState) -> str:
    """Return the model for the step after a broken stream: another one after too many broken streams."""
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


def make_retry(
    state: RunState,
    failure: FailureClass,
    attempt: int,
    wait: int,
    model: str,
    cause: Cause,
    *,
    keeps: bool = False,
) -> RetryScheduled:
    """Return the decision to ask `model` after `wait` nanoseconds; `keeps`: the partial text stays."""
    until = state.at + wait
    return RetryScheduled(
        attempt=attempt, delay=wait, until=until, failure=failure, model=model, cause=cause, keeps=keeps
    )


def give_up(flow: Flow) -> bool:
    """F6: end in ERROR with the failure's class. A failed grace request ends the run by its limit."""
    state, failed = flow.state, flow.state.failure
    assert failed is not None
    if state.limit is not None:
        flow.say(make_limit_move(state))
        return True
    overflow = failed.event.failure is FailureClass.CONTEXT_OVERFLOW
    code = "context_overflow" if overflow else f"provider:{failed.event.failure}"
    asked = failed.asked.event
    reason = (
        f"the model request failed ({failed.event.failure}) at attempt {asked.attempt} of step {asked.step}"
    )
    flow.say(make_move(state, Trigger.FAIL, code, reason))
    return True


def _truncation(policy: Policy) -> Truncation | None:
    return policy.truncation if policy.truncation and policy.truncation.max else None


def _stream(policy: Policy) -> Stream | None:
    return policy.stream if policy.stream and policy.stream.max else None


@switched_by(_truncation)
def broken_calls(knob: Truncation, flow: Flow) -> bool:
    """R6: refuse and hide incomplete calls of a response that was cut off; refuse the calls beside them."""
    answer = _truncated_answer(flow.state)
    if answer is None or not _count_incomplete(answer):
        return False
    if knob.when == "no_calls" and _count_incomplete(answer) < len(answer.event.calls):
        return False
    batch = flow.state.batch
    for call in batch.calls if batch else ():
        if call.result is None and not call.complete:
            flow.say(make_refusal(flow.state, call.id, "refused:truncated", Cause.TRUNCATION, hidden=True))
    refuse_open(flow, "refused:truncated", Cause.TRUNCATION)
    _continue_or_end(flow, knob, answer)
    return True


@switched_by(_truncation)
def truncation(knob: Truncation, flow: Flow) -> bool:
    """R14: ask the model to continue a response without calls that was cut off at the output limit."""
    answer = _truncated_answer(flow.state)
    if answer is None or answer.event.calls or knob.when == "broken_calls":
        return False
    _continue_or_end(flow, knob, answer)
    return True


def _truncated_answer(state: RunState) -> LastAnswer | None:
    answer = state.answer
    return answer if answer is not None and answer.event.stop is StopReason.MAX_TOKENS else None


def _count_incomplete(answer: LastAnswer) -> int:
    """Return the number of its incomplete calls."""
    return sum(not call.complete for call in answer.event.calls)


def _continue_or_end(flow: Flow, knob: Truncation, answer: LastAnswer) -> None:
    state = flow.state
    hopeless = knob.needs_text and answer.blank
    if hopeless or state.count(Cause.TRUNCATION, knob.scope) >= knob.max:
        fails = knob.exhausted == "fail" or (
            knob.exhausted == "fail_if_broken" and _count_incomplete(answer) > 0
        )
        trigger = Trigger.FAIL if fails else Trigger.COMPLETE
        flow.say(make_move(state, trigger, "truncated", "the model's answer was cut at the output limit"))
    elif may_inject(state):
        flow.say(make_injection(state, "truncated", Cause.TRUNCATION, continues_response=knob.stitch))


@switched_by(lambda policy: None if policy.end_of_turn == "continue" else policy.empty)
def empty(knob: Empty, flow: Flow) -> bool:
    """R16: discard an empty response and ask again, a limited number of times."""
    answer = flow.state.answer
    if answer is None or answer.event.calls or not answer.blank:
        return False
    if knob.again is None or answer.empties < knob.again:
        flow.say(ResponseDiscarded(count=answer.empties + 1))
        return True
    if knob.then == "complete":
        return False  # a normal end of turn
    flow.say(make_move(flow.state, Trigger.FAIL, "empty_answers", "the model answered with nothing"))
    return True


@switched_by(_stream)
def broken_stream(knob: Stream, flow: Flow) -> bool:
    """F3: after a broken stream, ask again in a new step. Partial text stays and is continued."""
    state, failed = flow.state, flow.state.failure
    if failed is None or failed.event.failure is not FailureClass.STREAM_BROKEN:
        return False
    if failed.event.failure not in state.policy.retry.classes:
        return False
    if state.limit is not None:
        return False  # a grace request is not a step: it is retried like any other
    _restart_stream(flow, knob, failed)
    return True


@switched_by(_stream)
def silent_stream(knob: Stream, flow: Flow) -> bool:
    """F3: treat a response without text, calls and usage as a broken stream."""
    answer = flow.state.answer
    if answer is None or not answer.silent:
        return False
    _restart_stream(flow, knob, None)
    return True


def _restart_stream(flow: Flow, knob: Stream, failed: LastFailure | None) -> None:
    state, count = flow.state, flow.state.count(Cause.STREAM, knob.scope)
    if count >= knob.max:
        flow.say(make_move(state, Trigger.FAIL, "stream_broken", "the model's stream broke too often"))
        return
    seq = state.seq if failed is None else failed.seq
    keeps = failed is not None and failed.event.partial is not None and not failed.event.partial_calls
    broken, after = FailureClass.STREAM_BROKEN, failed.event.retry_after if failed else None
    wait = delay(state.policy.retry, count + 1, chance(state.setup.seed, seq), after, broken)
    flow.say(make_retry(state, broken, 1, wait, model_after_break(state), Cause.STREAM, keeps=keeps))
    if keeps and may_inject(flow.state):
        flow.say(make_injection(flow.state, "interrupted", Cause.INTERRUPTION, continues_response=True))


@switched_by(lambda policy: policy.overflow if policy.overflow and policy.overflow.do is not None else None)
def overflow(knob: Overflow, flow: Flow) -> bool:
    """F2: the context was too long: run the policy's compaction steps before the next request."""
    state, failed = flow.state, flow.state.failure
    if failed is None or failed.event.failure is not FailureClass.CONTEXT_OVERFLOW or state.limit is not None:
        return False
    _handle_overflow(flow, knob, now=True)
    return True


@switched_by(lambda policy: policy.overflow if policy.overflow and policy.overflow.stops else None)
def overflow_stop(knob: Overflow, flow: Flow) -> bool:
    """R2: the provider's stop reason reports an overflow. Keep the response, refuse its calls."""
    answer = flow.state.answer
    if answer is None or answer.event.stop_raw not in knob.stops:
        return False
    _handle_overflow(flow, knob, now=False)
    return True


def room(flow: Flow) -> bool:
    """R2: make room after an overflow, unless a limit or keyword ended the run on this response."""
    if flow.state.overflowed:
        make_room(flow)
    return flow.state.overflowed


def _handle_overflow(flow: Flow, knob: Overflow, *, now: bool) -> None:
    refuse_open(flow, "refused:overflow", Cause.OVERFLOW)
    state = flow.state
    if knob.do is None or (knob.max is not None and state.count(Cause.OVERFLOW, knob.scope) >= knob.max):
        flow.say(make_move(state, Trigger.FAIL, "context_overflow", "the context was too long"))
        return
    flow.say(ContextOverflowed(uncounted_steps=0 if knob.counts_step else 1))
    if now:
        make_room(flow)
