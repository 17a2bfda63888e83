"""Resumption is folding the log and doing what is pending: nothing else, and nothing twice that must not
be.
"""

from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from refold.engine import Agent, ModelRequest, Reply, Run, ScriptedModel, Tool, call, calls, fail, say, tool
from refold.engine.models.protocol import ModelError
from refold.reducers.errors import WrongUse
from refold.reducers.events import Decision, Event, Fact, RunResumed, ToolReturned, kind_of
from refold.reducers.vocabulary import Role, ToolError
from refold.store import MemoryStore
from refold.store.protocol import Head, Lease, Record, Store, StoreUnavailable, UnknownRun
from support import runs
from support.clocks import VirtualClock
from support.driving import assert_sound, events_of
from support.forging import records_of, write
from support.stores import FailingStore

pytestmark = pytest.mark.anyio

POLICY: dict[str, Any] = {
    "retry": {"attempts": 3, "initial": 1, "jitter": {"add": 0}},
    "history": [{"do": "tail", "last": 4}],
}


class Stateless:
    """A model that answers by what it is shown, and so may be thrown away at any time.

    Each step fails once first.
    """

    name = "stateless"
    priced = True

    def __init__(self, tries: dict[str, int]) -> None:
        self._tries = tries  # by the last result that it saw: this is the world, and survives

    def stream(self, request: ModelRequest) -> Any:
        results = [message.text for message in request.messages if message.role is Role.TOOL]
        last = results[-1] if results else ""
        self._tries[last] = self._tries.get(last, 0) + 1
        return ScriptedModel([self._line(last)]).stream(request)

    def _line(self, last: str) -> Reply | ModelError:
        step = int(last.rsplit(maxsplit=1)[-1]) if last and last.rsplit(maxsplit=1)[-1].isdecimal() else 0
        if self._tries[last] == 1 and step in (0, 2):
            return fail(partial_text="Hm")
        if step >= 3:
            return say("Done.")
        arguments = {"step": step + 1}
        return calls(("look", arguments), ("act", arguments), ("set", arguments))

    async def aclose(self) -> None:
        """Nothing to let go of."""


class World:
    """What outlives every engine: what tools did, and how often the model was asked."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.tries: dict[str, int] = {}

    def tools(self) -> list[Tool]:
        @tool(replay="read_only")
        async def look(step: int) -> str:
            self.done.append(f"look {step}")
            return f"saw {step}"

        @tool
        async def act(step: int) -> str:
            self.done.append(f"act {step}")
            return f"acted {step}"

        @tool(name="set", replay="idempotent")
        def put(step: int) -> str:
            self.done.append(f"set {step}")
            return f"set {step}"

        return [look, act, put]

    def agent(self, store: Store) -> Agent:
        return Agent(
            model=Stateless(self.tries),
            tools=self.tools(),
            policy={**POLICY, "batch": "in_order"},
            store=store,
            clock=lambda: VirtualClock(jumps=True),
        )


class Enough(Exception):
    """The engine is thrown away here."""


class OneAppendStore(MemoryStore):
    """Throws the engine away right after each append, but for the one that says that it was thrown away."""

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        head = await super().append(run, expected_seq, lease, records, release=release)
        if records[0].kind != "run_resumed":
            raise Enough
        return head


async def gone_on(world: World, store: Store) -> None:
    """Start the run, or take it up, until it ends."""
    for _ in range(200):
        began = (await store.head("r")).seq > 0
        agent = world.agent(store)
        run = agent.resume("r") if began else agent.start("Do it.", run_id="r", seed=3)
        try:
            result = await run.result()
        except (Enough, StoreUnavailable):
            continue
        assert result.state == "COMPLETED"
        return
    raise AssertionError("it never ends")


HANGS_ON_RESUMING = {"view", "input_tokens", "tokens_before", "tokens_after", "until", "deadline"}


def decisions(events: list[Event]) -> list[tuple[str, dict[str, Any]]]:
    """The decisions, without what hangs on instants, event numbers or the words of a call in doubt."""
    return [
        (
            kind_of(event),
            {name: getattr(event, name) for name in event.__struct_fields__ if name not in HANGS_ON_RESUMING},
        )
        for event in events
        if isinstance(event, Decision)
    ]


async def test_a_call_that_was_started_and_may_not_be_repeated_is_never_run_by_a_resumption() -> None:
    """A call found open in the log is told as in doubt if it must not run twice; others run again."""
    world, store = World(), MemoryStore()
    await world.agent(store).start("Do it.", run_id="r", seed=3).result()
    log = await records_of(store, "r")
    dispatched = next(
        place for place, record in enumerate(log, 1) if record.body.endswith(b'"calls":["c2"]}')
    )
    crashed, world.done = MemoryStore(), []
    await write(crashed, "r", log[:dispatched])
    await world.agent(crashed).resume("r").result()
    assert "set 1" == world.done[0]
    assert "act 1" not in world.done
    returned = [event for event in await events_of(crashed, "r") if isinstance(event, ToolReturned)]
    assert {"c2": ToolError.IN_DOUBT} == {event.call: event.error for event in returned if event.error}
    await assert_sound(crashed, "r")


async def test_the_engine_is_thrown_away_after_every_append() -> None:
    """With a new engine from the log for every single append, the same decisions are made to the same end."""
    world, whole = World(), MemoryStore()
    await world.agent(whole).start("Do it.", run_id="r", seed=3).result()
    other, pieces = World(), OneAppendStore()
    await gone_on(other, pieces)
    expected, found = await events_of(whole, "r"), await events_of(pieces, "r")
    assert decisions(expected) == decisions(found)
    # One engine for the beginning, and one more for each append but the last.
    facts = sum(isinstance(event, Fact) for event in expected)
    assert facts - 1 == sum(isinstance(event, RunResumed) for event in found)
    for kind in ("retry_scheduled", "history_pruned", "tools_dispatched"):
        assert kind in [decided for decided, _ in decisions(found)]
    acts = [done for done in other.done if done.startswith("act")]
    assert len(set(acts)) == len(acts)
    await assert_sound(pieces, "r")


@pytest.mark.parametrize(
    ("after", "forever"),
    [
        pytest.param(False, False, id="nothing was written"),
        pytest.param(False, True, id="nothing was written, and nothing can be"),
        pytest.param(True, False, id="nobody knows"),
    ],
)
async def test_every_append_fails_once(*, after: bool, forever: bool) -> None:
    """Whichever append fails, the run stops with the error, the log is whole, and resuming ends the run."""
    for number in range(1, 200):
        world, store = World(), FailingStore(number, after=after, forever=forever)
        run = world.agent(store).start("Do it.", run_id="r", seed=3)
        if await failed(run):
            store.fail_at, store.forever = 0, False  # the disk has room again
            if (await store.head("r")).seq:
                await assert_sound(store, "r")
            await gone_on(world, store)
        acts = [done for done in world.done if done.startswith("act")]
        assert len(set(acts)) == len(acts)
        await assert_sound(store, "r")
        if not store.failed:
            assert number > 15
            return
    raise AssertionError("it never stops failing")


async def failed(run: Run) -> bool:
    try:
        await run.result()
    except StoreUnavailable as error:
        return error.exit_code == 4 and "the disk is full" in str(error)
    return False


async def test_stopped_at_every_await() -> None:
    """However many turns of the event loop an engine gets, the log that it leaves is sound, and resuming ends
    the run.
    """
    for turns in range(0, 160, 8):
        world, store = World(), MemoryStore()
        run = world.agent(store).start("Do it.", run_id="r", seed=3)
        async with run:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
        if (await store.head("r")).seq:
            await assert_sound(store, "r")
        await gone_on(world, store)
        acts = [done for done in world.done if done.startswith("act")]
        assert len(set(acts)) == len(acts)
        await assert_sound(store, "r")


async def test_resuming_an_ended_run_changes_nothing() -> None:
    """A run that has ended is not written to, its result is the same, and no model or tool is called."""
    store = MemoryStore()
    agent = runs.agent(store=store)
    before = await agent.start("Do it.", run_id="r", seed=1).result()
    head = await store.head("r")
    model = ScriptedModel([])
    again = await Agent(model=model, store=store).resume("r").result()
    assert (before, head, []) == (again, await store.head("r"), model.requests)


async def test_resuming_a_run_that_is_not_there() -> None:
    """A run that no log has is an error with its id, and nothing is written."""
    store = MemoryStore()
    with pytest.raises(UnknownRun, match="'nobody'"):
        await Agent(model=ScriptedModel([]), store=store).resume("nobody").result()
    assert 0 == (await store.head("nobody")).seq


async def interrupted(store: Store, seq: int) -> None:
    """Leave in `store` the first events of the transcript's run."""
    whole = MemoryStore()
    await runs.recorded_run(whole)
    await write(store, runs.RUN, (await records_of(whole, runs.RUN))[:seq])


async def test_resuming_without_its_tools_is_refused() -> None:
    """An agent that lacks tools that the run was offered is told which, and nothing is written."""
    store = MemoryStore()
    await interrupted(store, 9)
    with pytest.raises(WrongUse, match="run r1 has the tool act, which this agent lacks"):
        await runs.agent((), store=store, tools=[runs.look]).resume(runs.RUN).result()
    assert 9 == (await store.head(runs.RUN)).seq


async def test_resuming_with_another_model_is_refused() -> None:
    """A run is not silently carried on by another model than the log says."""
    store = MemoryStore()
    await interrupted(store, 9)
    other = Agent(model=ScriptedModel([], name="other"), tools=[runs.look, runs.act], store=store)
    with pytest.raises(WrongUse, match="was started with the model scripted, and this agent has other"):
        await other.resume(runs.RUN).result()
    assert 9 == (await store.head(runs.RUN)).seq


async def test_resuming_with_a_tool_of_another_kind_is_refused() -> None:
    """A tool that has become repeatable, or takes other arguments, is not the one that was offered."""

    @tool(name="act", replay="idempotent")
    async def changed(path: str) -> str:
        return path

    store = MemoryStore()
    await interrupted(store, 9)
    tools = [changed, runs.look]
    with pytest.raises(WrongUse, match="the schema, replay class or agent of the tool act has changed"):
        await Agent(model=ScriptedModel([]), tools=tools, store=store).resume(runs.RUN).result()


async def test_only_tools_of_the_manifest_run() -> None:
    """A tool that the agent has, and that the run was never offered, is no tool of that run."""
    paid: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    store = MemoryStore()
    first = Agent(model=ScriptedModel([say("what now?")]), policy={"end_of_turn": "wait"}, store=store)
    run = first.start("do it")
    await run.result()
    second = Agent(model=ScriptedModel([call("pay", amount=5), say("hm")]), tools=[pay], store=store)
    resumed = second.resume(run.id)
    await resumed.result()
    resumed.send("pay")
    await resumed.result()
    assert [] == paid
    returned = [event for event in await events_of(store, run.id) if isinstance(event, ToolReturned)]
    assert [ToolError.UNKNOWN_TOOL] == [event.error for event in returned]


async def test_two_engines_of_one_run_cannot_both_write() -> None:
    """Of two engines that take up the same run, exactly one goes on, and the log is sound."""
    store = MemoryStore()
    await interrupted(store, 6)
    ended: list[str] = []

    async def go() -> None:
        try:
            await (
                runs.agent((call("look", path="a"), say("Done.")), policy={}, store=store)
                .resume(runs.RUN)
                .result()
            )
            ended.append("ended")
        except Exception as error:
            ended.append(type(error).__name__)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go)
        tasks.start_soon(go)
    assert ended.count("Held") == 1
    await assert_sound(store, runs.RUN)


async def test_downtime_is_recorded() -> None:
    """The time in which no engine had the run is in the log, and is no time of the run's."""
    store = MemoryStore()
    await interrupted(store, 6)
    clock = VirtualClock(jumps=True)
    clock.advance(100)
    agent = Agent(
        model=ScriptedModel([say("Done."), say("Done.")]),
        tools=[runs.look, runs.act],
        store=store,
        clock=lambda: clock,
    )
    run = agent.resume(runs.RUN)
    run.cancel()
    await run.result()
    (resumed,) = [event for event in await events_of(store, runs.RUN) if isinstance(event, RunResumed)]
    assert 99 * 10**9 == resumed.downtime == run.state.spent.downtime
