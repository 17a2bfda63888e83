"""Before a request: history is pruned, then the model is asked."""

import hashlib

from refold.reducers.events import Fact, HistoryPruned, ModelRequested
from refold.reducers.history import prune
from refold.reducers.rules.flow import Flow, one
from refold.reducers.state import RunState
from refold.reducers.usage import call_deadline


def history(state: RunState, fact: Fact) -> Flow | None:
    """P7: the policy's passes, in order. A pass that changes nothing says nothing."""
    return _pruned(state) if state.policy.history else None


def _pruned(state: RunState) -> Flow:
    for step in state.policy.history:
        before = state.window
        pruning = prune(before, step)
        if pruning is not None:
            state = yield HistoryPruned(
                name=step.name,
                reason=step.reason,
                before=before.count,
                after=pruning.window.count,
                tokens_before=before.tokens,
                tokens_after=pruning.window.tokens,
                kept=pruning.window.ranges,
                over_budget=pruning.over_budget,
            )
    return state


def request(state: RunState, fact: Fact) -> Flow:
    """P10: ask the model, as the next step."""
    return one(_requested(state, state.spent.steps + 1, 1))


def request_again(state: RunState, fact: Fact) -> Flow:
    """After a back-off: the next attempt at the same step."""
    assert state.backoff is not None
    return one(_requested(state, state.spent.steps, state.backoff.attempt))


def _requested(state: RunState, step: int, attempt: int) -> ModelRequested:
    return ModelRequested(
        step=step,
        attempt=attempt,
        view=view_digest(state),
        messages=state.window.ranges,
        input_tokens=state.window.tokens,
        deadline=call_deadline(state),
    )


def view_digest(state: RunState) -> str:
    """A digest of all that the next request shows: the window, the tools offered, the model and its settings.

    It leaves out the clock, the run's id and the provider's ids; the words are in it by their digests, which are
    salted where they are not the harness's own: views compare within a lineage, and in replays.
    """
    return hashlib.sha256(state.window.digest + state.setup.offer.encode()).hexdigest()
