"""Every moment at which a run can be made to end: by whoever cancels it, and by its time.

After each ending the log is whole, audits clean, and each stream was said to be finished exactly once.
"""

import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.from_thread
import pytest

from refold.engine import Agent, ModelRequest, Reply, RunResult, ScriptedModel, Tool, calls, fail, say, tool
from refold.engine.models.protocol import Delta, Model, TextDelta
from refold.engine.updates import Finished, Recorded, Update
from refold.reducers.events import ModelFailed, RetryScheduled, StateChanged, ToolReturned
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import FailureClass
from refold.store import MemoryStore
from support.clocks import VirtualClock
from support.driving import StreamingModel, assert_each_stream_finished_once, assert_sound, events_of

pytestmark = pytest.mark.anyio


class Moment:
    """A run that is brought to one moment, and stays there until it is stopped."""

    def __init__(self) -> None:
        self.there = anyio.Event()
        self.release = threading.Event()
        self.clock = VirtualClock()

    def model(self) -> Model:
        return ScriptedModel([say("Never asked.")])

    def tools(self) -> list[Tool]:
        return []

    def policy(self) -> dict[str, Any]:
        return {}

    def look_at(self, update: Update) -> None:
        """Set `there` when an update says so."""


class Streaming(Moment):
    def model(self) -> Model:
        async def stream(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
            yield TextDelta("Half an ")
            yield TextDelta("answ")
            self.there.set()
            await anyio.sleep_forever()

        return StreamingModel(stream)


class AsyncTool(Moment):
    replay: Any = "at_most_once"

    def model(self) -> Model:
        return ScriptedModel([calls(("stay", {}), ("stay", {}))])

    def tools(self) -> list[Tool]:
        @tool(replay=self.replay)
        async def stay() -> str:
            self.there.set()
            await anyio.sleep_forever()
            raise AssertionError

        return [stay]


class ReadingTool(AsyncTool):
    replay = "read_only"


class SyncTool(AsyncTool):
    def tools(self) -> list[Tool]:
        @tool(replay=self.replay)
        def stay() -> str:
            anyio.from_thread.run_sync(self.there.set)
            self.release.wait(5)
            return "too late"

        return [stay]


class BackingOff(Moment):
    def model(self) -> Model:
        return ScriptedModel([fail(retry_after=3600 * 10**9, partial_text="Hal")])

    def look_at(self, update: Update) -> None:
        if isinstance(update, Recorded) and isinstance(update.event, RetryScheduled):
            self.there.set()


class Waiting(Moment):
    """For a person, with the person's time on the clock, so that the engine stays."""

    def model(self) -> Model:
        return ScriptedModel([say("What now?")])

    def policy(self) -> dict[str, Any]:
        return {"end_of_turn": "wait"}

    def look_at(self, update: Update) -> None:
        if isinstance(update, Recorded) and isinstance(update.event, StateChanged):
            self.there.set()


MOMENTS = [
    pytest.param(Streaming, "model", id="while the model streams"),
    pytest.param(AsyncTool, "tools", id="while async tools run"),
    pytest.param(ReadingTool, "tools", id="while tools that only read run"),
    pytest.param(SyncTool, "tools", id="while tools run in threads"),
    pytest.param(BackingOff, "waiting", id="while a retry waits"),
    pytest.param(Waiting, "waiting", id="while a person is waited for"),
]
MINUTE: dict[str, Any] = {"limits": [{"type": "time", "value": 60, "credit": {"person": False}}]}


@contextmanager
def released(moment: Moment) -> Iterator[None]:
    """Let threads go at the end, whatever the test finds."""
    try:
        yield
    finally:
        moment.release.set()


async def stopped(
    moment: Moment, store: MemoryStore, stop: Callable[[Any], None], policy: dict[str, Any]
) -> tuple[RunResult, list[Update]]:
    agent = Agent(
        model=moment.model(),
        tools=moment.tools(),
        policy={**policy, **moment.policy()},
        store=store,
        clock=lambda: moment.clock,
    )
    run, seen = agent.start("Do it.", run_id="r"), list[Update]()

    async def look() -> None:
        async for update in run.updates():
            seen.append(update)
            moment.look_at(update)

    async def act() -> None:
        await moment.there.wait()
        stop(run)

    with released(moment), anyio.fail_after(4):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            tasks.start_soon(act)
            result = await run.result()
        if not run.state.ended:  # it waited for a person, and nobody had said how long that may take
            result = await run.result()
    return result, seen


@pytest.mark.parametrize(("kind", "where"), MOMENTS)
async def test_cancelled_at_any_moment(kind: type[Moment], where: str) -> None:
    """A run that is cancelled settles what is in flight, and is CANCELLED, with a log that says at what."""
    moment, store = kind(), MemoryStore()
    result, seen = await stopped(moment, store, lambda run: run.cancel("enough"), {"limits": []})
    last = (await events_of(store, "r"))[-1]
    assert isinstance(last, StateChanged)
    assert (AgentState.CANCELLED, "cancelled", "cancelled by user", where) == (
        result.state,
        result.outcome.code,
        result.outcome.reason,
        last.where,
    )
    assert result.limit is None
    assert_each_stream_finished_once(seen)
    await assert_sound(store, "r")


@pytest.mark.parametrize(("kind", "where"), MOMENTS)
async def test_timed_out_at_any_moment(kind: type[Moment], where: str) -> None:
    """A run whose time is over settles what is in flight, and is TIMED_OUT by its time limit."""
    moment, store = kind(), MemoryStore()
    result, seen = await stopped(moment, store, lambda run: moment.clock.advance(61), MINUTE)
    last = (await events_of(store, "r"))[-1]
    assert isinstance(last, StateChanged)
    assert (AgentState.TIMED_OUT, "time_limit", where) == (result.state, result.outcome.code, last.where)
    assert result.limit is not None
    assert ("time", 60 * 10**9, 61 * 10**9) == (result.limit.name, result.limit.value, result.limit.used)
    assert_each_stream_finished_once(seen)
    await assert_sound(store, "r")


async def test_what_had_streamed_is_kept() -> None:
    """Of an answer that was cut off, the log holds what had arrived, and its stream is finished as
    cancelled.
    """
    store = MemoryStore()
    _, seen = await stopped(Streaming(), store, lambda run: run.cancel(), {})
    (failed,) = [event for event in await events_of(store, "r") if isinstance(event, ModelFailed)]
    assert failed.content is not None
    assert (FailureClass.CANCELLED, "Half an answ") == (failed.failure, failed.content.partial_text)
    assert [True] == [update.cancelled for update in seen if isinstance(update, Finished)]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        pytest.param(AsyncTool, "in_doubt", id="async"),
        pytest.param(SyncTool, "in_doubt", id="in a thread"),
        pytest.param(ReadingTool, "cancelled", id="read only"),
    ],
)
async def test_a_tool_that_was_cut_off_says_what_is_known(kind: type[Moment], error: str) -> None:
    """Each call that was cut off has a result: in doubt, unless it is known to be harmless."""
    store = MemoryStore()
    await stopped(kind(), store, lambda run: run.cancel(), {})
    returned = [event for event in await events_of(store, "r") if isinstance(event, ToolReturned)]
    assert [("c1", error), ("c2", error)] == sorted((event.call, str(event.error)) for event in returned)
    assert all(event.content and event.content.output.startswith(f"{error}: ") for event in returned)


async def test_cancelled_before_the_first_request() -> None:
    """A run that is cancelled before it began is CANCELLED without the model being asked."""
    model, store = ScriptedModel([]), MemoryStore()
    run = Agent(model=model, store=store).start("Do it.")
    run.cancel("changed my mind", by="ann")
    result = await run.result()
    assert (AgentState.CANCELLED, "cancelled by ann") == (result.state, result.outcome.reason)
    assert [] == model.requests
    await assert_sound(store, run.id)


async def test_time_that_is_over_before_the_first_request() -> None:
    """With no time at all a run is TIMED_OUT at its beginning, and the model is never asked."""
    model, store = ScriptedModel([]), MemoryStore()
    agent = Agent(
        model=model, store=store, policy={"limits": [{"type": "time", "value": 0}]}, clock=VirtualClock
    )
    result = await agent.start("Do it.", run_id="r").result()
    assert (AgentState.TIMED_OUT, 0) == (result.state, result.outcome.step)
    assert [] == model.requests
    await assert_sound(store, "r")


async def test_cancelled_twice_is_cancelled_once() -> None:
    """The first who asks for a run to stop is named; after the end, asking again changes nothing."""
    moment, store = Streaming(), MemoryStore()

    def stop(run: Any) -> None:
        run.cancel("one", by="ann")
        run.cancel("two", by="bob")

    result, _ = await stopped(moment, store, stop, {})
    assert "cancelled by ann" == result.outcome.reason
    await assert_sound(store, "r")


async def test_cancelling_an_ended_run_changes_nothing() -> None:
    """After the end `cancel` is heard by nobody: the result and the log stay as they are."""
    store = MemoryStore()
    run = Agent(model=ScriptedModel([say("Done.")]), store=store).start("Do it.")
    before, head = await run.result(), await store.head(run.id)
    run.cancel("too late")
    assert before == await run.result()
    assert head == await store.head(run.id)
