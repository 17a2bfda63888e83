"""`--set limits.step=20`: one thing of a policy, said in a word, and laid over the rest as a file would be."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from refold.reducers.errors import PolicyError
from refold.reducers.guards import Registry
from refold.reducers.overlay import laid_over
from refold.reducers.parser import parse
from refold.reducers.policy import Policy

_SETTING = re.compile(r"(?P<path>[a-z_]+(?:\.[\w:-]+)*)=(?P<value>.*)", re.DOTALL)
_NAMED = {"limits": "type", "guards": "guard"}


def setting(typed: Sequence[str], registry: Registry) -> Callable[[Policy], Policy]:
    """The change that these settings are: each lays one value over a policy. Raises `PolicyError` for what is none.

    `limits.NAME=VALUE` and `guards.NAME=null` name an entry by its name; `guards.NAME.KEY=VALUE` a key of one. A value is
    JSON, or else the text as it stands.
    """
    patches = [_patch(each) for each in typed]

    def change(policy: Policy) -> Policy:
        data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy))
        for patch in patches:
            data = laid_over(data, _for_entries(data, patch))
        # A guard that is not installed here stays as it was recorded: what it would have said cannot be judged.
        return parse(data, registry, strict_guards=False)

    return change


def _patch(typed: str) -> dict[str, Any]:
    found = _SETTING.fullmatch(typed)
    if found is None:
        raise PolicyError("--set", f"expected KEY=VALUE, as in limits.step=20, got {typed[:100]!r}")
    keys = found["path"].split(".")
    value = _value(found["value"])
    if keys[0] in _NAMED and len(keys) > 1:
        return {keys[0]: [_entry(keys, value)]}
    for key in reversed(keys):
        value = {key: value}
    patch: dict[str, Any] = value
    return patch


def _entry(keys: Sequence[str], value: Any) -> dict[str, Any]:
    what, name, rest = keys[0], keys[1], keys[2:]
    if not rest:
        return {"name": name, **({"guard": None} if what == "guards" and value is None else {"value": value})}
    for key in reversed(rest):
        value = {key: value}
    return {"name": name, **value}


def _for_entries(data: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The patch, in which an entry that the policy does not have is a new one of the kind that its name says."""
    for what, kind in _NAMED.items():
        entries: list[Any] = patch[what] if isinstance(patch.get(what), list) else []
        for entry in entries:
            if not isinstance(entry, dict) or "name" not in entry:
                continue  # a list that was typed whole
            if entry["name"] not in [each.get("name") for each in data.get(what, ())]:
                return {what: [{kind: entry["name"], **entry}]}
    return patch


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
