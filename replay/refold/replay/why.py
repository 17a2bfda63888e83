"""Why a run went on as it did at an event: what every limit and guard saw there and said, those that allowed it too.

Nothing of this stands in a log but what did not simply allow. It is derived again, by the rules that decided then:
each check is asked in its order, of the state that it was asked of.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from refold.reducers.errors import WrongUse
from refold.reducers.events import Annotation, Decision, Fact, kind_of
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import judged
from refold.reducers.guards.protocol import Place
from refold.reducers.limits import Limit, insists, name_of, threshold, trips
from refold.reducers.meters import lacking, used
from refold.reducers.rules import rules_of
from refold.reducers.rules.flow import Entry, FirstOf, Flow, WithoutCalls
from refold.reducers.rules.guards import Guards
from refold.reducers.rules.limits import Limits, TimeLimits
from refold.reducers.state import NEW, RunState, Watch
from refold.replay.kinds.table import sentence
from refold.replay.reader import events, folded
from refold.store.protocol import Store

ALLOWED = "allowed"
UNKNOWN = "cannot know"
"""What a limit says where of some answers nobody knows what it counts; IGNORED: its policy lets that pass."""
IGNORED = "cannot know, ignored"


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What one limit or guard said when it was asked, before decision number `before` (0: the first) was made.

    `said` are codes, `allowed` if it had nothing to say, or why it could say nothing. `saw` are the numbers and
    names that it judged by, a limit's in its unit (`unknown`: of how many answers nobody knows them); `own` is a guard's memory, with digests for what was said.
    """

    who: str
    place: str
    before: int
    version: int = 1
    said: tuple[str, ...] = (ALLOWED,)
    saw: dict[str, str | int] = {}
    own: Any = None


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """All that was asked between the fact at event `fact` and event `seq`, in order, and what was decided then.

    `says` is the event in a line, `told` each decision.
    """

    run: str
    seq: int
    kind: str
    says: str
    fact: int
    fact_kind: str
    opinions: tuple[Opinion, ...]
    decisions: tuple[str, ...]
    told: tuple[str, ...]


async def why(store: Store, run: str, seq: int | None = None, registry: Registry = BUILTIN) -> Reasons:
    """What was seen and said at event `seq`, by default at the last fact or decision.

    Of a fact: all that followed from it; of a decision: what was asked before it was made. Raises `UnknownRun`,
    `DamagedLog`, and `WrongUse` for an annotation, from which nothing follows.
    """
    state, before, fact, at = NEW, NEW, None, 0
    last, reached = 0, None
    async for stored, event in events(store, run, seq):
        if isinstance(event, Fact):
            before, fact, at = state, event, stored.seq
        state = folded(state, stored, event, registry)
        if seq is not None or not isinstance(event, Annotation):
            last, reached = stored.seq, event
    if fact is None or reached is None or not (last == at or isinstance(reached, Decision)):
        said = "there is no event" if reached is None else f"event {last} is a {kind_of(reached)}"
        raise WrongUse(f"run {run}: {said}: nothing was decided there; take an event before it")
    found, made = asked(before, fact, registry, None if last == at else last - at)
    return Reasons(
        run=run,
        seq=last,
        kind=kind_of(reached),
        says=sentence(reached),
        fact=at,
        fact_kind=kind_of(fact),
        opinions=tuple(found),
        decisions=tuple(map(kind_of, made)),
        told=tuple(map(sentence, made)),
    )


def asked(
    before: RunState, fact: Fact, registry: Registry, number: int | None
) -> tuple[list[Opinion], list[Decision]]:
    """The opinions asked for before decision `number` (from 1) was made, None: before the last; and all decisions."""
    found: list[Opinion] = []

    def look(entry: Entry, flow: Flow) -> None:
        if number is None or len(flow.said) < number:
            found.extend(_opinions(entry, flow.state, len(flow.said)))

    state = evolve(before, fact, registry)
    made = [decision for decision, _ in rules_of(state)(state, fact, look)]
    return found, made


def _opinions(entry: Entry, state: RunState, before: int) -> Iterator[Opinion]:
    if isinstance(entry, FirstOf | WithoutCalls):
        for inner in entry.entries:
            yield from _opinions(inner, state, before)
    elif isinstance(entry, Limits | TimeLimits):
        place = entry.check if isinstance(entry, Limits) else "deadline" if entry.every else "preflight"
        yield from (_of_limit(limit, state, place, before) for limit in entry.among(state.policy))
    elif isinstance(entry, Guards):
        here = (watch for watch in state.guards if watch.guard is None or entry.place in watch.guard.places)
        yield from (_of_guard(watch, state, entry.place, before) for watch in here)


def _of_limit(limit: Limit, state: RunState, place: str, before: int) -> Opinion:
    most, amount = threshold(limit), used(limit, state)
    lacks = lacking(limit, state)
    unknown = UNKNOWN if insists(limit) else IGNORED
    said = (
        "unlimited" if most is None else "reached" if trips(limit, amount) else unknown if lacks else ALLOWED
    )
    saw: dict[str, str | int] = {"used": amount, "op": limit.op, "unit": limit.unit}
    if lacks:
        saw["unknown"] = lacks
    return Opinion(
        who=f"limit:{name_of(limit)}",
        place=place,
        before=before,
        said=(said,),
        saw=saw if most is None else {**saw, "value": most},
    )


def _of_guard(watch: Watch, state: RunState, place: Place, before: int) -> Opinion:
    if watch.guard is None or watch.blind:
        said: tuple[str, ...] = (f"blind: {watch.blind}",)
        return Opinion(who=watch.name, place=place, before=before, version=watch.version, said=said)
    judgements = judged(watch, state, place)
    return Opinion(
        who=watch.name,
        place=place,
        before=before,
        version=watch.version,
        said=tuple(f"{type(one).__name__.lower()}:{one.code}" for one in judgements) or (ALLOWED,),
        saw={key: value for one in judgements for key, value in one.saw.items()},
        own=msgspec.to_builtins(watch.own),
    )
