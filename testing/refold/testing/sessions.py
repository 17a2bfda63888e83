"""What a pytest session knows about recordings: its tests, the files they used, and the files left over."""

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, unique
from pathlib import Path
from typing import Any, cast

import pytest

from refold.testing.places import recordings_of

OFFLINE = "REFOLD_OFFLINE"
"""The environment variable that lets agents be created without a key for their model."""

_LOOPS = frozenset({"asyncio", "trio", "asyncio+uvloop"})
_LONGEST = 120


@unique
class Mode(Enum):
    """When to record: the option `--refold-record`."""

    NONE = "none"
    MISSING = "missing"
    ALL = "all"


@unique
class Unused(Enum):
    """What to do with unused recordings: the option `--refold-unused`."""

    REPORT = "report"
    FAIL = "fail"
    DELETE = "delete"


def name_test(item: pytest.Item) -> str:
    """Return the name of a test's recording: `test_refund`, `TestShop.test_refund-eur`.

    The event loop of an async test is left out, so that both loops share a recording.
    """
    name = getattr(item, "originalname", None) or item.name.partition("[")[0]
    parameters = item.name[len(name) :].strip("[]")
    spec = getattr(item, "callspec", None)
    if spec is not None and "anyio_backend" in spec.params:
        parameters = "-".join(part for part in parameters.split("-") if part not in _LOOPS)
    parent = getattr(item, "cls", None)
    full = f"{parent.__name__}.{name}" if parent is not None else name
    full = f"{full}-{parameters}" if parameters else full
    safe = re.sub(r"[^\w.-]", "_", full, flags=re.ASCII)[:_LONGEST]
    return safe if safe == full else f"{safe}-{zlib.crc32(full.encode()):08x}"


class Session:
    """The recordings of a session. `mode` and `unused` are its options."""

    def __init__(self, mode: Mode, unused: Unused) -> None:
        self.mode, self.unused = mode, unused
        self._files: set[str] = set()  # test files that were collected
        self._tests: dict[str, str] = {}  # by path of the recording without a number: the test's id
        self._unfinished: set[str] = set()  # the same paths, of tests that did not run to their end
        self._used: set[str] = set()
        self._written: set[str] = set()
        self._edited: dict[str, list[str]] = {}
        self._unproved: dict[str, list[str]] = {}
        self._owners: dict[str, str] = {}
        self._left: list[str] = []
        self._environment: str | None = None

    def begin(self) -> None:
        """Allow models without a key, unless this session records."""
        self._environment = os.environ.get(OFFLINE)
        if self.mode is Mode.NONE:
            os.environ[OFFLINE] = "1"

    def end(self) -> None:
        """Restore the environment."""
        if self._environment is None:
            os.environ.pop(OFFLINE, None)
        else:
            os.environ[OFFLINE] = self._environment

    def collect(self, item: pytest.Item) -> None:
        """Remember a test."""
        path = str(recordings_of(item.path) / name_test(item))
        self._files.add(str(item.path))
        self._tests[path] = item.nodeid
        self._unfinished.add(path)

    def finish(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Remember that a test ran: its recordings are those that it used, if it passed."""
        if report.when == "call" and report.passed:
            self._unfinished.discard(str(recordings_of(item.path) / name_test(item)))

    def claim(self, path: Path, test: str) -> None:
        """Reserve a recording for a test. Raises `AssertionError` if another test has the same."""
        owner = self._owners.setdefault(str(path), test.partition("[")[0])
        assert owner == test.partition("[")[0], (
            f"{path}: {test} and {owner} would share this recording; rename one"
        )

    def use(self, path: Path, *, written: bool = False) -> None:
        """Remember that a recording was read, or `written`."""
        self._used.add(str(path))
        if written:
            self._written.add(str(path))

    def note_edited(self, path: Path, tools: Sequence[str]) -> None:
        """Remember tools whose code was edited since the recording."""
        if tools:
            self._edited[str(path)] = list(tools)

    def note_unproved(self, path: Path, parts: Sequence[str]) -> None:
        """Remember what could not be compared, because the source of a recording does not have it."""
        if parts:
            self._unproved[str(path)] = list(parts)

    def as_data(self) -> dict[str, Any]:
        """Return what a worker process knows, as plain data."""
        return {
            "files": sorted(self._files),
            "tests": self._tests,
            "finished": sorted(self._tests.keys() - self._unfinished),
            "used": sorted(self._used),
            "written": sorted(self._written),
            "edited": self._edited,
            "unproved": self._unproved,
        }

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add what a worker process knows."""
        known = cast("dict[str, str]", data["tests"])
        self._unfinished |= {path for path in known if path not in self._tests}
        self._tests.update(known)
        self._files.update(data["files"])
        self._unfinished -= set(data["finished"])
        self._used.update(data["used"])
        self._written.update(data["written"])
        self._edited.update(data["edited"])
        self._unproved.update(data["unproved"])

    def settle(self, arguments: Sequence[str]) -> bool:
        """Find the unused recordings, delete them if asked to, and return whether they fail the session.

        A test file is judged only if all its tests were collected. A recording is unused if its test no
        longer exists, or passed without it.
        """
        partial = {argument.partition("::")[0] for argument in arguments if "::" in argument}
        whole = [Path(file) for file in self._files if not any(_names(part, file) for part in partial)]
        self._left = sorted(str(path) for file in whole for path in self._unused_of(recordings_of(file)))
        if self.unused is Unused.DELETE:
            for path in self._left:
                Path(path).unlink(missing_ok=True)
        return self.unused is Unused.FAIL and bool(self._left)

    def _unused_of(self, folder: Path) -> Iterator[Path]:
        """Yield the unused recordings of a folder: a test that did not pass may use any of them."""
        passed = all(Path(test).parent != folder for test in self._unfinished)
        for path in sorted(folder.glob("*.jsonl")):
            test = re.sub(r"\.\d+$", "", str(path.with_suffix("")))
            judged = test not in self._unfinished if test in self._tests else passed
            if judged and str(path) not in self._used:
                yield path

    def summary(self, root: Path) -> Iterator[str]:
        """Yield the lines for the end of the session."""
        for path in sorted(self._written):
            yield f"refold: recorded {_relative(path, root)}"
        for path, tools in sorted(self._edited.items()):
            yield f"refold: edited since {_relative(path, root)} was recorded, and not run: {', '.join(tools)}"
        for path, parts in sorted(self._unproved.items()):
            yield f"refold: not recorded in {_relative(path, root)}, so not compared: {', '.join(parts)}"
        deleted = self.unused is Unused.DELETE
        for path in self._left:
            yield f"refold: {'deleted' if deleted else 'unused'} recording {_relative(path, root)}"


SESSION = pytest.StashKey[Session]()


def _names(argument: str, file: str) -> bool:
    return os.path.abspath(argument) == file or file.endswith(os.sep + argument)


def _relative(path: str, root: Path) -> str:
    return os.path.relpath(path, root)
