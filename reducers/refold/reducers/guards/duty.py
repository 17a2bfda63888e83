"""Guards on duty, and the registry of the guards that come with refold.

Others are passed in by whoever runs or audits; nothing is looked up from here.

A guard that is not installed, that lacks the content it needs, or whose own code fails is *blind*: the rest
of the state does not suffer, and what it would have said is reported as unknown, never made up.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from refold.reducers.events import CallRefused, Event, ToolReturned, wordless
from refold.reducers.guards.approvals import Approval, Arguments
from refold.reducers.guards.calls import Handoff, OneCall, ReadOnly, StopOnTool, ToolCap
from refold.reducers.guards.endings import Errors, Keywords, Pivot, PrematureEnd
from refold.reducers.guards.progress import Loop, Repetition, Stall
from refold.reducers.guards.protocol import Ask, Judgement, Place, Stop, Warn
from refold.reducers.machine import MOVES, TERMINAL
from refold.reducers.policy import GuardConfig, Policy, has_text
from refold.reducers.state import RunState, Watch
from refold.reducers.vocabulary import Cause, Refusal, Refuser, Unknown

Registry = Mapping[str, type[Any]]

_GUARDS: tuple[type[Any], ...] = (
    Repetition, Loop, Errors, Stall, ToolCap, ReadOnly, Pivot, Keywords, StopOnTool, Handoff, OneCall, Arguments
)  # fmt: skip

BUILTIN: Registry = MappingProxyType({guard.kind: guard for guard in _GUARDS})


OWN: Registry = MappingProxyType({Approval.kind: Approval, PrematureEnd.kind: PrematureEnd})
"""Guards that no entry of `guards` names: the policy has keys of their own for them."""

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
    return tuple(_watch(config, {**registry, **OWN}, known, versions) for config in _configured(policy))


def _configured(policy: Policy) -> tuple[GuardConfig, ...]:
    """The policy's guards, and the two that have keys of their own."""
    configs = list(policy.guards)
    if policy.premature_end is not None:
        configs.append({**policy.premature_end, "guard": PrematureEnd.kind})
    if policy.approvals is not None:
        configs.append({"guard": Approval.kind, "chain": msgspec.to_builtins(policy.approvals.chain)})
    return tuple(configs)


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
    """The guards after they saw an event. The same object if nothing changed.

    Nobody knows whether a call failed whose result is not recorded: it counts as no failure, and as no
    success. A call that an imported run's harness refused is a refused one.
    """
    if isinstance(event, ToolReturned):
        if Unknown.RESULT in event.unknown:
            return guards
        event = event if event.refused_by is None else _refusal(event, event.refused_by)
    kind = type(event)
    after: list[Watch] | None = None
    for place, watch in enumerate(guards):
        if watch.guard is None or watch.blind or kind not in watch.guard.observes:
            continue
        seen = _shown(watch, event)
        if seen is not watch:
            after = after or list(guards)
            after[place] = seen
    return guards if after is None else tuple(after)


def _refusal(event: ToolReturned, by: Refuser) -> CallRefused:
    cause = Cause.APPROVAL if by is Refuser.USER else Cause.GUARD
    return CallRefused(call=event.call, why=Refusal.REJECTED, cause=cause, name=by, text="")


def _shown(watch: Watch, event: Event) -> Watch:
    if watch.guard.reads_content and wordless(event):
        return msgspec.structs.replace(watch, blind=NO_CONTENT)
    try:
        own = watch.guard.observe(watch.own, event)
    except Exception:
        return msgspec.structs.replace(watch, blind=FAILED)
    return watch if own is watch.own else msgspec.structs.replace(watch, own=own)


def judged(watch: Watch, state: RunState, place: Place) -> tuple[Judgement, ...]:
    """What one guard says at this place of this state.

    A guard whose own code fails ends the run: `guard_failed`.
    """
    if watch.guard is None or place not in watch.guard.places:
        return ()
    if watch.blind:
        return () if unheard(watch) else (_failed(watch),)
    try:
        said = tuple(watch.guard.judge(watch.own, state, place))
    except Exception:
        return (_failed(watch),)
    return said if not said or all(_possible(state, judgement) for judgement in said) else (_failed(watch),)


def speaking(guards: Sequence[Any], place: Place) -> list[int]:
    """Which of the guards, None for one that is not there, speak at this place: their numbers, in the
    policy's order.
    """
    return [at for at, guard in enumerate(guards) if guard is not None and place in guard.places]


def unheard(watch: Watch) -> bool:
    """Whether the guard is blind and passed over, so that nobody knows what it would have said."""
    # Who says whether calls may run must be able to: what it cannot judge does not run.
    closed = watch.blind == FAILED or getattr(watch.guard, "guards_calls", False)
    return bool(watch.blind) and not closed


def _possible(state: RunState, judgement: Judgement) -> bool:
    """Whether it can be carried out: its words are known, and a stop is a way to end from here."""
    if isinstance(judgement, Stop) and not TERMINAL.intersection(
        MOVES.get((state.agent_state, judgement.trigger), ())
    ):
        return False
    if isinstance(judgement, Warn | Ask):
        return True
    return has_text(state.policy, judgement.text)


def _failed(watch: Watch) -> Stop:
    return Stop(code="guard_failed", reason=f"the guard {watch.name!r} itself failed")
