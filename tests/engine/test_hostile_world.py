"""Tools, models and adapters that break every promise: the run goes on or says why, and its log is sound."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec import structs

from refold.engine import Agent, ModelError, ModelRequest, Reply, ScriptedModel, Tool, call, calls, say, tool
from refold.engine.models.protocol import Delta
from refold.engine.tasks import is_foreign, isolate
from refold.reducers.errors import WrongUse
from refold.reducers.events import ModelFailed, ModelResponded, ToolReturned
from refold.reducers.machine import AgentState
from refold.reducers.messages import Usage
from refold.reducers.pending import MOST_CALLS
from refold.reducers.vocabulary import FailureClass, ToolError
from refold.store import MemoryStore
from support.driving import StreamingModel, assert_sound, events_of

pytestmark = pytest.mark.anyio

ONCE = {"retry": {"attempts": 1}}


async def returned(broken: Tool) -> ToolReturned:
    """What is recorded of one call of a tool, in a run that goes on and ends well."""
    store = MemoryStore()
    run = Agent(model=ScriptedModel([call(broken.name), say("so be it")]), tools=[broken], store=store).start(
        "go"
    )
    with anyio.fail_after(5):
        assert AgentState.COMPLETED is (await run.result()).state
    await assert_sound(store, run.id)
    (fact,) = [event for event in await events_of(store, run.id) if isinstance(event, ToolReturned)]
    return fact


class Unprintable(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise ValueError("no words")


@tool
async def cancels_itself() -> str:
    """Cancel."""
    raise anyio.get_cancelled_exc_class()


@tool
async def leaks_a_cancellation() -> str:
    """Raise what asyncio would."""
    raise asyncio.CancelledError


@tool
async def unprintable() -> str:
    """Fail without words."""
    raise Unprintable


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        pytest.param(leaks_a_cancellation, "raised: CancelledError", id="a cancellation of its own"),
        pytest.param(unprintable, "raised: Unprintable", id="an error without words"),
    ],
)
async def test_a_tool_that_fails_strangely_is_told_to_the_model(broken: Tool, problem: str) -> None:
    """Whatever a tool raises, interrupts aside, is its result, and the run goes on."""
    fact = await returned(broken)
    assert fact.content is not None
    assert (ToolError.RAISED, problem) == (fact.error, fact.content.output)


class Strange(BaseException):
    """An error that no `except Exception` catches."""


STRANGE = [
    GeneratorExit,
    StopIteration,
    StopAsyncIteration,
    asyncio.CancelledError,
    Strange,
    MemoryError,
    RecursionError,
]
EXITS = [SystemExit, KeyboardInterrupt]
GROUPS = [BaseExceptionGroup("several", [GeneratorExit()]), BaseExceptionGroup("several", [Strange()])]


@pytest.mark.parametrize("error", [*STRANGE, *EXITS, *GROUPS], ids=repr)
async def test_a_function_in_a_thread_may_raise_anything(error: Any) -> None:
    """Whatever a plain function raises is told to the model, and the run and the caller's scopes go on."""

    @tool
    def strange() -> str:
        """Do."""
        raise error

    with anyio.CancelScope() as scope:
        fact = await returned(strange)
    assert ToolError.RAISED is fact.error
    assert not scope.cancelled_caught
    await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("error", [*STRANGE, *GROUPS], ids=repr)
async def test_a_coroutine_may_raise_anything_but_an_interrupt(error: Any) -> None:
    """Whatever an async function raises is told to the model, and the run and the caller's scopes go on."""

    @tool
    async def strange() -> str:
        """Do."""
        await anyio.lowlevel.checkpoint()
        raise error

    with anyio.CancelScope() as scope:
        fact = await returned(strange)
    assert ToolError.RAISED is fact.error
    assert not scope.cancelled_caught
    await anyio.lowlevel.checkpoint()


async def test_a_model_may_raise_generator_exit() -> None:
    """An adapter that raises GeneratorExit has failed; its run ends in ERROR, and the caller gets the
    result.
    """
    with anyio.fail_after(5):
        result = await Agent(model=Adapter(GeneratorExit("no")), policy=ONCE).run("Go.")
    assert ("provider:other", "GeneratorExit: no") == (result.outcome.code, result.outcome.provider_error)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_engine_that_is_closed_is_no_failure_of_its_tool() -> None:
    """GeneratorExit that comes from outside, as at the end of an interpreter, ends the work and is no
    result.
    """
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except BaseException as error:
            told.append(f"{type(error).__name__} {is_foreign(error)}")
            raise

    closing = isolate(work())
    closing.send(None)
    closing.close()
    assert ["GeneratorExit False"] == told


async def test_an_answer_with_too_many_calls_ends_the_run() -> None:
    """More calls than an engine can hold are not begun: the answer is refused, with its number, and its
    tokens count.
    """
    done: list[int] = []

    @tool(replay="read_only")
    async def look() -> str:
        """Look."""
        done.append(1)
        return ""

    reply = structs.replace(calls(*[("look", {})] * (MOST_CALLS + 1)), usage=Usage(input=7, output=9))
    store = MemoryStore()
    result = await Agent(model=ScriptedModel([reply]), tools=[look], store=store, policy=ONCE).run(
        "Go.", run_id="r"
    )
    said = f"the response has {MOST_CALLS + 1} tool calls; the maximum is {MOST_CALLS}"
    assert ("provider:other", said) == (result.outcome.code, result.outcome.provider_error)
    assert ([], Usage(input=7, output=9)) == (done, result.usage)
    await assert_sound(store, "r")


async def test_a_tool_that_cancels_itself(anyio_backend_name: str) -> None:
    """On asyncio a tool may raise the loop's own cancellation: that is no cancellation of ours."""
    if anyio_backend_name == "trio":
        pytest.skip("trio lets nobody make its cancellation")
    fact = await returned(cancels_itself)
    assert ToolError.RAISED is fact.error


def breaks(text: str) -> str:
    """A redaction that fails on what it should hide."""
    raise ZeroDivisionError(text)


def forgets(text: str) -> Any:
    """A redaction that returns nothing."""
    return None


@pytest.mark.parametrize("redact", [breaks, forgets])
@pytest.mark.parametrize("fails", [False, True])
async def test_what_cannot_be_redacted_is_not_recorded(redact: Callable[[str], str], fails: bool) -> None:
    """A redaction that fails hides everything: the secret is in no event, and the run goes on."""

    @tool(redact=redact)
    async def secret() -> str:
        """Tell."""
        if fails:
            raise RuntimeError("hunter2")
        return "hunter2"

    fact = await returned(secret)
    assert ToolError.RAISED is fact.error
    assert b"hunter2" not in msgspec.json.encode(fact)


class Adapter:
    """A model whose adapter gives a reply that is none."""

    name, priced = "adapter", True

    def __init__(self, reply: Reply | BaseException) -> None:
        self._reply = reply

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        if isinstance(self._reply, BaseException):
            raise self._reply
        yield self._reply

    async def aclose(self) -> None:
        """Nothing to let go of."""


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(msgspec.structs.replace(say("x"), usage=Usage(input=-5)), id="negative usage"),
        pytest.param(msgspec.structs.replace(say("x"), cost_nanousd=-7), id="negative cost"),
        pytest.param(
            msgspec.structs.replace(say("x"), cost_nanousd=0.5), id="a cost that is no whole number"
        ),
        pytest.param(msgspec.structs.replace(say("x"), text=None), id="no text"),
        pytest.param(asyncio.CancelledError(), id="a cancellation of its own"),
        pytest.param(Unprintable(), id="an error without words"),
    ],
)
async def test_an_adapter_that_breaks_its_promise_fails_its_request(reply: Reply | BaseException) -> None:
    """What could not be read again is never recorded: the request failed, and the log says so."""
    store = MemoryStore()
    run = Agent(model=Adapter(reply), policy=ONCE, store=store).start("go")
    with anyio.fail_after(5):
        result = await run.result()
    assert (AgentState.ERROR, "provider:other") == (result.state, result.outcome.code)
    await assert_sound(store, run.id)


async def test_a_wait_that_is_asked_for_has_its_bounds() -> None:
    """A failure with absurd numbers is recorded with bounds, and read again."""
    store = MemoryStore()
    absurd = ModelError(FailureClass.AUTH, "go away", status=-3, retry_after=10**30)
    run = Agent(model=ScriptedModel([absurd]), store=store).start("go")
    await run.result()
    (fact,) = [event for event in await events_of(store, run.id) if isinstance(event, ModelFailed)]
    assert (None, 7 * 24 * 3600 * 10**9) == (fact.status, fact.retry_after)
    await assert_sound(store, run.id)


async def test_an_answer_with_very_many_calls() -> None:
    """A batch larger than the window is seen whole by the next request, and by whoever resumes."""

    @tool(replay="read_only")
    async def one(number: int) -> str:
        """Say the number."""
        return str(number)

    seen: list[int] = []

    def look(request: ModelRequest) -> Reply:
        seen.append(len(request.messages))
        return say("counted")

    store = MemoryStore()
    many = calls(*[("one", {"number": number}) for number in range(150)])
    run = Agent(model=ScriptedModel([many, look]), tools=[one], store=store).start("go")
    assert AgentState.COMPLETED is (await run.result()).state
    assert [1 + 1 + 150] == seen
    await assert_sound(store, run.id)


async def test_a_time_limit_shorter_than_a_tool() -> None:
    """On the real clock, a limit that ends while a tool runs gives a result, TIMED_OUT."""

    @tool
    async def nap() -> str:
        """Sleep."""
        await anyio.sleep(30)
        return "slept"

    store = MemoryStore()
    policy = {"limits": [{"type": "time", "value": 0.1}]}
    run = Agent(model=ScriptedModel([call("nap")]), tools=[nap], policy=policy, store=store).start("go")
    with anyio.fail_after(5):
        result = await run.result()
    assert AgentState.TIMED_OUT is result.state
    await assert_sound(store, run.id)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"settings": {"temperature": float("nan")}}, id="a number that JSON lacks"),
        pytest.param({"settings": {"stop": object()}}, id="a value that JSON lacks"),
        pytest.param({"settings": {"stop": "\ud800"}}, id="half a character in a setting"),
        pytest.param({"name": "\ud800"}, id="half a character in the name"),
    ],
)
async def test_what_cannot_be_written_down_is_refused(options: dict[str, Any]) -> None:
    """An agent with settings that no log could hold is refused when it is made."""
    with pytest.raises(WrongUse):
        Agent(model=ScriptedModel([]), **options)


async def test_labels_that_cannot_be_written_down_are_refused() -> None:
    """A run with half a character in a label is refused before it starts."""
    with pytest.raises(WrongUse, match="labels"):
        Agent(model=ScriptedModel([])).start("go", labels={"a": "\ud800"})


async def test_a_resumed_run_is_asked_at_the_same_address() -> None:
    """What was said to one server is not silently sent to another."""

    class Somewhere(ScriptedModel):
        address = "http://127.0.0.1:1"

    store = MemoryStore()
    agent = Agent(model=Somewhere([say("what now?")]), policy={"end_of_turn": "wait"}, store=store)
    run = agent.start("private words")
    await run.result()
    with pytest.raises(WrongUse, match=r"sent its requests to http://127\.0\.0\.1:1"):
        await Agent(model=ScriptedModel([]), store=store).resume(run.id).result()


@pytest.mark.parametrize("early", [True, False], ids=["before it answers", "while it answers"])
async def test_a_model_that_changes_its_request_changes_no_other(*, early: bool) -> None:
    """What an adapter does to the settings that it is given is in no state, no later request, and no
    digest.
    """

    async def sent(changes: dict[str, str]) -> list[str]:
        store = MemoryStore()

        async def stream(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
            assert {"top_p": "0.5"} == request.settings
            if early:
                request.settings.update(changes)
            yield say("Done.") if len(request.messages) > 4 else call("unprintable")
            request.settings.update(changes)

        tools, settings = [unprintable], {"top_p": 0.5}
        agent = Agent(model=StreamingModel(*[stream] * 3), tools=tools, settings=settings, store=store)
        run = agent.start("go", run_id="r", seed=1)
        assert AgentState.COMPLETED is (await run.result()).state
        assert {"top_p": "0.5"} == run.state.setup.settings
        return [event.sent for event in await events_of(store, "r") if isinstance(event, ModelResponded)]

    assert await sent({}) == await sent({"top_p": "0.9", "n": "2"})
