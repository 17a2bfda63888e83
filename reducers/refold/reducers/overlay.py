"""Laying one policy's plain data over another's: a file over a preset, an argument over a file."""

from collections.abc import Mapping
from typing import Any, cast

# Of these one key only can stand: another one takes the place of the first.
_ONE_OF = frozenset({"jitter"})


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
