"""`simulate`: its report, its determinism, its shrinking, and its errors."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.engine import Agent, CallContext, ScriptedModel, call, calls, say, tool
from refold.reducers.errors import WrongUse
from refold.testing import Ledger, NeedsAsyncio, SimulationFailed, ViolationKind, simulate


def make_agent(ledger: Ledger) -> Agent:
    """Pay three bills, with an effect that the world does not deduplicate."""

    @tool(replay="idempotent")
    async def pay(cents: int, context: CallContext) -> str:
        """Pay a bill."""
        await ledger.effect("pay", context)
        return f"paid {cents} cents"

    @tool(replay="read_only")
    def look(shop: str) -> str:
        """Look at a bill."""
        return f"{shop} wants 30 cents"

    script = [call("look", shop="bakery"), call("pay", cents=30), calls(("pay", {"cents": 5})), say("Paid.")]
    return Agent(ScriptedModel(script), tools=[pay, look])


def test_a_failure_prints_the_violation_and_the_call_that_plays_it_again() -> None:
    """The text of a failure: the violation, the schedule, the table of tools and the faults."""
    report = simulate(make_agent, task="Pay the bills.", seeds=[11])
    assert report.failure is not None
    report.seconds = 0.0
    with pytest.raises(SimulationFailed) as failed:
        report.check()
    assert failed.value.report is report
    assert failed.value.schedule == report.schedule
    assert str(failed.value) == FAILURE.format(found=report.failure.deviations).strip()


FAILURE = """
simulated 1 schedule, 26 events (no time): not_idempotent: tool pay is declared idempotent, but a second execution of call c2 with the same key changed the world: before …89d6697', name='pay', run='r')], _epochs={{}}), after …89d6697', name='pay', run='r'), Effect(call='c2', key='d530f…
also: repeated_effect: run r call c2: pay happened more than once
found by seed 11, and shrunk from {found} deviations to 1
play again: simulate(make_agent, task='Pay the bills.', schedule='seed=0 twice:rerun:2')

tool  calls  executions  repeated  lost  in doubt
look      1           1         0     0         0
pay       2           8         6     4         0

fired: fail 1, stop 4, twice 2
"""


def test_the_report_of_a_clean_simulation_counts_calls_and_faults() -> None:
    """The text of a report: schedules, calls by tool, faults by kind, and what never fired."""

    def make(ledger: Ledger) -> Agent:
        @tool(replay="idempotent")
        async def pay(cents: int, context: CallContext) -> str:
            await ledger.effect("pay", context, once=True)
            return "paid"

        return Agent(ScriptedModel([call("pay", cents=30), say("Paid.")]), tools=[pay])

    report = simulate(make, task="Pay.", seeds=12).check()
    report.seconds = 0.5
    assert str(report) == CLEAN.strip()


CLEAN = """
simulated 12 schedules, 134 events (24 schedules/s): no violation

tool  calls  executions  repeated  lost  in doubt
pay      12          18         6     5         0

fired: back 2, fail 3, forth 1, hang 3, kill 4, late 2, pause 3, stop 2, twice 1
never fired: cancel:await, cancel:send, hang:send, kill:act, kill:await, stop:act
schedules in which no planned fault fired: 2 (seeds 5, 9)
"""


def test_one_schedule_is_played_with_a_trace() -> None:
    """With `schedule`, the report has each step, and the head of the log."""
    report = simulate(make_agent, task="Pay the bills.", schedule="seed=1 kill:act:2")
    *steps, log = report.trace
    assert steps == [line for line in TRACE.splitlines() if line]
    assert log.startswith("log r: 23 events, head ")
    assert str(report).endswith("\n".join(["", *report.trace]))


TRACE = """
       0.000  p1 drives r from event 0
       0.000  p1 r @1 run_started model_requested
       0.500  p1 r @3 model_responded tools_dispatched state_changed
       0.500  p1 runs look r/c1 {"shop": "bakery"}
       0.600  p1 r @6 tool_returned state_changed model_requested
       1.100  p1 r @9 model_responded tools_dispatched state_changed
       1.100  p1 runs pay r/c2 {"cents": 30}
       2.100  a request of p1 arrives
       3.100  p1 act -> kill
       3.100  p2 drives r from event 11
       3.100  p2 r @12 run_resumed
       3.100  p2 runs pay r/c2 {"cents": 30}
       3.200  a request of p2 arrives
       3.300  p2 r @13 tool_returned state_changed model_requested
       3.800  p2 r @16 model_responded tools_dispatched state_changed
       3.800  p2 runs pay r/c3 {"cents": 5}
       3.900  a request of p2 arrives
       4.000  p2 r @19 tool_returned state_changed model_requested
       4.500  p2 r @22 model_responded state_changed
       4.500  p2 r is COMPLETED (end_turn)
"""


def test_a_bug_that_needs_one_fault_is_shrunk_to_one() -> None:
    """Whatever a seed draws, one fault is left, at the first place that shows the violation."""
    reports = [simulate(make_agent, seeds=[seed]) for seed in range(30)]
    failures = [report.failure for report in reports if report.failure is not None]
    assert len(failures) > 5
    assert {1} == {failure.plan.deviations for failure in failures}
    assert max(failure.deviations for failure in failures) > 3


def test_faults_that_never_fire_are_reported() -> None:
    """A planned fault that finds no place is named, and its schedule is not counted as a test of it."""
    report = simulate(make_agent, schedule="seed=1 kill:act:99")
    assert report.ok
    assert ["kill:act"] == report.never_fired
    assert [1] == report.quiet
    assert "never fired: kill:act\nschedules in which no planned fault fired: 1 (seed 1)" in str(report)


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from testing.test_simulate import make_agent
from refold.testing import simulate
for model in ("own", "whim"):
    for seed in range(3):
        report = simulate(make_agent, seeds=[seed], model=model)
        report.seconds = 0.0
        print(report)
        faults = "kill:act:1 pause:await:2 lose:append:3"
        report = simulate(make_agent, model=model, schedule=f"seed={{seed}} rivals idle latency=0.01 {{faults}}")
        print(*report.trace, sep="\\n")
"""


def test_equal_seeds_give_equal_bytes() -> None:
    """Two processes with different hash seeds print the same reports, traces and log heads."""
    program = PROGRAM.format(tests=str(Path(__file__).parents[1]))
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert "head " in printed[0]
    assert printed[0] == printed[1]


def _uses_asyncio(ledger: Ledger) -> Agent:
    @tool
    async def pay(cents: int) -> None:
        await asyncio.sleep(1)

    return Agent(ScriptedModel([call("pay", cents=1), say("Paid.")]), tools=[pay])


def _yields_to_asyncio(ledger: Ledger) -> Agent:
    @tool
    async def pay(cents: int) -> None:
        await asyncio.sleep(0)

    return Agent(ScriptedModel([call("pay", cents=1), say("Paid.")]), tools=[pay])


@pytest.mark.parametrize("make", [_uses_asyncio, _yields_to_asyncio])
def test_a_tool_that_needs_asyncio_is_named(make: Callable[[Ledger], Agent]) -> None:
    """Simulations run on trio: the error names the tool, and what to write instead."""
    with pytest.raises(NeedsAsyncio, match=r"tool pay: uses asyncio, .* expected anyio") as raised:
        simulate(make)
    assert "pay" == raised.value.tool


SHARED = Agent(ScriptedModel([say("Done.")]))


@pytest.mark.parametrize(
    ("make", "options", "problem"),
    [
        pytest.param(lambda _: SHARED, {}, "make: returned an agent that another process has", id="shared"),
        pytest.param(lambda _: None, {}, "make: expected a function that returns an Agent", id="no agent"),
        pytest.param(make_agent, {"seeds": 0}, "seeds: expected a number of seeds from 1", id="no seeds"),
        pytest.param(make_agent, {"model": "any"}, "model: expected 'own' or 'whim'", id="model"),
        pytest.param(make_agent, {"schedule": "kill"}, "schedule: unknown word 'kill'", id="word"),
        pytest.param(make_agent, {"schedule": "kill:tool:1"}, "points are append, read", id="point"),
        pytest.param(make_agent, {"schedule": "twice:act:1"}, "at act, the kinds are fail", id="kind"),
        pytest.param(make_agent, {"schedule": "seed=one"}, "expected a number that is not", id="number"),
    ],
)
def test_wrong_use_names_the_place(
    make: Callable[[Ledger], Agent], options: dict[str, Any], problem: str
) -> None:
    """Each mistake of the caller is an error, not a violation."""
    with pytest.raises(WrongUse, match=problem):
        simulate(make, **{"seeds": 20, **options})


def test_a_model_that_calls_a_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A named model would use the network, so it must be replaced."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")

    def make(ledger: Ledger) -> Agent:
        return Agent("openai:gpt-5-mini")

    with pytest.raises(WrongUse, match="the model 'openai:gpt-5-mini' is not deterministic"):
        simulate(make)


@pytest.mark.anyio
async def test_an_async_function_cannot_simulate() -> None:
    """A simulation runs an event loop, which cannot run in another one."""
    with pytest.raises(WrongUse, match="call it from a function that is not async"):
        simulate(make_agent)


def _fail(ledger: Ledger) -> None:
    raise KeyError("a mistake")


@pytest.mark.parametrize("argument", ["make", "check", "snapshot"])
def test_errors_of_the_callers_functions_are_raised(argument: str) -> None:
    """A mistake in a function of the test is no violation of the agent."""
    options: dict[str, Any] = {"make": make_agent, argument: _fail, "schedule": "seed=0 twice:rerun:1"}
    with pytest.raises(KeyError, match="a mistake"):
        simulate(options.pop("make"), **options)


def test_whims_call_the_tools_with_valid_arguments() -> None:
    """The model "whim" needs no script, and never sends arguments that a tool refuses."""

    def make(ledger: Ledger) -> Agent:
        @tool(replay="idempotent")
        async def pay(cents: int, context: CallContext, note: str | None = None, tip: float = 0.5) -> str:
            await ledger.effect("pay", context, once=True)
            return "paid"

        return Agent(ScriptedModel([]), tools=[pay])

    report = simulate(make, seeds=40, model="whim").check()
    pay = report.tools["pay"]
    assert pay.calls > 40
    assert pay.executions + pay.in_doubt >= pay.calls
    assert pay.repeated > 0


def test_a_failed_assertion_of_the_check_is_a_violation() -> None:
    """A check may return sentences or raise."""

    def check(ledger: Ledger) -> None:
        assert len(ledger.effects) < 2, "too many payments"

    report = simulate(make_agent, check=check, schedule="seed=0")
    assert [ViolationKind.FAILED_CHECK] == [each.kind for each in report.violations]
    assert "too many payments" == report.violations[0].text


def test_an_hour_of_waiting_takes_no_time() -> None:
    """Tools wait on the virtual clock."""

    def make(ledger: Ledger) -> Agent:
        @tool
        async def wait() -> str:
            await anyio.sleep(1800)
            return "done"

        return Agent(ScriptedModel([call("wait"), call("wait"), say("Done.")]), tools=[wait])

    report = simulate(make, schedule="seed=0").check()
    assert report.trace[-2].strip().startswith("3601.500")
    assert report.seconds < 10


def test_an_agent_itself() -> None:
    """Without a function that makes it: each process has a copy, and the agent is as it was."""
    model = ScriptedModel([call("look", shop="bakery"), say("Done.")])
    agent = Agent(model, tools=[make_agent(Ledger()).tools["look"]])
    report = simulate(agent, task="Look.", seeds=20).check()
    assert 20 == report.tools["look"].calls
    assert agent.model is model
    assert "simulate(agent, task='Look.'" in report.call
