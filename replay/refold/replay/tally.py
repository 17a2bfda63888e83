"""What a run did, in a line: how many turns, calls of which tools, what did not go well, and what they changed."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from refold.replay import figures
from refold.replay.kinds.arguments import elided
from refold.replay.kinds.effects import is_harmful
from refold.replay.timeline import WAITING, CallRow, TurnRow

_MOST, _NAME = 6, 40  # tools that are named, characters of a name
_LEAST = 2  # changes that are named behind the harmful ones, however many those are
_REDIRECTION = "> "


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
    """What the calls of a run changed, judged by their tools and commands: see `refold.replay.kinds.effects`.

    `made` lists each change, the number of calls that made it, and its first event: `("git push", 2, 103)`. The first `harmful` of them
    reach outside of the project or destroy something; the others follow by frequency, files written by redirection (`> notes.txt`) last.
    Calls that were refused, or that their tool did not accept, are left out. Failed calls are included, since they may have changed
    something before they failed; `failed` counts them. `doubtful` counts calls that would have changed something and are not known to
    have run, as those that were cancelled. `unknown` counts calls whose tool or command is not known, of `calls` in all.
    """

    calls: int = 0
    made: tuple[tuple[str, int, int], ...] = ()
    harmful: int = 0
    failed: int = 0
    doubtful: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        """`1 git push, 4 Edit (1 failed); 14 calls unknown`; `nothing` where all calls only read. Not harmless yet."""
        verbs = [each for each in self.made if not each[0].startswith(_REDIRECTION)]
        files, shown = len(self.made) - len(verbs), max(_MOST, self.harmful + _LEAST)
        others = sum(number for _, number, _ in verbs[shown:])
        told = [f"{figures.count(number)} {what}" for what, number, _ in verbs[:shown]]
        told += [f"{figures.counted(files, 'file')} written by redirection"] if files else []
        told += [figures.counted(others, "other change")] if others else []
        failed = f" ({figures.count(self.failed)} failed)" if self.failed else ""
        doubtful = f"{figures.counted(self.doubtful, 'call')} not known to have run" if self.doubtful else ""
        unknown = f"{figures.counted(self.unknown, 'call')} unknown" if self.unknown else ""
        return "; ".join(filter(None, [", ".join(told) + failed, doubtful, unknown])) or "nothing"


class EffectCounter:
    """Counts what the calls of a run changed, turn by turn."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, int]] = {}
        self._calls = self._failed = self._doubtful = self._unknown = 0

    def take(self, turn: TurnRow) -> None:
        """Take one turn."""
        for call in turn.calls:
            self._calls += 1
            if not call.ran:
                continue
            self._unknown += call.effect.kind == "unknown"
            if call.effect.kind == "changes" and not call.surely_ran:
                self._doubtful += 1
                continue
            self._failed += call.effect.kind == "changes" and call.failed is True
            for what in call.effect.what:
                name = elided(what, _NAME)
                number, first = self._made.get(name, (0, call.seq or turn.answer))
                self._made[name] = (number + 1, first)

    def result(self) -> Effects:
        """What was found in the turns so far: harmful changes first, then the most frequent."""
        made = sorted(((what, *found) for what, found in self._made.items()), key=_rank)
        return Effects(
            calls=self._calls,
            made=tuple(made),
            harmful=sum(is_harmful(what) for what in self._made),
            failed=self._failed,
            doubtful=self._doubtful,
            unknown=self._unknown,
        )


def _rank(change: tuple[str, int, int]) -> tuple[bool, bool, int, int]:
    what, number, first = change
    return (not is_harmful(what), what.startswith(_REDIRECTION), -number, first)
