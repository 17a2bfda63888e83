"""A look over all that a file says before anything of it is written, and what was counted in it.

Files of other agents may look like one of a format and map to nothing of it. What tells them is what comes
out: messages in which nothing stands, and rows that the format is not known to have.

A client was run against a scripted model, and what was imported was held against its requests; or its
transcripts are among those in `tests/transcripts`.
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
"""Items of one file: each is an event at least."""

_ITEM = 300  # bytes of an item itself, about
_OF_THE_FORMAT = 5  # where nothing was said, one row in so many is of the format


class Survey:
    """What was found in a file `name`. `said` messages, answers and results were read, `mute` ones not, or
    not all of each.

    `runs` are counted; `known` and `unknown` are rows beside messages. `silent`: problems of runs in which
    nothing was said at all. `size`: characters of all that was said.
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
        """Why it is not of this format, "" if it may be: most of what it holds says nothing.

        `certain`: something in it is of this format alone. Else rows of another may hold what was done.
        """
        if self.mute and self.mute >= self.said:
            of = f"{self.mute} of {self.mute + self.said}"
            return f"{of} messages in it cannot be read as such, the first at {self.first_mute}"
        most = (_OF_THE_FORMAT - 1) * self.known if not self.said else self.said + self.known
        if self.unknown > most and not (certain and self.said):
            of = f"{self.unknown} of {self.unknown + self.known + self.said}"
            return f"{of} rows in it are of no known type, the first at {self.first_unknown}"
        return ""

    def problems(self, *, certain: bool) -> list[ImportProblem]:
        """What is to be told of it, each once for the whole file."""
        found = [*self.silent] if self.runs else [ImportProblem("", "nothing_said", "no run in it")]
        if problem := self.foreign(certain=certain):
            found.append(ImportProblem("", "foreign", f"most of it says nothing: {problem}", unread=True))
        elif self.unknown:
            rows = f"rows of no known type, kept as they are: {self.unknown}"
            unread = not (certain and self.said)
            found.append(ImportProblem(self.first_unknown, "unknown_rows", rows, unread=unread))
        return found

    def take(self, item: Item) -> None:
        """Look at one more item. Raises `BadTranscript` for more than is read of any file."""
        self._count += 1
        if self._count > MOST_ITEMS:
            problem = f"more than {MOST_ITEMS} messages and remarks in one file"
            raise BadTranscript(self._name, item.position, problem)
        self._bounded(item)
        match item:
            case RunBegan():
                self._began, self._before = item, self._heard()
                self.runs += 1
                self.said += len(item.messages)
                self.known += bool(item.rest)  # its header
            case RunEnded():
                self._ended()
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
                self._not_read(item)
            case _:
                self.said += item.position != self._last_mute

    def _not_read(self, item: Unread) -> None:
        self._unread += 1
        if item.code == UNKNOWN_PART:
            self.mute += 1
            self.first_mute = self.first_mute or item.position
            self._last_mute = item.position

    def _heard(self) -> int:
        return self.said + self.mute + self._unread

    def _ended(self) -> None:
        if self._began is not None and self._heard() == self._before:
            problem = f"run {self._began.key!r}: no message and no answer in it"
            self.silent.append(ImportProblem(self._began.position, "nothing_said", problem))
        self._began = None

    def _bounded(self, item: Item) -> None:
        """What is said between two answers may become one event."""
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
    """A client, and the newest version of it that was tested; `label` is the one of a run that has its
    version.
    """

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
"""By format.

A format whose transcripts name no version of their client is here all the same: it was tested with this one.
"""

NEWER = "newer_version"
"""The code of the diagnosis of a run that a newer client wrote."""

_NUMBERS = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,3})")


def is_newer(version: str, tested: str) -> bool:
    """Whether a version is newer than another; one that is no version is not."""
    mine, theirs = _parts(version), _parts(tested)
    return bool(mine) and mine > theirs


def _parts(version: str) -> tuple[int, ...]:
    """The numbers of a version, without the zeros at its end."""
    found = _NUMBERS.match(version)
    numbers = [int(number) for number in found[1].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def warn_of_versions(format: str, item: Item) -> Iterator[Unread]:  # noqa: A002
    """The warning behind the beginning of a run that a newer client wrote than was tested."""
    tested = TESTED.get(format)
    if tested is None or not isinstance(item, RunBegan):
        return
    version = item.labels.get(tested.label, "")
    if is_newer(version, tested.version):
        problem = (
            f"{tested.client} {version[:40]} wrote it, and {tested.version} is the newest that this reader was tested with:"
            " what is new in it may be missing, or misread"
        )
        yield Place(item.position, item.at).oddity(NEWER, problem)


Figure = int | str
"""A number, a word, or `-` where the format does not say."""

NOT_SAID = "-"

# How a format's readers are used to hear of one run: `finished`, or `finished=1`.
_ALWAYS_COUNTED = frozenset({"openai_agents", "otel", "tau_bench"})

# Each run stands in a row of its own, and says for itself how it ended.
_EACH_RUNS_OWN = frozenset({"openhands"})


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a file, sums over its runs; `-` where the format does not say. Times are the source's own
    words.

    `unmarked`: results of which it does not say whether they are errors. `beside`: messages to the model in
    rows that the rule of the format does not count. `end`: how its run ended; of several runs how many ended
    how, as `finished=12;limit:message=3`.
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


def counted(
    format: str,  # noqa: A002
    runs: int,
    ends: Sequence[RunEnded],
    tallies: Sequence[RunCounts],
    *,
    once: bool = False,
) -> Counts:
    """The counts of a file of `runs` runs, of which these are the ends and the tallies. One may be the
    file's, and no run's.

    `once`: where all ended the same way, that is said once, as of a database, whose runs are rows of one
    record.
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
    """Where each end stands; what holds for the whole file, and so is said of each of its runs, once."""
    if format in _EACH_RUNS_OWN:
        return "; ".join(sources) or NOT_SAID
    phrases = (phrase for source in sources for phrase in source.split("; "))
    return "; ".join(dict.fromkeys(phrase for phrase in phrases if phrase)) or NOT_SAID
