"""Whatever a secret comes by, neither the log nor a subscriber ever holds it."""

import hashlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from refold.engine import (
    Agent,
    ModelError,
    ModelRequest,
    Reply,
    ScriptedModel,
    Streamed,
    Tool,
    Update,
    call,
    say,
    tool,
)
from refold.engine.models.protocol import CallDelta, Delta, ReasoningDelta, TextDelta
from refold.engine.tools.protocol import BadArguments
from refold.reducers.errors import WrongUse
from refold.reducers.events import ToolReturned
from refold.reducers.messages import Message, ReplyCall
from refold.reducers.secrets import REDACTED
from refold.reducers.vocabulary import FailureClass, Role, StopReason
from refold.store import MemoryStore
from support.clocks import VirtualClock
from support.driving import StreamingModel, events_of
from support.known_keys import EXAMPLES

pytestmark = pytest.mark.anyio

KEY, _ = EXAMPLES["ghp_"]
VALUE = "hunter2-hunter2"
OWN = "acme_abcd1234"
SAID = f"{KEY} {VALUE} {OWN}."
HIDDEN = " ".join([REDACTED] * 3) + "."
POLICY: dict[str, Any] = {"redact": [r"acme_[a-z0-9]{8}"]}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", VALUE)


def agent(store: MemoryStore, model: Any, *tools: Tool, **options: Any) -> Agent:
    policy = {**POLICY, **options.pop("policy", {})}
    return Agent(
        model=model,
        tools=tools,
        policy=policy,
        store=store,
        clock=lambda: VirtualClock(jumps=True),
        **options,
    )


async def assert_kept(store: MemoryStore, *runs: str) -> None:
    """No event of these runs, and no record of them, shows a secret; each shows that something was hidden."""
    for run in runs:
        raw = b""
        async for chunk in store.read(run):
            for stored in chunk:
                raw += stored.body + (stored.content or b"")
        assert REDACTED.encode() in raw
        for secret in (KEY, VALUE, OWN):
            assert secret.encode() not in raw


def assert_hidden(updates: list[Update]) -> None:
    """Nobody who watched was shown a secret, in one piece or in several."""
    for shown in ("".join(map(repr, updates)), "".join(_texts(updates))):
        for secret in (KEY, VALUE, OWN):
            assert secret not in shown


def _texts(updates: list[Update]) -> list[str]:
    deltas = [update.delta for update in updates if isinstance(update, Streamed)]
    return [delta.name + delta.arguments if isinstance(delta, CallDelta) else delta.text for delta in deltas]


def in_pieces(kind: type[TextDelta | ReasoningDelta], text: str) -> list[Delta]:
    return [kind(text[place : place + 3]) for place in range(0, len(text), 3)]


@tool(replay="read_only")
async def look(path: str) -> str:
    """Look at something."""
    return f"{path}: {SAID}"


async def test_what_the_model_says() -> None:
    """Text, reasoning, names, ids and arguments of an answer are hidden in the log, and as they stream."""
    arguments = json.dumps({"path": SAID, KEY: 1}).replace("g", "\\u0067")
    made = ReplyCall(provider_id=KEY, name="look", arguments=arguments)

    async def stream(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        for delta in (*in_pieces(ReasoningDelta, SAID), *in_pieces(TextDelta, SAID)):
            yield delta
        again = any(message.role is Role.TOOL for message in request.messages)
        calls = () if again else (made, ReplyCall(provider_id="", name=KEY, arguments="{}"))
        for index, each in enumerate(calls):
            yield CallDelta(index, name=each.name)
            yield CallDelta(index, arguments=each.arguments)
        yield Reply(
            text=SAID, reasoning=SAID, calls=calls, stop=StopReason.TOOL_USE if calls else StopReason.END_TURN,
            stop_raw=KEY, model=KEY, adapter="test", response_id=KEY, provider_data=json.dumps({"text": SAID}),
        )  # fmt: skip

    store = MemoryStore()
    run = agent(store, StreamingModel(stream, stream), look).start("Do it.")
    updates = [update async for update in run.updates()]
    assert HIDDEN == (await run.result()).outcome.text
    said = [update.delta for update in updates if isinstance(update, Streamed)]
    for kind in (TextDelta, ReasoningDelta):
        assert HIDDEN * 2 == "".join(delta.text for delta in said if isinstance(delta, kind))
    assert_hidden(updates)
    await assert_kept(store, run.id)


async def test_the_tool_runs_with_what_the_log_says() -> None:
    """A call whose arguments held a secret runs with the mark in its place."""
    seen: list[str] = []

    @tool
    async def act(what: str) -> str:
        """Change something."""
        seen.append(what)
        return "done"

    store = MemoryStore()
    run = agent(store, ScriptedModel([call("act", what=SAID), say("Done.")]), act).start("Do it.")
    await run.result()
    assert [HIDDEN] == seen
    await assert_kept(store, run.id)


async def test_what_a_tool_says() -> None:
    """An output is hidden before its size, its hash and the cap are taken: not even its hash tells it."""
    store = MemoryStore()
    model = ScriptedModel([call("look", path="x" * 100), say("Done.")])
    run = agent(store, model, look, policy={"tool_output": {"max": 120}}).start("Do it.")
    await run.result()
    await assert_kept(store, run.id)
    fact = next(event for event in await events_of(store, run.id) if isinstance(event, ToolReturned))
    whole = f"{'x' * 100}: {HIDDEN}"
    assert len(whole) == fact.output_bytes
    assert fact.content is not None
    assert hashlib.sha256(whole.encode()).hexdigest() == fact.content.sha256


@pytest.mark.parametrize("error", [RuntimeError(SAID), BadArguments(SAID)], ids=["raised", "bad arguments"])
async def test_what_a_tool_raises(error: Exception) -> None:
    """The words of an error are hidden like an output."""

    @tool(replay="read_only")
    async def fails() -> str:
        """Fail."""
        raise error

    store = MemoryStore()
    run = agent(store, ScriptedModel([call("fails"), say("Done.")]), fails).start("Do it.")
    await run.result()
    await assert_kept(store, run.id)


async def test_what_a_provider_says_of_a_failure() -> None:
    """A provider's error and what had arrived of a broken stream are hidden, in the log and as they
    stream.
    """

    async def stream(request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        for delta in in_pieces(TextDelta, SAID):
            yield delta
        raise ModelError(FailureClass.AUTH, f"Incorrect API key provided: {SAID} {len(request.messages)}")

    store = MemoryStore()
    run = agent(store, StreamingModel(stream), policy={"stream": None}).start("Do it.")
    updates = [update async for update in run.updates()]
    assert_hidden(updates)
    await assert_kept(store, run.id)


async def test_with_what_a_run_begins() -> None:
    """Task, system prompt, earlier messages, labels and tools are hidden; the model never sees the secret."""

    async def peek(word: str = VALUE) -> str:
        return word

    peek.__doc__ = f"Peek, with {KEY}."
    offered = tool(replay="read_only")(peek)

    store = MemoryStore()
    model = ScriptedModel([say("Done.")])
    earlier = [Message(role=Role.USER, text=SAID), Message(role=Role.ASSISTANT, text=SAID)]
    agents = agent(store, model, offered, system=SAID)
    run = agents.start(SAID, messages=earlier, labels={"ticket": SAID})
    await run.result()
    await assert_kept(store, run.id)
    assert not any(secret in repr(model.requests) for secret in (KEY, VALUE, OWN))
    await agents.resume(run.id).result()


async def test_what_a_person_says() -> None:
    """Messages, notes, names and reasons are hidden, with the patterns of the run's own policy after a
    resumption.
    """
    store = MemoryStore()
    script = ScriptedModel([say("Yes?"), call("look", path="a"), say("Done.")])
    policy = {"end_of_turn": "wait", "approvals": {"chain": [{"approver": "human", "tools": ["*"]}]}}
    run = agent(store, script, look, policy=policy).start("Do it.", run_id="r1")
    await run.result()
    taken_up = Agent(model=script, tools=[look], store=store).resume("r1")
    taken_up.send(SAID, by=KEY)
    await taken_up.result()
    taken_up.answer({"c1": ("edit", {"path": SAID})}, by=KEY, note=SAID)
    await taken_up.result()
    taken_up.cancel(SAID, by=KEY)
    await taken_up.result()
    await assert_kept(store, "r1")


async def test_what_a_summary_says() -> None:
    """A text that a model wrote to replace older messages is hidden."""
    store = MemoryStore()
    policy = {"history": [{"do": "summarise", "keep_last": 1, "when": {"messages": 3}, "min_messages": 1}]}
    script = ScriptedModel([call("look", path="a"), call("look", path="b"), say(SAID), say("Done.")])
    run = agent(store, script, look, policy=policy).start("Do it.")
    await run.result()
    assert any("summary" in type(event).__name__.lower() for event in await events_of(store, run.id))
    await assert_kept(store, run.id)


async def test_what_a_child_run_says() -> None:
    """A child hides under its own policy; its result, in the parent's log, under the parent's as well."""
    store = MemoryStore()
    child = Agent(model=ScriptedModel([say(SAID)]), name="helper", store=store)
    run = agent(
        store, ScriptedModel([call("helper", task=SAID), say("Done.")]), child.as_tool(description="Help.")
    ).start("Do it.", run_id="r1")
    await run.result()
    await assert_kept(store, "r1")


@pytest.mark.parametrize(
    ("options", "place"),
    [
        pytest.param({"settings": {"extra_headers": {"Authorization": f"Bearer {KEY}"}}}, "extra_headers", id="a header"),
        pytest.param({"settings": {"key": VALUE}}, r"settings\['key'\]", id="a value of the environment"),
        pytest.param({"policy": {"redact": [VALUE]}}, "policy", id="a pattern that is the secret"),
    ],
)  # fmt: skip
def test_secrets_in_what_is_recorded_as_it_is(options: dict[str, Any], place: str) -> None:
    """A secret in a setting or the policy is refused, and the refusal does not show it."""
    with pytest.raises(WrongUse, match=place) as raised:
        agent(MemoryStore(), ScriptedModel([]), **options)
    assert not any(secret in str(raised.value) for secret in (KEY, VALUE))
