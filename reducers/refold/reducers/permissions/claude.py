"""The permission rules of Claude Code's settings, as rules of a policy.

Source: Anthropic's documentation of permissions for Claude Code 2.1. Rules apply in the order deny, ask,
allow; how specific a rule is does not matter, and neither does the file that it is in. Rules that Claude Code
reads and never applies, such as `Write(path)`, are left out with a note.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from refold.reducers.errors import PolicyError, nearest, shown
from refold.reducers.permissions.dialect import Converted, Note, find_line, name_rule, read_object
from refold.reducers.permissions.paths import glob_problem
from refold.reducers.permissions.rules import Effect, PermissionRule

DIALECT = "Claude Code 2.1"

_EFFECTS: Mapping[str, Effect] = {"deny": "refuse", "ask": "ask", "allow": "permit"}
_RULE = re.compile(r"(?P<tool>[^()]+?)(?:\((?P<spec>.*)\))?", re.DOTALL)
_READS = ("Read", "Grep", "Glob", "LS", "NotebookRead")
_EDITS = ("Edit", "MultiEdit", "Write", "NotebookEdit")
_WRAPPERS = ("timeout", "time", "nice", "nohup", "stdbuf", "command", "builtin", "xargs")
_FORMS = ("complex", "assignment", *(f"wrapper:{name}" for name in _WRAPPERS))
"""As documented: chains and redirections are taken apart, wrappers and variables before a command removed.
Subshells and substitutions are documented, too, but not found by all versions.
"""
_FILE_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Read": (
        "awk", "base64", "cat", "cp", "cut", "diff", "egrep", "fgrep", "grep", "head", "less", "more", "nl", "od", "rg",
        "sed", "sort", "source", "strings", "tac", "tail", "wc", "xxd",
    ),
    "Edit": ("cp", "mv", "rm", "sed", "tee", "touch"),
}  # fmt: skip
"""Shell commands to which versions of Claude Code apply path rules of a tool, or may."""
_IN_SHELL = "Claude Code may apply this path rule to a shell command"
_SHELLS = ("Bash", "PowerShell")
_UNREAD_PATHS = frozenset({"Write", "MultiEdit", "NotebookEdit", "Glob", "Grep", "LS", "NotebookRead"})
_FIELDS: Mapping[str, str] = {"Agent": "subagent_type", "Task": "subagent_type", "Skill": "skill"}
_UNKNOWN = "a specifier that is not known here"
_OTHER_KEYS = frozenset(
    {"defaultMode", "additionalDirectories", "disableBypassPermissionsMode", "disableAutoMode"}
)


def convert_settings(layers: Iterable[tuple[str, str]]) -> Converted:
    """Convert settings files, given as (name, text). Raises `PolicyError` for text that is not settings."""
    rules: list[tuple[str, PermissionRule]] = []
    notes: list[Note] = []
    for name, text in layers:
        permissions = _read(name, text)
        for key, value in permissions.items():
            if key in _EFFECTS:
                _convert_list(name, text, key, value, rules, notes)
            elif key in _OTHER_KEYS:
                notes.append(Note(f"{name}: {key}", "not a rule: transcripts do not record what it decided"))
            else:
                near = nearest(key, [*_EFFECTS, *_OTHER_KEYS])
                notes.append(Note(f"{name}: {key}", f"ignored by Claude Code, and so here{near}"))
    order = list(_EFFECTS)
    rules.sort(key=lambda found: order.index(found[0]))
    return Converted(tuple(rule for _, rule in rules), tuple(notes))


def _read(name: str, text: str) -> Mapping[str, Any]:
    permissions = read_object(name, text, "Claude Code").get("permissions", {})
    if not isinstance(permissions, dict):
        raise PolicyError(f"{name}: permissions", f"expected an object, got {shown(permissions)}")
    return cast("dict[str, Any]", permissions)


def _convert_list(
    name: str, text: str, key: str, listed: object, rules: list[tuple[str, PermissionRule]], notes: list[Note]
) -> None:
    if not isinstance(listed, list):
        raise PolicyError(f"{name}: permissions.{key}", f"expected a list of rules, got {shown(listed)}")
    for place, rule in enumerate(cast("list[object]", listed)):
        if not isinstance(rule, str):
            raise PolicyError(
                f"{name}: permissions.{key}[{place}]", f"expected a rule as text, got {shown(rule)}"
            )
        line = find_line(text, json.dumps(rule, ensure_ascii=False), f'"{key}"')
        where = f"{name}:{line}" if line else f"{name}: permissions.{key}[{place}]"
        for made in convert_rule(rule, _EFFECTS[key], where):
            if isinstance(made, Note):
                notes.append(made)
            else:
                rules.append((key, made))


def convert_rule(rule: str, effect: Effect, where: str) -> Iterator[PermissionRule | Note]:
    """Convert one rule, such as `Bash(npm run *)`; yields notes for what Claude Code ignores."""
    found = _RULE.fullmatch(rule.strip())
    if found is None:
        yield Note(where, f"{shown(rule)} is no rule: expected Tool or Tool(specifier); ignored")
        return
    tool, spec = found["tool"].strip(), found["spec"]
    source = name_rule(rule, where)
    if spec is None or spec == "" or (spec == "*" and tool in _SHELLS):
        yield PermissionRule(effect=effect, tool=_tools(tool), source=source)
        if effect == "refuse" and spec is None and not tool.startswith("mcp__"):
            problem = f"{tool} is also hidden from the model, which may have changed the whole session"
            yield Note(where, problem)
    elif tool in _SHELLS:
        command = spec.removesuffix(":*") + " *" if spec.endswith(":*") else spec
        yield PermissionRule(effect=effect, tool=tool, command=command, source=source, forms=_FORMS)
    elif tool in ("Read", "Edit"):
        yield from _convert_path(tool, spec, effect, where, source)
    elif tool in _UNREAD_PATHS:
        instead = "Edit" if tool in _EDITS else "Read"
        yield Note(where, f"{rule}: Claude Code never applies it; write {instead}({spec})")
    elif tool == "WebFetch" and spec.startswith("domain:"):
        domain = spec.removeprefix("domain:")
        hosts = ("*",) if domain == "*" else (domain,)
        yield PermissionRule(effect=effect, tool=tool, host=hosts, source=source)
    elif tool in _FIELDS:
        yield PermissionRule(
            effect=effect, tool=("Agent", "Task") if _FIELDS[tool] == "subagent_type" else tool,
            field=_FIELDS[tool], matches=f"^{_pattern(spec)}$", source=source,
        )  # fmt: skip
    elif ":" in spec:
        name, _, value = spec.partition(":")
        yield PermissionRule(
            effect=effect, tool=tool, field=name, matches=f"^{_pattern(value)}$", source=source
        )
    else:
        yield PermissionRule(effect=effect, tool=_tools(tool), source=source, opaque=_UNKNOWN)
        yield Note(where, f"{rule}: {_UNKNOWN}; calls of {tool} cannot be judged")


def _convert_path(
    tool: str, spec: str, effect: Effect, where: str, source: str
) -> Iterator[PermissionRule | Note]:
    tools = _READS if tool == "Read" else _EDITS
    if spec.startswith("//"):
        glob = spec[1:]
    elif spec.startswith("/"):  # relative to the project, for which the recorded directory stands
        glob = f".{spec}"
    else:
        glob = spec
    if problem := glob_problem(glob):
        yield PermissionRule(effect=effect, tool=tools, source=source, opaque="a path that cannot be read")
        yield Note(where, f"{tool}({spec[:60]}): {problem}; calls of {tool} cannot be judged")
    else:
        yield PermissionRule(effect=effect, tool=tools, path=(glob,), source=source)
        if effect != "permit":
            yield from _guess_other_rules(tool, glob, effect, source)


def _guess_other_rules(tool: str, glob: str, effect: Effect, source: str) -> Iterator[PermissionRule]:
    """Yield rules that are unknown for shell commands and searches which may reach a path of a rule."""
    literal = max(
        (
            part
            for part in glob.split("/")
            if not any(letter in part for letter in "*?[\\") and part not in ("", ".", "~")
        ),
        key=len,
        default="",
    )
    mentions = f"(?:^|[^A-Za-z0-9_-]){_pattern(literal)}(?:[^A-Za-z0-9_-]|$)" if literal else None
    if tool == "Read" and mentions:
        why = "Claude Code may apply this path rule to a search"
        where = f"in a search: {source}"
        yield PermissionRule(effect=effect, tool=("Glob", "Grep"), matches=mentions, source=where, opaque=why)
    yield PermissionRule(
        effect=effect, tool="Bash", command=(_FILE_COMMANDS[tool],), matches=mentions,
        source=f"in a shell command: {source}", opaque=_IN_SHELL,
    )  # fmt: skip


def _tools(tool: str) -> str | tuple[str, ...]:
    if tool.startswith("mcp__") and tool.count("__") == 1:
        return (tool, f"{tool}__*")
    return "*" if tool == "*" else ("Agent", "Task") if tool in ("Agent", "Task") else tool


def _pattern(glob: str) -> str:
    return ".*".join(re.escape(part) for part in glob.split("*"))
