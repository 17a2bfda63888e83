"""Reading of bundles, unpacking into a store, and scans of complete logs without an event loop.

A bundle is read once from start to end in bounded memory: one line of a run and the lists of members and
proofs, all bounded in `verify_bundle`. Except for `unpack`, nothing is written.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Self

import msgspec

from refold.reducers.errors import Damaged, ExternalFailure, Inconclusive, WrongUse
from refold.store import rows, schema, tables, verify_bundle
from refold.store.access import look
from refold.store.chain import Checker
from refold.store.checks import BYTES, ROWS
from refold.store.connection import direct, event_page, row_page
from refold.store.files import write_atomically
from refold.store.opening import open_store
from refold.store.protocol import FileProblem, Origin, Record, Store, Stored, UnknownRun
from refold.store.rows import translate_errors
from refold.store.verify_bundle import Bundle, BundleLine, PackedRun

OUR_VERIFIER = "identical to this version's"
UNKNOWN_VERIFIER = "UNKNOWN TO THIS VERSION: do not run it, it may be forged; a newer refold may know it"


class DamagedBundle(FileProblem, Damaged):
    """A bundle that differs from what was packed."""


class NotABundle(FileProblem, WrongUse):
    """A file that is something else."""


class UnjudgedBundle(FileProblem, Inconclusive):
    """A bundle of a newer version, or one without a seal although a key was given."""


class Unpacked(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `unpack`: the path of the store, and the number of runs and events."""

    path: str
    runs: int
    events: int


def is_bundle(path: Path) -> bool:
    """Return whether a file begins like a bundle; False for what is missing or cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"PK"
    except (OSError, ValueError):
        return False


@contextmanager
def open_bundle(path: Path, keys: Sequence[bytes] = ()) -> Generator[Bundle]:
    """Open a bundle. On entry and in its block, raises `DamagedBundle`, `NotABundle`, `UnjudgedBundle` or
    `ExternalFailure`.
    """
    with in_our_words(path), path.open("rb") as file:
        yield Bundle(file, keys)


@contextmanager
def in_our_words(path: Path) -> Generator[None]:
    """Convert the verifier's errors to those of `reading`, for code that reads a bundle's lines elsewhere."""
    try:
        yield
    except verify_bundle.BundleChanged as error:
        raise DamagedBundle(str(path), str(error)) from error
    except verify_bundle.NoBundle as error:
        raise NotABundle(str(path), str(error)) from error
    except verify_bundle.Unjudged as error:
        raise UnjudgedBundle(str(path), str(error)) from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotABundle(str(path), "the file does not exist") from error
    except OSError as error:
        raise ExternalFailure(f"{path}: cannot be read: {error.strerror or error}") from error


def verifier_of(bundle: Bundle) -> str:
    """Return text that says whether the bundle's own verifier is ours. Call it after the complete check."""
    ours = sha256(Path(verify_bundle.__file__).read_bytes()).digest()
    return OUR_VERIFIER if bundle.verifier == ours else UNKNOWN_VERIFIER


def stored_of(run: PackedRun, line: BundleLine) -> Stored:
    """Convert a line of a run to a stored event."""
    return Stored(run=run.id, **line._asdict())


async def unpack(path: Path, target: Path) -> Unpacked:
    """Create a store at `target` with a bundle's runs; events and hashes are unchanged. A failure leaves no
    file.

    The seal is not copied: it covers a log of heads that the bundle does not contain. Raises as `reading`,
    and `WrongUse` if `target` exists.
    """
    with write_atomically(target) as partial, open_bundle(path) as bundle:
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
    """Group the lines into lists of records, each as large as a chunk of a store."""
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
    """A store's file, checked and open for reading."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        look(path, readonly=True)
        with translate_errors(self._path):
            self._connection = direct(path, "mode=ro")
            self._connection.execute("PRAGMA query_only = ON")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def lineage(self, run: str) -> Sequence[Origin]:
        """See `Store.lineage`."""
        with translate_errors(self._path):
            return tables.origins(self._connection, run)

    def records(self, run: str) -> Iterator[Stored]:
        """Yield the run's complete log in order; for a fork this includes its prefix.

        Raises as `Store.read`, and `UnknownRun` for a run without events.
        """
        with translate_errors(self._path):
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
            with translate_errors(self._path):
                page = event_page(self._connection, run, schema.EVENTS, (after, last))
            after = rows.last_key(self._path, run, page, after, last)
            yield rows.to_events(self._path, run, page)

    def _page(self, sql: str, *keys: int) -> list[rows.SqlRow]:
        with translate_errors(self._path):
            return row_page(self._connection, sql, keys)


def whole_logs(path: Path, runs: tuple[str, ...]) -> Iterator[tuple[str, Iterator[Stored]]]:
    """Yield these runs of a store's file, or all runs of a bundle, each with its log. Read each log before
    the next.

    This and the logs raise as `Scan` or `reading`.
    """
    if not is_bundle(path):
        with Scan(path) as scan:
            for run in runs:
                yield run, scan.records(run)
        return
    with open_bundle(path) as bundle:
        for packed in bundle.runs:
            yield packed.id, _read_packed(path, bundle, packed)
        bundle.check_rest()


def _read_packed(path: Path, bundle: Bundle, run: PackedRun) -> Iterator[Stored]:
    """Yield the checked log of a bundle's run; for a fork this includes its prefix, which `bundle.behind`
    does not check.
    """
    checker = Checker()
    with in_our_words(path):  # errors are raised where the log is read
        for owner, upto, line in bundle.behind(run):
            if line.seq <= upto:
                yield from checker.held([stored_of(owner, line)])
        for line in bundle.lines(run):
            yield stored_of(run, line)
