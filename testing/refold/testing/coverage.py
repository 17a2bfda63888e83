"""`--refold-coverage`: what the runs of a test session reached. Hooks of the pytest plugin.

The engine is imported only if the option is on. Then `Journal.append` is observed until the session ends.
"""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from refold.testing.coverage_counts import Collector

_OPTION, _LEAST = "--refold-coverage", "--refold-coverage-min"
_KEY = "refold_coverage"
_COLLECTOR: pytest.StashKey["Collector"] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("refold", "deterministic tests of agents")
    group.addoption(
        _OPTION,
        action="store_true",
        help="report which moves, rules, guards and policy keys the runs of the tests reached",
    )
    group.addoption(
        _LEAST,
        type=float,
        metavar="PERCENT",
        help="as --refold-coverage, and fail the session below this percentage of all rows",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Observe all runs, if an option is on."""
    if config.getoption(_OPTION) or config.getoption(_LEAST) is not None:
        from refold.testing.coverage_counts import Collector

        config.stash[_COLLECTOR] = Collector()
        config.stash[_COLLECTOR].begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop observing."""
    if (collector := config.stash.get(_COLLECTOR, None)) is not None:
        collector.end()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001
    """Add what a worker of pytest-xdist counted. A worker that crashed has no numbers."""
    collector = node.config.stash.get(_COLLECTOR, None)
    counted = getattr(node, "workeroutput", {}).get(_KEY)
    if collector is not None and counted is not None:
        collector.add(counted)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's numbers to the session, or fail the session below the least percentage."""
    collector = session.config.stash.get(_COLLECTOR, None)
    if collector is None:
        return
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEY] = collector.plain()
        return
    least = session.config.getoption(_LEAST)
    passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if least is not None and passed and collector.percent() < least:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the table: a row for each section, and what was not reached."""
    collector = config.stash.get(_COLLECTOR, None)
    if collector is None:
        return
    terminalreporter.section("refold coverage")
    for section in collector.sections():
        known = len(section.reached) + len(section.missed)
        terminalreporter.write_line(
            f"{section.name:<18}{len(section.reached):>4} of {known:<4}{section.percent:>4.0f}%"
        )
        for name in section.missed:
            terminalreporter.write_line(f"    not reached: {name}")
    for guard, verdict, count in collector.verdicts():
        terminalreporter.write_line(f"    verdict of {guard}: {verdict} {count}")
    least, percent = config.getoption(_LEAST), collector.percent()
    terminalreporter.write_line(f"total {percent:.1f}% ({collector.runs} runs)")
    if least is not None and percent < least:
        terminalreporter.write_line(
            f"refold coverage is {percent:.1f}%, and {_LEAST} requires {least:g}%: test what was not reached, or "
            "lower the number",
            red=True,
        )
