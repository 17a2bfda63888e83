"""Runs whose calls a crash leaves in doubt."""

from typing import Any

from refold.reducers.effects import Reconcile, RunTool, Settle, doubtful, next_effects
from refold.reducers.events import DoubtResolved, Manifest
from refold.reducers.vocabulary import Doubt, Replay
from support.scenario import TOOLS, Scenario

HAPPENED, DID_NOT, UNKNOWN = Doubt.HAPPENED, Doubt.DID_NOT, Doubt.UNKNOWN
ALL = (*TOOLS, Manifest(name="book", replay=Replay.RECONCILABLE))


def begun(*tools: str, **policy: Any) -> Scenario:
    """A run whose first answer called these tools, c1 and so on, and which has begun them."""
    run = Scenario(policy, tools=ALL)
    run.answer("", *[(tool, "{}") for tool in tools])
    return run


def crashed(*tools: str, **policy: Any) -> Scenario:
    """The same, taken up again by another engine, which finds in doubt what is."""
    run = begun(*tools, **policy)
    run.resume(*doubtful(run.state))
    return run


def pending(run: Scenario) -> dict[str, str]:
    """What is to happen to each call: `run`, `reconcile` or `settle`."""
    words = {RunTool: "run", Reconcile: "reconcile", Settle: "settle"}
    return {
        str(getattr(effect, "call", "")): words[type(effect)]
        for effect in next_effects(run.state)
        if isinstance(effect, RunTool | Reconcile | Settle)
    }


def says(run: Scenario, call: str, doubt: Doubt, *, after: float = 0) -> list[str]:
    """The call's own tool says what became of it."""
    run.now += after
    fact = DoubtResolved(at=run.at, call=call, doubt=doubt, by="tool:book", reconciled=True)
    return run.feed(fact)
