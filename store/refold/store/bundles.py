"""Bundles as stores, and scans of whole logs without an event loop.

A bundle is read once, from its front to its end, in bounded memory: a line of a run is held whole, and the
lists of members and proofs, all of which have bounds in `verify_bundle`; nothing else is.

It reads files that were looked at before: that they are stores, unchanged in their schema, is seen when the
store itself is opened. Nothing is ever written.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Self

import msgspec

from refold.reducers.errors import CannotJudge, Damaged, WorldFailed, WrongUse
from refold.store import rows, schema, tables, verify_bundle
from refold.store.access import look
from refold.store.chain import Checker
from refold.store.checks import BYTES, ROWS
from refold.store.connection import direct, event_page, row_page
from refold.store.files import written_beside
from refold.store.opening import open_store
from refold.store.protocol import FileProblem, Origin, Record, Store, Stored, UnknownRun
from refold.store.rows import translated
from refold.store.verify_bundle import Bundle, BundleLine, PackedRun

OUR_VERIFIER = "this version's, to the byte"
UNKNOWN_VERIFIER = "UNKNOWN TO THIS VERSION: do not run it, it may be forged; a newer refold tells"


class DamagedBundle(FileProblem, Damaged):
    """A bundle that is not what was packed."""


class NotABundle(FileProblem, WrongUse):
    """A file that is something else."""


class UnjudgedBundle(FileProblem, CannotJudge):
    """A bundle of a newer version, or one without a seal that was to be held against a key."""


class Unpacked(msgspec.Struct, frozen=True, kw_only=True):
    """What was unpacked, and where."""

    path: str
    runs: int
    events: int


def is_bundle(path: Path) -> bool:
    """Whether a file begins as a bundle does; what is no file, or cannot be read, does not."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"PK"
    except (OSError, ValueError):
        return False


@contextmanager
def reading(path: Path, keys: Sequence[bytes] = ()) -> Generator[Bundle]:
    """An open bundle. Here and inside, raises `DamagedBundle`, `NotABundle`, `UnjudgedBundle`,
    `WorldFailed`.
    """
    with in_our_words(path), path.open("rb") as file:
        yield Bundle(file, keys)


@contextmanager
def in_our_words(path: Path) -> Generator[None]:
    """Raises what `reading` does for what the verifier raises: for who reads a bundle's lines later,
    elsewhere.
    """
    try:
        yield
    except verify_bundle.BundleChanged as error:
        raise DamagedBundle(str(path), str(error)) from error
    except verify_bundle.NoBundle as error:
        raise NotABundle(str(path), str(error)) from error
    except verify_bundle.Unjudged as error:
        raise UnjudgedBundle(str(path), str(error)) from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotABundle(str(path), "there is no such file") from error
    except OSError as error:
        raise WorldFailed(f"{path}: cannot be read: {error.strerror or error}") from error


def verifier_of(bundle: Bundle) -> str:
    """Whose the verifier is that travels in a bundle, once all of it was checked: as people are told."""
    ours = sha256(Path(verify_bundle.__file__).read_bytes()).digest()
    return OUR_VERIFIER if bundle.verifier == ours else UNKNOWN_VERIFIER


def stored_of(run: PackedRun, line: BundleLine) -> Stored:
    """A line of a run as the store has its event."""
    return Stored(run=run.id, **line._asdict())


async def unpack(path: Path, target: Path) -> Unpacked:
    """Make a store of a bundle's runs, event for event and hash for hash. Nothing is at `target` unless all
    went well.

    The seal stays in the bundle: it is over a log of heads that the bundle has not. Raises as `reading`, and
    `WrongUse` where `target` is there already.
    """
    with written_beside(target) as partial, reading(path) as bundle:
        async with await open_store(partial) as store:
            for run in bundle.runs:
                await _unpack_run(store, bundle, run, path)
            bundle.check_rest()
    return Unpacked(path=str(target), runs=len(bundle.runs), events=bundle.events)


async def _unpack_run(store: Store, bundle: Bundle, run: PackedRun, path: Path) -> None:
    origin = bundle.origin(run)
    lease, seq, head = await store.lease(run.id, holder="refold unpack"), origin.seq if origin else 0, b""
    for records in _batches(bundle.lines(run)):
        try:
            stands = await store.append(run.id, seq, lease, records)
        except WrongUse as error:  # a fork of what is not there
            raise DamagedBundle(str(path), str(error)) from error
        seq, head = stands.seq, stands.hash
    assert (seq, head) == (run.events, run.head), "the chain of a store is that of a bundle"
    await store.release(lease)


def _batches(lines: Iterator[BundleLine]) -> Iterator[list[Record]]:
    """The lines as records, as many as a chunk of a store holds."""
    batch, size = list[Record](), 0
    for line in lines:
        batch.append(_record(line))
        size += len(line.body) + len(line.content or b"")
        if len(batch) >= ROWS or size >= BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _record(line: BundleLine) -> Record:
    said = {name: getattr(line, name) for name in ("at", "kind", "body", "content", "salt")}
    return Record(content_digest=line.content_digest if line.content is None else None, **said)


class Scan:
    """A store's file, open for reading."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        look(path, readonly=True)
        with translated(self._path):
            self._connection = direct(path, "mode=ro")
            self._connection.execute("PRAGMA query_only = ON")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def lineage(self, run: str) -> Sequence[Origin]:
        """See `Store.lineage`."""
        with translated(self._path):
            return tables.origins(self._connection, run)

    def records(self, run: str) -> Iterator[Stored]:
        """The run's whole log in order, of a fork with what came before it.

        Raises as `Store.read`, and `UnknownRun` for a run without events.
        """
        with translated(self._path):
            spans = tables.spans(self._connection, run)
        if not spans:
            raise UnknownRun(run)
        checker = Checker()
        for part, low in spans:
            for page in self._own(part.run, low + part.after, low + part.upto):
                yield from checker.held(page)
        checker.go_on()
        last = spans[-1][1] + spans[-1][0].upto
        rows.check_end(self._path, run, last, self._page(schema.END, last))

    def _own(self, run: str, after: int, last: int) -> Iterator[Sequence[Stored]]:
        while after < last:
            with translated(self._path):
                page = event_page(self._connection, run, schema.EVENTS, (after, last))
            after = rows.reached(self._path, run, page, after, last)
            yield rows.to_events(self._path, run, page)

    def _page(self, sql: str, *keys: int) -> list[rows.SqlRow]:
        with translated(self._path):
            return row_page(self._connection, sql, keys)


def whole_logs(path: Path, runs: tuple[str, ...]) -> Iterator[tuple[str, Iterator[Stored]]]:
    """These runs of a store's file, or all runs of a bundle, each with its log; a log is to be read before
    the next.

    Raises as `Scan`, or as `refold.store.bundles.reading`; so do the logs.
    """
    if not is_bundle(path):
        with Scan(path) as scan:
            for run in runs:
                yield run, scan.records(run)
        return
    with reading(path) as bundle:
        for packed in bundle.runs:
            yield packed.id, _packed(path, bundle, packed)
        bundle.check_rest()


def _packed(path: Path, bundle: Bundle, run: PackedRun) -> Iterator[Stored]:
    """The log of a bundle's run, each event checked; of a fork with what came before it, which
    `bundle.behind` checks not.
    """
    checker = Checker()
    with in_our_words(path):  # whoever reads the log raises there what is wrong with it
        for owner, upto, line in bundle.behind(run):
            if line.seq <= upto:
                yield from checker.held([stored_of(owner, line)])
        for line in bundle.lines(run):
            yield stored_of(run, line)
