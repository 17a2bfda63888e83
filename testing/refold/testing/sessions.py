"""What a pytest session knows about recordings: its tests, the files they used, and the files left over."""

import os
import re
import zlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from enum import Enum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from refold.testing.places import FOLDER, READ, recordings_of

OFFLINE = "REFOLD_OFFLINE"
"""The environment variable that lets agents be created without a key for their model."""

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")

NUMBER = "+"
"""Separates the number of a test's second and later recordings from its name. No test's name has it."""

_LONGEST = 120
_BEGIN = b'{"recording":'


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

    The event loop of anyio's plugin is left out, so that both loops share a recording.
    """
    name = getattr(item, "originalname", None) or item.name.partition("[")[0]
    parameters = item.name[len(name) :].removeprefix("[").removesuffix("]")
    spec = getattr(item, "callspec", None)
    if spec is not None and "anyio_backend" in spec.params:
        parameters = _without_loop(parameters, _loop_of(spec.params["anyio_backend"]))
    classes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
    full = ".".join([*classes, name]) + (f"-{parameters}" if parameters else "")
    safe = re.sub(r"[^\w.-]", "_", full, flags=re.ASCII)[:_LONGEST]
    # Some file systems do not tell upper from lower case, and ids of parameters may differ in nothing else.
    plain = safe == full and parameters == parameters.lower()
    return safe if plain else f"{safe}-{_digest(full)}"


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode(errors='backslashreplace')):08x}"


def _loop_of(backend: object) -> str:
    """Return the name of a backend of anyio's plugin: a text, or a tuple with options."""
    return str(cast("Sequence[object]", backend)[0] if isinstance(backend, tuple) else backend)


def _without_loop(parameters: str, loop: str) -> str:
    """Leave out one parameter id that names the event loop."""
    parts = parameters.split("-")
    matching = [place for place, part in enumerate(parts) if part.partition("+")[0] == loop]
    if matching:
        del parts[matching[0]]
    return "-".join(parts)


class Session:
    """The recordings of a session. `mode` and `unused` are its options."""

    def __init__(self, mode: Mode, unused: Unused) -> None:
        self.mode, self.unused = mode, unused
        self._files: set[str] = set()  # test files that were collected
        self._tests: dict[str, str] = {}  # by path of the recording without a number: the test's id
        self._unfinished: set[str] = set()  # the same paths, of tests that did not run to their end
        self._used: set[str] = set()
        self._written: dict[str, str] = {}
        self._edited: dict[str, list[str]] = {}
        self._unproved: dict[str, list[str]] = {}
        self._owners: dict[str, str] = {}
        self._left: list[str] = []
        self._partial = False
        self._refused: dict[str, list[str]] = {}
        self._environment: str | None = None
        self._runner: asyncio.Runner | None = None

    def begin(self) -> None:
        """Allow models without a key, unless this session records."""
        self._environment = os.environ.get(OFFLINE)
        if self.mode is Mode.NONE:
            os.environ[OFFLINE] = "1"

    def end(self) -> None:
        """Restore the environment."""
        if self._runner is not None:
            self._runner.close()
        if self._environment is None:
            os.environ.pop(OFFLINE, None)
        else:
            os.environ[OFFLINE] = self._environment

    def run(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine. All tests share an event loop, to which an agent's connections belong."""
        if self._runner is None:
            import asyncio

            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        return self._runner.run(call())

    def collect(self, item: pytest.Item) -> None:
        """Remember a test."""
        path = str(recordings_of(item.path) / name_test(item))
        self._files.add(str(item.path))
        self._tests[path] = item.nodeid
        self._unfinished.add(path)

    def finish(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Remember that a test passed: its recordings are those that it used."""
        if report.when == "call" and report.passed:
            self._unfinished.discard(str(recordings_of(item.path) / name_test(item)))

    def passed(self, item: pytest.Item) -> bool:
        """Return whether a test passed so far."""
        return str(recordings_of(item.path) / name_test(item)) not in self._unfinished

    def miss(self) -> None:
        """Remember that some tests were not collected, or were left out: unused recordings are unknown."""
        self._partial = True

    def claim(self, path: Path, item: pytest.Item) -> None:
        """Reserve a recording for a test. Raises `AssertionError` if another test has the same."""
        owner = self._owners.setdefault(str(path).lower(), _owner(item))
        assert owner == _owner(item), (
            f"{path}: {item.nodeid} and {owner} would share this recording; rename one"
        )

    def use(self, path: Path, *, written: str = "") -> None:
        """Remember that a recording was read or `written`, and the state of its run."""
        self._used.add(str(path))
        if written:
            self._written[str(path)] = written

    def note_edited(self, path: Path, tools: Sequence[str]) -> None:
        """Remember tools whose code was edited since the recording."""
        if tools:
            self._edited[str(path)] = list(tools)

    def note_unproved(self, path: Path, parts: Sequence[str]) -> None:
        """Remember what could not be compared, because the source of a recording does not have it."""
        if parts:
            self._unproved[str(path)] = list(parts)

    def note_refused(self, item: pytest.Item, hosts: Sequence[str]) -> None:
        """Remember the requests of a test that were refused: it may have swallowed the error."""
        if hosts:
            self._refused[item.nodeid] = list(hosts)

    def as_data(self) -> dict[str, Any]:
        """Return what a worker process knows, as plain data."""
        return {
            "files": sorted(self._files),
            "tests": self._tests,
            "finished": sorted(self._tests.keys() - self._unfinished),
            "used": sorted(self._used),
            "written": self._written,
            "edited": self._edited,
            "unproved": self._unproved,
            "refused": self._refused,
            "partial": self._partial,
            "read": sorted(READ),
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
        self._refused.update(data["refused"])
        self._partial = self._partial or data["partial"]
        READ.update(data["read"])

    def settle(self) -> bool:
        """Find the unused recordings, delete them if asked to, and return whether they fail the session.

        Nothing is unused unless all tests of the collected files ran and passed, or were skipped: any test
        may use any recording. A recording is unused if nothing read it and its test no longer exists, or
        passed.
        """
        if self._partial:
            return False
        used = {os.path.realpath(path) for path in (*self._used, *READ)}
        self._left = sorted(
            str(path)
            for folder in self._folders()
            for path in self._list(folder)
            if os.path.realpath(path) not in used
        )
        if self.unused is Unused.DELETE:
            for path in self._left:
                Path(path).unlink(missing_ok=True)
        return self.unused is Unused.FAIL and bool(self._left)

    def _folders(self) -> Iterator[Path]:
        """Yield the folders of collected test files, and those beside them whose test file is gone."""
        yield from (recordings_of(Path(file)) for file in sorted(self._files))
        for parent in sorted({Path(file).parent / FOLDER for file in self._files}):
            for folder in parent.iterdir() if parent.is_dir() else ():
                gone = not (parent.parent / f"{folder.name}.py").exists()
                if gone and folder.is_dir() and not folder.is_symlink():
                    yield folder

    def _list(self, folder: Path) -> Iterator[Path]:
        """Yield the recordings of a folder whose test passed, or does not exist."""
        for path in sorted(folder.glob("*.jsonl")):
            test = str(path.with_suffix("")).partition(NUMBER)[0]
            if test not in self._unfinished and not path.is_symlink() and _is_recording(path):
                yield path

    def summary(self, root: Path) -> Iterator[str]:
        """Yield the lines for the end of the session."""
        for path, state in sorted(self._written.items()):
            yield f"refold: recorded {_relative(path, root)} ({state})"
        for path, tools in sorted(self._edited.items()):
            yield f"refold: edited since {_relative(path, root)} was recorded, and not run: {', '.join(tools)}"
        for path, parts in sorted(self._unproved.items()):
            yield f"refold: not recorded in {_relative(path, root)}, so not compared: {', '.join(parts)}"
        for test, hosts in sorted(self._refused.items()):
            yield f"refold: {test}: {len(hosts)} live requests were refused: {', '.join(sorted(set(hosts)))}"
        deleted = self.unused is Unused.DELETE
        for path in self._left:
            yield f"refold: {'deleted' if deleted else 'unused'} recording {_relative(path, root)}"


SESSION = pytest.StashKey[Session]()


def _owner(item: pytest.Item) -> str:
    """Return what a test shares with its runs on other event loops."""
    spec = getattr(item, "callspec", None)
    if spec is None or "anyio_backend" not in spec.params:
        return item.nodeid
    node, _, parameters = item.nodeid.partition("[")
    return f"{node}[{_without_loop(parameters.removesuffix(']'), _loop_of(spec.params['anyio_backend']))}]"


def _is_recording(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_BEGIN)) == _BEGIN


def _relative(path: str, root: Path) -> str:
    return os.path.relpath(path, root)
