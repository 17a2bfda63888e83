"""Permission rules of other agents as a policy's guard: `claude:PATH`, or several files: `codex:A,B`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from refold.reducers.errors import PolicyError, faults_of
from refold.reducers.permissions import claude, codex, gemini, opencode
from refold.reducers.permissions.dialect import Converted, Note

Layer = tuple[str, str]
"""The name of a file and its text."""

DIALECTS: Mapping[str, Callable[[Iterable[Layer]], Converted]] = {
    "claude": claude.convert_settings,
    "codex": codex.convert_rules,
    "gemini": gemini.convert_policies,
    "opencode": opencode.convert_config,
}
"""By the prefix of an address: how the files of an agent are converted."""

VERSIONS: Mapping[str, str] = {
    "claude": claude.DIALECT,
    "codex": codex.DIALECT,
    "gemini": gemini.DIALECT,
    "opencode": opencode.DIALECT,
}
"""By the prefix of an address: the agent and the version whose documentation the conversion follows."""


class NoRules(PolicyError):
    """Files of an agent without any permission rule."""


MAX_BYTES = 1 << 20
"""Maximum size of a file with permission rules."""


def dialect_of(path: Path) -> str:
    """Return the dialect that an address names, "" for none."""
    prefix, colon, _ = str(path).partition(":")
    return prefix if colon and prefix in DIALECTS else ""


def files_of(address: Path) -> list[Path]:
    """Return the files that an address names. Raises `PolicyError` if it names none."""
    dialect, _, listed = str(address).partition(":")
    if not listed:
        raise PolicyError(dialect, f"expected the path of a file, as {dialect}:PATH")
    try:
        return [Path(name).expanduser() for name in listed.split(",")]
    except RuntimeError as error:
        raise PolicyError(listed, f"names a home that does not exist: {error}") from error


def read_permissions(address: Path) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """Return a policy's data with one guard, and notes. Raises `PolicyError` with the file as its path."""
    dialect = dialect_of(address)
    layers = [(str(path), decode_layer(path, read_layer(path))) for path in files_of(address)]
    converted = convert_layers(dialect, layers)
    return policy_data(dialect, converted), converted.notes


def convert_layers(dialect: str, layers: Sequence[Layer]) -> Converted:
    """Convert files of an agent. Raises `PolicyError` if they have no rule, or one that cannot work."""
    converted = DIALECTS[dialect](layers)
    if not converted.rules:
        raise NoRules(",".join(name for name, _ in layers), "has no permission rules")
    for rule in converted.rules:
        for key, problem in faults_of(rule):
            raise PolicyError(rule.source, f"{key}: {problem}")
    return converted


def policy_data(dialect: str, converted: Converted) -> dict[str, Any]:
    """Return converted rules as the data of a policy with one guard."""
    rules = [msgspec.to_builtins(rule) for rule in converted.rules]
    guard = {"guard": "permissions", "name": f"permissions of {dialect}", "rules": rules}
    guard |= {"order": converted.order, "else": converted.otherwise or "permit"}
    return {"schema": "refold/v1", "guards": [guard]}


def read_layer(path: Path) -> bytes:
    """Return the bytes of a file with permission rules. Raises `PolicyError`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PolicyError(str(path), f"cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise PolicyError(str(path), f"is larger than {MAX_BYTES} bytes, the maximum for permission rules")
    return data


def decode_layer(path: Path, data: bytes) -> str:
    """Return the text of a file with permission rules. Raises `PolicyError` for bytes that are not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PolicyError(str(path), f"is not UTF-8 at byte {error.start}") from error
