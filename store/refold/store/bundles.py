"""Reading of bundles.

A bundle is read once from start to end in bounded memory: one line of a run and the lists of members and
proofs, all bounded in `verify_bundle`. Nothing is written.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from refold.reducers.errors import Damaged, ExternalFailure, Inconclusive, WrongUse
from refold.store import verify_bundle
from refold.store.checks import BYTES, ROWS
from refold.store.loaded import LoadedStore
from refold.store.protocol import FileProblem, Record, Stored
from refold.store.verify_bundle import Bundle, BundleLine, PackedRun

OUR_VERIFIER = "identical to this version's"
UNKNOWN_VERIFIER = "UNKNOWN TO THIS VERSION: do not run it, it may be forged; a newer refold may know it"


class DamagedBundle(FileProblem, Damaged):
    """A bundle that differs from what was packed."""


class NotABundle(FileProblem, WrongUse):
    """A file that is something else."""


class UnjudgedBundle(FileProblem, Inconclusive):
    """A bundle of a newer version, or one without a seal although a key was given."""


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


class BundleStore(LoadedStore):
    """The runs of a bundle, checked and loaded into memory, as a store to read from.

    Its seal is not loaded: see `unpack`. Raises as `reading`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "bundles")
        with open_bundle(path) as bundle:
            for run in bundle.runs:
                origin = bundle.origin(run)
                seq = origin.seq if origin else 0
                for records in batches(bundle.lines(run)):
                    self._load(run, records, seq)
                    seq += len(records)
            bundle.check_rest()

    def _load(self, run: PackedRun, records: Sequence[Record], after: int) -> None:
        try:
            self._hold(run.id, records, after)
        except WrongUse as error:  # a fork of what is not there
            raise DamagedBundle(str(self._path), str(error)) from error


def batches(lines: Iterator[BundleLine]) -> Iterator[list[Record]]:
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
