"""Drop the middle, and say in one message how much is gone."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from refold.reducers.history.scene import Plan, Scene
from refold.reducers.history.strategy import Strategy, older_than, stays
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, refs, tokens_left


class Compact(Strategy, frozen=True, kw_only=True, tag="compact"):
    """Keep what is pinned, one message that tells of the gap, and the newest within `tail_fraction` of `budget`.

    At least one message is kept. Unchanged if the window fits `budget` tokens or has no more than two messages
    other than system. The one marker tells of all that was dropped so far. Source: `guardrails`.
    """

    marks = "compacted"
    asks = "budget"

    name: str = "compact"
    budget: Annotated[int, Meta(ge=1)]
    tail_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.75

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:
        """Whether the window weighs no more than the budget."""
        return tokens_left(scene.window, gone) <= self.budget

    def plan(self, scene: Scene) -> Plan | None:
        """Drop what lies between the pinned and the tail."""
        messages = refs(scene.window)
        if self.fits(scene) or sum(ref.role is not Role.SYSTEM for ref in messages) <= 2:
            return None
        others = [ref for ref in messages if not stays(ref)]
        return Plan(drop=older_than(others, int(self.tail_fraction * self.budget), 1))
