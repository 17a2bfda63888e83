"""A run's log to the data of its page, in one pass: whatever cannot be read, judged or folded is said, and shown raw."""

import base64
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.console.report.data import (
    Bytes,
    Figures,
    PackedOpinion,
    PageEvent,
    PageKind,
    PageMessage,
    Report,
)
from refold.console.report.opinions import Packer
from refold.console.report.pointers import Places
from refold.reducers.errors import CannotJudge, Damaged, RefoldError
from refold.reducers.events import (
    Annotation,
    Event,
    Fact,
    ModelRequested,
    SourceRecorded,
    kind_of,
)
from refold.reducers.guards import Registry
from refold.reducers.state import NEW, RunState
from refold.replay import figures, known
from refold.replay.audit import Finding
from refold.replay.changes import Changes, state_changes
from refold.replay.kinds.table import ROWS, kind_for, sentence
from refold.replay.partial_audit import PartialAudit
from refold.replay.queries.rows import FIELDS, START, moved, row_of, side_of
from refold.replay.reader import event_of, folded, stored_events
from refold.replay.seen import RequestView, Views
from refold.replay.summary import Summary, Summing
from refold.replay.verification import Verifier
from refold.replay.why import asked
from refold.store.protocol import Store, Stored


async def build(store: Store, run: str, upto: int | None, registry: Registry) -> Report:
    """The data of a run's page, up to event `upto`. Raises `UnknownRun`; a damaged log is told as far as it goes."""
    builder = Builder(run, registry)
    try:
        async for stored in stored_events(store, run, upto):
            builder.take(stored)
    except Damaged as error:  # of the store itself: not even the bytes can be read
        builder.broken(str(error))
    last = (await store.head(run)).seq if upto is not None else 0
    return builder.result(partial=upto is not None and upto < last)


class Builder:
    """Takes a run's records in order."""

    def __init__(self, run: str, registry: Registry) -> None:
        self._run, self._registry = run, registry
        self._verifier, self._audit = Verifier(run, registry), PartialAudit(run, registry)
        self._summing = Summing(run, excerpt=None)
        self._views, self._packer = Views(), Packer()
        self._state: RunState = NEW
        self._imported: SourceRecorded | None = None
        self._whole, self._damaged = True, ""
        self._place = START
        self._turn = self._fact = 0
        self._said: dict[int, Event] = {}
        self._events: list[PageEvent] = []
        self._changes: list[Changes] = []
        self._calls: list[RequestView] = []
        self._asked: dict[int, tuple[PackedOpinion, ...]] = {}

    def take(self, stored: Stored) -> None:
        """Take one record."""
        self._whole = self._whole and self._verifier.take(stored)
        event, problem = _read(stored)
        before = self._state
        if event is not None and not self._damaged:
            problem = self._follow(stored, event)
        self._damaged = self._damaged or problem
        self._changes.append({} if before is self._state else state_changes(before, self._state))
        if isinstance(event, ModelRequested):
            self._turn = event.step
        self._fact = stored.seq if isinstance(event, Fact) else self._fact
        self._events.append(self._row(stored, event, problem))

    def broken(self, problem: str) -> None:
        """No more can be read."""
        self._damaged = self._damaged or problem

    def result(self, *, partial: bool) -> Report:
        """The data of the page."""
        places = Places()
        shown = (places.row(each, self._said.get(each.seq)) for each in self._views.shown)
        about, judged = self._summing.result(self._state, self._damaged), self._audit.result()
        return Report(
            refold=version("refold"),
            partial=partial,
            about=about,
            figures=self._figures(about),
            imported=self._imported,
            checked=self._verifier.result(),
            judged=replace(
                judged, findings=_stateless(judged.findings), unreplayable=_stateless(judged.unreplayable)
            ),
            refused=self._audit.refused,
            events=tuple(self._events),
            changes=tuple(self._changes),
            calls=tuple(self._calls),
            shown=tuple[PageMessage, ...](shown),
            words=self._packer.words,
            asked=self._asked,
            fields=dict(FIELDS),
            kinds={kind_of(row.of): PageKind(row.texts, row.speaker, row.sign) for row in ROWS},
        )

    def _follow(self, stored: Stored, event: Event) -> str:
        """Fold an event, and derive what belongs to it. Why it cannot stand here, "" if it can."""
        before = self._state
        try:
            self._state = folded(before, stored, event, self._registry)
        except (Damaged, CannotJudge) as error:
            return str(error)
        self._audit.take(stored)
        self._note(stored, event)
        if isinstance(event, Fact):
            self._ask(before, stored.seq, event)
        if isinstance(event, ModelRequested):
            call = self._views.take(self._state, self._said)
            self._calls += [] if call is None else [call]
        return ""

    def _note(self, stored: Stored, event: Event) -> None:
        if isinstance(event, SourceRecorded) and self._imported is None:
            self._imported = replace(event, content=None)
        self._summing.take(stored, event)
        if stored.content is not None:
            self._said[stored.seq] = event

    def _ask(self, before: RunState, seq: int, fact: Fact) -> None:
        try:
            opinions, _ = asked(before, fact, self._registry, None)
        except RefoldError:  # the audit says so
            return
        if opinions:
            self._asked[seq] = tuple(map(self._packer.packed, opinions))

    def _row(self, stored: Stored, event: Event | None, problem: str) -> PageEvent:
        return PageEvent(
            stored.seq,
            str(stored.at),
            stored.kind,
            "?" if event is None else side_of(event),
            self._turn,
            stored.seq if isinstance(event, Annotation) else self._fact,
            "" if event is None else sentence(event),
            _text(stored.body),
            None if stored.content is None else _text(stored.content),
            stored.salt.hex(),
            stored.hash.hex(),
            None if stored.content_digest is None else stored.content_digest.hex(),
            "" if stored.run == self._run else stored.run,
            problem,
            {} if event is None else self._filtered(stored, event),
            event is not None and kind_for(event).weight(event) == "routine",
        )

    def _filtered(self, stored: Stored, event: Event) -> dict[str, Any]:
        self._place = moved(self._place, stored.at, event)
        row = msgspec.to_builtins(row_of(stored, event, self._place))
        return {name: value for name, value in row.items() if name not in _TOLD}

    def _figures(self, about: Summary) -> Figures:
        state = self._state
        return Figures(
            cost=_cost(state),
            duration=figures.seconds(known.took(max(0, state.fact_at - about.started))),
            limit=figures.hit(about.limit) if about.limit else "",
        )


# What stands in an event's columns, or in its content.
_TOLD = frozenset({"run", "seq", "kind", "turn", "side", "text"})


def _read(stored: Stored) -> tuple[Event | None, str]:
    try:
        return event_of(stored), ""
    except (Damaged, CannotJudge) as error:
        return None, str(error)


def _text(data: bytes) -> str | Bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Bytes(base64.b64encode(data).decode())


def _stateless(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(replace(each, state="") for each in findings)


def _cost(state: RunState) -> str:
    cost = known.cost(state.spent)
    if cost is None:
        return "unknown"
    return figures.dollars(cost) + (" and more" if state.spent.unpriced else "")
