"""The data of a report's page as JSON, in parts.

Numbers that JavaScript cannot represent (instants in nanoseconds) are text. Derived data grows no faster than
the log: it contains changes of the state, and changes from one prompt to the next.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import asdict

from refold.console.conversations import ChildRun
from refold.reducers.events import Event, SourceRecorded
from refold.replay.audit import Audit
from refold.replay.changes import ChangeSummary
from refold.replay.kinds.row import EventType, Sign
from refold.replay.queries.conditions import Field
from refold.replay.queries.rows import Side
from refold.replay.seen import ShownMessage
from refold.replay.summary import RunSummary
from refold.replay.timeline import Effects
from refold.replay.verification import Verification
from refold.replay.why import Changes

_PART = 1 << 18  # bytes of JSON in a part: a browser reads one in some milliseconds
_RAW = -15  # deflate without header and checksum: the contents are checked by their hashes

ENCODER = msgspec.json.Encoder()  # keeps the order of mappings: changes of a state apply in that order


class PackedValues:
    """Values, packed as they are appended.

    `parts` are raw deflate streams, each of a JSON array; `counts` has the number of values in each.
    """

    def __init__(self, values: Iterable[object] = ()) -> None:
        self._parts: list[bytes] = []
        self._counts: list[int] = []
        self._open = bytearray()
        self._waiting = 0
        for value in values:
            self.append(value)

    def __len__(self) -> int:
        return sum(self._counts) + self._waiting

    def append(self, value: object) -> None:
        """Append a value. It is encoded now: later changes to it have no effect."""
        self._open += b"," if self._waiting else b"["
        self._open += ENCODER.encode(value)
        self._waiting += 1
        if len(self._open) >= _PART:
            self._close()

    @property
    def parts(self) -> Sequence[bytes]:
        """All parts, including the values so far."""
        self._close()
        return self._parts

    @property
    def counts(self) -> Sequence[int]:
        """The number of values in each part."""
        self._close()
        return self._counts

    def _close(self) -> None:
        if self._waiting:
            packer = zlib.compressobj(wbits=_RAW)
            self._parts.append(packer.compress(self._open + b"]") + packer.flush())
            self._counts.append(self._waiting)
            self._open.clear()
            self._waiting = 0


Pointer = tuple[int, tuple[str | int, ...]]
"""An event's number, and the path to a text in its payload: `(7, ("arguments", 0))`."""
Words = str | Pointer
"""A text, or a pointer to it."""


class Bytes(msgspec.Struct, frozen=True):
    """Bytes that are not UTF-8, and so cannot be JSON text."""

    base64: str


class PageEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event for lists and filters: its header, its summary in a line, and its relations.

    `turn` is the turn of its request, or the one that an operator's message starts; 0 before the first.
    `fact` is the fact that it follows from, or itself; `answers` the request that it ends, 0 if none. `run`
    is "" for the run's own events. `damage` says why it could not be read or is invalid here. `row` has the
    fields for filters, as `refold.replay.queries.rows.FlatEvent` has them, without the text, which the page
    has already. `routine` events are left out of the short list.
    """

    seq: int
    at: str
    kind: str
    side: Side | Literal["?"]
    turn: int
    fact: int
    said: str
    run: str = ""
    damage: str = ""
    row: dict[str, Any] = {}
    routine: bool = False
    erased: bool = False
    answers: int = 0


class PageRecord(msgspec.Struct, frozen=True, array_like=True):
    """The stored parts of an event besides its header; salt, hash and digest in hex."""

    body: str | Bytes
    content: str | Bytes | None
    salt: str
    hash: str
    digest: str | None


class PageKind(msgspec.Struct, frozen=True):
    """A kind of event: see `refold.replay.kinds.row.Kind`."""

    type: EventType
    texts: tuple[str, ...]
    speaker: str
    sign: Sign


class PageCall(msgspec.Struct, frozen=True, array_like=True):
    """A call in a message: its id, the tool's name, the arguments."""

    id: str
    name: str
    arguments: Words


class PageMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message of some prompt: see `refold.replay.seen.ShownMessage`.

    `role` is "" if its payload was erased.
    """

    number: int
    seq: int
    tokens: int
    cut: bool = False
    cause: str = ""
    role: str = ""
    text: Words = ""
    reasoning: Words = ""
    calls: tuple[PageCall, ...] = ()
    call: str | None = None
    name: str | None = None


class PackedOpinion(msgspec.Struct, frozen=True, array_like=True):
    """What a limit or guard returned before decision number `before` (0: the first): see
    `refold.replay.why.Opinion`.

    `who` and `said` are indexes into `Report.words`. `own` is a guard's memory as JSON text, unless it simply
    allowed.
    """

    before: int
    place: int
    who: int
    said: int
    measured: tuple[tuple[int, str | int], ...] = ()
    own: str = ""


class PageDerivation(msgspec.Struct, frozen=True, array_like=True):
    """What was derived again at an event: changes of the state, and for a fact what limits and guards
    returned.

    `rules`: for a response, its calls and which rule decided about each, in a sentence.
    """

    changes: Changes
    asked: tuple[PackedOpinion, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The run's numbers as text.

    `limit`: the limit that ended it, or "". `unmarked`: that some results have no recorded status, or "".
    `did`: what the run did, in a line; `changes`: what its calls changed, by verb; `touched`: the same by
    kind, with unread parts; `failed`: how many failed. `who`: names and texts of its environment. `tone`: how
    to mark its state, "good", "warn" or "bad".
    """

    did: str
    cost: str
    duration: str
    limit: str
    unmarked: str
    changes: Effects
    touched: ChangeSummary
    failed: int
    who: tuple[tuple[str, str], ...]
    tone: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report. Data that grows with the run is packed.

    The page reads `turns` (`TurnRow`), `events` (`PageEvent`) and `calls` (`RequestView`) at once. It reads
    each event's `PageRecord` and `PageDerivation`, and the messages `shown` (`PageMessage`), when they are
    displayed.

    `refold`: the version that wrote it. `partial`: the log continues after what is displayed. `checked`: the
    verification when the page was written; the page checks the chain again itself. `judged`: the audit, its
    findings without states; `refused`: why it stopped before the end. `imported`: the source of an imported
    run; `children`: its child runs; `pages`: files of related runs beside this one. `end`: the event that
    ended the run, 0 if none. `fields` and `kinds`: the fields for filters and the kinds of events.
    """

    refold: str
    partial: bool
    about: RunSummary
    figures: Figures
    imported: SourceRecorded | None
    children: tuple[ChildRun, ...]
    pages: Mapping[str, str]
    checked: Verification
    judged: Audit
    refused: str
    end: int
    turns: PackedValues
    events: PackedValues
    calls: PackedValues
    records: PackedValues
    derived: PackedValues
    shown: PackedValues
    words: tuple[str, ...]
    fields: Mapping[str, Field]
    kinds: Mapping[str, PageKind]


_SHORT = 48  # characters: a pointer is about as long


class TextPositions:
    """The positions of texts in each event's payload."""

    def __init__(self) -> None:
        self._found: dict[int, dict[str, Pointer]] = {}

    def of(self, seq: int, event: Event | None, text: str) -> Words:
        """Return the text, or a pointer to it in the payload of event `seq`."""
        if len(text) <= _SHORT or event is None:
            return text
        places = self._found.get(seq)
        if places is None:
            content = msgspec.to_builtins(getattr(event, "content", None))
            places = self._found[seq] = {said: (seq, path) for path, said in _texts((), content)}
        return places.get(text, text)

    def row(self, shown: ShownMessage, event: Event | None) -> PageMessage:
        """Return the message, with pointers for texts of its event."""
        seq, message, said = shown.seq, shown.message, asdict(shown)
        del said["message"]
        if message is not None:
            said |= {name: getattr(message, name) for name in ("call", "name")} | {"role": str(message.role)}
            said |= {name: self.of(seq, event, getattr(message, name)) for name in ("text", "reasoning")}
            calls = ((call.id, call.name, self.of(seq, event, call.arguments)) for call in message.calls)
            said["calls"] = tuple(PageCall(*call) for call in calls)
        return PageMessage(**said)


def _texts(path: tuple[str | int, ...], value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from _texts((*path, key), each)
    elif isinstance(value, list):
        for place, each in enumerate(cast("list[object]", value)):
            yield from _texts((*path, place), each)
