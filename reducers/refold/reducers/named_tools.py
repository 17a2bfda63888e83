"""The tools that a policy names: names that no tool can have, and such as none of a run has. A rule with one never fits."""

import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

import msgspec

from refold.reducers.approvals import SENSITIVE, Gate, Rules
from refold.reducers.policy import Policy
from refold.reducers.refusals import Complaint, nearest, shown

_Kind = Literal["name", "glob", "mark"]

_IN_GUARDS: dict[str, tuple[str, _Kind]] = {
    "arguments": ("tool", "glob"),
    "tool_cap": ("tools", "name"),
    "stop_on_tool": ("tools", "name"),
}
# As other systems write a rule over arguments: `Bash(git push:*)`, or just the command.
_ARGUMENTS = re.compile(r"[\s()]")
_WAY = "; what is in a call's arguments, 'arguments' looks for: a guard, or an approver"


class _Named(msgspec.Struct, frozen=True):
    """A name of tools at `path`; `mark` is the beginning of one, or `tool:command`."""

    path: str
    text: str
    kind: _Kind


def unfit(policy: Policy) -> Iterator[Complaint]:
    """Names that no tool has, and commands that none is to the letter."""
    for named in _named(policy):
        name, colon, command = named.text.partition(":") if named.kind == "mark" else (named.text, "", "")
        if _ARGUMENTS.search(name):
            said = "never fits: no name of a tool holds blanks or parentheses"
            yield Complaint(named.path, f"{shown(named.text)} {said}{_WAY}")
        elif named.kind != "glob" and set("*?[") & set(name):
            said = "never fits: it is a name to the letter here, and no pattern"
            yield Complaint(named.path, f"{shown(named.text)} {said}")
        elif colon and re.search(r"[\s*]", command):
            said = f"fits a call whose whole command is {shown(command)}, and no other"
            yield Complaint(named.path, f"{shown(named.text)} {said}{_WAY}")


def strangers(policy: Policy, tools: Collection[str]) -> Iterator[Complaint]:
    """Names that fit none of the tools of a run; of a run without tools there is nothing to say."""
    for named in _named(policy) if tools else ():
        if not any(_fits(named, tool) for tool in tools):
            said = f"{shown(named.text)} fits no tool of this run{nearest(named.text, tools)}"
            yield Complaint(named.path, said)


def _fits(named: _Named, tool: str) -> bool:
    if named.kind == "glob":
        return fnmatchcase(tool, named.text)
    if named.kind == "mark":
        return tool.startswith(named.text) or named.text.startswith(f"{tool}:")
    return tool == named.text


def _named(policy: Policy) -> Iterator[_Named]:
    for place, config in enumerate(policy.guards):
        key, kind = _IN_GUARDS.get(str(config.get("guard")), ("", "name"))
        yield from _listed(f"guards[{place}].{key}", config.get(key), kind) if key else ()
    for place, approver in enumerate(policy.approvals.chain if policy.approvals else ()):
        path = f"approvals.chain[{place}]"
        yield from _listed(f"{path}.tools", approver.tools, "glob")
        if isinstance(approver, Rules):
            for at, rule in enumerate(approver.rules):
                yield _Named(f"{path}.rules[{at}].tool", rule.tool, "glob")
        if isinstance(approver, Gate) and approver.sensitive not in (None, SENSITIVE):
            yield from _listed(f"{path}.sensitive", approver.sensitive, "mark")


def _listed(path: str, given: Any, kind: _Kind) -> Iterator[_Named]:
    if isinstance(given, str):
        yield _Named(path, given, kind)
    elif isinstance(given, list | tuple):
        for place, text in enumerate(cast("Iterable[str]", given)):
            yield _Named(f"{path}[{place}]", text, kind)
