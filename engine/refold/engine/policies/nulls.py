"""TOML has no null: in a policy file a list `null` names what is, by its path, as in `limits[0].value`."""

import re
from typing import Any, cast

from refold.engine.policies.syntax import BadSyntax

KEY = "null"
_STEP = re.compile(r"\[\d{1,9}\]|[^.\[\]]+")
_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d{1,9}\]\.[^.\[\]]+)*")


def with_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """The data with null at each of the paths in its list `null`, which is gone. Raises `BadSyntax`."""
    paths = data.pop(KEY, [])
    if not isinstance(paths, list):
        raise BadSyntax(f'{KEY}: expected a list of paths, as ["pressure", "limits[0].value"]')
    for place, path in enumerate(_entries(paths)):
        if not isinstance(path, str) or not _PATH.fullmatch(path) or not _put(data, path):
            problem = "expected the path of something that this file does not give"
            raise BadSyntax(f"{KEY}[{place}]: {problem}, got {path!r}")
    return data


def without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """The same data as TOML can say it: what is null is left out, and its path is in a list `null`."""
    paths: list[str] = []
    plain: dict[str, Any] = _stripped(data, "", paths)
    return {KEY: paths, **plain} if paths else plain


def _entries(value: Any) -> list[Any]:
    return list(value)


def _put(data: Any, path: str) -> bool:
    *inner, last = _STEP.findall(path)
    for step in inner:
        if step.startswith("["):
            data = dict(enumerate(_entries(data))).get(int(step[1:-1])) if isinstance(data, list) else None
        elif isinstance(data, dict):
            data = cast("dict[str, Any]", data).setdefault(step, {})
    if not isinstance(data, dict) or last in data:
        return False
    cast("dict[str, Any]", data)[last] = None
    return True


def _stripped(value: Any, path: str, paths: list[str]) -> Any:
    if isinstance(value, dict):
        plain = cast("dict[str, Any]", value)
        at = {key: f"{path}.{key}" if path else key for key in plain}
        paths += [at[key] for key, inner in plain.items() if inner is None]
        return {key: _stripped(inner, at[key], paths) for key, inner in plain.items() if inner is not None}
    if isinstance(value, list | tuple):
        listed = enumerate(_entries(value))
        return [_stripped(inner, f"{path}[{place}]", paths) for place, inner in listed]
    return value
