"""`--set limits.step=20`: one thing of a policy, said in a word, and laid over the rest as a file would be."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from refold.console.syntax import BadSyntax
from refold.reducers.errors import PolicyError
from refold.reducers.guards import Registry
from refold.reducers.overlay import name_of_entry, with_value
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.reducers.refusals import nearest

_SETTING = re.compile(r"(?P<path>[a-z_]+(?:\.[\w:-]+)*)=(?P<value>.*)", re.DOTALL)


def setting(typed: Sequence[str], registry: Registry) -> Callable[[Policy], Policy]:
    """The change that these settings are: each lays one value over a policy. Raises `PolicyError` for what is none.

    `limits.NAME=VALUE` gives a limit its value; in `limits`, `guards` and `history` an entry is named by its name, as in
    `guards.NAME.KEY=VALUE`, and `guards.NAME=null` takes one out. A value is JSON, a YAML list or mapping in one line, or else the
    text as it stands.
    """
    settings = [_parted(each) for each in typed]

    def change(policy: Policy) -> Policy:
        data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy))
        for path, value in settings:
            _refuse_unknown(data, path, value, registry)
            data = with_value(data, path, value)
        # A guard that is not installed here stays as it was recorded: what it would have said cannot be judged.
        return parse(data, registry, strict_guards=False)

    return change


def _refuse_unknown(data: Mapping[str, Any], path: Sequence[str], value: Any, registry: Registry) -> None:
    """Raise `PolicyError` for a guard that the policy does not have, and that nobody could put on duty."""
    if path[0] == "guards" and len(path) > 1 and value is not None:
        known = {*registry, *map(name_of_entry, data["guards"])}
        if path[1] not in known:
            said = (
                f"the policy has no such guard, and none of that kind is installed{nearest(path[1], known)}"
            )
            raise PolicyError(".".join(path), said)


def _parted(typed: str) -> tuple[list[str], Any]:
    found = _SETTING.fullmatch(typed)
    if found is None:
        raise PolicyError("--set", f"expected KEY=VALUE, as in limits.step=20, got {typed[:100]!r}")
    path = found["path"].split(".")
    return [*path, "value"] if path[0] == "limits" and len(path) == 2 else path, _value(found["value"])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    if not text.startswith(("[", "{")):
        return text
    from refold.console.strict_yaml import load  # what is written as in a file, without JSON's quotes

    try:
        return load(text)
    except BadSyntax as error:
        raise PolicyError("--set", f"{text[:100]!r} {error}") from error
