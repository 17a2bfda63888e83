"""Policies from plain data, as a TOML, YAML or JSON reader gives it; every refusal names path and value.

Aliases and spellings are normalised here and nowhere else: what comes out is canonical, with presets laid
out, names filled in and every text to the model in place, and is what `run_started` records.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import msgspec

from refold.reducers.approvals import WITH_HANDOFF, resolved
from refold.reducers.complaints import refuse
from refold.reducers.errors import PolicyError, brief, faults_of, joined, nearest, refusal, shown
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import OWN
from refold.reducers.limits import name_of
from refold.reducers.overlay import Setting, from_environment, laid_over, name_of_entry, with_value
from refold.reducers.policy import GuardConfig, Policy
from refold.reducers.presets import PRESETS, preset_data
from refold.reducers.text import TEXTS, clean

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "time": ("seconds", "limit"),
    "step": ("max", "limit"),
    "message": ("max", "limit", "messages"),
    "token": ("max", "limit", "tokens"),
    "cost": ("max", "limit"),
}
_PLURALS = {"steps": "step", "messages": "message", "tokens": "token"}
# What the language takes for a key that nobody wrote, where the Struct's default means "as before there was
# one".
_DEFAULTS: Mapping[str, Any] = {"truncation": {}, "stream": {}, "empty": {}}
# The lists that entries are added to, as they are where nobody wrote them: one limit more takes none away.
_LISTS: Mapping[str, Any] = {"limits": msgspec.to_builtins(Policy().limits), "history": [], "guards": []}
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


def parse(data: Any, registry: Registry = BUILTIN, *, strict_guards: bool = True) -> Policy:
    """The policy that `data` says, in canonical form.

    `data` is a mapping of plain values; a `preset` in it is what the rest is laid over. Raises `PolicyError`,
    which names the path, what was expected and what stood there. With `strict_guards` a guard that `registry`
    lacks is refused.
    """
    return parse_with(data, _NO_ENVIRONMENT, registry, strict_guards=strict_guards)[0]


def parse_with(
    data: Any,
    environment: Mapping[str, str],
    registry: Registry = BUILTIN,
    *,
    agent: str = "",
    settings: Iterable[Setting] = (),
    strict_guards: bool = True,
) -> tuple[Policy, tuple[str, ...]]:
    """As `parse`, with environment variables (`REFOLD_*`) for what `data` does not say, and what they set;
    then `settings`.

    The notes read `limits.time: REFOLD_TIME_LIMIT`. `agent` is the name for which variables may be. Each of
    `settings` lays a value over what all the others have said; a guard that it adds must be installed.
    """
    try:
        whole, given, notes = _laid_out(data, environment, agent)
        whole = _with_settings(whole, settings)
        try:
            policy = _converted(whole)
            recorded = () if strict_guards else _inside(given.get("guards")).values()
            policy = _canonical(policy, registry, [_inside(each).get("guard") for each in recorded])
        except PolicyError as error:
            raise PolicyError(_as_given(error.path, whole, given), error.problem) from error
    except PolicyError as error:
        raise type(error)(brief(error.path), brief(error.problem)) from error
    return policy, notes


def _laid_out(
    data: Any, environment: Mapping[str, str], agent: str
) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """The plain data of the whole policy, what of it was given, and what the environment set."""
    if not isinstance(data, Mapping):
        preset = f"; a preset is {{'preset': '{data}'}}" if isinstance(data, str) and data in PRESETS else ""
        raise PolicyError("", f"a policy is a mapping, got {shown(data)}{preset}")
    given = dict(cast("Mapping[str, Any]", data))
    _sound(given, "")
    base = _base(given.pop("preset", None))
    if "limits" in given:
        given["limits"] = _spelt(given["limits"], base.get("limits", ()))
    whole = _listed({**_LISTS, **laid_over(base, given)})
    whole, notes = from_environment(environment, whole, given, agent)
    return whole, given, notes


def _with_settings(whole: dict[str, Any], settings: Iterable[Setting]) -> dict[str, Any]:
    for path, value in settings:
        _sound(value, ".".join(path))
        _refuse_plural(whole, path)
        whole = _listed(with_value(whole, path, value))
        whole["limits"] = _spelt(whole["limits"])
    return whole


def _refuse_plural(whole: Mapping[str, Any], path: Sequence[str]) -> None:
    """Refuse a limit by the plural of its type: a second limit of that type would be meant by nobody."""
    meant = _PLURALS.get(path[1]) if len(path) > 1 and path[0] == "limits" else None
    if meant and path[1] not in map(name_of_entry, whole["limits"]):
        raise PolicyError(f"limits.{path[1]}", f"there is no limit {path[1]!r}; did you mean limits.{meant}?")


def _listed(whole: dict[str, Any]) -> dict[str, Any]:
    return {**whole, **{key: [] for key in _LISTS if whole[key] is None}}


def _spelt(limits: Any, base: Iterable[Mapping[str, Any]] = ()) -> Any:
    """Limits in their canonical spelling; of one that is laid over a preset's by its name, the type is that
    one's.
    """
    if not isinstance(limits, list | tuple):
        return limits
    types = {name_of_entry(limit): limit["type"] for limit in base}
    return [_limit(place, limit, types) for place, limit in enumerate(cast("Iterable[Any]", limits))]


def checked(policy: Policy, registry: Registry = BUILTIN) -> Policy:
    """A policy that was built in Python, validated as one that was read; one that was read is itself.

    Raises `PolicyError`.
    """
    return policy if registry in policy.checked_with else parse(msgspec.to_builtins(policy), registry)


def _base(preset: Any) -> dict[str, Any]:
    if preset is None:
        return dict(_DEFAULTS)
    if not isinstance(preset, str):
        raise PolicyError("preset", f"expected the name of a preset, got {shown(preset)}")
    if preset not in PRESETS:
        raise PolicyError("preset", f"there is no preset {shown(preset)}{nearest(preset, PRESETS)}")
    return preset_data(preset)


def _converted(plain: dict[str, Any]) -> Policy:
    try:
        return msgspec.convert(plain, Policy)
    except msgspec.ValidationError as error:
        raise refusal(error, plain, Policy) from error


def _canonical(policy: Policy, registry: Registry, kept: Collection[Any]) -> Policy:
    """The policy with names filled in, guards complete, texts in place; refused where it cannot work."""
    guards = [
        _guard(f"guards[{place}]", config, registry, kept) for place, config in enumerate(policy.guards)
    ]
    premature, approvals = policy.premature_end, policy.approvals
    if premature is not None:
        premature = _guard("premature_end", {**premature, "guard": "premature_end"}, OWN)
    policy = msgspec.structs.replace(
        policy,
        limits=tuple(msgspec.structs.replace(limit, name=name_of(limit)) for limit in policy.limits),
        guards=tuple(guards),
        premature_end=premature,
        approvals=None if approvals is None else resolved(approvals),
    )
    refuse(policy)
    kinds = {guard["guard"] for guard in guards}
    if approvals and approvals.preset in WITH_HANDOFF and "handoff" not in kinds:
        guards.insert(0, _guard("approvals", {"guard": "handoff"}, registry))
        kinds.add("handoff")
    texts = _texts_for(policy, kinds, registry)
    policy = msgspec.structs.replace(policy, guards=tuple(guards), texts=texts)
    if kinds <= registry.keys():  # one that is not installed was only kept
        policy.checked_with.append(registry)
    return policy


def _texts_for(policy: Policy, kinds: Collection[str], registry: Registry) -> dict[str, str]:
    """Return all texts that a policy with guards of these kinds can show, its own instead of the built-in."""
    own = {"premature_end": policy.premature_end, "approvals": policy.approvals}
    named = {*kinds, *[key for key, value in own.items() if value]}
    texts = {**_texts_of_tiers(policy), **TEXTS, **_texts_of(named, {**registry, **OWN})}
    for key in policy.texts:
        if key not in texts:
            raise PolicyError(f"texts.{key}", f"no such text{nearest(key, texts)}")
    return {**texts, **policy.texts}


def _texts_of(kinds: set[str], registry: Registry) -> dict[str, str]:
    """The texts that these kinds of guards bring along; each may be overridden like any other."""
    texts: dict[str, str] = {}
    for kind in sorted(kinds & set(registry)):
        brought: Mapping[str, str] = getattr(registry[kind], "texts", {})
        for key, text in brought.items():
            if key in TEXTS or key in texts:
                raise PolicyError(
                    f"texts.{key}", f"the guard {kind!r} brings it, and it is taken; rename it there"
                )
            texts[key] = text
    return texts


def _texts_of_tiers(policy: Policy) -> dict[str, str]:
    """What tiers of other names say unless the policy does: the last one warns, those before it caution."""
    keys = [f"pressure:{tier.name}" for tier in policy.pressure.tiers] if policy.pressure else []
    return {key: TEXTS["pressure:warning" if key == keys[-1] else "pressure:caution"] for key in keys}


def _limit(place: int, limit: Any, types: Mapping[str, str]) -> Any:
    if not isinstance(limit, Mapping):
        return limit
    plain = dict(cast("Mapping[str, Any]", limit))
    if "kind" in plain:
        if "type" in plain:
            raise PolicyError(f"limits[{place}]", "both 'type' and 'kind' are given; write 'type' only")
        plain["type"] = plain.pop("kind")
    kind = plain.get("type", types.get(name_of_entry(plain)))
    if isinstance(kind, str):
        kind = kind.strip().lower()
        plain["type"] = _PLURALS.get(kind, kind)
    spellings = [key for key in ("value", *_ALIASES.get(str(plain.get("type")), ())) if key in plain]
    if len(spellings) > 1:
        raise PolicyError(
            f"limits[{place}]", f"both {spellings[0]!r} and {spellings[1]!r} are given; write 'value' only"
        )
    if spellings:
        plain["value"] = plain.pop(spellings[0])
    return plain


def _guard(path: str, config: GuardConfig, registry: Registry, kept: Collection[Any] = ()) -> GuardConfig:
    """The configuration of a guard, complete; one of a kind in `kept` may lack in the registry, and stays as
    it is.
    """
    kind = config.get("guard")
    if not isinstance(kind, str):
        raise PolicyError(f"{path}.guard", f"expected the name of a guard, got {shown(kind)}")
    if kind not in registry:
        if kind not in kept:
            raise PolicyError(f"{path}.guard", f"no guard {kind!r} is installed{nearest(kind, registry)}")
        return {**config, "name": config.get("name") or kind}
    try:
        guard = msgspec.convert(config, registry[kind])
    except msgspec.ValidationError as error:
        raise refusal(error, config, registry[kind], path) from error
    for place, problem in faults_of(guard, path):
        raise PolicyError(place, problem)
    complete: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(guard)
    )  # lists, as in a log that is read
    return {**complete, "name": complete.get("name") or kind}


def _as_given(path: str, whole: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The path in what was given, where entries were laid over those of a preset and so have other places."""
    match = re.match(r"(limits|guards)\[(\d+)\]", path)
    if match is None or not isinstance(given.get(match[1]), list | tuple):
        return path
    name = name_of_entry(whole[match[1]][int(match[2])])
    places = [place for place, entry in enumerate(given[match[1]]) if name_of_entry(entry) == name]
    return f"{match[1]}[{places[-1]}]{path[match.end() :]}" if places else path


# The language itself nests six deep; a guard's own configuration may nest deeper.
_DEEPEST = 50
_MOST = 2**63 - 1


def _problem(value: object) -> str:
    if isinstance(value, int) and not -_MOST <= value <= _MOST:
        return f"expected a number of at most 64 bits, {_MOST}, or null for unlimited"
    # JSON has no word for infinity, and would write null: unlimited is said as null, on purpose.
    if isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, or null for unlimited, got {value}"
    if isinstance(value, str) and clean(value) != value:
        return f"expected text, got half a character: {shown(value)}"
    return ""


def _sound(value: object, path: str, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise PolicyError(path, f"it is nested too deeply to be a policy: {_DEEPEST} deep is the most")
    if problem := _problem(value):
        raise PolicyError(path, problem)
    for step, inner in _inside(value).items():
        if isinstance(value, dict) and not isinstance(step, str):
            raise PolicyError(path, f"expected keys that are text, got {shown(step)}")
        _sound(inner, f"{path}[{step}]" if isinstance(step, int) else joined(path, str(step)), depth + 1)


def _inside(value: object) -> dict[Any, Any]:
    listing = _INSIDE.get(type(value))
    return listing(value) if listing else {}


def _numbered(values: Iterable[Any]) -> dict[Any, Any]:
    return dict(enumerate(values))


_INSIDE: dict[type, Callable[[Any], dict[Any, Any]]] = {dict: dict, list: _numbered, tuple: _numbered}
