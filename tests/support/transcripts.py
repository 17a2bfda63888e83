"""The transcripts of the repository, imported: what was counted, what was derived, whether that stands."""

import csv
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from refold.importers.derivation.derivation import Fit
from refold.importers.derivation.log import Derived, ImportProblem
from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.survey import Counts
from refold.importers.transcript import Transcript
from refold.reducers import codec
from refold.replay.audit import Audit, Auditor
from refold.store.protocol import Stored
from support.following import looked_at

FOLDER = Path(__file__).resolve().parents[1] / "transcripts"


class Imported(msgspec.Struct, frozen=True):
    """A file as the importing tells it; `audits` and `fits` are its runs', `digest` is of all that was
    derived.
    """

    format: str
    sha256: str
    bytes: int
    counts: Counts
    problems: tuple[ImportProblem, ...]
    audits: tuple[Audit, ...]
    fits: tuple[Fit, ...]
    digest: str


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


def salts(seq: int) -> bytes:
    """Salts that are the same every time, so that derived logs are."""
    return hashlib.sha256(b"salt|%d" % seq).digest()[:16]


@cache
def imported(file: str) -> Imported:
    """A transcript of the repository, imported, its logs audited on the way."""
    with path_of(file).open("rb") as opened:
        return read(Source.opened(file, opened))


def read(source: Source, named: str | None = None) -> Imported:
    """A source, imported, its logs audited on the way."""
    reading = Transcript(source, importer(named or detect_format(source).format))
    digest = hashlib.sha256()
    audits: list[Audit] = []
    fits: list[Fit] = []
    for run in reading.runs():
        derived = (each for group in run.derive(salts) for each in group)
        audits.append(looked_at(Auditor(run.run), _records(run.run, derived, digest)))
        fits.append(run.ended.fit)
    return Imported(
        reading.format,
        reading.sha256,
        reading.bytes,
        reading.counts(),
        tuple(reading.problems),
        tuple(audits),
        tuple(fits),
        digest.hexdigest(),
    )


def _records(run: str, derived: Iterable[Derived], digest: "hashlib._Hash") -> Iterator[Stored]:
    for each in derived:
        event = codec.encode(each.event)
        digest.update(b"%d %s %s %s\n" % (each.at, event.kind.encode(), event.body, event.content or b""))
        yield _stored(run, each, event)


def _stored(run: str, derived: Derived, event: codec.Encoded) -> Stored:
    return Stored(
        run=run,
        seq=derived.seq,
        at=derived.at,
        kind=event.kind,
        body=event.body,
        content=event.content,
        salt=derived.salt,
        hash=b"",
    )


def lines(events: Iterator[Derived]) -> list[str]:
    """Events as lines of kinds, for a transcript-like comparison."""
    return [codec.encode(event.event).kind for event in events]
