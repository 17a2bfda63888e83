"""Transcripts with parts that no importer knows: an unknown key in every object, another text for each text.

What an importer does not understand must be in the log, as the `rest` of an item, or be reported as unread.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any, cast
from zipfile import ZipFile

import msgspec

from refold.importers.registry import Importer
from refold.importers.source import Archive, BadTranscript, Source, is_archive
from refold.importers.transcript import Transcript
from refold.testing.conformance.imports import salts

Json = Any
"""A value as `json` reads it."""

KEY = "unknown_to_all"
_KINDS = ("type", "role", "kind")
_MARK = re.compile(r"mark-\d+-")
_TEXT = "another-text"
_FORMS: tuple[Json, ...] = (_TEXT, [_TEXT], {"another": _TEXT})


def lost_keys(source: Source, importer: Importer) -> list[str]:
    """Return the shapes of the objects whose unknown key is in no log.

    Empty for a source without a run, and for one that is neither JSON, nor lines of JSON, nor an archive.
    """
    source, marks = with_unknown_keys(source)
    text = text_of_logs(source, importer) if marks else ""
    found = set(_MARK.findall(text))
    return sorted({shape for mark, shape in marks.items() if mark not in found}) if text else []


def lost_texts(source: Source, importer: Importer) -> list[str]:
    """Return the keys, with the objects around them, whose text can be replaced without a trace in the log.

    Each text is replaced by another text, by a list and by an object. One text is tried for each shape.
    """
    values = values_of(source)
    lost: set[str] = set()
    for shape, (holder, key) in {shape: (holder, key) for shape, holder, key in _texts(values, "$")}.items():
        was = holder[key]
        for form in _FORMS:
            holder[key] = form
            with suppress(BadTranscript):  # the problem is reported
                if _TEXT not in text_of_logs(source_of(source.name, values), importer):
                    lost.add(shape)
        holder[key] = was
    return sorted(lost)


def with_unknown_keys(source: Source) -> tuple[Source, dict[str, str]]:
    """Return the source with one more key in every object, also in JSON inside of texts.

    Returns the values of these keys too, each with the shape of its object. None are added to a source that
    is neither JSON, nor lines of JSON, nor an archive of such files.
    """
    marks: dict[str, str] = {}
    if not is_archive(source.head(4)):
        return _marked(source, marks), marks
    archive, packed = Archive(source.file), BytesIO()
    with ZipFile(packed, "w") as opened:
        for name in archive.members:
            opened.writestr(name, _marked(Source.of(name, archive.read(name)), marks).whole())
    return Source.of(source.name, packed.getvalue()), marks


def values_of(source: Source) -> list[Json]:
    """Return the JSON document, or the values of the lines; a line that is not JSON as its bytes."""
    lines = [line.text for line in source.lines() if line.text.strip()]
    try:
        return [json.loads(b"\n".join(lines))]
    except ValueError:
        return [_read(line) for line in lines]


def source_of(name: str, values: list[Json]) -> Source:
    """Return a source with a line for each value."""
    lines = (value if isinstance(value, bytes) else json.dumps(value).encode() for value in values)
    return Source.of(name, b"\n".join(lines))


def text_of_logs(source: Source, importer: Importer) -> str:
    """Return the JSON text of all events that an import derives."""
    found: list[bytes] = []
    for run in Transcript(source, importer).runs():
        found += [msgspec.json.encode(each.event) for group in run.derive(salts) for each in group]
    return b"\n".join(found).decode()


def _marked(source: Source, marks: dict[str, str]) -> Source:
    values = values_of(source)
    for value in values:
        _mark(value, "$", marks)
    return source_of(source.name, values)


def _read(line: bytes) -> Json:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _mark(value: Any, path: str, marks: dict[str, str]) -> Json:
    """Return the value, or JSON text, with unknown keys; adds them to `marks`."""
    if isinstance(value, str):
        return _mark_json_text(value, path, marks)
    if isinstance(value, list):
        listed: list[Any] = cast("Any", value)
        listed[:] = [_mark(each, f"{path}[]", marks) for each in listed]
        return listed
    if isinstance(value, dict):
        table = cast("dict[str, Json]", value)
        kinds = [table[name] for name in _KINDS if isinstance(table.get(name), str)]
        shape = f"{path}<{'/'.join(kinds)}>" if kinds else path
        for name in [*table]:
            table[name] = _mark(table[name], f"{shape}.{name}", marks)
        table[KEY] = mark = f"mark-{len(marks)}-"
        marks[mark] = shape
        return table
    return value


def _mark_json_text(value: str, path: str, marks: dict[str, str]) -> str:
    try:
        inner = json.loads(value) if value[:1] in ("{", "[") else None
    except ValueError:
        return value
    known = len(marks)
    marked = _mark(inner, f"{path}!", marks)
    return json.dumps(marked) if len(marks) > known else value


def _texts(value: Any, path: str) -> Iterator[tuple[str, Any, str | int]]:
    """Yield each text: its shape, the list or object that has it, and its index or key."""
    if isinstance(value, dict):
        table = cast("dict[str, Json]", value)
        kinds = [table[name] for name in _KINDS if name in table]
        inner: list[tuple[str | int, Json, str]] = [
            (key, each, f"{path}{kinds or ''}.{key}") for key, each in table.items()
        ]
    elif isinstance(value, list):
        listed: list[Any] = cast("Any", value)
        inner = [(key, each, f"{path}[]") for key, each in enumerate(listed)]
    else:
        return
    for key, each, shape in inner:
        if isinstance(each, str):
            yield shape, value, key
        else:
            yield from _texts(each, shape)
