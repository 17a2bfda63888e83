"""Imports of a transcript that write to no store: the derived events, what was counted, and audits."""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from refold.importers.derivation.derivation import Fit
from refold.importers.derivation.log import Derived, ImportProblem
from refold.importers.registry import Importer
from refold.importers.source import Source
from refold.importers.survey import Counts
from refold.importers.transcript import Transcript
from refold.reducers import codec
from refold.replay.audit import Audit, Auditor
from refold.replay.reader import NO_GUARDS, follow_all
from refold.store.protocol import Stored


class Imported(msgspec.Struct, frozen=True):
    """An imported file. `runs` are the ids of its runs; `audits` and `fits` belong to them, in order.

    `digest` is the SHA-256 (hex) of all derived events.
    """

    format: str
    sha256: str
    bytes: int
    runs: tuple[str, ...]
    counts: Counts
    problems: tuple[ImportProblem, ...]
    audits: tuple[Audit, ...]
    fits: tuple[Fit, ...]
    digest: str


def salts(seq: int) -> bytes:
    """Return the salt of an event: the same every time, so that equal imports give equal logs."""
    return hashlib.sha256(b"salt|%d" % seq).digest()[:16]


def import_source(source: Source, importer: Importer) -> Imported:
    """Import a transcript and audit its logs on the way.

    Raises:
        BadTranscript: nothing in the source could be read.
        DamagedLog: the derived events are not a valid log.
    """
    reading = Transcript(source, importer)
    written = list[bytes]()
    runs, audits, fits = list[str](), list[Audit](), list[Fit]()
    for run in reading.runs():
        auditor = Auditor(run.run)
        derived = (each for group in run.derive(salts) for each in group)
        follow_all(_records(run.run, derived, written), auditor, registry=NO_GUARDS)
        if auditor.problem is not None:
            raise auditor.problem
        runs.append(run.run)
        audits.append(auditor.result())
        fits.append(run.ended.fit)
    return Imported(
        format=reading.format,
        sha256=reading.sha256,
        bytes=reading.bytes,
        runs=tuple(runs),
        counts=reading.counts(),
        problems=tuple(reading.problems),
        audits=tuple(audits),
        fits=tuple(fits),
        digest=hashlib.sha256(b"".join(written)).hexdigest(),
    )


def _records(run: str, derived: Iterable[Derived], written: list[bytes]) -> Iterator[Stored]:
    for each in derived:
        event = codec.encode(each.event)
        written.append(b"%d %s %s %s\n" % (each.at, event.kind.encode(), event.body, event.content or b""))
        yield Stored(
            run=run,
            seq=each.seq,
            at=each.at,
            kind=event.kind,
            body=event.body,
            content=event.content,
            salt=each.salt,
            hash=b"",
        )
