"""Tools as the engine runs them: side by side, bounded, redacted, capped; whatever goes wrong is told to the
model.
"""

import hashlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import pytest

from refold.engine import (
    Agent,
    BadArguments,
    CallContext,
    Recorded,
    Reply,
    ScriptedModel,
    Tool,
    Update,
    calls,
    say,
    tool,
)
from refold.reducers.events import Manifest, ToolReturned
from refold.store import MemoryStore
from refold.store.protocol import Store
from support.driving import assert_sound, events_of, watch

pytestmark = pytest.mark.anyio


async def ran(
    line: Reply, tools: list[Tool], *, store: Store | None = None, policy: dict[str, Any] | None = None
) -> list[ToolReturned]:
    """The results of one batch of calls, in call order, after a run that completed soundly."""
    store = store or MemoryStore()
    model = ScriptedModel([line, say("Done.")])
    run = Agent(model=model, tools=tools, store=store, policy=policy).start("Do it.", run_id="r", seed=1)
    with anyio.fail_after(4):
        assert "COMPLETED" == (await run.result()).state
    await assert_sound(store, "r")
    returned = [event for event in await events_of(store, "r") if isinstance(event, ToolReturned)]
    shown = [message.text for message in model.requests[-1].messages if message.call]
    in_order = sorted(returned, key=lambda event: int(event.call[1:]))
    assert [said(event) for event in in_order] == shown
    return in_order


def said(event: ToolReturned) -> str:
    assert event.content is not None
    return event.content.output


class Meeting:
    """Tools that go on only when as many as are expected are running at once."""

    def __init__(self, expected: int) -> None:
        self.expected, self.running, self.most = expected, 0, 0
        self.all_here = anyio.Event()

    def tools(self) -> list[Tool]:
        @tool
        async def meet() -> str:
            self._here()
            await self.all_here.wait()
            self.running -= 1
            return "met"

        @tool
        def meet_in_a_thread() -> str:
            anyio.from_thread.run_sync(self._here)
            anyio.from_thread.run(self.all_here.wait)
            return "met in a thread"

        return [meet, meet_in_a_thread]

    def _here(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running >= self.expected:
            self.all_here.set()


async def test_calls_of_one_answer_run_side_by_side() -> None:
    """The calls of a batch are under way at the same time, in threads as well: they can wait for each
    other.
    """
    meeting = Meeting(3)
    found = await ran(calls(("meet", {}), ("meet_in_a_thread", {}), ("meet", {})), meeting.tools())
    assert ["met", "met in a thread", "met"] == [said(event) for event in found]


async def test_in_order_they_run_one_at_a_time() -> None:
    """With `batch: in_order` a call begins when the one before it has its result."""
    meeting = Meeting(1)
    await ran(calls(("meet", {}), ("meet", {}), ("meet", {})), meeting.tools(), policy={"batch": "in_order"})
    assert 1 == meeting.most


async def test_results_stand_in_call_order_however_they_arrive() -> None:
    """The model sees results in the order of its calls, also when the last call is the first to end."""
    last = anyio.Event()

    @tool
    async def slow() -> str:
        await last.wait()
        return "slow"

    @tool
    async def quick() -> str:
        last.set()
        return "quick"

    found = await ran(calls(("slow", {}), ("quick", {})), [slow, quick])
    assert ["slow", "quick"] == [said(event) for event in found]


@tool
async def divide(a: int, b: int) -> str:
    """Divide."""
    return str(a // b)


@tool
def silent() -> None:
    """Say nothing."""


@tool
def burst() -> str:
    """Raise without a word."""
    raise RuntimeError


@tool
def leave() -> str:
    """End the process, as the main function of a command does."""
    sys.exit(3)


async def refuse(arguments: str, context: CallContext) -> str:
    raise BadArguments("that will not do")


picky = Tool(manifest=Manifest(name="picky"), run=refuse)

ERRORS: list[Any] = [
    pytest.param("divide", {"a": 1, "b": 0}, "raised", "raised: ZeroDivisionError: integer", id="raises"),
    pytest.param("burst", {}, "raised", "raised: RuntimeError", id="raises without a word"),
    pytest.param("leave", {}, "raised", "raised: SystemExit: 3", id="ends the process"),
    pytest.param("divide", {"a": "x", "b": 1}, "bad_arguments", "bad_arguments: Expected `int`", id="a type"),
    pytest.param("divide", {"a": 1}, "bad_arguments", "missing required field `b`", id="an argument too few"),
    pytest.param("divide", '{"a": 1, "b"', "bad_arguments", "not one complete JSON object", id="half a text"),
    pytest.param("divide", "[1, 2]", "bad_arguments", "not one complete JSON object", id="no object"),
    pytest.param(
        "picky", {}, "bad_arguments", "bad_arguments: that will not do", id="the tool's own refusal"
    ),
    pytest.param(
        "wish",
        {},
        "unknown_tool",
        "unknown_tool: there is no tool wish. The tools are: burst, divide, leave, picky, silent.",
        id="no such tool",
    ),
]


@pytest.mark.parametrize(("name", "arguments", "error", "told"), ERRORS)
async def test_what_goes_wrong_is_told_to_the_model_and_the_run_goes_on(
    name: str, arguments: Any, error: str, told: str
) -> None:
    """A call that goes wrong has a result that says its class and why, and the run completes."""
    (event,) = await ran(calls((name, arguments)), [divide, silent, burst, leave, picky])
    assert error == event.error
    assert told in said(event)


async def test_empty_arguments_are_an_empty_object() -> None:
    """A model that writes no arguments at all calls a tool that takes none."""
    (event,) = await ran(calls(("silent", "")), [silent])
    assert (None, "", 0) == (event.error, said(event), event.output_bytes)


async def test_one_failure_leaves_the_others_of_the_batch_alone() -> None:
    """Each call has its own result, whatever becomes of the others."""
    found = await ran(
        calls(("divide", {"a": 1, "b": 0}), ("divide", {"a": 4, "b": 2}), ("wish", {})), [divide]
    )
    assert ["raised", None, "unknown_tool"] == [event.error for event in found]


@pytest.mark.parametrize("replay", ["at_most_once", "read_only"])
async def test_a_tool_that_takes_too_long(replay: Any) -> None:
    """An async tool is cancelled at its own timeout, and the model is told that it may have done part of its
    work.
    """
    cancelled: list[str] = []

    @tool(timeout=0.01, replay=replay)
    async def stay() -> str:
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            cancelled.append(type(error).__name__)
            raise
        raise AssertionError

    (event,) = await ran(calls(("stay", {})), [stay])
    assert ("timeout", 1) == (event.error, len(cancelled))
    assert said(event).startswith("timeout: the tool did not finish in time")


async def test_a_thread_is_left_behind_not_waited_for() -> None:
    """A tool in a thread that outlives its timeout is abandoned: the run completes while it still hangs."""
    release, over = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def hang() -> str:
        release.wait(5)
        over.set()
        return "too late"

    try:
        (event,) = await ran(calls(("hang", {})), [hang])
        assert "timeout" == event.error
        assert not over.is_set()
    finally:
        release.set()


async def test_threads_that_hang_hold_up_no_other_tool() -> None:
    """However many tools hang in threads, the next one still finds a thread."""
    release = threading.Event()

    @tool(timeout=0.02)
    def hang() -> str:
        release.wait(5)
        return "too late"

    try:
        found = await ran(calls(*[("hang", {})] * 50, ("silent", {})), [hang, silent])
        assert ["timeout"] * 50 + [None] == [event.error for event in found]
    finally:
        release.set()


SECRET = "hunter2"


def hide(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


@tool(redact=hide)
def reveal() -> str:
    """Tell a secret."""
    return f"the password is {SECRET}"


@tool(redact=hide)
def reveal_by_failing() -> str:
    """Tell a secret in an error."""
    raise PermissionError(f"wrong password {SECRET}")


async def reveal_in_arguments(arguments: str, context: CallContext) -> str:
    raise BadArguments(f"{SECRET} is no password")


picky_with_secrets = Tool(
    manifest=Manifest(name="picky_with_secrets"),
    run=reveal_in_arguments,
    redact=hide,
)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("reveal", "the password is [hidden]"),
        ("reveal_by_failing", "raised: PermissionError: wrong password [hidden]"),
        ("picky_with_secrets", "bad_arguments: [hidden] is no password"),
    ],
)
async def test_what_is_redacted_is_nowhere(name: str, told: str) -> None:
    """What a tool hides is in no record, no update and no request: it was hidden before anything was made of
    it.
    """
    store, model, seen = MemoryStore(), ScriptedModel([calls((name, {})), say("Done.")]), list[Update]()
    agent = Agent(model=model, tools=[reveal, reveal_by_failing, picky_with_secrets], store=store)
    await watch(agent.start("Do it.", run_id="r"), seen)
    (event,) = [event for event in await events_of(store, "r") if isinstance(event, ToolReturned)]
    assert told == said(event)
    assert SECRET not in repr(seen) + repr(model.requests)
    async for chunk in store.read("r"):
        for stored in chunk:
            assert SECRET.encode() not in stored.body + (stored.content or b"")
    if event.error is None:  # the digest of the output is of what was left
        assert event.content is not None
        assert hashlib.sha256(told.encode()).hexdigest() == event.content.sha256


async def test_output_over_the_cap_is_cut_in_the_middle() -> None:
    """Of an output over the cap the model sees both ends; its size and digest are those of the whole."""

    @tool
    def talk() -> str:
        return "a" * 60 + "b" * 60

    (event,) = await ran(calls(("talk", {})), [talk], policy={"tool_output": {"max": 20}})
    assert (120, True) == (event.output_bytes, event.cut)
    assert said(event).startswith("a" * 10 + "\n[harness: ")
    assert said(event).endswith("]\n" + "b" * 10)
    assert event.content is not None
    assert hashlib.sha256(b"a" * 60 + b"b" * 60).hexdigest() == event.content.sha256


@pytest.mark.parametrize("length", [19, 20])
async def test_output_under_the_cap_is_left_alone(length: int) -> None:
    """An output of exactly the cap, or less, is shown as it is."""

    @tool
    def talk() -> str:
        return "a" * length

    (event,) = await ran(calls(("talk", {})), [talk], policy={"tool_output": {"max": 20}})
    assert (length, False, "a" * length) == (event.output_bytes, event.cut, said(event))


async def test_a_half_character_does_not_stop_a_run() -> None:
    """An output with half a character in it is recorded and shown, with a mark where it was."""
    raw = Tool(manifest=Manifest(name="raw"), run=half)
    (event,) = await ran(calls(("raw", {})), [raw])
    assert "a\ufffdb" == said(event)


async def half(arguments: str, context: CallContext) -> str:
    return "a\ud800b"


def keeper(keys: list[tuple[str, str]]) -> Callable[..., Tool]:
    @tool(replay="idempotent")
    async def keep(n: int, context: CallContext) -> str:
        keys.append((context.call, context.key))
        return str(n)

    return lambda: keep


async def test_idempotency_keys_are_a_calls_own_and_stay_the_same() -> None:
    """Each call has a key that no other call of any run has, and every attempt at it has the same."""
    first, again, other = list[tuple[str, str]](), list[tuple[str, str]](), list[tuple[str, str]]()
    line = calls(("keep", {"n": 1}), ("keep", {"n": 1}))
    for keys, run in ((first, "r"), (again, "r"), (other, "s")):
        agent = Agent(model=ScriptedModel([line, say("Done.")]), tools=[keeper(keys)()])
        await agent.start("Do it.", run_id=run).result()
    assert ["c1", "c2"] == sorted(call for call, _ in first)
    assert sorted(first) == sorted(again)
    assert 4 == len({key for _, key in (*first, *other)})


async def test_a_run_does_not_go_on_while_a_tool_is_in_flight() -> None:
    """The model is not asked again before every call of its answer has a result."""
    release = anyio.Event()
    model = ScriptedModel([calls(("stay", {}), ("silent", {})), say("Done.")])

    @tool
    async def stay() -> str:
        await release.wait()
        return "stayed"

    run = Agent(model=model, tools=[stay, silent]).start("Do it.")
    async for update in run.updates():
        if isinstance(update, Recorded) and isinstance(update.event, ToolReturned):
            assert (1, "WAITING_FOR_TOOL") == (len(model.requests), run.state.agent_state) or release.is_set()
            release.set()
    assert 2 == len(model.requests)
