"""Compaction steps that shorten single messages."""

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
    """Replaces a result of more than `over` characters by its first `head` and last `tail`, with a note
    between.
    """

    over: _Chars
    head: _Chars
    tail: _Chars


class Hard(Knob, frozen=True, kw_only=True):
    """Replaces results with more than `over` characters together by placeholders."""

    over: _Chars


class AgeResults(Strategy, frozen=True, kw_only=True, tag="age_results"):
    """Shortens old results: those not among the last `keep_last` messages.

    If they are too long together (`hard`), each becomes a placeholder, even if that is longer than a short
    result; otherwise each that is too long (`soft`) loses its middle. Source: `utah`.
    """

    name: str = "age_results"
    keep_last: Annotated[int, Meta(ge=0)]
    soft: Soft | None = None
    hard: Hard | None = None

    def plan(self, scene: Scene) -> Plan | None:
        """Cut old results."""
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
    """Shows only the first `chars` characters, or `lines` lines if that is less, of results of at least
    `tokens`.

    The length is computed when the result arrives, because the state holds no text. Source: `tirea`.
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
    """Return how many characters of a result the first matching preview shows; 0: all of them."""
    for step in passes:
        if isinstance(step, PreviewResults) and tokens >= step.tokens:
            length = preview_length(text, step.chars, step.lines)
            return length if length < len(text) else 0
    return 0


Codec = Literal["chars4", "char", "bpe:o200k_base", "bpe:cl100k_base"]


class TrimMessages(Strategy, frozen=True, kw_only=True, tag="trim_messages"):
    """Cuts each of the last `last` messages with a role in `roles` that has more than `cap` tokens.

    Text and reasoning share the cap. `codec` defines a token, whatever the estimator: `chars4` is 4
    characters (the last may be shorter), `char` is one, `bpe:...` is a tokenizer. `last: null` means all
    messages, 0 none; `cap: null` switches the step off. `single`: only if the provider rejected one message
    as too long. Texts that replace other messages are not cut.

    `marker` is the text between head and tail. `within`: it counts, so a cut message never exceeds the cap.
    `beside`: head and tail each get half the cap, rounded down; the marker is extra. A tokenizer needs
    `beside`, because cuts are measured when the message is recorded, before a marker is known.

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
        """Yield the problem of a tokenizer whose cuts would depend on the marker."""
        if self.tokenized and self.marker == "within":
            yield (
                "codec",
                f"{self.codec} needs 'marker: beside', because head and tail are measured without the marker",
            )

    @property
    def tokenized(self) -> bool:
        """Whether only a tokenizer can find where its tokens end."""
        return self.codec.startswith(KIND)

    def plan(self, scene: Scene) -> Plan | None:
        """Cut messages above the cap."""
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
        for (part, size), count, parts in zip(
            sizes.items(), counts, self._split(scene, whole, counts, cap), strict=True
        ):
            if parts is None:
                continue
            head, tail, marker = parts
            removed = count - head - tail
            # Tokens are counted from the beginning, as the codec does; the tail's last may be short.
            rest = size - (count - tail) * self._unit if tail else 0
            cuts.append(TextCut(part=part, head=head * self._unit, tail=rest, removed=removed))
            texts.append(scene.text("trimmed", whole, removed) if marker else "")
        # Unchanged: a cap below the number of parts cannot be reached.
        if ref.shown and ref.shown.cuts == tuple(cuts):
            return None
        return Shortening(number=ref.number, cuts=tuple(cuts), texts=tuple(texts))

    def _split(
        self, scene: Scene, whole: Size, counts: Sequence[int], cap: int
    ) -> Iterator[tuple[int, int, bool] | None]:
        """Yield for each part its head and tail in tokens, and whether to include the marker; None: uncut."""
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
    """Return how many of the first and last tokens to show of a longer text, and whether to show the marker.

    With a marker of this many tokens, they never exceed the cap. Without room for it, only the first show.
    """
    if cap < marker + 2:
        return cap, 0, False
    head = (cap - marker) // 2
    return head, cap - marker - head, True


def halves(counts: Sequence[int], cap: int) -> list[int | None]:
    """Return the size of head and tail of each part, in tokens, if the marker is extra; None: not cut.

    A share is rounded down, but at least 1. So is half of it, which may be 0.
    """
    total = sum(counts)
    if total <= cap:
        return [None] * len(counts)
    given = [max(1, count * cap // total) for count in counts]
    return [share // 2 if count > share else None for count, share in zip(counts, given, strict=True)]


def shares(counts: Sequence[int], cap: int) -> list[int]:
    """Return how many tokens each part of a message keeps, in proportion: integers, at least 1 if not empty.

    Tokens left by rounding go to the largest remainders, later ones first; tokens in excess are taken from
    the smallest, earlier ones first.
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
