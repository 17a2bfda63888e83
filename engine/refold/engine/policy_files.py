"""Policy files: TOML, YAML or JSON.

Files may come from untrusted sources. They are read as data only. Duplicate keys are refused in every format,
and so are YAML aliases, with which a few lines can expand to gigabytes.
"""

import importlib.util
import json
import re
import tomllib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from refold.engine.arguments import DEEPEST, BadSyntax
from refold.engine.permission_files import dialect_of, read_permissions
from refold.reducers.errors import PolicyError, WrongUse, brief, meant
from refold.reducers.guards import Registry
from refold.reducers.overlay import Setting
from refold.reducers.parser import parse, parse_with
from refold.reducers.policy import Policy
from refold.reducers.presets import PRESETS

KEY = "null"
_STEP = re.compile(r"\[\d{1,9}\]|[^.\[\]]+")
_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d{1,9}\]\.[^.\[\]]+)*")


def insert_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Set null at each path in the list `null`, and remove that list. Raises `BadSyntax`."""
    paths = data.pop(KEY, [])
    if not isinstance(paths, list):
        raise BadSyntax(f'{KEY}: expected a list of paths, as ["pressure", "limits[0].value"]')
    for place, path in enumerate(_entries(paths)):
        if not isinstance(path, str) or not _PATH.fullmatch(path) or not _put(data, path):
            problem = "expected the path of a key that this file does not set"
            raise BadSyntax(f"{KEY}[{place}]: {problem}, got {path!r}")
    return data


def extract_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data for TOML, which has no null: null keys are removed, their paths listed in `null`."""
    paths: list[str] = []
    plain: dict[str, Any] = _strip_nulls(data, "", paths)
    return {KEY: paths, **plain} if paths else plain


def _entries(value: Any) -> list[Any]:
    return list(value)


def _put(data: Any, path: str) -> bool:
    *inner, last = _STEP.findall(path)
    for step in inner:
        if step.startswith("["):
            data = dict(enumerate(_entries(data))).get(int(step[1:-1])) if isinstance(data, list) else None
        elif isinstance(data, dict):
            data = cast("dict[str, Any]", data).setdefault(step, {})
    if not isinstance(data, dict) or last in data:
        return False
    cast("dict[str, Any]", data)[last] = None
    return True


def _strip_nulls(value: Any, path: str, paths: list[str]) -> Any:
    if isinstance(value, dict):
        plain = cast("dict[str, Any]", value)
        at = {key: f"{path}.{key}" if path else key for key in plain}
        paths += [at[key] for key, inner in plain.items() if inner is None]
        return {key: _strip_nulls(inner, at[key], paths) for key, inner in plain.items() if inner is not None}
    if isinstance(value, list | tuple):
        listed = enumerate(_entries(value))
        return [_strip_nulls(inner, f"{path}[{place}]", paths) for place, inner in listed]
    return value


# Bytes. The largest preset, fully written out, has 11,000. A YAML parser needs some 50 microseconds a byte.
_LARGEST = 1 << 17

# A dotted key `a.a.a…` of that many parts, also in a table's name, or a quoted text of this form.
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_CHAIN = re.compile(rf"(?<![\w-])(?:{_PART}){{{DEEPEST}}}")


class PolicyFileError(WrongUse):
    """A policy file that cannot be read or cannot work. `file` is its path, `problem` names the place."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(file, problem)
        self.file, self.problem = file, problem

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def load_policy(
    chosen: Path | None,
    registry: Registry,
    environment: Mapping[str, str],
    settings: Sequence[Setting] = (),
    *,
    agent: str = "",
) -> tuple[Policy, tuple[str, ...]]:
    """Load a policy from a file, a preset or neither; return it and what the environment set.

    `agent` is the agent's name in `REFOLD_*` variables. The settings have precedence over everything else.
    Raises `PolicyFileError`, and `PolicyError` for a variable or setting with a wrong value.
    """
    if chosen is None or is_preset(chosen):
        preset = {"preset": chosen and str(chosen)}
        return parse_with(preset, environment, registry, agent=agent, settings=settings)
    with file_errors(chosen, "a policy"):
        data, _ = read_data(chosen, f"a preset: {', '.join(PRESETS)}", PRESETS)
        if _lacks_schema(data):
            if "permissions" in data or "permission" in data:
                dialect = "claude" if "permissions" in data else "opencode"
                raise PolicyError("", f"has permission rules of another agent; write {dialect}:{chosen}")
            line = {".toml": 'schema = "refold/v1"', ".json": '"schema": "refold/v1",'}.get(
                chosen.suffix.lower()
            )
            raise PolicyError("schema", f"missing; add the line {line or 'schema: refold/v1'}")
    try:
        return parse_with(data, environment, registry, agent=agent, settings=settings)
    except PolicyError:
        with file_errors(chosen, "a policy"):
            parse(data, registry)  # if the file alone is valid, a variable or setting is wrong
        raise


def is_preset(path: Path) -> bool:
    """Return whether a path is a preset's name and not a file."""
    return str(path) in PRESETS and not path.is_file()


@contextmanager
def file_errors(path: Path, what: str) -> Generator[None]:
    """Raise errors in the data of a file, which is to be `what`, as `PolicyFileError`."""
    try:
        yield
    except (PolicyError, BadSyntax) as error:
        raise PolicyFileError(str(path), brief(str(error))) from error
    except RecursionError as error:
        raise PolicyFileError(str(path), f"is nested too deeply to be {what}") from error


def read_data(path: Path, other: str, names: Iterable[str] = ()) -> tuple[Any, bytes]:
    """Read a small data file; return its data and its bytes.

    `other` describes what may be named instead of a file: one of `names`. Raises `PolicyFileError` if the
    file cannot be read or is too large, and `BadSyntax` if it does not parse.
    """
    if dialect_of(path):
        try:
            return read_permissions(path)[0], b""
        except PolicyError as error:
            raise PolicyFileError(error.path, brief(error.problem)) from error
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        if near := meant(str(path), names):
            raise PolicyFileError(str(path), f"no file or preset has this name; did you mean {near!r}?")
        known = f"a file ending in {', '.join(READERS)}, or {other}"
        raise PolicyFileError(str(path), f"expected {known}; got {path.suffix or 'no suffix'!r}")
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise PolicyFileError(str(path), f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL or a lone surrogate: invalid in file names
        problem = "cannot be read: the file name is not valid; use another"
        raise PolicyFileError(ascii(str(path)), problem) from error
    if len(data) > _LARGEST:
        raise PolicyFileError(
            str(path), f"is larger than {_LARGEST} bytes, the maximum for a policy or a table"
        )
    try:
        return reader(data.decode("utf-8-sig")), data
    except UnicodeDecodeError as error:
        raise PolicyFileError(str(path), f"is not UTF-8 at byte {error.start}") from error


def _lacks_schema(data: object) -> bool:
    return isinstance(data, dict) and "schema" not in data


def _toml(text: str) -> Any:
    chain = _CHAIN.search(text)
    if chain is not None:
        line = text.count("\n", 0, chain.start()) + 1
        raise BadSyntax(
            f"is nested too deeply to be a policy: a key of {DEEPEST} parts or more (at line {line})"
        )
    try:
        return insert_nulls(tomllib.loads(text))
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise BadSyntax(f"is not valid TOML: {error}") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        place = f"(at line {error.lineno}, column {error.colno})"
        raise BadSyntax(f"is not valid JSON: {error.msg} {place}") from error
    except ValueError as error:  # a number of thousands of digits
        raise BadSyntax(f"is not valid JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise BadSyntax(f"the key {key!r} is listed twice in one object; keep one")
        made[key] = value
    return made


def _yaml(text: str) -> Any:
    if importlib.util.find_spec("yaml") is None:
        raise BadSyntax("is YAML, which needs the package pyyaml: pip install 'refold[cli]'")
    from refold.engine.yaml_text import load  # needs the extra `cli`

    return load(text)


READERS: Mapping[str, Callable[[str], Any]] = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml, ".json": _json}
