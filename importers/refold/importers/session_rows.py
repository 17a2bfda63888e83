"""Rows of a session file, one JSON object a line, and what their readers share: positions, spans of time,
noise.

Command-line agents append to such files as they go. So a line may be cut, hold two objects (a file without a
final newline was continued), or be no JSON at all; each of that is noise with a position, and reading goes on
behind it.
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
from refold.importers.source import MOST_LINE, MOST_LINES, BadTranscript, Line, Source, decoded
from refold.importers.tallies import add_counts
from refold.reducers.messages import Message
from refold.reducers.source_marks import LEFT_BRANCH, SUBAGENT_ROWS
from refold.reducers.text import clean
from refold.reducers.vocabulary import Ranges, Role
from refold.reducers.window import ranges_of

MOST_TOGETHER = 200
"""Rows that one remark may hold."""

MOST_CHARACTERS = 1 << 20
"""Characters of the rows in one remark, if they are several."""

MOST_KEPT = 1 << 16
"""Characters that are kept of a line which cannot be read; the rest stands where it stood."""

MOST_DEPTH = 200
"""Levels of nesting of a row.

Reading and writing both have a limit, which depends on how deep their callers are.
"""

MOST_VALUES = 1000
"""JSON values of one line."""

MOST_HELD = 8 << 20
"""Bytes of a file whose rows are read once, and held: as Python objects they take several times as much."""

MOST_HEAD = 1 << 20
"""Bytes in which the first rows must stand to tell a format."""

TOO_DEEP = f"nested more than {MOST_DEPTH} levels deep"

_APART = {
    "rewound": (LEFT_BRANCH, "on a branch that somebody left"),
    "subagent": (SUBAGENT_ROWS, "in rows of a subagent"),
}
"""By what is remarked of rows that are in no run: the code of the diagnosis that says so, and where they
stand.
"""

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"\s*")


class Row(msgspec.Struct, frozen=True, gc=False):
    """One JSON object of so many bytes, the number of its line, from 1, and when it was, by its own
    `timestamp`.

    `number` is its own among the objects of the file, from 1.
    """

    line: int
    value: dict[str, JSON]
    at: int | None
    size: int
    number: int

    @property
    def position(self) -> str:
        """Where it stands."""
        return f"line {self.line}"

    @property
    def place(self) -> Place:
        """Where it stands, and when it was."""
        return Place(self.position, self.at, row=self.number)

    def rest(self) -> str:
        """JSON text of what is left of it, beside its type, which an item says by what it is, and its
        time.
        """
        told = ("type",) if self.at is None else ("type", "timestamp")
        return rest({name: value for name, value in self.value.items() if name not in told})

    def remark(self, what: str) -> Remarked:
        """The row as it is, as a remark of its own."""
        return self.place.remark(what, self.value)

    def noise(
        self,
        what: str = "unmapped",
        *,
        known: bool = True,
        counts: Counted | None = None,
        apart: Counted | None = None,
    ) -> "Noise":
        """The row as it is, with no meaning to us; `known`: its format is known to have such rows."""
        said = json_text(self.value)
        return Noise(
            what=what, line=self.line, at=self.at, text=said, known=known, counts=counts, apart=apart
        )


class Noise(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row, or a line that is none, which says nothing to the machine. `problem`: why it could not be read.

    `apart`: what it holds of what a model did, which is in no run, whether its format counts it or not.
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
    """Every object of a file of lines, and in its place everything else, for whoever goes over them more than
    once.

    Blank lines are nothing. Raises `BadTranscript` for more than `MOST_LINES` of either.
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
            problem = f"{len(line.text) + line.left_out} bytes in one line: at most {MOST_LINE} are read"
            yield Noise(what="too_long", line=line.number, text=_kept(line.text), problem=problem)
            continue
        for value in _values(line, numbers):
            found += 1
            if found > MOST_LINES:
                raise BadTranscript(
                    source.name, f"line {line.number}", f"more than {MOST_LINES} rows in one file"
                )
            yield value


def first_rows(source: Source, most: int) -> list[Row | Noise]:
    """The first rows of a file, as far as they stand in its head: enough to tell a format, cheap for any
    file.
    """
    return list(islice(Rows(Source.of(source.name, source.head(MOST_HEAD))), most))


def _values(line: Line, numbers: Iterator[int]) -> Iterator[Row | Noise]:
    try:
        yield _value(line.number, decoded(line.text.removeprefix(b"\xef\xbb\xbf")), line.text, numbers)
    except ValueError:
        yield from _several(line, numbers)


def _several(line: Line, numbers: Iterator[int]) -> Iterator[Row | Noise]:
    """The objects of a line that is no single JSON value, up to the first byte that is none."""
    text, place = clean(line.text.decode(errors="replace")), 0
    for _ in range(MOST_VALUES):
        if place >= len(text):
            return
        try:
            value, end = cast("tuple[JSON, int]", _DECODER.raw_decode(text, place))
            raw = text[place:end].encode()
            # Decoded anew, because what it escapes may be half a surrogate pair.
            value = decoded(raw) if isinstance(value, dict) else value
        except (ValueError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            rest = text[place : place + MOST_KEPT]
            yield Noise(what="not_json", line=line.number, text=rest, problem=problem)
            return
        yield _value(line.number, value, raw, numbers)
        place = _behind(text, end)
    if rest := text[place : place + MOST_KEPT]:
        problem = f"more than {MOST_VALUES} values in one line"
        yield Noise(what="not_json", line=line.number, text=rest, problem=problem)


def _behind(text: str, place: int) -> int:
    """Where the blanks end that begin here."""
    blank = _BLANK.match(text, place)
    return blank.end() if blank else place


def _value(line: int, value: JSON, raw: bytes, numbers: Iterator[int]) -> Row | Noise:
    if raw.count(b"[") + raw.count(b"{") > MOST_DEPTH and too_deep(value):
        return Noise(what="too_deep", line=line, text=_kept(raw), problem=TOO_DEEP)
    if isinstance(value, dict):
        return Row(line, value, instant(value.get("timestamp")), len(raw), next(numbers))
    return Noise(what="no_object", line=line, text=_kept(raw), problem="JSON, but no object")


def too_deep(value: JSON) -> bool:
    """Whether a value is nested more than `MOST_DEPTH` levels."""
    level: list[JSON] = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: JSON) -> Iterable[JSON]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _kept(line: bytes) -> str:
    return clean(line[:MOST_KEPT].decode(errors="replace"))


def gather(stream: Iterator[Item | Noise]) -> Iterator[Item]:
    """The stream with noise made into items: adjacent rows of one kind share one, with all their lines."""
    held: list[Noise] = []
    size = 0
    for found in stream:
        if held and not (isinstance(found, Noise) and _joins(held, size, found)):
            yield from _together(held)
            held, size = [], 0
        if isinstance(found, Noise):
            held.append(found)
            size += len(found.text)
        else:
            yield found
    if held:
        yield from _together(held)


def _joins(held: list[Noise], size: int, found: Noise) -> bool:
    last = held[-1]
    alike = (last.what, last.known, bool(last.problem)) == (found.what, found.known, bool(found.problem))
    few = len(held) < MOST_TOGETHER and size + len(found.text) <= MOST_CHARACTERS
    return alike and 0 <= found.line - last.line <= 1 and few


def _together(held: list[Noise]) -> Iterator[Item]:
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
    """That answers, calls or results are in no run, where `what` is remarked of the rows in which they
    stand.
    """
    if apart is None or not (apart.assistant or apart.calls or apart.results):
        return
    code, where = _APART[what]
    parts = (
        f"{number:,} {noun if number == 1 else noun + 's'}"
        for number, noun in ((apart.assistant, "answer"), (apart.calls, "call"), (apart.results, "result"))
        if number
    )
    yield place.oddity(code, f"{', '.join(parts)} {where}: in no run here")


def unread_parts(
    row: Row, message: JSON, names: Iterable[str], kinds: Iterable[str] = (), known: Container[str] = ()
) -> Iterator[Unread]:
    """That a message has none of the fields by `names` in which its format says something, or parts of
    unknown `kinds`.
    """
    problem = ""
    if not any(name in table(message) for name in names):
        problem = f"a message without {' or '.join(names)}"
    elif strange := sorted({kind for kind in kinds if kind not in known}):
        problem = (
            f"parts of a message that are not known here: {', '.join(kind[:40] for kind in strange[:5])}"
        )
    if problem:
        yield row.place.problem(UNKNOWN_PART, problem)


def lines(first: int, last: int) -> str:
    """The position of these lines."""
    return f"line {first}" if first == last else f"lines {first}-{last}"


BEGINNING = 0
"""The row of what a run begins with. A source's own are numbered from 1."""

_LAST = 1 << 62

ALL: Ranges = ((NO_ROW, _LAST),)
"""Every row, and what stands in none."""


class Cut(Item, frozen=True, kw_only=True):
    """From here on the model is shown something else than all that was said: after a compaction, a rollback,
    …

    First the last `turns` of the person are taken back, with all that followed them. Of the rest stays
    `head`, then comes what `joins`, then stays `tail`: ranges of rows, first and last included; `between`:
    and what was said between them. `cleared` has what is left of the words of results, by the providers' ids
    of their calls. `why` is the source's word for it.
    """

    why: str
    turns: int = 0
    head: Ranges = ()
    joins: tuple[Said | Answered | Returned, ...] = ()
    tail: Ranges = ()
    between: bool = False
    cleared: Mapping[str, str] = {}


class Forked(Item, frozen=True, kw_only=True):
    """The run of this `key`, which is told later, begins with all that was said in this one up to here."""

    key: str


def cut_to_summary(place: Place, summary: str, *, head: Ranges = (), tail: Ranges = ()) -> Cut:
    """A compaction: `summary` stands for what does not stay. It stands in no row: no later cut names it."""
    said = Place(place.position).message(summary, "harness")
    return Cut(*place.common(), why="compaction", head=head, joins=(said,), tail=tail)


def since(row: int) -> Ranges:
    """This row and all behind it."""
    return ((row, _LAST),)


def only(rows: Iterable[int]) -> Ranges:
    """These rows, in any order."""
    return ranges_of(sorted(set(rows)))


def answering(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages without the results for which no call is open."""
    kept: list[Message] = []
    waiting = 0
    for message in messages:
        result = message.role is Role.TOOL
        if waiting or not result:
            kept.append(message)
            waiting += len(message.calls) - result
    return tuple(kept)
