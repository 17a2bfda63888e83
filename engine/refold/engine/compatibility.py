"""What does not fit: policies that a model cannot follow, and agents that a run was not begun with."""

from collections.abc import Iterable, Mapping

from refold.engine.models.protocol import Model
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.events import Manifest
from refold.reducers.history.strategy import Share
from refold.reducers.limits import CostLimit
from refold.reducers.policy import Policy
from refold.reducers.sizes import refuse_without_tokenizer
from refold.reducers.state import RunState


def context_of(model: Model) -> int | None:
    """The tokens that the model holds; None if it does not say, which it need not."""
    context: int | None = getattr(model, "context", None)
    return context


def address_of(model: Model) -> str:
    """Where the model is asked, scheme and host; "" for the usual place."""
    return str(getattr(model, "address", ""))


def price_given(model: Model) -> str:
    """The price that somebody gave for the model, `0.5/1.5`; "" where nobody did."""
    return str(getattr(model, "price", ""))


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
    """Raise `PolicyError` for a pass that waits for a share of a context whose size is unknown."""
    for place, step in enumerate(policy.history):
        if isinstance(step.when.tokens, Share) and context_of(model) is None:
            raise PolicyError(
                f"history[{place}].when.tokens",
                f"a share of the model's context, but the context of {model.name} is not known; write a number of "
                "tokens instead, or give the model its context",
            )


def refuse_other_model(state: RunState, model: Model) -> None:
    """Raise `WrongUse` for another model than the run's, or one that would be asked elsewhere."""
    run, setup = state.setup.run, state.setup
    if model.name != setup.model:
        raise WrongUse(
            f"run {run} was started with the model {setup.model}, and this agent has {model.name}; "
            "resume it with that model"
        )
    if address_of(model) != setup.address:
        raise WrongUse(
            f"run {run} asked its model at {setup.address or 'the usual address'}, and this agent would ask "
            f"at {address_of(model) or 'the usual one'}: what was said there would go elsewhere; give the same "
            "base_url (--base-url)"
        )


def refuse_other_price(state: RunState, model: Model) -> None:
    """Raise `WrongUse` for another price than the run's: what its limits of cost count would be something else."""
    run, price, given = state.setup.run, state.setup.price, price_given(model)
    if given != price:
        way_out = f"give that one (--price {price})" if price else "leave it out"
        raise WrongUse(
            f"run {run} was started {f'with the price {price}' if price else 'without a price of its own'}, and this "
            f"agent has {given or 'none'}: its cost would be counted otherwise; {way_out}, or fork the run"
        )


def refuse_other_tools(state: RunState, offered: Mapping[str, Manifest]) -> None:
    """Raise `WrongUse` where a tool of the run's is missing, or another one now."""
    run = state.setup.run
    for manifest in state.setup.tools:
        now = offered.get(manifest.name)
        if now is None:
            raise WrongUse(f"run {run} was offered the tool {manifest.name}, which this agent lacks; add it")
        if (now.schema, now.replay, now.agent) != (manifest.schema, manifest.replay, manifest.agent):
            raise WrongUse(
                f"run {run}: the tool {manifest.name} has another schema, replay class or agent now than it was "
                "offered with; resume it with the tool as it was"
            )


def refuse_blind(state: RunState) -> None:
    """Raise `WrongUse` where a guard of the run's, or its tokenizer, is missing: what follows from it is unknown."""
    if state.ended:
        return
    refuse_without_tokenizer(state.policy)
    for watch in state.guards:
        if watch.guard is None:
            raise WrongUse(
                f"run {state.setup.run}: its guard {watch.name} is {watch.blind}; install it as it was"
            )
