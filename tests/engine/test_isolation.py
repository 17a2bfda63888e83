"""An effect that is alone is served in the engine's own task, and can do no more to it than in a task of its
own.
"""

import asyncio
import threading
from contextlib import suppress
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest

from refold.engine import Agent, RunResult, ScriptedModel, call, calls, say, tool
from refold.engine.tasks import isolate
from refold.store import MemoryStore
from support.driving import kinds

pytestmark = pytest.mark.anyio

WHOSE: ContextVar[str] = ContextVar("WHOSE", default="nobody's")


@tool(replay="read_only")
async def ask() -> str:
    """Say whose the context is."""
    return WHOSE.get()


@tool
async def leave_something() -> str:
    """Set a context variable."""
    WHOSE.set("a tool's")
    return "set"


@tool
async def take_turns() -> str:
    """Let others go on for a while."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    return "over"


@tool
async def cancel_itself() -> str:
    """Cancel the task that runs this, and wait for that."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(10)
    return "still there"


@tool
async def cancel_itself_last() -> str:
    """Cancel the task that runs this, and return."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "done"


def said(result: RunResult) -> list[str]:
    return [message.text for message in result.messages if message.call]


async def test_a_cancellation_is_recorded_while_what_it_cuts_off_goes_on() -> None:
    """A tool that shields itself from being cancelled holds up the end of its run, and not the record of the
    request.
    """
    store, begun, released = MemoryStore(), anyio.Event(), anyio.Event()

    @tool
    async def shielded() -> str:
        with anyio.CancelScope(shield=True):
            begun.set()
            await released.wait()
        return "done"

    agent = Agent(model=ScriptedModel([call("shielded")]), tools=[shielded], store=store)
    async with agent.start("Do it.", run_id="r") as run:
        await begun.wait()
        run.cancel()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert ("cancel_requested", False) == (
            (await kinds(store, "r"))[-1],
            "tool_returned" in await kinds(store, "r"),
        )
        released.set()
        assert "CANCELLED" == (await run.result()).state


async def test_what_a_tool_leaves_in_the_context_ends_with_it() -> None:
    """A context variable that one call sets is unset for the next, and for whoever started the run."""
    model = ScriptedModel([call("leave_something"), call("ask"), say("Done.")])
    result = await Agent(model=model, tools=[ask, leave_something]).start("Do it.").result()
    assert (["set", "nobody's"], "nobody's") == (said(result), WHOSE.get())


async def test_whoever_brings_something_does_not_bring_their_context() -> None:
    """After a thread's late result came in the middle of a call, calls still see the context of the run's
    starter.
    """
    WHOSE.set("ann's")
    store, released = MemoryStore(), threading.Event()

    @tool(timeout=0.2)
    def late() -> str:
        WHOSE.set("a thread's")
        released.wait(20)
        return "late"

    @tool
    async def wait_for_it() -> str:
        released.set()
        for _ in range(2000):
            if "late_result" in await kinds(store, "r"):
                return "it came"
            await anyio.sleep(0.005)
        return "nothing came late"

    script = [call("late"), call("wait_for_it"), call("ask"), say("Done.")]
    agent = Agent(model=ScriptedModel(script), tools=[late, wait_for_it, ask], store=store)
    result = await agent.start("Do it.", run_id="r").result()
    assert ["it came", "ann's"] == said(result)[1:]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside others"])
@pytest.mark.parametrize(
    ("name", "becomes"), [("cancel_itself", "raised: CancelledError"), ("cancel_itself_last", "done")]
)
async def test_a_tool_that_cancels_its_task_cancels_itself_only(name: str, becomes: str, others: int) -> None:
    """On asyncio any task can be cancelled: a tool that does it to its own stops neither the engine nor
    another call.
    """
    batch = calls((name, {}), *[("take_turns", {})] * others)
    tools = [cancel_itself, cancel_itself_last, ask, take_turns]
    run = Agent(model=ScriptedModel([batch, call("ask"), say("Done.")]), tools=tools).start("Do it.")
    async with run:
        result = await run.result()
    assert ("COMPLETED", [becomes, *["over"] * others, "nobody's"]) == (result.state, said(result))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.filterwarnings("ignore:coroutine")  # anyio's tasks that never began
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("turns", range(1, 15))
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside others"])
async def test_a_call_that_is_cancelled_with_its_engine_has_no_result(turns: int, others: int) -> None:
    """Whenever an event loop cancels all tasks, as at its end: of a call that it cuts off nobody says that it
    failed.
    """
    store = MemoryStore()

    @tool
    async def pay() -> str:
        await anyio.sleep(10)
        return "paid"

    model = ScriptedModel([calls(*[("pay", {})] * (1 + others))])
    run = Agent(model=model, tools=[pay], store=store).start("Do it.", run_id="r")
    before = asyncio.all_tasks()
    waiter = asyncio.create_task(run.result())
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before - {waiter}:
        task.cancel()
    await asyncio.wait([waiter], timeout=5)
    assert waiter.done()
    assert waiter.cancelled()
    failed = {"tool_returned", "model_failed"}
    assert not (await store.head("r")).seq or not failed & set(await kinds(store, "r"))


def test_what_others_cancel_is_cancelled() -> None:
    """Of two cancellations of one task, one from inside and one from outside, only the first ends with the
    work.
    """

    async def cancel_this() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        asyncio.get_running_loop().call_soon(task.cancel)

    async def main() -> str:
        await isolate(cancel_this())
        return "went on"

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_an_event_loop_that_shuts_down_stops_the_engine() -> None:
    """A run that is left to itself in a loop that ends does not hold the loop up until its last step."""
    calls, begun = list[str](), anyio.Event()

    @tool
    async def slow() -> str:
        calls.append("slow")
        begun.set()
        await anyio.sleep(0.05)
        return ""

    async def main() -> None:
        run = Agent(model=ScriptedModel([call("slow") for _ in range(9)]), tools=[slow]).start("Do it.")
        async for _ in run.updates():
            break
        await begun.wait()

    asyncio.run(main())
    assert ["slow"] == calls
