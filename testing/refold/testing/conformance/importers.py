"""The conformance tests of a transcript importer in one class."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from hypothesis import HealthCheck, given, settings

from refold.importers.items import Item, RunBegan, RunEnded, Unread
from refold.importers.registry import FormatMatch, Importer
from refold.importers.source import BadTranscript, Source
from refold.reducers.errors import RefoldError
from refold.testing.conformance.damage import Damage, damage, damages
from refold.testing.conformance.imports import Imported, import_source
from refold.testing.conformance.unknown_parts import lost_keys, lost_texts

Returned = TypeVar("Returned")

_CUTS = 150
"""The most places at which a sample is cut."""
_OTHERS: tuple[bytes, ...] = (
    b"",
    b"\n",
    b"\x00\xff",
    b"[]",
    b"{}",
    b"null",
    b'{"a": 1}\n',
    b"PK\x03\x04",
    b"# a\n",
)
"""Files of no format."""


class ImporterConformance:
    """Tests of the contract of `Importer`. Override `importer` and `samples`.

    Hypothesis's settings apply, except for its deadline.
    """

    def importer(self) -> Importer:
        """Return the importer."""
        raise NotImplementedError(f"{type(self).__name__}.importer: return your importer")

    def samples(self) -> Mapping[str, bytes]:
        """Return intact files of the format, by name: small ones, together with every kind of row.

        Each is imported several hundred times, so a few kilobytes are enough. Files that the importer
        unpacks by `Source.opened` are given unpacked.
        """
        raise NotImplementedError(f"{type(self).__name__}.samples: return files of the format, by name")

    def damaged_samples(self) -> Mapping[str, bytes]:
        """Return more files, by name, with parts that the importer reports as unread."""
        return {}

    def test_it_has_a_name(self) -> None:
        """The name can be an option of the command line, and a part of a run's id."""
        name = str(self.importer().name)
        fit = name.isidentifier() and name == name.lower()
        assert fit, f"name: expected lower-case letters, digits and underscores, got {name!r}"

    def test_each_sample_matches(self) -> None:
        """Each sample is recognized by its content, whatever its name is."""
        for name, data in self._samples():
            match: object = self.importer().match(Source.of(name, data))
            assert isinstance(match, FormatMatch), f"{name}: match returned {match!r}, not a FormatMatch"
            assert 0 < match.score <= 100, f"{name}: the score of the match is {match.score}, not 1 to 100"
            assert match.why, f"{name}: the match has no reason: `why` is empty"
            other = self.importer().match(Source.of("renamed.txt", data))
            assert other == match, f"{name}: under another name, match returned {other}, not {match}"

    def test_other_files_do_not_match(self) -> None:
        """Files of no format are not recognized, and make `match` raise nothing."""
        for data in _OTHERS:
            match = self._matched(f"match of {data!r}", data)
            assert match is None, (
                f"{data!r} matches with {match}: require a mark that other files do not have"
            )

    def test_items_are_well_formed(self) -> None:
        """Runs begin and end in turn, and each item has a position."""
        for name, data in self._samples():
            open_run = False
            for item in self._items(name, data):
                assert item.position, f"{name}: an item has no position: {item}"
                if isinstance(item, RunBegan):
                    assert not open_run, f"{name}, {item.position}: a run begins before the last one ended"
                    open_run = True
                elif isinstance(item, RunEnded):
                    assert open_run, f"{name}, {item.position}: a run ends that did not begin"
                    open_run = False
                elif isinstance(item, Unread):
                    assert item.problem, f"{name}, {item.position}: an unread part has no problem"
            assert not open_run, f"{name}: the last run does not end; yield place.end(...)"

    def test_each_sample_is_imported(self) -> None:
        """Each sample gives at least one run, with a clean audit; an intact one is read completely."""
        for name, data in self._samples():
            found = self._imported(name, data)
            assert found.audits, f"{name}: no run was found in it"
            unread = [f"{each.position}: {each.problem}" for each in found.problems if each.unread]
            intact = name not in self.damaged_samples()
            assert not (unread and intact), f"{name}: parts of it were not read: {'; '.join(unread)}"

    def test_a_second_import_gives_the_same_log(self) -> None:
        """Importing a file again gives the same items, runs and events: nothing depends on the moment."""
        for name, data in self._samples():
            assert self._items(name, data) == self._items(name, data), (
                f"{name}: the items differ when read again"
            )
            one, other = self._imported(name, data), self._imported("renamed.txt", data)
            same = (one.runs, one.counts) == (other.runs, other.counts)
            assert same, f"{name}: an import under another name gave other runs: {one.runs} and {other.runs}"
            assert one.digest == self._imported(name, data).digest, (
                f"{name}: a second import gave other events"
            )

    def test_truncated_files(self) -> None:
        """A truncated file is imported up to the cut, or refused by `BadTranscript`; no other error."""
        for name, data in self._samples():
            step = max(1, len(data) // _CUTS)
            for size in range(0, len(data), step):
                self._survives(f"{name}, cut after {size} bytes", data[:size])

    def test_damaged_files(self) -> None:
        """A damaged file is imported as far as it can be read, or refused by `BadTranscript`."""
        for name, data in self._samples():

            def check(done: list[Damage], name: str = name, data: bytes = data) -> None:
                self._survives(f"{name}, damaged by {done}", damage(data, done))

            _given_damages(check)

    def test_unknown_keys_are_in_the_log(self) -> None:
        """A key that the importer does not know, in any object, is found in the log."""
        for name, data in self._samples():
            lost = lost_keys(Source.of(name, data), self.importer())
            assert not lost, (
                f"{name}: unknown keys of these objects are in no log; pass them as `rest`: {lost}"
            )

    def test_other_texts_are_in_the_log(self) -> None:
        """Another text, a list or an object in place of any text is found in the log, or is a problem."""
        for name, data in self._samples():
            lost = lost_texts(Source.of(name, data), self.importer())
            assert not lost, f"{name}: other values of these keys are in no log; pass them as `rest`: {lost}"

    def _samples(self) -> Iterator[tuple[str, bytes]]:
        samples = self.samples()
        assert samples, f"{type(self).__name__}.samples: no files, so nothing is tested"
        yield from {**samples, **self.damaged_samples()}.items()

    def _items(self, name: str, data: bytes) -> list[Item]:
        return list(self.importer().items(Source.of(name, data)))

    def _imported(self, name: str, data: bytes) -> Imported:
        found = import_source(Source.of(name, data), self.importer())
        unclean = [audit for audit in found.audits if not audit.clean]
        assert not unclean, f"{name}: an audit of the derived log is not clean: {unclean[0]}"
        return found

    def _matched(self, what: str, data: bytes) -> FormatMatch | None:
        return _tried(what, lambda: self.importer().match(Source.of("x", data)))

    def _survives(self, what: str, data: bytes) -> None:
        self._matched(f"{what}: match", data)
        try:
            found = _tried(f"{what}: items", lambda: import_source(Source.of("x", data), self.importer()))
        except BadTranscript:
            return
        assert all(audit.clean for audit in found.audits), f"{what}: an audit of the derived log is not clean"
        lost = [problem for problem in found.problems if problem.code == "no_place"]
        assert not lost, f"{what}: items had no place in the log: {lost}"


def _tried(what: str, method: Callable[[], Returned]) -> Returned:
    """Call a method. Raises `BadTranscript`, and for any other error `AssertionError` with what was done."""
    try:
        return method()
    except BadTranscript:
        raise
    except RefoldError as error:
        raise AssertionError(f"{what}: the derived log is invalid: {error}") from error
    except Exception as error:
        raise AssertionError(
            f"{what} raised {error!r}; yield a problem for what cannot be read, and raise BadTranscript only if "
            "nothing can be read"
        ) from error


def _given_damages(check: Callable[[list[Damage]], None]) -> None:
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.nested_given])
    @given(done=damages)
    def explore(done: list[Damage]) -> None:
        check(done)

    explore()
