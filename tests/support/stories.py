"""Stories of runs, to be asked about under another policy than they were told under."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from refold.reducers.events import Event
from refold.reducers.parser import parse
from refold.reducers.vocabulary import FailureClass, ToolError
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import WhatIf
from support.following import shown
from support.scenario import Scenario

Plain = dict[str, Any]
Story = Callable[[Scenario], object]

ASK: Plain = {"approvals": {"chain": [{"approver": "human"}]}}
IN_TIME: Plain = {"approvals": {"chain": [{"approver": "human", "timeout": 5}]}}
STEPS: Plain = {"limits": [{"type": "step", "value": 9}]}


def asked(log: list[Event], other: Plain | None) -> WhatIf:
    """What another policy would have decided over a log; None: its own."""
    comparison = Comparison("r1", (lambda policy: policy) if other is None else parse(other))
    return shown(comparison, log)


def told(policy: Plain, story: Story, other: Plain) -> WhatIf:
    """A story under one policy, asked about under another."""
    scenario = Scenario(policy)
    story(scenario)
    return asked(scenario.log, other)


def steps(*outputs: str, after: float = 0) -> Story:
    """A step for each output, so many seconds each, then an answer."""

    def story(run: Scenario) -> None:
        for output in outputs:
            run.answer("", ("look", "{}"), after=after)
            run.result(f"c{run.state.spent.calls}", output)
        run.answer("done", after=after)

    return story


def failed_once(run: Scenario) -> None:
    run.fail()
    if run.state.backoff is not None:
        run.clock(2)
        run.answer("done")


def waited(seconds: float) -> Story:
    """A person is asked about a call, and says so after so many seconds."""

    def story(run: Scenario) -> None:
        run.answer("", ("act", "{}"))
        run.approve(after=seconds, c1="approve")

    return story


def turned_down(run: Scenario) -> None:
    """A person says no to a call, after seven seconds: the next request follows at once."""
    run.answer("", ("act", "{}"))
    run.approve(after=7, c1="reject")


def cut_off(run: Scenario) -> None:
    run.answer("", ("look", "{}"))
    run.result("c1", "it took too long", error=ToolError.TIMEOUT, after=5)


def in_order(run: Scenario) -> None:
    run.answer("", ("look", "{}"), ("look", "{}"))
    run.result("c1")
    run.result("c2")


def two_tools(run: Scenario) -> None:
    run.answer("", ("look", "{}"), ("act", "{}"))


def erased(run: Scenario) -> None:
    steps("ok", "ok")(run)
    run.log[:] = [replace(event, content=None) if hasattr(event, "content") else event for event in run.log]


def out_of_time(run: Scenario) -> None:
    """The recorded policy stops the run while a call is under way."""
    run.answer("", ("look", "{}"))
    run.clock(5)
    run.result("c1", "cut off", error=ToolError.CANCELLED)


def taken_for_an_overflow(run: Scenario) -> None:
    run.fail(FailureClass.TIMEOUT, message="it took too long", after=5)


def cancelled_and_down(run: Scenario) -> None:
    """A person cancels, the machine goes down before the call is settled, and whoever takes it up settles
    it.
    """
    run.answer("", ("look", "{}"))
    run.cancel(after=1)
    run.resume(downtime=5)
    run.result("c1", "cut off", error=ToolError.CANCELLED)


def summed_up(run: Scenario) -> None:
    for _ in range(3):
        run.step()
    run.summary("much")


def fell_back(run: Scenario) -> None:
    run.fail()
    run.clock(2)
