"""Checks of rules over arguments, and why such a rule is unknown for a call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.reducers.errors import Fault, shown
from refold.reducers.permissions.conditions import (
    ArgumentConditions,
    ToolCall,
    explain_lack,
    holds,
    lacks_record,
    list_parts,
)
from refold.reducers.permissions.shell import installed_grammar

_NONE_GIVEN = "expected one or more of command, path, host, matches, when, got none"


def find_grammar_problem(grammar: str) -> str:
    """Return why rules over commands with this version of the grammar cannot be evaluated here, or ""."""
    installed = installed_grammar()
    if not installed:
        return "rules over commands need the shell grammar: pip install 'refold[shell]'"
    if grammar == installed:
        return ""
    return f"recorded with the shell grammar {grammar or 'not installed'}, and {installed} is installed"


def find_rule_problems(
    rule: ArgumentConditions, grammar: str, examples: Mapping[str, Sequence[str]], *, permits: bool
) -> Iterator[Fault]:
    """Yield why a rule cannot be evaluated, and its examples that it judges otherwise."""
    faults = [*ArgumentConditions.problems(rule)]
    if rule.is_plain and rule.matches is None:
        faults.append(("matches", _NONE_GIVEN))
    if rule.command is not None and (problem := find_grammar_problem(grammar)):
        faults.append(("grammar", problem))
    yield from faults
    if not faults:
        judged = replace(rule, when=None)  # an example is of no run
        yield from find_contradictions(
            rule, examples, lambda call: holds(judged, call, permits=permits) is True
        )


def find_contradictions(
    rule: ArgumentConditions, examples: Mapping[str, Sequence[str]], applies: Callable[[ToolCall], bool]
) -> Iterator[Fault]:
    """Yield the examples of a rule that it judges otherwise: those of `match` must match, others must not."""
    for key, listed in examples.items():
        for place, example in enumerate(listed):
            call = ToolCall(rule.globs[0], _example_arguments(rule, example))
            if applies(call) is not (key == "match"):
                problem = "does not match this rule" if key == "match" else "matches this rule"
                yield f"{key}[{place}]", f"{shown(example)} {problem}"


def _example_arguments(rule: ArgumentConditions, example: str) -> str:
    """Return the arguments of an example: itself if it is a JSON object, else in the field that is read."""
    if example.startswith("{"):
        return example
    usual = "command" if rule.command is not None else "path" if rule.path else "url" if rule.host else "text"
    value: Any = example
    for key in reversed((rule.field or usual).split(".")):
        value = {key: value}
    return msgspec.json.encode(value).decode()


def explain_unknown(rule: ArgumentConditions, call: ToolCall) -> str:
    """Return why it is unknown whether the conditions of a rule hold for a call."""
    opaque = next((part.opaque for part in list_parts([rule], call) if part.opaque), "")
    return opaque or explain_lack(rule, call)


def is_undecided(rule: ArgumentConditions, call: ToolCall, *, permits: bool) -> bool:
    """Return whether it is unknown how a rule decides a call. Rules never permit what they cannot read."""
    if holds(rule, call, permits=permits) is not None:
        return False
    return not permits or any(lacks_record(rule, call, part) for part in list_parts([rule], call))
