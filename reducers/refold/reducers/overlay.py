"""Precedence of policy sources: settings over a file over environment variables over a preset.

Variables set only keys that neither a file nor an argument gives; a variable for another key is not read.
Blank means unset, and so do zero and negative numbers, unless the table below says otherwise.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import msgspec

from refold.reducers.errors import NoSuchEntry, PolicyError, meant

# Mappings that have only one key; another key replaces the first.
_ONE_OF = frozenset({"jitter", "approvals"})

# Lists with named entries: the word for an entry, and the key that selects the kind of a new one. A
# compaction step's name does not imply its kind.
_NAMED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"limits": ("limit", "type"), "guards": ("guard", "guard"), "history": ("compaction step", "")}
)

Setting = tuple[Sequence[str], Any]
"""A path into a policy, and the value to set there."""


def merge_layers(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `over`: plain data of policies, with limits in canonical spelling.

    Mappings merge key by key, `limits` and `guards` by `name_of_entry`; any other list is replaced, and
    `null` switches a key off. An entry of `guards` with a name and `guard: null` removes that guard.
    """
    laid = {**base, **{key: _merge(base.get(key), value, key) for key, value in over.items()}}
    for key in {"limits", "guards"} & set(over):
        if isinstance(base.get(key), list | tuple) and isinstance(over[key], list | tuple):
            laid[key] = _merge_by_name(list(base[key]), list(over[key]))
    return laid


def set_value(base: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return `base` with `value` merged at `path`: `("retry", "attempts")`, `("limits", "step", "value")`.

    In `limits`, `guards` and `history` the second step is an entry's name. A missing entry is added, of the
    kind that its name implies; `null` removes an entry. Raises `NoSuchEntry` for a missing entry to remove,
    and for a missing compaction step.
    """
    if len(path) > 1 and path[-2] in _ONE_OF:
        path, value = path[:-1], {path[-1]: value}
    what, data = path[0], dict(base)
    if what in _NAMED and len(path) > 1:
        entries: list[Any] = list(data.get(what) or ())
        if path[1] not in map(name_of_entry, entries):
            entries.append(_new_entry(entries, path, value))
        data[what] = entries
    changed: dict[str, Any] = _put(data, path, value)
    return changed


def _new_entry(entries: list[Any], path: Sequence[str], value: Any) -> dict[str, str]:
    word, kind = _NAMED[path[0]]
    removes = value is None and len(path) == 2
    if removes or not kind:
        there = ", ".join(filter(None, map(name_of_entry, entries))) or "none with a name"
        way_out = "; leave this out" if removes else ""
        problem = f"the policy has no {word} {path[1]!r} to {'remove' if removes else 'set'}; it has {there}{way_out}"
        raise NoSuchEntry(".".join(path), problem)
    return {kind: path[1]}


def _put(data: Any, path: Sequence[str], value: Any) -> Any:
    if isinstance(data, list | tuple) and path:
        entries = cast("Iterable[Any]", data)
        changed = [
            _put(entry, path[1:], value) if name_of_entry(entry) == path[0] else entry for entry in entries
        ]
        return [entry for entry in changed if entry is not None]
    inner = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    if len(path) == 1:
        return merge_layers(inner, {path[0]: value})
    return {**inner, path[0]: _put(inner.get(path[0]), path[1:], value)} if path else _merge(data, value, "")


def name_of_entry(entry: object) -> str:
    """Return the name of an entry of `limits`, `guards` or `history`, else its kind; "" for other values."""
    if not isinstance(entry, Mapping):
        return ""
    plain = cast("Mapping[str, Any]", entry)
    kind = plain.get("type") or plain.get("guard") or plain.get("do") or ""
    estimate = kind == "token" and plain.get("measure") == "estimate"
    return str(plain.get("name") or ("token_estimate" if estimate else kind))


def _merge_by_name(base: list[Any], over: list[Any]) -> list[Any]:
    """Merge entries by name: each of the base with the first of its name, then the rest of `over`.

    A second entry with the same name is kept, so that validation can refuse it.
    """
    rest, merged = list(over), list[Any]()
    for entry in base:
        name = name_of_entry(entry)
        patch = next((one for one in rest if name and name_of_entry(one) == name), None)
        if patch is not None:
            rest.remove(patch)
            if patch.get("guard", entry) is None:
                continue
        merged.append(entry if patch is None else _merge(entry, patch, ""))
    return merged + rest


def _merge(base: Any, over: Any, key: str) -> Any:
    if key in _ONE_OF or not all(map(_is_mapping, (base, over))):
        return over
    return {**base, **{inner: _merge(base.get(inner), value, inner) for inner, value in over.items()}}


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


Plain = dict[str, Any]

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_WHOLE = re.compile(r"[+-]?0*[0-9]{1,15}")
_DECIMAL = re.compile(r"[+-]?(?=\.?[0-9])0*[0-9]{0,9}(?:\.[0-9]{0,9})?")
_PREFIX, _LIMIT_PREFIX = "REFOLD_", "REFOLD_LIMIT_"

READ_ELSEWHERE = (
    "REFOLD_STORE", "REFOLD_MODEL", "REFOLD_MODELS", "REFOLD_BASE_URL", "REFOLD_API_KEY", "REFOLD_PRUNE_LOG",
    "REFOLD_OFFLINE",
)  # fmt: skip
"""Variables of refold that are not about policies."""


def apply_environment(
    environment: Mapping[str, str], policy: Plain, given: Plain, agent: str = ""
) -> tuple[Plain, tuple[str, ...]]:
    """Return (`policy` with what the environment sets, notes such as `limits.time: REFOLD_TIME_LIMIT`).

    `policy` is the plain data of the whole policy: preset, overridden by what was given. `given` is what file
    and arguments set, which no variable changes. Limits are in canonical spelling. Raises `PolicyError`, with
    the variable's name, for an invalid value and for a compaction step that the policy lacks.
    """
    notes: dict[str, str] = {}
    for variable in (*_VARIABLES, *_agent_variables(environment, agent)):
        text = environment.get(variable.name, "").strip()
        if not text or _is_given(given, variable):
            continue
        value = _read_variable(variable, text)
        if value is not msgspec.UNSET:
            policy = _set(policy, variable, value)
            notes[variable.knob.removesuffix(".value")] = variable.name
    return policy, tuple(f"{knob}: {name}" for knob, name in notes.items())


def find_ignored_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Describe variables without effect: limits of zero or less, and `REFOLD_*` names that nothing reads."""
    given = [(each, environment.get(each.name, "").strip()) for each in _LIMITS.values()]
    unset = [
        f"{each.name}={text} sets no limit: zero or less counts as unset"
        for each, text in given
        if text and _sets_nothing(each, text)
    ]
    names = {*(each.name for each in _VARIABLES), *READ_ELSEWHERE}
    unread = sorted(environment.keys() - names)
    strange = [name for name in unread if name.startswith(_PREFIX) and not name.startswith(_LIMIT_PREFIX)]
    return (*unset, *(f"{name}: unknown variable, ignored{_suggestion(name, names)}" for name in strange))


def _sets_nothing(variable: "_Variable", text: str) -> bool:
    try:
        return variable.meaning(variable.parse(text)) is msgspec.UNSET
    except ValueError:  # reported where it is read
        return False


def _suggestion(name: str, names: Iterable[str]) -> str:
    near = meant(name.removeprefix(_PREFIX), [each.removeprefix(_PREFIX) for each in names])
    return f"; did you mean {_PREFIX}{near}?" if near else ""


def flag(environment: Mapping[str, str], name: str) -> bool | None:
    """Return whether a variable is on or off; None if unset. Raises `PolicyError` for any other text."""
    text = environment.get(name, "").strip()
    return _read_variable(_Variable(name, "", _flag, bool), text) if text else None


def slug(agent: str) -> str:
    """Return an agent's name as variables spell it: lower case, other than letters and digits as one `_`."""
    return re.sub(r"[\W_]+", "_", agent.lower())


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("a whole number of at most 15 digits")
    return int(text)


def _decimal(text: str) -> float:
    if not _DECIMAL.fullmatch(text):
        raise ValueError("a number of at most 9 digits before the point and 9 after it")
    return float(text) if "." in text else int(text)


def _flag(text: str) -> bool:
    if text.lower() not in _ON + _OFF:
        raise ValueError(f"one of {', '.join(_ON + _OFF)}")
    return text.lower() in _ON


def _preset(text: str) -> Plain:
    if text not in {"ci", "dev", "prod"}:
        raise ValueError("one of ci, dev, prod")
    return {"preset": text}


def _positive(value: float) -> Any:
    return value if value > 0 else msgspec.UNSET


def _not_negative(value: float) -> Any:
    return value if value >= 0 else msgspec.UNSET


def _add_jitter(seconds: float) -> Any:
    return {"add": seconds} if seconds >= 0 else msgspec.UNSET


def _or_off(messages: int) -> int | None:
    return max(messages, 0) or None


def _not_below_zero(messages: int) -> int:
    return max(messages, 0)


def _cap(size: int) -> int | None:
    if size < 0:
        raise ValueError("0 for no maximum, or a positive number")
    return size or None


def _bytes_if_set(size: int) -> Any:
    return "bytes" if size > 0 else msgspec.UNSET


def _fraction(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("a fraction between 0 and 1, exclusive")
    return value


class _Variable(NamedTuple):
    """A variable and the policy key that it sets, with the parser of its text and of its meaning (UNSET: not
    set).

    It is not read if the key, or the key `unless`, was given. Both functions raise ValueError with what was
    expected.
    """

    name: str
    knob: str
    parse: Callable[[str], Any]
    meaning: Callable[[Any], Any] = _positive
    unless: str = ""


_CREDIT = {True: "on_success", False: "none"}.__getitem__
_ONE_CALL = {True: {"guard": "one_call"}, False: None}.__getitem__
_VARIABLES = (
    _Variable("REFOLD_TIME_LIMIT", "limits.time.value", _decimal),
    _Variable("REFOLD_MAX_STEPS", "limits.step.value", _whole),
    _Variable("REFOLD_MESSAGE_LIMIT", "limits.message.value", _whole),
    _Variable("REFOLD_TOKEN_BUDGET", "limits.token.value", _whole),
    _Variable("REFOLD_COST_LIMIT", "limits.cost.value", _decimal),
    _Variable("REFOLD_PRUNE_AFTER_MESSAGES", "history.threshold.when.messages", _whole, _or_off),
    _Variable("REFOLD_PRUNE_KEEP_LAST", "history.threshold.last", _whole, _not_below_zero),
    _Variable("REFOLD_MESSAGE_TOKEN_CAP", "history.trim.cap", _whole),
    _Variable("REFOLD_TRIM_LAST", "history.trim.last", _whole),
    _Variable("REFOLD_MAX_TOOL_OUTPUT", "tool_output.max", _whole, _cap),
    # It counts bytes, whatever the unit of a preset.
    _Variable("REFOLD_MAX_TOOL_OUTPUT", "tool_output.unit", _whole, _bytes_if_set, unless="tool_output.max"),
    _Variable("REFOLD_RETRY_MAX_ATTEMPTS", "retry.attempts", _whole),
    _Variable("REFOLD_RETRY_INITIAL_SECONDS", "retry.initial", _decimal, _not_negative),
    _Variable("REFOLD_RETRY_MAX_SECONDS", "retry.max", _decimal),
    _Variable("REFOLD_RETRY_JITTER", "retry.jitter", _decimal, _add_jitter),
    _Variable("REFOLD_RETRY_CREDIT", "limits.time.credit.retry", _flag, _CREDIT),
    _Variable("REFOLD_NEAR_LIMIT", "near.fraction", _decimal, _fraction),
    _Variable("REFOLD_APPROVALS", "approvals", _preset, dict),
    _Variable("REFOLD_ONE_CALL", "guards.one_call", _flag, _ONE_CALL),
)
_LIMITS = {
    variable.knob.split(".")[1]: variable for variable in _VARIABLES if variable.knob.endswith(".value")
}


def _agent_variables(environment: Mapping[str, str], agent: str) -> Iterator[_Variable]:
    """Yield the variables `REFOLD_LIMIT_<TYPE>__<AGENT>` for this agent."""
    seen: dict[str, str] = {}
    for name in sorted(
        name for name in environment if name.startswith(_LIMIT_PREFIX) and environment[name].strip()
    ):
        kind, _, whom = name.removeprefix(_LIMIT_PREFIX).partition("__")
        kind = kind.lower().removesuffix("s")
        if kind not in _LIMITS or not whom:
            known = ", ".join(sorted(_LIMITS)).upper()
            raise PolicyError(name, f"expected {_LIMIT_PREFIX}<TYPE>__<AGENT>, with a type of {known}")
        if agent and slug(whom) == slug(agent):
            if kind in seen:
                raise PolicyError(name, f"{seen[kind]} sets the same limit; keep one of them")
            seen[kind] = name
            yield _LIMITS[kind]._replace(name=name)


def _read_variable(variable: _Variable, text: str) -> Any:
    try:
        return variable.meaning(variable.parse(text))
    except ValueError as error:
        raise PolicyError(variable.name, f"expected {error}, got {text[:80]!r}") from error


def _is_given(given: Plain, variable: _Variable) -> bool:
    # A given limit counts as given whatever the spelling of its value.
    knobs = (variable.knob.removesuffix(".value"), variable.unless)
    return any(_has(given, knob.split(".")) for knob in knobs if knob)


def _has(data: Any, path: list[str]) -> bool:
    for step in path:
        if isinstance(data, list | tuple):
            data = {name_of_entry(entry): entry for entry in cast("Iterable[Any]", data)}
        if not isinstance(data, Mapping):
            return True  # switched off entirely, or invalid and reported later
        if step not in data:
            return False
        data = cast("Plain", data)[step]
    return True


def _set(policy: Plain, variable: _Variable, value: Any) -> Plain:
    path = variable.knob.split(".")
    if value is None and isinstance(policy.get(path[0]), list) and not _has(policy, path[:2]):
        return policy  # switched off, and not there
    try:
        return set_value(policy, path, value)
    except PolicyError as error:
        raise PolicyError(variable.name, error.problem) from error
