"""The embedded model: where it is missing, and the real thing."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from refold.engine.models import local, weights
from refold.engine.models.protocol import CallDelta, Delta, ModelError, ModelRequest, Reply, TextDelta
from refold.reducers.errors import WrongUse
from refold.reducers.messages import Message, ToolSchema
from refold.reducers.vocabulary import FailureClass, StopReason
from support.messages import LIST, READ, called, tool, user


@pytest.mark.parametrize(("asked", "message"), [
    pytest.param("smollm9-9b", "unknown model 'smollm9-9b': known are smollm2-135m", id="an unknown name"),
    pytest.param("smollm2-135m", "fetch it with `refold model fetch`", id="not fetched"),
    pytest.param("nowhere.gguf", r"nowhere\.gguf: the file does not exist", id="a path that is not there"),
    pytest.param("/", "/: it is not a file", id="a directory"),
])  # fmt: skip
def test_a_model_that_is_not_there(
    asked: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be found is refused when the model is made, with the way out."""
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("REFOLD_MODELS", str(tmp_path))
    with pytest.raises(WrongUse, match=message):
        local.LocalModel(asked)


def nothing(name: str) -> None:
    pass


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where xllamacpp is missing the error names the extra that brings it."""
    monkeypatch.setattr("importlib.util.find_spec", nothing)
    with pytest.raises(WrongUse, match=r"xllamacpp.*pip install 'refold\[local\]'"):
        local.LocalModel("smollm2-135m")


@pytest.fixture(scope="module")
def model() -> Iterator[local.LocalModel]:
    """The real model, fetched into the user's cache if need be; its server starts at the first request."""
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    weights.fetch()
    made = local.LocalModel("smollm2-135m", context=1024, threads=1)
    yield made
    anyio.run(made.aclose)


async def ask(
    model: local.LocalModel,
    messages: list[Message],
    *,
    tools: tuple[ToolSchema, ...] = (),
    most: int = 40,
    sampling: dict[str, str] | None = None,
) -> tuple[list[Delta], Reply]:
    request = ModelRequest(messages=tuple(messages), tools=tools, max_output=most, settings=sampling or {})
    *deltas, reply = [item async for item in model.stream(request)]
    assert isinstance(reply, Reply)
    return [delta for delta in deltas if not isinstance(delta, Reply)], reply


real = pytest.mark.local_model


@real
@pytest.mark.anyio
async def test_a_plain_answer(model: local.LocalModel) -> None:
    """A question gets streamed text that is cut at the maximum, counted, free of charge, and the same
    again.
    """
    deltas, reply = await ask(model, user("What is the capital of France?"), most=6)
    assert reply.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert len(deltas) > 1
    assert (StopReason.MAX_TOKENS, "length", 6, 0) == (
        reply.stop,
        reply.stop_raw,
        reply.usage and reply.usage.output,
        reply.cost_nanousd,
    )
    assert reply.usage
    assert reply.usage.input > 6
    assert reply.text == (await ask(model, user("What is the capital of France?"), most=6))[1].text


@real
@pytest.mark.slow
@pytest.mark.anyio
async def test_tools_are_called_and_then_answered_from(model: local.LocalModel) -> None:
    """Asked for a file, the model lists, reads that file, and then writes text."""
    messages = user("List the files, then read notes/b.md and say what it says.")
    deltas, reply = await ask(model, messages, tools=(LIST, READ))
    assert ("list", StopReason.TOOL_USE, "stop") == (reply.calls[0].name, reply.stop, reply.stop_raw)
    assert reply.calls[0].arguments == "".join(
        delta.arguments for delta in deltas if isinstance(delta, CallDelta)
    )
    messages += called("list", reply.calls[0].arguments, "a.md\nnotes/b.md")
    _, reply = await ask(model, messages, tools=(LIST, READ))
    assert ("read", {"path": "notes/b.md"}) == (
        reply.calls[0].name,
        msgspec.json.decode(reply.calls[0].arguments),
    )
    messages += called("read", reply.calls[0].arguments, "The meeting is on Monday.")
    _, reply = await ask(model, messages, tools=(LIST, READ), most=8)
    assert reply.text
    assert not reply.calls


@real
@pytest.mark.slow
@pytest.mark.anyio
async def test_a_cut_call_is_given_as_far_as_it_goes(model: local.LocalModel) -> None:
    """A call that meets the maximum comes with what was written of its arguments, and says so."""
    messages = user("Write a poem about the sea to poem.txt.")
    _, reply = await ask(model, messages, tools=(tool("write", "content path"),), most=24)
    assert (StopReason.MAX_TOKENS, "length", "write") == (reply.stop, reply.stop_raw, reply.calls[0].name)
    assert reply.calls[0].arguments.startswith("{")
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(reply.calls[0].arguments)


@real
@pytest.mark.anyio
async def test_after_a_cancelled_answer_comes_the_next(model: local.LocalModel) -> None:
    """Cancelled in mid-stream the model stops at once, and answers the next request."""
    with anyio.CancelScope() as scope:
        stream: AsyncGenerator[Delta | Reply] = model.stream(
            ModelRequest(messages=tuple(user("Tell a long story.")), max_output=500)
        )
        async for _ in stream:
            scope.cancel()
    assert scope.cancelled_caught
    with anyio.fail_after(30):
        _, reply = await ask(model, user("Say hi."), most=3)
    assert reply.usage
    assert reply.usage.output == 3


@real
@pytest.mark.anyio
@pytest.mark.parametrize(("text", "tools", "sampling", "failure", "message"), [
    pytest.param("word " * 2000, (), {}, FailureClass.CONTEXT_OVERFLOW, "exceeds the available context", id="too long"),
    pytest.param("x", (), {"temperature": '"hot"'}, FailureClass.BAD_REQUEST, r"\$.temperature", id="a bad setting"),
    pytest.param("x", (), {"top_k": "4"}, FailureClass.BAD_REQUEST, "top_k.*values: temperature", id="an unknown one"),
    pytest.param(
        "x", (ToolSchema(name="t", description="", schema="[]"),), {},
        FailureClass.BAD_REQUEST, "a tool's schema is not a JSON object", id="a schema that is none",
    ),
])  # fmt: skip
async def test_requests_that_cannot_be_answered(
    model: local.LocalModel,
    text: str,
    tools: tuple[ToolSchema, ...],
    sampling: dict[str, str],
    failure: FailureClass,
    message: str,
) -> None:
    """One row a reason: the failure has its class, and says what to mend."""
    with pytest.raises(ModelError, match=message) as caught:
        await ask(model, user(text), tools=tools, sampling=sampling)
    assert failure == caught.value.failure


@real
@pytest.mark.slow
@pytest.mark.anyio
async def test_closing_breaks_off_what_is_being_written(model: local.LocalModel) -> None:
    """A stream whose model is closed under it fails as broken, with the text so far."""
    request = ModelRequest(messages=tuple(user("Tell a long story.")), max_output=500)
    texts: list[str] = []

    async def listen() -> None:
        async for item in model.stream(request):
            texts.append(item.text if isinstance(item, TextDelta) else "")
            await model.aclose()

    with pytest.raises(ModelError) as caught:
        await listen()
    assert caught.value.failure == FailureClass.STREAM_BROKEN
    assert "".join(texts) == caught.value.partial_text


@real
@pytest.mark.slow
@pytest.mark.anyio
async def test_a_closed_model_starts_again(model: local.LocalModel) -> None:
    """Closing twice is harmless, and a later request loads the model anew."""
    await model.aclose()
    await model.aclose()
    _, reply = await ask(model, user("Say hi."), most=2)
    assert reply.usage
    assert reply.usage.output == 2
