"""A log derived from some of the facts of another log, and the property that it is to show.

A fact that the new log does not wait for (such as the result of a call that is not made) is left out.
References of a fact to other events are corrected: the request that it answers, the event at which a fork
begins, the messages that it keeps.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers import events as ev
from refold.reducers.effects import doubtful
from refold.reducers.errors import RefoldError
from refold.reducers.estimate import MissingTokenizer
from refold.reducers.evolution import evolve
from refold.reducers.folds import awaited
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.pending import asks_anew, left_open, underway
from refold.reducers.rules import rules_of
from refold.reducers.sizes import sized
from refold.reducers.state import NEW, Pending, RunState
from refold.reducers.window import ranges_of
from refold.replay.parting import (
    DecisionDifference,
    DecisionDivergence,
    depends_on_unavailable,
    find_divergence,
)
from refold.store.protocol import Head, Record, Store


class SaltedFact(NamedTuple):
    """A fact with the salt of its payload, and its index among the facts of the source log."""

    place: int
    fact: ev.Fact
    salt: bytes


class WrittenEvent(NamedTuple):
    """An event of a log, its time and its salt."""

    event: ev.Event
    at: int
    salt: bytes


class Twist(Protocol):
    """A difference to keep: it changes the decisions on one fact from those that follow."""

    @property
    def place(self) -> int:
        """Index of that fact."""
        ...

    def apply(self, decisions: Sequence[ev.Decision]) -> list[ev.Decision]:
        """Return the decisions to record in place of these."""
        ...


class ShrinkSource(NamedTuple):
    """Origin of a message, independent of its number: the `nth` (from 0) of this event kind on a fact."""

    place: int
    kind: str
    nth: int


class Log(NamedTuple):
    """A log: the facts that it is derived from, its events, and the origins of its messages, in order."""

    told: tuple[SaltedFact, ...]
    events: tuple[WrittenEvent, ...]
    origins: tuple[ShrinkSource, ...] = ()

    def states(self, registry: Registry = BUILTIN) -> Iterator[RunState]:
        """Yield the state after each event. Raises as `evolve` if a twist makes the log invalid."""
        state = NEW
        for each in self.events:
            state = evolve(state, each.event, registry)
            yield state


def rederive(
    told: Iterable[SaltedFact],
    registry: Registry = BUILTIN,
    twist: Twist | None = None,
    whole: Log | None = None,
) -> Log:
    """Derive the log of these facts, in their order; facts that do not fit are left out.

    `whole` is the log of all the facts of which these are a part: message numbers in facts refer to it. None:
    these are all of the facts.
    """
    state, kept, events, origins = NEW, list[SaltedFact](), list[WrittenEvent](), list[ShrinkSource]()
    for each in told:
        if state.ended:
            break
        fact = _fit(state, each.fact)
        if isinstance(fact, ev.ContextObserved) and whole is not None:
            fact = _renumber(fact, each.place, whole.origins, origins)
        if fact is None:
            continue
        twisted = twist if twist is not None and twist.place == each.place else None
        try:
            steps, stands = _derive_steps(state, fact, registry, twisted)
        except MissingTokenizer:
            raise
        except RefoldError:
            continue
        kept.append(each)
        state = steps[-1].after
        events += [
            WrittenEvent(step.event, state.at, each.salt if step.event is fact else b"") for step in steps
        ]
        origins += _origins(each.place, len(origins), steps)
        if not stands:  # nothing can follow a decision that cannot be folded
            break
    return Log(tuple(kept), tuple(events), tuple(origins))


class _RecordedStep(NamedTuple):
    event: ev.Event
    after: RunState


def _derive_steps(
    before: RunState, fact: ev.Fact, registry: Registry, twist: Twist | None
) -> tuple[list[_RecordedStep], bool]:
    """Return a fact and its decisions with the state after each, and whether all of them can be folded.

    Raises as `evolve`.
    """
    state = evolve(before, fact, registry)
    steps, stands = [_RecordedStep(fact, state)], True
    decided = rules_of(state)(state, fact)
    if twist is None:
        return [*steps, *(_RecordedStep(*each) for each in decided)], stands
    for decision in twist.apply([decision for decision, _ in decided]):
        try:
            state = evolve(state, decision, registry) if stands else state
        except RefoldError:
            stands = False
        steps.append(_RecordedStep(decision, state))
    return steps, stands


def _origins(place: int, messages: int, steps: Iterable[_RecordedStep]) -> Iterator[ShrinkSource]:
    """Yield the origins of the messages that these steps added after the first `messages`."""
    made = Counter[str]()
    for event, after in steps:
        kind = ev.kind_of(event)
        for _ in range(messages, after.messages):
            yield ShrinkSource(place, kind, made[kind])
            made[kind] += 1
        messages = max(messages, after.messages)


def _renumber(
    fact: ev.ContextObserved, place: int, before: Sequence[ShrinkSource], now: Sequence[ShrinkSource]
) -> ev.ContextObserved:
    """Return the fact with the current numbers of its messages. `before` are the origins in the source log.

    Kept messages may be missing here. A message that the source log did not have at that place was never
    dropped, so it stays. A message inserted after a missing one is inserted after the one before it.
    """
    if [*before[: len(now)]] == [*now]:
        return fact
    own = [ShrinkSource(place, ev.kind_of(fact), nth) for nth in range(len(fact.messages))]
    numbers = {origin: number for number, origin in enumerate([*now, *own], 1)}
    behind = [0]
    for origin in before:
        behind.append(numbers.get(origin, behind[-1]))
    after = tuple(behind[min(number, len(before))] for number in fact.after)
    if fact.kept is None:
        return replace(fact, after=after)
    stayed = {
        before[number - 1]
        for first, last in fact.kept
        for number in range(max(first, 1), min(last, len(before)) + 1)
    }
    known = set(before)
    kept = ranges_of(
        number for number, origin in enumerate(now, 1) if origin in stayed or origin not in known
    )
    return replace(fact, after=after, kept=kept)


def _seq_of(pending: Pending[Any] | None) -> int:
    return pending.seq if pending else 0


def _fit(state: RunState, fact: ev.Fact) -> ev.Fact | None:
    """Return the fact adjusted to this state; None if the state does not wait for it."""
    fact = replace(fact, at=max(fact.at, state.at))
    match fact:
        case ev.ModelResponded():
            fact = replace(fact, request=_seq_of(state.request))
        case ev.SummaryReturned():
            fact = replace(fact, request=_seq_of(state.summary))
        case ev.ModelFailed():
            fact = replace(fact, request=_seq_of(state.request or state.summary))
        case ev.RunForked():
            fact = _fit_fork(state, fact)
        case ev.RunResumed(downtime=downtime):
            return replace(fact, in_doubt=doubtful(state), downtime=min(downtime, fact.at - state.at))
        case _:
            pass
    results = (ev.ModelResponded, ev.SummaryReturned, ev.ModelFailed, ev.ToolReturned)
    if isinstance(fact, results) and not awaited(state, fact):
        return None
    return sized(fact, state.policy)  # sizes may change if a policy amendment was left out


def _fit_fork(state: RunState, fact: ev.RunForked) -> ev.RunForked:
    fact = replace(
        fact, parent=state.setup.run, parent_seq=state.seq, results=_open_calls(state, fact.results)
    )
    return replace(
        fact,
        in_doubt=left_open(state, fact),
        downtime=min(fact.downtime, fact.at - state.at),
        again=asks_anew(state, fact, text=fact.size is not None),
    )


def _open_calls(state: RunState, calls: tuple[str, ...]) -> tuple[str, ...]:
    begun = {call.id for call in underway(state)}
    return tuple(call for call in calls if call in begun)


_HOLDER = "refold shrink"


async def write(store: Store, log: Log, note: str) -> str:
    """Write the log with a note that describes it, and return the id of its run.

    The log of a fork is written with the runs that it continues. The store must not have any of these runs.
    Raises as `Store.append`.
    """
    run, head = "", Head(seq=0, hash=b"")
    remark = ev.NoteAdded(at=log.events[-1].at, by=_HOLDER, content=ev.Remark(text=note))
    for group in _groups([*log.events, WrittenEvent(remark, remark.at, b"")]):
        first = group[0].event
        if isinstance(first, ev.RunForked):
            first = replace(first, parent=run, parent_hash=head.hash.hex())
            group = [group[0]._replace(event=first), *group[1:]]  # noqa: PLW2901 - the hash is only known here
        run = first.run if isinstance(first, ev.RunStarted | ev.RunForked) else run
        lease = await store.lease(run, holder=_HOLDER)
        head = await store.append(run, head.seq, lease, [_record(each) for each in group])
        await store.release(lease)
    return run


def _groups(events: Sequence[WrittenEvent]) -> list[list[WrittenEvent]]:
    found = list[list[WrittenEvent]]()
    for each in events:
        if not isinstance(each.event, ev.Decision):
            found.append([])
        found[-1].append(each)
    return found


def _record(each: WrittenEvent) -> Record:
    encoded = codec.encode(each.event)
    blinded = encoded.content is not None and isinstance(each.event, ev.Fact | ev.Annotation)
    return Record(
        at=each.at,
        kind=encoded.kind,
        body=encoded.body,
        content=encoded.content,
        salt=each.salt if blinded else b"",
    )


def make_property(holds: Callable[[RunState], bool], registry: Registry = BUILTIN) -> Callable[[Log], bool]:
    """Return a property: whether a condition on the state holds after some event of the log."""
    return lambda log: any(holds(state) for state in log.states(registry))


class FirstDivergence(NamedTuple):
    """The first decision of a log that does not follow from its facts.

    `place` is the index of its fact, `how` the divergence, `order` the recorded kinds of decisions there. As
    a `Twist` it changes other decisions in the same way.
    """

    place: int
    how: DecisionDivergence
    order: tuple[str, ...]

    def apply(self, decisions: Sequence[ev.Decision]) -> list[ev.Decision]:
        """Return the decisions with this difference, if they contain what differs."""
        found, recorded, derived = [*decisions], self.how.recorded, self.how.derived
        if self.how.difference is DecisionDifference.REORDERED:
            return sorted(
                found,
                key=lambda each: self.order.index(ev.kind_of(each)) if ev.kind_of(each) in self.order else -1,
            )
        at = next((n for n, each in enumerate(found) if type(each) is type(derived)), None)
        if recorded is None:
            return found if at is None else [*found[:at], *found[at + 1 :]]
        if derived is None:
            return [*found, recorded]
        if at is None:
            return found
        return [*found[:at], self._change(recorded, found[at]), *found[at + 1 :]]

    def _change(self, recorded: ev.Decision, decision: ev.Decision) -> ev.Decision:
        if type(recorded) is not type(decision):
            return recorded
        return replace(decision, **{name: getattr(recorded, name) for name in self.how.fields})


def find_first_divergence(events: Sequence[ev.Event], registry: Registry = BUILTIN) -> FirstDivergence | None:
    """Return the first decision of a log that does not follow from its facts, or None.

    Raises as `evolve`.
    """
    state, facts = NEW, 0
    starts = [place for place, event in enumerate(events) if not isinstance(event, ev.Decision)]
    for start, end in pairwise([*starts, len(events)]):
        state = evolve(state, events[start], registry)
        first, group = (
            events[start],
            [each for each in events[start + 1 : end] if isinstance(each, ev.Decision)],
        )
        if isinstance(first, ev.Fact):
            derived = [decision for decision, _ in rules_of(state)(state, first)]
            how = find_divergence(state, group, derived)
            if how is not None and not depends_on_unavailable(state, (*group, *derived)):
                return FirstDivergence(facts, how, tuple(map(ev.kind_of, group)))
            facts += 1
        for decision in group:
            state = evolve(state, decision, registry)
    return None


def make_divergence_property(wanted: FirstDivergence, registry: Registry = BUILTIN) -> Callable[[Log], bool]:
    """Return a property: the first decision that does not follow differs in the same kind and fields."""
    marks = _marks(wanted)

    def shows(log: Log) -> bool:
        try:
            first = find_first_divergence([each.event for each in log.events], registry)
        except MissingTokenizer:
            raise
        except RefoldError:
            return False
        return first is not None and _marks(first) == marks

    return shows


def _marks(parted: FirstDivergence) -> tuple[DecisionDifference, str, set[str]]:
    return parted.how.difference, parted.how.kind, set(parted.how.fields)
