"""On a failed request: wait and try again, ask another model, or give up with the failure's class."""

from refold.reducers.events import RetryScheduled
from refold.reducers.machine import Trigger
from refold.reducers.retry import allows, chance, delay, failure_of, in_window, next_model
from refold.reducers.rules.ends import move
from refold.reducers.rules.flow import Flow
from refold.reducers.rules.limits import limit_move
from refold.reducers.state import LastFailure, RunState
from refold.reducers.vocabulary import Cause, FailureClass


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
        # A model that has failed for good is left at once, and the next begins anew; one that is only left at this
        # attempt was going to be asked again, and the attempts go on.
        following, pause = (attempt + 1, wait) if again else (1, 0)
        flow.say(scheduled(state, failure, following, pause, other, Cause.FALLBACK))
        return True
    if again:
        flow.say(scheduled(state, failure, attempt + 1, wait, state.model, Cause.RETRY))
    return again


def _number(state: RunState, failed: LastFailure) -> int:
    """How many failures of its kind this model has had in this step: a class with numbers of its own has a count."""
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
    """The model of the step that follows a broken stream: another one, once so many streams of this one broke."""
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
