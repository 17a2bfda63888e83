"""Show old results of tools shorter, or not at all."""

from typing import Annotated

from msgspec import Meta

from refold.reducers.history.cuts import cut_text, shortening
from refold.reducers.history.scene import Plan, Scene
from refold.reducers.history.strategy import Strategy
from refold.reducers.values import Knob
from refold.reducers.vocabulary import Role
from refold.reducers.window import refs

_Chars = Annotated[int, Meta(ge=0)]


class Soft(Knob, frozen=True, kw_only=True):
    """A result of more than `over` characters becomes its first `head` and last `tail`, with a note between."""

    over: _Chars
    head: _Chars
    tail: _Chars


class Hard(Knob, frozen=True, kw_only=True):
    """Results of more than `over` characters together become placeholders."""

    over: _Chars


class AgeResults(Strategy, frozen=True, kw_only=True, tag="age_results"):
    """Results that are not among the last `keep_last` messages are old.

    If they are too long together (`hard`) each becomes a placeholder, be it longer than a short result; else each
    that is too long by itself (`soft`) loses its middle. Source: `utah`.
    """

    name: str = "age_results"
    keep_last: Annotated[int, Meta(ge=0)]
    soft: Soft | None = None
    hard: Hard | None = None

    def plan(self, scene: Scene) -> Plan | None:
        """Cut what is old."""
        messages = refs(scene.window)
        old = [ref for ref in messages[: max(0, len(messages) - self.keep_last)] if ref.role is Role.TOOL]
        if self.hard and sum(ref.size.chars for ref in old) > self.hard.over:
            whole = [ref for ref in old if not (ref.shown and ref.shown.cuts[0].removed == ref.whole.chars)]
            return shortening(cut_text(scene, ref, "cleared", 0, 0, longer=True) for ref in whole)
        if (soft := self.soft) is None:
            return None
        return shortening(
            cut_text(scene, ref, "aged", soft.head, soft.tail) for ref in old if ref.size.chars > soft.over
        )
