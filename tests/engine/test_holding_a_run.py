"""A run in a caller's hands: waited for, let go of, answered, watched by its machine."""

from contextvars import ContextVar
from itertools import product

import anyio
import pytest
from transitions import MachineError

from refold.engine import (
    Agent,
    CallContext,
    ModelError,
    NotWaiting,
    Recorded,
    Run,
    ScriptedModel,
    Tool,
    Update,
    call,
    calls,
    say,
    tool,
)
from refold.engine.updates import LiveAgent, mermaid
from refold.reducers.errors import MissingFact, WrongUse
from refold.reducers.events import Manifest, StateChanged
from refold.reducers.machine import MOVES, AgentState, Trigger
from refold.store import MemoryStore
from refold.store.protocol import Snapshot
from support import runs
from support.driving import assert_sound, kinds
from support.stores import FailingStore, WatchedStore

pytestmark = pytest.mark.anyio

TALK = {"end_of_turn": "wait"}


async def test_result_cancelled_from_outside_stops_the_engine_and_the_log_goes_on() -> None:
    """Cancelling `result()` is a crash as far as the log knows: it is whole, says nothing of an end, and
    resumes.
    """
    store = WatchedStore()
    run = runs.agent(store=store).start("Do it.", seed=runs.SEED, run_id="r")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                async for update in run.updates():
                    if isinstance(update, Recorded) and update.seq == 9:
                        scope.cancel()

            tasks.start_soon(stop)
            await run.result()
    left = await store.head("r")
    assert 9 <= left.seq < 28
    await assert_sound(store, "r")
    result = await runs.agent(runs.SCRIPT[2:], store=store).resume("r").result()
    assert ("ERROR", "repetition") == (result.state, result.outcome.code)
    await assert_sound(store, "r")


async def test_a_run_that_was_stopped_says_how_to_go_on() -> None:
    """After its engine was stopped, `result()` has none to give, and says what to do instead."""
    run = Agent(model=ScriptedModel([say("So.")])).start("Do it.", run_id="r")
    async with run:
        pass
    with pytest.raises(WrongUse, match="resume"):
        await run.result()


async def test_an_old_result_is_not_given_for_a_turn_that_was_stopped() -> None:
    """When the second turn is stopped half-way, the first turn's result is not handed out as its result."""
    run = Agent(model=ScriptedModel([say("Who?"), say("Ah.")]), policy=TALK).start("Do it.")
    await run.result()
    run.send("me")
    async with run:
        async for _ in run.updates():
            break
    with pytest.raises(WrongUse, match="resume"):
        await run.result()


async def test_what_was_said_is_there_until_an_engine_takes_it() -> None:
    """An engine that is stopped before it has the run leaves the message to the next."""
    run = Agent(model=ScriptedModel([say("Who?"), say("Ah.")]), policy=TALK).start("Do it.")
    await run.result()
    run.send("me")
    async with run:
        pass
    assert "Ah." == (await run.result()).outcome.text


async def test_leaving_a_run_leaves_nothing_going() -> None:
    """After `async with` nothing more is written, however early the block is left."""
    store = MemoryStore()
    run = runs.agent(store=store).start("Do it.", run_id="r")
    async with run:
        async for update in run.updates():
            if isinstance(update, Recorded) and update.seq == 13:
                break
    head = await store.head("r")
    for _ in range(50):
        await anyio.lowlevel.checkpoint()
    assert head == await store.head("r")
    await assert_sound(store, "r")


async def test_leaving_a_run_that_has_ended() -> None:
    """A run that is waited for inside its block is over when it is left, with its result."""
    async with Agent(model=ScriptedModel([say("So.")])).start("Do it.") as run:
        result = await run.result()
    assert "COMPLETED" == result.state == run.state.agent_state


async def test_nothing_happens_before_somebody_waits() -> None:
    """A started run of which nobody asks anything is in no store and asks no model."""
    model, store = ScriptedModel([say("So.")]), MemoryStore()
    run = Agent(model=model, store=store).start("Do it.", run_id="r")
    await anyio.lowlevel.checkpoint()
    assert (0, [], 0) == ((await store.head("r")).seq, model.requests, run.state.seq)


async def test_a_conversation() -> None:
    """A run that waits for a person takes a message, goes on with it, and waits again."""
    model, store = ScriptedModel([say("Who?"), say("Ah."), say("Bye.")]), MemoryStore()
    run = Agent(model=model, policy=TALK, store=store).start("Do it.", run_id="r")
    waiting = await run.result()
    assert ("WAITING_FOR_INPUT", "waiting", "Who?") == (
        waiting.state,
        waiting.outcome.code,
        waiting.outcome.text,
    )
    run.send("me", by="ann")
    assert "Ah." == (await run.result()).outcome.text
    run.send("goodbye")
    assert "Bye." == (await run.result()).outcome.text
    assert ["Do it.", "Who?", "me", "Ah.", "goodbye"] == [each.text for each in model.requests[-1].messages]
    run.cancel()
    assert "CANCELLED" == (await run.result()).state
    await assert_sound(store, "r")


async def test_a_conversation_goes_on_in_another_process() -> None:
    """A run that waits is taken up again as waiting, and takes the message."""
    store = MemoryStore()
    await (
        Agent(model=ScriptedModel([say("Who?")]), policy=TALK, store=store)
        .start("Do it.", run_id="r")
        .result()
    )
    run = Agent(model=ScriptedModel([say("Ah.")]), policy=TALK, store=store).resume("r")
    before = await store.head("r")
    assert "WAITING_FOR_INPUT" == (await run.result()).state
    assert before == await store.head("r")
    run.send("me")
    assert "Ah." == (await run.result()).outcome.text
    await assert_sound(store, "r")


async def test_a_message_for_a_run_that_does_not_wait_is_refused() -> None:
    """`send` to a run that is not waiting raises `NotWaiting`, which says what it is doing."""
    run = Agent(model=ScriptedModel([say("Done.")])).start("Do it.", run_id="r")
    await run.result()
    with pytest.raises(
        NotWaiting, match="run r is COMPLETED: it accepts a message only in WAITING_FOR_INPUT"
    ):
        run.send("hello?")


async def test_run_sync_inside_an_event_loop_says_what_to_do() -> None:
    """Where an event loop runs, `run_sync` is refused before anything is begun, with the way out."""
    model = ScriptedModel([say("So.")])
    with pytest.raises(WrongUse, match=r"await agent.run"):
        Agent(model=model).run_sync("Do it.")
    assert [] == model.requests


def test_run_sync() -> None:
    """Where no event loop runs, `run_sync` starts a run and gives its result."""
    result = Agent(model=ScriptedModel([say("So.")])).run_sync("Do it.", run_id="r", labels={"a": "b"})
    assert ("r", "COMPLETED", "So.") == (result.run, result.state, result.outcome.text)


@pytest.mark.parametrize(("state", "trigger"), list(product(AgentState, Trigger)))
def test_the_live_machine_is_the_table(state: AgentState, trigger: Trigger) -> None:
    """In every cell the live machine moves as the table says, and refuses where the table has nothing."""
    for aim in MOVES.get((state, trigger), ()):
        agent = LiveAgent()
        agent.machine.set_state(str(state))
        agent.follow(trigger, aim)
        assert aim == agent.state
    if (state, trigger) not in MOVES:
        agent = LiveAgent()
        agent.machine.set_state(str(state))
        with pytest.raises(MachineError):
            agent.follow(trigger, state)
        assert state == agent.state


def test_the_diagram_has_every_move() -> None:
    """Every move of the table is drawn."""
    drawn = mermaid()
    for (source, trigger), targets in MOVES.items():
        for aim in targets:
            assert any(
                line.strip().startswith(f"{source} --> {aim}") and trigger in line
                for line in drawn.splitlines()
            )


async def test_the_live_machine_follows_the_log() -> None:
    """At each recorded move the live machine is in the state that the log says, through a whole
    conversation.
    """
    agent = Agent(
        model=ScriptedModel([call("look", path="a"), say("Who?"), say("Ah.")]),
        tools=[runs.look],
        policy=TALK,
    )
    run, entered, moved = agent.start("Do it."), list[str](), list[str]()
    for state in AgentState:
        getattr(run.machine, f"on_enter_{state}")(lambda state=state: entered.append(state))

    async def follow() -> None:
        async for update in run.updates():
            if isinstance(update, Recorded) and isinstance(update.event, StateChanged):
                moved.append(update.event.target)

    await follow()
    run.send("me")
    await follow()
    run.cancel()
    await follow()
    assert entered == moved
    assert moved == [
        "WAITING_FOR_TOOL",
        "RUNNING",
        "WAITING_FOR_INPUT",
        "RUNNING",
        "WAITING_FOR_INPUT",
        "CANCELLED",
    ]


async def test_the_machine_of_a_resumed_run_stands_where_the_log_does() -> None:
    """A run that is taken up again has its machine in the recorded state from the start."""
    store = MemoryStore()
    await (
        Agent(model=ScriptedModel([say("Who?")]), policy=TALK, store=store)
        .start("Do it.", run_id="r")
        .result()
    )
    run, entered = Agent(model=ScriptedModel([say("Ah.")]), policy=TALK, store=store).resume("r"), list[str]()
    await run.result()
    run.machine.on_enter_RUNNING(lambda: entered.append("RUNNING"))
    run.send("me")
    await run.result()
    assert ["RUNNING"] == entered


async def test_a_machine_is_told_of_no_move_twice() -> None:
    """A callback that is hung on while an engine looks what became of its last append is told of it, once."""
    run: Run | None = None
    entered: list[str] = []

    class Watched(FailingStore):
        async def snapshot(self, run_id: str, version: str) -> Snapshot | None:
            if self.failed and run is not None:
                run.machine.on_enter_COMPLETED(lambda: entered.append("COMPLETED"))
            return await super().snapshot(run_id, version)

    run = Agent(model=ScriptedModel([say("So.")]), store=Watched(2, after=True)).start("Do it.")
    assert "COMPLETED" == (await run.result()).state
    assert ["COMPLETED"] == entered


async def test_a_callback_that_raises_stops_the_engine_not_the_log() -> None:
    """A callback's own error is raised where the run is waited for; what it was told of is on disk, and
    resumes.
    """
    store = MemoryStore()
    run = Agent(model=ScriptedModel([call("look", path="a")]), tools=[runs.look], store=store).start(
        "Do it.", run_id="r"
    )

    def burst() -> None:
        raise ZeroDivisionError("in a callback")

    run.machine.on_enter_WAITING_FOR_TOOL(burst)
    with pytest.raises(ZeroDivisionError, match="in a callback"):
        await run.result()
    assert "state_changed" == (await kinds(store, "r"))[-1]
    again = Agent(model=ScriptedModel([say("Done.")]), tools=[runs.look], store=store).resume("r")
    assert "COMPLETED" == (await again.result()).state
    await assert_sound(store, "r")


async def test_failures_of_a_run_are_raised_again_each_time() -> None:
    """Whoever asks later gets the same error, not an empty result."""
    store, seen = MemoryStore(), list[Update]()
    await Agent(model=ScriptedModel([say("So.")]), store=store).start("Do it.", run_id="r").result()
    run = Agent(model=ScriptedModel([say("So.")]), store=store).start("Do it.", run_id="r")
    for _ in range(2):
        with pytest.raises(Exception, match="the store has a run 'r' already") as caught:
            await run.result()
        assert not isinstance(caught.value, ModelError)
    assert [] == seen


async def test_a_second_answer_to_one_question_is_refused() -> None:
    """Who answers twice is told so at once; the run goes on with the first answer, and can be answered again
    later.
    """
    model, store = ScriptedModel([say("Who?"), say("Ah."), say("Bye.")]), MemoryStore()
    run = Agent(model=model, policy=TALK, store=store).start("Do it.", run_id="r")
    await run.result()
    run.send("me")
    with pytest.raises(WrongUse, match="run r has an answer already"):
        run.send("me, again")
    assert "Ah." == (await run.result()).outcome.text
    run.send("goodbye")
    assert "Bye." == (await run.result()).outcome.text
    await assert_sound(store, "r")


async def test_what_stops_an_engine_is_raised_alone() -> None:
    """Where several tasks fail in one moment, the first failure is raised, as itself and not in a group."""

    async def missing(arguments: str, context: CallContext) -> str:
        raise MissingFact("r", f"call {context.call} has no result")

    lost = Tool(manifest=Manifest(name="lost"), run=missing)
    run = Agent(model=ScriptedModel([calls(("lost", {}), ("lost", {}))]), tools=[lost]).start("Do it.")
    with pytest.raises(MissingFact, match="has no result"):
        await run.result()


WHOSE: ContextVar[str] = ContextVar("WHOSE")


async def test_tools_run_in_the_context_of_whoever_started_the_run() -> None:
    """What a caller keeps in context variables, a tool finds there, in a thread as well."""

    @tool
    async def ask() -> str:
        return WHOSE.get()

    @tool
    def ask_in_a_thread() -> str:
        return WHOSE.get()

    WHOSE.set("ann's")
    model = ScriptedModel([calls(("ask", {}), ("ask_in_a_thread", {})), say("Done.")])
    result = await Agent(model=model, tools=[ask, ask_in_a_thread]).start("Do it.").result()
    assert ["ann's", "ann's"] == [message.text for message in result.messages if message.call]
