"""`--refold-coverage`: what the runs of a session reached, merged from workers, with a threshold."""

import re
import subprocess
import sys

import pytest

TESTS = """
    from refold.engine import Agent, ScriptedModel, call, calls, fail, say, tool
    from refold.reducers.vocabulary import FailureClass

    POLICY = {
        "guards": [
            {"guard": "one_call"},
            {"guard": "permissions", "rules": [
                {"effect": "refuse", "tool": "pay"}, {"effect": "refuse", "tool": "steal"},
            ]},
        ],
        "limits": [{"type": "step", "value": 9}],
        "retry": {"attempts": 1},
    }

    @tool
    def look() -> str:
        return "a door"

    @tool
    def pay() -> str:
        return "paid"

    def run(*script):
        return Agent(ScriptedModel(script), tools=[look, pay], policy=POLICY).run_sync("Go.")

    def test_calls():
        assert run(calls(("look", {}), ("look", {})), say("Done.")).state == "COMPLETED"

    def test_a_refusal():
        assert run(call("pay"), say("Done.")).state == "COMPLETED"

    def test_a_failure():
        assert run(fail(FailureClass.AUTH)).state == "ERROR"
"""


@pytest.fixture
def session(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with three tests of an agent."""
    pytester.makepyfile(test_agent=TESTS)
    return pytester


def _rows(result: pytest.RunResult) -> dict[str, tuple[int, int]]:
    """The number of reached and of possible rows, by section."""
    found = [re.fullmatch(r"(\w[\w ]*?) +(\d+) of (\d+) +\d+%", line) for line in result.outlines]
    return {row[1]: (int(row[2]), int(row[3])) for row in found if row}


def _run(session: pytest.Pytester, *more: str) -> pytest.RunResult:
    return session.runpytest_inprocess(
        "-p", "no:randomly", "-p", "no:asyncio", "-p", "no:cacheprovider", *more
    )


def test_what_was_reached_is_counted(session: pytest.Pytester) -> None:
    """Each section has what the three runs reached, and names what they did not reach."""
    result = _run(session, "--refold-coverage")
    result.assert_outcomes(passed=3)
    rows = _rows(result)
    assert (2, 2) == rows["guards"]
    assert (1, 2) == rows["permission rules"]
    assert (0, 1) == rows["limits"]
    assert (4, 19) == rows["moves"]
    result.stdout.fnmatch_lines(
        [
            "*= refold coverage =*",
            "*not reached: RUNNING --cancel--> CANCELLED",
            "*not reached: permissions.rules*1*",
            "*not reached: step",
            "    verdict of one_call: refuse 1",
            "    verdict of permissions: refuse 1",
            "total *% (3 runs)",
        ]
    )
    missed = {line.strip() for line in result.outlines if "not reached:" in line}
    reached = {
        "give_up",
        "dispatch",
        "guards on_approval",
        "finish_batch",
        "request",
        "RUNNING --fail--> ERROR",
    }
    assert not {f"not reached: {name}" for name in reached} & missed


def test_fewer_tests_reach_less(session: pytest.Pytester) -> None:
    """Without the test that fails, the move to ERROR and the rule that gives up are not reached."""
    result = _run(session, "--refold-coverage", "-k", "not failure")
    assert (3, 19) == _rows(result)["moves"]
    result.stdout.fnmatch_lines(["*not reached: RUNNING --fail--> ERROR", "*not reached: give_up"])


@pytest.mark.parametrize(("least", "code"), [("5", 0), ("90", 1)])
def test_the_threshold(session: pytest.Pytester, least: str, code: int) -> None:
    """A session below the percentage fails, and says what to do; one above it passes."""
    result = _run(session, f"--refold-coverage-min={least}")
    assert code == result.ret
    text = "*and --refold-coverage-min requires 90%: test what was not reached, or lower the number*"
    if code:
        result.stdout.fnmatch_lines([text])
    else:
        result.stdout.no_fnmatch_line(text)


def test_without_the_option(session: pytest.Pytester) -> None:
    """Without the option there is no table, and nothing is observed."""
    result = _run(session)
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("*refold coverage*")


def test_a_failed_session_stays_failed(session: pytest.Pytester) -> None:
    """A threshold that is met does not hide a failed test."""
    session.makepyfile(test_failing="def test_failing(): assert False")
    assert pytest.ExitCode.TESTS_FAILED == _run(session, "--refold-coverage-min=1").ret


@pytest.mark.slow
def test_workers_are_merged(session: pytest.Pytester) -> None:
    """With pytest-xdist, the table has the same numbers as in one process."""
    alone = _run(session, "--refold-coverage")
    together = session.runpytest_subprocess(
        "-p", "no:randomly", "-p", "no:asyncio", "-n2", "--dist=load", "--refold-coverage"
    )
    together.assert_outcomes(passed=3)
    assert _rows(alone) == _rows(together)
    together.stdout.fnmatch_lines(["total *% (3 runs)"])


def test_the_journal_is_restored(session: pytest.Pytester) -> None:
    """After the session, nothing is observed any more."""
    from refold.engine.journal import Journal

    before = Journal.append
    _run(session, "--refold-coverage")
    assert before is Journal.append


def test_the_plugin_imports_nothing_heavy() -> None:
    """Loading the plugin imports neither the engine nor Hypothesis."""
    heavy = ("msgspec", "anyio", "trio", "hypothesis", "refold.engine", "refold.reducers")
    code = f"import sys, refold.testing.plugin, refold.testing.coverage; print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
