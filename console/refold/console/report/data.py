"""What the page of a report is made of, as JSON, in parts.

Numbers that JavaScript cannot hold (instants in nanoseconds) are text. Whatever is derived again stands in
the form in which it grows no faster than the log: the changes of the state, the changes from one view to the
next.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import asdict

from refold.console.conversations import ChildRun
from refold.reducers.events import Event, SourceRecorded
from refold.replay.audit import Audit
from refold.replay.kinds.row import EventType, Sign
from refold.replay.queries.conditions import Field
from refold.replay.queries.rows import Side
from refold.replay.seen import ShownMessage
from refold.replay.summary import RunSummary
from refold.replay.timeline import Effects
from refold.replay.verification import Verification
from refold.replay.why import Changes

_PART = 1 << 18  # bytes of JSON in a part: a browser reads one in some milliseconds
_RAW = -15  # deflate without header and checksum: whatever is hashed in it is checked by its hash

ENCODER = (
    msgspec.json.Encoder()
)  # in the order in which a mapping was made: changes of a state hold in theirs


class PackedValues:
    """Values as they come.

    `parts` are raw deflate streams, each of a JSON array; `counts` says how many values are in each.
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
        """Take one value more. It is encoded now: what changes in it later is not seen."""
        self._open += b"," if self._waiting else b"["
        self._open += ENCODER.encode(value)
        self._waiting += 1
        if len(self._open) >= _PART:
            self._close()

    @property
    def parts(self) -> Sequence[bytes]:
        """All parts, the last one as it is up to now."""
        self._close()
        return self._parts

    @property
    def counts(self) -> Sequence[int]:
        """How many values each part has."""
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
"""An event's number, and the way to a text in its content: `(7, ("arguments", 0))`."""
Words = str | Pointer
"""A text itself, or where it stands."""


class Bytes(msgspec.Struct, frozen=True):
    """Bytes that are no UTF-8, and so no JSON text either."""

    base64: str


class PageEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event as lists and filters know it: its header, what it says in a line, what it is connected with.

    `turn` is the request that it belongs to or, said by a person, leads to, 0 before the first; `fact` the
    fact that it follows from, or itself; `answers` the request that it ends, 0 if none. `run` is "" where it
    is the run's own. `damage` says why it could not be read or cannot stand here. `row` is what else filters
    know of it, as `refold.replay.queries.rows.FlatEvent` has it; the text is left out, for the page has it
    already. A `routine` one is left out of the short list.
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
    """What was stored of an event besides its header; salt, hash and digest in hex."""

    body: str | Bytes
    content: str | Bytes | None
    salt: str
    hash: str
    digest: str | None


class PageKind(msgspec.Struct, frozen=True):
    """What the page knows of a kind of event: see `refold.replay.kinds.row.Kind`."""

    type: EventType
    texts: tuple[str, ...]
    speaker: str
    sign: Sign


class PageCall(msgspec.Struct, frozen=True, array_like=True):
    """A call within a message: its id, the tool's name, the arguments."""

    id: str
    name: str
    arguments: Words


class PageMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message that some request showed: see `refold.replay.seen.ShownMessage`.

    `role` is "" where its words were erased.
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
    """What a limit or guard said before decision number `before` (0: the first): see
    `refold.replay.why.Opinion`.

    `who` and `said` are places in `Report.words`; `own` is a guard's memory as JSON text, of one that did not
    simply allow.
    """

    before: int
    place: int
    who: int
    said: int
    saw: tuple[tuple[int, str | int], ...] = ()
    own: str = ""


class PageDerivation(msgspec.Struct, frozen=True, array_like=True):
    """What was derived again at an event: what it changed of the state, and of a fact what limits and guards
    said.
    """

    changes: Changes
    asked: tuple[PackedOpinion, ...] = ()


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The run's numbers as text.

    `limit` is the limit that ended it, "" if none did. `unmarked` says that some results have no recorded
    status, "" if all have one. `did` is what the run did, in a line; `changes` what its calls changed,
    `failed` how many failed. `who` is who and when, as names and texts. `tone` is how its state is marked:
    "good", "warn" or "bad".
    """

    did: str
    cost: str
    duration: str
    limit: str
    unmarked: str
    changes: Effects
    failed: int
    who: tuple[tuple[str, str], ...]
    tone: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. What grows with the run is packed: `turns` of `TurnRow`, `events` of `PageEvent`, `calls` of
    `RequestView` the page reads at once; a `PageRecord` and a `PageDerivation` of each event, and the
    messages `shown`, of `PageMessage`, when they are looked at.

    `refold` is the version that made it. `partial`: the log goes on after what is shown here. `checked` is
    what was found when the page was made: it checks the chain again by itself. The findings of `judged` are
    without their states; `refused` says why it does not go to the end. `imported` is where an imported run
    came from, `children` what its calls began, `pages` the files of its kin beside this one. `end` is the
    event that says how the run ended, 0 where none does. `fields` are those that filters know, `kinds` those
    of events.
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


_SHORT = 48  # characters: a pointer would be no shorter


class TextPositions:
    """Where the texts of each event's content stand in it."""

    def __init__(self) -> None:
        self._found: dict[int, dict[str, Pointer]] = {}

    def of(self, seq: int, event: Event | None, text: str) -> Words:
        """The text, or where it stands in the content of event `seq`."""
        if len(text) <= _SHORT or event is None:
            return text
        places = self._found.get(seq)
        if places is None:
            content = msgspec.to_builtins(getattr(event, "content", None))
            places = self._found[seq] = {said: (seq, path) for path, said in _texts((), content)}
        return places.get(text, text)

    def row(self, shown: ShownMessage, event: Event | None) -> PageMessage:
        """The message, with pointers for what stands in its event."""
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
