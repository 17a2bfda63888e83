"""Scopes that others' code enters and does not leave, or leaves and did not enter: its own failure, and no
one else's.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from refold.engine import Agent, CallContext, ModelRequest, Reply, ScriptedModel, Tool, call, calls, say, tool
from refold.engine.models.protocol import Delta
from refold.engine.tasks import LEFT_OPEN
from refold.engine.tools.protocol import DidNot, Reconciled
from refold.reducers.errors import MissingFact
from refold.reducers.events import DoubtResolved, Manifest, ModelFailed, ToolReturned
from refold.reducers.vocabulary import Doubt, Replay, ToolError
from refold.store import MemoryStore
from support.driving import StreamingModel, assert_sound, events_of

pytestmark = pytest.mark.anyio

Leak = Callable[[list[Any]], Awaitable[None]]


async def scope(kept: list[Any]) -> None:
    kept.append(anyio.CancelScope())
    kept[-1].__enter__()


async def shield(kept: list[Any]) -> None:
    kept.append(anyio.CancelScope(shield=True))
    kept[-1].__enter__()


async def several(kept: list[Any]) -> None:
    await scope(kept)
    await shield(kept)
    await scope(kept)


async def deadline(kept: list[Any]) -> None:
    kept.append(anyio.move_on_after(3600))
    kept[-1].__enter__()


async def cancelled(kept: list[Any]) -> None:
    await scope(kept)
    kept[-1].cancel()


async def cut_off(kept: list[Any]) -> None:
    await cancelled(kept)
    await anyio.sleep_forever()


async def group(kept: list[Any]) -> None:
    kept.append(anyio.create_task_group())
    await kept[-1].__aenter__()
    kept[-1].start_soon(anyio.sleep_forever)


async def wrong_order(kept: list[Any]) -> None:
    await scope(kept)
    await scope(kept)
    try:
        kept[-2].__exit__(None, None, None)
    finally:
        kept[-1].__exit__(None, None, None)


async def generator(kept: list[Any]) -> None:
    async def numbers() -> AsyncGenerator[int]:
        with anyio.CancelScope():
            yield 1

    kept.append(numbers())
    await anext(kept[-1])


LEAKS = [scope, shield, several, deadline, cancelled, cut_off, group, generator]


@tool(replay="read_only")
async def use_scopes() -> str:
    """Use scopes as one should."""
    with anyio.move_on_after(0):
        await anyio.sleep_forever()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.lowlevel.checkpoint)
    return "well"


def leaking(leak: Leak, kept: list[Any], timeout: float | None = None) -> Tool:
    @tool(timeout=timeout)
    async def leaky() -> str:
        await leak(kept)
        return "done"

    return leaky


def leaky_and(others: int) -> Reply:
    """A batch of one call of the tool that leaks, and so many of the one that does not."""
    names: list[tuple[str, dict[str, Any]]] = [("leaky", {}), *[("use_scopes", dict[str, Any]())] * others]
    return calls(*names)


async def assert_given_back(store: MemoryStore) -> None:
    await assert_sound(store, "r")
    assert await store.claim("r") is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the generator
@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside others"])
@pytest.mark.parametrize("timeout", [None, 100.0], ids=["no timeout", "a timeout"])
async def test_a_tool_that_leaves_a_scope_open(leak: Leak, others: int, timeout: float | None) -> None:
    """Its call failed, and says of what; the calls beside and after it go well, and nothing is left of it."""
    store, kept = MemoryStore(), list[Any]()
    batch = leaky_and(others)
    model = ScriptedModel([batch, call("use_scopes"), batch, say("Done.")])
    tools = [leaking(leak, kept, timeout), use_scopes]
    with anyio.fail_after(5):
        result = await Agent(model=model, tools=tools, store=store).start("Do it.", run_id="r").result()
    assert "COMPLETED" == result.state
    returned = [event for event in await events_of(store, "r") if isinstance(event, ToolReturned)]
    wells = [each for each in returned if each.error is None]
    failed = [
        each
        for each in returned
        if each.error is ToolError.RAISED and each.content and LEFT_OPEN in each.content.output
    ]
    assert (1 + 2 * others, 2, 3 + 2 * others) == (len(wells), len(failed), len(returned))
    await assert_given_back(store)


@pytest.mark.parametrize("leak", [scope, cancelled])
async def test_a_scope_of_an_earlier_call(leak: Leak) -> None:
    """A call that leaves what another had entered fails or goes well by itself, and the run goes on."""
    store, kept = MemoryStore(), list[Any]()

    @tool
    async def leaver() -> str:
        kept.pop().__exit__(None, None, None)
        return "left"

    model = ScriptedModel([call("leaky"), call("leaver"), call("use_scopes"), say("Done.")])
    agent = Agent(model=model, tools=[leaking(leak, kept), leaver, use_scopes], store=store)
    with anyio.fail_after(5):
        result = await agent.start("Do it.", run_id="r").result()
    assert ("COMPLETED", "well") == (result.state, [each.text for each in result.messages if each.call][-1])
    await assert_given_back(store)


async def test_a_task_group_of_an_earlier_call() -> None:
    """A call that closes it may stop the engine, for trio takes it for one of the engine's; the run is given
    back, and its log sound.
    """
    store, kept = MemoryStore(), list[Any]()

    @tool
    async def closer() -> str:
        await kept.pop().__aexit__(None, None, None)
        return "closed"

    model = ScriptedModel([call("leaky"), call("closer"), say("Done.")])
    agent = Agent(model=model, tools=[leaking(group, kept), closer], store=store)
    with anyio.fail_after(5), suppress(RuntimeError):
        await agent.start("Do it.", run_id="r").result()
    assert 2 == len([event for event in await events_of(store, "r") if isinstance(event, ToolReturned)])
    claim = await store.claim("r")
    assert claim is None or not claim.holder
    await assert_sound(store, "r")


@pytest.mark.parametrize("leak", [scope, shield, group])
async def test_a_call_that_is_cut_off_with_its_scopes_open(leak: Leak) -> None:
    """A run that is cancelled while a tool waits in a scope that it leaves open is CANCELLED, and the call in
    doubt.
    """
    store, kept = MemoryStore(), list[Any]()

    async def wait(kept: list[Any]) -> None:
        await leak(kept)
        run.cancel()
        with anyio.move_on_after(0.05):  # in a shield of its own nothing cuts it off
            await anyio.sleep_forever()

    run = Agent(model=ScriptedModel([call("leaky")]), tools=[leaking(wait, kept)], store=store).start(
        "Do it.", run_id="r"
    )
    with anyio.fail_after(5):
        assert "CANCELLED" == (await run.result()).state
    (fact,) = [event for event in await events_of(store, "r") if isinstance(event, ToolReturned)]
    assert ToolError.IN_DOUBT is fact.error
    await assert_given_back(store)


@pytest.mark.parametrize("leak", [scope, group])
async def test_an_engine_that_is_stopped_while_a_tool_has_a_scope_open(leak: Leak) -> None:
    """Nobody says that the call failed: it has no result, and whoever takes the run up finds it in doubt."""
    store, kept, begun = MemoryStore(), list[Any](), anyio.Event()

    async def wait(kept: list[Any]) -> None:
        await leak(kept)
        begun.set()
        await anyio.sleep_forever()

    agent = Agent(model=ScriptedModel([call("leaky")]), tools=[leaking(wait, kept)], store=store)
    with anyio.fail_after(5):
        async with agent.start("Do it.", run_id="r"):
            await begun.wait()
    assert not [event for event in await events_of(store, "r") if isinstance(event, ToolReturned)]
    claim = await store.claim("r")
    assert claim is not None
    assert not claim.holder


@pytest.mark.parametrize("leak", [scope, deadline, cancelled, group])
async def test_a_model_that_leaves_a_scope_open(leak: Leak) -> None:
    """Its request failed, and the engine goes on to what follows from that."""
    store, kept = MemoryStore(), list[Any]()

    async def leaky(_: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        await leak(kept)
        yield say("Never.")

    model, policy = StreamingModel(leaky), {"retry": {"attempts": 1}}
    with anyio.fail_after(5):
        result = await Agent(model=model, store=store, policy=policy).start("Do it.", run_id="r").result()
    assert ("ERROR", "provider:other") == (result.state, result.outcome.code)
    (fact,) = [event for event in await events_of(store, "r") if isinstance(event, ModelFailed)]
    assert fact.content is not None
    assert LEFT_OPEN in fact.content.message
    await assert_given_back(store)


async def not_its_own(_: list[Any]) -> None:
    """Leave the scope that this task is in."""
    try:
        from anyio._backends import _asyncio

        states: Any = _asyncio._task_states  # pyright: ignore
        states[asyncio.current_task()].cancel_scope.__exit__(None, None, None)
    except RuntimeError:
        import trio

        task: Any = trio.lowlevel.current_task()
        task._cancel_status._scope.__exit__(None, None, None)


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside others"])
async def test_a_tool_that_leaves_a_scope_of_the_engine(others: int) -> None:
    """That is its own failure too, as long as there are means to tell."""
    store, kept = MemoryStore(), list[Any]()
    batch = leaky_and(others)
    model = ScriptedModel([batch, call("use_scopes"), say("Done.")])
    tools = [leaking(not_its_own, kept), use_scopes]
    with anyio.fail_after(5):
        result = await Agent(model=model, tools=tools, store=store).start("Do it.", run_id="r").result()
    said = [each.text for each in result.messages if each.call]
    assert ("COMPLETED", ["well"] * (1 + others)) == (result.state, said[1:])
    assert LEFT_OPEN in said[0]
    await assert_given_back(store)


@pytest.mark.parametrize("leak", [scope, cancelled, group])
async def test_a_reconciler_that_leaves_a_scope_open(leak: Leak) -> None:
    """It cannot tell: the call stays in doubt, for a person."""
    store, kept = MemoryStore(), list[Any]()

    async def reconcile(arguments: str, context: CallContext) -> Reconciled:
        await leak(kept)
        return DidNot(final=True)

    async def die(arguments: str, context: CallContext) -> str:
        raise MissingFact("r", "the engine stops here")

    tools = [Tool(manifest=Manifest(name="book", replay=Replay.RECONCILABLE), run=die, reconcile=reconcile)]
    agent = Agent(model=ScriptedModel([call("book")]), tools=tools, store=store)
    with pytest.raises(MissingFact):
        await agent.start("Do it.", run_id="r").result()
    with anyio.fail_after(5):
        result = await Agent(model=ScriptedModel([say("So.")]), tools=tools, store=store).resume("r").result()
    (fact,) = [event for event in await events_of(store, "r") if isinstance(event, DoubtResolved)]
    assert (Doubt.UNKNOWN, LEFT_OPEN) == (fact.doubt, fact.content.note if fact.content else "")
    assert result.state in {"COMPLETED", "WAITING_FOR_INPUT"}
    await assert_sound(store, "r")
