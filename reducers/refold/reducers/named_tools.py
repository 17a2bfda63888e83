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
from refold.reducers.guards.approvals import ArgumentRule, argument_rules, word_of
from refold.reducers.guards.protocol import reading_of
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Replay

_Kind = Literal["name", "glob", "mark"]
# As other systems write a rule over arguments: `Bash(git push:*)`, or just the command.
_ARGUMENTS = re.compile(r"[\s()]")
_WAY = "; what is in a call's arguments, 'arguments' looks for: a guard, or an approver"


# Where one of these stands, fields may be there that are not listed.
_OPEN = ("additionalProperties", "patternProperties", "$ref", "anyOf", "oneOf", "allOf")


class _Named(msgspec.Struct, frozen=True):
    """A name of tools at `path`; `mark` is a glob of one in any case, or `tool:command`."""

    path: str
    text: str
    kind: _Kind


def unfit(policy: Policy, registry: Registry = BUILTIN) -> Iterator[Fault]:
    """Names that no tool has, and commands that none is to the letter."""
    for named in _tool_names(policy, registry):
        name, colon, command = named.text.partition(":") if named.kind == "mark" else (named.text, "", "")
        if _ARGUMENTS.search(name):
            said = "never fits: no name of a tool holds blanks or parentheses"
            yield named.path, f"{shown(named.text)} {said}{_WAY}"
        elif "|" in name:
            yield (
                named.path,
                f"{shown(named.text)} never fits: | is no alternative here; write a rule for each tool",
            )
        elif named.kind == "name" and set("*?[") & set(name):
            said = "never fits: it is a name to the letter here, and no pattern"
            yield named.path, f"{shown(named.text)} {said}"
        elif colon and re.search(r"[\s*]", command):
            said = f"fits a call whose whole command is {shown(command)}, and no other"
            yield named.path, f"{shown(named.text)} {said}{_WAY}"


def strangers(
    policy: Policy,
    tools: Collection[Manifest],
    called: Mapping[str, Any] | None = None,
    registry: Registry = BUILTIN,
) -> Iterator[Complaint]:
    """Names that fit none of the tools of a run, and fields that none of its tools has; without tools there
    is nothing.

    `called`: schemas of the arguments that were recorded, by the tool. They count where its own does not list
    its fields.
    """
    names = [tool.name for tool in tools]
    for named in _tool_names(policy, registry) if tools else ():
        if not any(_fits(named, name) for name in names):
            yield _strange_name(named, names, policy)
    for rule in argument_rules(policy):
        if rule.field:
            yield from _strange_field(rule, rule.field, tools, called or {})


def _strange_name(named: _Named, names: Sequence[str], policy: Policy) -> Complaint:
    near = _in_any_case(named.text, names) or meant(named.text, names)
    said = f"{shown(named.text)} fits no tool of this run{suggestion(near, names)}"
    approves = near and named.path.startswith("approvals.")
    return Complaint(named.path, f"{said} {_decides(policy, near)}" if approves else said, near)


def _strange_field(
    rule: ArgumentRule, field: str, tools: Collection[Manifest], called: Mapping[str, Any]
) -> Iterator[Complaint]:
    """Complain of a field that no tool has that the rule is about."""
    keys = field.split(".")
    fitting = [tool for tool in tools if any(map(partial(fnmatchcase, tool.name), rule.tools))]
    silent = [_has(_schema(tool), keys) is None for tool in fitting]
    schemas: list[Any] = [
        called.get(tool.name) if unsaid else _schema(tool)
        for tool, unsaid in zip(fitting, silent, strict=True)
    ]
    if not schemas or any(_has(schema, keys) is not False for schema in schemas):
        return
    known = set[str]().union(*map(_fields, schemas))
    what = "call" if any(silent) else "tool"
    said = f"{shown(field)} is a field of no {what} of this run that it is about"
    yield Complaint(f"{rule.path}.field", f"{said}{nearest(field, known)}", meant(field, known))


def _in_any_case(glob: str, names: Sequence[str]) -> str:
    """Return the first name that the glob would fit if case did not count, else ""."""
    return next((name for name in names if fnmatchcase(name.casefold(), glob.casefold())), "")


def _decides(policy: Policy, tool: str) -> str:
    """Which link of the chain decides about calls of a tool, for none of those before it is about it."""
    for place, link in enumerate(policy.approvals.chain if policy.approvals else ()):
        if any(fnmatchcase(tool, glob) for glob in link.tools) and word_of(link, tool, "{}") != "escalate":
            kind = type(link).__struct_config__.tag
            return f"Calls of {tool!r} are decided by approvals.chain[{place}] ({kind})"
    return f"Calls of {tool!r} are rejected: no link of the chain is about them"


def looks_into_fields(policy: Policy) -> bool:
    """Whether a rule looks at one field of arguments."""
    return any(rule.field for rule in argument_rules(policy))


def _schema(tool: Manifest) -> Any:
    try:
        return msgspec.json.decode(tool.schema)
    except msgspec.DecodeError:  # as an imported run may say it: nothing is known of its fields
        return None


def _fields(schema: Mapping[str, Any]) -> Iterable[str]:
    listed = schema.get("properties")
    return cast("dict[str, Any]", listed) if isinstance(listed, dict) else ()


def _has(schema: Any, path: Sequence[str]) -> bool | None:
    """Whether there is such a field in arguments by this JSON Schema; None: it does not list them."""
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


def _fits(named: _Named, tool: str) -> bool:
    if named.kind == "glob":
        return fnmatchcase(tool, named.text)
    if named.kind == "mark":
        return is_of(named.text, tool)
    return tool == named.text


def _tool_names(policy: Policy, registry: Registry) -> Iterator[_Named]:
    for place, config in enumerate(policy.guards):
        for key, kind in reading_of(registry.get(str(config.get("guard")))).tools.items():
            yield from _listed(f"guards[{place}].{key}", config.get(key), kind)
    for place, approver in enumerate(policy.approvals.chain if policy.approvals else ()):
        path = f"approvals.chain[{place}]"
        yield from _listed(f"{path}.tools", approver.tools, "glob")
        if isinstance(approver, Rules):
            for at, rule in enumerate(approver.rules):
                yield _Named(f"{path}.rules[{at}].tool", rule.tool, "glob")
        if isinstance(approver, Gate):
            # What is known of any harness is not meant for this run alone.
            yield from _listed(
                f"{path}.sensitive", approver.sensitive, "mark", but=(*SENSITIVE, *OF_ITS_LOOP)
            )
            yield from _listed(f"{path}.harmless", approver.harmless, "mark", but=HARMLESS)


def _listed(path: str, given: Any, kind: _Kind, but: Collection[str] = ()) -> Iterator[_Named]:
    if isinstance(given, str):
        yield _Named(path, given, kind)
    elif isinstance(given, list | tuple):
        for place, text in enumerate(cast("Iterable[str]", given)):
            if text not in but:
                yield _Named(f"{path}[{place}]", text, kind)


_MOST = 20
_BECOMES = {
    "approve": "runs, and nobody is asked",
    "reject": "is refused",
    "terminate": "ends the run",
    "ask": "waits for a person",
}


def of_any_other(chain: Sequence[Approver]) -> str:
    """What becomes of a call to a tool that no approver of the chain names, in a sentence that says which one
    decides.
    """
    said = list[str]()
    for place, link in enumerate(chain):
        if "*" not in link.tools:
            continue
        where = f"(approvals.chain[{place}])"
        if isinstance(link, Match) and link.then not in (link.otherwise, "escalate"):
            said.append(f"{_BECOMES[link.then]} if its arguments match {link.rule} {where}")
        word = _of_no_name(link)
        if word != "escalate":
            return ", else ".join([*said, f"{_BECOMES[word]}{_unanswered(link)} {where}"])
    return ", else ".join([*said, "is refused: no approver decides about it"])


def _of_no_name(link: Approver) -> str:
    if isinstance(link, Rules):
        return next((rule.decision for rule in link.rules if rule.tool == "*"), "escalate")
    return link.otherwise if isinstance(link, Gate | Match) else word_of(link, "", "{}")


def _unanswered(link: Approver) -> str:
    if not isinstance(link, Human) or link.timeout is None or link.on_timeout == "escalate":
        return ""
    return f", and {_BECOMES[link.on_timeout]} if none answers in {link.timeout:g} s"


def gate_without_word(chain: Sequence[Approver], tool: Manifest, arguments: str) -> int | None:
    """The place in the chain of the gate that lets this call run unknown; None: there is none.

    A tool that says of itself that it only reads is known.
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


def unsorted(policy: Policy, tools: Collection[Manifest]) -> Iterator[Fault]:
    """The tools of a run that a gate of the policy would let run unknown."""
    chain = policy.approvals.chain if policy.approvals else ()
    found: dict[int, list[str]] = {}
    for tool in tools:
        place = gate_without_word(chain, tool, "{}")
        # Of a tool of which commands are named, each call shows by its arguments which it is.
        marks = () if place is None else _marks(chain[place], tool.name)
        if place is not None and not any(is_of(mark, tool.name) for mark in marks):
            found.setdefault(place, []).append(tool.name)
    for place, names in found.items():
        yield f"approvals.chain[{place}]", not_known(names)


def not_known(names: Sequence[str]) -> str:
    """What is said of tools that a gate does not know, and what to do."""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    listed = f"{', '.join(names[:_MOST])}{more}"
    return f"{listed} may run without a word in 'sensitive' or 'harmless': name each in one of them"


def _marks(link: Approver, name: str) -> tuple[str, ...]:
    """The marks by which the gate may know a tool of this name."""
    if not isinstance(link, Gate):
        return ()
    # Without case U+FB01 is `fi`, and the sign of Kelvin a `k`: what only looks harmless is not.
    alike = name.casefold().isascii() and not name.isascii()
    return (*(link.sensitive or ()), *(() if alike else link.harmless or ()))
