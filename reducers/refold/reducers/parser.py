"""Policies from plain data, as read from TOML, YAML or JSON. Every error has the path and the value.

Only this module normalises aliases and spellings. The result is canonical, with presets expanded, names
filled in and every text for the model included. `run_started` records it.
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
from refold.reducers.overlay import Setting, apply_environment, merge_layers, name_of_entry, set_value
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
# The language's value for a missing key, where the Struct's default keeps the meaning of older logs.
_DEFAULTS: Mapping[str, Any] = {"truncation": {}, "stream": {}, "empty": {}}
# Lists that a setting adds entries to, with their defaults: an added limit removes none.
_LISTS: Mapping[str, Any] = {"limits": msgspec.to_builtins(Policy().limits), "history": [], "guards": []}
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


def parse(data: Any, registry: Registry = BUILTIN, *, strict_guards: bool = True) -> Policy:
    """Parse `data` into a policy in canonical form.

    `data` is a mapping of plain values; if it has a `preset`, the other keys override that preset. With
    `strict_guards`, a guard missing in `registry` is an error. Raises `PolicyError` with the path, what was
    expected and what was found.
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
    """As `parse`, with environment variables (`REFOLD_*`) for keys missing in `data`, then `settings`.

    Returns the policy and what variables set, as `limits.time: REFOLD_TIME_LIMIT`. `agent` selects variables
    for one agent. `settings` override everything else; a guard that they add must be installed.
    """
    try:
        whole, given, notes = _expand(data, environment, agent)
        whole = _apply_settings(whole, settings)
        try:
            policy = _convert(whole)
            recorded = () if strict_guards else _children(given.get("guards")).values()
            policy = _canonicalise(policy, registry, [_children(each).get("guard") for each in recorded])
        except PolicyError as error:
            raise PolicyError(_original_path(error.path, whole, given), error.problem) from error
    except PolicyError as error:
        raise type(error)(brief(error.path), brief(error.problem)) from error
    return policy, notes


def _expand(
    data: Any, environment: Mapping[str, str], agent: str
) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """Return the plain data of the whole policy, the given part of it, and what the environment set."""
    if not isinstance(data, Mapping):
        preset = f"; a preset is {{'preset': '{data}'}}" if isinstance(data, str) and data in PRESETS else ""
        raise PolicyError("", f"a policy is a mapping, got {shown(data)}{preset}")
    given = dict(cast("Mapping[str, Any]", data))
    _check_values(given, "")
    base = _base(given.pop("preset", None))
    if "limits" in given:
        given["limits"] = _normalise_limits(given["limits"], base.get("limits", ()))
    whole = _empty_null_lists({**_LISTS, **merge_layers(base, given)})
    whole, notes = apply_environment(environment, whole, given, agent)
    return whole, given, notes


def _apply_settings(whole: dict[str, Any], settings: Iterable[Setting]) -> dict[str, Any]:
    for path, value in settings:
        _check_values(value, ".".join(path))
        _refuse_plural(whole, path)
        whole = _empty_null_lists(set_value(whole, path, value))
        whole["limits"] = _normalise_limits(whole["limits"])
    return whole


def _refuse_plural(whole: Mapping[str, Any], path: Sequence[str]) -> None:
    """Refuse the plural of a limit's type, which would add a second limit of that type."""
    meant = _PLURALS.get(path[1]) if len(path) > 1 and path[0] == "limits" else None
    if meant and path[1] not in map(name_of_entry, whole["limits"]):
        raise PolicyError(f"limits.{path[1]}", f"unknown limit {path[1]!r}; did you mean limits.{meant}?")


def _empty_null_lists(whole: dict[str, Any]) -> dict[str, Any]:
    return {**whole, **{key: [] for key in _LISTS if whole[key] is None}}


def _normalise_limits(limits: Any, base: Iterable[Mapping[str, Any]] = ()) -> Any:
    """Convert limits to their canonical spelling; an override of a preset's limit gets that limit's type."""
    if not isinstance(limits, list | tuple):
        return limits
    types = {name_of_entry(limit): limit["type"] for limit in base}
    return [
        _normalise_limit(place, limit, types) for place, limit in enumerate(cast("Iterable[Any]", limits))
    ]


def checked(policy: Policy, registry: Registry = BUILTIN) -> Policy:
    """Validate a policy built in Python like a parsed one; return a parsed one unchanged.

    Raises `PolicyError`.
    """
    return policy if registry in policy.checked_with else parse(msgspec.to_builtins(policy), registry)


def _base(preset: Any) -> dict[str, Any]:
    if preset is None:
        return dict(_DEFAULTS)
    if not isinstance(preset, str):
        raise PolicyError("preset", f"expected the name of a preset, got {shown(preset)}")
    if preset not in PRESETS:
        raise PolicyError("preset", f"unknown preset {shown(preset)}{nearest(preset, PRESETS)}")
    return preset_data(preset)


def _convert(plain: dict[str, Any]) -> Policy:
    try:
        return msgspec.convert(plain, Policy)
    except msgspec.ValidationError as error:
        raise refusal(error, plain, Policy) from error


def _canonicalise(policy: Policy, registry: Registry, kept: Collection[Any]) -> Policy:
    """Fill in names, guards and texts. Raises `PolicyError` if the policy cannot work."""
    guards = [
        _complete_guard(f"guards[{place}]", config, registry, kept)
        for place, config in enumerate(policy.guards)
    ]
    premature, approvals = policy.premature_end, policy.approvals
    if premature is not None:
        premature = _complete_guard("premature_end", {**premature, "guard": "premature_end"}, OWN)
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
        guards.insert(0, _complete_guard("approvals", {"guard": "handoff"}, registry))
        kinds.add("handoff")
    texts = _collect_texts(policy, kinds, registry)
    policy = msgspec.structs.replace(policy, guards=tuple(guards), texts=texts)
    if kinds <= registry.keys():  # else a guard is not installed and not validated
        policy.checked_with.append(registry)
    return policy


def _collect_texts(policy: Policy, kinds: Collection[str], registry: Registry) -> dict[str, str]:
    """Return all texts that a policy with guards of these kinds can send; its own override the built-in."""
    own = {"premature_end": policy.premature_end, "approvals": policy.approvals}
    named = {*kinds, *[key for key, value in own.items() if value]}
    texts = {**_texts_of_tiers(policy), **TEXTS, **_texts_of_guards(named, {**registry, **OWN})}
    for key in policy.texts:
        if key not in texts:
            raise PolicyError(f"texts.{key}", f"unknown text{nearest(key, texts)}")
    return {**texts, **policy.texts}


def _texts_of_guards(kinds: set[str], registry: Registry) -> dict[str, str]:
    """Return the texts of these kinds of guards; each can be overridden."""
    texts: dict[str, str] = {}
    for kind in sorted(kinds & set(registry)):
        brought: Mapping[str, str] = getattr(registry[kind], "texts", {})
        for key, text in brought.items():
            if key in TEXTS or key in texts:
                raise PolicyError(
                    f"texts.{key}", f"the guard {kind!r} defines a text that exists already; rename it there"
                )
            texts[key] = text
    return texts


def _texts_of_tiers(policy: Policy) -> dict[str, str]:
    """Return the default texts of tiers with other names: a warning for the last, else caution."""
    keys = [f"pressure:{tier.name}" for tier in policy.pressure.tiers] if policy.pressure else []
    return {key: TEXTS["pressure:warning" if key == keys[-1] else "pressure:caution"] for key in keys}


def _normalise_limit(place: int, limit: Any, types: Mapping[str, str]) -> Any:
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


def _complete_guard(
    path: str, config: GuardConfig, registry: Registry, kept: Collection[Any] = ()
) -> GuardConfig:
    """Return the complete configuration of a guard. One of a kind in `kept` may be missing in the registry,
    and stays unchanged.
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
    guard = getattr(guard, "complete", lambda: guard)()
    for place, problem in faults_of(guard, path):
        raise PolicyError(place, problem)
    complete: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(guard))  # lists, as read from a log
    return {**complete, "name": complete.get("name") or kind}


def _original_path(path: str, whole: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return the path in the given data, where entries that override a preset's have other positions."""
    match = re.match(r"(limits|guards)\[(\d+)\]", path)
    if match is None or not isinstance(given.get(match[1]), list | tuple):
        return path
    name = name_of_entry(whole[match[1]][int(match[2])])
    places = [place for place, entry in enumerate(given[match[1]]) if name_of_entry(entry) == name]
    return f"{match[1]}[{places[-1]}]{path[match.end() :]}" if places else path


# The language nests six levels deep; a guard's own configuration may nest deeper.
_MAX_DEPTH = 50
_MAX_INT = 2**63 - 1


def _find_problem(value: object) -> str:
    if isinstance(value, int) and not -_MAX_INT <= value <= _MAX_INT:
        return f"expected a number of at most 64 bits, {_MAX_INT}, or null for unlimited"
    # JSON has no infinity and would write null; unlimited must be written as null explicitly.
    if isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, or null for unlimited, got {value}"
    if isinstance(value, str) and clean(value) != value:
        return f"expected text, got an unpaired surrogate: {shown(value)}"
    return ""


def _check_values(value: object, path: str, depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise PolicyError(path, f"nested too deeply: a policy has at most {_MAX_DEPTH} levels")
    if problem := _find_problem(value):
        raise PolicyError(path, problem)
    for step, inner in _children(value).items():
        if isinstance(value, dict) and not isinstance(step, str):
            raise PolicyError(path, f"expected text keys, got {shown(step)}")
        _check_values(
            inner, f"{path}[{step}]" if isinstance(step, int) else joined(path, str(step)), depth + 1
        )


def _children(value: object) -> dict[Any, Any]:
    listing = _LISTINGS.get(type(value))
    return listing(value) if listing else {}


def _index(values: Iterable[Any]) -> dict[Any, Any]:
    return dict(enumerate(values))


_LISTINGS: dict[type, Callable[[Any], dict[Any, Any]]] = {dict: dict, list: _index, tuple: _index}
