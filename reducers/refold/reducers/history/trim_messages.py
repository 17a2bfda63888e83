"""Cut single messages that are too long, in the middle."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from refold.reducers.history.cuts import shortening
from refold.reducers.history.scene import Plan, Scene, Shortening
from refold.reducers.history.strategy import Strategy, newest
from refold.reducers.messages import Part, Size, TextCut
from refold.reducers.refusals import Fault
from refold.reducers.tokenizers import KIND
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, refs

Codec = Literal["chars4", "char", "bpe:o200k_base", "bpe:cl100k_base"]


class TrimMessages(Strategy, frozen=True, kw_only=True, tag="trim_messages"):
    """Cut each of the last `last` messages with a role in `roles` that has more than `cap` tokens.

    Text and reasoning share the cap. The tokens are those of `codec`, which need not be the estimator: `chars4` is
    4 characters each, the last may be shorter; `char` is one; `bpe:...` is a tokenizer. `last: null` is all of them, 0
    none; `cap: null` switches the pass off. `single`: only if the provider complained about one message. What the
    harness wrote in place of other messages is not cut.

    `marker` is the text between head and tail. `within`: it counts, and a cut message never exceeds the cap. `beside`:
    head and tail have half the cap each, rounded down, and the marker comes on top. A tokenizer needs `beside`: where
    its tokens end is measured when the message is recorded, before anything is known of a marker.

    Source: `inspect-iterative` (`within`) and `paperbench` (`beside`).
    """

    name: str = "trim_messages"
    cap: Annotated[int, Meta(ge=1)] | None
    last: Annotated[int, Meta(ge=0)] | None = None
    roles: tuple[Role, ...] = (Role.USER, Role.ASSISTANT)
    codec: Codec = "chars4"
    marker: Literal["within", "beside"] = "within"
    single: bool = False

    def problems(self) -> Iterator[Fault]:
        """A tokenizer whose cuts would depend on the marker."""
        if self.tokenized and self.marker == "within":
            yield (
                "codec",
                f"{self.codec} needs 'marker: beside': head and tail are measured without the marker",
            )

    @property
    def tokenized(self) -> bool:
        """Whether only a tokenizer tells where its tokens end."""
        return self.codec.startswith(KIND)

    def plan(self, scene: Scene) -> Plan | None:
        """Cut what is above the cap."""
        if self.cap is None or (self.single and not scene.single):
            return None
        cap, each = self.cap, [ref for ref in refs(scene.window) if ref.role in self.roles and not ref.gap]
        chosen = each if self.last is None else newest(each, self.last)
        if self.tokenized:
            return shortening(self._cut_in_tokens(scene, ref) for ref in chosen)
        long = [ref for ref in chosen if self._count(ref.size.chars) + self._count(ref.size.reasoning) > cap]
        return shortening(self._cut(scene, ref, cap) for ref in long)

    def _cut_in_tokens(self, scene: Scene, ref: MessageRef) -> Shortening | None:
        measured = ref.whole.token_cuts
        cuts = next((each.cuts for each in measured if (each.codec, each.cap) == (self.codec, self.cap)), ())
        if not cuts or (ref.shown and ref.shown.cuts == cuts):
            return None
        texts = tuple([scene.text("trimmed", ref.whole, cut.removed) for cut in cuts])
        return Shortening(number=ref.number, cuts=cuts, texts=texts)

    def _cut(self, scene: Scene, ref: MessageRef, cap: int) -> Shortening | None:
        whole, cuts, texts = ref.whole, list[TextCut](), list[str]()
        sizes: dict[Part, int] = {"text": whole.chars, "reasoning": whole.reasoning}
        counts = [self._count(size) for size in sizes.values()]
        for (part, size), count, kept in zip(
            sizes.items(), counts, self._kept(scene, whole, counts, cap), strict=True
        ):
            if kept is None:
                continue
            head, tail, marker = kept
            removed = count - head - tail
            # The tail is counted in tokens from the beginning, as the codec does, and its last may be shorter.
            left = size - (count - tail) * self._unit if tail else 0
            cuts.append(TextCut(part=part, head=head * self._unit, tail=left, removed=removed))
            texts.append(scene.text("trimmed", whole, removed) if marker else "")
        # It is shown so already: a cap below the number of its parts cannot be kept.
        if ref.shown and ref.shown.cuts == tuple(cuts):
            return None
        return Shortening(number=ref.number, cuts=tuple(cuts), texts=tuple(texts))

    def _kept(
        self, scene: Scene, whole: Size, counts: Sequence[int], cap: int
    ) -> Iterator[tuple[int, int, bool] | None]:
        """For each part its first and last tokens, and whether the marker stands between them; None: it is not cut."""
        if self.marker == "beside":
            yield from (None if half is None else (half, half, True) for half in halves(counts, cap))
            return
        for count, room in zip(counts, shares(counts, cap), strict=True):
            longest = self._count(len(scene.text("trimmed", whole, count)))
            yield None if count <= room else head_and_tail(room, longest)

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


def halves(counts: Sequence[int], cap: int) -> list[int | None]:
    """How many tokens head and tail of each part have that share a cap with the marker on top; None: it is not cut.

    A share is rounded down, and 1 at least; so is half of it, which may be 0.
    """
    total = sum(counts)
    if total <= cap:
        return [None] * len(counts)
    given = [max(1, count * cap // total) for count in counts]
    return [share // 2 if count > share else None for count, share in zip(counts, given, strict=True)]


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
