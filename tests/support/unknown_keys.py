"""Transcripts with one key more in every object, of which no importer has heard: does the log have it?"""

import json
import re
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import msgspec

from refold.importers.registry import importer
from refold.importers.source import Archive, Source, is_archive
from refold.importers.transcript import Transcript
from support.transcripts import path_of, salts

Json = Any
"""A value as `json` reads it."""

KEY = "not_heard_of"

_MARK = re.compile(r"mark-\d+-")


def salted(source: Source) -> tuple[Source, dict[str, str]]:
    """A source with a key more in every object, those in JSON texts too: the marks that stand under it, and
    their shapes.

    No marks where it is neither a JSON document, nor lines of JSON objects, nor an archive of such.
    """
    marks: dict[str, str] = {}
    if not is_archive(source.head(4)):
        return _marked(source, marks), marks
    archive, packed = Archive(source.file), BytesIO()
    with ZipFile(packed, "w") as opened:
        for name in archive.members:
            opened.writestr(name, _marked(Source.of(name, archive.read(name)), marks).whole())
    return Source.of(source.name, packed.getvalue()), marks


def _marked(source: Source, marks: dict[str, str]) -> Source:
    values = values_of(source)
    for value in values:
        _mark(value, "$", marks)
    return written(source.name, values)


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
    """The shapes of whose unknown keys nothing is in the logs; none where the source has no run, and so no
    log.
    """
    source, marks = salted(source)
    if not marks:
        return []
    text = logs_of(source, format)
    if not text:
        return []
    told = set(_MARK.findall(text))
    return sorted({shape for mark, shape in marks.items() if mark not in told})


def _read(line: bytes) -> Json:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _mark(value: Json, path: str, marks: dict[str, str]) -> Json:
    """The value, or JSON text, with its marks."""
    if isinstance(value, str):
        return _written(value, path, marks)
    if isinstance(value, list):
        value[:] = [_mark(each, f"{path}[]", marks) for each in value]
    elif isinstance(value, dict):
        kinds = [value[name] for name in ("type", "role", "kind") if isinstance(value.get(name), str)]
        shape = f"{path}<{'/'.join(kinds)}>" if kinds else path
        for name in [*value]:
            value[name] = _mark(value[name], f"{shape}.{name}", marks)
        value[KEY] = mark = f"mark-{len(marks)}-"
        marks[mark] = shape
    return value


def _written(value: str, path: str, marks: dict[str, str]) -> str:
    try:
        inner = json.loads(value) if value[:1] in ("{", "[") else None
    except ValueError:
        return value
    known = len(marks)
    marked = _mark(inner, f"{path}!", marks)
    return json.dumps(marked) if len(marks) > known else value
