"""Policies written out: whole, in their canonical form, as a file that is read back equal; and their schema."""

import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum, unique
from typing import Any

import msgspec

from refold.console import hostile
from refold.engine.policies.files import without_nulls
from refold.reducers.errors import WrongUse
from refold.reducers.guards import Registry
from refold.reducers.guards.endings import PrematureEnd
from refold.reducers.policy import Policy
from refold.reducers.presets import PRESETS


@unique
class Language(StrEnum):
    """The languages of policy files."""

    YAML = "yaml"
    TOML = "toml"
    JSON = "json"


def written(policy: Policy, language: Language) -> str:
    """The text of a file that says this policy. Raises `WrongUse` where the package that writes it is missing.

    A terminal may be shown it: where a text has characters that it must not get, none but ASCII is written.
    """
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy))
    texts = (_WRITERS[language](data, escaped) for escaped in (False, True))
    return next(text for text in texts if hostile.block(text) == text)


def schema(registry: Registry) -> dict[str, Any]:
    """JSON Schema (2020-12) of policies in canonical form, with the guards of the registry; or over a preset."""
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
    from refold.engine.policies.strict_yaml import dump

    return dump(data, escaped=escaped)


def _toml(data: dict[str, Any], escaped: bool) -> str:  # noqa: FBT001
    _need("tomli_w", "tomli-w")
    import tomli_w

    text = tomli_w.dumps(without_nulls(data))
    # What is no ASCII stands in quoted strings and keys only, whose escapes these are.
    return re.sub(r"[^\x00-\x7f]", lambda found: f"\\U{ord(found[0]):08x}", text) if escaped else text


def _json(data: dict[str, Any], escaped: bool) -> str:  # noqa: FBT001
    return hostile.json_text(json.dumps(data, indent=2, ensure_ascii=escaped)) + "\n"


def _need(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise WrongUse(f"writing this needs the package {package}: pip install 'refold[cli]'")


_WRITERS: Mapping[Language, Callable[[dict[str, Any], bool], str]] = {
    Language.YAML: _yaml,
    Language.TOML: _toml,
    Language.JSON: _json,
}
