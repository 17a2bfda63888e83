"""Transcripts in which one text is another: does the log tell, whatever the importer knows of its key?"""

from collections.abc import Iterator

from refold.replay.importers.source import Source
from support.transcripts import path_of
from support.unknown_keys import Json, logs_of, values_of, written

MARK = "not-what-it-was"


def untold(file: str, format: str) -> list[str]:  # noqa: A002
    """The keys, with the kinds of the objects around them, under which a text can be any other, and no log says which."""
    with path_of(file).open("rb") as opened:
        values = values_of(Source.opened(file, opened))
    found: dict[str, bool] = {}
    for shape, holder, key in _texts(values, "$"):
        if shape not in found:
            was, holder[key] = holder[key], MARK
            found[shape] = MARK in logs_of(written(file, values), format)
            holder[key] = was
    return sorted(shape for shape, told in found.items() if not told)


def _texts(value: Json, path: str) -> Iterator[tuple[str, Json, str | int]]:
    """Each text: its shape, what holds it, and under which key."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    kinds = [value[name] for name in ("type", "role", "kind") if isinstance(value, dict) and name in value]
    for key, each in list(inner):
        shape = f"{path}{kinds or ''}.{key}" if isinstance(value, dict) else f"{path}[]"
        if isinstance(each, str):
            yield shape, value, key
        elif isinstance(each, dict | list):
            yield from _texts(each, shape)
