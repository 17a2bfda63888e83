"""What the page of a report is made of, as JSON. Every text of the log is in it once, as it was recorded.

Numbers that JavaScript cannot hold (instants in nanoseconds) are text. Whatever is derived again stands in the form in
which it grows no faster than the log: the changes of the state, the changes from one view to the next.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from refold.replay.audit import Finding
from refold.replay.changes import Changes
from refold.replay.queries.rows import RowField
from refold.replay.seen import Call
from refold.replay.verification import Problem

Side = Literal["fact", "decision", "note", "?"]
Pointer = tuple[int, tuple[str | int, ...]]
"""An event's number, and the way to a text in its content: `(7, ("arguments", 0))`."""
Words = str | Pointer
"""A text itself, or where it stands."""


class Bytes(msgspec.Struct, frozen=True):
    """Bytes that are no UTF-8, and so no JSON text either."""

    base64: str


class EventRow(msgspec.Struct, frozen=True, array_like=True):
    """An event: its header, what it says in a line, and all that was stored of it; salt, hash and digest in hex.

    `turn` is the request that it belongs to, 0 before the first; `fact` the fact that it follows from, or itself. `run` is ""
    where it is the run's own. `damage` says why it could not be read or cannot stand here. `row` is what else filters know of
    it, as `refold.replay.queries.rows.Row` has it; the text is left out, for the page has it already.
    """

    seq: int
    at: str
    kind: str
    side: Side
    turn: int
    fact: int
    said: str
    body: str | Bytes
    content: str | Bytes | None
    salt: str
    hash: str
    digest: str | None
    run: str
    damage: str = ""
    row: dict[str, Any] = {}


class ShownCall(msgspec.Struct, frozen=True, array_like=True):
    """A call within a message: its id, the tool's name, the arguments."""

    id: str
    name: str
    arguments: Words


class ShownRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message that some request showed: see `refold.replay.seen.Shown`. `role` is "" where its words were erased."""

    number: int
    seq: int
    tokens: int
    cut: bool = False
    cause: str = ""
    role: str = ""
    text: Words = ""
    reasoning: Words = ""
    calls: tuple[ShownCall, ...] = ()
    call: str | None = None
    name: str | None = None


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """What a limit or guard said before decision number `before` (0: the first): see `refold.replay.why.Opinion`.

    `who` and `said` are places in `Report.words`; `own` is a guard's memory as JSON text, of one that did not simply allow.
    """

    before: int
    place: int
    who: int
    said: int
    saw: tuple[tuple[int, str | int], ...] = ()
    own: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found: see `refold.replay.audit.Audit`, without the states. `refused` says why there is none."""

    rules: int = 0
    facts: int = 0
    decisions: int = 0
    differences: int = 0
    unjudged: int = 0
    findings: tuple[Finding, ...] = ()
    unreplayable: tuple[Finding, ...] = ()
    blind: tuple[str, ...] = ()
    damaged: str = ""
    refused: str = ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` found when the page was made; the page checks the chain again by itself."""

    events: int
    erased: int
    hash: str
    newer: bool
    problem: Problem | None
    cannot_prove: tuple[str, ...]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Where an imported run came from: the format, and the SHA-256 of the file."""

    format: str
    source: str
    position: str


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The run as a whole. `partial`: the log goes on after what is shown here. Instants are nanoseconds, as text, "0" where a
    transcript told of none. `source_end` is how an imported run ended by its source, `source_says` that as a sentence. `counted`: whether anybody counted tokens."""

    run: str
    refold: str
    model: str
    task: str | None
    labels: dict[str, str]
    parent: str
    started: str
    at: str
    agent_state: str
    code: str | None
    reason: str | None
    limit: str
    steps: int
    input: int
    output: int
    cache_read: int
    cost: str
    duration: str
    damaged: str
    partial: bool
    source_end: str = ""
    source_says: str = ""
    counted: bool = True
    imported: Imported | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `changes` has one entry an event, in order; `asked` one a fact, by its number.

    `fields` are those that filters know.
    """

    about: About
    checked: Checked
    judged: Judged
    events: tuple[EventRow, ...]
    changes: tuple[Changes, ...]
    calls: tuple[Call, ...]
    shown: tuple[ShownRow, ...]
    words: tuple[str, ...]
    asked: dict[int, tuple[Asked, ...]]
    fields: Mapping[str, RowField]
