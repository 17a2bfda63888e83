"""The JSON values of a source that may be one document or one value a line, whatever its name ends with."""

from collections.abc import Iterator

import msgspec

from refold.importers.documents import document
from refold.importers.fields import JSON
from refold.importers.items import Place, Unread
from refold.importers.source import BadTranscript, Source, decoded


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value and where it stands: `$` for a whole document, `$[3]` for an element of its list, `line 3 $` for a line."""

    position: str
    value: JSON

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.position)


def values(source: Source, *elements: tuple[str, ...]) -> Iterator[Value | Unread]:
    """The values, up to where a document breaks off; `elements` as in `documents`. A list is its elements.

    Raises `BadTranscript` where nothing at all is JSON.
    """
    try:
        whole = document(source, *elements)
    except BadTranscript:
        whole = None
    if whole is None or (whole.problem and _lines_follow(source)):
        yield from _lines(source)
        return
    if isinstance(whole.value, list):
        for index, value in enumerate(whole.value):
            yield Value(f"$[{index}]", value)
    else:
        yield Value("$", whole.value)
    if whole.problem:
        yield Place(f"bytes {whole.read}-{whole.size}").unread("cut", f"the document {whole.problem}")


def _lines_follow(source: Source) -> bool:
    """Whether the first line is a value of its own: then what follows it is no damage."""
    first = next((line for line in source.lines() if line.text.strip()), None)
    try:
        return first is not None and isinstance(decoded(first.text), dict | list)
    except ValueError:
        return False


def _lines(source: Source) -> Iterator[Value | Unread]:
    nothing = True
    for line in source.lines():
        position = f"line {line.number}"
        if not line.text.strip():
            continue
        try:
            value = decoded(line.text)
        except ValueError as error:
            yield Place(position).unread("not_json", str(error))
            continue
        nothing = False
        yield Value(f"{position} $", value)
    if nothing:
        raise BadTranscript(source.name, "", "no JSON document, and no line of it is one")
