"""The enabled guards of a run, and the registry of built-in guards.

Callers pass in other guards; nothing is imported from here.

A guard is *blind* if it is not installed, lacks payload that it needs, or raises. Other state is unaffected,
and the guard's verdicts are reported as unknown.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from refold.reducers.events import CallRefused, Event, ToolReturned, wordless
from refold.reducers.guards.approvals import Approval
from refold.reducers.guards.arguments import Arguments
from refold.reducers.guards.calls import Handoff, OneCall, ReadOnly, StopOnTool, ToolCap
from refold.reducers.guards.endings import Errors, Keywords, Pivot, PrematureEnd
from refold.reducers.guards.permissions import Permissions
from refold.reducers.guards.progress import Loop, Repetition, Stall
from refold.reducers.guards.protocol import Ask, Judgement, Place, Stop, Warn
from refold.reducers.machine import MOVES, TERMINAL
from refold.reducers.policy import GuardConfig, Policy, has_text
from refold.reducers.state import RunState, Watch
from refold.reducers.vocabulary import Cause, Refusal, Refuser, Unknown

Registry = Mapping[str, type[Any]]

_GUARDS: tuple[type[Any], ...] = (
    Repetition, Loop, Errors, Stall, ToolCap, ReadOnly, Pivot, Keywords, StopOnTool, Handoff, OneCall, Arguments,
    Permissions,
)  # fmt: skip

BUILTIN: Registry = MappingProxyType({guard.kind: guard for guard in _GUARDS})


OWN: Registry = MappingProxyType({Approval.kind: Approval, PrematureEnd.kind: PrematureEnd})
"""Guards that have their own policy keys instead of an entry in `guards`."""

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
    """Return the policy's guards, enabled. One that was there before with the same configuration keeps its
    state.

    `versions` are those recorded in the log. A guard of another version is blind: its verdicts would differ.
    """
    known = {watch.name: watch for watch in before}
    return tuple(_watch(config, {**registry, **OWN}, known, versions) for config in _list_configs(policy))


def _list_configs(policy: Policy) -> tuple[GuardConfig, ...]:
    """Return the policy's guards, and the two that have their own keys."""
    configs = list(policy.guards)
    if policy.premature_end is not None:
        configs.append({**policy.premature_end, "guard": PrematureEnd.kind})
    if policy.approvals is not None:
        configs.append({"guard": Approval.kind, "chain": msgspec.to_builtins(policy.approvals.chain)})
    return tuple(configs)


def versions_of(policy: Policy, registry: Registry) -> dict[str, int]:
    """Return the installed versions of the policy's guards, by name, as recorded with a run."""
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
    if blind := getattr(guard, "blind", ""):
        return Watch(name=name, kind=kind, version=guard.version, guard=guard, own=guard.start(), blind=blind)
    old = known.get(name)
    if old is not None and old.guard == guard:
        return old
    return Watch(name=name, kind=kind, version=guard.version, guard=guard, own=guard.start())


def shown(guards: tuple[Watch, ...], event: Event) -> tuple[Watch, ...]:
    """Return the guards after they observed an event; the same object if nothing changed.

    A call without a recorded result counts neither as a failure nor as a success. A call that an imported
    run's harness refused counts as refused.
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
        seen = _observe_safely(watch, event)
        if seen is not watch:
            after = after or list(guards)
            after[place] = seen
    return guards if after is None else tuple(after)


def _refusal(event: ToolReturned, by: Refuser) -> CallRefused:
    cause = Cause.APPROVAL if by is Refuser.USER else Cause.GUARD
    return CallRefused(call=event.call, why=Refusal.REJECTED, cause=cause, name=by, text="")


def _observe_safely(watch: Watch, event: Event) -> Watch:
    unread = type(event) in getattr(watch.guard, "content_unread", ())
    if watch.guard.reads_content and not unread and wordless(event):
        return msgspec.structs.replace(watch, blind=NO_CONTENT)
    try:
        own = watch.guard.observe(watch.own, event)
    except Exception:
        return msgspec.structs.replace(watch, blind=FAILED)
    return watch if own is watch.own else msgspec.structs.replace(watch, own=own)


def judged(watch: Watch, state: RunState, place: Place) -> tuple[Judgement, ...]:
    """Return one guard's verdicts at this place.

    A guard that raises ends the run: `guard_failed`.
    """
    if watch.guard is None or place not in watch.guard.places:
        return ()
    if watch.blind:
        return () if is_skipped(watch) else (_stop_failed(watch),)
    try:
        verdicts = tuple(watch.guard.judge(watch.own, state, place))
    except Exception:
        return (_stop_failed(watch),)
    return verdicts if all(_is_possible(state, verdict) for verdict in verdicts) else (_stop_failed(watch),)


def list_judging_guards(guards: Sequence[Any], place: Place) -> list[int]:
    """Return the indices of the guards that judge at this place, in order; None is a missing guard."""
    return [at for at, guard in enumerate(guards) if guard is not None and place in guard.places]


def is_skipped(watch: Watch) -> bool:
    """Return whether the guard is blind and skipped, so that its verdicts are unknown."""
    # A guard that decides whether calls may run fails closed: what it cannot judge does not run.
    closed = watch.blind == FAILED or getattr(watch.guard, "guards_calls", False)
    return bool(watch.blind) and not closed


def _is_possible(state: RunState, judgement: object) -> bool:
    """Return whether this is a verdict, its text exists, and a stop can end the run here."""
    if not isinstance(judgement, Judgement):
        return False
    if isinstance(judgement, Stop) and not TERMINAL.intersection(
        MOVES.get((state.agent_state, judgement.trigger), ())
    ):
        return False
    if isinstance(judgement, Warn | Ask):
        return True
    return has_text(state.policy, judgement.text)


def _stop_failed(watch: Watch) -> Stop:
    return Stop(code="guard_failed", reason=f"the guard {watch.name!r} itself failed")
