"""Whole logs read without an event loop, for looking through all of a store: a process, a reader.

It reads files that were looked at before: that they are stores, unchanged in their schema, is seen when the store
itself is opened. Nothing is ever written.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from refold.store import forks, rows, schema
from refold.store.access import look
from refold.store.bundles import in_our_words, is_bundle, reading, stored_of
from refold.store.connection import direct, event_page, row_page
from refold.store.problems import translated
from refold.store.protocol import Origin, Stored, UnknownRun
from refold.store.reading import Checker
from refold.store.verify_bundle import Bundle, PackedRun


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
            return forks.origins(self._connection, run)

    def records(self, run: str) -> Iterator[Stored]:
        """The run's whole log in order, of a fork with what came before it.

        Raises as `Store.read`, and `UnknownRun` for a run without events.
        """
        with translated(self._path):
            spans = forks.spans(self._connection, run)
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
    """These runs of a store's file, or all runs of a bundle, each with its log; a log is to be read before the next.

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
    """The log of a bundle's run, each event checked; of a fork with what came before it, which `bundle.behind` checks not."""
    checker = Checker()
    with in_our_words(path):  # whoever reads the log raises there what is wrong with it
        for owner, upto, line in bundle.behind(run):
            if line.seq <= upto:
                yield from checker.held([stored_of(owner, line)])
        for line in bundle.lines(run):
            yield stored_of(run, line)
