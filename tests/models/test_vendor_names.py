"""Names, keys and prices of vendors' models."""

import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from types import SimpleNamespace

import pytest

from refold.engine.models.prices import cost_nanousd
from refold.engine.models.protocol import ModelError, ModelRequest, Reply
from refold.engine.models.pydantic_ai import PydanticAIModel
from refold.engine.models.vendors import VENDORS
from refold.reducers.errors import WrongUse
from support.wire import (
    COUNTS,
    HELLO,
    ON_THE_WIRE,
    SECRET,
    Server,
    chat,
    closed,
    items,
    opened,
    piece,
    said,
    sse,
    status,
)

pytestmark = ON_THE_WIRE


@pytest.mark.parametrize("name", ["", "gpt-5", "openai:", "openai: ", ":x"])
def test_bad_names(name: str) -> None:
    """A name that is none is refused with the vendors that are known."""
    with pytest.raises(WrongUse, match="anthropic:, openai:, openai-chat:, openai-responses:") as caught:
        PydanticAIModel(name, api_key=SECRET)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("prefix", sorted(VENDORS))
def test_missing_key(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key a vendor's model is refused, and the variable named."""
    variable = VENDORS[prefix].variable
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(WrongUse, match=variable):
        PydanticAIModel(f"{prefix}:m")
    monkeypatch.setenv(variable, "")
    with pytest.raises(WrongUse, match=variable):
        PydanticAIModel(f"{prefix}:m")


@pytest.mark.parametrize("address", ["127.0.0.1:80", "ftp://h/v1", "http://", "", "http://[", "http://h:x/"])
def test_bad_address(address: str) -> None:
    """An address that is none is refused, and the model named."""
    with pytest.raises(WrongUse, match="base_url must be"):
        PydanticAIModel("openai:m", base_url=address)


@pytest.mark.parametrize("prefix", sorted(VENDORS))
@pytest.mark.parametrize("given", [True, False], ids=["given", "variable"])
@pytest.mark.parametrize("user", [f"user:{SECRET}", SECRET, f":{SECRET}"])
def test_no_password_in_an_address(
    user: str, given: bool, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses are recorded and shown: one with a secret is refused, with where it stood and where it
    belongs.
    """
    address = f"https://{user}@host/v1"
    key = VENDORS[prefix].variable
    where = f"{key.removesuffix('_API_KEY')}_BASE_URL"
    monkeypatch.setenv(where, "" if given else address)
    expected = "base_url .* REFOLD_API_KEY" if given else f"{where} .* {key}"
    with pytest.raises(WrongUse, match=expected) as caught:
        PydanticAIModel(f"{prefix}:m", base_url=address if given else None, api_key="k")
    assert SECRET not in str(caught.value)


async def test_a_vendors_key_is_not_sent_elsewhere(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """At another address the vendor's own key stays home; that address's key is sent."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.delenv("REFOLD_API_KEY", raising=False)
    server.script = chat(piece({"content": "x"}, "stop"), COUNTS)
    for key in ("", "other-key"):
        monkeypatch.setenv("REFOLD_API_KEY", key)
        model = PydanticAIModel("openai:m", base_url=server.address + "/v1")
        await items(model, ModelRequest(messages=HELLO))
        await model.aclose()
    assert ["Bearer none", "Bearer other-key"] == server.keys


@pytest.mark.parametrize(
    ("prefix", "path"), [("openai", "/v1"), ("openai-responses", "/v1"), ("anthropic", "")]
)
async def test_the_vendors_own_variable_counts(
    prefix: str, path: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address in the vendor's variable is asked, with the key beside it, and is recorded as the
    model's.
    """
    vendor = VENDORS[prefix]
    monkeypatch.setenv(vendor.variable, SECRET)
    monkeypatch.delenv("REFOLD_API_KEY", raising=False)
    monkeypatch.setenv(vendor.variable.replace("_API_KEY", "_BASE_URL"), server.address + path)
    server.script = status(401, {"error": {"message": "no"}})
    model = PydanticAIModel(f"{prefix}:m")
    with pytest.raises(ModelError):
        await items(model, ModelRequest(messages=HELLO))
    await model.aclose()
    assert server.address == model.address
    assert 1 == len(server.requests)
    if prefix != "anthropic":
        assert [f"Bearer {SECRET}"] == server.keys


async def test_a_server_in_the_vendors_variable_speaks_chat_completions(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that `OPENAI_BASE_URL` names is asked as one that `base_url` names, and needs no key."""
    for name in ("OPENAI_API_KEY", "REFOLD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", server.address + "/v1")
    server.script = chat(piece({"content": "x"}, "stop"), COUNTS)
    model = PydanticAIModel("openai:m")
    *_, reply = await items(model, ModelRequest(messages=HELLO))
    await model.aclose()
    assert isinstance(reply, Reply)
    assert "x" == reply.text


@pytest.mark.parametrize("prefix", ["openai", "anthropic"])
def test_an_older_variable_is_refused(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address in a variable that the vendor's library does not read is never passed over in silence."""
    start = VENDORS[prefix].variable.removesuffix("_API_KEY")
    monkeypatch.delenv(f"{start}_BASE_URL", raising=False)
    monkeypatch.setenv(f"{start}_API_BASE", "http://127.0.0.1:9/v1")
    with pytest.raises(WrongUse, match=rf"{start}_API_BASE is set, but it is not read; .* {start}_BASE_URL"):
        PydanticAIModel(f"{prefix}:m", api_key="k")


async def test_secrets_stay_out_of_reprs() -> None:
    """A model shows its name and nothing of its key."""
    model = PydanticAIModel("openai:gpt-5-mini", api_key=SECRET)
    assert "PydanticAIModel('openai:gpt-5-mini')" == repr(model)
    await model.aclose()


@pytest.mark.parametrize(
    ("name", "base_url", "priced"),
    [
        ("openai:gpt-5-mini", None, True),
        ("anthropic:claude-sonnet-4-5", None, True),
        ("openai:no-such-model", None, False),
        ("openai:gpt-5-mini", "http://127.0.0.1:9/v1", False),
    ],
)
async def test_priced(name: str, base_url: str | None, priced: bool) -> None:
    """A list price is known for a vendor's own models at its own address, and for no other."""
    model = PydanticAIModel(name, base_url=base_url, api_key=SECRET)
    assert priced is model.priced
    await model.aclose()


@asynccontextmanager
async def at_its_own_address(server: Server, name: str) -> AsyncGenerator[PydanticAIModel]:
    """A model at the vendor's own address, as it believes; its requests come to the loopback server."""
    import httpx2

    class Rerouted(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            host, port = server.server_address[:2]
            request.url = request.url.copy_with(scheme="http", host=str(host), port=port)
            return await super().handle_async_request(request)

    async with httpx2.AsyncClient(transport=Rerouted(verify=False)) as http_client:
        yield PydanticAIModel(name, api_key=SECRET, http_client=http_client)


@pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")
async def test_cost(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cost is the list price of each kind of token, to the nano-dollar."""
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    usage = {"cache_read_input_tokens": 200, "cache_creation_input_tokens": 31}
    answered = opened(**usage)
    answered["message"]["model"] = "claude-sonnet-4-5-20250929"
    server.script = sse(answered, *said(0, "x"), *closed("end_turn", output=51))
    async with at_its_own_address(server, "anthropic:claude-sonnet-4-5") as model:
        *_, reply = await items(model, ModelRequest(messages=HELLO))
    assert isinstance(reply, Reply)
    # Dollars a million: 3 in, 0.30 read from the cache, 3.75 written to it, 15 out.
    assert 10 * 3_000 + 200 * 300 + 31 * 3_750 + 51 * 15_000 == reply.cost_nanousd
    assert model.priced


async def test_no_counts_no_cost(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer whose tokens nobody counted has no cost, not a cost of nothing."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    server.script = chat(piece({"content": "x"}, "stop"))
    async with at_its_own_address(server, "openai-chat:gpt-5-mini") as model:
        *_, reply = await items(model, ModelRequest(messages=HELLO))
    assert isinstance(reply, Reply)
    assert reply.cost_nanousd is None
    assert model.priced


@pytest.mark.parametrize(
    ("dollars", "nano"),
    [
        ("0", 0),
        ("0.000000001", 1),
        ("0.0000000015", 2),
        ("0.0000000014999", 1),
        ("123456789.000000001", 123456789000000001),
    ],
)
def test_costs_are_exact(dollars: str, nano: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dollars become nano-dollars half up, with no binary fraction between."""
    import genai_prices
    from genai_prices.types import Usage

    monkeypatch.setattr(
        genai_prices, "calc_price", lambda *_, **__: SimpleNamespace(total_price=Decimal(dollars))
    )
    assert nano == cost_nanousd(Usage(), "m", "https://api.openai.com/v1")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the libraries a vendor's model is refused, and the extra named."""
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(WrongUse, match=re.escape("pip install 'refold[models]'")):
        PydanticAIModel("openai:m", api_key=SECRET)


def test_importing_is_cheap() -> None:
    """The module loads none of the vendors' libraries."""
    code = (
        "import sys, refold.engine.models.pydantic_ai; print(*{name.split('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pydantic_ai", "pydantic", "openai", "anthropic", "httpx2", "genai_prices"} & set(
        loaded.stdout.split()
    )
