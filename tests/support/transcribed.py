"""What an importer tells of a few bytes, for tests of the formats."""

import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

from refold.importers.derivation.gap import conversations
from refold.importers.items import Item, RunBegan, RunEnded, Unread
from refold.importers.registry import Importer
from refold.importers.source import BadTranscript, Source
from refold.importers.tallies import Count, RunCounts

Told = TypeVar("Told", bound=Item)


def items_of(importer: Importer, document: object) -> list[Item]:
    """The items of a document (a text or bytes as they are, anything else as JSON)."""
    return list(conversations(importer.items(Source.of("t", encoded(document)))))


def encoded(document: object) -> bytes:
    """The bytes of a document."""
    if isinstance(document, bytes):
        return document
    return document.encode() if isinstance(document, str) else json.dumps(document).encode()


def every(items: Sequence[Item], kind: type[Told]) -> list[Told]:
    """The items of a kind."""
    return [item for item in items if isinstance(item, kind)]


def tallies(items: Iterable[Item]) -> list[RunCounts]:
    """What is counted of each run among the items; of one that is the file's and no run's too."""
    found: list[RunCounts] = []
    count = Count()
    for item in items:
        count.take(item)
        if isinstance(item, RunEnded):
            found.append(count.tally())
            count = Count()
    return found


def tally_of(items: Iterable[Item]) -> RunCounts:
    """What is counted of the only run among the items."""
    (found,) = tallies(items)
    return found


def whole_up_to(importer: Importer, data: bytes) -> list[Item]:
    """The items of a file that was cut: none where nothing can be read, else runs that begin and end.

    It fails where the importer raises anything but `BadTranscript`, or tells half a run.
    """
    source = Source.of("t", data)
    importer.match(source)
    try:
        items = list(conversations(importer.items(source)))
    except BadTranscript:
        return []
    began, ended = len(every(items, RunBegan)), len(every(items, RunEnded))
    assert began == ended or (began == 0 and ended == 1), (began, ended)
    assert all(item.problem for item in every(items, Unread))
    return items
