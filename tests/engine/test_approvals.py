"""A person decides about calls through the engine: at once, days later, by another process, or not at all."""

from typing import Any

import pytest

from refold.engine import Agent, NotWaiting, Recording, ScriptedModel, Tool, calls, say, tool
from refold.engine.models.script import Line
from refold.reducers.errors import WrongUse
from refold.reducers.events import ApprovalAnswered, CallRefused, RunResumed
from refold.reducers.vocabulary import Role
from refold.store import MemoryStore
from support.clocks import VirtualClock
from support.driving import assert_sound, events_of, kinds
from support.forging import records_of, write

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"approver": "human", "tools": ["act"]}
DAY = 86_400


class World:
    """Tools that remember what they did, in a store and a time that outlive every engine."""

    def __init__(self, *chain: dict[str, Any]) -> None:
        self.done: list[str] = []
        self.store, self.clock = MemoryStore(), VirtualClock()
        self.policy = {"approvals": {"chain": [*(chain or [ASK]), {"approver": "approve"}]}}

    def tools(self) -> list[Tool]:
        @tool(replay="read_only")
        async def look(path: str) -> str:
            self.done.append(f"look {path}")
            return f"{path} is there"

        @tool
        async def act(what: str) -> str:
            self.done.append(f"act {what}")
            return f"{what}: done"

        return [look, act]

    def agent(self, *lines: Line) -> Agent:
        return Agent(
            model=ScriptedModel(lines),
            tools=self.tools(),
            policy=self.policy,
            store=self.store,
            clock=lambda: self.clock,
        )


BOTH = calls(("look", {"path": "a"}), ("act", {"what": "paint"}))


async def test_a_run_stops_for_a_person_and_goes_on() -> None:
    """Nothing of the batch runs before the answer, all of it after; the log is sound, and plays again."""
    world = World()
    run = world.agent(BOTH, say("Done.")).start("Do it.", run_id="r", seed=1)
    result = await run.result()
    assert ("WAITING_FOR_INPUT", []) == (result.state, world.done)
    assert run.state.approval is not None
    assert ("c2",) == run.state.approval.event.calls
    run.answer({"c2": "approve"}, by="ann", note="go ahead")
    assert "COMPLETED" == (await run.result()).state
    assert ["act paint", "look a"] == sorted(world.done)
    await assert_sound(world.store, "r")
    again = MemoryStore()
    await (await Recording.read(world.store, "r")).play(again)
    assert await kinds(world.store, "r") == await kinds(again, "r")


async def test_another_process_answers_days_later() -> None:
    """An engine that was not there when it was asked takes the run up with the answer; who, when and why is
    recorded.
    """
    world = World()
    await world.agent(BOTH).start("Do it.", run_id="r", seed=1).result()
    world.clock.advance(3 * DAY)
    run = world.agent(say("Done.")).resume("r")
    run.answer({"c2": "approve"}, by="ann", note="go ahead")
    assert "COMPLETED" == (await run.result()).state
    assert ["act paint", "look a"] == sorted(world.done)
    log = await events_of(world.store, "r")
    (answer,) = (event for event in log if isinstance(event, ApprovalAnswered))
    assert answer.content is not None
    assert ("ann", "go ahead") == (answer.by, answer.content.note)
    assert 1 == sum(isinstance(event, RunResumed) for event in log)
    assert 3 * DAY * 1_000_000_000 == run.state.spent.person_wait
    await assert_sound(world.store, "r")


async def test_an_edited_call() -> None:
    """The tool gets the person's arguments, the model still sees its own; so in every replay."""
    world = World()
    run = world.agent(BOTH, say("Done.")).start("Do it.", run_id="r", seed=1)
    await run.result()
    run.answer({"c2": ("edit", {"what": "clean"})}, by="ann")
    result = await run.result()
    assert ["act clean", "look a"] == sorted(world.done)
    reply = next(message for message in result.messages if message.calls)
    assert '{"what": "paint"}' == reply.calls[1].arguments
    await assert_sound(world.store, "r")
    await (await Recording.read(world.store, "r")).play(MemoryStore())


async def test_an_edited_call_that_is_begun_again() -> None:
    """A tool that may be run again is run again with the person's arguments, not the model's."""
    world = World({"approver": "human", "tools": ["look"]})
    run = world.agent(calls(("look", {"path": "a"})), say("Done.")).start("Do it.", run_id="r", seed=1)
    await run.result()
    run.answer({"c1": ("edit", '{"path": "b"}')})
    await run.result()
    log = await records_of(world.store, "r")
    world.store, begun = MemoryStore(), [record.kind for record in log].index("tool_returned")
    await write(world.store, "r", log[:begun])
    assert "COMPLETED" == (await world.agent(say("Done.")).resume("r").result()).state
    assert ["look b", "look b"] == world.done
    await assert_sound(world.store, "r")


async def test_a_rejected_call() -> None:
    """The model is told, in the harness's words alone; the others run."""
    world = World()
    run = world.agent(BOTH, say("Done.")).start("Do it.", run_id="r", seed=1)
    await run.result()
    run.answer({"c2": "reject"}, note="never paint")
    result = await run.result()
    assert ["look a"] == world.done
    told = [message.text for message in result.messages if message.role is Role.TOOL]
    assert told[1].startswith("rejected:")
    assert not any("never paint" in message.text for message in result.messages)
    await assert_sound(world.store, "r")


async def test_a_person_ends_the_run() -> None:
    """`terminate` is ERROR `approval_terminated`, and nothing ran."""
    world = World()
    run = world.agent(BOTH).start("Do it.", run_id="r", seed=1)
    await run.result()
    run.answer({"c2": "terminate"})
    result = await run.result()
    assert ("ERROR", "approval_terminated", []) == (result.state, result.outcome.code, world.done)
    assert 2 == sum(isinstance(event, CallRefused) for event in await events_of(world.store, "r"))
    await assert_sound(world.store, "r")


async def test_silence() -> None:
    """An engine stays for a minute at most: it, or one that takes the run up later, applies what silence
    means.
    """
    world = World({**ASK, "timeout": 60, "on_timeout": "approve"})
    world.clock = VirtualClock(jumps=True)
    result = await world.agent(BOTH, say("Done.")).start("Do it.", run_id="r", seed=1).result()
    assert "COMPLETED" == result.state
    assert ["act paint", "look a"] == sorted(world.done)
    await assert_sound(world.store, "r")


async def test_nobody_stays_for_hours() -> None:
    """An engine that would have to stay longer leaves; one that takes the run up after the deadline applies
    silence.
    """
    world = World({**ASK, "timeout": 3600, "on_timeout": "approve"})
    waiting = await world.agent(BOTH).start("Do it.", run_id="r", seed=1).result()
    assert ("WAITING_FOR_INPUT", []) == (waiting.state, world.done)
    world.clock.advance(3601)
    assert "COMPLETED" == (await world.agent(say("Done.")).resume("r").result()).state
    await assert_sound(world.store, "r")


async def test_an_answer_that_comes_too_late_is_none() -> None:
    """Whether an engine was there at the deadline makes no difference to what becomes of a late answer."""
    world = World({**ASK, "timeout": 60})
    run = world.agent(BOTH).start("Do it.", run_id="r", seed=1)
    async with run:
        async for update in run.updates():
            if getattr(getattr(update, "event", None), "target", None) == "WAITING_FOR_INPUT":
                break
    world.clock.advance(61)
    late = world.agent(say("Done.")).resume("r")
    late.answer({"c2": "approve"})
    assert "COMPLETED" == (await late.result()).state
    assert ["look a"] == world.done
    await assert_sound(world.store, "r")


async def test_answers_that_are_refused_before_anything_is_recorded() -> None:
    """A run that is not asked about calls, a call nobody asked about, bad arguments, a second answer, a
    message.
    """
    world = World()
    run = world.agent(BOTH, say("Done.")).start("Do it.", run_id="r", seed=1)
    with pytest.raises(NotWaiting, match="an answer about calls only in WAITING_FOR_INPUT"):
        run.answer({"c2": "approve"})
    await run.result()
    before = await kinds(world.store, "r")
    with pytest.raises(WrongUse, match="'c1' is not waiting for approval"):
        run.answer({"c1": "approve"})
    with pytest.raises(WrongUse, match="one JSON object"):
        run.answer({"c2": ("edit", "[1]")})
    with pytest.raises(WrongUse, match="that can be serialized as JSON"):
        run.answer({"c2": ("edit", {"what": {1, 2}})})
    with pytest.raises(WrongUse, match=r"use answer\(\) instead"):
        run.send("Go on.")
    run.answer({"c2": "approve"})
    with pytest.raises(WrongUse, match="has an answer already"):
        run.answer({"c2": "reject"})
    assert before == await kinds(world.store, "r")
    assert "COMPLETED" == (await run.result()).state


async def test_a_wrong_answer_to_a_run_that_was_not_read_yet() -> None:
    """`result()` raises what is wrong with it, nothing runs, and the run still waits."""
    world = World()
    await world.agent(BOTH).start("Do it.", run_id="r", seed=1).result()
    run = world.agent().resume("r")
    run.answer({"c9": "approve"})
    with pytest.raises(WrongUse, match="'c9' is not waiting"):
        await run.result()
    after = world.agent().resume("r")
    assert "WAITING_FOR_INPUT" == (await after.result()).state
    assert [] == world.done
    await assert_sound(world.store, "r")


async def test_two_questions_one_after_the_other() -> None:
    """What is left out is asked again, and may be answered again through the same run."""
    world = World()
    twice = calls(("act", {"what": "paint"}), ("act", {"what": "clean"}))
    run = world.agent(twice, say("Done.")).start("Do it.", run_id="r", seed=1)
    await run.result()
    run.answer({"c1": "approve"})
    assert ("WAITING_FOR_INPUT", []) == ((await run.result()).state, world.done)
    run.answer({"c2": "reject"})
    assert ("COMPLETED", ["act paint"]) == ((await run.result()).state, world.done)
    await assert_sound(world.store, "r")
