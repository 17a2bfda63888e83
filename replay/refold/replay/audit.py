"""`audit`: do the decisions follow from the facts under the recorded policy?

Each fact is read from the log, its decisions are derived again, encoded, and compared with the bytes that
follow it there: a decision is read only where its bytes differ, and then its values count, for they may be
written in more than one way. The log is the authority: after a difference the audit goes on from what was
recorded.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers import events as ev
from refold.reducers.errors import CannotJudge, Damaged, DamagedLog, RefoldError
from refold.reducers.estimate import MissingTokenizer
from refold.reducers.evolution import encode_value, evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import is_skipped
from refold.reducers.rules import rules_of
from refold.reducers.sizes import misfit
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.replay.parting import DecisionDifference, Parting, parting, unjudged
from refold.replay.reader import Follower, Step, event_of, follow, stored_events
from refold.store.protocol import Store, Stored

Derived = Sequence[tuple[ev.Decision, RunState]]
"""What follows from a fact: each decision, with the state after it."""

MOST = 100
"""How many differences are kept, and as many groups that cannot be judged; further ones are counted."""

_FACTS = frozenset(map(ev.kind_of, ev.FACTS))
_DECISIONS = frozenset(map(ev.kind_of, ev.DECISIONS))

_STATES = 2**24
"""Bytes of states that are kept beside them: of a window that nothing prunes a single one may be megabytes.
"""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One difference, at event `seq`: where the log has another decision, or none, than follows from its
    facts.

    `fact` is the event that decided. `recorded` and `derived` are JSON text, None where that side has
    nothing; `fields` names what differs: `at` alone is the instant in the header, and the texts are the
    headers. `state` is the state before it, JSON text; "" after the first few megabytes of them.
    """

    seq: int
    difference: DecisionDifference
    fact: int
    kind: str
    recorded: str | None
    derived: str | None
    fields: tuple[str, ...] = ()
    state: str = ""
    why: str = ""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What was re-derived, and what was found.

    `differences` counts all of them, `findings` has the first. `unreplayable` are the first groups in which a
    guard could not be asked again, `unjudged` counts all, `blind` names such guards and why, `unasked` counts
    the groups without a word of theirs, which may lack one; `damaged` is set when the log itself could not be
    followed to its end. `imported`: its decisions were derived when a transcript was imported, and no agent
    was ever held to them.
    """

    run: str
    rules: int
    events: int
    facts: int
    decisions: int
    differences: int
    findings: tuple[Finding, ...]
    unreplayable: tuple[Finding, ...]
    agent_state: str
    unjudged: int = 0
    unasked: int = 0
    blind: tuple[str, ...] = ()
    damaged: str = ""
    imported: bool = False

    @property
    def clean(self) -> bool:
        """Whether every recorded decision was derived again, every derived one is recorded, and each guard
        could be asked.
        """
        return not (self.differences or self.unreplayable or self.unasked or self.damaged)


async def audit(store: Store, run: str, registry: Registry = BUILTIN) -> Audit:
    """Derive every decision of a run again.

    Raises `UnknownRun`, and `NewerLog` for rules that are not known here.
    """
    auditor = Auditor(run, registry)
    await follow(stored_events(store, run), auditor)
    if auditor.problem is None:
        try:
            await store.check()
        except Damaged as error:
            auditor.problem = error
    if isinstance(auditor.problem, CannotJudge):
        raise auditor.problem
    return auditor.result()


class Auditor(Follower[Audit]):
    """Derives what should follow each fact, and keeps what differs.

    Its states are its own: what it judges is no evidence.
    """

    def __init__(self, run: str, registry: Registry = BUILTIN) -> None:
        self._run, self._registry = run, registry
        self._state: RunState = NEW
        self._fact: ev.Fact | None = None
        self._seq = self._fact_seq = 0
        self._group: list[Stored] = []
        self._facts = self._decisions = self._differences = self._unjudged = self._unasked = 0
        self._room = _STATES
        self._findings: list[Finding] = []
        self._unreplayable: list[Finding] = []

    def take(self, step: Step) -> None:
        """Take one event.

        Raises `DamagedLog` where it cannot be read or cannot stand, `NewerLog` for what is not known.
        """
        stored = step.stored
        if stored.seq != self._seq + 1:
            raise DamagedLog(self._run, stored.seq, f"event {self._seq + 1} is missing before it")
        self._seq = stored.seq
        if stored.kind in _DECISIONS:
            if self._fact is None:
                raise DamagedLog(self._run, stored.seq, f"a {stored.kind} that follows no fact")
            self._group.append(stored)
            return
        self.end()
        # A fact is measured by its words; those of an annotation mean nothing here.
        event = step.event if stored.kind in _FACTS else step.bare
        if isinstance(event, ev.Fact) and (problem := misfit(self._state, event)):
            raise DamagedLog(self._run, stored.seq, problem)
        self._state = self._evolved(self._state, stored.seq, event)
        if isinstance(event, ev.Fact):
            self._fact, self._fact_seq = event, stored.seq
            self._facts += 1

    def end(self) -> None:
        """Compare what follows the last fact. Raises as `take`."""
        if self._fact is None:
            return
        fact, group, before = self._fact, self._group, self._state
        self._fact, self._group = None, []
        derived = self._derived(before, fact)
        agreed = _written_so(derived, group, before.at) or self._agreed(before, group, derived)
        self._decisions += len(group)
        if agreed:
            self._unasked += not before.ended and any(map(is_skipped, before.guards))
            self._state = derived[-1][1] if derived else before

    def _end_early(self) -> None:
        """Compare the decisions between the last fact and the damage: they agree if what should follow starts
        with them.
        """
        fact, group = self._fact, self._group
        self._fact, self._group = None, []
        if fact is None or not group:
            return
        with suppress(RefoldError):  # where nothing can be derived, the audit ends at the fact
            derived = self._derived(self._state, fact)[: len(group)]
            if _written_so(derived, group, self._state.at):
                self._decisions += len(group)
                self._state = derived[-1][1]

    @property
    def policy(self) -> str:
        """Hex SHA-256 of the policy that is in force now."""
        return hashlib.sha256(encode_value(self._state.policy)).hexdigest()

    def result(self) -> Audit:
        """What was found so far."""
        if isinstance(self.problem, Damaged):
            self._end_early()
        return Audit(
            run=self._run,
            rules=self._state.setup.rules,
            events=self._state.seq,
            facts=self._facts,
            decisions=self._decisions,
            differences=self._differences,
            findings=tuple(self._findings),
            unreplayable=tuple(self._unreplayable),
            agent_state=str(self._state.agent_state),
            unjudged=self._unjudged,
            unasked=self._unasked,
            blind=tuple(f"{watch.name}: {watch.blind}" for watch in self._state.guards if watch.blind),
            damaged=str(self.problem) if isinstance(self.problem, Damaged) else "",
            imported=SOURCE_LABEL in self._state.setup.labels,
        )

    def _evolved(self, state: RunState, seq: int, event: ev.Event) -> RunState:
        try:
            return evolve(state, event, self._registry)
        except RefoldError as error:
            raise DamagedLog(self._run, seq, str(error)) from error

    def _derived(self, state: RunState, fact: ev.Fact) -> Derived:
        decide = rules_of(state)
        try:
            return decide(state, fact)
        except MissingTokenizer:
            raise
        except RefoldError as error:
            raise DamagedLog(
                self._run, self._fact_seq, f"nothing can be decided after it: {error}"
            ) from error

    def _agreed(self, before: RunState, group: Sequence[Stored], derived: Derived) -> bool:
        """Whether these records, whose bytes are others, say what is derived; if not, it is kept, and they
        are believed.
        """
        recorded = list(map(_decision_of, group))
        displaced = [stored for stored in group if stored.at != before.at]
        found = parting(before, recorded, [decision for decision, _ in derived])
        if found is not None:
            self._part(before, recorded, derived, found)
        elif displaced:
            self._displaced(before, displaced[0])
        else:
            return True
        # The finding comes first: what was recorded may be such that nothing can follow it.
        for place, decision in enumerate(recorded):
            self._state = self._evolved(self._state, self._fact_seq + 1 + place, decision)
        return False

    def _displaced(self, before: RunState, stored: Stored) -> None:
        header = {"kind": stored.kind, "at": stored.at}
        finding = Finding(
            seq=stored.seq,
            difference=DecisionDifference.CHANGED,
            fact=self._fact_seq,
            kind=stored.kind,
            recorded=encode_value(header).decode(),
            derived=encode_value({**header, "at": before.at}).decode(),
            fields=("at",),
            why="a decision is made in the instant of its fact, and its header has another",
        )
        self._differences += 1
        self._keep(self._findings, finding, before)

    def _part(self, before: RunState, group: Sequence[ev.Decision], derived: Derived, found: Parting) -> None:
        finding = Finding(
            seq=self._fact_seq + 1 + found.place,
            difference=found.difference,
            fact=self._fact_seq,
            kind=found.kind,
            recorded=_text(found.recorded),
            derived=_text(found.derived),
            fields=found.fields,
        )
        state = derived[found.place - 1][1] if found.place else before
        if unjudged(before, (*group, *(decision for decision, _ in derived))):
            why = "; ".join(f"guard {watch.name}: {watch.blind}" for watch in before.guards if watch.blind)
            unknown = replace(finding, difference=DecisionDifference.UNREPLAYABLE, why=why)
            self._unjudged += 1
            self._keep(self._unreplayable, unknown, state)
            return
        self._differences += 1
        self._keep(self._findings, finding, state)

    def _keep(self, findings: list[Finding], finding: Finding, state: RunState) -> None:
        """Keep one finding more, with its state, while there is room for them.

        The first always has its state.
        """
        if len(findings) >= MOST:
            return
        text = encode_value(state).decode() if self._room > 0 or not findings else ""
        self._room -= len(text)
        findings.append(replace(finding, state=text))


def _written_so(derived: Derived, group: Sequence[Stored], at: int) -> bool:
    """Whether these records are what is derived, to the byte, and of this instant."""
    if len(derived) != len(group):
        return False
    for (decision, _), stored in zip(derived, group, strict=True):
        wanted = codec.encode(decision)
        if stored.body != wanted.body or stored.content != wanted.content:
            return False
        if stored.kind != wanted.kind or stored.at != at:
            return False
    return True


def _decision_of(stored: Stored) -> ev.Decision:
    event = event_of(stored)
    assert isinstance(event, ev.Decision), (
        stored.kind
    )  # its kind says so, and its body is tagged as this kind
    return event


def _text(decision: ev.Decision | None) -> str | None:
    return None if decision is None else encode_value(decision).decode()
