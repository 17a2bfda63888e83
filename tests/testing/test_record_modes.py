"""The option --refold-record, and the files it writes."""

import json
import re

import pytest

from testing.conftest import SHOP, TEST, Session, recordings

RECORDED = ["test_shop/test_buy.jsonl"]


def test_a_missing_recording_fails_and_names_the_command(session: Session, pytester: pytest.Pytester) -> None:
    """By default nothing is recorded: no model is asked and no tool runs."""
    ran = session(test_shop=TEST)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        [
            "no recording: recordings/test_shop/test_buy.jsonl does not exist, and --refold-record=none records nothing",
            "  record    pytest test_shop.py::test_buy --refold-record=missing",
        ]
    )
    assert [] == recordings(pytester)


def test_missing_records_once(session: Session, pytester: pytest.Pytester) -> None:
    """`missing` records what has no recording and leaves the others; from then on no option is needed."""
    ran = session("--refold-record=missing", test_shop=TEST)
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["refold: recorded recordings/test_shop/test_buy.jsonl (COMPLETED)"])
    assert RECORDED == recordings(pytester)
    before = (pytester.path / "recordings" / RECORDED[0]).read_bytes()
    for option in ("none", "missing"):
        again = session(f"--refold-record={option}", test_shop=TEST)
        again.assert_outcomes(passed=1)
        again.stdout.no_fnmatch_line("refold: recorded*")
    assert before == (pytester.path / "recordings" / RECORDED[0]).read_bytes()


def test_a_recording_is_the_same_again(session: Session, pytester: pytest.Pytester) -> None:
    """Recorded again, byte for byte: ids, instants, durations and salts are fixed, and nothing of this
    machine.
    """
    session("--refold-record=all", test_shop=TEST).assert_outcomes(passed=1)
    path = pytester.path / "recordings" / RECORDED[0]
    before = path.read_bytes()
    session("--refold-record=all", test_shop=TEST).assert_outcomes(passed=1)
    assert before == path.read_bytes()
    started = json.loads(before.splitlines()[1])
    assert "worker" not in started["body"]
    assert "versions" not in started["body"]
    assert not re.search(rb"pid|/tmp|hostname", before)


PARALLEL = (
    SHOP.replace(
        "LINES = [", 'LINES = [calls(("slow", {"n": 3}), ("slow", {"n": 1}), ("slow", {"n": 2})), '
    ).replace("tools=[price, pay]", "tools=[price, pay, slow]")
    + '''

@tool(replay="read_only")
async def slow(n: int) -> int:
    """Take a while, the last the shortest."""
    import anyio
    await anyio.sleep(n / 100)
    return n
'''
)


def test_parallel_calls_are_recorded_in_order(session: Session, pytester: pytest.Pytester) -> None:
    """Results stand in the order of the calls, whichever came first."""
    session("--refold-record=all", test_shop=TEST, shop=PARALLEL).assert_outcomes(passed=1)
    lines = (pytester.path / "recordings" / RECORDED[0]).read_text(encoding="utf-8").splitlines()
    results = [json.loads(line)["content"]["output"] for line in lines if '"tool_returned"' in line]
    assert ["3", "1", "2", "30", "paid 30 cents"] == results
    session(test_shop=TEST, shop=PARALLEL).assert_outcomes(passed=1)


def test_each_test_has_its_recording(session: Session, pytester: pytest.Pytester) -> None:
    """Named after the test: with its class and parameters, a number for a second run, and no event loop."""
    text = """
import pytest
from shop import make

class TestShop:
    @pytest.mark.parametrize("coin", ["eur", "a/b"])
    def test_pay(self, refold_run, coin):
        refold_run(make, f"Pay in {coin}.")
        refold_run(make, "And again.")

@pytest.mark.anyio
async def test_async(refold_run):
    await refold_run.run(make, "Buy.")
"""
    ran = session("--refold-record=missing", test_shop=text)
    ran.assert_outcomes(passed=4)
    names = {re.sub("-[0-9a-f]{8}", "-HASH", name) for name in recordings(pytester)}
    assert names == {
        "test_shop/TestShop.test_pay-a_b-HASH.jsonl",
        "test_shop/TestShop.test_pay-a_b-HASH+2.jsonl",
        "test_shop/TestShop.test_pay-eur.jsonl",
        "test_shop/TestShop.test_pay-eur+2.jsonl",
        "test_shop/test_async.jsonl",
    }
    session(test_shop=text).assert_outcomes(passed=4)


def test_secrets_are_not_recorded(
    session: Session, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine redacts is redacted, and filters remove the rest from all texts, prompts too."""
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-hunter2-hunter2")
    shop = SHOP.replace('return f"paid {cents} cents"', 'return os.environ["SHOP_API_KEY"] + " for Ann Lee"')
    test = TEST.replace(
        '"Buy an apple.")',
        '"Buy an apple for Ann Lee.", before_record=[lambda text: text.replace("Ann Lee", "NAME")])',
    )
    session("--refold-record=missing", test_shop=test, shop=shop).assert_outcomes(passed=1)
    written = (pytester.path / "recordings" / RECORDED[0]).read_text(encoding="utf-8")
    assert "hunter2" not in written
    assert "Ann Lee" not in written
    assert "Buy an apple for NAME." in written
    session(test_shop=test, shop=shop).assert_outcomes(passed=1)


def test_a_damaged_recording(session: Session, pytester: pytest.Pytester) -> None:
    """A recording that was cut off, as by a merge, is an error that names the line."""
    session("--refold-record=missing", test_shop=TEST).assert_outcomes(passed=1)
    path = pytester.path / "recordings" / RECORDED[0]
    path.write_text(
        "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-2]), encoding="utf-8"
    )
    ran = session(test_shop=TEST)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        [
            "DamagedRecording: *test_buy.jsonl: run test_buy has 14 of 16 events: the file was cut off; record it again"
        ]
    )


FAILING = SHOP.replace(
    "LINES = [",
    "from refold.reducers.vocabulary import FailureClass\nLINES = [fail(FailureClass.AUTH, 'no such key'), ",
)


def test_a_failed_run_is_not_recorded(session: Session, pytester: pytest.Pytester) -> None:
    """A provider's failure replaces no recording and makes none, unless the test allows it."""
    for option in ("missing", "all"):
        ran = session(f"--refold-record={option}", test_shop=TEST, shop=FAILING)
        ran.assert_outcomes(failed=1)
        ran.stdout.fnmatch_lines(
            [
                "not recorded: the run ended in ERROR (provider:auth): *no such key*",
                "  recording recordings/test_shop/test_buy.jsonl was not written",
                "  accept    pass allow_error=True to record a run that ends like this",
            ]
        )
        assert [] == recordings(pytester)
    session("--refold-record=all", test_shop=TEST).assert_outcomes(passed=1)
    before = (pytester.path / "recordings" / RECORDED[0]).read_bytes()
    ran = session("--refold-record=all", test_shop=TEST, shop=FAILING)
    ran.stdout.fnmatch_lines(["  recording recordings/test_shop/test_buy.jsonl is unchanged"])
    assert before == (pytester.path / "recordings" / RECORDED[0]).read_bytes()
    allowed = TEST.replace('apple.")', 'apple.", allow_error=True)').replace('"COMPLETED"', '"ERROR"')
    for option in ("all", "none"):
        session(f"--refold-record={option}", test_shop=allowed, shop=FAILING).assert_outcomes(passed=1)


def test_an_edited_recording(session: Session, pytester: pytest.Pytester) -> None:
    """A result that was edited by hand is found by its digest, and the event is named."""
    session("--refold-record=missing", test_shop=TEST).assert_outcomes(passed=1)
    path = pytester.path / "recordings" / RECORDED[0]
    path.write_text(
        path.read_text(encoding="utf-8").replace("paid 30 cents", "paid 31 cents"), encoding="utf-8"
    )
    ran = session(test_shop=TEST)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        ["DamagedRecording: *run test_buy, event 12 (tool_returned): *: the file was edited*"]
    )


def test_a_recording_that_breaks_off(session: Session, pytester: pytest.Pytester) -> None:
    """One that was cut, and whose first line was edited to fit, ends in a state in which no run ends."""
    session("--refold-record=missing", test_shop=TEST).assert_outcomes(passed=1)
    path = pytester.path / "recordings" / RECORDED[0]
    lines = path.read_text(encoding="utf-8").replace('"events":16', '"events":5', 1).splitlines(keepends=True)
    path.write_text("".join(lines[:6]), encoding="utf-8")
    ran = session(test_shop=TEST)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        ["DamagedRecording: *run test_buy breaks off while it is WAITING_FOR_TOOL: record it again"]
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param("pass", "refold_run was requested and never called, or not awaited*", id="not called"),
        pytest.param(
            "refold_run.run(make, 'Buy.').close()", "refold_run was requested and never*", id="not awaited"
        ),
    ],
)
def test_a_test_that_tests_nothing(session: Session, body: str, message: str) -> None:
    """A fixture that was requested and not used is an error of a test that passes."""
    ran = session(test_shop=f"from shop import make\n\ndef test_buy(refold_run):\n    {body}\n")
    ran.assert_outcomes(passed=1, errors=1)
    ran.stdout.fnmatch_lines([message])


def test_a_recording_that_nothing_looks_at(session: Session) -> None:
    """Opening one is no test."""
    session("--refold-record=missing", test_shop=TEST).assert_outcomes(passed=1)
    text = """
def test_open(refold_recording):
    refold_recording("recordings/test_shop/test_buy.jsonl")
"""
    ran = session(test_shop=TEST, test_other=text)
    ran.assert_outcomes(passed=2, errors=1)
    ran.stdout.fnmatch_lines(["recordings/test_shop/test_buy.jsonl: opened, and neither compared nor read*"])


NUMBERED = """
import pytest
from shop import make

@pytest.mark.parametrize("n", [1, 1.5, "Eur", "eur", "[eur]"])
def test_buy(refold_run, n):
    refold_run(make, f"Buy {n}.")
    refold_run(make, f"Buy {n} again.")
"""


def test_names_that_are_alike(session: Session, pytester: pytest.Pytester) -> None:
    """Parameters that differ in case, brackets or a point have recordings of their own."""
    session("--refold-record=missing", test_shop=NUMBERED).assert_outcomes(passed=5)
    names = recordings(pytester)
    assert 10 == len({name.lower() for name in names})
    session("--refold-unused=delete", test_shop=NUMBERED).assert_outcomes(passed=5)
    assert names == recordings(pytester)
    session("--refold-unused=delete", "-k", "not 1.5", test_shop=NUMBERED)
    assert names == recordings(pytester)
    session("--refold-unused=delete", test_shop=NUMBERED.replace("1.5, ", "")).assert_outcomes(passed=4)
    assert {name for name in names if "1.5" not in name} == set(recordings(pytester))


BOUND = (
    SHOP
    + '''
import asyncio


class Bound(ScriptedModel):
    """A model whose connection belongs to the event loop of its first request."""

    loop = None

    async def stream(self, request):
        self.loop = self.loop or asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop()
        async for item in super().stream(request):
            yield item


agent = Agent(Bound([say("One."), say("Two."), say("Three.")]))
'''
)


def test_one_agent_in_several_runs(session: Session) -> None:
    """An agent of a module keeps its connections: all tests of a session share an event loop."""
    text = """
from shop import agent

def test_two(refold_run):
    assert refold_run(agent, "One.").text == "One."
    assert refold_run(agent, "Two.").text == "Two."

def test_three(refold_run):
    assert refold_run(agent, "Three.").text == "Three."
"""
    session("--refold-record=missing", test_shop=text, shop=BOUND).assert_outcomes(passed=2)
    session(test_shop=text, shop=BOUND).assert_outcomes(passed=2)


def test_functions_that_make_agents(session: Session) -> None:
    """They may run an event loop of their own, or be async."""
    text = """
import asyncio
import anyio
import pytest
from shop import make

def with_loop():
    asyncio.run(asyncio.sleep(0))
    return make()

async def later():
    await anyio.sleep(0)
    return make()

@pytest.mark.parametrize("function", [with_loop, later])
def test_buy(refold_run, function):
    assert refold_run(function, "Buy.").state == "COMPLETED"
"""
    session("--refold-record=missing", test_shop=text).assert_outcomes(passed=2)
    session(test_shop=text).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            'refold_run("agent", "Buy.")',
            "*agent: expected an Agent, or a function that returns one, got 'agent'*",
        ),
        (
            'refold_run(make, "Buy.", operater=None)',
            "*unknown argument 'operater' (did you mean 'operator'?)*",
        ),
        (
            'refold_run(make, "Buy.", live="tool")',
            "*live='tool': expected one of 'tools', 'model', 'all', or ''*",
        ),
        (
            'refold_run(make, "Buy.", ignore="date")',
            "*ignore='date': expected a list, as in ignore=[[]'date'[]]*",
        ),
        ('refold_run(make, "Buy.", before_record=str)', "*before_record: expected *"),
    ],
)
def test_wrong_arguments(session: Session, pytester: pytest.Pytester, call: str, message: str) -> None:
    """They are refused before anything is recorded, by a message without a traceback."""
    text = f"from shop import make\n\ndef test_buy(refold_run):\n    {call}\n"
    ran = session("--refold-record=all", test_shop=text)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines([message])
    assert [] == recordings(pytester)
