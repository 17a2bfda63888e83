"""Errors: one small hierarchy by what a caller does next, and the reporting of refused policies.

`WrongUse`: fix the call or the input. `Damaged`: the log differs from what was written; investigate.
`ExternalFailure`: disk, network or provider failed; retry later. `Inconclusive`: nothing is known to be
wrong, but the evidence is insufficient. The console maps each to its exit code.
"""

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import inspect


class RefoldError(Exception):
    """Base of every error that refold raises on purpose."""

    exit_code = 1


class WrongUse(RefoldError):
    """A mistake of the caller: an input that cannot work. Nothing was changed."""

    exit_code = 2


class Damaged(RefoldError):
    """A log that is not intact, was edited, or breaks the rules of the machine."""

    exit_code = 3


class ExternalFailure(RefoldError):
    """An external failure: of disk, network or provider. Recorded events stay recorded."""

    exit_code = 4


class Inconclusive(RefoldError):
    """Insufficient evidence: written by a newer refold, or erased."""

    exit_code = 125


class DamagedLog(Damaged):
    """An event that is impossible at its position.

    `seq`: the event's number in the run, from 1. `problem`: one sentence.
    """

    def __init__(self, run: str, seq: int, problem: str) -> None:
        super().__init__(run, seq, problem)
        self.run, self.seq, self.problem = run, seq, problem

    def __str__(self) -> str:
        return f"run {self.run or '?'} event {self.seq}: {self.problem}"


class NewerLog(Inconclusive):
    """An event unknown to this version: a newer refold wrote the log."""

    def __init__(self, run: str, seq: int, problem: str) -> None:
        super().__init__(run, seq, problem)
        self.run, self.seq, self.problem = run, seq, problem

    def __str__(self) -> str:
        return (
            f"run {self.run or '?'} event {self.seq}: {self.problem}: written by a newer refold; "
            "install that version to read it"
        )


class UnreleasedLog(Inconclusive):
    """A log in a shape that no released version wrote or can read."""

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(run, seq)
        self.run, self.seq = run, seq

    def __str__(self) -> str:
        return (
            f"run {self.run or '?'} event {self.seq}: its log has no format: an unreleased version of refold wrote it, "
            "and no released one reads it"
        )


class MissingFact(Inconclusive):
    """A replay needs something that its log does not hold. It never asks the world instead."""

    def __init__(self, run: str, what: str) -> None:
        super().__init__(run, what)
        self.run, self.what = run, what

    def __str__(self) -> str:
        return f"run {self.run}: {self.what}; a replay answers from the log only"


class IllegalMove(Damaged):
    """A transition that is not in the machine's table, live or in a replay."""

    def __init__(self, source: str, trigger: str, target: str | None = None) -> None:
        super().__init__(source, trigger, target)
        self.source, self.trigger, self.target = source, trigger, target

    def __str__(self) -> str:
        to = f" to {self.target}" if self.target else ""
        return f"the machine has no move {str(self.trigger)!r} from {self.source}{to}"


class UnexpectedEvent(Damaged):
    """An event that nothing in the state requested."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(kind, problem)
        self.kind, self.problem = kind, problem

    def __str__(self) -> str:
        return f"unexpected {self.kind}: {self.problem}"


class PolicyError(WrongUse):
    """A policy that cannot work. `path` is the key, as in `limits[2].value`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class NoSuchEntry(PolicyError):
    """A change of a limit, guard or compaction step that this policy does not have; another may."""


def choices(model: type, path: str) -> list[str]:
    """Return the words allowed at `path` (as in `limits[2].type`) of a `model`, in order; empty: no list."""
    return sorted({word for kind in _choices_at(model, path) for word in _allowed_words(kind)})


def keys(model: type, path: str, tags: Collection[str]) -> list[str]:
    """Return the keys of the mapping at `path` (as in `limits[2]`) of a `model`; empty: any, or no mapping.

    If it may be one of several kinds, `tags` are the texts in it, which include the name of its kind.
    """
    meant = _matching_structs(model, path, tags)
    tag_fields = [kind.tag_field for kind in meant if kind.tag_field]
    return sorted({*tag_fields, *(field.encode_name for kind in meant for field in kind.fields)})


def takes_fractions(model: type, path: str, key: str, tags: Collection[str]) -> bool:
    """Return whether a number under `key` of the mapping at `path` may be a fraction; see `keys`."""
    nodes = [node for kind in _matching_structs(model, path, tags) for node in _children(kind, key)]
    return any(isinstance(kind, inspect.FloatType) for node in nodes for kind in _alternatives(node))


def _matching_structs(model: type, path: str, tags: Collection[str]) -> list[inspect.StructType]:
    structs = [kind for kind in _choices_at(model, path) if isinstance(kind, inspect.StructType)]
    return [kind for kind in structs if kind.tag_field is None or kind.tag in tags]


def _choices_at(model: type, path: str) -> list[Any]:
    nodes: list[Any] = [inspect.type_info(model)]
    for step in re.findall(r"[^.\[\]]+", path):
        nodes = [inner for node in nodes for kind in _alternatives(node) for inner in _children(kind, step)]
    return [kind for node in nodes for kind in _alternatives(node)]


def _alternatives(node: Any) -> Iterator[Any]:
    if isinstance(node, inspect.UnionType):
        for kind in node.types:
            yield from _alternatives(kind)
    elif isinstance(node, inspect.Metadata):
        yield from _alternatives(node.type)
    else:
        yield node


def _children(node: Any, step: str) -> Iterator[Any]:
    if isinstance(node, inspect.VarTupleType | inspect.ListType):
        yield node.item_type
    elif isinstance(node, inspect.StructType):
        if step == node.tag_field:
            yield inspect.LiteralType((node.tag,))
        yield from (field.type for field in node.fields if field.encode_name == step)


def _allowed_words(node: Any) -> Iterator[str]:
    if isinstance(node, inspect.LiteralType):
        yield from map(str, node.values)
    elif isinstance(node, inspect.EnumType):
        yield from (str(member.value) for member in node.cls)


_MESSAGE = re.compile(r"^(?P<said>.*?)(?: - at (?P<key>`key` in )?`(?P<path>[^`]*)`)?$", re.DOTALL)
_GOT = re.compile(r", got `[^`]*`$")
_MAX_VALUE_CHARS = 80
_MAX_MESSAGE_CHARS = 500
_MAX_LIST_CHARS = 160  # characters; a longer list of keys is not printed
_WHOLE, _NUMBER = "expected a whole number", "expected a number"
_PLAIN = {
    "`int | float | null`": "a number or null",
    "`int | null`": "a whole number or null",
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "a mapping",
    "`null`": "null",
    "`": "",
}


Fault = tuple[str, str]
"""A problem: its path, relative to what reports it, and a sentence."""


class Complaint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem at `path`, as in `limits[2].value`, in one sentence.

    `meant`: the suggested name, "" if none.
    """

    path: str
    problem: str
    meant: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def complaints(faults: Iterable[Fault]) -> tuple[Complaint, ...]:
    """Convert faults to complaints."""
    return tuple(Complaint(*fault) for fault in faults)


def faults_of(part: object, path: str = "") -> list[Fault]:
    """Return the problems of a policy's part and all parts in it, from their `problems()`, with paths."""
    own: Callable[[], Iterable[Fault]] = getattr(part, "problems", tuple)
    faults = [(joined(path, key), problem) for key, problem in own()]
    for key in getattr(part, "__struct_fields__", ()):
        value = getattr(part, key)
        if isinstance(value, msgspec.Struct):
            faults += faults_of(value, joined(path, key))
        elif isinstance(value, tuple):
            for place, each in enumerate(cast("Iterable[object]", value)):
                if isinstance(each, msgspec.Struct):
                    faults += faults_of(each, joined(path, f"{key}[{place}]"))
    return faults


def _describe_choices(words: Sequence[str], value: object) -> str:
    near = meant(value, words) if isinstance(value, str) else ""
    hint = f"; did you mean {near!r}?" if near else ""
    return f"expected one of {', '.join(words)}, got {shown(value)}{hint}"


def refusal(error: msgspec.ValidationError, data: Any, model: type, prefix: str = "") -> PolicyError:
    """Return the error of converting `data` to `model`, in terms of the policy language."""
    match = _MESSAGE.match(str(error))
    assert match is not None
    path = (match["path"] or "$").removeprefix("$").removeprefix(".")
    if "[...]" in path:
        where, _, rest = path.partition("[...]")
        path = f"{where}.{_find_invalid_key(where, data, model)}{rest}"
    problem = match["said"][:1].lower() + match["said"][1:]
    full = joined(prefix, path)
    if problem.startswith("object contains unknown field"):
        key = problem.split("`")[1]
        return PolicyError(joined(full, key), f"unknown key{_suggest_key(key, data, model, path)}")
    if problem.startswith("object missing required field"):
        return PolicyError(joined(full, problem.split("`")[1]), "missing; it is required")
    if match["key"]:
        return PolicyError(full, f"unknown key in this mapping: {problem.split()[-1]}")
    value = _at(data, path)
    if problem.startswith("invalid"):
        return PolicyError(full, _describe_choices(choices(model, path), value))
    plain = _translate(_GOT.sub("", problem)).removesuffix(".0")
    place, _, last = path.rpartition(".")
    if plain.startswith(_WHOLE) and takes_fractions(model, place, last, _texts(data, place)):
        plain = f"{_NUMBER}{plain.removeprefix(_WHOLE)}"
    return PolicyError(full, f"{plain}, got {shown(value)}")


def joined(path: str, key: str) -> str:
    """Return a path one key deeper."""
    return f"{path}.{key}" if path and key else path or key


def shown(value: Any) -> str:
    """Return a value as JSON, cut if long; its type if JSON cannot represent it."""
    try:
        text = json.dumps(value, default=repr, ensure_ascii=True)
    except (ValueError, TypeError, RecursionError):  # infinity, a value within itself, other keys
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"


def brief(text: str) -> str:
    """Cut a message about a policy if it is long: it quotes keys and words of any length."""
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}…"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a suffix for a message: the similar known word, or all known words."""
    words = sorted(known)
    return suggestion(meant(word, words), words)


def suggestion(near: str, known: Iterable[str]) -> str:
    """Return a suffix for a message: whether `near` was meant, or all known words if it is ""."""
    return f"; did you mean {near!r}?" if near else f"; known are {', '.join(sorted(known)) or 'none'}"


def meant(word: str, known: Iterable[str]) -> str:
    """Return the most similar known word; "" if none is similar."""
    return next(iter(difflib.get_close_matches(word, sorted(known), 1)), "")


def _suggest_key(key: str, data: Any, model: type, path: str) -> str:
    """Return the similar key there, or all keys; "" if the keys are unknown."""
    known = keys(model, path, _texts(data, path))
    near = nearest(key, known) if known else ""
    return near if len(near) <= _MAX_LIST_CHARS else "; 'refold policy schema' prints all keys"


def _texts(data: Any, path: str) -> list[str]:
    there = cast("object", _at(data, path))
    values = cast("dict[str, object]", there).values() if isinstance(there, dict) else ()
    return [each for each in values if isinstance(each, str)]


def _find_invalid_key(where: str, data: Any, model: type) -> str:
    """Return the invalid key of the mapping at `where`, which the validation error does not name."""
    for key, value in _at(data, where).items():
        probe = {key: value}
        for step in reversed(where.split(".")):
            probe = {step: probe}
        try:
            msgspec.convert(probe, model)
        except msgspec.ValidationError as error:
            if "[...]" in str(error):
                return str(key)
    return "…"


def _translate(problem: str) -> str:
    for technical, plain in _PLAIN.items():
        problem = problem.replace(technical, plain)
    return problem


def _at(data: Any, path: str) -> Any:
    found: Any = data
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            found = found[int(step) if step.isdecimal() else step]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return found
