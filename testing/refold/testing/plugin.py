"""The pytest plugin: options, a marker and fixtures. It imports the engine only when a fixture is used."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refold.testing.sessions import SESSION, Mode, Session, Unused

pytest_plugins = ["refold.testing.coverage"]

if TYPE_CHECKING:
    from refold.testing.fixtures import RunFixture
    from refold.testing.freezing import Frozen
    from refold.testing.recorded_cases import RecordingFixture


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("refold", "deterministic tests of agents")
    group.addoption(
        "--refold-record",
        choices=[each.value for each in Mode],
        default=Mode.NONE.value,
        help="none: run from recordings only (default); missing: record what has no recording; all: record again",
    )
    group.addoption(
        "--refold-unused",
        choices=[each.value for each in Unused],
        default=Unused.REPORT.value,
        help="what to do with recordings that no test used: report, fail or delete them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and begin to count recordings."""
    config.addinivalue_line(
        "markers",
        "refold_ignore(*patterns): what comparisons with a recording ignore, such as 'date' or a regular expression",
    )
    mode = Mode(config.getoption("--refold-record"))
    config.stash[SESSION] = Session(mode, Unused(config.getoption("--refold-unused")))
    config.stash[SESSION].begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the environment."""
    if SESSION in config.stash:
        config.stash[SESSION].end()


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember each test, before any is deselected."""
    item.config.stash[SESSION].collect(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a difference without a traceback, and remember which tests passed."""
    report = yield
    if call.excinfo is not None and (shown := _show(item, call.excinfo)):
        report.longrepr = shown
    item.config.stash[SESSION].finish(item, report)
    return report


def _show(item: pytest.Item, found: pytest.ExceptionInfo[BaseException]) -> str:
    """Return the message of an error from this package, and the test's line; "" for any other error."""
    places = [place for place, entry in enumerate(found.traceback) if entry.path == item.path]
    if not places:
        return ""
    entry = found.traceback[places[-1]]
    below = found.traceback[places[-1] + 1 :]
    ours = bool(below) and Path(below[0].path).parent == Path(__file__).parent
    theirs = any(item.config.rootpath in Path(each.path).parents for each in below)
    if not ours or theirs or not type(found.value).__module__.startswith("refold."):
        return ""
    kind = "" if hasattr(found.value, "evidence") else f"{found.typename}: "
    place = f"{os.path.relpath(item.path, item.config.invocation_params.dir)}:{entry.lineno + 1}"
    return f"{kind}{found.value}\n\n{place}: {str(entry.statement).strip()}"


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Remember that tests were left out."""
    for item in items[:1]:
        item.config.stash[SESSION].miss()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Find unused recordings; a worker of pytest-xdist sends what it knows instead."""
    found = session.config.stash[SESSION]
    if session.exitstatus != pytest.ExitCode.OK or _is_partial(session.config):
        found.miss()
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["refold"] = found.as_data()
    elif found.settle() and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_partial(config: pytest.Config) -> bool:
    """Return whether single tests were named, or only those that failed last time run."""
    named = any("::" in str(argument) for argument in config.args)
    return named or any(config.getoption(name, default=False) for name in ("lf", "stepwise"))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Add what a worker of pytest-xdist knows."""
    data = getattr(node, "workeroutput", {}).get("refold")
    if data:
        node.config.stash[SESSION].merge(data)  # type: ignore[attr-defined]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report new and unused recordings, and tools whose code changed."""
    for line in config.stash[SESSION].summary(config.rootpath):
        terminalreporter.write_line(line)


@pytest.fixture
def refold_run(request: pytest.FixtureRequest) -> "Iterator[RunFixture]":
    """Run an agent from this test's recording: `run = refold_run(agent, "Refund order 7.")`."""
    from refold.testing.fixtures import RunFixture

    with RunFixture.of(request) as fixture:
        yield fixture


@pytest.fixture
def refold_recording(request: pytest.FixtureRequest) -> "Iterator[RecordingFixture]":
    """Open a recording, a store, a bundle or a transcript: `refold_recording("incident.jsonl")`."""
    from refold.testing.recorded_cases import RecordingFixture

    with RecordingFixture.of(request) as fixture:
        yield fixture


@pytest.fixture
def refold_store(tmp_path: Path) -> str:
    """The address of an empty store for one test, deleted with pytest's temporary folders."""
    return str(tmp_path / "refold-runs.db")


@pytest.fixture
def refold_frozen() -> "Iterator[Frozen]":
    """Give agents in this test fixed run ids (`run-1`, `run-2`), seeds and instants."""
    from refold.testing.freezing import freeze

    with freeze() as frozen:
        yield frozen
