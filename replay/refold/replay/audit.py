"""`audit`: check that the decisions follow from the facts under the recorded policy.

For each fact, the decisions are derived again, encoded, and compared with the recorded bytes. A recorded
decision is decoded only if its bytes differ; then its values count, because they can be encoded in more than
one way. The log is authoritative: after a difference, the audit continues from the recorded decisions.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers import events as ev
from refold.reducers.errors import Damaged, DamagedLog, Inconclusive, RefoldError
from refold.reducers.estimate import MissingTokenizer
from refold.reducers.evolution import encode_value, evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import is_skipped
from refold.reducers.rules import rules_of
from refold.reducers.sizes import misfit
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.replay.parting import (
    DecisionDifference,
    DecisionDivergence,
    depends_on_unavailable,
    find_divergence,
)
from refold.replay.reader import Follower, Step, event_of, follow, stored_events
from refold.store.protocol import Store, Stored

Derived = Sequence[tuple[ev.Decision, RunState]]
"""Decisions that follow from a fact, each with the state after it."""

MOST = 100
"""Maximum number of differences kept, and of inconclusive groups; further ones are counted."""

_FACTS = frozenset(map(ev.kind_of, ev.FACTS))
_DECISIONS = frozenset(map(ev.kind_of, ev.DECISIONS))

_STATES = 2**24
"""Maximum bytes of states kept with the findings: the state of an unpruned window may have megabytes."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A difference at event `seq`: a decision in the log that is missing or different from the derived one.

    `fact` is the event on which it was decided. `recorded` and `derived` are JSON text, None if that side has
    no decision. `fields` names what differs: if it is only `at`, the time in the header differs, and the
    texts are the headers. `state` is the preceding state as JSON text; "" after the first few megabytes of
    states.
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
    """Result of an audit.

    `differences` counts all of them, `findings` has the first. `unreplayable` lists the first groups in which
    a guard was unavailable, `unjudged` counts all, and `blind` names these guards and why. `unasked` counts
    the groups without a decision by such a guard, which may lack one. `damaged` is set if the log could not
    be read to its end. `imported`: the decisions were derived at import, not made by a live agent.
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
        """Whether all decisions, recorded and derived, are the same, and every guard was available."""
        return not (self.differences or self.unreplayable or self.unasked or self.damaged)


async def audit(store: Store, run: str, registry: Registry = BUILTIN) -> Audit:
    """Derive every decision of a run again. Raises `UnknownRun`, and `NewerLog` for unknown rules."""
    auditor = Auditor(run, registry)
    await follow(stored_events(store, run), auditor)
    if auditor.problem is None:
        try:
            await store.check()
        except Damaged as error:
            auditor.problem = error
    if isinstance(auditor.problem, Inconclusive):
        raise auditor.problem
    return auditor.result()


class Auditor(Follower[Audit]):
    """Derives the decisions on each fact, and collects differences. Its states do not verify the log."""

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
        """Take one event. Raises `DamagedLog` if it is unreadable or invalid here, `NewerLog` if unknown."""
        stored = step.stored
        if stored.seq != self._seq + 1:
            raise DamagedLog(self._run, stored.seq, f"event {self._seq + 1} is missing before it")
        self._seq = stored.seq
        if stored.kind in _DECISIONS:
            if self._fact is None:
                raise DamagedLog(self._run, stored.seq, f"a {stored.kind} without a fact before it")
            self._group.append(stored)
            return
        self.end()
        # Sizes of a fact are computed from its payload; payloads of annotations are irrelevant here.
        event = step.event if stored.kind in _FACTS else step.bare
        if isinstance(event, ev.Fact) and (problem := misfit(self._state, event)):
            raise DamagedLog(self._run, stored.seq, problem)
        self._state = self._evolve(self._state, stored.seq, event)
        if isinstance(event, ev.Fact):
            self._fact, self._fact_seq = event, stored.seq
            self._facts += 1

    def end(self) -> None:
        """Compare the decisions on the last fact. Raises as `take`."""
        if self._fact is None:
            return
        fact, group, before = self._fact, self._group, self._state
        self._fact, self._group = None, []
        derived = self._derive(before, fact)
        agreed = _matches_derived(derived, group, before.at) or self._compare(before, group, derived)
        self._decisions += len(group)
        if agreed:
            self._unasked += not before.ended and any(map(is_skipped, before.guards))
            self._state = derived[-1][1] if derived else before

    def _end_early(self) -> None:
        """Compare the decisions between the last fact and the damage.

        They agree if the derived decisions start with them.
        """
        fact, group = self._fact, self._group
        self._fact, self._group = None, []
        if fact is None or not group:
            return
        with suppress(RefoldError):  # if nothing can be derived, the audit ends at the fact
            derived = self._derive(self._state, fact)[: len(group)]
            if _matches_derived(derived, group, self._state.at):
                self._decisions += len(group)
                self._state = derived[-1][1]

    @property
    def policy(self) -> str:
        """Hex SHA-256 of the policy currently in force."""
        return hashlib.sha256(encode_value(self._state.policy)).hexdigest()

    def result(self) -> Audit:
        """Return the result for the events taken."""
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

    def _evolve(self, state: RunState, seq: int, event: ev.Event) -> RunState:
        try:
            return evolve(state, event, self._registry)
        except RefoldError as error:
            raise DamagedLog(self._run, seq, str(error)) from error

    def _derive(self, state: RunState, fact: ev.Fact) -> Derived:
        decide = rules_of(state)
        try:
            return decide(state, fact)
        except MissingTokenizer:
            raise
        except RefoldError as error:
            raise DamagedLog(
                self._run, self._fact_seq, f"no decision can be derived after it: {error}"
            ) from error

    def _compare(self, before: RunState, group: Sequence[Stored], derived: Derived) -> bool:
        """Return whether these records, whose bytes differ, have the derived values.

        If not, the difference is added, and the recorded values are used from here on.
        """
        recorded = list(map(_decision_of, group))
        displaced = [stored for stored in group if stored.at != before.at]
        found = find_divergence(before, recorded, [decision for decision, _ in derived])
        if found is not None:
            self._add_difference(before, recorded, derived, found)
        elif displaced:
            self._add_time_difference(before, displaced[0])
        else:
            return True
        # Add the finding first: it may be impossible to fold the recorded decisions.
        for place, decision in enumerate(recorded):
            self._state = self._evolve(self._state, self._fact_seq + 1 + place, decision)
        return False

    def _add_time_difference(self, before: RunState, stored: Stored) -> None:
        header = {"kind": stored.kind, "at": stored.at}
        finding = Finding(
            seq=stored.seq,
            difference=DecisionDifference.CHANGED,
            fact=self._fact_seq,
            kind=stored.kind,
            recorded=encode_value(header).decode(),
            derived=encode_value({**header, "at": before.at}).decode(),
            fields=("at",),
            why="a decision has the time of its fact, but its header has another time",
        )
        self._differences += 1
        self._add(self._findings, finding, before)

    def _add_difference(
        self, before: RunState, group: Sequence[ev.Decision], derived: Derived, found: DecisionDivergence
    ) -> None:
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
        if depends_on_unavailable(before, (*group, *(decision for decision, _ in derived))):
            why = "; ".join(f"guard {watch.name}: {watch.blind}" for watch in before.guards if watch.blind)
            unknown = replace(finding, difference=DecisionDifference.UNREPLAYABLE, why=why)
            self._unjudged += 1
            self._add(self._unreplayable, unknown, state)
            return
        self._differences += 1
        self._add(self._findings, finding, state)

    def _add(self, findings: list[Finding], finding: Finding, state: RunState) -> None:
        """Add a finding, with its state while there is room. The first finding always has its state."""
        if len(findings) >= MOST:
            return
        text = encode_value(state).decode() if self._room > 0 or not findings else ""
        self._room -= len(text)
        findings.append(replace(finding, state=text))


def _matches_derived(derived: Derived, group: Sequence[Stored], at: int) -> bool:
    """Return whether these records equal the derived ones in bytes and time."""
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
    )  # the kind is a decision, and so is the tag in its body
    return event


def _text(decision: ev.Decision | None) -> str | None:
    return None if decision is None else encode_value(decision).decode()
