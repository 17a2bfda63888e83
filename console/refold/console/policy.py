"""`refold policy`: presets, policies in full, checks of files, and the schema."""

import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum, unique
from pathlib import Path
from typing import Annotated, Any

import msgspec

from refold.console import descriptions
from refold.console.options import argument, option
from refold.console.screen import Column, Screen
from refold.engine.compatibility import installed_guards
from refold.engine.permission_files import dialect_of, read_permissions
from refold.engine.policy_files import extract_nulls, load_policy
from refold.reducers.complaints import notes, warnings
from refold.reducers.errors import WrongUse
from refold.reducers.guards import Registry
from refold.reducers.guards.endings import PrematureEnd
from refold.reducers.guards.permissions import Permissions
from refold.reducers.named_tools import describe_default_decision
from refold.reducers.overlay import find_ignored_variables
from refold.reducers.permissions.shadowing import find_shadowed
from refold.reducers.policy import Policy
from refold.reducers.presets import PRESETS
from refold.reducers.sizes import refuse_without_tokenizer
from refold.replay.permissions.calls import label_rules


@unique
class Language(StrEnum):
    """The languages of policy files."""

    YAML = "yaml"
    TOML = "toml"
    JSON = "json"


def render_policy(policy: Policy, language: Language) -> str:
    """Return the text of a policy file. Raises `WrongUse` if the package that writes the language is missing.

    The text is safe for terminals: if it contains control characters, non-ASCII characters are escaped.
    """
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy))
    texts = (_WRITERS[language](data, escaped) for escaped in (False, True))
    return next(text for text in texts if descriptions.block(text) == text)


def schema(registry: Registry) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of policies in canonical form, optionally based on a preset, with
    the registry's guards.
    """
    kinds = [*registry.values(), PrematureEnd]
    _, parts = msgspec.json.schema_components((Policy, *kinds), ref_template="#/$defs/{name}")
    described: dict[str, Any] = parts["Policy"]
    keys: dict[str, Any] = described["properties"]
    keys["guards"]["items"] = {"anyOf": _refs(registry.values())}
    keys["premature_end"] = {"anyOf": [{"type": "null"}, *_refs([PrematureEnd])], "default": None}
    parts[PrematureEnd.__name__].pop("required", None)
    described["properties"] = {"preset": {"enum": list(PRESETS)}, **keys}
    described["required"] = ["schema"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/Policy",
        "$defs": parts,
    }


def _refs(kinds: Iterable[type[Any]]) -> list[dict[str, str]]:
    return [{"$ref": f"#/$defs/{kind.__name__}"} for kind in kinds]


def _yaml(data: dict[str, Any], escaped: bool) -> str:  # noqa: FBT001
    _need("yaml", "pyyaml")
    from refold.engine.yaml_text import dump

    return dump(data, escaped=escaped)


def _toml(data: dict[str, Any], escaped: bool) -> str:  # noqa: FBT001
    _need("tomli_w", "tomli-w")
    import tomli_w

    text = tomli_w.dumps(extract_nulls(data))
    # Non-ASCII characters occur only in quoted strings and keys, where these escapes are valid.
    return re.sub(r"[^\x00-\x7f]", lambda found: f"\\U{ord(found[0]):08x}", text) if escaped else text


def _json(data: dict[str, Any], escaped: bool) -> str:  # noqa: FBT001
    return descriptions.json_text(json.dumps(data, indent=2, ensure_ascii=escaped)) + "\n"


def _need(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise WrongUse(f"writing this needs the package {package}: pip install 'refold[cli]'")


_WRITERS: Mapping[Language, Callable[[dict[str, Any], bool], str]] = {
    Language.YAML: _yaml,
    Language.TOML: _toml,
    Language.JSON: _json,
}


SENTENCES = {
    "inspect-iterative": "works until a limit or a keyword ends it; a nudge at each step, a window of 100 messages",
    "paperbench": "works and retries until its time is up; compacts on overflow",
    "guardrails": "50 steps, budgets, a stop on repeated calls, two recoveries from cut answers",
    "hermes": "90 steps a turn, warnings at 70 % and 90 %, summaries, one last request without tools",
    "utah": "20 steps a turn, warnings in the last 10, old results shortened",
    "tirea": "limits checked after a step, previews of results, a token budget, broken streams continued",
    "observed": "the policy of imported runs: no limits, no decision that the source did not make",
    "paperbench-solver": "paperbench as its later solver: steps, a submit tool, full jitter",
    "guardrails-later": "guardrails with more: premature ends, endless reading, the wrong shell, summaries",
    "hermes-quiet": "hermes without pressure",
    "hermes-optin": "hermes with one warning, once a turn",
    "hermes-guarded": "hermes with guards against futile calls",
    "awaken": "tirea's successor: 16 steps checked after the response, no retries, calls approved by an operator",
}

PolicyName = Annotated[Path, argument("A file (.toml, .yaml, .json), or a preset.")]


def policy_list_command(screen: Screen) -> int:
    """List the presets and their variants. With -o json: one array."""
    rows = [(name, str(data.get("preset", "")), SENTENCES[name]) for name, data in PRESETS.items()]
    columns = (Column("NAME"), Column("VARIANT OF"), Column("DESCRIPTION", elastic=True))
    listed = [{"name": name, "of": of or None, "is": said} for name, of, said in rows]
    screen.result(listed, lambda: screen.table(columns, rows))
    return 0


def policy_show_command(
    screen: Screen,
    policy: PolicyName,
    *,
    language: Annotated[
        Language | None, option("--format", "The language of the file.", shows="yaml; json with -o json")
    ] = None,
) -> int:
    """Print a policy in full as a policy file: presets resolved, and every default and text filled in.

    Example: refold policy show guardrails --format toml
    """
    found, _ = load_policy(policy, installed_guards(), {})
    text = render_policy(found, language or (Language.JSON if screen.json else Language.YAML))
    screen.styled(text.rstrip("\n"))
    return 0


def policy_check_command(screen: Screen, policy: PolicyName) -> int:
    """Check a policy as `refold run` would read it, and report errors, warnings and notes.

    Warnings are probable mistakes, such as limits that are never reached. For approvals it also reports what
    happens to calls of tools that they do not name.

    Example: refold policy check policy.yaml

    With -o json: one document. Exit code 2 for a policy that cannot work.
    """
    found, chosen = load_policy(policy, installed_guards(), os.environ)
    refuse_without_tokenizer(found)
    complaints = (*warnings(found), *_warn_of_rules(policy, found))
    told = (*map(str, notes(found)), *find_ignored_variables(os.environ))
    others = describe_default_decision(found.approvals.chain) if found.approvals else None
    lines = [
        *(f"environment: {setting}" for setting in chosen),
        *(f"warning: {complaint}" for complaint in complaints),
        *(f"note: {each}" for each in told),
        *([f"approvals: a call of any other tool {others}"] if others else []),
        f"{policy} is valid",
    ]
    document = {
        "policy": str(policy),
        "environment": chosen,
        "warnings": complaints,
        "notes": told,
        "others": others,
    }
    screen.result(document, lambda: screen.text("".join(f"{descriptions.line(line)}\n" for line in lines)))
    return 0


def _warn_of_rules(path: Path, policy: Policy) -> Iterator[str]:
    """Yield permission rules that another agent ignores, and those that never decide a call."""
    for each in read_permissions(path)[1] if dialect_of(path) else ():
        yield f"{each.place}: {each.problem}"
    for config in policy.guards:
        if config["guard"] == Permissions.kind:
            guard = msgspec.convert(config, Permissions)
            labels = label_rules(guard.rules)
            for place, by in find_shadowed(guard.rules, guard.order):
                yield f"rule {labels[place]} never decides: {labels[by]} does"


def policy_schema_command(screen: Screen) -> int:
    """Print the JSON Schema of policy files, with the installed guards."""
    screen.document(schema(installed_guards()))
    return 0
