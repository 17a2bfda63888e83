"""What a tool's thread says after its call was cut off is kept beside the log."""

import threading
from functools import partial

import anyio
import anyio.to_thread
import pytest

from refold.engine import Agent, CallContext, ScriptedModel, Tool, call, say, tool
from refold.reducers.events import Event, LateResult, Output, ToolReturned
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import ToolError
from refold.replay import audit, events, verify
from refold.store import MemoryStore
from refold.store.protocol import Store

pytestmark = pytest.mark.anyio


class Slow:
    """A tool in a thread that works until the test lets it go."""

    def __init__(self, *, fails: bool = False) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.fails = fails

    def tool(self, timeout: float | None = None) -> Tool:
        @tool(timeout=timeout, redact=lambda text: text.replace("hunter2", "[REDACTED]"))
        def act(context: CallContext) -> str:
            self.begun.set()
            self.released.wait(20)
            if self.fails:
                raise OSError("hunter2 was refused")
            return "hunter2 was sent"

        return act


async def late_of(store: Store, run: str) -> tuple[LateResult, ...]:
    """The late results, once there is one."""
    for _ in range(2000):
        said: list[Event] = [event async for _, event in events(store, run)]
        late = tuple(event for event in said if isinstance(event, LateResult))
        if late:
            return late
        await anyio.sleep(0.005)
    raise AssertionError("nothing came late")


async def sound(store: Store, run: str) -> bool:
    return (await verify(store, run)).whole and not (await audit(store, run)).differences


@pytest.mark.parametrize("fails", [False, True])
async def test_a_result_that_comes_after_the_end_is_kept(fails: bool) -> None:
    """A run that was cancelled in the middle of a call ends in doubt, and what the call came to is recorded
    after it.
    """
    store, slow = MemoryStore(), Slow(fails=fails)
    agent = Agent(model=ScriptedModel([call("act")]), tools=[slow.tool()], store=store)
    async with agent.start("Do it.", run_id="r") as run:
        await anyio.to_thread.run_sync(slow.begun.wait)
        run.cancel()
        assert (await run.result()).state is AgentState.CANCELLED
        slow.released.set()
        (late,) = await late_of(store, "r")
    assert isinstance(late.fact, ToolReturned)
    assert isinstance(late.content, Output)
    assert ("c1", ToolError.RAISED if fails else None) == (late.fact.call, late.fact.error)
    assert late.content.output == ("OSError: [REDACTED] was refused" if fails else "[REDACTED] was sent")
    assert await sound(store, "r")
    assert await store.claim("r") is None


async def test_a_result_that_comes_while_the_run_goes_on_is_kept_where_it_came() -> None:
    """After its call has timed out, a thread's result is an annotation in the middle of the run, and changes
    nothing.
    """
    store, slow = MemoryStore(), Slow()

    async def waits() -> str:
        """Wait until the other one is through."""
        slow.released.set()
        await late_of(store, "r")
        return "it came"

    script = [call("act"), call("waits"), say("Done.")]
    agent = Agent(
        model=ScriptedModel(script), tools=[slow.tool(timeout=0.5), tool(waits)], store=store, policy={}
    )
    assert (await agent.start("Do it.", run_id="r").result()).state is AgentState.COMPLETED
    kinds = [stored.kind async for stored, _ in events(store, "r")]
    assert kinds.index("tool_returned") < kinds.index("late_result") < len(kinds) - 1
    assert await sound(store, "r")


async def test_a_result_in_time_is_no_late_one() -> None:
    """A thread whose call waits for it tells nobody else."""
    store, slow = MemoryStore(), Slow()
    slow.released.set()
    agent = Agent(model=ScriptedModel([call("act"), say("Done.")]), tools=[slow.tool()], store=store)
    await agent.start("Do it.", run_id="r").result()
    assert "late_result" not in [stored.kind async for stored, _ in events(store, "r")]


async def test_a_result_that_cannot_be_kept_is_warned_of(
    anyio_backend_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes late is lost with its event loop, as long as another engine has the run: and not in
    silence.
    """
    store, slow = MemoryStore(), Slow()

    async def main() -> None:
        agent = Agent(
            model=ScriptedModel([call("act"), say("Done.")]), tools=[slow.tool(timeout=0.05)], store=store
        )
        await agent.start("Do it.", run_id="r").result()
        await store.lease("r", holder="elsewhere:1::a")
        asked = anyio.Event()
        claim = store.claim

        async def ask(run: str) -> object:
            asked.set()
            return await claim(run)

        store.claim = ask  # type: ignore[method-assign,assignment]
        slow.released.set()
        await asked.wait()

    await anyio.to_thread.run_sync(partial(anyio.run, main, backend=anyio_backend_name))
    assert "run r: a late result could not be recorded: " in caplog.text
