"""Recordings: logs as JSON lines, to keep beside tests and to read in a review.

Each run begins with a line that names it; one line follows for each of its events:

    {"recording":1,"run":"refund","events":9,"seed":1}
    {"seq":1,"at":1700000000000000000,"kind":"run_started","content":{...},"body":{...},"salt":"seed"}

Body and content stand in the file exactly as the store holds them, so the run has the same hashes when it is
read again. `salt` is `seed` where it follows from the run's seed, else hex; `digest` is that of erased
content.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from refold.reducers.errors import Damaged, WrongUse
from refold.store.chain import seeded_salt
from refold.store.files import write_atomically
from refold.store.loaded import LoadedStore
from refold.store.protocol import RECORDING, FileProblem, Record, Store, Stored, UnknownRun

FORMAT = 1
"""The version of the file format that this version of refold writes, and the newest that it reads."""

_SEEDED = "seed"
_ENCODER = msgspec.json.Encoder()


class DamagedRecording(FileProblem, Damaged):
    """A recording with a line that cannot be read, or with fewer or more events than it announces."""


class NotARecording(FileProblem, WrongUse):
    """A file that is missing, or something else than a recording."""


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a recording: its id, its seed, and its events from the first."""

    run: str
    seed: int
    records: Sequence[Record]


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    recording: int
    run: str
    events: int
    seed: int = 0


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event. The content comes first: a reviewer reads it, the rest is for programs."""

    seq: int
    at: int
    kind: str
    content: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body: msgspec.Raw
    salt: str = ""
    digest: str = ""


T = TypeVar("T")


class _Seed(msgspec.Struct):
    """The seed in the body of a run's first event."""

    seed: int = 0


_SEED = msgspec.json.Decoder(_Seed)
_HEAD = msgspec.json.Decoder(_Head)
_LINE = msgspec.json.Decoder(_Line)


def encode_recording(runs: Iterable[RecordedRun]) -> str:
    """Return the text of a recording."""
    return "".join(f"{line}\n" for each in runs for line in _lines(each))


def write_recording(path: Path, runs: Iterable[RecordedRun]) -> None:
    """Write a recording. An existing file is replaced, or stays unchanged if writing fails.

    Raises:
        WrongUse: The path is not a regular file.
        ExternalFailure: The file cannot be written.
    """
    with write_atomically(path, force=True) as partial:
        partial.write_text(encode_recording(runs), encoding="utf-8", newline="\n")


def read_recording(path: Path) -> list[RecordedRun]:
    """Read all runs of a recording.

    Raises:
        NotARecording: The file is missing, or something else.
        DamagedRecording: A line cannot be read, or the number of events is wrong; the line is named.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise NotARecording(str(path), error.strerror or str(error)) from error
    if not lines[0].startswith(RECORDING):
        raise NotARecording(str(path), 'expected a first line that begins with {"recording":')
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return list(_runs(path, numbered))


async def recorded_run(store: Store, run: str) -> RecordedRun:
    """Read a run from a store, to write it to a recording. Raises `UnknownRun`, `Damaged`."""
    records: list[Record] = []
    async for chunk in store.read(run):
        records += [record_of(each) for each in chunk]
    if not records:
        raise UnknownRun(run)
    return RecordedRun(run=run, seed=_SEED.decode(records[0].body).seed, records=records)


def record_of(stored: Stored) -> Record:
    """Return an event as it was before it was stored, to write it elsewhere with the same hash."""
    return Record(
        at=stored.at,
        kind=stored.kind,
        body=stored.body,
        content=stored.content,
        salt=stored.salt,
        content_digest=stored.content_digest if stored.erased else None,
    )


class RecordingStore(LoadedStore):
    """The runs of a recording as a store to read from.

    Raises:
        NotARecording, DamagedRecording: As `read_recording`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "recordings")
        for each in read_recording(path):
            self._hold(each.run, each.records)


def _lines(run: RecordedRun) -> Iterator[str]:
    head = _Head(recording=FORMAT, run=run.run, events=len(run.records), seed=run.seed)
    yield _ENCODER.encode(head).decode()
    for seq, record in enumerate(run.records, start=1):
        seeded = record.salt == seeded_salt(run.seed, seq)
        line = _Line(
            seq=seq,
            at=record.at,
            kind=record.kind,
            content=msgspec.UNSET if record.content is None else msgspec.Raw(record.content),
            body=msgspec.Raw(record.body),
            salt=_SEEDED if seeded else record.salt.hex(),
            digest=(record.content_digest or b"").hex(),
        )
        yield _ENCODER.encode(line).decode()


def _runs(path: Path, lines: Iterator[tuple[int, bytes]]) -> Iterator[RecordedRun]:
    for number, text in lines:
        head: _Head = _decode(path, number, _HEAD, text)
        if head.recording > FORMAT:
            raise NotARecording(
                str(path), f"line {number}: format {head.recording} is newer than {FORMAT}: update refold"
            )
        if head.events < 1:
            raise DamagedRecording(str(path), f"line {number}: a run has at least 1 event, got {head.events}")
        records = [
            _record(path, *line, seq, head.seed)
            for seq, line in zip(range(1, head.events + 1), lines, strict=False)
        ]
        if len(records) < head.events:
            raise DamagedRecording(
                str(path),
                f"run {head.run} has {len(records)} of {head.events} events: the file was cut off; record it again",
            )
        yield RecordedRun(run=head.run, seed=head.seed, records=records)


def _record(path: Path, number: int, text: bytes, seq: int, seed: int) -> Record:
    line: _Line = _decode(path, number, _LINE, text)
    if line.seq != seq:
        raise DamagedRecording(str(path), f"line {number}: expected event {seq}, got event {line.seq}")
    try:
        salt = seeded_salt(seed, seq) if line.salt == _SEEDED else bytes.fromhex(line.salt)
        digest = bytes.fromhex(line.digest) or None
    except ValueError as error:
        raise DamagedRecording(str(path), f"line {number}: salt or digest: expected hex digits") from error
    content = bytes(line.content) if isinstance(line.content, msgspec.Raw) else None
    return Record(
        at=line.at, kind=line.kind, body=bytes(line.body), content=content, salt=salt, content_digest=digest
    )


def _decode(path: Path, number: int, decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRecording(str(path), f"line {number}: {error}") from error
