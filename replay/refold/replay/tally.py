"""What a run did, in a line: how many turns, calls of which tools, what did not go well, and what they changed."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from refold.replay import figures
from refold.replay.kinds.arguments import elided
from refold.replay.timeline import WAITING, CallRow, TurnRow

_MOST, _NAME = 6, 40  # tools that are named, characters of a name


def tally(turns: Iterable[TurnRow]) -> str:
    """`18 turns, 12 Bash, 3 Edit, 1 failed, 1 without a result`. Not harmless yet: tools are named as the log names them."""
    count, tools, ends = 0, Counter[str](), Counter[str]()
    for turn in turns:
        count += 1
        tools.update(elided(call.name, _NAME) for call in turn.calls)
        ends.update(filter(None, map(_end, turn.calls)))
    most = tools.most_common(_MOST)
    others = tools.total() - sum(number for _, number in most)
    told = [f"{figures.count(number)} {name}" for name, number in most]
    told += [f"{figures.counted(others, 'other call')}"] if others else []
    return ", ".join([figures.counted(count, "turn"), *told, *_ends(ends)])


def _ends(ends: Counter[str]) -> list[str]:
    return [f"{figures.count(ends[end])} {end}" for end in _ENDS if ends[end]]


_ENDS = ("failed", "refused", "waiting for approval", "without a result", "in doubt", "without a status")


def _end(call: CallRow) -> str:
    """How a call ended that is not known to have gone well."""
    if call.failed is not None:
        return "failed" if call.failed else ""
    by_result = {
        "refused": "refused",
        WAITING: "waiting for approval",
        "open": "without a result",
        "doubted": "in doubt",
        "unknown": "in doubt",
    }
    return by_result.get(call.result, "" if call.result == "happened" else _ENDS[-1])


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of a run changed, as far as tools and commands tell it: see `refold.replay.kinds.effects`.

    `made` is what was changed by how many calls, and at which event first: `("git push", 2, 103)`. Calls that were refused, or whose
    tool did not take them, are left out; those that failed are in it, for they may have changed something before. `failed` is how many
    of them did, `unknown` the number of calls of which it is unknown whether they changed anything,
    of `calls` in all.
    """

    calls: int = 0
    made: tuple[tuple[str, int, int], ...] = ()
    failed: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        """`4 Edit, 1 git push (1 failed); 14 calls unknown`; `nothing` where all calls only read. Not harmless yet."""
        most, others = self.made[:_MOST], sum(number for _, number, _ in self.made[_MOST:])
        told = [f"{figures.count(number)} {what}" for what, number, _ in most]
        told += [figures.counted(others, "other change")] if others else []
        failed = f" ({figures.count(self.failed)} failed)" if self.failed else ""
        unknown = f"{figures.counted(self.unknown, 'call')} unknown" if self.unknown else ""
        return "; ".join(filter(None, [", ".join(told) + failed, unknown])) or "nothing"


class EffectCounter:
    """Counts what the calls of a run changed, turn by turn."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, int]] = {}
        self._calls = self._failed = self._unknown = 0

    def take(self, turn: TurnRow) -> None:
        """Take one turn."""
        for call in turn.calls:
            self._calls += 1
            if not call.ran:
                continue
            self._unknown += call.effect.kind == "unknown"
            self._failed += call.effect.kind == "changes" and call.failed is True
            for what in call.effect.what:
                name = elided(what, _NAME)
                number, first = self._made.get(name, (0, call.seq or turn.answer))
                self._made[name] = (number + 1, first)

    def result(self) -> Effects:
        """What was found in the turns so far, the most frequent first."""
        made = sorted(
            ((what, *found) for what, found in self._made.items()), key=lambda each: (-each[1], each[2])
        )
        return Effects(calls=self._calls, made=tuple(made), failed=self._failed, unknown=self._unknown)
