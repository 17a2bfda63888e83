"""`refold policy import`: permission rules of another agent as a policy file of refold."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from refold.console.options import option
from refold.console.rule_lists import convert_rules
from refold.console.screen import Screen, note
from refold.engine.permission_files import DIALECTS, VERSIONS, dialect_of, files_of
from refold.reducers.errors import WrongUse
from refold.reducers.permissions.dialect import Converted
from refold.reducers.permissions.rules import PermissionRule
from refold.reducers.permissions.shadowing import find_shadowed


class ImportedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A converted policy, as JSON. `shadowed` has rules that never decide, each with the one that does."""

    dialect: str
    policy: str
    rules: int
    notes: list[str]
    shadowed: dict[str, str]


def policy_import_command(
    screen: Screen,
    *,
    source: Annotated[
        str, option("--from", "claude:PATH, codex:PATH, gemini:PATH or opencode:PATH; several: PATH,PATH.")
    ],
) -> int:
    """Write the permission rules of another agent as a policy file, each with its file and line.

    The policy goes to stdout. Rules that the agent itself ignores, that another rule shadows, or that cannot
    be judged here are named in its comments and on stderr.

    Example: refold policy import --from claude:.claude/settings.json > rules.yaml
    """
    address = Path(source)
    dialect = dialect_of(address)
    if not dialect:
        raise WrongUse(f"--from: expected {', '.join(f'{name}:PATH' for name in DIALECTS)}, got {source!r}")
    converted = convert_rules(address)
    files = ", ".join(map(str, files_of(address)))
    lines = [*_write_header(files, VERSIONS[dialect], converted), *_write_rules(dialect, converted)]
    text = "".join(f"{line}\n" for line in lines)
    shadowed = dict(_name_shadowed(converted))
    notes = [f"{each.place}: {each.problem}" for each in converted.notes]
    report = ImportedPolicy(
        dialect=VERSIONS[dialect], policy=text, rules=len(converted.rules), notes=notes, shadowed=shadowed
    )
    screen.result(report, lambda: screen.text(text))
    for each in (*notes, *(f"{rule}: shadowed by {by}" for rule, by in shadowed.items())):
        note(each)
    return 0


def _name_shadowed(converted: Converted) -> Iterator[tuple[str, str]]:
    for place, by in find_shadowed(converted.rules, converted.order):
        yield converted.rules[place].label, converted.rules[by].label


def _write_header(files: str, version: str, converted: Converted) -> Iterator[str]:
    yield f"# The permission rules of {_comment(files)}, read as {version} documents them."
    if converted.otherwise is None:
        yield "# Without a rule, a mode of the agent decides, which is not in its files; here such calls run ('else')."
    yield "# Only these rules over recorded runs: refold whatif --policy FILE --only guards"
    if any(rule.forms is not None for rule in converted.rules):
        yield "# These rules also find commands in forms in which the agent may not, such as behind env."
    if converted.notes:
        yield "# Not rules, or not as they look:"
        yield from (f"#   {_comment(f'{each.place}: {each.problem}')}" for each in converted.notes)


def _write_rules(dialect: str, converted: Converted) -> Iterator[str]:
    shadowed = dict(find_shadowed(converted.rules, converted.order))
    yield "schema: refold/v1"
    yield "guards:"
    yield "- guard: permissions"
    yield f"  name: permissions of {dialect}"
    yield f"  order: {converted.order}"
    yield f"  else: {converted.otherwise or 'permit'}"
    yield "  rules:"
    for place, rule in enumerate(converted.rules):
        by = f"; never decides: {converted.rules[shadowed[place]].label} does" if place in shadowed else ""
        unsure = f"; cannot be judged: {rule.opaque}" if rule.opaque else ""
        yield f"  # {_comment(rule.label + by + unsure)}"
        yield f"  - {write_rule(rule)}"


def _comment(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


_ORDER = {"effect": 0, "tool": 1, "source": 3}  # all other keys are between


def write_rule(rule: PermissionRule) -> str:
    """Return a rule in one line, as JSON, which YAML includes.

    It has no `forms`: as a rule of refold, it finds commands in all of them.
    """
    rule = msgspec.structs.replace(rule, forms=None)
    default = PermissionRule(effect=rule.effect)
    given = {
        key: value
        for key, value in msgspec.to_builtins(rule).items()
        if key == "effect" or value != msgspec.to_builtins(getattr(default, key))
    }
    return json.dumps(dict(sorted(given.items(), key=lambda item: _ORDER.get(item[0], 2))))
