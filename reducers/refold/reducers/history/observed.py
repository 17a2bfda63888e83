"""Do to the window what the harness of an imported run did."""

from typing import ClassVar

from refold.reducers.history.scene import Plan, Scene
from refold.reducers.history.strategy import Strategy
from refold.reducers.window import numbers, refs, within


class Observed(Strategy, frozen=True, kw_only=True, tag="observed"):
    """Drop what the last `context_observed` says that the source's own harness dropped, be it pinned here or not.

    For imported runs, which were pruned by rules that nobody knows here. Elsewhere it never does anything.
    """

    asks: ClassVar[str] = "observed"
    pins: ClassVar[bool] = False

    name: str = "observed"

    def plan(self, scene: Scene) -> Plan | None:
        """Drop what did not stay, and nothing that joined since."""
        if scene.kept is None:
            return None
        stayed = numbers(within(scene.window, scene.kept))
        messages = refs(scene.window)
        return Plan(drop=[ref for ref in messages if ref.number <= scene.upto and ref.number not in stayed])
