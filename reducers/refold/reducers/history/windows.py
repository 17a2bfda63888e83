"""Passes that drop old messages."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Annotated, ClassVar, Literal, Self

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.errors import Fault
from refold.reducers.history.strategy import (
    Covering,
    Plan,
    Scene,
    Strategy,
    older,
    older_than,
    stays,
    weight,
    whole_units,
)
from refold.reducers.messages import Gap
from refold.reducers.vocabulary import Knob, Role, Unknown
from refold.reducers.window import MessageRef, numbers, ranges_of, refs, tokens_left, within


class Tail(Strategy, frozen=True, kw_only=True, tag="tail"):
    """Keep what is pinned and the last max(1, `last`) of the others.

    `systems: all` keeps every system message besides; `first` counts further ones among the others.
    `salvage`: if no result would be left, the newest unit with results stays too. Source: the window and the
    threshold of `inspect-iterative`.
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
    """What a context of so many tokens leaves beside the answer and, with `minus_tools`, the tools
    offered.
    """

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
    """Of the messages other than system, the task among them, drop the first max(1, floor(`fraction` of
    them)).

    The task is counted, and stays. The one strategy for which twice is not once: with `when: {always: true}`
    it drops more each time. Wait for a threshold, or let an overflow ask. Source: `paperbench`.
    """

    name: str = "drop_oldest"
    fraction: Annotated[float, Meta(gt=0, le=1)]

    def plan(self, scene: Scene) -> Plan | None:
        """Drop the oldest share."""
        messages = refs(scene.window)
        others = [ref for ref in messages if ref.role is not Role.SYSTEM]
        oldest = others[: max(1, int(self.fraction * len(others)))]
        return Plan(drop=[ref for ref in oldest if not stays(ref)])


class ObservedWindow(Strategy, frozen=True, kw_only=True, tag="observed"):
    """Drop what the last `context_observed` says that the source's own harness dropped, be it pinned here or
    not.

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


_Count = Annotated[int, Meta(ge=0)]


class Summarise(Strategy, frozen=True, kw_only=True, tag="summarise"):
    """Ask for a summary of what lies between the first `keep_first` messages and a protected tail.

    The tail is the last `keep_last` messages; with `from_last_user` all from the last user message on, and
    with `keep_tokens` all back to where so many are gathered, if that is more. It begins before a whole unit,
    with `cut_at: user` before a user message. Pinned and system messages stay; an earlier summary is covered
    by the next and counts nowhere else. Nothing is asked if what is covered weighs less than `min_gain` or is
    fewer than `min_messages`. The summary is a message of `role`, of at most `max_output` tokens.
    `on_failure`: go on without, or fail the run. Source: `hermes`, `utah` and `tirea`.
    """

    asks = "summary"

    name: str = "summarise"
    keep_first: _Count = 0
    keep_last: _Count = 0
    from_last_user: bool = False
    keep_tokens: Annotated[int, Meta(ge=1)] | None = None
    min_gain: _Count = 0
    min_messages: _Count = 0
    max_output: Annotated[int, Meta(ge=1)] | None = None
    cut_at: Literal["any", "user"] = "any"
    role: Literal["user", "system"] = "user"
    on_failure: Literal["skip", "fail"] = "skip"

    def plan(self, scene: Scene) -> Plan | None:
        """Cover what is neither protected nor pinned, and every earlier summary."""
        messages = refs(scene.window)
        fresh = self._fresh(messages)
        gone = numbers(fresh)
        covered = [ref for ref in messages if ref.number in gone or _sums_up(ref)]
        tokens = weight(scene.window, covered)
        few = tokens < self.min_gain or len(covered) < self.min_messages
        if few or all(ref.gap for ref in fresh):
            return None
        return Plan(
            summary=Covering(
                messages=ranges_of([ref.number for ref in covered]),
                after=self._after(messages, numbers(covered)),
                role=Role(self.role),
                max_output=self.max_output,
                input_tokens=tokens,
            )
        )

    def _fresh(self, messages: Sequence[MessageRef]) -> Sequence[MessageRef]:
        """Return the messages that no summary covers yet and that are neither protected nor pinned."""
        said = [ref for ref in messages if not _sums_up(ref)]
        return [ref for ref in said[self._first(said) : self._cut(said)] if not stays(ref)]

    def _first(self, said: Sequence[MessageRef]) -> int:
        place = min(self.keep_first, len(said))
        while place and not _between_units(said, place):
            place += 1
        return place

    def _cut(self, said: Sequence[MessageRef]) -> int:
        place = max(0, len(said) - self.keep_last)
        if self.keep_tokens is not None:
            place = min(place, _gathered(said, self.keep_tokens))
        if self.from_last_user:
            place = min([place, *[at for at, ref in enumerate(said) if _from_user(ref)][-1:]])
        while place and not self._may_cut(said, place):
            place -= 1
        return place

    def _may_cut(self, said: Sequence[MessageRef], place: int) -> bool:
        if self.cut_at == "user":
            return place < len(said) and _from_user(said[place])
        return _between_units(said, place)

    def _after(self, messages: Sequence[MessageRef], gone: frozenset[int]) -> int:
        before = takewhile(lambda ref: ref.number not in gone, messages)
        if self.role == "system":
            kept = (ref for ref in messages if ref.number not in gone)
            before = takewhile(lambda ref: ref.role is Role.SYSTEM, kept)
        return next((ref.number for ref in reversed(list(before))), 0)


def _between_units(said: Sequence[MessageRef], place: int) -> bool:
    return place >= len(said) or said[place].unit != said[place - 1].unit


def _sums_up(ref: MessageRef) -> bool:
    return ref.gap is not None and ref.gap.source > 0


def _from_user(ref: MessageRef) -> bool:
    return ref.role is Role.USER and not ref.gap


def _gathered(said: Sequence[MessageRef], tokens: int) -> int:
    for place in range(len(said) - 1, -1, -1):
        tokens -= said[place].size.tokens
        if tokens <= 0:
            return place
    return 0


class Digest(Strategy, frozen=True, kw_only=True, tag="digest"):
    """Keep what is pinned, system messages and the last `keep_last` others; quote the rest in one message.

    It has a line for each, `per_message` characters long, and `total` characters in all. What an earlier
    digest said gets one line's worth in the next. Source: `utah`.
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


class Compact(Strategy, frozen=True, kw_only=True, tag="compact"):
    """Keep what is pinned, one message that tells of the gap, and the newest within `tail_fraction` of
    `budget`.

    At least one message is kept. Unchanged if the window fits `budget` tokens or has no more than two
    messages other than system. The one marker tells of all that was dropped so far. Source: `guardrails`.
    """

    marks = "compacted"
    asks = "budget"

    name: str = "compact"
    budget: Annotated[int, Meta(ge=1)]
    tail_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.75

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:
        """Whether the window weighs no more than the budget."""
        return tokens_left(scene.window, gone) <= self.budget

    def plan(self, scene: Scene) -> Plan | None:
        """Drop what lies between the pinned and the tail."""
        messages = refs(scene.window)
        if self.fits(scene) or sum(ref.role is not Role.SYSTEM for ref in messages) <= 2:
            return None
        others = [ref for ref in messages if not stays(ref)]
        return Plan(drop=older_than(others, int(self.tail_fraction * self.budget), 1))
