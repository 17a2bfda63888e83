"""A state as bytes and back, so that a long run is opened without folding its whole log.

A snapshot is a cache: nothing is proved by it, audits never read it, and whoever cannot read one folds the log. So
anything in doubt is refused here: another version, a guard that is configured or installed otherwise, a state that
would come back as anything else than what it was, and one that the log does not bear out. A snapshot is made where the
log has a digest of the state, and nowhere else.
"""

import hashlib
from collections.abc import Iterable
from functools import cache

import msgspec
from msgspec.structs import replace

from refold.reducers.checkpoint import state_digest
from refold.reducers.errors import CannotJudge
from refold.reducers.events import Event, StateDigested
from refold.reducers.fields import shared
from refold.reducers.foundation import founded
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import watches
from refold.reducers.rules import RULES
from refold.reducers.state import RunState, Watch
from refold.reducers.window import adds_up


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


def encode(state: RunState) -> bytes | None:
    """The state as JSON text; None if `decode` would not give an equal one: then there is no snapshot to write.

    That is so where a guard of somebody else remembers what JSON, or the type of its `start()`, cannot say.
    """
    try:
        guards = tuple(map(_packed, state.guards))
        return _ENCODER.encode(_Snapshot(state=replace(state, guards=()), guards=guards))
    except _REFUSED:
        return None


def decode(data: bytes, registry: Registry = BUILTIN) -> RunState:
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


def borne_out(
    state: RunState, digested: Event | None, founding: Iterable[Event], registry: Registry = BUILTIN
) -> bool:
    """Whether the log bears out the state that was kept after its event `digested`, a `state_digested`.

    `founding` are the events of the kinds in `FOUNDING` up to there. What the run was started with is theirs; all else that
    decides has its digest in the log, the window by its references.
    """
    if not isinstance(digested, StateDigested) or state.digested != state.seq:
        return False
    setup, guards = founded(founding, registry)
    if state.setup != setup or list(map(_post, state.guards)) != list(map(_post, guards)):
        return False
    derived = state_digest(replace(state, seq=state.seq - 1))
    return (derived.state, derived.guards) == (digested.state, digested.guards) and adds_up(state.window)


def version(refold: str) -> str:
    """What a snapshot must have been written by to be read: `refold` is the version of refold that runs.

    Beside it stand the version of the decision rules, and a digest of the form of a state, so that whoever works on
    refold itself does not read the state of yesterday.
    """
    return f"{RULES}-{refold}-{_form()}"


def _post(watch: Watch) -> tuple[object, ...]:
    """What a guard on duty is, whatever it has seen."""
    return watch.name, watch.kind, watch.version, watch.guard


def _packed(watch: Watch) -> _Watch:
    guard, own = _ENCODER.encode(watch.guard), _ENCODER.encode(watch.own)
    if watch.guard is not None and _own(own, watch.guard.start()) != watch.own:
        raise ValueError(f"the guard {watch.name!r} remembers what its own type cannot say")
    same = shared(watch, "name", "kind", "version", "blind")
    return _Watch(guard=msgspec.Raw(guard), own=msgspec.Raw(own), **same)


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
    """A digest of what the JSON text of a state may hold. What a guard remembers goes by the guard's own version."""
    schema = msgspec.json.schema(_Snapshot)
    return hashlib.sha256(msgspec.json.encode(schema, order="sorted")).hexdigest()[:16]
