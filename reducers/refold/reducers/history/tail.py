"""Keep the last messages. Known as a sliding window of messages; pairs are kept whole."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from refold.reducers.history.when import When
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window


class Tail(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="do",
    tag="tail",
    gc=False,
):
    """Keep what is pinned and the last max(1, `last`) of the others.

    `systems: all` keeps every system message besides; `first` counts further ones among the others.
    """

    name: str = "tail"
    when: When = When(always=True)
    last: Annotated[int, Meta(ge=0)]
    systems: Literal["all", "first"] = "first"
    pair_cut: Literal["drop", "extend"] = "drop"

    @property
    def reason(self) -> str:
        """Why it prunes: at a threshold, if it waits for one, else to keep the window."""
        return "threshold" if self.when.waits else "window"

    def fits(self, window: Window) -> bool:
        """Whether the window surely holds no message too many: a pass need not look closer."""
        return window.count - window.system_pinned - window.task_pinned <= max(1, self.last)

    def keep(self, messages: list[MessageRef]) -> set[int]:
        """The numbers of the messages to keep, pairs not yet considered."""
        every_system = self.systems == "all"
        kept = {ref.number for ref in messages if ref.pinned or (every_system and ref.role is Role.SYSTEM)}
        others = [ref.number for ref in messages if ref.number not in kept]
        return kept.union(others[-max(1, self.last) :])
