"""Transcripts that are derived without a store, in this or another process.

The events are encoded as the store holds them, so the process that writes does not decode them. Only a run
that the store knows nothing about can be appended like this; others are derived by the process that writes.
"""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from functools import cache

import msgspec

from refold.console.imported_conversation import ImportedConversation
from refold.console.opened_files import FoundFile, Unreadable
from refold.engine import clock
from refold.engine.journal import record
from refold.importers.derivation.log import ImportProblem
from refold.importers.registry import Candidate, UnknownFormat, detect_format, importer
from refold.importers.source import Source
from refold.importers.survey import Counts
from refold.importers.transcript import MOST_PROBLEMS, EndOfRun, Transcript, TranscriptRun
from refold.reducers.errors import Damaged, ExternalFailure, WrongUse
from refold.reducers.events import Parent
from refold.store.protocol import Record

MOST_SENT = 32 << 20
"""Maximum bytes of a file, and of its events, that are sent between processes. They stay in memory."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Why a file is not imported, with the exit code. `skipped`: a file of a folder that is no transcript."""

    problem: str
    code: int = 0
    skipped: bool = False


class FileSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An imported file: its format and `why` it has it, its digest, its counts, and its first problems."""

    format: str
    why: str
    sha256: str
    bytes: int
    counts: Counts
    problems: tuple[ImportProblem, ...]
    odd: int
    unread: int

    @classmethod
    def of(cls, reading: Transcript, why: str) -> "FileSummary":
        """Summarise a file of which all runs were read."""
        return cls(
            format=reading.format,
            why=why,
            sha256=reading.sha256,
            bytes=reading.bytes,
            counts=reading.counts(),
            problems=tuple(reading.problems[:MOST_PROBLEMS]),
            odd=reading.odd,
            unread=reading.unread,
        )


class DerivedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run, its events, and the `parent` that the file names."""

    conversation: ImportedConversation
    parent: Parent | None
    ended: EndOfRun
    records: Sequence[Record]


class DerivedFile(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A file and all its runs."""

    summary: FileSummary
    runs: Sequence[DerivedRun]


class Unsent(msgspec.Struct, frozen=True, tag=True):
    """A file that is derived where it is written: it is large, or an error came after its first run."""


Derivable = DerivedFile | Refusal | Unsent


def conversation(reading: TranscriptRun) -> ImportedConversation:
    """Describe an imported run by its identity in its source."""
    return ImportedConversation(reading.run, reading.format, reading.key, reading.apart, reading.begun_by)


def open_format(source: Source, named: str | None) -> Candidate:
    """Return the named format, or the detected one. Raises `UnknownFormat`."""
    return detect_format(source) if named is None else Candidate(named, 100, "as given")


def refuse_file(file: FoundFile, error: WrongUse | Damaged | ExternalFailure) -> Refusal:
    """Return why a file is not imported, after an error."""
    if not isinstance(error, UnknownFormat):
        return Refusal(problem=str(error), code=error.exit_code)
    is_other = file.walked and not (error.candidates or file.looks_like_transcript or error.packed)
    if is_other:
        return Refusal(problem=str(error.known or "no transcript"), skipped=True)
    return Refusal(problem=str(error), code=error.exit_code)


def derive_file(file: FoundFile, named: str | None, *, kept: bool) -> bytes:
    """Derive a file and return it encoded; see `decode_file`. Without `kept`, its events are left out."""
    made: Derivable
    try:
        made = _derive_file(file, named, kept=kept)
    except MemoryError:  # the process that writes would run out of it, too
        problem = f"{file.name}: reading it needs more memory than there is"
        made = Refusal(problem=problem, code=ExternalFailure.exit_code)
    # The process that writes meets the same error again, and reports it as it always does.
    except Exception:
        made = Unsent()
    return msgspec.msgpack.encode(made)


def decode_file(data: bytes) -> Derivable:
    """Return a file that `derive_file` encoded."""
    return _decoder().decode(data)


@cache
def _decoder() -> msgspec.msgpack.Decoder[Derivable]:
    return msgspec.msgpack.Decoder(Derivable)


def _derive_file(file: FoundFile, named: str | None, *, kept: bool) -> Derivable:
    runs: list[DerivedRun] = []
    left = MOST_SENT
    try:
        with file.open() as opened:
            source = Source.opened(file.name, opened)
            found = open_format(source, named)
            reading = Transcript(source, importer(found.format), found if named is None else None)
            for run in reading.runs():
                derived = _derive_run(run, left, kept=kept)
                if derived is None:
                    return Unsent()
                runs.append(derived)
                left -= sum(map(_size_of, derived.records))
    except (WrongUse, Damaged, Unreadable) as error:
        return Unsent() if runs else refuse_file(file, error)
    return DerivedFile(summary=FileSummary.of(reading, found.why), runs=runs)


def _derive_run(run: TranscriptRun, left: int, *, kept: bool) -> DerivedRun | None:
    """Return a derived run, or None if its events have more than `left` bytes."""
    told = conversation(run)
    records: list[Record] = []
    for group in run.derive(clock.new_salts(None if kept else 0)):
        if kept:
            made = [record(each.event, each.at, each.salt) for each in group]
            left -= sum(map(_size_of, made))
            records += made
        if left < 0:
            return None
    return DerivedRun(conversation=told, parent=run.begun_by, ended=run.ended, records=records)


def _size_of(one: Record) -> int:
    return len(one.body) + len(one.content or b"")


def begin_process() -> None:
    """Prepare a process: it ends with the one that writes, which alone handles an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
