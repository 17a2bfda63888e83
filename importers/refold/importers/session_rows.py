"""Rows of a session file (one JSON object per line), with positions, timestamps and noise.

Command-line agents append to these files. So a line may be cut, hold two objects (after a file without a
final newline was continued), or not be JSON. Each such line becomes noise with a position, and reading
continues after it.
"""

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import count, islice
from typing import cast

import msgspec

from refold.importers.fields import JSON, instant, json_text, rest, table
from refold.importers.items import (
    NO_ROW,
    UNKNOWN_PART,
    Answered,
    Counted,
    Item,
    Place,
    Remarked,
    Returned,
    Said,
    Unread,
)
from refold.importers.source import MOST_LINE, MOST_LINES, BadTranscript, Line, Source, decode_json
from refold.importers.tallies import add_counts
from refold.reducers.messages import Message
from refold.reducers.source_marks import LEFT_BRANCH, SUBAGENT_ROWS
from refold.reducers.text import clean
from refold.reducers.vocabulary import Ranges, Role
from refold.reducers.window import ranges_of

MOST_TOGETHER = 200
"""Maximum number of rows in one remark."""

MOST_CHARACTERS = 1 << 20
"""Maximum characters of the rows in one remark, unless it is a single row."""

MOST_KEPT = 1 << 16
"""Maximum characters kept of a line that cannot be read."""

MOST_DEPTH = 200
"""Maximum nesting depth of a row.

Reading and writing are limited by recursion, which depends on the depth of the caller.
"""

MOST_VALUES = 1000
"""Maximum number of JSON values in one line."""

MOST_HELD = 8 << 20
"""Maximum size in bytes of a file whose parsed rows are cached. As Python objects they take several times
this size.
"""

MOST_HEAD = 1 << 20
"""Number of bytes searched for the first rows when the format is detected."""

TOO_DEEP = f"nested more than {MOST_DEPTH} levels deep"

_APART = {
    "rewound": (LEFT_BRANCH, "on an abandoned branch"),
    "subagent": (SUBAGENT_ROWS, "in rows of a subagent"),
}
"""For each remark about rows outside of all runs: the code of its diagnosis, and where these rows are."""

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"\s*")


class Row(msgspec.Struct, frozen=True, gc=False):
    """One JSON object, with its line number (from 1), its size in bytes, and its time from `timestamp`.

    `number` counts the objects of the file, from 1.
    """

    line: int
    value: dict[str, JSON]
    at: int | None
    size: int
    number: int

    @property
    def position(self) -> str:
        """Return its position."""
        return f"line {self.line}"

    @property
    def place(self) -> Place:
        """Return its position and time."""
        return Place(self.position, self.at, row=self.number)

    def rest(self) -> str:
        """Return JSON text of the remaining fields, without type and time, which the item has."""
        omitted = ("type",) if self.at is None else ("type", "timestamp")
        return rest({name: value for name, value in self.value.items() if name not in omitted})

    def remark(self, what: str) -> Remarked:
        """Return the unchanged row as a remark."""
        return self.place.remark(what, self.value)

    def noise(
        self,
        what: str = "unmapped",
        *,
        known: bool = True,
        counts: Counted | None = None,
        apart: Counted | None = None,
    ) -> "Noise":
        """Return the unchanged row as noise; `known`: the format is known to have such rows."""
        written = json_text(self.value)
        return Noise(
            what=what, line=self.line, at=self.at, text=written, known=known, counts=counts, apart=apart
        )


class Noise(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row or an unreadable line that has no meaning for the state machine. `problem`: why it is unreadable.

    `apart`: model activity in it that is in no run, whether or not its format counts it.
    """

    what: str
    line: int
    text: str
    at: int | None = None
    problem: str = ""
    known: bool = True
    counts: Counted | None = None
    apart: Counted | None = None


class Rows:
    """All objects of a line-based file, and noise for all other lines. Can be iterated several times.

    Blank lines are skipped. Raises `BadTranscript` for more than `MOST_LINES` lines or rows.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._held: list[Row | Noise] | None = None

    def __iter__(self) -> Iterator[Row | Noise]:
        if self._held is not None:
            yield from self._held
            return
        held: list[Row | Noise] = []
        size = 0
        for row in _rows(self._source):
            size += row.size if isinstance(row, Row) else len(row.text)
            if size <= MOST_HELD:
                held.append(row)
            else:
                held.clear()
            yield row
        self._held = held if size <= MOST_HELD else None


def _rows(source: Source) -> Iterator[Row | Noise]:
    found, numbers = 0, count(1)
    for line in source.lines():
        if not line.text.strip(b" \t\r\n\xef\xbb\xbf"):
            continue
        if line.left_out:
            problem = f"{len(line.text) + line.left_out} bytes in one line; the limit is {MOST_LINE}"
            yield Noise(what="too_long", line=line.number, text=_truncate(line.text), problem=problem)
            continue
        for value in _values(line, numbers):
            found += 1
            if found > MOST_LINES:
                raise BadTranscript(
                    source.name, f"line {line.number}", f"more than {MOST_LINES} rows in one file"
                )
            yield value


def first_rows(source: Source, most: int) -> list[Row | Noise]:
    """Return the first rows of a file, from its first `MOST_HEAD` bytes, to detect its format."""
    return list(islice(Rows(Source.of(source.name, source.head(MOST_HEAD))), most))


def _values(line: Line, numbers: Iterator[int]) -> Iterator[Row | Noise]:
    try:
        yield _value(line.number, decode_json(line.text.removeprefix(b"\xef\xbb\xbf")), line.text, numbers)
    except ValueError:
        yield from _split_values(line, numbers)


def _split_values(line: Line, numbers: Iterator[int]) -> Iterator[Row | Noise]:
    """Yield the objects of a line that is not a single JSON value, up to the first byte that is not JSON."""
    text, place = clean(line.text.decode(errors="replace")), 0
    for _ in range(MOST_VALUES):
        if place >= len(text):
            return
        try:
            value, end = cast("tuple[JSON, int]", _DECODER.raw_decode(text, place))
            raw = text[place:end].encode()
            # Decoded again, because an escape may be half of a surrogate pair.
            value = decode_json(raw) if isinstance(value, dict) else value
        except (ValueError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            rest = text[place : place + MOST_KEPT]
            yield Noise(what="not_json", line=line.number, text=rest, problem=problem)
            return
        yield _value(line.number, value, raw, numbers)
        place = _skip_blanks(text, end)
    if rest := text[place : place + MOST_KEPT]:
        problem = f"more than {MOST_VALUES} values in one line"
        yield Noise(what="not_json", line=line.number, text=rest, problem=problem)


def _skip_blanks(text: str, place: int) -> int:
    """Return the end of the blanks that begin here."""
    blank = _BLANK.match(text, place)
    return blank.end() if blank else place


def _value(line: int, value: JSON, raw: bytes, numbers: Iterator[int]) -> Row | Noise:
    if raw.count(b"[") + raw.count(b"{") > MOST_DEPTH and too_deep(value):
        return Noise(what="too_deep", line=line, text=_truncate(raw), problem=TOO_DEEP)
    if isinstance(value, dict):
        return Row(line, value, instant(value.get("timestamp")), len(raw), next(numbers))
    return Noise(what="no_object", line=line, text=_truncate(raw), problem="JSON, but not an object")


def too_deep(value: JSON) -> bool:
    """Return whether a value is nested more than `MOST_DEPTH` levels deep."""
    level: list[JSON] = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _list_children(outer)]
        if not level:
            return False
    return True


def _list_children(value: JSON) -> Iterable[JSON]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _truncate(line: bytes) -> str:
    return clean(line[:MOST_KEPT].decode(errors="replace"))


def gather(stream: Iterator[Item | Noise]) -> Iterator[Item]:
    """Convert noise to items: adjacent rows of one kind become one item with all their lines."""
    held: list[Noise] = []
    size = 0
    for found in stream:
        if held and not (isinstance(found, Noise) and _can_join(held, size, found)):
            yield from _merge(held)
            held, size = [], 0
        if isinstance(found, Noise):
            held.append(found)
            size += len(found.text)
        else:
            yield found
    if held:
        yield from _merge(held)


def _can_join(held: list[Noise], size: int, found: Noise) -> bool:
    last = held[-1]
    alike = (last.what, last.known, bool(last.problem)) == (found.what, found.known, bool(found.problem))
    few = len(held) < MOST_TOGETHER and size + len(found.text) <= MOST_CHARACTERS
    return alike and 0 <= found.line - last.line <= 1 and few


def _merge(held: list[Noise]) -> Iterator[Item]:
    first, texts = held[0], [noise.text for noise in held]
    place = Place(lines(first.line, held[-1].line), first.at)
    if first.problem:
        yield place.problem(first.what, first.problem, rest="\n".join(texts))
        return
    rest = texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"
    place = place.with_counts(add_counts(noise.counts for noise in held))
    yield place.remark(first.what, rest=rest, rows=len(held), known=first.known)
    yield from diagnose_apart(place, first.what, add_counts(noise.apart for noise in held))


def diagnose_apart(place: Place, what: str, apart: Counted | None) -> Iterator[Unread]:
    """Yield a warning if responses, calls or results in rows with the remark `what` are in no run."""
    if apart is None or not (apart.assistant or apart.calls or apart.results):
        return
    code, where = _APART[what]
    parts = (
        f"{number:,} {noun if number == 1 else noun + 's'}"
        for number, noun in ((apart.assistant, "response"), (apart.calls, "call"), (apart.results, "result"))
        if number
    )
    yield place.oddity(code, f"{', '.join(parts)} {where} are not imported")


def unread_parts(
    row: Row, message: JSON, names: Iterable[str], kinds: Iterable[str] = (), known: Container[str] = ()
) -> Iterator[Unread]:
    """Report a message without any of the fields `names`, or with parts of unknown `kinds`."""
    problem = ""
    if not any(name in table(message) for name in names):
        problem = f"message without {' or '.join(names)}"
    elif strange := sorted({kind for kind in kinds if kind not in known}):
        problem = f"unknown parts in a message: {', '.join(kind[:40] for kind in strange[:5])}"
    if problem:
        yield row.place.problem(UNKNOWN_PART, problem)


def lines(first: int, last: int) -> str:
    """Return the position of these lines."""
    return f"line {first}" if first == last else f"lines {first}-{last}"


BEGINNING = 0
"""Row number of a run's initial messages. Rows of a source are numbered from 1."""

_LAST = 1 << 62

ALL: Ranges = ((NO_ROW, _LAST),)
"""All rows, including `NO_ROW`."""


class Cut(Item, frozen=True, kw_only=True):
    """A change of the prompt from here on, such as a compaction or a rollback.

    First, the last `turns` user messages are removed, with everything after them. From the rest, the prompt
    keeps the rows `head`, then the items `joins`, then the rows `tail` (ranges with inclusive bounds).
    `between`: items between head and tail are kept, too. `cleared` maps providers' call ids to what remains
    of their results' text. `why` is the source's word for the change.
    """

    why: str
    turns: int = 0
    head: Ranges = ()
    joins: tuple[Said | Answered | Returned, ...] = ()
    tail: Ranges = ()
    between: bool = False
    cleared: Mapping[str, str] = {}


class Forked(Item, frozen=True, kw_only=True):
    """The run with this `key`, which follows later, begins with all messages of this run up to here."""

    key: str


def cut_to_summary(place: Place, summary: str, *, head: Ranges = (), tail: Ranges = ()) -> Cut:
    """Return a compaction in which `summary` replaces what is not kept.

    The summary has no row, so no later cut can keep it.
    """
    said = Place(place.position).message(summary, "harness")
    return Cut(*place.common(), why="compaction", head=head, joins=(said,), tail=tail)


def since(row: int) -> Ranges:
    """Return the range of this row and all later rows."""
    return ((row, _LAST),)


def list_ranges(rows: Iterable[int]) -> Ranges:
    """Return the ranges of these rows, in any order."""
    return ranges_of(sorted(set(rows)))


def drop_orphan_results(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages without results that have no open call."""
    kept: list[Message] = []
    waiting = 0
    for message in messages:
        result = message.role is Role.TOOL
        if waiting or not result:
            kept.append(message)
            waiting += len(message.calls) - result
    return tuple(kept)
