"""Permission rules of other agents as a policy's guard: `claude:PATH`, or several files: `codex:A,B`."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from refold.reducers.errors import PolicyError, faults_of
from refold.reducers.permissions.claude import convert_settings
from refold.reducers.permissions.codex import convert_rules
from refold.reducers.permissions.dialect import Converted, Note
from refold.reducers.permissions.gemini import convert_policies
from refold.reducers.permissions.opencode import convert_config

DIALECTS: Mapping[str, Callable[[Iterable[tuple[str, str]]], Converted]] = {
    "claude": convert_settings,
    "codex": convert_rules,
    "gemini": convert_policies,
    "opencode": convert_config,
}
"""By the prefix of an address: how the files of an agent are converted."""

_MAX_BYTES = 1 << 20


def dialect_of(path: Path) -> str:
    """Return the dialect that an address names, "" for none."""
    prefix, colon, _ = str(path).partition(":")
    return prefix if colon and prefix in DIALECTS else ""


def read_permissions(path: Path) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """Return a policy's data with one guard, and notes. Raises `PolicyError` with the file as its path."""
    dialect, _, listed = str(path).partition(":")
    if not listed:
        raise PolicyError(f"{dialect}:", f"expected the path of a file, as {dialect}:PATH")
    layers = [(str(each), _read(each)) for each in (Path(name).expanduser() for name in listed.split(","))]
    converted = DIALECTS[dialect](layers)
    if not converted.rules:
        raise PolicyError(listed, "has no permission rules")
    for rule in converted.rules:
        for key, problem in faults_of(rule):
            raise PolicyError(rule.source, f"{key}: {problem}")
    rules = [msgspec.to_builtins(rule) for rule in converted.rules]
    guard = {"guard": "permissions", "name": f"permissions of {dialect}", "rules": rules}
    guard |= {"order": converted.order, "else": converted.otherwise}
    return {"schema": "refold/v1", "guards": [guard]}, converted.notes


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise PolicyError(
                str(path), f"is larger than {_MAX_BYTES} bytes, the maximum for permission rules"
            )
        return data.decode("utf-8-sig")
    except OSError as error:
        raise PolicyError(str(path), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PolicyError(str(path), f"is not UTF-8 at byte {error.start}") from error
