"""`audit`: do the decisions follow from the facts under the recorded policy?

Each fact is taken from the log, its decisions are derived again, and compared with those that follow it there.
The log is the authority: after a difference the audit goes on from what was recorded.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum, unique

import msgspec
from msgspec.structs import replace

from refold.reducers.checkpoint import encoded
from refold.reducers.errors import Damaged, DamagedLog, RefoldError
from refold.reducers.events import (
    KINDS,
    Annotation,
    ApprovalRequested,
    CallRefused,
    Decision,
    Event,
    Fact,
    GuardTripped,
    MessageInjected,
    MessageTrimmed,
    ModelRequested,
    PolicyAmended,
    RunForked,
    SourceRecorded,
    StateDigested,
    kind_of,
)
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.approvals import Approval
from refold.reducers.rewording import reworded
from refold.reducers.rules import rules_of
from refold.reducers.sizing import misfit
from refold.reducers.state import NEW, RunState
from refold.reducers.window import refs
from refold.replay.reading import event_of, stored_events
from refold.store.protocol import Store

MOST = 100
"""How many differences are kept, and as many groups that cannot be judged; further ones are counted."""

_STATES = 2**24
"""Bytes of states that are kept beside them: of a window that nothing prunes a single one may be megabytes."""


@unique
class Difference(StrEnum):
    """How a recorded decision and the derived one part."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"
    REORDERED = "reordered"
    UNREPLAYABLE = "unreplayable"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One difference, at event `seq`: where the log has another decision, or none, than follows from its facts.

    `fact` is the event that decided. `recorded` and `derived` are JSON text, None where that side has nothing;
    `fields` names what differs. `state` is the state before it, JSON text; "" after the first few megabytes of them.
    """

    seq: int
    difference: Difference
    fact: int
    kind: str
    recorded: str | None
    derived: str | None
    fields: tuple[str, ...] = ()
    state: str = ""
    why: str = ""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What was re-derived, and what was found.

    `differences` counts all of them, `findings` has the first. `unreplayable` are the first groups in which a guard
    could not be asked again, or a request shows words that no digest covers, `unjudged` counts all, `blind` names such
    guards and why; `damaged` is set when the log itself could not be followed to its end. `imported`: its decisions
    were derived when a transcript was imported, and no agent was ever held to them.
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
    blind: tuple[str, ...] = ()
    damaged: str = ""
    imported: bool = False

    @property
    def clean(self) -> bool:
        """Whether every recorded decision was derived again, and every derived one is recorded."""
        return not self.differences and not self.unreplayable and not self.damaged


async def audit(store: Store, run: str, registry: Registry = BUILTIN) -> Audit:
    """Derive every decision of a run again. Raises `UnknownRun`, and `NewerLog` for rules that are not known here."""
    auditor = Auditor(run, registry)
    try:
        async for stored in stored_events(store, run):
            auditor.take(stored.seq, event_of(stored))
        auditor.finish()
        await store.check()
    except Damaged as error:
        return auditor.result(damaged=str(error))
    return auditor.result()


def reads_content(kind: str) -> bool:
    """Whether an audit reads what an event of this kind says: a decision is compared with its words, a fact measured by them."""
    event = KINDS.get(kind)
    return event is None or not issubclass(event, Annotation)


class Auditor:
    """Takes a run's events in order, derives what should follow each fact, and keeps what differs."""

    def __init__(self, run: str, registry: Registry = BUILTIN) -> None:
        self._run, self._registry = run, registry
        self._state: RunState = NEW
        self._fact: Fact | None = None
        self._fact_seq = 0
        self._group: list[Decision] = []
        self._facts = self._decisions = self._differences = self._unjudged = 0
        self._room = _STATES
        self._imported = False
        self._reworded: dict[int, tuple[str, ...]] = {}  # messages whose words no digest covers any more
        self._findings: list[Finding] = []
        self._unreplayable: list[Finding] = []

    def take(self, seq: int, event: Event) -> None:
        """Take one event. Raises `DamagedLog` where it cannot stand, `NewerLog` for rules that are not known."""
        if isinstance(event, Decision):
            if self._fact is None:
                raise DamagedLog(self._run, seq, f"a {kind_of(event)} that follows no fact")
            self._group.append(event)
            return
        self.finish()
        if isinstance(event, Fact) and (problem := misfit(self._state, event)):
            raise DamagedLog(self._run, seq, problem)
        if isinstance(event, RunForked | PolicyAmended):
            self._reworded |= reworded(self._state, event.policy)
        self._state = self._evolved(self._state, seq, event)
        self._fact, self._fact_seq = (event, seq) if isinstance(event, Fact) else (None, seq)
        self._facts += self._fact is not None
        self._imported = self._imported or isinstance(event, SourceRecorded)

    def finish(self) -> None:
        """The log ends here: compare what follows the last fact."""
        if self._fact is None:
            return
        fact, group, before = self._fact, self._group, self._state
        self._fact, self._group = None, []
        self._decisions += len(group)
        derived = self._derived(before, fact)
        if same(before, group, [decision for decision, _ in derived]):
            self._state = derived[-1][1] if derived else before
            if self._reworded:
                self._look_at_words(before, derived)
            return
        # The finding comes first: what was recorded may be such that nothing can follow it.
        self._part(before, group, derived)
        for place, decision in enumerate(group):
            self._state = self._evolved(self._state, self._fact_seq + 1 + place, decision)

    @property
    def policy(self) -> str:
        """Hex SHA-256 of the policy that is in force now."""
        return hashlib.sha256(encoded(self._state.policy)).hexdigest()

    def result(self, damaged: str = "") -> Audit:
        """What was found so far."""
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
            blind=tuple(f"{watch.name}: {watch.blind}" for watch in self._state.guards if watch.blind),
            damaged=damaged,
            imported=self._imported,
        )

    def _evolved(self, state: RunState, seq: int, event: Event) -> RunState:
        if seq != state.seq + 1:
            raise DamagedLog(self._run, seq, f"event {state.seq + 1} is missing before it")
        try:
            return evolve(state, event, self._registry)
        except RefoldError as error:
            raise DamagedLog(self._run, seq, str(error)) from error

    def _derived(self, state: RunState, fact: Fact) -> list[tuple[Decision, RunState]]:
        decide = rules_of(state)
        try:
            return list(decide(state, fact))
        except RefoldError as error:
            raise DamagedLog(
                self._run, self._fact_seq, f"nothing can be decided after it: {error}"
            ) from error

    def _part(
        self, before: RunState, group: list[Decision], derived: list[tuple[Decision, RunState]]
    ) -> None:
        decisions = [decision for decision, _ in derived]
        place, difference = parting(before, group, decisions)
        seq = self._fact_seq + 1 + place
        recorded = group[place] if place < len(group) and difference is not Difference.MISSING else None
        expected = decisions[place] if place < len(decisions) and difference is not Difference.EXTRA else None
        blind = {watch.name for watch in before.guards if watch.blind}
        finding = Finding(
            seq=seq,
            difference=difference,
            fact=self._fact_seq,
            kind=kind_of(recorded or expected or group[place]),
            recorded=_text(recorded),
            derived=_text(expected),
            fields=_fields(recorded, expected),
        )
        state = derived[place - 1][1] if place else before
        if blind and any(blind & _guards_of(decision) for decision in (*group, *decisions)):
            why = "; ".join(f"guard {watch.name}: {watch.blind}" for watch in before.guards if watch.blind)
            unknown = replace(finding, difference=Difference.UNREPLAYABLE, why=why)
            self._unjudged += 1
            self._keep(self._unreplayable, unknown, state)
            return
        self._differences += 1
        self._keep(self._findings, finding, state)

    def _look_at_words(self, before: RunState, derived: list[tuple[Decision, RunState]]) -> None:
        """A request that shows messages which a fork or an amendment re-worded: its digest says nothing of their words."""
        for place, (decision, state) in enumerate(derived):
            if isinstance(decision, ModelRequested):
                shown = self._reworded.keys() & {ref.number for ref in refs(state.window)}
                if shown:
                    self._unjudged += 1
                    self._keep(self._unreplayable, self._unworded(decision, place, min(shown)), before)

    def _unworded(self, decision: Decision, place: int, message: int) -> Finding:
        texts = ", ".join(self._reworded[message])
        return Finding(
            seq=self._fact_seq + 1 + place,
            difference=Difference.UNREPLAYABLE,
            fact=self._fact_seq,
            kind=kind_of(decision),
            recorded=_text(decision),
            derived=_text(decision),
            why=f"message {message} is shown in other words ({texts}) than when it was shortened: no digest covers them",
        )

    def _keep(self, findings: list[Finding], finding: Finding, state: RunState) -> None:
        """Keep one finding more, with its state, while there is room for them. The first always has its state."""
        if len(findings) >= MOST:
            return
        text = encoded(state).decode() if self._room > 0 or not findings else ""
        self._room -= len(text)
        findings.append(replace(finding, state=text))


def same(state: RunState, recorded: Sequence[Decision], derived: Sequence[Decision]) -> bool:
    """Whether the decisions agree. A guard that is blind has no digest here, and none is asked for."""
    if len(recorded) != len(derived):
        return False
    return all(_agree(state, one, other) for one, other in zip(recorded, derived, strict=True))


def parting(
    state: RunState, recorded: Sequence[Decision], derived: Sequence[Decision]
) -> tuple[int, Difference]:
    """The first place at which the two lists differ, and how they do."""
    place = 0
    while place < min(len(recorded), len(derived)) and _agree(state, recorded[place], derived[place]):
        place += 1
    if place == len(recorded):
        return place, Difference.MISSING
    if place == len(derived):
        return place, Difference.EXTRA
    left, right = list(map(encoded, recorded[place:])), list(map(encoded, derived[place:]))
    if sorted(left) == sorted(right):
        return place, Difference.REORDERED
    if left[0] in right[1:] and right[0] not in left:
        return place, Difference.MISSING
    if right[0] in left[1:] and left[0] not in right:
        return place, Difference.EXTRA
    return place, Difference.CHANGED


def _agree(state: RunState, recorded: Decision, derived: Decision) -> bool:
    if recorded == derived:
        return True
    if isinstance(recorded, StateDigested) and isinstance(derived, StateDigested):
        blind = {watch.name for watch in state.guards if watch.blind}
        guards = {name: digest for name, digest in recorded.guards.items() if name not in blind}
        return recorded.state == derived.state and guards == derived.guards
    # The harness's own words, erased: the body, which has their sizes, must still agree.
    erased = getattr(recorded, "content", 0) is None and getattr(derived, "content", None) is not None
    return erased and type(recorded) is type(derived) and recorded == replace(derived, content=None)


def _guards_of(decision: Decision) -> set[str]:
    """The guards without whom a decision would be another, or would not be there."""
    match decision:
        case GuardTripped(guard=guard) | CallRefused(guard=guard):
            return {guard}
        case MessageInjected(cause=guard) | MessageTrimmed(name=guard):
            return {guard}
        case ModelRequested(request_only=texts):
            return {text.cause for text in texts}
        case ApprovalRequested():
            return {Approval.kind}
        case _:
            return set()


def _text(decision: Decision | None) -> str | None:
    return None if decision is None else encoded(decision).decode()


def _fields(recorded: Decision | None, derived: Decision | None) -> tuple[str, ...]:
    if recorded is None or derived is None or type(recorded) is not type(derived):
        return ()
    names = recorded.__struct_fields__
    return tuple(name for name in names if getattr(recorded, name) != getattr(derived, name))
