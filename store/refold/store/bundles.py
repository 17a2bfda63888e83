"""Reading bundles: what `verify_bundle` checks, in the words of this library, and back into a store.

A bundle is read once, from its front to its end, in bounded memory: a line of a run is held whole, and the lists of
members and proofs, all of which have bounds in `verify_bundle`; nothing else is.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec

from refold.reducers.errors import CannotJudge, Damaged, WorldFailed, WrongUse
from refold.store import verify_bundle
from refold.store.atomic_files import written_beside
from refold.store.pages import BYTES, ROWS
from refold.store.protocol import FileProblem, Record, Store, Stored
from refold.store.sqlite import SqliteStore
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
    """An open bundle. Here and inside, raises `DamagedBundle`, `NotABundle`, `UnjudgedBundle`, `WorldFailed`."""
    with in_our_words(path), path.open("rb") as file:
        yield Bundle(file, keys)


@contextmanager
def in_our_words(path: Path) -> Generator[None]:
    """Raises what `reading` does for what the verifier raises: for who reads a bundle's lines later, elsewhere."""
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
    """Make a store of a bundle's runs, event for event and hash for hash. Nothing is at `target` unless all went well.

    The seal stays in the bundle: it is over a log of heads that the bundle has not. Raises as `reading`, and
    `WrongUse` where `target` is there already.
    """
    with written_beside(target) as partial, reading(path) as bundle:
        async with await SqliteStore.open(partial) as store:
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
