"""Transcripts in which the arguments of calls stand under a key that no importer knows.

An import of the file as it is yields the arguments of its calls. Wherever an object of the file has them
under a key, the value gets a mark, and in the second of two copies another key. No list of keys is needed,
and a format may have several.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import NamedTuple, cast

from refold.importers.registry import importer
from refold.importers.transcript import Transcript
from refold.reducers.events import Event, ModelResponded
from refold.reducers.parser import parse
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import WhatIf
from support.following import shown
from support.transcripts import salts
from support.unknown_keys import Json, written

MARK = "zmark"
KEY = "zargs"
POLICY = parse({"preset": "observed", "guards": [{"guard": "arguments", "matches": MARK, "then": "stop"}]})


class Place(NamedTuple):
    """Where arguments stand: the keys that lead there from the top, with `[]` for any index, and the key
    itself.
    """

    shape: str
    key: str


def judged(log: Sequence[Event]) -> WhatIf:
    """What a rule on the mark says of a run."""
    return shown(Comparison("r1", POLICY), log)


def marked(log: Sequence[Event]) -> int:
    """The number of calls with the mark in their arguments."""
    return sum(MARK in arguments for event in log for arguments in _arguments(event))


def logs(name: str, values: list[Json], format: str) -> list[list[Event]]:  # noqa: A002
    """The log of each run."""
    runs = Transcript(written(name, deepcopy(values)), importer(format)).runs()
    return [[each.event for group in run.derive(salts) for each in group] for run in runs]


def asked(name: str, values: list[Json], format: str) -> list[dict[str, Json]]:  # noqa: A002
    """The arguments of all calls that are JSON objects and not empty, each once."""
    found: dict[str, dict[str, Json]] = {}
    for log in logs(name, values, format):
        for event in log:
            for arguments in _arguments(event):
                read = _read(arguments)
                if isinstance(read, dict) and read:
                    found[json.dumps(read, sort_keys=True)] = read
    return [*found.values()]


def _arguments(event: Event) -> Sequence[str]:
    return event.content.arguments if isinstance(event, ModelResponded) and event.content else ()


def places(values: Json, known: Sequence[dict[str, Json]]) -> list[Place]:
    """Where arguments stand in a file, each shape once, in their order."""
    found = _Copy(known)
    found.of(values, "$")
    return [*dict.fromkeys(found.places)]


def changed(values: Json, known: Sequence[dict[str, Json]], at: Sequence[Place], *, key: str = "") -> Json:
    """A copy in which what stands at these places has the mark, and stands under `key`, "" for its own."""
    return _Copy(known, at, lambda name, value: (key or name, _marked(value))).of(values, "$")


def emptied(values: Json, known: Sequence[dict[str, Json]]) -> Json:
    """A copy in which no call has arguments."""
    return _Copy(known, places(values, known), lambda name, value: (name, _emptied(value))).of(values, "$")


class _Copy:
    """A walk over a value, into JSON texts too, that copies it."""

    def __init__(
        self,
        known: Sequence[dict[str, Json]],
        at: Sequence[Place] = (),
        change: Callable[[str, Json], tuple[str, Json]] = lambda name, value: (name, value),
    ) -> None:
        self.known, self.at, self.change = _Known(known), {*at}, change
        self.places: list[Place] = []

    def of(self, value: Json, path: str) -> Json:
        """The value as it is in the copy."""
        match value:
            case list():
                return [self.of(each, f"{path}[]") for each in cast("Sequence[Json]", value)]
            case str():
                inner, before = _read(value), len(self.places)
                copied = None if inner is None else self.of(inner, f"{path}!")
                return json.dumps(copied) if {*self.places[before:]} & self.at else value
            case dict():
                return self._object(cast("dict[str, Json]", value), path)
            case _:
                return value

    def _object(self, value: dict[str, Json], path: str) -> dict[str, Json]:
        kinds = [value[name] for name in ("type", "role", "kind", "action") if _is_word(value.get(name))]
        shape = f"{path}<{'/'.join(kinds)}>" if kinds else path
        copied: dict[str, Json] = {}
        for key, each in value.items():
            if not self.known.has(key, each):
                copied[key] = self.of(each, f"{shape}.{key}")
                continue
            place = Place(shape, key)
            self.places.append(place)
            name, kept = self.change(key, each) if place in self.at else (key, each)
            copied[name] = kept
        return copied


class _Known:
    """The arguments that are known, to be looked up by a value."""

    def __init__(self, known: Sequence[dict[str, Json]]) -> None:
        self.texts = {json.dumps(each, sort_keys=True) for each in known}
        self.objects = [{json.dumps([k, v], sort_keys=True) for k, v in each.items()} for each in known]
        self.only = {(*each.items(),)[0] for each in known if len(each) == 1 and _is_text(each)}

    def has(self, key: str, value: Json) -> bool:
        read = _object_in(value)
        if read:
            if json.dumps(read, sort_keys=True) in self.texts:
                return True
            pairs = {json.dumps([k, v], sort_keys=True) for k, v in read.items()}
            return isinstance(value, dict) and any(each <= pairs for each in self.objects)
        names = ("command",) if key == "action" else (key,)
        return isinstance(value, str) and any((name, value) in self.only for name in names)


def _is_text(arguments: dict[str, Json]) -> bool:
    (value,) = arguments.values()
    return isinstance(value, str) and bool(value)


def _is_word(value: Json) -> bool:
    return isinstance(value, str) and len(value) < 40 and value.isidentifier()


def _marked(value: Json) -> Json:
    read = _object_in(value)
    if read is None:
        return f"{value} {MARK}"
    copied = {**read, MARK: MARK}
    return json.dumps(copied) if isinstance(value, str) else copied


def _object_in(value: Json) -> dict[str, Json] | None:
    """The object that a value is, or is the JSON text of."""
    read = _read(value) if isinstance(value, str) else value
    return cast("dict[str, Json]", read) if isinstance(read, dict) else None


def _emptied(value: Json) -> Json:
    return "{}" if isinstance(value, str) and _read(value) is not None else type(value)()


def _read(text: str) -> Json:
    with suppress(ValueError):
        return json.loads(text) if text[:1] in ("{", "[") else None
    return None
