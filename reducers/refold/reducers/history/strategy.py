"""The input and output of compaction steps, and what they share."""

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
    """The moment at which a step runs: before step `step` (from 1) is requested from `model`.

    `context`: the model's context in tokens, None if unknown. `tools`: the estimate of the offered tools.
    `turn_start`: no step was made in this turn yet. `forced`: run whatever `when` says, because of an
    overflow. `single`: the provider rejected one message as too long. `texts`: the policy's, for their
    lengths. For imported runs: of the first `upto` messages, the recorded harness kept the ranges `kept`
    (None: all).
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
        """Render the text under this key for a cut of this many characters or tokens from a message of size
        `whole`.
        """
        return render(self.texts.get(key) or TEXTS[key], cut_values(whole, removed))


def cut_values(whole: Size, removed: int) -> dict[str, str | int]:
    """Return the values for the text of a cut, including the message's characters of text and reasoning."""
    reasoning = {"reasoning": whole.reasoning} if whole.reasoning else {}
    return {"size": whole.chars, **reasoning, "removed": removed}


class Shortening(msgspec.Struct, frozen=True, kw_only=True):
    """Cuts of one message, with a text for each cut."""

    number: int
    cuts: tuple[TextCut, ...]
    texts: tuple[str, ...]


class Covering(msgspec.Struct, frozen=True, kw_only=True):
    """A summary to request for these messages; it follows message `after`."""

    messages: Ranges
    after: int
    role: Role
    max_output: int | None
    input_tokens: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a step changes. `drop`: messages to drop, in order, whole units without pinned ones; None if the
    step does not drop.

    `gap`: the gap that one message stands for, which reports all that was dropped.
    """

    drop: Sequence[MessageRef] | None = None
    shorter: tuple[Shortening, ...] = ()
    gap: Gap | None = None
    summary: Covering | None = None


class Share(Knob, frozen=True, kw_only=True):
    """A share of the model's context; never reached if the context is unknown."""

    share: Annotated[float, Meta(gt=0, le=1)]


class When(Knob, frozen=True, kw_only=True):
    """When a step runs. Every given condition must hold; null is not given.

    `always`; more than `messages` messages in the window; more than `tokens` estimated tokens (`at_least`: or
    equal) in the window, or since the start with `measure: whole`; a `model` whose name contains one of these
    (ignoring case without `model_case`); after `after_step` steps; only at the start of a turn. With none
    given, `always: false` means never.
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
        """Whether it has a threshold."""
        return self.messages is not None or self.tokens is not None

    def holds(self, scene: Scene) -> bool:
        """Return whether every given condition holds; with none given, the value of `always`."""
        conditions = [
            scene.window.count > self.messages if self.messages is not None else None,
            self._is_heavy(scene, self.tokens) if self.tokens is not None else None,
            self._matches_model(scene.model) if self.model else None,
            scene.step > self.after_step if self.after_step is not None else None,
            scene.turn_start if self.turn_start else None,
        ]
        given = [condition for condition in conditions if condition is not None]
        return all(given) if given else self.always

    def _is_heavy(self, scene: Scene, limit: int | Share) -> bool:
        used: float = scene.window.whole_tokens if self.measure == "whole" else scene.window.tokens
        if isinstance(limit, int):
            return used >= limit if self.at_least else used > limit
        if not scene.context:
            return False
        used /= scene.context
        return used >= limit.share if self.at_least else used > limit.share

    def _matches_model(self, model: str) -> bool:
        if self.model_case:
            return any(part in model for part in self.model)
        return any(part.lower() in model.lower() for part in self.model)


class Strategy(Knob, frozen=True, kw_only=True, tag_field="do"):
    """Base of the strategies. Each has a method `plan(scene)`, which may ignore units and pinned messages.

    `marks`: key of the text of the message that replaces all dropped ones; "" if none. `asks`: the reason, if
    it is always the same. `pins`: pinned messages stay.
    """

    marks: ClassVar[str] = ""
    asks: ClassVar[str] = ""
    pins: ClassVar[bool] = True

    name: str
    when: When = When(always=True)
    pair_cut: Literal["drop", "extend"] = "drop"

    @property
    def reason(self) -> str:
        """The recorded reason: `threshold` with a threshold, else `window`."""
        return self.asks or ("threshold" if self.when.waits else "window")

    @property
    def reads(self) -> frozenset[Unknown]:
        """The figures that it needs and a record may lack."""
        context = isinstance(self.when.tokens, Share) or self.when.model
        return frozenset({Unknown.CONTEXT} if context else ())

    def beside(self, tools: int | None) -> Self:  # noqa: ARG002
        """Return the strategy with room for tools of this weight; None: as much as there is room for."""
        return self

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:  # noqa: ARG002
        """Return whether the window without `gone` is within the strategy's budget; True without a budget."""
        return True

    def mark(self, gap: Gap, dropped: Sequence[MessageRef]) -> Gap:  # noqa: ARG002
        """Return the gap of what was dropped, with details that only this strategy records."""
        return gap


def stays(ref: MessageRef) -> bool:
    """Return whether counting and weighing strategies always keep it: pinned and system messages."""
    return ref.pinned or ref.role is Role.SYSTEM


def newest(messages: Sequence[MessageRef], count: int) -> Sequence[MessageRef]:
    """Return the last `count` messages."""
    return messages[max(0, len(messages) - count) :]


def older(messages: Sequence[MessageRef], count: int) -> Sequence[MessageRef]:
    """Return all but the last `count` messages."""
    return messages[: max(0, len(messages) - count)]


def older_than(messages: Sequence[MessageRef], budget: int, least: int) -> Sequence[MessageRef]:
    """Return all but the newest messages whose estimates fit the budget; at least `least` messages stay."""
    for place, ref in enumerate(reversed(messages)):
        budget -= ref.size.tokens
        if budget < 0 and place >= least:
            return older(messages, place)
    return ()


def weight(window: Window, messages: Sequence[MessageRef]) -> int:
    """Return the estimated tokens of these messages, as a list."""
    return ESTIMATORS[window.estimator].weigh_all([(ref.role, ref.size) for ref in messages])


def _drop_split_units(messages: Sequence[MessageRef], dropped: Sequence[MessageRef]) -> Sequence[MessageRef]:
    going = numbers(dropped)
    cut = {ref.unit for ref in messages if ref.number not in going}
    return [ref for ref in dropped if ref.unit not in cut]


def whole_units(
    messages: Sequence[MessageRef], dropped: Sequence[MessageRef], *, extend: bool
) -> Sequence[MessageRef]:
    """Return the messages to drop so that no unit is split: the rest goes too, or with `extend` stays."""
    if extend:
        return _drop_split_units(messages, dropped)
    units, last = {ref.unit for ref in dropped}, dropped[-1].unit if dropped else 0
    whole: list[MessageRef] = []
    # Dropped messages are usually first, and units contiguous: stop after the last unit.
    for ref in messages:
        if ref.unit in units:
            whole.append(ref)
        elif whole and whole[-1].unit == last:
            break
    return whole


def cut_text(
    scene: Scene, ref: MessageRef, text: str, head: int, tail: int, *, longer: bool = False
) -> Shortening | None:
    """Cut a message to its first and last characters; None if that is not shorter than now.

    With `longer`, a message shown in full may become longer.
    """
    removed = max(0, ref.whole.chars - head - tail)
    marker = scene.text(text, ref.whole, removed)
    if head + len(marker) + tail < ref.size.chars or (longer and ref.shown is None):
        cut = TextCut(head=head, tail=tail, removed=removed)
        return Shortening(number=ref.number, cuts=(cut,), texts=(marker,))
    return None


def shortening(cuts: Iterable[Shortening | None]) -> Plan | None:
    """Return the plan for these cuts, or None without any."""
    shorter = tuple([cut for cut in cuts if cut])
    return Plan(shorter=shorter) if shorter else None
