"""The transcripts of the repository, imported: what was counted, what was derived, whether that stands."""

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from refold.importers.derivation.log import Derived
from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.reducers import codec
from refold.testing.conformance.imports import Imported, import_source, salts

__all__ = [
    "FILES",
    "FOLDER",
    "WRITTEN",
    "Imported",
    "imported",
    "lines",
    "manifest",
    "path_of",
    "read",
    "salts",
]

FOLDER = Path(__file__).resolve().parents[1] / "transcripts"


def manifest(name: str = "MANIFEST.tsv") -> list[dict[str, str]]:
    """What is known of each transcript, counted from its bytes without any importer of ours."""
    with (FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


FILES = [row["file"] for row in manifest()]

WRITTEN = [row["file"] for row in manifest("WRITTEN.tsv")]
"""Transcripts that were written by hand, for the rules of their formats: nothing is said of agents by them.
"""


def path_of(file: str) -> Path:
    """Where a transcript lies: packed, unless it is packed already."""
    path = FOLDER / file
    return path if path.is_file() else path.with_name(path.name + ".zst")


@cache
def imported(file: str) -> Imported:
    """A transcript of the repository, imported, its logs audited on the way."""
    with path_of(file).open("rb") as opened:
        return read(Source.opened(file, opened))


def read(source: Source, named: str | None = None) -> Imported:
    """A source, imported, its logs audited on the way."""
    return import_source(source, importer(named or detect_format(source).format))


def lines(events: Iterator[Derived]) -> list[str]:
    """Events as lines of kinds, for a transcript-like comparison."""
    return [codec.encode(event.event).kind for event in events]
