"""What a test reads of a run, and how a failed expectation explains itself."""

import re
from functools import partial
from typing import Any

import anyio
import pytest

from refold.engine import Agent, ScriptedModel, call, calls, say, tool
from refold.reducers.errors import WrongUse
from refold.testing import ObservedRun
from refold.testing.loaded_logs import recording_of
from refold.testing.recorder import record


@tool(replay="read_only")
def price(item: str) -> int:
    """The price of an item."""
    return {"apple": 30}[item]


@tool
def pay(cents: int, to: str = "shop") -> str:
    """Pay."""
    return f"paid {cents}"


POLICY = {
    "guards": [{"guard": "arguments", "tool": "pay", "matches": "666", "then": "refuse", "name": "no-666"}],
    "approvals": {
        "chain": [{"approver": "human", "tools": ["pay"]}, {"approver": "approve", "tools": ["*"]}]
    },
}
LINES = [
    calls(("price", {"item": "apple"}), ("price", {"item": "plum"})),
    calls(("pay", {"cents": 30}), ("pay", {"cents": 666}), ("pay", '{"cents": ')),
    call("pay", cents=40, to="bank"),
    say("Done."),
]


def observed(lines: Any = LINES, policy: Any = POLICY, answers: Any = None) -> ObservedRun:
    """A run of these lines; pending calls get these answers, or are approved."""

    def operator(run: Any) -> None:
        run.answer({each.id: (answers or {}).get(each.id, "approve") for each in run.pending})

    agent = Agent(ScriptedModel(lines), tools=[price, pay], policy=policy, system="Be brief.")

    async def main() -> ObservedRun:
        runs = await record(agent, "Buy.", run_id="r", operator=operator)
        return ObservedRun(recording_of(runs[0]).events)

    return anyio.run(main)


@pytest.fixture(scope="module")
def run() -> ObservedRun:
    return observed(answers={"c3": ("edit", {"cents": 29}), "c6": "reject"})


def test_state_and_texts(run: ObservedRun) -> None:
    """How it ended, what it said last, and in how many turns."""
    assert ("COMPLETED", "end_turn", "Done.", 4) == (run.state, run.code, run.text, run.turns)
    assert "<ObservedRun r COMPLETED (end_turn), 4 turns, calls: price, price, pay, pay, pay, pay>" == repr(
        run
    )


def test_calls(run: ObservedRun) -> None:
    """Each call as it ran: with edited arguments, its output or error, and who refused it."""
    assert ["price", "price", "pay", "pay", "pay", "pay"] == run.calls.names
    assert ["30", "raised"] == [run.calls[0].output, run.calls[1].error]
    paid, refused, broken, rejected = run.calls("pay")
    assert ({"cents": 29}, "paid 29", "edited by user") == (paid.arguments, paid.output, paid.approved)
    assert (True, False, False) == (paid.ran, refused.ran, broken.ran)
    assert "guard no-666 (arguments)" == refused.refused
    assert (None, "") == (broken.arguments, broken.refused)
    assert "rejected by user" == rejected.refused
    assert [refused, rejected] == list(run.refused)


def test_prompts(run: ObservedRun) -> None:
    """The messages of a turn, exactly as the model got them; a turn that was not is an error."""
    assert ["system", "user"] == [message.role for message in run.prompt(turn=1)]
    assert ["30", "raised: KeyError: 'plum'"] == [message.text for message in run.prompt(turn=2)[-2:]]
    assert ["price", "pay"] == [each.name for each in run.request(turn=1).tools]
    with pytest.raises(WrongUse, match=r"run r: turn 9: expected a turn from 1 to 4"):
        run.prompt(turn=9)


def test_expectations_that_hold(run: ObservedRun) -> None:
    """By value, pattern and function; a call that was refused does not count."""
    run.expect_call("pay", cents=29).once()
    run.expect_call("price", item=re.compile("^app")).before("pay").once()
    run.expect_call("price").times(2)
    run.expect_call("price", item=lambda item: len(item) == 4).once()
    run.expect_no_call("pay", cents=666)
    run.expect_no_call("pay", cents=40)
    assert run.calls("price")[:1].one.arguments == {"item": "apple"}


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        pytest.param(
            lambda run: run.expect_call("pay", cents=30),
            'expected a call of pay(cents=30), got c3 pay {"cents": 29}, turn 2: cents is 29, expected 30',
            id="another value",
        ),
        pytest.param(
            lambda run: run.expect_call("pay", cents=29, to="bank"),
            "expected a call of pay(cents=29, to='bank'), got c3 pay {\"cents\": 29}, turn 2: to is missing, expected 'bank'",
            id="missing argument",
        ),
        pytest.param(
            lambda run: run.expect_call("price").once(),
            'expected price() once, got 2 calls:\n  c1 price {"item": "apple"}, turn 1\n  c2 price {"item": "plum"}, turn 1',
            id="too often",
        ),
        pytest.param(
            lambda run: run.expect_call("pay", cents=29).before("price"),
            "expected pay(cents=29) before price, got 6 calls:",
            id="order",
        ),
        pytest.param(
            lambda run: run.expect_call("price").before("refund"),
            "expected price() before a call of refund, which was never called",
            id="never called",
        ),
        pytest.param(
            lambda run: run.expect_no_call("price", item="apple"),
            'expected no call of price, got 1 call:\n  c1 price {"item": "apple"}, turn 1',
            id="not at all",
        ),
        pytest.param(lambda run: run.calls.one, "expected one call, got 6 calls:", id="not one"),
    ],
)
def test_expectations_that_fail(run: ObservedRun, expect: Any, message: str) -> None:
    """The message names the nearest call and the argument that differs."""
    with pytest.raises(AssertionError) as failed:
        expect(run)
    assert str(failed.value).startswith(message)


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        (lambda run: run.expect_no_call("pai"), r"no tool 'pai' was offered \(did you mean 'pay'\?\)"),
        (lambda run: run.expect_call("refund"), "no tool 'refund' was offered; offered: price, pay"),
        (lambda run: run.expect_no_call("pay", cent=9), r"no argument 'cent' \(did you mean 'cents'\?\)"),
    ],
)
def test_names_that_exist_nowhere(run: ObservedRun, expect: Any, message: str) -> None:
    """A test over a tool or an argument that was never offered could not fail, so it is an error."""
    with pytest.raises(WrongUse, match=message):
        expect(run)


def test_calls_that_did_not_run() -> None:
    """A call that waits for approval, or whose arguments are no JSON, is none that was made."""
    waiting = anyio.run(
        partial(record, Agent(ScriptedModel(LINES[2:]), tools=[pay], policy=POLICY), "Buy.", run_id="r")
    )
    run = ObservedRun(recording_of(waiting[0]).events)
    assert "WAITING_FOR_INPUT" == run.state
    assert not run.calls.one.ran
    with pytest.raises(AssertionError, match="expected a call of pay"):
        run.expect_call("pay")


def test_nothing_was_called() -> None:
    """An empty list of calls is said to be one."""
    run = observed([say("No.")])
    assert [] == run.calls.names
    with pytest.raises(AssertionError, match=r"expected a call of pay\(\), got no calls"):
        run.expect_call("pay")
