"""Checks of the tool names in a policy."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, cast

import msgspec

from refold.reducers.approvals import (
    HARMLESS,
    OF_ITS_LOOP,
    SENSITIVE,
    Approver,
    Gate,
    Human,
    Match,
    Rules,
    fits,
    is_of,
)
from refold.reducers.errors import Complaint, Fault, meant, nearest, shown, suggestion
from refold.reducers.events import Manifest
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.approvals import word_of
from refold.reducers.guards.arguments import ArgumentRule, argument_rules
from refold.reducers.guards.protocol import reading_of
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Replay

_Kind = Literal["name", "glob", "mark"]
# Argument rules as other systems write them: `Bash(git push:*)`, or just the command.
_ARGUMENTS = re.compile(r"[\s()]")
_HINT = "; to search arguments, use 'arguments': a guard, or an approver"


# With one of these, a schema may allow fields that it does not list.
_OPEN = ("additionalProperties", "patternProperties", "$ref", "anyOf", "oneOf", "allOf")


class _Named(msgspec.Struct, frozen=True):
    """A tool name at `path`; a `mark` is a case-insensitive glob, or `tool:command`."""

    path: str
    text: str
    kind: _Kind


def find_impossible_names(policy: Policy, registry: Registry = BUILTIN) -> Iterator[Fault]:
    """Find names that no tool can have, and commands that no call can have."""
    for named in _tool_names(policy, registry):
        name, colon, command = named.text.partition(":") if named.kind == "mark" else (named.text, "", "")
        if _ARGUMENTS.search(name):
            problem = "never matches: tool names have no blanks or parentheses"
            yield named.path, f"{shown(named.text)} {problem}{_HINT}"
        elif "|" in name:
            yield (
                named.path,
                f"{shown(named.text)} never matches: | is not an alternative here; write a rule for each tool",
            )
        elif named.kind == "name" and set("*?[") & set(name):
            problem = "never matches: this key takes an exact name, not a pattern"
            yield named.path, f"{shown(named.text)} {problem}"
        elif colon and re.search(r"[\s*]", command):
            problem = f"matches only a call whose entire command is {shown(command)}"
            yield named.path, f"{shown(named.text)} {problem}{_HINT}"


def find_unmatched_names(
    policy: Policy,
    tools: Collection[Manifest],
    called: Mapping[str, Any] | None = None,
    registry: Registry = BUILTIN,
) -> Iterator[Complaint]:
    """Find names that match no tool of a run, and fields that none of its tools has. Without tools, nothing.

    `called`: schemas of recorded arguments, by tool. They count where the tool's schema lists no fields.
    """
    names = [tool.name for tool in tools]
    for named in _tool_names(policy, registry) if tools else ():
        if not any(_matches(named, name) for name in names):
            yield _describe_unmatched_name(named, names, policy)
    yield from _find_unmatched_permissions(policy, names)
    for rule in argument_rules(policy):
        if field := rule.conditions.field:
            yield from _find_unknown_fields(rule, field, tools, called or {})


def _find_unmatched_permissions(policy: Policy, names: Sequence[str]) -> Iterator[Complaint]:
    """Find lists of permission rules without a rule about any tool. Some rules may be for tools not used."""
    for place, config in enumerate(policy.guards if names else ()):
        if config.get("guard") != "permissions":
            continue
        rules = cast("Sequence[Mapping[str, Any]]", config.get("rules", ()))
        tools = [rule.get("tool", "*") for rule in rules]
        globs = [glob for tool in tools for glob in ([tool] if isinstance(tool, str) else tool)]
        if not any(fnmatchcase(name, glob) for name in names for glob in globs):
            near = next((found for glob in globs if (found := _match_ignoring_case(glob, names))), "")
            problem = f"no rule is about a tool of this run{suggestion(near, names)}"
            yield Complaint(f"guards[{place}].rules", problem, near)


def _describe_unmatched_name(named: _Named, names: Sequence[str], policy: Policy) -> Complaint:
    near = _match_ignoring_case(named.text, names) or meant(named.text, names)
    problem = f"{shown(named.text)} matches no tool of this run{suggestion(near, names)}"
    approves = near and named.path.startswith("approvals.")
    return Complaint(
        named.path, f"{problem} {_describe_decision(policy, near)}" if approves else problem, near
    )


def _find_unknown_fields(
    rule: ArgumentRule, field: str, tools: Collection[Manifest], called: Mapping[str, Any]
) -> Iterator[Complaint]:
    """Find a field that none of the tools of the rule has."""
    keys = field.split(".")
    fitting = [tool for tool in tools if any(map(partial(fnmatchcase, tool.name), rule.tools))]
    open_schemas = [_has_field(_schema(tool), keys) is None for tool in fitting]
    schemas: list[Any] = [
        called.get(tool.name) if is_open else _schema(tool)
        for tool, is_open in zip(fitting, open_schemas, strict=True)
    ]
    if not schemas or any(_has_field(schema, keys) is not False for schema in schemas):
        return
    known = set[str]().union(*map(_fields, schemas))
    what = "call" if any(open_schemas) else "tool"
    problem = f"{shown(field)} is not a field of any {what} that this rule applies to"
    yield Complaint(f"{rule.path}.field", f"{problem}{nearest(field, known)}", meant(field, known))


def _match_ignoring_case(glob: str, names: Sequence[str]) -> str:
    """Return the first name that the glob matches if case is ignored, else ""."""
    return next((name for name in names if fnmatchcase(name.casefold(), glob.casefold())), "")


def _describe_decision(policy: Policy, tool: str) -> str:
    """Describe which link of the chain decides calls of a tool."""
    for place, link in enumerate(policy.approvals.chain if policy.approvals else ()):
        if any(fnmatchcase(tool, glob) for glob in link.tools) and word_of(link, tool, "{}") != "escalate":
            kind = type(link).__struct_config__.tag
            return f"Calls of {tool!r} are decided by approvals.chain[{place}] ({kind})"
    return f"Calls of {tool!r} are rejected: no link of the chain applies to them"


def has_field_rules(policy: Policy) -> bool:
    """Return whether a rule searches one field of the arguments."""
    return any(rule.conditions.field for rule in argument_rules(policy))


def _schema(tool: Manifest) -> Any:
    try:
        return msgspec.json.decode(tool.schema)
    except msgspec.DecodeError:  # an imported run may record any text
        return None


def _fields(schema: Mapping[str, Any]) -> Iterable[str]:
    listed = schema.get("properties")
    return cast("dict[str, Any]", listed) if isinstance(listed, dict) else ()


def _has_field(schema: Any, path: Sequence[str]) -> bool | None:
    """Return whether the JSON Schema has this field; None if it does not list its fields."""
    for key in path:
        if not isinstance(schema, dict):
            return None
        plain = cast("dict[str, Any]", schema)
        kind, listed = plain.get("type", "object"), plain.get("properties")
        if kind != "object":
            return False if isinstance(kind, str) else None
        if not isinstance(listed, dict) or any(plain.get(key, False) is not False for key in _OPEN):
            return None
        if key not in listed:
            return False
        schema = cast("dict[str, Any]", listed)[key]
    return True


def _matches(named: _Named, tool: str) -> bool:
    if named.kind == "glob":
        return fnmatchcase(tool, named.text)
    if named.kind == "mark":
        return is_of(named.text, tool)
    return tool == named.text


def _tool_names(policy: Policy, registry: Registry) -> Iterator[_Named]:
    for place, config in enumerate(policy.guards):
        for key, kind in reading_of(registry.get(str(config.get("guard")))).tools.items():
            yield from _list_names(f"guards[{place}].{key}", config.get(key), kind)
    for place, approver in enumerate(policy.approvals.chain if policy.approvals else ()):
        path = f"approvals.chain[{place}]"
        yield from _list_names(f"{path}.tools", approver.tools, "glob")
        if isinstance(approver, Rules):
            for at, rule in enumerate(approver.rules):
                yield _Named(f"{path}.rules[{at}].tool", rule.tool, "glob")
        if isinstance(approver, Gate):
            # Built-in names cover many harnesses; not all have to match a tool of this run.
            yield from _list_names(
                f"{path}.sensitive", approver.sensitive, "mark", but=(*SENSITIVE, *OF_ITS_LOOP)
            )
            yield from _list_names(f"{path}.harmless", approver.harmless, "mark", but=HARMLESS)


def _list_names(path: str, given: Any, kind: _Kind, but: Collection[str] = ()) -> Iterator[_Named]:
    if isinstance(given, str):
        yield _Named(path, given, kind)
    elif isinstance(given, list | tuple):
        for place, text in enumerate(cast("Iterable[str]", given)):
            if text not in but:
                yield _Named(f"{path}[{place}]", text, kind)


_MAX_LISTED = 20
_OUTCOMES = {
    "approve": "runs without approval",
    "reject": "is refused",
    "terminate": "ends the run",
    "ask": "waits for a user",
}


def describe_default_decision(chain: Sequence[Approver]) -> str:
    """Describe what happens to calls of tools that no approver names, and which approver decides."""
    parts = list[str]()
    for place, link in enumerate(chain):
        if "*" not in link.tools:
            continue
        where = f"(approvals.chain[{place}])"
        if isinstance(link, Match) and link.then not in (link.otherwise, "escalate"):
            parts.append(f"{_OUTCOMES[link.then]} if its arguments match {link.rule} {where}")
        word = _decision_for_unnamed(link)
        if word != "escalate":
            return ", else ".join([*parts, f"{_OUTCOMES[word]}{_describe_timeout(link)} {where}"])
    return ", else ".join([*parts, "is refused: no approver decides about it"])


def _decision_for_unnamed(link: Approver) -> str:
    if isinstance(link, Rules):
        return next((rule.decision for rule in link.rules if rule.tool == "*"), "escalate")
    return link.otherwise if isinstance(link, Gate | Match) else word_of(link, "", "{}")


def _describe_timeout(link: Approver) -> str:
    if not isinstance(link, Human) or link.timeout is None or link.on_timeout == "escalate":
        return ""
    return f", and {_OUTCOMES[link.on_timeout]} without an answer in {link.timeout:g} s"


def find_unclassifying_gate(chain: Sequence[Approver], tool: Manifest, arguments: str) -> int | None:
    """Return the index in the chain of the gate that lets this unclassified call run, else None.

    A read-only tool counts as classified.
    """
    if tool.replay is Replay.READ_ONLY:
        return None
    for place, link in enumerate(chain):
        if not any(fnmatchcase(tool.name, glob) for glob in link.tools):
            continue
        asks = isinstance(link, Gate) and link.otherwise == "approve" and link.harmless is not None
        if asks and not fits(_marks(link, tool.name), tool.name, arguments):
            return place
        if word_of(link, tool.name, arguments) != "escalate":
            return None
    return None


def find_unclassified_tools(policy: Policy, tools: Collection[Manifest]) -> Iterator[Fault]:
    """Find tools of a run that a gate of the policy would let run unclassified."""
    chain = policy.approvals.chain if policy.approvals else ()
    found: dict[int, list[str]] = {}
    for tool in tools:
        place = find_unclassifying_gate(chain, tool, "{}")
        # If a tool has commands listed, the arguments classify each call.
        marks = () if place is None else _marks(chain[place], tool.name)
        if place is not None and not any(is_of(mark, tool.name) for mark in marks):
            found.setdefault(place, []).append(tool.name)
    for place, names in found.items():
        yield f"approvals.chain[{place}]", describe_unclassified(names)


def describe_unclassified(names: Sequence[str]) -> str:
    """Describe tools that a gate does not classify, and what to do."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    listed = f"{', '.join(names[:_MAX_LISTED])}{more}"
    return f"{listed} may run unclassified: list each tool in 'sensitive' or 'harmless'"


def _marks(link: Approver, name: str) -> tuple[str, ...]:
    """Return the marks by which the gate may classify a tool of this name."""
    if not isinstance(link, Gate):
        return ()
    # Case folding maps U+FB01 to `fi` and the Kelvin sign to `k`: look-alikes are not harmless.
    alike = name.casefold().isascii() and not name.isascii()
    return (*(link.sensitive or ()), *(() if alike else link.harmless or ()))
