"""Compaction steps that drop old messages."""

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
from refold.reducers.window import MessageRef, numbers, ranges_of, refs, refs_within, tokens_without


class Tail(Strategy, frozen=True, kw_only=True, tag="tail"):
    """Keeps pinned messages and the last max(1, `last`) of the others.

    `systems: all` also keeps every system message; `first` counts further ones among the others. `salvage`:
    if no result would be left, the newest unit with results stays too. Source: the window and the threshold
    of `inspect-iterative`.
    """

    name: str = "tail"
    last: Annotated[int, Meta(ge=0)]
    systems: Literal["all", "first"] = "first"
    salvage: bool = False

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:
        """Return whether the window certainly needs no cut, without reading its messages."""
        window = scene.window
        limit = max(1, self.last) + window.system_pinned + window.task_pinned
        return window.count - len(gone) <= limit

    def plan(self, scene: Scene) -> Plan | None:
        """Drop all but the pinned and the tail."""
        if self.fits(scene):
            return None
        messages = refs(scene.window)
        others = [ref for ref in messages if not ref.pinned]
        if self.systems == "all":
            others = [ref for ref in others if ref.role is not Role.SYSTEM]
        gone = older(others, max(1, self.last))
        return Plan(drop=self._keep_results(messages, gone) if self.salvage else gone)

    def _keep_results(
        self, messages: Sequence[MessageRef], gone: Sequence[MessageRef]
    ) -> Sequence[MessageRef]:
        kept = numbers(messages) - numbers(whole_units(messages, gone, extend=self.pair_cut == "extend"))
        results = [ref for ref in messages if ref.role is Role.TOOL]
        if not results or not kept.isdisjoint(numbers(results)):
            return gone
        return [ref for ref in gone if ref.unit != results[-1].unit]


class Room(Knob, frozen=True, kw_only=True):
    """The room that a context leaves for messages, after the output and, with `minus_tools`, the tools."""

    context: Annotated[int, Meta(ge=0)]
    minus_output: Annotated[int, Meta(ge=0)] = 0
    minus_tools: bool = False

    def problems(self) -> Iterator[Fault]:
        """Yield the problem that no room is left."""
        if self.minus_output >= self.context:
            problem = (
                f"the output takes {self.minus_output} of {self.context} tokens of context, so none are left"
            )
            yield "minus_output", problem


class TokenTail(Strategy, frozen=True, kw_only=True, tag="token_tail"):
    """Keeps pinned messages, and, from the newest back, messages while their estimate fits the budget.

    Does nothing if the whole window fits `budget` tokens. The pinned task is subtracted first, and with
    `count_system` the system messages too. The last max(1, `min_last`) messages always stay; the first that
    does not fit ends the walk. Source: `guardrails` and `tirea`.
    """

    asks = "budget"

    name: str = "token_tail"
    budget: Annotated[int, Meta(ge=1)] | Room
    min_last: Annotated[int, Meta(ge=0)] = 1
    count_system: bool = False

    @property
    def reads(self) -> frozenset[Unknown]:
        """Figures of its threshold, and the weight of the tools that it leaves room for."""
        tools = isinstance(self.budget, Room) and self.budget.minus_tools
        return super().reads | frozenset({Unknown.TOOLS} if tools else ())

    def beside(self, tools: int | None) -> Self:
        """Return the strategy with the budget left by these tools."""
        if not (isinstance(self.budget, Room) and self.budget.minus_tools):
            return self
        left = 0 if tools is None else max(0, self.budget.context - tools)
        return replace(self, budget=Room(context=left, minus_output=self.budget.minus_output))

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:
        """Return whether the window's weight is within the budget."""
        window, budget = scene.window, self._tokens(scene)
        if tokens_without(window, gone) <= budget:
            return True
        dropped = numbers(gone)
        counted = [ref for ref in refs(window) if self._counts(ref) and ref.number not in dropped]
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
    """Drops the first max(1, floor(`fraction` of them)) of the messages that are not system messages.

    The task is counted, but stays. Unlike other strategies, it drops more each time it runs: use a threshold,
    or run it on overflow. Source: `paperbench`.
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
    """Drops, in imported runs, what the recorded harness dropped (`context_observed`), even if pinned here.

    The rules of that harness are unknown. In other runs it does nothing.
    """

    asks: ClassVar[str] = "observed"
    pins: ClassVar[bool] = False

    name: str = "observed"

    def plan(self, scene: Scene) -> Plan | None:
        """Drop what the harness did not keep, but nothing that was added since."""
        if scene.kept is None:
            return None
        stayed = numbers(refs_within(scene.window, scene.kept))
        messages = refs(scene.window)
        return Plan(drop=[ref for ref in messages if ref.number <= scene.upto and ref.number not in stayed])


_Count = Annotated[int, Meta(ge=0)]


class Summarise(Strategy, frozen=True, kw_only=True, tag="summarise"):
    """Requests a summary of what lies between the first `keep_first` messages and a protected tail.

    The tail is the last `keep_last` messages; with `from_last_user` everything from the last user message on,
    with `keep_tokens` everything back to this many tokens, whichever is longest. It begins with a whole unit,
    with `cut_at: user` with a user message. Pinned and system messages stay. The next summary covers the
    previous one, which counts nowhere else. No summary is requested for less than `min_gain` tokens or fewer
    than `min_messages` messages. The summary is a message of `role`, of at most `max_output` tokens.
    `on_failure`: continue without it, or fail the run. Source: `hermes`, `utah` and `tirea`.
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
        """Cover everything neither protected nor pinned, and every earlier summary."""
        messages = refs(scene.window)
        fresh = self._list_uncovered(messages)
        gone = numbers(fresh)
        covered = [ref for ref in messages if ref.number in gone or _is_summary(ref)]
        tokens = weight(scene.window, covered)
        few = tokens < self.min_gain or len(covered) < self.min_messages
        if few or all(ref.gap for ref in fresh):
            return None
        return Plan(
            summary=Covering(
                messages=ranges_of([ref.number for ref in covered]),
                after=self._find_position(messages, numbers(covered)),
                role=Role(self.role),
                max_output=self.max_output,
                input_tokens=tokens,
            )
        )

    def _list_uncovered(self, messages: Sequence[MessageRef]) -> Sequence[MessageRef]:
        """Return messages not covered by a summary, not protected and not pinned."""
        messages = [ref for ref in messages if not _is_summary(ref)]
        return [
            ref for ref in messages[self._find_first(messages) : self._find_cut(messages)] if not stays(ref)
        ]

    def _find_first(self, messages: Sequence[MessageRef]) -> int:
        place = min(self.keep_first, len(messages))
        while place and not _is_between_units(messages, place):
            place += 1
        return place

    def _find_cut(self, messages: Sequence[MessageRef]) -> int:
        place = max(0, len(messages) - self.keep_last)
        if self.keep_tokens is not None:
            place = min(place, _find_tail(messages, self.keep_tokens))
        if self.from_last_user:
            place = min([place, *[at for at, ref in enumerate(messages) if _is_from_user(ref)][-1:]])
        while place and not self._may_cut(messages, place):
            place -= 1
        return place

    def _may_cut(self, messages: Sequence[MessageRef], place: int) -> bool:
        if self.cut_at == "user":
            return place < len(messages) and _is_from_user(messages[place])
        return _is_between_units(messages, place)

    def _find_position(self, messages: Sequence[MessageRef], gone: frozenset[int]) -> int:
        before = takewhile(lambda ref: ref.number not in gone, messages)
        if self.role == "system":
            kept = (ref for ref in messages if ref.number not in gone)
            before = takewhile(lambda ref: ref.role is Role.SYSTEM, kept)
        return next((ref.number for ref in reversed(list(before))), 0)


def _is_between_units(messages: Sequence[MessageRef], place: int) -> bool:
    return place >= len(messages) or messages[place].unit != messages[place - 1].unit


def _is_summary(ref: MessageRef) -> bool:
    return ref.gap is not None and ref.gap.source > 0


def _is_from_user(ref: MessageRef) -> bool:
    return ref.role is Role.USER and not ref.gap


def _find_tail(messages: Sequence[MessageRef], tokens: int) -> int:
    for place in range(len(messages) - 1, -1, -1):
        tokens -= messages[place].size.tokens
        if tokens <= 0:
            return place
    return 0


class Digest(Strategy, frozen=True, kw_only=True, tag="digest"):
    """Keeps pinned and system messages and the last `keep_last` others; quotes the rest in one message.

    It has a line of `per_message` characters for each, and `total` characters at most. An earlier digest is
    quoted in the next as one line. Source: `utah`.
    """

    marks = "digest"

    name: str = "digest"
    keep_last: Annotated[int, Meta(ge=0)]
    per_message: Annotated[int, Meta(ge=1)]
    total: Annotated[int, Meta(ge=1)]

    def plan(self, scene: Scene) -> Plan | None:
        """Drop messages older than the tail."""
        messages = refs(scene.window)
        head = older([ref for ref in messages if ref.role is not Role.SYSTEM], self.keep_last)
        return Plan(drop=[ref for ref in head if not stays(ref)])

    def mark(self, gap: Gap, dropped: Sequence[MessageRef]) -> Gap:
        """Return the gap with the messages quoted in it, oldest first."""
        quoted: list[MessageRef] = []
        for ref in dropped:
            quoted += self._take_enough(ref.sources, self.per_message) if ref.sources else (ref,)
        sources = ranges_of([ref.number for ref in self._take_enough(quoted, self.total)])
        return replace(gap, sources=sources, per_message=self.per_message, total=self.total)

    def _take_enough(self, sources: Iterable[MessageRef], room: int) -> tuple[MessageRef, ...]:
        # Enough to fill the room; the rest would be cut off, and the state stays small.
        filling: list[MessageRef] = []
        for ref in sources:
            if room <= 0:
                break
            room -= len(ref.role) + min(ref.size.chars, self.per_message)
            filling.append(ref)
        return tuple(filling)


class Compact(Strategy, frozen=True, kw_only=True, tag="compact"):
    """Keeps pinned messages, one message about the gap, and the newest within `tail_fraction` of `budget`.

    At least one message is kept. Does nothing if the window fits `budget` tokens or has at most two messages
    other than system messages. One marker counts all that was dropped so far. Source: `guardrails`.
    """

    marks = "compacted"
    asks = "budget"

    name: str = "compact"
    budget: Annotated[int, Meta(ge=1)]
    tail_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.75

    def fits(self, scene: Scene, gone: Sequence[MessageRef] = ()) -> bool:
        """Return whether the window's weight is within the budget."""
        return tokens_without(scene.window, gone) <= self.budget

    def plan(self, scene: Scene) -> Plan | None:
        """Drop the messages between pinned ones and the tail."""
        messages = refs(scene.window)
        if self.fits(scene) or sum(ref.role is not Role.SYSTEM for ref in messages) <= 2:
            return None
        others = [ref for ref in messages if not stays(ref)]
        return Plan(drop=older_than(others, int(self.tail_fraction * self.budget), 1))
