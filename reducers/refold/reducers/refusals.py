"""What is said of a policy that is refused: the place, what was expected there, and what stood there."""

import difflib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from refold.reducers.choices import choices, keys, takes_fractions
from refold.reducers.errors import PolicyError

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
    """What is wrong at `path`, as in `limits[2].value`, in one sentence. `meant`: the name that it suggests, "" if none."""

    path: str
    problem: str
    meant: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def complaints(faults: Iterable[Fault]) -> tuple[Complaint, ...]:
    """The same, to be told and written."""
    return tuple(Complaint(*fault) for fault in faults)


def faults_of(part: object, path: str = "") -> list[Fault]:
    """What a part of a policy, and those in it, say of themselves by a method `problems()`: each with its place."""
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
        words = choices(model, path)
        near = difflib.get_close_matches(value, words, 1) if isinstance(value, str) else []
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return PolicyError(full, f"expected one of {', '.join(words)}, got {shown(value)}{meant}")
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
    """Return the question whether `near` was meant, or all known words if it is ""; to be put behind a complaint."""
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
