"""Without network, key, weights or extras: what replays need none of."""

import socket
import subprocess
import sys

import anyio
import pytest

from refold.engine import Agent
from refold.engine.models.protocol import ModelUnavailable
from refold.testing import RequestRefused, allow_requests, forbid_requests
from testing.conftest import SHOP, TEST, Session

ELSEWHERE = ("192.0.2.1", 9)  # an address for documentation: no machine has it


def test_other_machines_cannot_be_reached() -> None:
    """Neither by address nor by name, by no kind of call; what was tried is listed."""
    with (
        forbid_requests() as refused,
        socket.socket() as stream,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        for attempt in (
            lambda: stream.connect(ELSEWHERE),
            lambda: stream.connect_ex(ELSEWHERE),
            lambda: datagrams.sendto(b"x", ELSEWHERE),
            lambda: socket.create_connection(("example.invalid", 80), timeout=1),
            lambda: socket.getaddrinfo("example.invalid", 80),
            lambda: socket.gethostbyname("example.invalid"),
        ):
            with pytest.raises(RequestRefused):
                attempt()
    assert [*["192.0.2.1"] * 3, *["example.invalid"] * 3] == refused


@pytest.mark.anyio
async def test_an_event_loop_cannot_either() -> None:
    """Connections of asyncio and trio are seen as well."""
    with forbid_requests() as refused, pytest.raises(ExceptionGroup) as found:
        await anyio.connect_tcp("192.0.2.1", 9)
    assert found.group_contains(RequestRefused)
    assert ["192.0.2.1"] == refused


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_this_machine_can(host: str) -> None:
    """A loopback connection is answered by whoever listens, or refused by the machine itself."""
    with forbid_requests() as refused:
        try:
            socket.create_connection((host, 9), timeout=1)
        except RequestRefused:
            raise
        except OSError:
            pass
    assert [] == refused


def test_blocks_may_be_nested() -> None:
    """An inner block that allows requests wins; after the outer one everything is as before."""
    with forbid_requests() as outer:
        with allow_requests(), pytest.raises(OSError, match=r".*"):
            socket.getaddrinfo("example.invalid", 80)
        with forbid_requests() as inner, pytest.raises(RequestRefused):
            socket.getaddrinfo("example.invalid", 80)
        assert ["example.invalid"] == inner
    assert ["example.invalid"] == outer
    with pytest.raises(OSError, match=r".*"):
        socket.getaddrinfo("example.invalid", 80)


KEYED = SHOP.replace("ScriptedModel(LINES)", '"openai:gpt-5-mini"')


def test_an_agent_of_a_vendor_without_its_key(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be created on import, and replayed; only a live request misses the key."""
    for name in ("OPENAI_API_KEY", "REFOLD_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    named = SHOP.replace("ScriptedModel(LINES)", 'ScriptedModel(LINES, name="openai:gpt-5-mini")')
    session("--refold-record=missing", test_shop=TEST, shop=named).assert_outcomes(passed=1)
    early = KEYED + "\nagent = make()\n"
    test = TEST.replace("import make", "import agent").replace("(make,", "(agent,")
    session(test_shop=test, shop=early).assert_outcomes(passed=1)
    ran = session(test_shop=test.replace('apple.")', 'apple.", live="model")'), shop=early)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["*model 'openai:gpt-5-mini' needs a key: set OPENAI_API_KEY*"])


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "anthropic:claude-sonnet-5", "local:smollm2-135m"])
def test_a_model_that_is_not_here(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline it is a name; otherwise its absence is an error at once, as ever."""
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "REFOLD_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("REFOLD_MODELS", "/nowhere")
    with pytest.raises(ModelUnavailable):
        Agent(name)
    monkeypatch.setenv("REFOLD_OFFLINE", "1")
    policy = {"limits": [{"type": "cost", "value": 1.0}]}
    agent = Agent(name, policy=policy)
    assert name == agent.model.name
    with pytest.raises(ModelUnavailable):
        agent.run_sync("Hello.")


def test_a_request_of_a_tool_is_refused_and_counted(session: Session) -> None:
    """A live tool may reach the network; a recorded test that does so is told, by number and host."""
    text = """
import socket
import pytest
from shop import make

def test_buy(refold_run):
    try:
        socket.getaddrinfo("example.invalid", 80)
    except Exception:
        pass
    refold_run(make, "Buy an apple.")
"""
    session("--refold-record=missing", test_shop=text).assert_outcomes(passed=1)
    ran = session(test_shop=text, shop=SHOP.replace("Be brief", "Be kind"))
    ran.stdout.fnmatch_lines(["  requests  1 live requests were attempted and refused: example.invalid"])


LOADED = """
import sys
import pytest
before = set(sys.modules)
import refold.testing.plugin
print(sorted(each for each in set(sys.modules) - before if "." not in each or each.startswith("refold.")))
"""


def test_the_plugin_imports_next_to_nothing() -> None:
    """A session that uses no fixture loads no engine: pytest starts as fast as without the plugin."""
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert (
        "['lazy_loader', 'refold', 'refold.testing', 'refold.testing.places', 'refold.testing.plugin', "
        in ran.stdout
    )
    for heavy in ("anyio", "msgspec", "hypothesis", "trio", "refold.engine", "refold.store"):
        assert f"'{heavy}'" not in ran.stdout
