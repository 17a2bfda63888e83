"""What an importer is: a name, a look at a file's first bytes, and a reading of the whole."""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from refold.importers.items import Item
from refold.importers.source import Source


class Match(msgspec.Struct, frozen=True):
    """How surely a file is of a format, 0 to 100, and what of it says so. Two equal best ones are refused as a tie."""

    score: int
    why: str


class Importer(Protocol):
    """One format.

    `formats` in `refold.importers.formats` lists them. An importer is pure: it reads the source that it is
    given, opens nothing that it names, and never raises for what stands in it but `BadTranscript`, where not one item
    can be read at all; anything less is an `Unread` item, and reading goes on behind it. Cut anywhere, a file still
    imports, up to the cut.
    """

    @property
    def name(self) -> str:
        """The format's name, as in `--format`."""
        ...

    def match(self, source: Source) -> Match | None:
        """How surely this is the format, by its content, never by its name. None: it is not."""
        ...

    def items(self, source: Source) -> Iterator[Item]:
        """What the source says, in its order, one run after the other."""
        ...
