"""Survey of all items of a file before any is written, and the counts of a file.

A file of another agent may match a format but contain nothing meaningful in it. The survey detects this from
the items: empty messages, and rows of types that the format is not known to have.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from refold.importers.derivation.log import ImportProblem
from refold.importers.fields import instant
from refold.importers.items import (
    UNKNOWN_PART,
    Answered,
    Item,
    Place,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
    message_of,
)
from refold.importers.source import BadTranscript, fits
from refold.importers.tallies import RunCounts
from refold.reducers.messages import Message

MOST_ITEMS = 10_000_000
"""Maximum number of items in one file. Each becomes at least one event."""

_ITEM = 300  # approximate bytes of an item itself
_OF_THE_FORMAT = 5  # without messages, one in this many rows must be of the format


class Survey:
    """Findings about the file `name`: number of messages, responses and results read (`said`), and not or
    partly read (`mute`).

    `runs` are counted; `known` and `unknown` are rows beside messages. `silent`: problems of runs without any
    message. `size`: total characters of text.
    """

    def __init__(self, name: str) -> None:
        self.runs = self.said = self.mute = self.known = self.unknown = 0
        self.first_mute = self.first_unknown = self._last_mute = ""
        self.silent: list[ImportProblem] = []
        self.size = 0
        self._name = name
        self._count = self._together = self._before = self._unread = 0
        self._began: RunBegan | None = None

    def foreign(self, *, certain: bool) -> str:
        """Return why the file is not of this format, or "" if it may be.

        `certain`: something in it exists only in this format. Otherwise, rows of another format may hold the
        model's actions.
        """
        if self.mute and self.mute >= self.said:
            of = f"{self.mute} of {self.mute + self.said}"
            return f"{of} messages cannot be read, the first at {self.first_mute}"
        most = (_OF_THE_FORMAT - 1) * self.known if not self.said else self.said + self.known
        if self.unknown > most and not (certain and self.said):
            of = f"{self.unknown} of {self.unknown + self.known + self.said}"
            return f"{of} rows are of unknown types, the first at {self.first_unknown}"
        return ""

    def problems(self, *, certain: bool) -> list[ImportProblem]:
        """Return the problems of the file as a whole, each once."""
        found = [*self.silent] if self.runs else [ImportProblem("", "nothing_said", "no run in the file")]
        if problem := self.foreign(certain=certain):
            found.append(
                ImportProblem(
                    "", "foreign", f"most of the file has no meaning in this format: {problem}", unread=True
                )
            )
        elif self.unknown:
            rows = f"rows of unknown types, kept unchanged: {self.unknown}"
            unread = not (certain and self.said)
            found.append(ImportProblem(self.first_unknown, "unknown_rows", rows, unread=unread))
        return found

    def take(self, item: Item) -> None:
        """Add an item to the survey. Raises `BadTranscript` if the file exceeds a limit."""
        self._count += 1
        if self._count > MOST_ITEMS:
            problem = f"more than {MOST_ITEMS} items in one file"
            raise BadTranscript(self._name, item.position, problem)
        self._check_size(item)
        match item:
            case RunBegan():
                self._began, self._before = item, self._count_all()
                self.runs += 1
                self.said += len(item.messages)
                self.known += bool(item.rest)  # its header
            case RunEnded():
                self._end_run()
            case Prompted():
                self.said += bool(item.messages)
            case Remarked(known=False):
                self.unknown += item.rows
                self.first_unknown = self.first_unknown or item.position
            case Remarked():
                self.known += item.rows
            case Unread(read=True):
                pass
            case Unread():
                self._count_unread(item)
            case _:
                self.said += item.position != self._last_mute

    def _count_unread(self, item: Unread) -> None:
        self._unread += 1
        if item.code == UNKNOWN_PART:
            self.mute += 1
            self.first_mute = self.first_mute or item.position
            self._last_mute = item.position

    def _count_all(self) -> int:
        return self.said + self.mute + self._unread

    def _end_run(self) -> None:
        if self._began is not None and self._count_all() == self._before:
            problem = f"run {self._began.key!r}: no message and no response in it"
            self.silent.append(ImportProblem(self._began.position, "nothing_said", problem))
        self._began = None

    def _check_size(self, item: Item) -> None:
        """Check the size limit. Messages between two responses may become one event."""
        size = _size(item)
        self.size += size + len(item.rest) + _ITEM
        if isinstance(item, Answered | RequestFailed | RunBegan | RunEnded):
            self._together = 0
        self._together += size if isinstance(item, Said) else 0
        fits(self._name, item.position, max(size, self._together, len(item.rest)))


def _size(item: Item) -> int:
    match item:
        case Said():
            return len(item.text)
        case Answered() | Returned():
            return _length(message_of(item))
        case RequestFailed():
            return len(item.message) + len(item.partial_text)
        case Prompted() | RunBegan():
            return sum(map(_length, item.messages))
        case _:
            return 0


def _length(message: Message) -> int:
    return len(message.text) + len(message.reasoning) + sum(len(call.arguments) for call in message.calls)


class Tested(msgspec.Struct, frozen=True):
    """A client and its newest tested version; `label` is the run label that has the version."""

    client: str
    version: str
    label: str = "version"


TESTED: Mapping[str, Tested] = MappingProxyType(
    {
        "claude_code": Tested("Claude Code", "2.1.220"),
        "codex": Tested("Codex", "0.169.0", "cli_version"),
        "copilot_cli": Tested("Copilot CLI", "1.0.10"),
        "gemini_cli": Tested("Gemini CLI", "0.61.0"),
        "inspect": Tested("Inspect", "0.3.285"),
        "kimi_cli": Tested("Kimi CLI's wire protocol", "1.9"),
        "mini_swe_agent": Tested("mini-swe-agent", "2.4.6"),
        "opencode": Tested("OpenCode", "1.18.33"),
        "openhands": Tested("OpenHands SDK", "1.58.0"),
        "pi": Tested("Pi", "0.73.1"),
        "qwen_code": Tested("Qwen Code", "0.15.10"),
        "swe_agent": Tested("SWE-agent", "1.1.0"),
    }
)
"""By format. If its transcripts do not record a version, the entry only states what was tested.

Tested means: the client was run against a scripted model and the import was compared with its requests, or
its transcripts are among those in `tests/transcripts`.
"""

NEWER = "newer_version"
"""Code of the warning that a newer client wrote the run."""

_NUMBERS = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,3})")


def is_newer(version: str, tested: str) -> bool:
    """Return whether a version is newer than another. A string that is not a version is never newer."""
    mine, theirs = _parts(version), _parts(tested)
    return bool(mine) and mine > theirs


def _parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without trailing zeros."""
    found = _NUMBERS.match(version)
    numbers = [int(number) for number in found[1].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def warn_of_versions(format: str, item: Item) -> Iterator[Unread]:  # noqa: A002
    """Yield a warning if the run was written by a newer client version than tested."""
    tested = TESTED.get(format)
    if tested is None or not isinstance(item, RunBegan):
        return
    version = item.labels.get(tested.label, "")
    if is_newer(version, tested.version):
        problem = (
            f"written by {tested.client} {version[:40]}; this importer was tested up to {tested.version}:"
            " new features may be missing or misread"
        )
        yield Place(item.position, item.at).oddity(NEWER, problem)


Figure = int | str
"""A number, a word, or `-` if the format does not record it."""

NOT_SAID = "-"

# Formats whose single run is listed as `finished=1` instead of `finished`.
_ALWAYS_COUNTED = frozenset({"openai_agents", "otel", "tau_bench"})

# Formats in which each run is a separate row with its own end.
_EACH_RUNS_OWN = frozenset({"openhands"})


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a file, summed over its runs; `-` if the format does not record them.

    Times are as written in the source. `unmarked`: results for which the format does not record whether they
    failed. `beside`: messages to the model in rows that the format's rule does not count. `end`: how the run
    ended; for several runs the number of each end, as `finished=12;limit:message=3`.
    """

    runs: int
    messages: Figure
    user_messages: Figure
    assistant_messages: Figure
    tool_messages: Figure
    tool_calls: Figure
    tool_results: Figure
    tool_errors: Figure
    unmarked: int
    input_tokens: Figure
    cache_read_tokens: Figure
    cache_write_tokens: Figure
    output_tokens: Figure
    first_timestamp: str
    last_timestamp: str
    end: str
    end_source: str
    beside: int


def count_runs(
    format: str,  # noqa: A002
    runs: int,
    ends: Sequence[RunEnded],
    tallies: Sequence[RunCounts],
    *,
    once: bool = False,
) -> Counts:
    """Return the counts of a file with this number of runs, from their ends and tallies.

    One of the tallies may belong to the file instead of a run. `once`: if all runs have the same end, list it
    once without a number, as for a database whose runs are rows of one record.
    """
    return Counts(
        runs=runs,
        messages=_sum(tally.messages for tally in tallies),
        user_messages=_sum(tally.user_messages for tally in tallies),
        assistant_messages=_sum(tally.assistant_messages for tally in tallies),
        tool_messages=_sum(tally.tool_messages for tally in tallies),
        tool_calls=_sum(tally.tool_calls for tally in tallies),
        tool_results=_sum(tally.tool_results for tally in tallies),
        tool_errors=_sum(tally.tool_errors for tally in tallies),
        input_tokens=_sum(tally.input_tokens for tally in tallies),
        cache_read_tokens=_sum(tally.cache_read_tokens for tally in tallies),
        cache_write_tokens=_sum(tally.cache_write_tokens for tally in tallies),
        output_tokens=_sum(tally.output_tokens for tally in tallies),
        unmarked=sum(tally.unmarked for tally in tallies),
        first_timestamp=_edge(min, [tally.first_timestamp for tally in tallies]),
        last_timestamp=_edge(max, [tally.last_timestamp for tally in tallies]),
        end=_ends(format, [end.end for end in ends], once=once),
        end_source=_sources(format, [end.end_source for end in ends]),
        beside=sum(tally.beside for tally in tallies),
    )


def _sum(numbers: Iterable[int | None]) -> Figure:
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
    """Return where the ends are recorded; sentences that apply to the whole file appear once."""
    if format in _EACH_RUNS_OWN:
        return "; ".join(sources) or NOT_SAID
    phrases = (phrase for source in sources for phrase in source.split("; "))
    return "; ".join(dict.fromkeys(phrase for phrase in phrases if phrase)) or NOT_SAID
