"""Cut single messages that are too long, in the middle."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from refold.reducers.history.cuts import shortening
from refold.reducers.history.scene import Plan, Scene, Shortening
from refold.reducers.history.strategy import Strategy, newest
from refold.reducers.messages import TextCut
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, refs

_Part = Literal["text", "reasoning"]


class TrimMessages(Strategy, frozen=True, kw_only=True, tag="trim_messages"):
    """Each of the last `last` messages with a role in `roles` that has more than `cap` tokens is cut to it.

    Text and reasoning share the cap; the tokens are those of `codec`, which need not be the estimator: `chars4` is
    4 characters each, the last may be shorter, `char` is one. `last: null` is all of them, 0 none; `cap: null`
    switches it off. `single`: only if the provider complained about one message. What the harness wrote in place of
    others is not cut. Source: `inspect-iterative` and `paperbench`.
    """

    name: str = "trim_messages"
    cap: Annotated[int, Meta(ge=1)] | None
    last: Annotated[int, Meta(ge=0)] | None = None
    roles: tuple[Role, ...] = (Role.USER, Role.ASSISTANT)
    codec: Literal["chars4", "char"] = "chars4"
    single: bool = False

    def plan(self, scene: Scene) -> Plan | None:
        """Cut what is above the cap."""
        if self.cap is None or (self.single and not scene.single):
            return None
        cap, each = self.cap, [ref for ref in refs(scene.window) if ref.role in self.roles and not ref.gap]
        chosen = each if self.last is None else newest(each, self.last)
        long = [ref for ref in chosen if self._count(ref.size.chars) + self._count(ref.size.reasoning) > cap]
        return shortening(self._cut(scene, ref, cap) for ref in long)

    def _cut(self, scene: Scene, ref: MessageRef, cap: int) -> Shortening | None:
        whole, cuts, texts = ref.whole, list[TextCut](), list[str]()
        sizes: dict[_Part, int] = {"text": whole.chars, "reasoning": whole.reasoning}
        given = shares([self._count(size) for size in sizes.values()], cap)
        for (part, size), room in zip(sizes.items(), given, strict=True):
            count = self._count(size)
            if count <= room:
                continue
            longest = self._count(len(scene.text("trimmed", whole, count)))
            head, tail, marker = head_and_tail(room, longest)
            removed = count - head - tail
            # The tail is counted in tokens from the beginning, as the codec does, and its last may be shorter.
            left = size - (count - tail) * self._unit if tail else 0
            cuts.append(TextCut(part=part, head=head * self._unit, tail=left, removed=removed))
            texts.append(scene.text("trimmed", whole, removed) if marker else "")
        # It is shown so already: a cap below the number of its parts cannot be kept.
        if ref.shown and ref.shown.cuts == tuple(cuts):
            return None
        return Shortening(number=ref.number, cuts=tuple(cuts), texts=tuple(texts))

    @property
    def _unit(self) -> int:
        return 4 if self.codec == "chars4" else 1

    def _count(self, chars: int) -> int:
        return -(-chars // self._unit)


def head_and_tail(cap: int, marker: int) -> tuple[int, int, bool]:
    """Of something longer than `cap` tokens: how many of the first and last are shown, and whether the marker is.

    With a marker of so many tokens between them they never exceed the cap; with no room for it only the first are.
    """
    if cap < marker + 2:
        return cap, 0, False
    head = (cap - marker) // 2
    return head, cap - marker - head, True


def shares(counts: Sequence[int], cap: int) -> list[int]:
    """How many tokens each part of a message keeps, in proportion: whole numbers, 1 at least where it has any.

    What rounding left over goes to the parts with the largest remainders, later ones first; what it took too much
    is taken back from the smallest, earlier ones first.
    """
    total = sum(counts)
    if total <= cap:
        return list(counts)
    bases = [max(1, count * cap // total) for count in counts]
    rests = [count * cap - base * total for count, base in zip(counts, bases, strict=True)]
    given = [min(base, count) for base, count in zip(bases, counts, strict=True)]
    rising = sorted(range(len(counts)), key=lambda place: (rests[place], place))
    for place in reversed(rising):
        if sum(given) < cap and given[place] < counts[place]:
            given[place] += 1
    for place in rising:
        given[place] -= max(0, min(given[place] - 1, sum(given) - cap))
    return given
