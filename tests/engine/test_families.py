"""Families of runs that are cancelled, crash, or wait for people: every log whole, every child begun once."""

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from refold.engine import (
    Agent,
    ModelError,
    ModelRequest,
    Reply,
    RunResult,
    ScriptedModel,
    call,
    calls,
    say,
    tool,
)
from refold.engine.journal import record
from refold.reducers import advance, composition
from refold.reducers.errors import WrongUse
from refold.reducers.events import CancelRequested, ChildEnded, ToolReturned
from refold.reducers.meters import child_run_id, open_children
from refold.reducers.vocabulary import Role, ToolError
from refold.replay import state_at
from refold.store import MemoryStore
from refold.store.protocol import Head, Lease, Record, Store, StoreUnavailable
from support.clocks import VirtualClock
from support.driving import events_of, kinds
from support.families import (
    ASKING,
    CHILD,
    PARENT,
    Busy,
    all_sound,
    asking,
    boss,
    hand_on,
    jumping,
    result_of_call,
    runs_of,
    the,
    writer,
)
from support.forging import records_of, write
from support.stores import FailingStore

pytestmark = pytest.mark.anyio


async def test_a_cancelled_parent_cancels_its_children() -> None:
    """The child settles and ends CANCELLED in its own log; then the call ends, and then the parent."""
    store, busy = MemoryStore(), Busy()
    run = boss(hand_on(), to=[busy.agent], store=store).start("Go.", run_id=PARENT)
    async with run:
        await busy.began.wait()
        run.cancel("enough", by="ann")
        result = await run.result()
    assert "CANCELLED" == result.state
    assert "parent p" == (await the(CancelRequested, store, CHILD)).by
    assert "CANCELLED" == (await the(ChildEnded, store)).agent_state
    assert ToolError.CANCELLED == (await result_of_call(store))[0]
    assert ["child_ended", "tool_returned", "state_changed"] == (await kinds(store, PARENT))[-3:]
    await all_sound(store)


async def test_a_parent_out_of_time_takes_its_children_along() -> None:
    """When the parent's time is over the child ends too, and the parent ends TIMED_OUT."""
    store, busy, clock = MemoryStore(), Busy(), VirtualClock()
    policy = {"limits": [{"type": "time", "value": 60}]}
    agent = boss(hand_on(), to=[busy.agent], store=store, policy=policy, clock=lambda: clock)
    run = agent.start("Go.", run_id=PARENT)
    async with run:
        await busy.began.wait()
        clock.advance(60)
        result = await run.result()
    assert "TIMED_OUT" == result.state
    assert (await the(ChildEnded, store)).agent_state in ("TIMED_OUT", "CANCELLED")
    await all_sound(store)


async def test_a_child_that_somebody_else_cancels_is_an_error_of_the_call() -> None:
    """A child can be reached while it goes on; stopped alone, it does not stop its parent."""
    store, busy = MemoryStore(), Busy()
    run = boss(hand_on(), say("Then not."), to=[busy.agent], store=store).start("Go.", run_id=PARENT)
    async with run:
        await busy.began.wait()
        run.children[CHILD].cancel(by="ann")
        result = await run.result()
    assert "Then not." == result.outcome.text
    error, said = await result_of_call(store)
    assert ToolError.RAISED == error
    assert "ended CANCELLED" in said
    assert {} == run.children


async def test_an_engine_that_stops_takes_no_child_to_its_end() -> None:
    """Leaving a run early stops the engines of its children as a crash would: their logs are whole and go
    on.
    """
    store, busy = MemoryStore(), Busy()
    async with boss(hand_on(), to=[busy.agent], store=store).start("Go.", run_id=PARENT):
        await busy.began.wait()
    assert "tools_dispatched" == (await kinds(store, CHILD))[-2]
    await all_sound(store)


@pytest.mark.parametrize(
    ("begun", "recorded"),
    [
        pytest.param(True, False, id="asked after the crash"),
        pytest.param(True, True, id="asked before the crash"),
        pytest.param(False, True, id="asked before the child had begun"),
    ],
)
async def test_a_cancellation_reaches_children_of_a_crashed_parent(*, begun: bool, recorded: bool) -> None:
    """Whoever settles a call that nobody holds ends the child that it started, and begins none."""
    store, crashed, busy = MemoryStore(), MemoryStore(), Busy()
    async with boss(hand_on(), to=[busy.agent], store=store).start("Go.", run_id=PARENT):
        await busy.began.wait()
    await write(
        crashed, PARENT, [*await records_of(store, PARENT), *(await asked_to_stop(store) if recorded else ())]
    )
    if begun:
        await write(crashed, CHILD, await records_of(store, CHILD))
    again = boss(to=[busy.agent], store=crashed).resume(PARENT)
    if not recorded:
        again.cancel()
    assert "CANCELLED" == (await again.result()).state
    assert ({PARENT, CHILD} if begun else {PARENT}) == await runs_of(crashed)
    ended = [event for event in await events_of(crashed, PARENT) if isinstance(event, ChildEnded)]
    assert (["CANCELLED"] if begun else []) == [event.agent_state for event in ended]
    assert ToolError.CANCELLED == (await result_of_call(crashed))[0]
    await all_sound(crashed)


async def asked_to_stop(store: Store) -> list[Record]:
    """What an engine had recorded of a cancellation, had it crashed right after it."""
    state, _ = await state_at(store, PARENT)
    _, events = advance(state, composition.cancelled(CancelRequested(at=state.at), ""))
    return [record(event, state.at, b"") for event in events]


# Crashes


class Enough(Exception):
    """The engine is thrown away here."""


class Stateless:
    """A model that answers by what it is shown, and so may be thrown away at any time."""

    priced = True

    def __init__(self, name: str, line: Callable[[int], Reply | ModelError]) -> None:
        self.name, self._line = name, line

    def stream(self, request: ModelRequest) -> Any:
        answers = sum(message.role is Role.ASSISTANT for message in request.messages)
        return ScriptedModel([self._line(answers)]).stream(request)

    async def aclose(self) -> None:
        """Nothing to let go of."""


class World:
    """What outlives every engine: what the children's tool did.

    Two side by side, then a third; each acts once.
    """

    def __init__(self) -> None:
        self.done: list[str] = []

    def agent(self, store: Store) -> Agent:
        @tool
        async def act(what: str) -> str:
            self.done.append(what)
            return f"{what} done"

        other = Agent(
            model=Stateless("other", lambda n: call("act", what=f"act {n}") if n == 0 else say("Acted.")),
            tools=[act],
            name="writer",
        )
        both = calls(*(("transfer_to_writer", {"task": task}) for task in ("First.", "Second.")))
        script = (both, hand_on("Third."), say("There."))
        return Agent(
            model=Stateless("first", lambda n: script[n]),
            handoffs=[other],
            store=store,
            name="boss",
            clock=jumping,
        )


class OneAppendStore(MemoryStore):
    """Throws the engine away right after each append, but for the one that says that it was thrown away."""

    async def append(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool = False
    ) -> Head:
        head = await super().append(run, expected_seq, lease, records, release=release)
        if records[0].kind != "run_resumed":
            raise Enough
        return head


async def gone_on(world: World, store: Store) -> RunResult:
    """Start the parent, or take it up, until it ends. Children are never touched by hand."""
    for _ in range(300):
        agent = world.agent(store)
        began = (await store.head(PARENT)).seq > 0
        run = agent.resume(PARENT) if began else agent.start("Go.", run_id=PARENT, seed=3)
        try:
            return await run.result()
        except (Enough, StoreUnavailable):
            continue
    raise AssertionError("it never ends")


async def assert_each_child_once(store: Store, world: World) -> None:
    """Three calls, three children, each accounted for once, no act twice."""
    children = [child_run_id(PARENT, name) for name in ("c1", "c2", "c3")]
    assert {PARENT, *children} == await runs_of(store)
    events = await events_of(store, PARENT)
    assert sorted(children) == sorted(event.run for event in events if isinstance(event, ChildEnded))
    assert ["Acted."] * 3 == [
        event.content.output for event in events if isinstance(event, ToolReturned) and event.content
    ]
    assert 3 >= len(world.done)
    await all_sound(store)


async def test_the_engine_is_thrown_away_after_every_append() -> None:
    """With a new engine for every append, in parent and child, each call has one child, and one account of
    it.
    """
    world, store = World(), OneAppendStore()
    assert "There." == (await gone_on(world, store)).outcome.text
    await assert_each_child_once(store, world)
    # Also where the account of a child was on disk, and the result of its call was not.
    log = await kinds(store, PARENT)
    assert "run_resumed" == log[log.index("child_ended") + 1]


@pytest.mark.parametrize("after", [False, True], ids=["nothing was written", "nobody knows"])
async def test_every_append_fails_once(*, after: bool) -> None:
    """Whichever append fails, in parent or child, both logs are whole, and resuming the parent ends both."""
    for number in range(1, 150):
        world, store = World(), FailingStore(number, after=after)
        await gone_on(world, store)
        await assert_each_child_once(store, world)
        if not store.failed:
            assert number > 15
            return
    raise AssertionError("it never stops failing")


async def test_a_run_that_stands_where_a_child_belongs_is_not_taken_for_it() -> None:
    """A run of another origin under the child's id is refused, and nothing is added to it."""
    store = MemoryStore()
    await Agent(model=ScriptedModel([say("Mine.")]), store=store).start("x", run_id=CHILD).result()
    before = await records_of(store, CHILD)
    with pytest.raises(WrongUse, match="is reserved for call c1 of run p"):
        await boss(hand_on(), to=[writer()], store=store).start("Go.", run_id=PARENT).result()
    assert before == await records_of(store, CHILD)


# A child that waits for a person


async def test_a_child_that_waits_for_a_person_leaves_the_call_open() -> None:
    """The parent's engine stops with the call pending, other calls done; the child's log says that it
    waits.
    """
    store = MemoryStore()

    @tool(replay="read_only")
    async def look() -> str:
        return "seen"

    both = calls(("transfer_to_writer", {"task": "x"}), ("look", {}))
    policy = {"limits": [{"type": "time", "value": 3600}]}
    agent = boss(both, to=[asking()], tools=[look], store=store, policy=policy, clock=VirtualClock)
    run = agent.start("Go.", run_id=PARENT)
    result = await run.result()
    assert "WAITING_FOR_TOOL" == result.state
    assert (CHILD,) == open_children(run.state)
    assert f"a child run waits for an operator: {CHILD}" == result.outcome.reason
    assert "c2" == (await the(ToolReturned, store)).call
    await all_sound(store)


@pytest.mark.parametrize("early", [False, True], ids=["answered first", "the parent was resumed too early"])
async def test_the_answer_of_a_child_that_waited_is_the_result_of_the_call(*, early: bool) -> None:
    """A person answers the child, by whatever engine; the parent, resumed, takes its end for the call's
    result.
    """
    store = MemoryStore()
    await boss(hand_on(), to=[asking()], store=store).start("Go.", run_id=PARENT).result()
    if early:
        again = await boss(to=[asking()], store=store).resume(PARENT).result()
        assert "WAITING_FOR_TOOL" == again.state
    person = writer(say("Roses."), policy=ASKING, store=store).resume(CHILD)
    await person.result()
    person.send("The red one.")
    await person.result()
    person.cancel()  # such an agent never ends by itself
    await person.result()
    result = await boss(say("There."), to=[asking()], store=store).resume(PARENT).result()
    assert "There." == result.outcome.text
    assert "The last it said: Roses." in (await result_of_call(store))[1]
    await all_sound(store)


async def test_a_parent_is_cancelled_while_its_child_waits_for_a_person() -> None:
    """Cancelled then, by this engine or another, the parent cancels the waiting child and ends."""
    for resumed in (False, True):
        store = MemoryStore()
        agent = boss(hand_on(), to=[asking()], store=store)
        run = agent.start("Go.", run_id=PARENT)
        await run.result()
        run = agent.resume(PARENT) if resumed else run
        run.cancel()
        assert "CANCELLED" == (await run.result()).state
        assert "CANCELLED" == (await the(ChildEnded, store)).agent_state
        await all_sound(store)


async def test_a_child_waits_while_another_call_is_cut_off() -> None:
    """A child put aside while a sibling still runs is cancelled like it."""
    store, busy = MemoryStore(), Busy()
    hang = busy.agent.tools["hang"]
    both = calls(("transfer_to_writer", {"task": "x"}), ("hang", {}))
    run = boss(both, to=[asking()], tools=[hang], store=store).start("Go.", run_id=PARENT)
    async with run:
        await busy.began.wait()
        while "state_changed" not in await kinds(store, CHILD):
            await anyio.lowlevel.checkpoint()
        run.cancel()
        assert "CANCELLED" == (await run.result()).state
    assert "CANCELLED" == (await the(ChildEnded, store)).agent_state
    await all_sound(store)


async def test_a_child_that_asks_with_a_deadline_is_answered_while_it_goes_on() -> None:
    """While a question has time left its engine stays, and a person answers through the parent's run."""
    store = MemoryStore()

    @tool(replay="read_only")
    async def act() -> str:
        return "acted"

    chain = {"approvals": {"chain": [{"approver": "human", "timeout": 60}]}}
    other = writer(call("act"), say("Roses."), tools=[act], policy=chain)
    run = boss(hand_on(), say("."), to=[other], store=store, clock=VirtualClock).start("Go.", run_id=PARENT)
    async with run:
        while CHILD not in run.children or run.children[CHILD].state.agent_state != "WAITING_FOR_INPUT":
            await anyio.lowlevel.checkpoint()
        run.children[CHILD].answer({"c1": "approve"}, by="ann")
        await run.result()
    assert (None, "Roses.") == await result_of_call(store)
    await all_sound(store)


async def test_a_waiting_grandchild_leaves_every_call_above_it_open() -> None:
    """What waits far below stops every engine above; resumed at the top, it goes on to the end."""
    store = MemoryStore()
    middle = Agent(model=ScriptedModel([hand_on(), say("Middle.")]), name="middle", handoffs=[asking()])
    agent = boss(call("transfer_to_middle", task="x"), say("Top."), to=[middle], store=store)
    assert "WAITING_FOR_TOOL" == (await agent.start("Go.", run_id=PARENT).result()).state
    deepest = child_run_id(CHILD, "c1")
    person = asking().as_tool()
    assert "writer" == person.name
    waiting = Agent(model=ScriptedModel([]), name="writer", policy=ASKING, store=store).resume(deepest)
    await waiting.result()
    waiting.cancel()
    await waiting.result()
    assert "Top." == (await agent.resume(PARENT).result()).outcome.text
    await all_sound(store)
