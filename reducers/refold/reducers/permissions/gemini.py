"""The policy rules of Gemini CLI (`policies/*.toml`), as rules of a policy.

Source: the documentation of Gemini CLI's policy engine. The rule with the highest priority that matches a
call applies; each command of a chain is judged by itself.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from refold.reducers.errors import PolicyError, nearest, shown
from refold.reducers.permissions.dialect import Converted, Note, name_rule
from refold.reducers.permissions.rules import Effect, PermissionRule

DIALECT = "Gemini CLI policy engine"

_EFFECTS: Mapping[str, Effect] = {"deny": "refuse", "ask_user": "ask", "allow": "permit"}
_HEADER = re.compile(r"\s*\[\[\s*rule\s*\]\]")
_SHELL = "run_shell_command"
_FORMS = ("complex", "compound", "substitution", "script")
"""Tried with Gemini CLI 0.61: commands behind wrappers, assignments, paths and quotes are not found."""
_KEYS = (
    "toolName", "mcpName", "subagent", "toolAnnotations", "argsPattern", "commandPrefix", "commandRegex",
    "decision", "priority", "modes", "interactive", "allowRedirection", "denyMessage",
)  # fmt: skip
_UNREAD = ("toolAnnotations", "subagent", "modes", "interactive", "argsPattern", "commandRegex")
"""Conditions on what a transcript does not record, or on the JSON text that Gemini CLI makes of arguments."""


def convert_policies(layers: Iterable[tuple[str, str]]) -> Converted:
    """Convert policy files, given as (name, text). Raises `PolicyError` for text that is no policy."""
    found: list[tuple[float, PermissionRule]] = []
    notes: list[Note] = []
    for name, text in layers:
        rules = _read(name, text)
        lines = [number for number, line in enumerate(text.split("\n"), 1) if _HEADER.match(line)]
        for place, rule in enumerate(rules):
            where = f"{name}: rule[{place}]"
            line = f"{name}:{lines[place]}" if len(lines) == len(rules) else where
            for made in _convert(where, line, rule):
                if isinstance(made, Note):
                    notes.append(made)
                else:
                    found.append((_priority(where, rule), made))
    found.sort(key=lambda one: -one[0])
    return Converted(tuple(rule for _, rule in found), tuple(notes), order="first")


def _read(name: str, text: str) -> Sequence[Mapping[str, Any]]:
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise PolicyError(name, f"is not valid TOML: {error}") from error
    listed = data.get("rule", [])
    if not isinstance(listed, list) or not all(
        isinstance(rule, dict) for rule in cast("list[object]", listed)
    ):
        raise PolicyError(f"{name}: rule", f"expected [[rule]] tables, got {shown(listed)}")
    return cast("list[dict[str, Any]]", listed)


def _priority(where: str, rule: Mapping[str, Any]) -> float:
    priority = rule.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        raise PolicyError(f"{where}.priority", f"expected a number, got {shown(priority)}")
    return float(priority)


def _convert(where: str, line: str, rule: Mapping[str, Any]) -> Iterator[PermissionRule | Note]:
    for key in rule.keys() - set(_KEYS):
        yield Note(f"{where}.{key}", f"ignored by Gemini CLI, and so here{nearest(key, _KEYS)}")
    decision = rule.get("decision", "")
    if not isinstance(decision, str) or decision not in _EFFECTS:
        raise PolicyError(
            f"{where}.decision", f"expected one of {', '.join(_EFFECTS)}, got {shown(decision)}"
        )
    unread = [key for key in _UNREAD if rule.get(key) not in (None, [], "")]
    opaque = f"its condition {unread[0]} is about what is not recorded" if unread else ""
    if unread:
        yield Note(line, f"{', '.join(unread)}: cannot be judged here; the rule is unknown for its tools")
    tools = _tools(where, rule)
    prefixes = _texts(f"{where}.commandPrefix", rule.get("commandPrefix", ()))
    say = rule.get("denyMessage", "")
    for prefix in (*prefixes, *(() if prefixes else (None,))):
        title = prefix if prefix is not None else ", ".join(tools)
        yield PermissionRule(
            effect=_EFFECTS[decision],
            tool=tools,
            command=None if prefix is None else f"{prefix.strip()} *",
            say=say if isinstance(say, str) else "",
            source=name_rule(title, line),
            opaque=opaque,
            forms=_FORMS,
        )


def _tools(where: str, rule: Mapping[str, Any]) -> tuple[str, ...]:
    named = _texts(f"{where}.toolName", rule.get("toolName", ()))
    server = rule.get("mcpName")
    if isinstance(server, str) and server:
        return tuple(f"mcp_{server}_{tool}" for tool in named or ["*"])
    if rule.get("commandPrefix") and not named:
        return (_SHELL,)
    return tuple(named) or ("*",)


def _texts(where: str, value: object) -> list[str]:
    listed: Sequence[object] = [value] if isinstance(value, str) else cast("Sequence[object]", value)
    if not isinstance(listed, list | tuple) or not all(isinstance(each, str) and each for each in listed):
        raise PolicyError(where, f"expected a text or a list of texts, got {shown(value)}")
    return cast("list[str]", list(listed))
