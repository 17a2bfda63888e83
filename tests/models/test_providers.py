"""Models by the names of pydantic-ai's own providers, which find their addresses and keys for themselves."""

import re
from typing import Any, cast

import pytest

from refold.engine import Agent, resolve_model
from refold.engine.models.protocol import ModelError, ModelRequest, Reply
from refold.engine.models.pydantic_ai import PydanticAIModel
from refold.engine.models.vendors import Endpoint
from refold.reducers.errors import WrongUse
from refold.reducers.events import RunStarted
from refold.reducers.vocabulary import FailureClass
from refold.store import MemoryStore
from support.driving import events_of
from support.wire import COUNTS, HELLO, ON_THE_WIRE, SECRET, Server, chat, items, piece, status

pytestmark = ON_THE_WIRE


@pytest.fixture
def ollama(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server where the provider `ollama` looks for one."""
    monkeypatch.setenv("OLLAMA_BASE_URL", server.address + "/v1")
    monkeypatch.setenv("OLLAMA_API_KEY", SECRET)
    return server


async def test_a_provider_by_its_own_name(ollama: Server) -> None:
    """It is asked where the library looks for it, with its key; the log says where that was, and has no
    key.
    """
    ollama.script = chat(piece({"content": "Hello."}, "stop"), COUNTS)
    store = MemoryStore()
    agent = Agent("ollama:qwen3", store=store)
    result = await agent.run("Say hello.", run_id="r")
    assert ("COMPLETED", "Hello.") == (result.state, result.outcome.text)
    assert [f"Bearer {SECRET}"] == ollama.keys
    assert result.cost is None
    started, *others = await events_of(store, "r")
    assert isinstance(started, RunStarted)
    assert ollama.address == started.address
    assert all(SECRET not in repr(event) for event in (started, *others))
    await agent.model.aclose()


async def test_a_failure_is_told_at_once(ollama: Server) -> None:
    """No retry that the log does not know of, and the key in no message."""
    ollama.script = status(503, f"no room for {SECRET}")
    model = PydanticAIModel("ollama:qwen3")
    with pytest.raises(ModelError) as failed:
        await items(model, ModelRequest(messages=HELLO))
    assert (FailureClass.OVERLOADED, 1) == (failed.value.failure, len(ollama.keys))
    assert SECRET not in str(failed.value)
    await model.aclose()


async def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever mistyped an address reads which one was asked."""
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:9/v1")
    model = PydanticAIModel("ollama:qwen3")
    with pytest.raises(ModelError, match=r"[^.] \(address: http://127\.0\.0\.1:9") as failed:
        await items(model, ModelRequest(messages=HELLO))
    assert FailureClass.NETWORK is failed.value.failure
    await model.aclose()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "wherever:x",
            "model 'wherever:x': Unknown provider: wherever; an OpenAI-compatible server of yours is openai:MODEL with its base URL",
        ),
        (
            "deepseek:deepseek-chat",
            "model 'deepseek:deepseek-chat': set the environment variable DEEPSEEK_API_KEY, as in: export DEEPSEEK_API_KEY=...",
        ),
        (
            "ollama:qwen3",
            "model 'ollama:qwen3': set the environment variable OLLAMA_BASE_URL, as in: export OLLAMA_BASE_URL=http://localhost:11434/v1",
        ),
        (
            "deepsek:deepseek-chat",
            "Unknown provider: deepsek; did you mean 'deepseek'?; an OpenAI-compatible",
        ),
        ("bedrock:claude", "model 'bedrock:claude': Please install the `boto3` package"),
    ],
)
def test_what_is_missing_is_said(name: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the library does not know, the variable with a key or an address, a package."""
    for variable in ("DEEPSEEK_API_KEY", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(WrongUse, match=re.escape(says)):
        resolve_model(name)


@pytest.mark.parametrize(
    "options", [{"base_url": "http://127.0.0.1:1/v1"}, {"api_key": "k"}], ids=["address", "key"]
)
def test_a_provider_finds_its_own(options: dict[str, str]) -> None:
    """An address or a key goes with the vendors for which we know what that means; the error says how it is
    done.
    """
    with pytest.raises(
        WrongUse,
        match=r"is only for anthropic:, .* deepseek finds its own; .* openai:MODEL with its base URL",
    ):
        PydanticAIModel("deepseek:m", **options)  # type: ignore[arg-type]


def test_an_address_with_a_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses are recorded and shown."""
    monkeypatch.setenv("OLLAMA_BASE_URL", f"http://me:{SECRET}@127.0.0.1:1/v1")
    with pytest.raises(
        WrongUse, match="the address of ollama must not contain a user or password"
    ) as refused:
        resolve_model("ollama:m")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "elsewhere"),
    [("", ""), ("https://api.vendor.com/v1", ""), ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080")],
)
def test_where_it_is_asked(address: str, elsewhere: str) -> None:
    """What is recorded: nothing of the vendor's own servers, and nothing made up where the library does not
    say.
    """
    endpoint = Endpoint(
        model=cast("Any", None),
        address=address,
        domain="vendor.com",
        key="",
        secret="",
        strict=True,
        settings=frozenset(),
        close=None,
    )
    assert elsewhere == endpoint.elsewhere


async def test_only_settings_that_every_vendor_knows(ollama: Server) -> None:
    """What is a vendor's own might put part of the conversation where the log cannot see it."""
    ollama.script = chat(piece({"content": "x"}, "stop"), COUNTS)
    model = PydanticAIModel("ollama:qwen3")
    *_, reply = await items(model, ModelRequest(messages=HELLO, settings={"temperature": "0.5"}))
    assert isinstance(reply, Reply)
    with pytest.raises(ModelError, match="unknown setting 'openai_previous_response_id'"):
        await items(model, ModelRequest(messages=HELLO, settings={"openai_previous_response_id": '"x"'}))
    await model.aclose()
