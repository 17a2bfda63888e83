"""Drop a share of the oldest messages."""

from typing import Annotated

from msgspec import Meta

from refold.reducers.history.scene import Plan, Scene
from refold.reducers.history.strategy import Strategy, stays
from refold.reducers.vocabulary import Role
from refold.reducers.window import refs


class DropOldest(Strategy, frozen=True, kw_only=True, tag="drop_oldest"):
    """Of the messages other than system, the task among them, drop the first max(1, floor(`fraction` of them)).

    The task is counted, and stays. The one strategy for which twice is not once: with `when: {always: true}` it
    drops more each time. Wait for a threshold, or let an overflow ask. Source: `paperbench`.
    """

    name: str = "drop_oldest"
    fraction: Annotated[float, Meta(gt=0, le=1)]

    def plan(self, scene: Scene) -> Plan | None:
        """Drop the oldest share."""
        messages = refs(scene.window)
        others = [ref for ref in messages if ref.role is not Role.SYSTEM]
        oldest = others[: max(1, int(self.fraction * len(others)))]
        return Plan(drop=[ref for ref in oldest if not stays(ref)])
