"""Policy files: TOML, YAML or JSON.

A file may come from anywhere: it is read as data and nothing more, a key that stands twice is refused where
TOML would refuse it, and so are YAML's aliases, by which a few lines can unfold into gigabytes.
"""

import importlib.util
import json
import re
import tomllib
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import yaml

from refold.engine.arguments import DEEPEST, BadSyntax
from refold.reducers.errors import PolicyError, WrongUse, brief, meant
from refold.reducers.guards import Registry
from refold.reducers.overlay import Setting
from refold.reducers.parser import parse, parse_with
from refold.reducers.policy import Policy
from refold.reducers.presets import PRESETS

KEY = "null"
_STEP = re.compile(r"\[\d{1,9}\]|[^.\[\]]+")
_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d{1,9}\]\.[^.\[\]]+)*")


def with_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """The data with null at each of the paths in its list `null`, which is gone. Raises `BadSyntax`."""
    paths = data.pop(KEY, [])
    if not isinstance(paths, list):
        raise BadSyntax(f'{KEY}: expected a list of paths, as ["pressure", "limits[0].value"]')
    for place, path in enumerate(_entries(paths)):
        if not isinstance(path, str) or not _PATH.fullmatch(path) or not _put(data, path):
            problem = "expected the path of something that this file does not give"
            raise BadSyntax(f"{KEY}[{place}]: {problem}, got {path!r}")
    return data


def without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """The same data as TOML can say it: what is null is left out, and its path is in a list `null`."""
    paths: list[str] = []
    plain: dict[str, Any] = _stripped(data, "", paths)
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


def _stripped(value: Any, path: str, paths: list[str]) -> Any:
    if isinstance(value, dict):
        plain = cast("dict[str, Any]", value)
        at = {key: f"{path}.{key}" if path else key for key in plain}
        paths += [at[key] for key, inner in plain.items() if inner is None]
        return {key: _stripped(inner, at[key], paths) for key, inner in plain.items() if inner is not None}
    if isinstance(value, list | tuple):
        listed = enumerate(_entries(value))
        return [_stripped(inner, f"{path}[{place}]", paths) for place, inner in listed]
    return value


# Bytes. The fullest preset, laid out, has 11,000; of what is YAML a reader takes some 50 microseconds for
# each.
_LARGEST = 1 << 17

# A key `a.a.a…` of that many parts, be it in a table's name. (In a text it would have to be one without a
# blank.)
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_CHAIN = re.compile(rf"(?<![\w-])(?:{_PART}){{{DEEPEST}}}")


class PolicyFileError(WrongUse):
    """A policy file that cannot be read or cannot work. `file` is its path, `problem` names the place in
    it.
    """

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(file, problem)
        self.file, self.problem = file, problem

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def chosen_policy(
    chosen: Path | None,
    registry: Registry,
    environment: Mapping[str, str],
    settings: Sequence[Setting] = (),
    *,
    agent: str = "",
) -> tuple[Policy, tuple[str, ...]]:
    """The policy that was asked for: a file, a preset by its name, or neither; and what the environment set
    of it.

    `agent` is the name for which variables may be. The settings are laid over it all. Raises
    `PolicyFileError`, or `PolicyError` for a variable or a setting that is no value.
    """
    if chosen is None or is_preset(chosen):
        preset = {"preset": chosen and str(chosen)}
        return parse_with(preset, environment, registry, agent=agent, settings=settings)
    with wrong_in(chosen, "a policy"):
        data, _ = data_of(chosen, f"a preset: {', '.join(PRESETS)}", PRESETS)
        if _lacks_schema(data):
            line = {".toml": 'schema = "refold/v1"', ".json": '"schema": "refold/v1",'}.get(
                chosen.suffix.lower()
            )
            raise PolicyError("schema", f"missing; add the line {line or 'schema: refold/v1'}")
    try:
        return parse_with(data, environment, registry, agent=agent, settings=settings)
    except PolicyError:
        with wrong_in(chosen, "a policy"):
            parse(data, registry)  # if the file can work by itself, the fault is a variable's or a setting's
        raise


def is_preset(path: Path) -> bool:
    """Whether a path is a preset's name and no file."""
    return str(path) in PRESETS and not path.is_file()


@contextmanager
def wrong_in(path: Path, what: str) -> Generator[None]:
    """Raises as `PolicyFileError` what is wrong with the data of a file, which is to be `what`."""
    try:
        yield
    except (PolicyError, BadSyntax) as error:
        raise PolicyFileError(str(path), brief(str(error))) from error
    except RecursionError as error:
        raise PolicyFileError(str(path), f"is nested too deeply to be {what}") from error


def data_of(path: Path, other: str, names: Iterable[str] = ()) -> tuple[Any, bytes]:
    """Read a small file that people write; return its data and its bytes.

    `other` is what may be named instead of a file, one of `names`.

    Raises `PolicyFileError` if it cannot be read or is large, `BadSyntax` for what is not its own format.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        if near := meant(str(path), names):
            raise PolicyFileError(str(path), f"no file and no preset has this name; did you mean {near!r}?")
        known = f"a file that ends in {', '.join(READERS)}, or {other}"
        raise PolicyFileError(str(path), f"expected {known}; got {path.suffix or 'no suffix'!r}")
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise PolicyFileError(str(path), f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL or a lone surrogate: no file has such a name
        problem = "cannot be read: no file can have such a name; name another"
        raise PolicyFileError(ascii(str(path)), problem) from error
    if len(data) > _LARGEST:
        raise PolicyFileError(
            str(path), f"is larger than {_LARGEST} bytes, too large for a policy or a table"
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
        return with_nulls(tomllib.loads(text))
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise BadSyntax(f"is no TOML: {error}") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise BadSyntax(f"is no JSON: {error.msg} (at line {error.lineno}, column {error.colno})") from error
    except ValueError as error:  # a number of thousands of digits
        raise BadSyntax(f"is no JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise BadSyntax(f"the key {key!r} stands twice in one object; keep one")
        made[key] = value
    return made


def _yaml(text: str) -> Any:
    if importlib.util.find_spec("yaml") is None:
        raise BadSyntax("is YAML, which needs the package pyyaml: pip install 'refold[cli]'")
    from refold.engine.policy_files import load

    return load(text)


READERS: Mapping[str, Callable[[str], Any]] = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml, ".json": _json}


def load(text: str) -> Any:
    """The data in a YAML text; of an empty one an empty mapping. Raises `BadSyntax` with line and column."""
    try:
        loaded: Any = yaml.load(text, Loader=_Strict)  # noqa: S506 - a SafeLoader, made stricter
    except yaml.MarkedYAMLError as error:
        raise BadSyntax(f"is no YAML: {error.problem}{_place(error.problem_mark)}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two of numbers and of `"\\U…"`
        raise BadSyntax(f"is no YAML: {error}") from error
    return {} if loaded is None else loaded


class _Strict(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = cast("yaml.AliasEvent", self.peek_event())  # type: ignore[no-untyped-call]
            raise BadSyntax(f"has an alias; write its value out{_place(alias.start_mark)}")
        if self.depth == DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise BadSyntax(f"is nested too deeply to be a policy{_place(mark)}")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - the library's
        try:
            made: Any = super().construct_object(node, deep)  # pyright: ignore[reportUnknownMemberType]
            return made
        except (AttributeError, LookupError, TypeError) as error:  # of a value that is not what its tag says
            kind = node.tag.rpartition(":")[2]
            raise BadSyntax(f"is no YAML: not of the type {kind!r}{_place(node.start_mark)}") from error

    def construct_mapping(
        self,
        node: yaml.Node,  # a tag may say so of a list
        deep: bool = False,  # noqa: FBT001, FBT002 - the library's
    ) -> dict[Hashable, Any]:
        seen: set[str] = set()
        if not isinstance(node, yaml.MappingNode):
            raise BadSyntax(f"is no YAML: what its tag calls a mapping is none{_place(node.start_mark)}")
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise BadSyntax(f"the key {name!r} stands twice; keep one{_place(key.start_mark)}")
            seen.add(name)
            # A key is the word that was written: YAML would make true of `on`, and nothing of `null`.
            key.tag = "tag:yaml.org,2002:str" if isinstance(key, yaml.ScalarNode) else key.tag
        return super().construct_mapping(node, deep)


def _place(mark: Any) -> str:
    return "" if mark is None else f" (at line {mark.line + 1}, column {mark.column + 1})"


def dump(data: dict[str, Any], *, escaped: bool = False) -> str:
    """The text of plain data, without aliases, in the order of its keys; `escaped`: in ASCII."""
    text: str = yaml.dump(data, Dumper=_Plain, sort_keys=False, allow_unicode=not escaped, width=100)
    return text


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True
