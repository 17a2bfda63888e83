"""Scans of complete logs without an event loop, of stores and bundles."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Protocol, Self

from refold.store import rows, schema, tables
from refold.store.access import look
from refold.store.bundles import in_our_words, is_bundle, open_bundle, stored_of
from refold.store.chain import Checker
from refold.store.connection import direct, event_page, row_page
from refold.store.opening import SQLITE, is_recording, open_here, store_address
from refold.store.protocol import Origin, Store, Stored, UnknownRun
from refold.store.rows import translate_errors
from refold.store.sequential import at_once, read_log
from refold.store.verify_bundle import Bundle, PackedRun


class Scan(Protocol):
    """A store, open for reading complete logs."""

    def lineage(self, run: str) -> Sequence[Origin]:
        """See `Store.lineage`."""
        ...

    def records(self, run: str) -> Iterator[Stored]:
        """Yield the run's complete log in order; for a fork this includes its prefix.

        Raises as `Store.read`, and `UnknownRun` for a run without events.
        """
        ...


@contextmanager
def open_scan(address: str | PathLike[str]) -> Generator[Scan]:
    """Open the store at an address. Raises as `open_here`."""
    scheme, path = store_address(address)
    if scheme == SQLITE and not is_recording(path):
        with FileScan(Path(path)) as scan:
            yield scan
        return
    store = open_here(address)
    try:
        yield _StoreScan(store)
    finally:
        at_once(store.aclose())


class _StoreScan:
    def __init__(self, store: Store) -> None:
        self._store = store

    def lineage(self, run: str) -> Sequence[Origin]:
        return at_once(self._store.lineage(run))

    def records(self, run: str) -> Iterator[Stored]:
        return read_log(self._store, run)


class FileScan:
    """A SQLite file, checked and open for reading."""

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


def whole_logs(address: str | PathLike[str], runs: tuple[str, ...]) -> Iterator[tuple[str, Iterator[Stored]]]:
    """Yield these runs of a store, or all runs of a bundle's file, each with its log. Read each log before
    the next.

    This and the logs raise as `Scan` or `open_bundle`.
    """
    file = store_address(address).file
    if file is None or not is_bundle(file):
        with open_scan(address) as scan:
            for run in runs:
                yield run, scan.records(run)
        return
    with open_bundle(file) as bundle:
        for packed in bundle.runs:
            yield packed.id, _read_packed(file, bundle, packed)
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
