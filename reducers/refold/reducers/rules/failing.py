"""On a failed request: wait and try again, or give up with the failure's class."""

from refold.reducers.events import Fact, RetryScheduled
from refold.reducers.machine import Trigger
from refold.reducers.retry import chance, delay
from refold.reducers.rules.ending import move
from refold.reducers.rules.flow import Flow, one
from refold.reducers.state import RunState
from refold.reducers.vocabulary import FailureClass


def retry(state: RunState, fact: Fact) -> Flow | None:
    """F4: a failure of a retryable class is tried again after a back-off, as often as the policy allows."""
    failed, policy = state.failure, state.policy.retry
    if failed is None or failed.failure not in policy.classes or failed.attempt >= policy.attempts:
        return None
    wait = delay(policy, failed.attempt, chance(state.setup.seed, failed.seq), failed.retry_after)
    return one(
        RetryScheduled(attempt=failed.attempt + 1, delay=wait, until=state.at + wait, failure=failed.failure)
    )


def give_up(state: RunState, fact: Fact) -> Flow:
    """F6: ERROR, with the failure's class."""
    failed = state.failure
    assert failed is not None
    overflow = failed.failure is FailureClass.CONTEXT_OVERFLOW
    code = "context_overflow" if overflow else f"provider:{failed.failure}"
    reason = f"the model request failed ({failed.failure}) at attempt {failed.attempt} of step {failed.step}"
    return one(move(state, Trigger.FAIL, code, reason))
