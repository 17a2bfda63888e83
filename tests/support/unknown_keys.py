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
    lines = [line.text for line in source.lines() if line.text.strip()]
    marks: dict[str, str] = {}
    try:
        values: list[Json] = [json.loads(b"\n".join(lines))]
    except ValueError:
        values = [_read(line) for line in lines]
    seen: set[str] = set()
    for value in values:
        _mark(value, "$", seen, marks)
    text = b"\n".join(value if isinstance(value, bytes) else json.dumps(value).encode() for value in values)
    return Source.of(source.name, text), marks


def lost_of(file: str, format: str) -> list[str]:  # noqa: A002
    """The same of a file of the repository."""
    with path_of(file).open("rb") as opened:
        return lost(Source.opened(file, opened), format)


def lost(source: Source, format: str) -> list[str]:  # noqa: A002
    """The shapes of whose unknown keys nothing is in the logs; none where the source has no run, and so no log."""
    source, marks = salted(source)
    if not marks:
        return []
    found: list[bytes] = []
    for run in Transcript(source, importer(format)).runs():
        found += [msgspec.json.encode(each.event) for group in run.derive(salts) for each in group]
    if not found:
        return []
    text = b"\n".join(found).decode()
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
