"""Build the data of a run's page from its log, in one pass."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.console.call_reasons import describe_rule
from refold.console.conversations import ChildRun, Kin
from refold.console.report.data import (
    Bytes,
    Figures,
    PackedOpinion,
    PackedValues,
    PageDerivation,
    PageEvent,
    PageKind,
    PageRecord,
    Report,
    TextPositions,
)
from refold.reducers import events as ev
from refold.reducers.errors import Damaged, Inconclusive, RefoldError
from refold.reducers.guards import Registry
from refold.reducers.source_marks import END
from refold.reducers.state import RunState
from refold.replay import figures, known
from refold.replay.audit import Auditor, Finding
from refold.replay.call_reasons import list_rules
from refold.replay.changes import Change, ChangeLog, ChangeSummary, summarize_changes
from refold.replay.kinds.table import ROWS, kind_for, sentence
from refold.replay.queries.rows import FIELDS, START, advance_place, row_of, side_of
from refold.replay.reader import Follower, Records, Step, follow
from refold.replay.seen import Views
from refold.replay.summary import RunSummary, Summing
from refold.replay.timeline import EffectCounter, Teller, TurnRow, tally
from refold.replay.verification import Verifier
from refold.replay.why import ALLOWED, Opinion, asked, state_changes
from refold.store.protocol import Store, Stored

_CHANGE = 120  # characters of a change
_MOST = 4000  # characters of a guard's memory


class Packer:
    """Numbers words in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def words(self) -> tuple[str, ...]:
        """The words, by their numbers from 0."""
        return tuple(self._numbers)

    def pack(self, opinion: Opinion) -> PackedOpinion:
        """Pack one opinion."""
        own = ""
        if opinion.own is not None and opinion.said != (ALLOWED,):
            own = msgspec.json.encode(opinion.own, order="deterministic").decode()
        return PackedOpinion(
            opinion.before,
            self._number(opinion.place),
            self._number(opinion.who),
            self._number(", ".join(opinion.said)),
            tuple((self._number(key), value) for key, value in opinion.measured.items()),
            figures.shorten(own, _MOST),
        )

    def _number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))


_NONE: Mapping[str, str] = MappingProxyType({})


async def build(
    store: Store, run: str, upto: int | None, registry: Registry, pages: Mapping[str, str] = _NONE
) -> Report:
    """Build the data of a run's page, up to event `upto`. A damaged log is included up to the damage.

    `pages`: the files of other runs beside it, by run id. Raises `UnknownRun`.
    """
    verifier, rows, opinions = Verifier(run), PageRows(run, registry), _Opinions(run, registry)
    source = Records(store, run, upto, checked=False)
    await follow(source, verifier, rows, *opinions.followers, registry=registry)
    if isinstance(rows.problem, Inconclusive):
        raise rows.problem
    if verifier.result().damaged:  # like `show` and `audit`, use nothing after the first changed event
        opinions = _Opinions(run, registry)
        await follow(Records(store, run, upto), *opinions.followers, registry=registry)
    last = (await store.head(run)).seq if upto is not None else 0
    found, about, auditor, turns = rows.result(), opinions.summing.result(), opinions.auditor, opinions.turns
    judged = auditor.result()
    turns += opinions.teller.result()
    parent, children = await opinions.kin.of(store, about)
    places = TextPositions()
    shown = (places.row(each, found.said.get(each.seq)) for each in found.views.shown)
    return Report(
        refold=version("refold"),
        partial=upto is not None and upto < last,
        about=replace(about, parent=parent),
        figures=_figures(opinions.summing.state, about, turns, opinions.changes.result()),
        end=found.ended if found.ended <= about.events else 0,
        turns=PackedValues(turns),
        imported=found.imported,
        children=children,
        pages={run: pages[run] for run in _kin(about.forked_from, parent, children) if run in pages},
        checked=verifier.result(),
        judged=replace(
            judged, findings=_drop_states(judged.findings), unreplayable=_drop_states(judged.unreplayable)
        ),
        refused=str(auditor.problem) if isinstance(auditor.problem, Inconclusive) else "",
        events=found.events,
        calls=found.calls,
        records=found.records,
        derived=found.derived,
        shown=PackedValues(shown),
        words=found.packer.words,
        fields=dict(FIELDS),
        kinds={ev.kind_of(row.of): PageKind(row.type, row.texts, row.speaker, row.sign) for row in ROWS},
    )


class _Opinions:
    """Followers for the whole run: its summary, its audit, its turns and its children."""

    def __init__(self, run: str, registry: Registry) -> None:
        self.turns = list[TurnRow]()
        self.teller, self.kin = Teller(self.turns.append), Kin()
        self.auditor, self.changes = Auditor(run, registry), ChangeLog()
        self.summing = Summing(run, self.teller, excerpt=None)

    @property
    def followers(self) -> tuple[Follower[Any], ...]:
        return self.auditor, self.summing, self.changes, *self.kin.followers


def _kin(forked_from: str, parent: ev.Parent | None, children: Sequence[ChildRun]) -> list[str]:
    """Return the runs that a page links to."""
    return [forked_from, *([parent.run] if parent else []), *(child.run for child in children)]


class PageRows(Follower["PageRows"]):
    """The page's rows, one per event, and what was derived at each.

    Events that cannot be read or folded have a row, too.
    """

    folds = True

    def __init__(self, run: str, registry: Registry) -> None:
        self._run, self._registry = run, registry
        self.views, self.packer = Views(), Packer()
        self.imported: ev.SourceRecorded | None = None
        self.ended = 0
        self.said: dict[int, ev.Event] = {}
        self.events, self.records, self.derived, self.calls = (
            PackedValues(),
            PackedValues(),
            PackedValues(),
            PackedValues(),
        )
        self._damaged = False
        self._place = START
        self._turn = self._fact = 0

    def take(self, step: Step) -> None:
        """Add one event."""
        event, problem = _read_event(step)
        asked: tuple[PackedOpinion, ...] = ()
        if event is not None and not self._damaged:
            problem, asked = self._follow(step, event)
        self._damaged = self._damaged or bool(problem)
        if self._damaged:
            self.derived.append(PageDerivation({}, asked))
        else:
            rules = tuple(_describe_rules(step.after, event))
            self.derived.append(PageDerivation(state_changes(step.before, step.after), asked, rules))
        if isinstance(event, ev.ModelRequested):
            self._turn = event.step
        self._turn += isinstance(event, ev.InputReceived)  # an operator's message starts the next turn
        self._fact = step.stored.seq if isinstance(event, ev.Fact) else self._fact
        self.events.append(self._row(step.stored, event, problem))
        self.records.append(_record(step.stored))

    def result(self) -> "PageRows":
        """Return these rows."""
        return self

    def _follow(self, step: Step, event: ev.Event) -> tuple[str, tuple[PackedOpinion, ...]]:
        """Derive the data of an event.

        Return why it is invalid here ("" if valid), and the opinions, if it is a fact.
        """
        try:
            state = step.after
        except (Damaged, Inconclusive) as error:
            return str(error), ()
        seq = step.stored.seq
        if isinstance(event, ev.SourceRecorded) and self.imported is None:
            self.imported = replace(event, content=None)
        if _is_end(event):
            self.ended = seq
        if step.stored.content is not None:
            self.said[seq] = event
        if isinstance(event, ev.ModelRequested) and (call := self.views.take(state, self.said)) is not None:
            self.calls.append(call)
        return "", self._list_opinions(step.before, event) if isinstance(event, ev.Fact) else ()

    def _list_opinions(self, before: RunState, fact: ev.Fact) -> tuple[PackedOpinion, ...]:
        try:
            opinions, _ = asked(before, fact, self._registry, None)
        except RefoldError:  # reported by the audit
            return ()
        return tuple(map(self.packer.pack, opinions))

    def _row(self, stored: Stored, event: ev.Event | None, problem: str) -> PageEvent:
        return PageEvent(
            stored.seq,
            str(stored.at),
            stored.kind,
            "?" if event is None else side_of(event),
            self._turn,
            stored.seq if isinstance(event, ev.Annotation) else self._fact,
            "" if event is None else sentence(event),
            "" if stored.run == self._run else stored.run,
            problem,
            {} if event is None else self._select_fields(stored, event),
            event is not None and (kind_for(event).weight(event) == "routine" or self._is_derived(event)),
            stored.erased,
            event.request
            if isinstance(event, ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned)
            else 0,
        )

    def _is_derived(self, event: ev.Event) -> bool:
        """Return whether it is a state change between two facts of an imported run, which no agent made."""
        return self.imported is not None and isinstance(event, ev.StateChanged) and not event.target.terminal

    def _select_fields(self, stored: Stored, event: ev.Event) -> dict[str, Any]:
        self._place = advance_place(self._place, stored.at, event)
        row = msgspec.to_builtins(row_of(stored, event, self._place))
        return {name: value for name, value in row.items() if name not in _TOLD}


# Fields that an event's columns or its payload contain already.
_TOLD = frozenset({"run", "seq", "kind", "turn", "side", "text"})


def _describe_rules(state: RunState, event: ev.Event | None) -> Iterator[tuple[str, str]]:
    """Yield the calls of a response, with the rules that decided about them."""
    for call in event.calls if isinstance(event, ev.ModelResponded) else ():
        for rule in list_rules(state.guards, call.id):
            yield call.id, describe_rule(rule)


def _is_end(event: ev.Event) -> bool:
    """Return whether the run, or its source, ended at this event."""
    if isinstance(event, ev.SourceRecorded):
        return event.what.startswith(END)
    return isinstance(event, ev.StateChanged) and event.target.terminal


def _figures(
    state: RunState, about: RunSummary, turns: Sequence[TurnRow], changes: Sequence[Change]
) -> Figures:
    counter, stands = EffectCounter(), state.agent_state
    for turn in turns:
        counter.take(turn)
    return Figures(
        did=tally(turns),
        changes=counter.result(),
        touched=_shorten(summarize_changes(changes)),
        failed=sum(call.failed is True for turn in turns for call in turn.calls),
        who=tuple(about.environment.pairs()),
        cost=_cost(state),
        duration=figures.seconds(known.took(max(0, state.fact_at - about.started))),
        limit=figures.hit(about.limit) if about.limit else "",
        unmarked=figures.unmarked(about.unmarked),
        tone="good" if stands.succeeded else "bad" if stands.terminal else "warn",
    )


def _shorten(touched: ChangeSummary) -> ChangeSummary:
    first = touched.first
    if first is None:
        return touched
    short = replace(
        first, target=figures.shorten(first.target, _CHANGE), command=figures.shorten(first.command, _CHANGE)
    )
    return replace(touched, first=short)


def _read_event(step: Step) -> tuple[ev.Event | None, str]:
    try:
        return step.event, ""
    except (Damaged, Inconclusive) as error:
        return None, str(error)


def _record(stored: Stored) -> PageRecord:
    return PageRecord(
        _text(stored.body),
        None if stored.content is None else _text(stored.content),
        stored.salt.hex(),
        stored.hash.hex(),
        None if stored.content_digest is None else stored.content_digest.hex(),
    )


def _text(data: bytes) -> str | Bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Bytes(base64.b64encode(data).decode())


def _drop_states(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(replace(each, state="") for each in findings)


def _cost(state: RunState) -> str:
    cost = known.cost(state.spent)
    if cost is None:
        return "unknown"
    return figures.dollars(cost) + (" and more" if state.spent.unpriced else "")
