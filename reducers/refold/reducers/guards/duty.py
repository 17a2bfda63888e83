"""Guards on duty: resolved from a policy, shown events, asked for judgements.

A guard that is not installed, that lacks the content it needs, or whose own code fails is *blind*: the rest
of the state does not suffer, and what it would have said is reported as unknown, never made up.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from refold.reducers.events import Event
from refold.reducers.guards.protocol import Judgement, Place, Stop, Warn
from refold.reducers.guards.registry import Registry
from refold.reducers.machine import MOVES, TERMINAL
from refold.reducers.policy import GuardConfig, Policy
from refold.reducers.state import RunState, Watch
from refold.reducers.texts import TEXTS

NOT_INSTALLED = "not installed"
OTHER_CONFIGURATION = "installed in a version that is configured otherwise"
NO_CONTENT = "content erased or not read"
FAILED = "its own code failed"


def watches(
    policy: Policy,
    registry: Registry,
    before: tuple[Watch, ...] = (),
    versions: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Watch, ...]:
    """The policy's guards on duty. One that was there before, configured alike, keeps what it has seen.

    `versions` are those that the log was written with: a guard of another version is blind, for it would say
    other things.
    """
    known = {watch.name: watch for watch in before}
    return tuple(_watch(config, registry, known, versions) for config in policy.guards)


def versions_of(policy: Policy, registry: Registry) -> dict[str, int]:
    """The versions of the policy's guards as they are installed here, by name: recorded with a run."""
    return {watch.name: watch.version for watch in watches(policy, registry) if watch.guard is not None}


def _watch(
    config: GuardConfig, registry: Registry, known: dict[str, Watch], versions: Mapping[str, int]
) -> Watch:
    kind = str(config.get("guard", ""))
    name = str(config.get("name") or kind)
    if kind not in registry:
        return Watch(name=name, kind=kind, blind=NOT_INSTALLED)
    try:
        guard = msgspec.convert(config, registry[kind])
    except msgspec.ValidationError:
        return Watch(name=name, kind=kind, blind=OTHER_CONFIGURATION)
    recorded = versions.get(name, guard.version)
    if recorded != guard.version:
        blind = f"installed in version {guard.version}, recorded with version {recorded}"
        return Watch(name=name, kind=kind, version=recorded, blind=blind)
    old = known.get(name)
    if old is not None and old.guard == guard:
        return old
    return Watch(name=name, kind=kind, version=guard.version, guard=guard, own=guard.start())


def shown(guards: tuple[Watch, ...], event: Event) -> tuple[Watch, ...]:
    """The guards after they saw an event. The same object if nothing changed."""
    kind = type(event)
    if not any(watch.guard is not None and kind in watch.guard.observes for watch in guards):
        return guards
    after = tuple(_shown(watch, event) for watch in guards)
    return guards if all(new is old for new, old in zip(after, guards, strict=True)) else after


def _shown(watch: Watch, event: Event) -> Watch:
    if watch.blind or type(event) not in watch.guard.observes:
        return watch
    if watch.guard.reads_content and getattr(event, "content", None) is None and getattr(event, "digest", ""):
        return msgspec.structs.replace(watch, blind=NO_CONTENT)
    try:
        own = watch.guard.observe(watch.own, event)
    except Exception:
        return msgspec.structs.replace(watch, blind=FAILED)
    return watch if own is watch.own else msgspec.structs.replace(watch, own=own)


def judged(watch: Watch, state: RunState, place: Place) -> tuple[Judgement, ...]:
    """What one guard says at this place of this state. A guard whose own code fails ends the run: `guard_failed`."""
    if watch.guard is None or place not in watch.guard.places:
        return ()
    if watch.blind:
        return (_failed(watch),) if watch.blind == FAILED else ()
    try:
        said = tuple(watch.guard.judge(watch.own, state, place))
    except Exception:
        return (_failed(watch),)
    return said if all(_possible(state, judgement) for judgement in said) else (_failed(watch),)


def _possible(state: RunState, judgement: Judgement) -> bool:
    """Whether it can be carried out: its words are known, and a stop is a way to end from here."""
    if isinstance(judgement, Stop) and not TERMINAL.intersection(
        MOVES.get((state.agent_state, judgement.trigger), ())
    ):
        return False
    return isinstance(judgement, Warn) or judgement.text in state.policy.texts or judgement.text in TEXTS


def _failed(watch: Watch) -> Stop:
    return Stop(code="guard_failed", reason=f"the guard {watch.name!r} itself failed")
