"""What a run did, in a line: how many turns, calls of which tools, and what did not go well."""

from collections import Counter
from collections.abc import Iterable

from refold.replay import figures
from refold.replay.kinds.arguments import elided
from refold.replay.timeline import CallRow, TurnRow

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


_ENDS = ("failed", "refused", "without a result", "in doubt", "not known to have failed or not")


def _end(call: CallRow) -> str:
    """How a call ended that is not known to have gone well."""
    if call.failed is not None:
        return "failed" if call.failed else ""
    by_result = {
        "refused": "refused",
        "open": "without a result",
        "doubted": "in doubt",
        "unknown": "in doubt",
    }
    return by_result.get(call.result, "" if call.result == "happened" else _ENDS[-1])
