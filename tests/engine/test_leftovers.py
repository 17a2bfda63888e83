"""What a call set going may outlive its engine, in one process too: then no second attempt is made on its
tool's word.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
import pytest

from refold.engine import (
    Agent,
    CallContext,
    DidNot,
    Happened,
    Reconciled,
    ScriptedModel,
    Tool,
    call,
    say,
    tool,
)
from refold.reducers.events import DoubtResolved
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import Doubt
from refold.store import MemoryStore
from support.driving import assert_sound, events_of

pytestmark = pytest.mark.anyio


class Bank:
    """A payment begins at once, and is made when the test says so."""

    def __init__(self) -> None:
        self.begun, self.released, self.made = threading.Event(), threading.Event(), threading.Event()
        self.paid: list[str] = []

    def work(self, key: str) -> None:
        """Pay, in a thread that cannot be stopped."""
        self.begun.set()
        self.released.wait(20)
        self.paid.append(key)
        self.made.set()

    def tool(self, way: Callable[[Callable[[], None]], Awaitable[object]]) -> Tool:
        """A tool that pays in this way, and whose reconciler reads the ledger."""

        async def look_up(context: CallContext) -> Reconciled:
            return Happened("paid") if context.key in self.paid else DidNot(note="no entry")

        @tool(replay="reconcilable", reconcile=look_up)
        async def pay(context: CallContext) -> str:
            """Pay."""
            await way(lambda: self.work(context.key))
            return "paid"

        return pay


async def in_a_shielded_task(work: Callable[[], None]) -> None:
    await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(work)))


async def in_an_executor(work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)


async def in_an_abandoned_thread(work: Callable[[], None]) -> None:
    await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


async def in_a_thread_of_its_own(work: Callable[[], None]) -> None:
    threading.Thread(target=work).start()
    await anyio.sleep_forever()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "way", [in_a_shielded_task, in_an_executor, in_an_abandoned_thread, in_a_thread_of_its_own]
)
async def test_work_that_outlives_its_engine_is_not_done_again(
    way: Callable[[Callable[[], None]], Awaitable[object]],
) -> None:
    """After an engine is cancelled in a call whose work goes on, the next one leaves the call in doubt, and
    it happens once.
    """
    bank, store = Bank(), MemoryStore()
    tools = [bank.tool(way)]
    async with Agent(ScriptedModel([call("pay")]), tools=tools, store=store).start("Pay.", run_id="r"):
        await anyio.to_thread.run_sync(bank.begun.wait)
    try:
        with anyio.fail_after(10):  # a second attempt would wait for the test
            result = await Agent(ScriptedModel([say("Well.")]), tools=tools, store=store).resume("r").result()
    finally:
        bank.released.set()
        await anyio.to_thread.run_sync(bank.made.wait)
    assert AgentState.COMPLETED is result.state
    assert 1 == len(bank.paid)
    (found,) = [event for event in await events_of(store, "r") if isinstance(event, DoubtResolved)]
    assert Doubt.UNKNOWN is found.doubt
    await assert_sound(store, "r")
