"""Policies that a model cannot follow: refused before there is a run."""

from collections.abc import Iterable

from refold.engine.models.protocol import Model
from refold.reducers.errors import PolicyError
from refold.reducers.history.when import Share
from refold.reducers.limits import CostLimit
from refold.reducers.policy import Policy


def context_of(model: Model) -> int | None:
    """The tokens that the model holds; None if it does not say, which it need not."""
    context: int | None = getattr(model, "context", None)
    return context


def refuse_unpriced(policy: Policy, models: Iterable[Model]) -> None:
    """Raise `PolicyError` for a cost limit over a model without a price, unless the limit says to ignore that."""
    unpriced = [model.name for model in models if not model.priced]
    for place, limit in enumerate(policy.limits):
        refused = isinstance(limit, CostLimit) and limit.value is not None and limit.unpriced == "refuse"
        if refused and unpriced:
            raise PolicyError(
                f"limits[{place}]",
                f"a cost limit, but no price is known for {unpriced[0]}; take the limit out, or write in it "
                "unpriced: ignore",
            )


def refuse_unmeasured(policy: Policy, model: Model) -> None:
    """Raise `PolicyError` for a pass that waits for a share of a context that nobody knows."""
    for place, step in enumerate(policy.history):
        if isinstance(step.when.tokens, Share) and context_of(model) is None:
            raise PolicyError(
                f"history[{place}].when.tokens",
                f"a share of the model's context, and nobody knows that of {model.name}; write a number of "
                "tokens instead, or give the model its context",
            )
