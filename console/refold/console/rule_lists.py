"""Lists of permission rules as commands name them: a file, a file at a git revision, or `claude:auto`.

`claude:auto` finds the settings of each session: managed, of the user, of the project and local, by the
directory in which the session began. A file in a git repository is read as it was at that time.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from refold.console.screen import note
from refold.engine.compatibility import installed_guards
from refold.engine.permission_files import (
    MAX_BYTES,
    Layer,
    NoRules,
    convert_layers,
    decode_layer,
    dialect_of,
    files_of,
    policy_data,
    read_layer,
)
from refold.engine.policy_files import READERS, PolicyFileError, file_errors, load_policy
from refold.reducers import events as ev
from refold.reducers.errors import Inconclusive, PolicyError, WrongUse, brief
from refold.reducers.guards.permissions import Permissions
from refold.reducers.parser import parse
from refold.reducers.permissions.dialect import Converted
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Unknown
from refold.replay import figures
from refold.replay.permissions.calls import RuleList

AUTO = "claude:auto"
NOT_COMPARED = "its other guards and its approvals are not judged here"


class UnknownSettings(Inconclusive):
    """The settings of a session cannot be found; the text says why."""


def load_rules(address: Path, revision: str | None = None) -> RuleList:
    """Load the rules that an address names, if given as they are at a git revision.

    Raises `PolicyFileError`, and `WrongUse` for a policy without one guard `permissions`.
    """
    name = str(address) if revision is None else f"{address} at {revision}"
    dialect = dialect_of(address)
    if dialect:
        converted = convert_rules(address, revision)
        return _converted_list(name, dialect, converted)
    policy = _load(address, revision)
    beside = len(policy.guards) > 1 or policy.approvals is not None
    notes = (f"{name}: {NOT_COMPARED}",) if beside else ()
    return RuleList(name, _guard_of(address, policy), notes=notes)


def convert_rules(address: Path, revision: str | None = None) -> Converted:
    """Convert the rules of another agent that an address names. Raises `PolicyFileError`."""
    try:
        layers = [_read(path, revision) for path in files_of(address)]
        return convert_layers(dialect_of(address), layers)
    except PolicyError as error:
        raise PolicyFileError(error.path, brief(error.problem)) from error


def _load(path: Path, revision: str | None) -> Policy:
    if revision is None:
        return load_policy(path, installed_guards(), {})[0]
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise PolicyFileError(
            str(path), f"expected a file ending in {', '.join(READERS)} to compare revisions"
        )
    with file_errors(path, "a policy"):
        _, text = _read(path, revision)
        return parse(reader(text), installed_guards())


def _read(path: Path, revision: str | None) -> Layer:
    if revision is None:
        return str(path), decode_layer(path, read_layer(path))
    from refold.engine.git_files import read_at

    return str(path), decode_layer(path, read_at(path, revision, MAX_BYTES))


def _converted_list(name: str, dialect: str, converted: Converted) -> RuleList:
    policy = parse(policy_data(dialect, converted), installed_guards())
    notes = tuple(f"{each.place}: {each.problem}" for each in converted.notes)
    guard = _guard_of(Path(name), policy)
    return RuleList(name, guard, has_default=converted.otherwise is not None, notes=notes)


def _guard_of(path: Path, policy: Policy) -> Permissions:
    configs = [config for config in policy.guards if config["guard"] == Permissions.kind]
    if len(configs) != 1:
        raise WrongUse(f"{path}: expected one guard 'permissions', got {len(configs)}")
    return msgspec.convert(configs[0], Permissions)


class SettingsFile(NamedTuple):
    """A settings file as a session had it. `commit`: where it is from, None for the current file."""

    path: Path
    commit: str | None = None
    changed_since: bool = False  # or possibly


class SessionSettings:
    """Finds the settings of Claude Code for each session, and reports once what was read."""

    def __init__(self) -> None:
        self._told: set[SettingsFile] = set()

    def __call__(self, started: ev.RunStarted) -> tuple[RuleList, ...]:
        """Return the rules that applied to a session.

        Raises `UnknownSettings` if its directory is not recorded or does not exist here, or no rules are
        found for it, or a file of them cannot be read.
        """
        cwd = started.labels.get("cwd", "")
        if not cwd:
            raise UnknownSettings("the directory of the session is not recorded, so its settings are unknown")
        if not _is_usable(cwd):
            shown = figures.shorten(cwd, 200)
            raise UnknownSettings(f"{shown} does not exist here, so the settings of its sessions are unknown")
        at = None if Unknown.TIME in started.unknown else started.at // 10**9
        try:
            found = tuple(_as_of(path, at) for path in _list_paths(Path(cwd)))
            for each in found:
                self._tell(each)
            rules = _convert_found(found)
        except (PolicyFileError, OSError) as error:
            raise UnknownSettings(f"settings of sessions in {cwd} cannot be read: {error}") from error
        if rules is None:
            raise UnknownSettings(f"no permission rules are found for sessions in {cwd}")
        return (rules,)

    def policy_for(self, started: ev.RunStarted) -> Policy:
        """Return the same as a policy with one guard. Raises as a call."""
        (rules,) = self(started)
        guard = msgspec.to_builtins(rules.guard)
        return parse({"schema": "refold/v1", "guards": [guard]}, installed_guards())

    def _tell(self, each: SettingsFile) -> None:
        if each in self._told:
            return
        self._told.add(each)
        version = f" at commit {each.commit[:10]}" if each.commit else ""
        changed = "; it may have been changed after the session" if each.changed_since else ""
        note(f"read {each.path}{version}{changed}")


@cache
def _convert_found(found: tuple[SettingsFile, ...]) -> RuleList | None:
    try:
        layers = [_read(each.path, each.commit) for each in found]
        converted = convert_layers("claude", layers) if layers else None
    except NoRules:
        return None
    except PolicyError as error:
        raise PolicyFileError(error.path, error.problem) from error
    return None if converted is None else _converted_list(AUTO, "claude", converted)


def _list_paths(cwd: Path) -> Iterator[Path]:
    """Yield the existing settings files for a directory, as Claude Code documents their places.

    Raises `PolicyFileError` for a pipe or folder in the place of one, and `OSError`.
    """
    from refold.engine.git_files import was_committed

    managed = _MANAGED.get(sys.platform, Path("/etc/claude-code"))
    user = Path(os.environ.get("CLAUDE_CONFIG_DIR", "~/.claude")).expanduser()
    project = cwd / ".claude"
    candidates: Sequence[Path] = (
        managed / "managed-settings.json",
        *sorted((managed / "managed-settings.d").glob("*.json")),
        user / "settings.json",
        project / "settings.json",
        project / "settings.local.json",
    )
    for path in dict.fromkeys(candidates):
        if path.is_file() and not _is_system(path):
            yield path
        elif path.exists():
            raise PolicyFileError(str(path), "is not a regular file")
        elif path.is_relative_to(project) and was_committed(cwd, f"./.claude/{path.name}"):
            raise PolicyFileError(str(path), "was deleted, and earlier sessions may have had it")


def _is_usable(cwd: str) -> bool:
    """Return whether a recorded directory can be looked into here."""
    try:
        path = Path(cwd)
        return path.is_absolute() and path.is_dir() and not _is_system(path)
    except (OSError, ValueError):
        return False


def _is_system(path: Path) -> bool:
    """Return whether a path leads to files of the system that are not on a disk, and may block a reader."""
    return path.resolve().parts[1:2] in (("proc",), ("sys",), ("dev",))


_MANAGED = {
    "darwin": Path("/Library/Application Support/ClaudeCode"),
    "win32": Path("C:/Program Files/ClaudeCode"),
}


def _as_of(path: Path, seconds: int | None) -> SettingsFile:
    """Return the version of a file at a time; if it is not known, the current file."""
    if seconds is None:
        return SettingsFile(path, changed_since=True)
    versions = _list_versions(path)
    before = [commit for at, commit in versions or () if at <= seconds]
    if before:
        return SettingsFile(path, before[-1])
    return SettingsFile(path, changed_since=path.stat().st_mtime > seconds)


@cache
def _list_versions(path: Path) -> list[tuple[int, str]] | None:
    from refold.engine.git_files import list_versions

    return list_versions(path, MAX_BYTES)
