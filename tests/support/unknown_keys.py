"""Transcripts with one key more in an object of each shape, of which no importer has heard: does the log have it?"""

import json
from typing import Any

import msgspec

from refold.replay.importers.formats import importer
from refold.replay.importers.source import Source
from refold.replay.importers.transcript import Transcript
from support.transcripts import path_of, salts

Json = Any
"""A value as `json` reads it."""

KEY = "not_heard_of"


def salted(source: Source) -> tuple[Source, dict[str, str]]:
    """A source with a key more in an object of each shape, those in JSON texts too: the marks that stand under it, and their shapes.

    No shapes where the file is neither a JSON document nor lines of JSON objects.
    """
    values, marks, seen = values_of(source), dict[str, str](), set[str]()
    for value in values:
        _mark(value, "$", seen, marks)
    return written(source.name, values), marks


def values_of(source: Source) -> list[Json]:
    """A document, or the values of its lines; a line that is no JSON as its bytes."""
    lines = [line.text for line in source.lines() if line.text.strip()]
    try:
        return [json.loads(b"\n".join(lines))]
    except ValueError:
        return [_read(line) for line in lines]


def written(name: str, values: list[Json]) -> Source:
    """A source of these values, a line each."""
    lines = (value if isinstance(value, bytes) else json.dumps(value).encode() for value in values)
    return Source.of(name, b"\n".join(lines))


def logs_of(source: Source, format: str) -> str:  # noqa: A002
    """JSON text of all that an import of it writes."""
    found: list[bytes] = []
    for run in Transcript(source, importer(format)).runs():
        found += [msgspec.json.encode(each.event) for group in run.derive(salts) for each in group]
    return b"\n".join(found).decode()


def lost_of(file: str, format: str) -> list[str]:  # noqa: A002
    """The same of a file of the repository."""
    with path_of(file).open("rb") as opened:
        return lost(Source.opened(file, opened), format)


def lost(source: Source, format: str) -> list[str]:  # noqa: A002
    """The shapes of whose unknown keys nothing is in the logs; none where the source has no run, and so no log."""
    source, marks = salted(source)
    if not marks:
        return []
    text = logs_of(source, format)
    if not text:
        return []
    return sorted(shape for mark, shape in marks.items() if mark not in text)


def _read(line: bytes) -> Json:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _mark(value: Json, path: str, seen: set[str], marks: dict[str, str]) -> Json:
    """The value, or JSON text, with its marks."""
    if isinstance(value, str):
        return _written(value, path, seen, marks)
    if isinstance(value, list):
        value[:] = [_mark(each, f"{path}[]", seen, marks) for each in value]
    elif isinstance(value, dict):
        kinds = [value[name] for name in ("type", "role", "kind") if isinstance(value.get(name), str)]
        shape = f"{path}<{'/'.join(kinds)}>" if kinds else path
        for name in [*value]:
            value[name] = _mark(value[name], f"{shape}.{name}", seen, marks)
        if shape not in seen:
            seen.add(shape)
            mark = f"mark-{len(marks)}-"
            marks[mark] = shape
            value[KEY] = mark
    return value


def _written(value: str, path: str, seen: set[str], marks: dict[str, str]) -> str:
    try:
        inner = json.loads(value) if value[:1] in ("{", "[") else None
    except ValueError:
        return value
    known = len(marks)
    marked = _mark(inner, f"{path}!", seen, marks)
    return json.dumps(marked) if len(marks) > known else value
