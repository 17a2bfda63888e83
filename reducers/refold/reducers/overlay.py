"""Laying one policy's plain data over another's: a file over a preset, an argument over a file."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from refold.reducers.errors import NoSuchEntry

# Of these one key only can stand: another one takes the place of the first.
_ONE_OF = frozenset({"jitter", "approvals"})

# Lists whose entries are named, what one is, and the key that says of which kind a new one is: of a pass its name does not.
_NAMED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"limits": ("limit", "type"), "guards": ("guard", "guard"), "history": ("pass", "")}
)

Setting = tuple[Sequence[str], Any]
"""A path into a policy, and the value that is to stand there."""


def laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`: plain data of policies, with limits in their canonical spelling.

    Mappings merge key by key, `limits` and `guards` by `name_of_entry`, any other list is replaced whole; `null`
    takes the place of what it switches off. An entry of `guards` with a name and `guard: null` takes that one out.
    """
    laid = {**base, **{key: _merged(base.get(key), value, key) for key, value in over.items()}}
    for key in {"limits", "guards"} & set(over):
        if isinstance(base.get(key), list | tuple) and isinstance(over[key], list | tuple):
            laid[key] = _by_name(list(base[key]), list(over[key]))
    return laid


def with_value(base: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """`base` with `value` at `path`, laid over what stands there: `("retry", "attempts")`, `("limits", "step", "value")`.

    In `limits`, `guards` and `history` the second step is an entry's name. An entry that is not there is added, of the kind
    that its name says; one that becomes `null` goes. Raises `NoSuchEntry` for one that is not there and is to go, and for a
    pass that is not there.
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
    goes = value is None and len(path) == 2
    if goes or not kind:
        there = ", ".join(filter(None, map(name_of_entry, entries))) or "none with a name"
        way_out = "; leave this out" if goes else ""
        said = f"the policy has no {word} {path[1]!r} to {'take out' if goes else 'set'}; it has {there}{way_out}"
        raise NoSuchEntry(".".join(path), said)
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
        return laid_over(inner, {path[0]: value})
    return {**inner, path[0]: _put(inner.get(path[0]), path[1:], value)} if path else _merged(data, value, "")


def name_of_entry(entry: object) -> str:
    """What an entry of `limits`, `guards` or `history` goes by: its name, else what it is; "" of what is none."""
    if not isinstance(entry, Mapping):
        return ""
    plain = cast("Mapping[str, Any]", entry)
    kind = plain.get("type") or plain.get("guard") or plain.get("do") or ""
    estimate = kind == "token" and plain.get("measure") == "estimate"
    return str(plain.get("name") or ("token_estimate" if estimate else kind))


def _by_name(base: list[Any], over: list[Any]) -> list[Any]:
    """The base's entries, each with the first of its name laid over it, then the others: two alike are not hidden."""
    left, laid = list(over), list[Any]()
    for entry in base:
        name = name_of_entry(entry)
        patch = next((one for one in left if name and name_of_entry(one) == name), None)
        if patch is not None:
            left.remove(patch)
            if patch.get("guard", entry) is None:
                continue
        laid.append(entry if patch is None else _merged(entry, patch, ""))
    return laid + left


def _merged(base: Any, over: Any, key: str) -> Any:
    if key in _ONE_OF or not all(map(_is_mapping, (base, over))):
        return over
    return {**base, **{inner: _merged(base.get(inner), value, inner) for inner, value in over.items()}}


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)
