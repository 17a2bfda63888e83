"""Passes that drop old messages."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.errors import Fault
from refold.reducers.history.strategy import (
    Plan,
    Scene,
    Strategy,
    older,
    older_than,
    stays,
    weight,
    whole_units,
)
from refold.reducers.vocabulary import Knob, Role, Unknown
from refold.reducers.window import MessageRef, numbers, refs, tokens_left, within


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


class Room(Knob, frozen=True, kw_only=True):
    """What a context of so many tokens leaves beside the answer and, with `minus_tools`, the tools offered."""

    context: Annotated[int, Meta(ge=0)]
    minus_output: Annotated[int, Meta(ge=0)] = 0
    minus_tools: bool = False

    def problems(self) -> Iterator[Fault]:
        """Nothing left."""
        if self.minus_output >= self.context:
            problem = f"of a context of {self.context} tokens the answer takes all: {self.minus_output}"
            yield "minus_output", problem


class TokenTail(Strategy, frozen=True, kw_only=True, tag="token_tail"):
    """Keep what is pinned, and walk back from the newest message while the estimate fits what is left.

    Unchanged if the whole window fits `budget` tokens. The pinned task is subtracted first, and with
    `count_system` the system messages too. The last max(1, `min_last`) messages are kept whatever they
    weigh; the walk stops at the first that is refused. Source: `guardrails` and `tirea`.
    """

    asks = "budget"

    name: str = "token_tail"
    budget: Annotated[int, Meta(ge=1)] | Room
    min_last: Annotated[int, Meta(ge=0)] = 1
    count_system: bool = False

    @property
    def reads(self) -> frozenset[Unknown]:
        """What its threshold does, and what the tools weigh that it leaves room for."""
        tools = isinstance(self.budget, Room) and self.budget.minus_tools
        return super().reads | frozenset({Unknown.TOOLS} if tools else ())

    def beside(self, tools: int | None) -> Self:
        """The budget without those tools."""
        if not (isinstance(self.budget, Room) and self.budget.minus_tools):
            return self
        left = 0 if tools is None else max(0, self.budget.context - tools)
        return replace(self, budget=Room(context=left, minus_output=self.budget.minus_output))

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:
        """Whether the window weighs no more than the budget."""
        window, budget = scene.window, self._tokens(scene)
        if tokens_left(window, gone) <= budget:
            return True
        left = numbers(gone)
        counted = [ref for ref in refs(window) if self._counts(ref) and ref.number not in left]
        return not self.count_system and weight(window, counted) <= budget

    def plan(self, scene: Scene) -> Plan | None:
        """Drop what does not fit."""
        if self.fits(scene):
            return None
        messages = refs(scene.window)
        left = self._tokens(scene) - sum(
            ref.size.tokens for ref in messages if stays(ref) and self._counts(ref)
        )
        others = [ref for ref in messages if not stays(ref)]
        return Plan(drop=older_than(others, max(0, left), max(1, self.min_last)))

    def _tokens(self, scene: Scene) -> int:
        if isinstance(self.budget, int):
            return self.budget
        tools = scene.tools if self.budget.minus_tools else 0
        return max(0, self.budget.context - self.budget.minus_output - tools)

    def _counts(self, ref: MessageRef) -> bool:
        return self.count_system or ref.role is not Role.SYSTEM


class DropOldest(Strategy, frozen=True, kw_only=True, tag="drop_oldest"):
    """Of the messages other than system, the task among them, drop the first max(1, floor(`fraction` of them)).

    The task is counted, and stays. The one strategy for which twice is not once: with `when: {always: true}` it
    drops more each time. Wait for a threshold, or let an overflow ask. Source: `paperbench`.
    """

    name: str = "drop_oldest"
    fraction: Annotated[float, Meta(gt=0, le=1)]

    def plan(self, scene: Scene) -> Plan | None:
        """Drop the oldest share."""
        messages = refs(scene.window)
        others = [ref for ref in messages if ref.role is not Role.SYSTEM]
        oldest = others[: max(1, int(self.fraction * len(others)))]
        return Plan(drop=[ref for ref in oldest if not stays(ref)])


class Observed(Strategy, frozen=True, kw_only=True, tag="observed"):
    """Drop what the last `context_observed` says that the source's own harness dropped, be it pinned here or not.

    For imported runs, which were pruned by rules that nobody knows here. Elsewhere it never does anything.
    """

    asks: ClassVar[str] = "observed"
    pins: ClassVar[bool] = False

    name: str = "observed"

    def plan(self, scene: Scene) -> Plan | None:
        """Drop what did not stay, and nothing that joined since."""
        if scene.kept is None:
            return None
        stayed = numbers(within(scene.window, scene.kept))
        messages = refs(scene.window)
        return Plan(drop=[ref for ref in messages if ref.number <= scene.upto and ref.number not in stayed])
