"""Transcripts in which one text is another, or no text: does the log tell, whatever the importer knows of its
key?
"""

from collections.abc import Iterator
from contextlib import suppress

from refold.importers.source import BadTranscript, Source
from support.transcripts import path_of
from support.unknown_keys import Json, logs_of, values_of, written

MARK = "not-what-it-was"
_FORMS: tuple[Json, ...] = (MARK, [MARK], {"another": MARK})


def untold(file: str, format: str) -> list[str]:  # noqa: A002
    """The keys, with the kinds of the objects around them, under which any other text can stand, a list or an
    object, and no log says it.
    """
    with path_of(file).open("rb") as opened:
        values = values_of(Source.opened(file, opened))
    lost: set[str] = set()
    for shape, (holder, key) in {shape: place for shape, *place in _texts(values, "$")}.items():
        was = holder[key]
        for form in _FORMS:
            holder[key] = form
            with suppress(BadTranscript):  # it says of itself that it is not told
                if MARK not in logs_of(written(file, values), format):
                    lost.add(shape)
        holder[key] = was
    return sorted(lost)


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
