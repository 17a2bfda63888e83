"""Policies from plain data, as a TOML, YAML or JSON reader gives it; every refusal names path and value.

Aliases and spellings are normalised here and nowhere else: what comes out is canonical, with names filled in
and every text to the model in place, and is what `run_started` records.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from refold.reducers.choices import choices
from refold.reducers.errors import PolicyError
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.limits import MessageLimit, TokenLimit, name_of
from refold.reducers.policy import Policy
from refold.reducers.text import clean
from refold.reducers.texts import TEXTS

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "time": ("seconds", "limit"),
    "step": ("max", "limit"),
    "message": ("max", "limit", "messages"),
    "token": ("max", "limit", "tokens"),
    "cost": ("max", "limit"),
}
_PLURALS = {"steps": "step", "messages": "message", "tokens": "token"}
_MESSAGE = re.compile(r"^(?P<said>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_GOT = re.compile(r", got `[^`]*`$")
_SHOWN = 80


def parse(data: Any, registry: Registry = BUILTIN, *, strict_guards: bool = True) -> Policy:
    """The policy that `data` says, in canonical form.

    `data` is a mapping of plain values. Raises `PolicyError`, which names the path, what was expected and what
    stood there. With `strict_guards` a guard that `registry` lacks is refused.
    """
    if not isinstance(data, Mapping):
        raise PolicyError("", f"a policy is a mapping, got {_shown(data)}")
    plain = dict(cast("Mapping[str, Any]", data))
    if isinstance(plain.get("limits"), list | tuple):
        plain["limits"] = [_limit(place, limit) for place, limit in enumerate(plain["limits"])]
    _sound(plain, "")
    try:
        policy = msgspec.convert(plain, Policy)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), plain, Policy) from error
    return canonical(policy, registry, strict_guards=strict_guards)


def checked(policy: Policy, registry: Registry = BUILTIN) -> Policy:
    """A policy that was built in Python, validated as one that was read. Raises `PolicyError`."""
    return parse(msgspec.to_builtins(policy), registry)


def canonical(policy: Policy, registry: Registry = BUILTIN, *, strict_guards: bool = True) -> Policy:
    """The policy with names filled in, guards complete, texts in place; refused where it cannot work."""
    limits = tuple(msgspec.structs.replace(limit, name=name_of(limit)) for limit in policy.limits)
    _unique("limits", [limit.name for limit in limits])
    _unique("history", [step.name for step in policy.history])
    guards = tuple(
        _guard(place, dict(config), registry, strict_guards) for place, config in enumerate(policy.guards)
    )
    _unique("guards", [guard["name"] for guard in guards])
    for place, limit in enumerate(limits):
        of_window = isinstance(limit, MessageLimit) or (
            isinstance(limit, TokenLimit) and limit.measure == "estimate"
        )
        if of_window and limit.scope != "run":
            raise PolicyError(
                f"limits[{place}].scope", "it counts the window, whatever the scope; leave it out"
            )
    texts = {**TEXTS, **_texts_of(guards, registry)}
    for key in policy.texts:
        if key not in texts:
            raise PolicyError(f"texts.{key}", f"no such text{_nearest(key, texts)}")
    return msgspec.structs.replace(policy, limits=limits, guards=guards, texts={**texts, **policy.texts})


def _texts_of(guards: tuple[dict[str, Any], ...], registry: Registry) -> dict[str, str]:
    """The texts that the policy's guards bring along; each may be overridden like any other."""
    texts: dict[str, str] = {}
    for kind in sorted({guard["guard"] for guard in guards} & set(registry)):
        brought: Mapping[str, str] = getattr(registry[kind], "texts", {})
        for key, text in brought.items():
            if key in TEXTS or key in texts:
                raise PolicyError(
                    f"texts.{key}", f"the guard {kind!r} brings it, and it is taken; rename it there"
                )
            texts[key] = text
    return texts


def _limit(place: int, limit: Any) -> Any:
    if not isinstance(limit, Mapping):
        return limit
    plain = dict(cast("Mapping[str, Any]", limit))
    if "kind" in plain:
        if "type" in plain:
            raise PolicyError(f"limits[{place}]", "both 'type' and 'kind' are given; write 'type' only")
        plain["type"] = plain.pop("kind")
    kind = plain.get("type")
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


def _guard(place: int, config: dict[str, Any], registry: Registry, strict: bool) -> dict[str, Any]:  # noqa: FBT001
    kind = config.get("guard")
    if not isinstance(kind, str):
        raise PolicyError(f"guards[{place}].guard", f"expected the name of a guard, got {_shown(kind)}")
    if kind not in registry:
        if strict:
            raise PolicyError(
                f"guards[{place}].guard", f"no guard {kind!r} is installed{_nearest(kind, registry)}"
            )
        return {**config, "name": config.get("name") or kind}
    try:
        guard = msgspec.convert(config, registry[kind])
    except msgspec.ValidationError as error:
        raise _refusal(str(error), config, registry[kind], f"guards[{place}]") from error
    complete: dict[str, Any] = msgspec.to_builtins(guard)
    return {**complete, "name": complete.get("name") or kind}


def _sound(value: object, path: str) -> None:
    # JSON has no word for infinity, and would write null: unlimited is said as null, on purpose.
    if isinstance(value, float) and not math.isfinite(value):
        raise PolicyError(path, f"expected a finite number, or null for unlimited, got {value}")
    if isinstance(value, str) and clean(value) != value:
        raise PolicyError(path, f"expected text, got half a character: {_shown(value)}")
    for step, inner in _inside(value).items():
        _sound(inner, f"{path}[{step}]" if isinstance(step, int) else _joined(path, str(step)))


def _inside(value: object) -> dict[Any, Any]:
    listing = _INSIDE.get(type(value))
    return listing(value) if listing else {}


def _numbered(values: Iterable[Any]) -> dict[Any, Any]:
    return dict(enumerate(values))


_INSIDE: dict[type, Callable[[Any], dict[Any, Any]]] = {dict: dict, list: _numbered, tuple: _numbered}


def _unique(where: str, names: list[str]) -> None:
    for place, name in enumerate(names):
        if not name.isprintable():
            raise PolicyError(
                f"{where}[{place}].name", f"expected one line of printable text, got {_shown(name)}"
            )
        if name in names[:place]:
            raise PolicyError(
                f"{where}[{place}].name", f"{name!r} is taken by another one; give this one a name"
            )


def _refusal(said: str, data: Any, model: type, prefix: str = "") -> PolicyError:
    match = _MESSAGE.match(said)
    assert match is not None
    path = (match["path"] or "$").removeprefix("$").removeprefix(".")
    problem = match["said"][:1].lower() + match["said"][1:]
    full = f"{prefix}.{path}" if prefix and path else prefix or path
    if problem.startswith("object contains unknown field"):
        return PolicyError(_joined(full, problem.split("`")[1]), "unknown key")
    if problem.startswith("object missing required field"):
        return PolicyError(_joined(full, problem.split("`")[1]), "missing; it is required")
    value = _at(data, path)
    if problem.startswith("invalid"):
        known = ", ".join(choices(model, path))
        return PolicyError(full, f"expected one of {known}, got {_shown(value)}")
    return PolicyError(full, f"{_plainly(_GOT.sub('', problem))}, got {_shown(value)}")


def _plainly(problem: str) -> str:
    names = {
        "`int | float | null`": "a number or null",
        "`int | null`": "a whole number or null",
        "`int`": "a whole number",
        "`float`": "a number",
    }
    for technical, plain in {
        **names,
        "`str`": "text",
        "`bool`": "true or false",
        "`array`": "a list",
        "`object`": "a mapping",
    }.items():
        problem = problem.replace(technical, plain)
    return problem


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _at(data: Any, path: str) -> Any:
    found: Any = data
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            found = found[int(step) if step.isdecimal() else step]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return found


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr, ensure_ascii=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
