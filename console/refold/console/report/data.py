"""What the page of a report is made of, as JSON, in parts. Every text of the log is in it once, as it was recorded.

Numbers that JavaScript cannot hold (instants in nanoseconds) are text. Whatever is derived again stands in the form in
which it grows no faster than the log: the changes of the state, the changes from one view to the next.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from refold.console.child_runs import ChildRun
from refold.console.report.packing import Packed
from refold.reducers.events import SourceRecorded
from refold.replay.audit import Audit
from refold.replay.changes import Changes
from refold.replay.kinds.row import EventType, Sign
from refold.replay.queries.questions import Field
from refold.replay.queries.rows import Side
from refold.replay.summary import Summary
from refold.replay.tally import Effects
from refold.replay.verification import Verification

Pointer = tuple[int, tuple[str | int, ...]]
"""An event's number, and the way to a text in its content: `(7, ("arguments", 0))`."""
Words = str | Pointer
"""A text itself, or where it stands."""


class Bytes(msgspec.Struct, frozen=True):
    """Bytes that are no UTF-8, and so no JSON text either."""

    base64: str


class PageEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event as lists and filters know it: its header, what it says in a line, what it is connected with.

    `turn` is the request that it belongs to or, said by a person, leads to, 0 before the first; `fact` the fact that it follows from, or itself; `answers` the
    request that it ends, 0 if none. `run` is "" where it is the run's own. `damage` says why it could not be read or cannot stand
    here. `row` is what else filters know of it, as `refold.replay.queries.rows.FlatEvent` has it; the text is left out, for the page
    has it already. A `routine` one is left out of the short list.
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
    """A message that some request showed: see `refold.replay.seen.ShownMessage`. `role` is "" where its words were erased."""

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
    """What a limit or guard said before decision number `before` (0: the first): see `refold.replay.why.Opinion`.

    `who` and `said` are places in `Report.words`; `own` is a guard's memory as JSON text, of one that did not simply allow.
    """

    before: int
    place: int
    who: int
    said: int
    saw: tuple[tuple[int, str | int], ...] = ()
    own: str = ""


class Derived(msgspec.Struct, frozen=True, array_like=True):
    """What was derived again at an event: what it changed of the state, and of a fact what limits and guards said."""

    changes: Changes
    asked: tuple[PackedOpinion, ...] = ()


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a person reads of the run's numbers; `limit` is which limit ended it, "" if none did; `unmarked` that of some
    results nobody knows whether their calls failed, "" if of none; `did` is what it did, in a line; `changes` is what its calls changed, `failed` how many failed;
    `who` is who and when, as names and texts.
    """

    did: str
    cost: str
    duration: str
    limit: str
    unmarked: str
    changes: Effects
    failed: int
    who: tuple[tuple[str, str], ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. What grows with the run is packed: `turns` of `TurnRow`, `events` of `PageEvent`, `calls` of `RequestView` the page
    reads at once; a `PageRecord` and a `Derived` of each event, and the messages `shown`, of `PageMessage`, when they are looked at.

    `refold` is the version that made it. `partial`: the log goes on after what is shown here. `checked` is what was found when
    the page was made: it checks the chain again by itself. The findings of `judged` are without their states; `refused` says
    why it does not go to the end. `imported` is where an imported run came from, `children` what its calls began, `pages` the
    files of its kin beside this one. `end` is the event
    that says how the run ended, 0 where none does. `fields` are those that filters know, `kinds` those of events.
    """

    refold: str
    partial: bool
    about: Summary
    figures: Figures
    imported: SourceRecorded | None
    children: tuple[ChildRun, ...]
    pages: Mapping[str, str]
    checked: Verification
    judged: Audit
    refused: str
    end: int
    turns: Packed
    events: Packed
    calls: Packed
    records: Packed
    derived: Packed
    shown: Packed
    words: tuple[str, ...]
    fields: Mapping[str, Field]
    kinds: Mapping[str, PageKind]
