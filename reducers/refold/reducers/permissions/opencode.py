"""The permissions of OpenCode (`opencode.json`), as rules of a policy.

Source: OpenCode's documentation of permissions (1.x). The last pattern that matches a call applies; without
one a call runs. A command is judged by each of its parts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from refold.reducers.errors import PolicyError, shown
from refold.reducers.permissions.dialect import Converted, Note, find_line, name_rule, read_object
from refold.reducers.permissions.rules import Effect, PermissionRule

DIALECT = "OpenCode 1"

_EFFECTS: Mapping[str, Effect] = {"deny": "refuse", "ask": "ask", "allow": "permit"}
_TOOLS: Mapping[str, tuple[str, ...]] = {"edit": ("edit", "write", "multiedit", "patch", "apply_patch")}
_FORMS = ("complex", "compound", "substitution")
"""Tried with OpenCode 1.18: scripts of `bash -c`, and commands behind wrappers, assignments, paths and quotes
are not found.
"""
_PATH_TOOLS = frozenset({"read", "edit", "glob", "grep", "list"})
_NOT_TOOLS: Mapping[str, str] = {
    "external_directory": "paths outside the project are not judged here",
    "doom_loop": "repeated calls are not judged here; use the guard repetition",
}
_FIELDS: Mapping[str, str] = {
    "task": "subagent_type",
    "skill": "name",
    "websearch": "query",
    "codesearch": "query",
}


def convert_config(layers: Iterable[tuple[str, str]]) -> Converted:
    """Convert configuration files, given as (name, text). Raises `PolicyError` for text that is none."""
    rules: list[PermissionRule] = []
    notes: list[Note] = []
    for name, text in layers:
        permission = read_object(name, text, "OpenCode", comments=True).get("permission", {})
        if isinstance(permission, str):
            permission = {"*": permission}
        if not isinstance(permission, dict):
            raise PolicyError(
                f"{name}: permission", f"expected an action or an object, got {shown(permission)}"
            )
        for key, value in cast("dict[str, Any]", permission).items():
            for made in _convert(name, text, key, value):
                if isinstance(made, Note):
                    notes.append(made)
                else:
                    rules.append(made)
    return Converted(tuple(rules), tuple(notes), order="last", otherwise="permit")


def _convert(name: str, text: str, key: str, value: object) -> Iterator[PermissionRule | Note]:
    if key in _NOT_TOOLS:
        yield Note(f"{name}: permission.{key}", _NOT_TOOLS[key])
        return
    patterns = cast("dict[str, object]", value) if isinstance(value, dict) else {"*": value}
    for pattern, action in patterns.items():
        where = f"{name}: permission.{key}"
        if not isinstance(action, str) or action not in _EFFECTS:
            raise PolicyError(where, f"expected one of {', '.join(_EFFECTS)}, got {shown(action)}")
        line = find_line(text, f'"{pattern}"' if isinstance(value, dict) else f'"{key}"', f'"{key}"')
        yield _rule(
            key, pattern, _EFFECTS[action], name_rule(f"{key}: {pattern}", f"{name}:{line}" if line else name)
        )


def _rule(key: str, pattern: str, effect: Effect, source: str) -> PermissionRule:
    tool = _TOOLS.get(key, (key,))
    pattern = pattern.replace("$HOME", "~", 1) if pattern.startswith("$HOME") else pattern
    if pattern == "*":
        return PermissionRule(effect=effect, tool=tool, source=source)
    if key == "bash":
        return PermissionRule(effect=effect, tool=tool, command=pattern, source=source, forms=_FORMS)
    if key in _PATH_TOOLS:
        return PermissionRule(effect=effect, tool=tool, path=(_path_glob(pattern),), source=source)
    if key == "webfetch":
        return PermissionRule(effect=effect, tool=tool, field="url", matches=_pattern(pattern), source=source)
    return PermissionRule(
        effect=effect, tool=tool, field=_FIELDS.get(key), matches=_pattern(pattern), source=source
    )


def _path_glob(pattern: str) -> str:
    """Return a wildcard over a whole path as a gitignore glob: its `*` also matches slashes."""
    glob = pattern.replace("**", "*").replace("*", "**")
    return glob if glob.startswith(("/", "~")) else f"./{glob}"


def _pattern(wildcard: str) -> str:
    letters = {"*": ".*", "?": "."}
    escaped = (letters.get(each, each if each.isalnum() else f"\\x{{{ord(each):x}}}") for each in wildcard)
    return f"(?s)^{''.join(escaped)}$"
