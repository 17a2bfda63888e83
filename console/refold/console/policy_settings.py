"""`--set limits.step=20`: one thing of a policy, said in a word, and laid over the rest as a file would be."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from refold.engine.arguments import BadSyntax
from refold.reducers.errors import PolicyError
from refold.reducers.guards import Registry
from refold.reducers.overlay import Setting
from refold.reducers.parser import parse_with
from refold.reducers.policy import Policy

_SETTING = re.compile(r"(?P<path>[a-z_]+(?:\.[\w:-]+)*)=(?P<value>.*)", re.DOTALL)


def settings_of(typed: Iterable[str]) -> list[Setting]:
    """What was typed, as paths and values. Raises `PolicyError` for what is none.

    `limits.NAME=VALUE` gives a limit its value; in `limits`, `guards` and `history` an entry is named by its name, as in
    `guards.NAME.KEY=VALUE`, and `guards.NAME=null` takes one out. A value is JSON, a YAML list or mapping in one line, or else the
    text as it stands.
    """
    return [_parted(each) for each in typed]


def change_by(settings: Sequence[Setting], registry: Registry) -> Callable[[Policy], Policy]:
    """The change that lays these settings over a policy. It raises `PolicyError` where that cannot work."""

    def change(policy: Policy) -> Policy:
        # A guard that is not installed here stays as it was recorded: what it would have said cannot be judged.
        data = msgspec.to_builtins(policy)
        return parse_with(data, {}, registry, settings=settings, strict_guards=False)[0]

    return change if settings else lambda policy: policy


def _parted(typed: str) -> Setting:
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
    from refold.engine.policies.strict_yaml import load  # what is written as in a file, without JSON's quotes

    try:
        return load(text)
    except BadSyntax as error:
        raise PolicyError("--set", f"{text[:100]!r} {error}") from error
