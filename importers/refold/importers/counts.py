"""What was counted in a file: its runs' tallies together, each by the rule of its format."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from refold.importers.fields import instant
from refold.importers.items import RunEnded
from refold.importers.tallies import Tally

Said = int | str
"""A number, a word, or `-` where the format does not say."""

NOT_SAID = "-"
SUMMED = (
    "messages", "user_messages", "assistant_messages", "tool_messages", "tool_calls", "tool_results",
    "tool_errors", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"
)  # fmt: skip

# How a format's readers are used to hear of one run: `finished`, or `finished=1`.
_ALWAYS_COUNTED = frozenset({"openai_agents", "otel", "tau_bench"})

# Each run stands in a row of its own, and says for itself how it ended.
_EACH_RUNS_OWN = frozenset({"openhands"})


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a file, sums over its runs; `-` where the format does not say. Times are the source's own words.

    `unmarked`: results of which it does not say whether they are errors. `beside`: messages to the model in rows that the
    rule of the format does not count. `end`: how its run ended; of several runs how many ended how, as `finished=12;limit:message=3`.
    """

    runs: int
    messages: Said
    user_messages: Said
    assistant_messages: Said
    tool_messages: Said
    tool_calls: Said
    tool_results: Said
    tool_errors: Said
    unmarked: int
    input_tokens: Said
    cache_read_tokens: Said
    cache_write_tokens: Said
    output_tokens: Said
    first_timestamp: str
    last_timestamp: str
    end: str
    end_source: str
    beside: int


def counted(
    format: str,  # noqa: A002
    runs: int,
    ends: Sequence[RunEnded],
    tallies: Sequence[Tally],
    *,
    once: bool = False,
) -> Counts:
    """The counts of a file of `runs` runs, of which these are the ends and the tallies. One may be the file's, and no run's.

    `once`: where all ended the same way, that is said once, as of a database, whose runs are rows of one record.
    """
    return Counts(
        runs=runs,
        **{name: _sum(getattr(tally, name) for tally in tallies) for name in SUMMED},
        unmarked=sum(tally.unmarked for tally in tallies),
        first_timestamp=_edge(min, [tally.first_timestamp for tally in tallies]),
        last_timestamp=_edge(max, [tally.last_timestamp for tally in tallies]),
        end=_ends(format, [end.end for end in ends], once=once),
        end_source=_sources(format, [end.end_source for end in ends]),
        beside=sum(tally.beside for tally in tallies),
    )


def _sum(numbers: Iterable[int | None]) -> Said:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else NOT_SAID


def _edge(pick: Callable[[Iterable[tuple[int, str]]], tuple[int, str]], times: Sequence[str | None]) -> str:
    known = [(instant(time) or 0, time) for time in times if time]
    return pick(known)[1] if known else NOT_SAID


def _ends(format: str, ends: Sequence[str], *, once: bool) -> str:  # noqa: A002
    if set(ends) <= {"unknown"}:
        return "unknown"
    if once and len(set(ends)) == 1:
        return ends[0]
    if len(ends) == 1 and format not in _ALWAYS_COUNTED:
        return ends[0]
    return ";".join(f"{end}={count}" for end, count in sorted(Counter(ends).items()))


def _sources(format: str, sources: Sequence[str]) -> str:  # noqa: A002
    """Where each end stands; what holds for the whole file, and so is said of each of its runs, once."""
    if format in _EACH_RUNS_OWN:
        return "; ".join(sources) or NOT_SAID
    phrases = (phrase for source in sources for phrase in source.split("; "))
    return "; ".join(dict.fromkeys(phrase for phrase in phrases if phrase)) or NOT_SAID
