"""Passes that put one message in place of several."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.history.strategy import Covering, Plan, Scene, Strategy, older, older_than, stays, weight
from refold.reducers.messages import Gap
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, numbers, ranges_of, refs, tokens_left

_Count = Annotated[int, Meta(ge=0)]


class Summarise(Strategy, frozen=True, kw_only=True, tag="summarise"):
    """Ask for a summary of what lies between the first `keep_first` messages and a protected tail.

    The tail is the last `keep_last` messages; with `from_last_user` all from the last user message on, and with
    `keep_tokens` all back to where so many are gathered, if that is more. It begins before a whole unit, with
    `cut_at: user` before a user message. Pinned and system messages stay; an earlier summary is covered by the next
    and counts nowhere else. Nothing is asked if what is covered weighs less than `min_gain` or is fewer than
    `min_messages`. The summary is a message of `role`, of at most `max_output` tokens. `on_failure`: go on without,
    or fail the run. Source: `hermes`, `utah` and `tirea`.
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
        said = [ref for ref in messages if not _sums_up(ref)]
        fresh = [ref for ref in said[self._first(said) : self._cut(said)] if not stays(ref)]
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

    It has a line for each, `per_message` characters long, and `total` characters in all. What an earlier digest
    said gets one line's worth in the next. Source: `utah`.
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
    """Keep what is pinned, one message that tells of the gap, and the newest within `tail_fraction` of `budget`.

    At least one message is kept. Unchanged if the window fits `budget` tokens or has no more than two messages
    other than system. The one marker tells of all that was dropped so far. Source: `guardrails`.
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
