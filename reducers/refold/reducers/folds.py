"""Folds of a log to a state, and snapshots of a state.

A snapshot is a cache: it proves nothing, audits never read it, and an engine that cannot read one folds the
log. So a snapshot is refused if its version or its guards differ, if decoding would not return the same
state, or if the log does not confirm it. Snapshots are made only at an event with a digest of the state.
"""

import hashlib
from collections.abc import Iterable
from functools import cache

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.errors import Inconclusive
from refold.reducers.evolution import evolve, replay_setup, state_digest
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import watches
from refold.reducers.pending import bare
from refold.reducers.rules import RULES, rules_of
from refold.reducers.state import NEW, RunState, Watch
from refold.reducers.window import adds_up


def fold(events: Iterable[ev.Event], state: RunState = NEW, registry: Registry = BUILTIN) -> RunState:
    """Return the state after these events. Folding a prefix and then the rest gives the same state."""
    for event in events:
        state = evolve(state, event, registry)
    return state


def advance(
    state: RunState,
    fact: ev.Fact,
    registry: Registry = BUILTIN,
) -> tuple[RunState, tuple[ev.Event, ...]]:
    """Return the state after a fact and its decisions, and these events: the fact, then its decisions.

    A result that nothing waits for becomes one `late_result`, which changes nothing.

    Raises:
        UnexpectedEvent: The state has no place for the fact.
    """
    if isinstance(fact, ev.RESULTS) and not awaited(state, fact):
        late = late_result(replace(fact, at=max(state.at, fact.at)))
        return evolve(state, late, registry), (late,)
    state = evolve(state, fact, registry)
    events: list[ev.Event] = [fact]
    for decision, after in rules_of(state)(state, fact):
        events.append(decision)
        state = after
    return state, tuple(events)


def awaited(state: RunState, fact: ev.Result) -> bool:
    """Return whether the state waits for this result."""
    if state.ended or state.seq == 0:
        return False
    if isinstance(fact, ev.ToolReturned):
        batch = state.batch
        call = batch.open_call(fact.call) if batch else None
        return call is not None and (call.dispatched > 0 or call.refused)
    asked = None if isinstance(fact, ev.SummaryReturned) else state.request
    summary = None if isinstance(fact, ev.ModelResponded) else state.summary
    return fact.request in (asked and asked.seq, summary and summary.seq)


def late_result(fact: ev.Result) -> ev.LateResult:
    """Return the annotation that keeps a result that nothing waits for."""
    return ev.LateResult(at=fact.at, fact=bare(fact), content=fact.content)


class UnreadableSnapshot(Inconclusive):
    """The bytes of a snapshot were not written by this version with these guards: fold the log instead."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"the snapshot cannot be used: {self.problem}; fold the log instead"


class _Watch(Watch, frozen=True, kw_only=True):
    """A guard whose configuration and state are still JSON text: only the registry has their types."""

    guard: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    own: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A state without its guards, and the guards separately."""

    state: RunState
    guards: tuple[_Watch, ...]


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(_Snapshot)
# msgspec's errors; numbers above 64 bits; text that is not UTF-8; deeper nesting than any state has.
_REFUSED = (msgspec.MsgspecError, OverflowError, RecursionError, TypeError, ValueError)


def encode_snapshot(state: RunState) -> bytes | None:
    """Return the state as JSON text, or None if decoding would not return an equal state.

    None occurs if a third-party guard stores something that JSON, or the type of its `start()`, cannot hold.
    """
    try:
        guards = tuple(map(_packed, state.guards))
        return _ENCODER.encode(_Snapshot(state=replace(state, guards=()), guards=guards))
    except _REFUSED:
        return None


def decode_snapshot(data: bytes, registry: Registry = BUILTIN) -> RunState:
    """Return the state that was encoded. `registry` has the installed guards.

    The content is not checked against the log: see `snapshot_holds`.

    Raises:
        UnreadableSnapshot: Another version or other guards wrote it, or it is damaged.
    """
    try:
        kept = _DECODER.decode(data)
        versions = {watch.name: watch.version for watch in kept.guards if watch.version}
        fresh = watches(kept.state.policy, registry, versions=versions)
        guards = tuple(_unpacked(packed, watch) for packed, watch in zip(kept.guards, fresh, strict=True))
    except _REFUSED as error:
        raise UnreadableSnapshot(str(error)) from error
    return replace(kept.state, guards=guards)


def snapshot_holds(
    state: RunState, digested: ev.Event | None, founding: Iterable[ev.Event], registry: Registry = BUILTIN
) -> bool:
    """Return whether the log confirms a state that was stored after its event `digested`, a `state_digested`.

    `founding` are the events of the kinds in `FOUNDING` up to there. They determine the setup. Everything
    else that decisions depend on has its digest in the log, including the window's references.
    """
    if not isinstance(digested, ev.StateDigested) or state.digested != state.seq:
        return False
    setup, guards = replay_setup(founding, registry)
    if state.setup != setup or list(map(_post, state.guards)) != list(map(_post, guards)):
        return False
    derived = state_digest(replace(state, seq=state.seq - 1))
    return (derived.state, derived.guards) == (digested.state, digested.guards) and adds_up(state.window)


def snapshot_version(refold: str) -> str:
    """Return the version that a snapshot must have to be read; `refold` is the running version of refold.

    It includes the version of the decision rules and a digest of the state's schema, so that developers of
    refold do not read outdated snapshots.
    """
    return f"{RULES}-{refold}-{_form()}"


def _post(watch: Watch) -> tuple[object, ...]:
    """Return what identifies an active guard, apart from its state."""
    return watch.name, watch.kind, watch.version, watch.guard


def _packed(watch: Watch) -> _Watch:
    guard, own = _ENCODER.encode(watch.guard), _ENCODER.encode(watch.own)
    if watch.guard is not None and _own(own, watch.guard.start()) != watch.own:
        raise ValueError(f"the guard {watch.name!r} has a state that its type cannot encode")
    return _Watch(
        name=watch.name,
        kind=watch.kind,
        version=watch.version,
        guard=msgspec.Raw(guard),
        own=msgspec.Raw(own),
        blind=watch.blind,
    )


def _unpacked(packed: _Watch, fresh: Watch) -> Watch:
    """Return the guard `fresh` with the packed state."""
    same = (packed.name, packed.kind, packed.version) == (fresh.name, fresh.kind, fresh.version)
    if not same or bytes(packed.guard) != _ENCODER.encode(fresh.guard):
        raise ValueError(f"the guard {packed.name!r} has another configuration or version")
    if fresh.guard is None:
        return replace(fresh, blind=packed.blind)
    return replace(fresh, blind=packed.blind, own=_own(packed.own, fresh.own))


def _own(data: bytes | msgspec.Raw, start: object) -> object:
    return msgspec.json.decode(data, type=type(start))


@cache
def _form() -> str:
    """A digest of what the JSON text of a state may hold.

    What a guard remembers goes by the guard's own version.
    """
    schema = msgspec.json.schema(_Snapshot)
    return hashlib.sha256(msgspec.json.encode(schema, order="sorted")).hexdigest()[:16]
