"""Replace older messages by one that quotes the beginning of each."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.history.scene import Plan, Scene
from refold.reducers.history.strategy import Strategy, older, stays
from refold.reducers.messages import Gap
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, ranges_of, refs


class Digest(Strategy, frozen=True, kw_only=True, tag="digest"):
    """Keep what is pinned, system messages and the last `keep_last` others; quote the rest in one message.

    It has a line for each, `per_message` characters long, and `total` characters in all. What an earlier digest
    said gets one line's worth in the next. Source: `utah`.
    """

    marks = "digest"

    name: str = "digest"
    keep_last: Annotated[int, Meta(ge=0)]
    per_message: Annotated[int, Meta(ge=1)]
    total: Annotated[int, Meta(ge=1)]

    def plan(self, scene: Scene) -> Plan | None:
        """Drop what is older than the tail."""
        messages = refs(scene.window)
        head = older([ref for ref in messages if ref.role is not Role.SYSTEM], self.keep_last)
        return Plan(drop=[ref for ref in head if not stays(ref)])

    def mark(self, gap: Gap, dropped: Sequence[MessageRef]) -> Gap:
        """The gap with the messages that are quoted in it, oldest first."""
        quoted: list[MessageRef] = []
        for ref in dropped:
            quoted += self._filling(ref.sources, self.per_message) if ref.sources else (ref,)
        sources = ranges_of([ref.number for ref in self._filling(quoted, self.total)])
        return replace(gap, sources=sources, per_message=self.per_message, total=self.total)

    def _filling(self, sources: Iterable[MessageRef], room: int) -> tuple[MessageRef, ...]:
        # As many as certainly fill the room: the rest would be cut off, and the state holds what it need not.
        filling: list[MessageRef] = []
        for ref in sources:
            if room <= 0:
                break
            room -= len(ref.role) + min(ref.size.chars, self.per_message)
            filling.append(ref)
        return tuple(filling)
