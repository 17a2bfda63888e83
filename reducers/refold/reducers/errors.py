"""Errors: one small hierarchy, split by what a caller would do next, and how a refused policy is reported.

`WrongUse`: mend the call or the input. `Damaged`: the log is not what was written; investigate.
`WorldFailed`: disk, network or provider; try again later. `CannotJudge`: nothing is wrong that we
can name, but there is not enough evidence to say more. The console turns each into its exit code.
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
    """The caller's mistake: an input that cannot work. Nothing was changed."""

    exit_code = 2


class Damaged(RefoldError):
    """A log that is not whole, was edited, or breaks the rules of the machine."""

    exit_code = 3


class WorldFailed(RefoldError):
    """Disk, network or provider failed. What was recorded stays recorded."""

    exit_code = 4


class CannotJudge(RefoldError):
    """The evidence does not suffice: written by a newer refold, or erased."""

    exit_code = 125


class DamagedLog(Damaged):
    """An event that cannot stand where it stands.

    `seq` is the event's number in the run, from 1; `problem` is one sentence.
    """

    def __init__(self, run: str, seq: int, problem: str) -> None:
        super().__init__(run, seq, problem)
        self.run, self.seq, self.problem = run, seq, problem

    def __str__(self) -> str:
        return f"run {self.run or '?'} event {self.seq}: {self.problem}"


class NewerLog(CannotJudge):
    """An event that this version does not know: the log was written by a newer refold."""

    def __init__(self, run: str, seq: int, problem: str) -> None:
        super().__init__(run, seq, problem)
        self.run, self.seq, self.problem = run, seq, problem

    def __str__(self) -> str:
        return (
            f"run {self.run or '?'} event {self.seq}: {self.problem}: written by a newer refold; "
            "install that version to read it"
        )


class UnreleasedLog(CannotJudge):
    """A log in a shape that no released version wrote, or reads."""

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(run, seq)
        self.run, self.seq = run, seq

    def __str__(self) -> str:
        return (
            f"run {self.run or '?'} event {self.seq}: its log says no format: it was made by an unreleased version of "
            "refold, and no released one reads it"
        )


class MissingFact(CannotJudge):
    """A replay was asked for something that its log does not hold. It never asks the world instead."""

    def __init__(self, run: str, what: str) -> None:
        super().__init__(run, what)
        self.run, self.what = run, what

    def __str__(self) -> str:
        return f"run {self.run}: {self.what}; a replay answers from the log only"


class IllegalMove(Damaged):
    """A transition that the machine's table does not have, live or in replay."""

    def __init__(self, source: str, trigger: str, target: str | None = None) -> None:
        super().__init__(source, trigger, target)
        self.source, self.trigger, self.target = source, trigger, target

    def __str__(self) -> str:
        to = f" to {self.target}" if self.target else ""
        return f"the machine has no move {str(self.trigger)!r} from {self.source}{to}"


class UnexpectedEvent(Damaged):
    """An event that the state has no place for: nothing asked for it."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(kind, problem)
        self.kind, self.problem = kind, problem

    def __str__(self) -> str:
        return f"unexpected {self.kind}: {self.problem}"


class PolicyError(WrongUse):
    """A policy that cannot work. `path` names the place, as in `limits[2].value`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class NoSuchEntry(PolicyError):
    """A change to a limit, guard or pass that this policy does not have; another policy may."""


def choices(model: type, path: str) -> list[str]:
    """The words allowed at `path` (as in `limits[2].type`) of a value of type `model`, in order; none: no
    list.
    """
    return sorted({word for kind in _choices_at(model, path) for word in _words(kind)})


def keys(model: type, path: str, tags: Collection[str]) -> list[str]:
    """The keys of the mapping at `path` (as in `limits[2]`) of a value of type `model`; none: any, or it is
    no mapping.

    Where it may be one of several kinds, `tags` are the texts that stand in it: the one that names its kind
    is among them.
    """
    meant = _meant(model, path, tags)
    tag_fields = [kind.tag_field for kind in meant if kind.tag_field]
    return sorted({*tag_fields, *(field.encode_name for kind in meant for field in kind.fields)})


def takes_fractions(model: type, path: str, key: str, tags: Collection[str]) -> bool:
    """Whether a number under `key` of the mapping at `path` may be a fraction; `tags` as for `keys`."""
    nodes = [node for kind in _meant(model, path, tags) for node in _inside(kind, key)]
    return any(isinstance(kind, inspect.FloatType) for node in nodes for kind in _alternatives(node))


def _meant(model: type, path: str, tags: Collection[str]) -> list[inspect.StructType]:
    structs = [kind for kind in _choices_at(model, path) if isinstance(kind, inspect.StructType)]
    return [kind for kind in structs if kind.tag_field is None or kind.tag in tags]


def _choices_at(model: type, path: str) -> list[Any]:
    nodes: list[Any] = [inspect.type_info(model)]
    for step in re.findall(r"[^.\[\]]+", path):
        nodes = [inner for node in nodes for kind in _alternatives(node) for inner in _inside(kind, step)]
    return [kind for node in nodes for kind in _alternatives(node)]


def _alternatives(node: Any) -> Iterator[Any]:
    if isinstance(node, inspect.UnionType):
        for kind in node.types:
            yield from _alternatives(kind)
    elif isinstance(node, inspect.Metadata):
        yield from _alternatives(node.type)
    else:
        yield node


def _inside(node: Any, step: str) -> Iterator[Any]:
    if isinstance(node, inspect.VarTupleType | inspect.ListType):
        yield node.item_type
    elif isinstance(node, inspect.StructType):
        if step == node.tag_field:
            yield inspect.LiteralType((node.tag,))
        yield from (field.type for field in node.fields if field.encode_name == step)


def _words(node: Any) -> Iterator[str]:
    if isinstance(node, inspect.LiteralType):
        yield from map(str, node.values)
    elif isinstance(node, inspect.EnumType):
        yield from (str(member.value) for member in node.cls)


_MESSAGE = re.compile(r"^(?P<said>.*?)(?: - at (?P<key>`key` in )?`(?P<path>[^`]*)`)?$", re.DOTALL)
_GOT = re.compile(r", got `[^`]*`$")
_SHOWN = 80
_LONGEST = 500
_LISTED = 160  # characters: of more keys nobody reads a list
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
"""What is wrong: where, as a path below what says it, and a sentence."""


class Complaint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong at `path`, as in `limits[2].value`, in one sentence.

    `meant`: the name that it suggests, "" if none.
    """

    path: str
    problem: str
    meant: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def complaints(faults: Iterable[Fault]) -> tuple[Complaint, ...]:
    """The same, to be told and written."""
    return tuple(Complaint(*fault) for fault in faults)


def faults_of(part: object, path: str = "") -> list[Fault]:
    """What a part of a policy, and those in it, say of themselves by a method `problems()`: each with its
    place.
    """
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


def _none_of(words: Sequence[str], value: object) -> str:
    near = meant(value, words) if isinstance(value, str) else ""
    asked = f"; did you mean {near!r}?" if near else ""
    return f"expected one of {', '.join(words)}, got {shown(value)}{asked}"


def refusal(error: msgspec.ValidationError, data: Any, model: type, prefix: str = "") -> PolicyError:
    """The error of a conversion of `data` to `model`, said in the words of the policy language."""
    match = _MESSAGE.match(str(error))
    assert match is not None
    path = (match["path"] or "$").removeprefix("$").removeprefix(".")
    if "[...]" in path:
        where, _, rest = path.partition("[...]")
        path = f"{where}.{_failing(where, data, model)}{rest}"
    problem = match["said"][:1].lower() + match["said"][1:]
    full = joined(prefix, path)
    if problem.startswith("object contains unknown field"):
        key = problem.split("`")[1]
        return PolicyError(joined(full, key), f"unknown key{_known(key, data, model, path)}")
    if problem.startswith("object missing required field"):
        return PolicyError(joined(full, problem.split("`")[1]), "missing; it is required")
    if match["key"]:
        return PolicyError(full, f"it has a key that means nothing there: {problem.split()[-1]}")
    value = _at(data, path)
    if problem.startswith("invalid"):
        return PolicyError(full, _none_of(choices(model, path), value))
    plain = _plainly(_GOT.sub("", problem)).removesuffix(".0")
    place, _, last = path.rpartition(".")
    if plain.startswith(_WHOLE) and takes_fractions(model, place, last, _texts(data, place)):
        plain = f"{_NUMBER}{plain.removeprefix(_WHOLE)}"
    return PolicyError(full, f"{plain}, got {shown(value)}")


def joined(path: str, key: str) -> str:
    """A path one key deeper."""
    return f"{path}.{key}" if path and key else path or key


def shown(value: Any) -> str:
    """A value as JSON, cut where it is long; of one that JSON cannot say, its type."""
    try:
        text = json.dumps(value, default=repr, ensure_ascii=True)
    except (ValueError, TypeError, RecursionError):  # a number without end, a value within itself, odd keys
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def brief(text: str) -> str:
    """What is said of a policy, cut where it is long: the keys and words that it quotes may be."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def nearest(word: str, known: Iterable[str]) -> str:
    """The word that was perhaps meant, or all that are known; to be put behind a complaint."""
    words = sorted(known)
    return suggestion(meant(word, words), words)


def suggestion(near: str, known: Iterable[str]) -> str:
    """Return the question whether `near` was meant, or all known words if it is ""; to be put behind a
    complaint.
    """
    return f"; did you mean {near!r}?" if near else f"; known are {', '.join(sorted(known)) or 'none'}"


def meant(word: str, known: Iterable[str]) -> str:
    """The known word that was perhaps meant; "" where none is like it."""
    return next(iter(difflib.get_close_matches(word, sorted(known), 1)), "")


def _known(key: str, data: Any, model: type, path: str) -> str:
    """The key that was perhaps meant there, or all that there are; "" where nobody can say."""
    known = keys(model, path, _texts(data, path))
    near = nearest(key, known) if known else ""
    return near if len(near) <= _LISTED else "; refold policy schema prints all that there are"


def _texts(data: Any, path: str) -> list[str]:
    there = cast("object", _at(data, path))
    values = cast("dict[str, object]", there).values() if isinstance(there, dict) else ()
    return [each for each in values if isinstance(each, str)]


def _failing(where: str, data: Any, model: type) -> str:
    """Which key of the mapping at `where` does not fit: the validation does not say."""
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


def _plainly(problem: str) -> str:
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
