"""Why a run took a decision at an event, and how that event changed its state.

A log records only checks that intervened. The checks are run again in order, by the rules of that time and on
the state they applied to. States are immutable and share unchanged objects, so comparing two states skips
shared parts, and the changes of a whole run cost about as much as folding it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from refold.reducers.errors import WrongUse
from refold.reducers.events import (
    Annotation,
    ApprovalAnswered,
    ApprovalRequested,
    CallRefused,
    Decision,
    Event,
    Fact,
    ModelResponded,
    ToolReturned,
    ToolsDispatched,
    kind_of,
)
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import judged
from refold.reducers.guards.protocol import Place
from refold.reducers.limits import Limit, name_of, refuses_unknown, threshold, trips
from refold.reducers.meters import lacking, used
from refold.reducers.rules import rules_of
from refold.reducers.rules.flow import Entry, FirstOf, Flow, WithoutCalls
from refold.reducers.rules.guards import Guards
from refold.reducers.rules.limits import Limits, TimeLimits
from refold.reducers.state import NEW, RunState, Watch
from refold.reducers.window import Window
from refold.replay.call_reasons import CallReason, read_call_reasons
from refold.replay.kinds.table import sentence
from refold.replay.reader import events, fold_event
from refold.store.protocol import Store

ALLOWED = "allowed"
UNKNOWN = "cannot know"
"""Verdict of a limit if some responses lack the counts; IGNORED: its policy ignores them."""
IGNORED = "cannot know, ignored"


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of one limit or guard, taken before decision number `before` (0: the first).

    `said` holds codes: `allowed`, or why there was no verdict. `measured` holds the numbers and names that it
    judged by, a limit's in its unit (`unknown`: the number of responses without counts). `own` is a guard's
    memory, with digests instead of texts.
    """

    who: str
    place: str
    before: int
    version: int = 1
    said: tuple[str, ...] = (ALLOWED,)
    measured: dict[str, str | int] = {}
    own: Any = None


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts between the fact at event `fact` and event `seq`, in order, with the decisions.

    `says` is a one-line summary of the event, `told` of each decision. `calls` are those that the event is
    about: which rule decided them, and what the record says about a refusal.
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
    calls: tuple[CallReason, ...] = ()


async def why(
    store: Store, run: str, seq: int | None = None, registry: Registry = BUILTIN, call: str = ""
) -> Reasons:
    """Return the verdicts that led to event `seq`, by default the last fact or decision.

    For a fact: everything that followed from it. For a decision: the checks made before it. `call`: of the
    calls that the event is about, only this one. Raises
    `UnknownRun`, `DamagedLog`, and `WrongUse` for an annotation, which causes nothing.
    """
    state, before, fact, at = NEW, NEW, None, 0
    last, reached = 0, None
    async for stored, event in events(store, run, seq):
        if isinstance(event, Fact):
            before, fact, at = state, event, stored.seq
        state = fold_event(state, stored, event, registry)
        if seq is not None or not isinstance(event, Annotation):
            last, reached = stored.seq, event
    if fact is None or reached is None or not (last == at or isinstance(reached, Decision)):
        said = "the log has no such event" if reached is None else f"event {last} is a {kind_of(reached)}"
        raise WrongUse(f"run {run}: {said}: no decision was made there; use an earlier event")
    calls = [call] if call else _list_calls(reached)
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
        calls=await read_call_reasons(store, run, calls, registry) if calls else (),
    )


def _list_calls(event: Event) -> tuple[str, ...]:
    """Return the ids of the calls that were made, permitted, refused or asked about at an event."""
    match event:
        case ModelResponded(calls=made):
            return tuple(call.id for call in made)
        case CallRefused(call=call):
            return (call,)
        case ToolReturned(call=call) if event.refused_by is not None:
            return (call,)
        case ToolsDispatched(calls=calls) | ApprovalRequested(calls=calls):
            return calls
        case ApprovalAnswered(answers=answers):
            return tuple(answer.call for answer in answers)
        case _:
            return ()


def asked(
    before: RunState, fact: Fact, registry: Registry, number: int | None
) -> tuple[list[Opinion], list[Decision]]:
    """Return the verdicts before decision `number` (from 1; None: all), and all decisions."""
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
        place = _place_of(entry)
        yield from (_of_limit(limit, state, place, before) for limit in entry.among(state.policy))
    elif isinstance(entry, Guards):
        here = (watch for watch in state.guards if watch.guard is None or entry.place in watch.guard.places)
        yield from (_of_guard(watch, state, entry.place, before) for watch in here)


def _place_of(entry: Limits | TimeLimits) -> str:
    if isinstance(entry, Limits):
        return entry.check
    return "deadline" if entry.every else "preflight"


def _of_limit(limit: Limit, state: RunState, place: str, before: int) -> Opinion:
    most, amount = threshold(limit), used(limit, state)
    lacks = lacking(limit, state)
    unknown = UNKNOWN if refuses_unknown(limit) else IGNORED
    said = (
        "unlimited" if most is None else "reached" if trips(limit, amount) else unknown if lacks else ALLOWED
    )
    measured: dict[str, str | int] = {"used": amount, "op": limit.op, "unit": limit.unit}
    if lacks:
        measured["unknown"] = lacks
    return Opinion(
        who=f"limit:{name_of(limit)}",
        place=place,
        before=before,
        said=(said,),
        measured=measured if most is None else {**measured, "value": most},
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
        measured={key: value for one in judgements for key, value in one.measured.items()},
        own=msgspec.to_builtins(watch.own),
    )


Changes = Mapping[str, str | None]
"""Changed fields by path (`spent.usage.input`), as JSON text; None if the path was removed.

They apply in order. Fields with default values are absent, as in the JSON of a state, except the agent state.
"""

# Fields that an event's row has already, and those as long as the run.
_LEFT_OUT: Mapping[type, frozenset[str]] = {
    RunState: frozenset({"seq", "at"}),
    Window: frozenset({"chunks", "digest"}),
}
_ALWAYS = "agent_state"
# A guard's memory, or a window with many holes, may be a list that shifts with every event.
_MOST = 12
_RECORDED = frozenset({"setup.policy", "setup.tools"})
_DOT = re.compile(r"(?<!\\)\.")
_ENCODER = msgspec.json.Encoder(order="deterministic")


def state_changes(before: RunState | None, after: RunState) -> Changes:
    """Return the fields that differ after an event; all fields if there is no preceding state.

    `seq`, `at` and the window's references are left out; the window's counts, totals and ranges are included.
    Policy and tools are given as the event that set them, and collections of more than a dozen entries as
    their length. A dot within a key is written `\\.`.
    """
    return _number_events(_list_changes("", before, after), after)


def _number_events(changes: Iterator[tuple[str, str | None]], after: RunState) -> Changes:
    told = dict(changes)
    for path in _RECORDED & told.keys():
        told[path] = str(after.seq)
    return told


def _list_changes(path: str, before: Any, after: Any) -> Iterator[tuple[str, str | None]]:
    if before is after:
        return
    if path in _RECORDED:
        if before != after:
            yield path, ""  # the event that set it, if known
        return
    if isinstance(after, msgspec.Struct) and type(before) is type(after):
        for name, default in _shape(type(after)):
            old, new = getattr(before, name), getattr(after, name)
            if old is not new:
                yield from _list_changes(
                    _below(path, name), _strip_default(name, default, old), _strip_default(name, default, new)
                )
        return
    yield from _list_replacements(path, before, after)


def _list_replacements(path: str, before: Any, after: Any) -> Iterator[tuple[str, str | None]]:
    """Return the changes of a value whose structure changed or that was removed."""
    old, new = _parts(before), _parts(after)
    if old is not None and new is not None:
        for key in (*(key for key in old if key not in new), *new):
            yield from _list_changes(_below(path, key), old.get(key), new.get(key))
        return
    was, told = (None if each is None else _format_value(each) for each in (before, after))
    if was == told and old is new:
        return
    if old or (was is not None and told is None):
        yield path, None
    if new is not None:
        for key, value in new.items():
            yield from _list_changes(_below(path, key), None, value)
    elif told is not None:
        yield path, told


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _format_value(value: Any) -> str:
    """Return a value as JSON text; a long list as its length."""
    if isinstance(value, tuple | dict):
        count = len(cast("dict[str, Any]", value))
        if count > _MOST:
            return f'"{count} entries"'
    return _ENCODER.encode(value).decode()


def _parts_of(value: msgspec.Struct) -> dict[str, Any]:
    shape = _shape(type(value))
    told = ((name, _strip_default(name, default, getattr(value, name))) for name, default in shape)
    return {name: each for name, each in told if each is not None}


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the parts of a composed value by name; None for a value reported as one."""
    if isinstance(value, msgspec.Struct):
        return _parts_of(value)
    if isinstance(value, tuple | dict) and len(cast("dict[str, Any]", value)) > _MOST:
        return None
    if isinstance(value, dict):
        return {_escape(str(key)): each for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple) and any(
        isinstance(each, msgspec.Struct) for each in cast("tuple[object, ...]", value)
    ):
        return members(cast("tuple[object, ...]", value))
    return None


def _strip_default(name: str, default: Any, value: Any) -> Any:
    """Return the value of a field, None for its default, which the JSON of a state omits."""
    if name == _ALWAYS or value is None:
        return value
    return None if value is default or value == default else value


_SHAPES: dict[type, tuple[tuple[str, Any], ...]] = {}


def _shape(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """Return the reported fields of a Struct, with their defaults."""
    found = _SHAPES.get(kind)
    if found is None:
        left_out = _LEFT_OUT.get(kind, frozenset())
        found = tuple(
            (
                field.name,
                field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory(),
            )
            for field in msgspec.structs.fields(kind)
            if field.name not in left_out
        )
        _SHAPES[kind] = found
    return found


def members(listed: tuple[object, ...]) -> dict[str, Any]:
    """Return the members of a list by name or id if these are unique, else by index from 0."""
    names = [_name(each) for each in listed]
    distinct = all(names) and len(set(names)) == len(names)
    return {
        name if distinct else str(place): each
        for place, (name, each) in enumerate(zip(names, listed, strict=True))
    }


def _name(value: object) -> str:
    return _escape(str(getattr(value, "name", "") if hasattr(value, "own") else getattr(value, "id", "")))


def _escape(key: str) -> str:
    return key.replace(".", "\\.")


def steps(path: str) -> list[str]:
    """Split a path into its keys, still escaped."""
    return _DOT.split(path)


def key_of(step: str) -> str:
    """Unescape one key of a path."""
    return step.replace("\\.", ".")
