"""The execution rules of Codex (`.rules` files), as rules of a policy.

Source: the documentation of Codex' execution policies. A rule is a prefix of a command's words; of several
rules that match, the strictest applies: forbidden before prompt before allow. A file is parsed and never
executed: only calls with literal arguments are rules.
"""

import ast
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from refold.reducers.errors import PolicyError, brief, shown
from refold.reducers.permissions.conditions import words_of
from refold.reducers.permissions.dialect import Converted, Note, name_rule
from refold.reducers.permissions.rules import Effect, PermissionRule

DIALECT = "Codex execution policies"

_EFFECTS: Mapping[str, Effect] = {"forbidden": "refuse", "prompt": "ask", "allow": "permit"}
_TOOLS = ("exec_command", "shell", "shell_command", "local_shell", "container.exec", "unified_exec", "Bash")
_FORMS = ("path",)
"""Tried with Codex 0.169: a script with more than plain words is one command that no rule matches."""
_KEYS = frozenset({"pattern", "decision", "justification", "match", "not_match"})


def convert_rules(layers: Iterable[tuple[str, str]]) -> Converted:
    """Convert rules files, given as (name, text). Raises `PolicyError` for text that is no rules file."""
    rules: list[PermissionRule] = []
    notes: list[Note] = []
    for name, text in layers:
        for statement in _parse(name, text):
            made = _convert(name, statement)
            if isinstance(made, Note):
                notes.append(made)
            else:
                rules.append(made)
    return Converted(tuple(rules), tuple(notes))


def _parse(name: str, text: str) -> Iterator[ast.stmt]:
    try:
        yield from ast.parse(text, mode="exec").body
    except SyntaxError as error:
        raise PolicyError(
            f"{name}:{error.lineno}", f"is not a rules file: {brief(str(error.msg))}"
        ) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise PolicyError(name, "is nested too deeply, or has a NUL byte: not a rules file") from error


def _convert(name: str, statement: ast.stmt) -> PermissionRule | Note:
    where = f"{name}:{statement.lineno}"
    call = statement.value if isinstance(statement, ast.Expr) else None
    function = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
    if function in ("host_executable", "network_rule"):
        return Note(where, f"{function}: not a rule about commands; not applied here")
    if not isinstance(call, ast.Call) or function != "prefix_rule":
        raise PolicyError(where, "expected prefix_rule(...): files are parsed and not executed")
    given = _arguments(where, call)
    if unknown := sorted(given.keys() - _KEYS):
        raise PolicyError(where, f"unknown argument {shown(unknown[0])}; expected {', '.join(sorted(_KEYS))}")
    decision = given.get("decision", "allow")
    if not isinstance(decision, str) or decision not in _EFFECTS:
        raise PolicyError(where, f"decision: expected one of {', '.join(_EFFECTS)}, got {shown(decision)}")
    pattern = _prefix(where, given.get("pattern"))
    title = " ".join(word if isinstance(word, str) else "|".join(word) for word in pattern)
    return PermissionRule(
        effect=_EFFECTS[decision],
        tool=_TOOLS,
        command=pattern,
        say=_text(where, "justification", given.get("justification", "")),
        match=_examples(where, "match", given.get("match", ())),
        not_match=_examples(where, "not_match", given.get("not_match", ())),
        source=name_rule(title, where),
        forms=_FORMS,
    )


def _arguments(where: str, call: ast.Call) -> dict[str, Any]:
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise PolicyError(where, "expected named arguments, as pattern = [...]")
    try:
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError) as error:
        raise PolicyError(where, "expected literal arguments: texts and lists of texts") from error


def _prefix(where: str, pattern: object) -> tuple[str | tuple[str, ...], ...]:
    words = cast("list[object]", pattern) if isinstance(pattern, list) else []
    made: list[str | tuple[str, ...]] = []
    for word in words:
        if isinstance(word, str) and word:
            made.append(word)
        elif (choices := words_of(word)) and all(choices):
            made.append(choices)
        else:
            made.clear()
            break
    if not made:
        raise PolicyError(where, f"pattern: expected words and lists of alternatives, got {shown(pattern)}")
    return tuple(made)


def _text(where: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise PolicyError(where, f"{key}: expected text, got {shown(value)}")
    return value


def _examples(where: str, key: str, examples: object) -> tuple[str, ...]:
    """Return examples as command lines; each is given as such, or as a list of words."""
    if not isinstance(examples, list | tuple):
        raise PolicyError(where, f"{key}: expected a list of commands, got {shown(examples)}")
    lines: list[str] = []
    for example in cast("list[object]", examples):
        words = words_of(example)
        lines.append(_text(where, key, example) if words is None else shlex.join(words))
    return tuple(lines)
