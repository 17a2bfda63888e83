"""What subscribers are told, and when: only what is on disk, in order, to the end, and whoever else
listens.
"""

from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest

from refold.engine import (
    Agent,
    Delegated,
    Finished,
    Missed,
    ModelError,
    ModelRequest,
    Recorded,
    Reply,
    ScriptedModel,
    ScriptError,
    Streamed,
    Update,
    call,
    fail,
    say,
)
from refold.engine.models.protocol import Delta, TextDelta
from refold.engine.updates import Subscription
from refold.reducers.events import Event, ModelRequested, kind_of
from refold.reducers.vocabulary import FailureClass
from refold.store import MemoryStore
from refold.store.protocol import StoreUnavailable
from support import runs
from support.clocks import VirtualClock
from support.driving import (
    Stream,
    StreamingModel,
    assert_each_stream_finished_once,
    assert_sound,
    events_of,
    kinds,
    told,
    watch,
)
from support.stores import FailingStore, WatchedStore

pytestmark = pytest.mark.anyio


def short(update: Update) -> str:
    match update:
        case Recorded(seq=seq, event=event):
            return f"{seq} {kind_of(event)}"
        case Streamed(request=request, delta=TextDelta(text=text)):
            return f"  {request}> {text}"
        case Streamed(request=request):
            return f"  {request}> …"
        case Finished(request=request, cancelled=cancelled):
            return f"  {request}| {'cancelled' if cancelled else 'finished'}"
        case Delegated(call=served, run=child):
            return f"  {served}: run {child}"
        case Missed(count=count):
            return f"  ({count} missed)"


async def test_a_whole_run_reads_like_a_transcript() -> None:
    """Events are told in order; deltas come after their request, and the end of a stream before what ended
    it.
    """
    agent = runs.agent((fail(partial_text="I was"), call("look", path="a"), say("Done.\nBye.")), policy={})
    seen = [short(update) async for update in agent.start("Do it.", seed=1).updates()]
    assert seen == [
        "1 run_started",
        "2 model_requested",
        "  2> I ",
        "  2> was",
        "  2| finished",
        "3 model_failed",
        "4 retry_scheduled",
        "5 clock_read",
        "6 model_requested",
        "  6> …",
        "  6> …",
        "  6| finished",
        "7 model_responded",
        "8 tools_dispatched",
        "9 state_changed",
        "10 tool_returned",
        "11 state_changed",
        "12 model_requested",
        "  12> Done.\n",
        "  12> Bye.",
        "  12| finished",
        "13 model_responded",
        "14 state_changed",
    ]


async def test_nothing_is_told_or_begun_before_it_is_on_disk() -> None:
    """When a subscriber hears of an event, or a model or tool is called, the log holds it already."""
    store = WatchedStore()
    early: list[str] = []

    async def stream(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        if store.on_disk == 0:
            early.append("the model was asked")
        yield TextDelta("So.")
        yield say("So.")

    agent = Agent(model=StreamingModel(stream), store=store)
    async for update in agent.start("Do it.").updates():
        if isinstance(update, Recorded) and update.seq > store.on_disk:
            early.append(short(update))
        if isinstance(update, Streamed) and update.request > store.on_disk:
            early.append(short(update))
    assert [] == early
    assert 4 == store.on_disk


async def broken_off(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
    """Closes without a last word."""
    yield TextDelta("Half")


async def promise_broken(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
    """Raises what no model may raise."""
    yield TextDelta("Half")
    raise ZeroDivisionError("oh")


async def overloaded(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
    """Raises before the first word."""
    if request.messages:
        raise ModelError(FailureClass.OVERLOADED, "no")
    yield TextDelta("never said")


@pytest.mark.parametrize(
    ("stream", "failure", "partial", "said"),
    [
        pytest.param(broken_off, "stream_broken", "Half", "without a Reply", id="closes without a word"),
        pytest.param(promise_broken, "other", "Half", "ZeroDivisionError: oh", id="raises what it may not"),
        pytest.param(overloaded, "overloaded", "", "no", id="fails before the first word"),
    ],
)
async def test_a_stream_that_goes_wrong_is_finished_once(
    stream: Stream, failure: str, partial: str, said: str
) -> None:
    """However a model's stream goes wrong, it is finished once, and the log holds the class and what had
    arrived.
    """
    store = MemoryStore()
    run = Agent(
        model=StreamingModel(stream), store=store, policy={"retry": {"attempts": 1}, "stream": None}
    ).start("Do it.")
    seen: list[Update] = []
    await watch(run, seen)
    assert_each_stream_finished_once(seen)
    (failed,) = [event for event in await events_of(store, run.id) if kind_of(event) == "model_failed"]
    content = getattr(failed, "content", None)
    assert (failure, partial) == (getattr(failed, "failure", None), content and content.partial_text)
    assert said in (content.message if content else "")
    assert f"provider:{failure}" == (await run.result()).outcome.code
    await assert_sound(store, run.id)


async def test_a_stream_is_finished_when_the_engine_fails() -> None:
    """A model that stops the engine (a script that does not fit) ends updates after `Finished`, by
    raising.
    """
    store = MemoryStore()
    run, seen = Agent(model=ScriptedModel([]), store=store).start("Do it."), list[Update]()
    with pytest.raises(ScriptError, match="request 1 needs another"):
        await watch(run, seen)
    assert_each_stream_finished_once(seen)
    with pytest.raises(ScriptError):
        await run.result()
    await assert_sound(store, run.id)


async def test_a_store_that_fails_ends_updates_by_raising() -> None:
    """Nothing is told of what could not be written; the failure is raised to whoever listens and whoever
    waits.
    """
    store = FailingStore(2, forever=True)
    run, seen = Agent(model=ScriptedModel([say("So.")]), store=store).start("Do it."), list[Update]()
    with pytest.raises(StoreUnavailable):
        await watch(run, seen)
    assert [1, 2] == told(seen)
    assert_each_stream_finished_once(seen)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await run.result()


async def test_two_subscribers_are_told_the_same() -> None:
    """Every subscriber gets every update, however many there are."""
    run, one, other = runs.agent().start("Do it."), list[Update](), list[Update]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, run, one)
        tasks.start_soon(watch, run, other)
    assert one == other
    assert [*range(1, len(runs.TRANSCRIPT) + 1)] == told(one)


async def test_leaving_early_does_not_stop_the_run() -> None:
    """Breaking out of the updates leaves the run going, and its result is there."""
    store = MemoryStore()
    run = runs.agent(store=store).start("Do it.", run_id="r")
    async for update in run.updates():
        if isinstance(update, Recorded) and isinstance(update.event, ModelRequested):
            break
    assert "ERROR" == (await run.result()).state
    assert [line.split()[1] for line in runs.TRANSCRIPT] == await kinds(store, "r")


async def test_updates_of_an_ended_run_end_at_once() -> None:
    """Whoever begins to listen when the run is over hears nothing, and is not kept waiting."""
    run = Agent(model=ScriptedModel([say("Done.")])).start("Do it.")
    await run.result()
    with anyio.fail_after(2):
        assert [] == [update async for update in run.updates()]


async def test_whoever_comes_late_hears_the_rest() -> None:
    """A subscriber that begins in the middle gets what follows, in order."""
    run, late = runs.agent().start("Do it."), list[Update]()
    async with anyio.create_task_group() as tasks:
        async for update in run.updates():
            if isinstance(update, Recorded) and update.seq == 7:
                tasks.start_soon(watch, run, late)
    assert told(late) == [*range(told(late)[0], 29)]


async def test_the_next_turn_has_updates_of_its_own() -> None:
    """Updates end when a person is waited for; after the answer there are new ones."""
    agent = Agent(model=ScriptedModel([say("Who?"), say("Ah.")]), policy={"end_of_turn": "wait"})
    run, first, second = agent.start("Do it."), list[Update](), list[Update]()
    await watch(run, first)
    run.send("me")
    await watch(run, second)
    assert ([1, 2, 3, 4], [5, 6, 7, 8, 9]) == (told(first), told(second))


async def everything(subscription: Subscription) -> list[Update]:
    taken: list[Update] = []
    while (update := await subscription.take()) is not None:
        taken.append(update)
    return taken


async def test_a_slow_subscriber_holds_nobody_up_and_is_told_what_it_missed() -> None:
    """A subscriber without room misses updates, never the end of a stream that it saw begin, and is told how
    many.
    """
    subscription = Subscription(room=2)
    event: Event = ModelRequested(step=1, attempt=1, view="", messages=(), input_tokens=0)
    for update in (
        Recorded(1, event),
        Streamed(1, TextDelta("a")),
        Recorded(2, event),
        Streamed(1, TextDelta("b")),
        Finished(1),
        Recorded(3, event),
        Streamed(3, TextDelta("c")),
        Finished(3),
    ):
        subscription.put(update)
    subscription.close()
    assert [
        "1 model_requested",
        "  1> a",
        "  (2 missed)",
        "  1| finished",
        "  (3 missed)",
    ] == [short(update) for update in await everything(subscription)]


async def test_a_subscriber_that_takes_nothing_does_not_grow() -> None:
    """However many streams pass a subscriber by, it holds no more than it has room for."""
    subscription = Subscription(room=2)
    for number in range(1000):
        subscription.put(Streamed(number, TextDelta("a")))
        subscription.put(Finished(number))
    subscription.close()
    assert ["  0> a", "  0| finished", "  (1998 missed)"] == [
        short(update) for update in await everything(subscription)
    ]


async def test_a_subscriber_that_takes_its_time_loses_nothing() -> None:
    """While there is room, a slow subscriber gets every event, and the run does not wait for it."""
    run, seen = runs.agent().start("Do it."), list[Update]()
    async for update in run.updates():
        seen.append(update)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
    assert [*range(1, 29)] == told(seen)


async def test_a_clock_of_the_test_is_the_clock_of_the_log() -> None:
    """Every instant in the log is the clock's."""
    clock, store = VirtualClock(), MemoryStore()
    await (
        Agent(model=ScriptedModel([say("So.")]), store=store, clock=lambda: clock)
        .start("Do it.", run_id="r")
        .result()
    )
    assert {clock.now()} == {stored.at async for chunk in store.read("r") for stored in chunk}
