"""Transcripts of the repository with one key more in every object, of which no importer has heard."""

from refold.importers.registry import importer
from refold.importers.source import Source
from refold.testing.conformance.unknown_parts import Json, lost_keys, source_of, values_of
from support.transcripts import path_of

__all__ = ["Json", "lost", "lost_of", "values_of", "written"]

written = source_of


def lost_of(file: str, format: str) -> list[str]:  # noqa: A002
    """As `lost`, of a file of the repository."""
    with path_of(file).open("rb") as opened:
        return lost(Source.opened(file, opened), format)


def lost(source: Source, format: str) -> list[str]:  # noqa: A002
    """The shapes of whose unknown keys nothing is in the logs; none where the source has no run, and so no
    log.
    """
    return lost_keys(source, importer(format))
