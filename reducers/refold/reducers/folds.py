"""The log as the truth: folds to a state, and snapshots of one.

A snapshot is a cache: nothing is proved by it, audits never read it, and whoever cannot read one folds the
log. So anything in doubt is refused here: another version, a guard that is configured or installed otherwise,
a state that would come back as anything else than what it was, and one that the log does not bear out. A
snapshot is made where the log has a digest of the state, and nowhere else.
"""

import hashlib
from collections.abc import Iterable
from functools import cache

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.errors import CannotJudge
from refold.reducers.evolution import evolve, founded, state_digest
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import watches
from refold.reducers.pending import bare
from refold.reducers.rules import RULES, rules_of
from refold.reducers.state import NEW, RunState, Watch
from refold.reducers.window import adds_up


def fold(events: Iterable[ev.Event], state: RunState = NEW, registry: Registry = BUILTIN) -> RunState:
    """The state after these events. Folding a prefix and then the rest is folding the whole."""
    for event in events:
        state = evolve(state, event, registry)
    return state


def advance(
    state: RunState,
    fact: ev.Fact,
    registry: Registry = BUILTIN,
) -> tuple[RunState, tuple[ev.Event, ...]]:
    """The state after a fact and all that follows from it, and those events: the fact, then its decisions.

    A result that nothing waits for any more becomes one `late_result`, which changes nothing. Any other fact
    that has no place here raises `UnexpectedEvent`.
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
    """Whether the state waits for this very result."""
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
    """The annotation that keeps a result for which nothing waits any more."""
    return ev.LateResult(at=fact.at, fact=bare(fact), content=fact.content)


class UnreadableSnapshot(CannotJudge):
    """These bytes are no state that this version, with these guards, would have written: fold the log."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"the snapshot cannot be used: {self.problem}; fold the log instead"


class _Watch(Watch, frozen=True, kw_only=True):
    """One whose guard and own state are JSON text still: their types are known to the registry only."""

    guard: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    own: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A state without its guards, and these beside it."""

    state: RunState
    guards: tuple[_Watch, ...]


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(_Snapshot)
# msgspec's own; numbers of more than 64 bits; text that is no UTF-8; a depth of nesting that no state has.
_REFUSED = (msgspec.MsgspecError, OverflowError, RecursionError, TypeError, ValueError)


def encode_snapshot(state: RunState) -> bytes | None:
    """The state as JSON text; None if `decode` would not give an equal one: then there is no snapshot to
    write.

    That is so where a guard of somebody else remembers what JSON, or the type of its `start()`, cannot say.
    """
    try:
        guards = tuple(map(_packed, state.guards))
        return _ENCODER.encode(_Snapshot(state=replace(state, guards=()), guards=guards))
    except _REFUSED:
        return None


def decode_snapshot(data: bytes, registry: Registry = BUILTIN) -> RunState:
    """The state that `encode` was given. `registry` names the guards that are installed.

    Raises `UnreadableSnapshot`. What the state says is believed, not checked: see `borne_out`.
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
    """Whether the log bears out the state that was kept after its event `digested`, a `state_digested`.

    `founding` are the events of the kinds in `FOUNDING` up to there. What the run was started with is theirs;
    all else that decides has its digest in the log, the window by its references.
    """
    if not isinstance(digested, ev.StateDigested) or state.digested != state.seq:
        return False
    setup, guards = founded(founding, registry)
    if state.setup != setup or list(map(_post, state.guards)) != list(map(_post, guards)):
        return False
    derived = state_digest(replace(state, seq=state.seq - 1))
    return (derived.state, derived.guards) == (digested.state, digested.guards) and adds_up(state.window)


def snapshot_version(refold: str) -> str:
    """What a snapshot must have been written by to be read: `refold` is the version of refold that runs.

    Beside it stand the version of the decision rules, and a digest of the form of a state, so that whoever
    works on refold itself does not read the state of yesterday.
    """
    return f"{RULES}-{refold}-{_form()}"


def _post(watch: Watch) -> tuple[object, ...]:
    """What a guard on duty is, whatever it has seen."""
    return watch.name, watch.kind, watch.version, watch.guard


def _packed(watch: Watch) -> _Watch:
    guard, own = _ENCODER.encode(watch.guard), _ENCODER.encode(watch.own)
    if watch.guard is not None and _own(own, watch.guard.start()) != watch.own:
        raise ValueError(f"the guard {watch.name!r} remembers what its own type cannot say")
    return _Watch(
        name=watch.name,
        kind=watch.kind,
        version=watch.version,
        guard=msgspec.Raw(guard),
        own=msgspec.Raw(own),
        blind=watch.blind,
    )


def _unpacked(packed: _Watch, fresh: Watch) -> Watch:
    """The guard on duty as it would be at the start, with what it remembers."""
    same = (packed.name, packed.kind, packed.version) == (fresh.name, fresh.kind, fresh.version)
    if not same or bytes(packed.guard) != _ENCODER.encode(fresh.guard):
        raise ValueError(f"the guard {packed.name!r} is configured or installed otherwise")
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
