"""What history passes are given, what they answer, and what they share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from msgspec import Meta

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.messages import Gap, Size, TextCut
from refold.reducers.text import TEXTS, render
from refold.reducers.vocabulary import Knob, Ranges, Role, Unknown
from refold.reducers.window import MessageRef, Window, numbers


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The moment at which a pass runs: before step `step` (from 1) is requested of `model`.

    `context` is the model's context in tokens, None if nobody knows it; `tools` the estimate of what is
    offered beside the messages; `turn_start` that no step was made in this turn yet. `forced`: an overflow
    asks, whatever `when` says; `single`: the provider complained about one message. `texts` are the policy's,
    for their lengths. Of an imported run: of its first `upto` messages its own harness kept the ranges
    `kept`, None: all.
    """

    window: Window
    step: int = 1
    model: str = ""
    context: int | None = None
    tools: int = 0
    turn_start: bool = False
    forced: bool = False
    single: bool = False
    texts: Mapping[str, str] = {}
    upto: int = 0
    kept: Ranges | None = None

    def text(self, key: str, whole: Size, removed: int) -> str:
        """What the harness says under this key where so much of a message was cut, of which `whole` is the
        size.
        """
        return render(self.texts.get(key) or TEXTS[key], cut_values(whole, removed))


def cut_values(whole: Size, removed: int) -> dict[str, str | int]:
    """What fills the text that stands where so much of a message was cut: the characters of its text and
    reasoning, too.
    """
    reasoning = {"reasoning": whole.reasoning} if whole.reasoning else {}
    return {"size": whole.chars, **reasoning, "removed": removed}


class Shortening(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be shown shorter, and what is said where something was cut: a text a cut."""

    number: int
    cuts: tuple[TextCut, ...]
    texts: tuple[str, ...]


class Covering(msgspec.Struct, frozen=True, kw_only=True):
    """A summary to be asked for, of these messages; it is to stand right after message `after`."""

    messages: Ranges
    after: int
    role: Role
    max_output: int | None
    input_tokens: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass wants. `drop`: what leaves, in order, whole units and nothing that is pinned; None: it is
    none that drops.

    `gap` is what one message stands for that tells of all that was dropped.
    """

    drop: Sequence[MessageRef] | None = None
    shorter: tuple[Shortening, ...] = ()
    gap: Gap | None = None
    summary: Covering | None = None


class Share(Knob, frozen=True, kw_only=True):
    """So large a part of the model's context. It never holds where nobody knows that."""

    share: Annotated[float, Meta(gt=0, le=1)]


class When(Knob, frozen=True, kw_only=True):
    """`always`; more than so many `messages` in the window; more than so many estimated `tokens`, or just as
    many with `at_least`, in it, or of everything since the start with `measure: whole`; a `model` whose name
    contains one of these parts (in any case, unless `model_case`); after so many steps; only at the start of
    a turn.

    `null` is not given, and nothing given but `always: false` is never.
    """

    always: bool = False
    messages: Annotated[int, Meta(ge=1)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | Share | None = None
    at_least: bool = False
    measure: Literal["window", "whole"] = "window"
    model: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    model_case: bool = False
    after_step: Annotated[int, Meta(ge=0)] | None = None
    turn_start: bool = False

    @property
    def waits(self) -> bool:
        """Whether there is a threshold to wait for."""
        return self.messages is not None or self.tokens is not None

    def holds(self, scene: Scene) -> bool:
        """Whether every condition given holds; with none given, only `always` makes it true."""
        conditions = [
            scene.window.count > self.messages if self.messages is not None else None,
            self._heavy(scene, self.tokens) if self.tokens is not None else None,
            self._named(scene.model) if self.model else None,
            scene.step > self.after_step if self.after_step is not None else None,
            scene.turn_start if self.turn_start else None,
        ]
        given = [condition for condition in conditions if condition is not None]
        return all(given) if given else self.always

    def _heavy(self, scene: Scene, limit: int | Share) -> bool:
        used: float = scene.window.whole_tokens if self.measure == "whole" else scene.window.tokens
        if isinstance(limit, int):
            return used >= limit if self.at_least else used > limit
        if not scene.context:
            return False
        used /= scene.context
        return used >= limit.share if self.at_least else used > limit.share

    def _named(self, model: str) -> bool:
        if self.model_case:
            return any(part in model for part in self.model)
        return any(part.lower() in model.lower() for part in self.model)


class Strategy(Knob, frozen=True, kw_only=True, tag_field="do"):
    """Base of the strategies. Each has a method `plan(scene)`: what it wants, pairs and pins not considered.

    `marks` is the policy's text of the one message that stands for all that was dropped; "" where there is
    none. `asks` is the reason where it is always the same. `pins`: what is pinned stays, whatever it wants.
    """

    marks: ClassVar[str] = ""
    asks: ClassVar[str] = ""
    pins: ClassVar[bool] = True

    name: str
    when: When = When(always=True)
    pair_cut: Literal["drop", "extend"] = "drop"

    @property
    def reason(self) -> str:
        """Why it prunes: at a threshold, if it waits for one, else to keep the window."""
        return self.asks or ("threshold" if self.when.waits else "window")

    @property
    def reads(self) -> frozenset[Unknown]:
        """What it asks for that a record may lack."""
        context = isinstance(self.when.tokens, Share) or self.when.model
        return frozenset({Unknown.CONTEXT} if context else ())

    def beside(self, tools: int | None) -> Self:  # noqa: ARG002
        """The strategy where the tools offered weigh so many tokens; None: as many as there is room for."""
        return self

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:  # noqa: ARG002
        """Whether the window without what is `gone` is within what this strategy keeps to; one without a
        budget always is.
        """
        return True

    def mark(self, gap: Gap, dropped: Sequence[MessageRef]) -> Gap:  # noqa: ARG002
        """The gap that what was dropped leaves, with what only this strategy says in it."""
        return gap


def stays(ref: MessageRef) -> bool:
    """Whether a strategy that counts or weighs keeps it whatever it weighs: what is pinned, system
    messages.
    """
    return ref.pinned or ref.role is Role.SYSTEM


def newest(messages: Sequence[MessageRef], count: int) -> Sequence[MessageRef]:
    """The last so many."""
    return messages[max(0, len(messages) - count) :]


def older(messages: Sequence[MessageRef], count: int) -> Sequence[MessageRef]:
    """All but the last so many."""
    return messages[: max(0, len(messages) - count)]


def older_than(messages: Sequence[MessageRef], budget: int, least: int) -> Sequence[MessageRef]:
    """All but those, from the newest back, whose estimates fit the budget; `least` of them stay whatever they
    weigh.
    """
    for place, ref in enumerate(reversed(messages)):
        budget -= ref.size.tokens
        if budget < 0 and place >= least:
            return older(messages, place)
    return ()


def weight(window: Window, messages: Sequence[MessageRef]) -> int:
    """Estimated tokens of these messages of a window, as a list."""
    return ESTIMATORS[window.estimator].weigh_all([(ref.role, ref.size) for ref in messages])


def _uncut(messages: Sequence[MessageRef], dropped: Sequence[MessageRef]) -> Sequence[MessageRef]:
    going = numbers(dropped)
    cut = {ref.unit for ref in messages if ref.number not in going}
    return [ref for ref in dropped if ref.unit not in cut]


def whole_units(
    messages: Sequence[MessageRef], dropped: Sequence[MessageRef], *, extend: bool
) -> Sequence[MessageRef]:
    """What of the messages goes if these do, with no unit in halves: one that is cut goes, or with `extend`
    stays.
    """
    if extend:
        return _uncut(messages, dropped)
    units, last = {ref.unit for ref in dropped}, dropped[-1].unit if dropped else 0
    whole: list[MessageRef] = []
    # What goes stands mostly in front, and a unit in one piece: what stands behind the last of them is not
    # looked at.
    for ref in messages:
        if ref.unit in units:
            whole.append(ref)
        elif whole and whole[-1].unit == last:
            break
    return whole


def cut_text(
    scene: Scene, ref: MessageRef, text: str, head: int, tail: int, *, longer: bool = False
) -> Shortening | None:
    """Show so many of the first and last characters. None: that would be no shorter than what is shown.

    With `longer` a message that is shown whole may become longer by it.
    """
    removed = max(0, ref.whole.chars - head - tail)
    said = scene.text(text, ref.whole, removed)
    if head + len(said) + tail < ref.size.chars or (longer and ref.shown is None):
        cut = TextCut(head=head, tail=tail, removed=removed)
        return Shortening(number=ref.number, cuts=(cut,), texts=(said,))
    return None


def shortening(cuts: Iterable[Shortening | None]) -> Plan | None:
    """The plan to make these cuts, if there are any."""
    shorter = tuple([cut for cut in cuts if cut])
    return Plan(shorter=shorter) if shorter else None
