"""Passes that show single messages shorter."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from refold.reducers.errors import Fault
from refold.reducers.estimate import KIND
from refold.reducers.history.strategy import Plan, Scene, Shortening, Strategy, cut_text, newest, shortening
from refold.reducers.messages import Part, Size, TextCut
from refold.reducers.text import preview_length
from refold.reducers.vocabulary import Knob, Role
from refold.reducers.window import MessageRef, refs

_Chars = Annotated[int, Meta(ge=0)]


class Soft(Knob, frozen=True, kw_only=True):
    """A result of more than `over` characters becomes its first `head` and last `tail`, with a note
    between.
    """

    over: _Chars
    head: _Chars
    tail: _Chars


class Hard(Knob, frozen=True, kw_only=True):
    """Results of more than `over` characters together become placeholders."""

    over: _Chars


class AgeResults(Strategy, frozen=True, kw_only=True, tag="age_results"):
    """Results that are not among the last `keep_last` messages are old.

    If they are too long together (`hard`) each becomes a placeholder, be it longer than a short result; else
    each that is too long by itself (`soft`) loses its middle. Source: `utah`.
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


class PreviewResults(Strategy, frozen=True, kw_only=True, tag="preview_results"):
    """A result of at least `tokens` is shown as its first `chars` characters, or `lines` lines if that is
    less.

    How many characters that are is known since the result came in: the state holds no text. Source: `tirea`.
    """

    name: str = "preview_results"
    tokens: Annotated[int, Meta(ge=1)]
    chars: Annotated[int, Meta(ge=1)]
    lines: Annotated[int, Meta(ge=1)]

    def plan(self, scene: Scene) -> Plan | None:
        """Cut each large result to its preview."""
        return shortening(
            cut_text(scene, ref, "preview", ref.preview, 0)
            for ref in refs(scene.window)
            if ref.role is Role.TOOL and ref.preview and ref.size.tokens >= self.tokens
        )


def previewed(passes: Iterable[Strategy], text: str, tokens: int) -> int:
    """How many characters of a result the first of these passes to preview it would show; 0: all of them."""
    for step in passes:
        if isinstance(step, PreviewResults) and tokens >= step.tokens:
            length = preview_length(text, step.chars, step.lines)
            return length if length < len(text) else 0
    return 0


Codec = Literal["chars4", "char", "bpe:o200k_base", "bpe:cl100k_base"]


class TrimMessages(Strategy, frozen=True, kw_only=True, tag="trim_messages"):
    """Cut each of the last `last` messages with a role in `roles` that has more than `cap` tokens.

    Text and reasoning share the cap. The tokens are those of `codec`, which need not be the estimator:
    `chars4` is 4 characters each, the last may be shorter; `char` is one; `bpe:...` is a tokenizer. `last:
    null` is all of them, 0 none; `cap: null` switches the pass off. `single`: only if the provider complained
    about one message. What the harness wrote in place of other messages is not cut.

    `marker` is the text between head and tail. `within`: it counts, and a cut message never exceeds the cap.
    `beside`: head and tail have half the cap each, rounded down, and the marker comes on top. A tokenizer
    needs `beside`: where its tokens end is measured when the message is recorded, before anything is known of
    a marker.

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
            # The tail is counted in tokens from the beginning, as the codec does, and its last may be
            # shorter.
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
        """For each part its first and last tokens, and whether the marker stands between them; None: it is
        not cut.
        """
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
    """Of something longer than `cap` tokens: how many of the first and last are shown, and whether the marker
    is.

    With a marker of so many tokens between them they never exceed the cap; with no room for it only the first
    are.
    """
    if cap < marker + 2:
        return cap, 0, False
    head = (cap - marker) // 2
    return head, cap - marker - head, True


def halves(counts: Sequence[int], cap: int) -> list[int | None]:
    """How many tokens head and tail of each part have that share a cap with the marker on top; None: it is
    not cut.

    A share is rounded down, and 1 at least; so is half of it, which may be 0.
    """
    total = sum(counts)
    if total <= cap:
        return [None] * len(counts)
    given = [max(1, count * cap // total) for count in counts]
    return [share // 2 if count > share else None for count, share in zip(counts, given, strict=True)]


def shares(counts: Sequence[int], cap: int) -> list[int]:
    """How many tokens each part of a message keeps, in proportion: whole numbers, 1 at least where it has
    any.

    What rounding left over goes to the parts with the largest remainders, later ones first; what it took too
    much is taken back from the smallest, earlier ones first.
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
