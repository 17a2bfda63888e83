"""Keep the last messages. Known as a sliding window of messages; pairs are kept whole."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from refold.reducers.history.scene import Plan, Scene
from refold.reducers.history.strategy import Strategy, older, whole_units
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, numbers, refs


class Tail(Strategy, frozen=True, kw_only=True, tag="tail"):
    """Keep what is pinned and the last max(1, `last`) of the others.

    `systems: all` keeps every system message besides; `first` counts further ones among the others. `salvage`: if
    no result would be left, the newest unit with results stays too.
    Source: the window and the threshold of `inspect-iterative`.
    """

    name: str = "tail"
    last: Annotated[int, Meta(ge=0)]
    systems: Literal["all", "first"] = "first"
    salvage: bool = False

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:
        """Whether the window surely holds no message too many: a pass need not look closer."""
        window = scene.window
        most = max(1, self.last) + window.system_pinned + window.task_pinned
        return window.count - len(gone) <= most

    def plan(self, scene: Scene) -> Plan | None:
        """Drop all but the pinned and the tail."""
        if self.fits(scene):
            return None
        messages = refs(scene.window)
        others = [ref for ref in messages if not ref.pinned]
        if self.systems == "all":
            others = [ref for ref in others if ref.role is not Role.SYSTEM]
        gone = older(others, max(1, self.last))
        return Plan(drop=self._without_salvage(messages, gone) if self.salvage else gone)

    def _without_salvage(
        self, messages: Sequence[MessageRef], gone: Sequence[MessageRef]
    ) -> Sequence[MessageRef]:
        left = numbers(messages) - numbers(whole_units(messages, gone, extend=self.pair_cut == "extend"))
        results = [ref for ref in messages if ref.role is Role.TOOL]
        if not results or not left.isdisjoint(numbers(results)):
            return gone
        return [ref for ref in gone if ref.unit != results[-1].unit]
