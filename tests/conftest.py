"""What every test may use."""

import os
import sys
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from refold.reducers import estimate

if TYPE_CHECKING:
    from support.wire import Server

pytest_plugins = ["pytester"]

# The conformance suite is no test module of ours, so pytest must be told to rewrite its assertions.
pytest.register_assert_rewrite("refold.store.testing")

MOST = 3
"""The most cases of one test in the quick tier."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=["all", "quick"],
        default="all",
        help="quick: leave out the slow tests, sample the others",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than about a second; not in the quick tier")
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or str(config.getoption("tier")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the quick tier: no slow test, each async test on one of the event loops, of each test at most `MOST`
    cases.

    Which loop and which cases is up to the hashes of their names, the same everywhere and every time. A case
    that several tests have, such as a transcript, is kept of one of them at least.
    """
    if config.getoption("tier") == "all":
        return
    loops = defaultdict[tuple[str, str], list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("slow") is None:
            loops[_test_and_case(item)].append(item)
    tests, cases = defaultdict[str, list[pytest.Item]](list), defaultdict[str, list[pytest.Item]](list)
    for (test, case), same in loops.items():
        chosen = min(same, key=_hash)
        tests[test].append(chosen)
        cases[case].append(chosen)
    kept = {item for some in tests.values() for item in sorted(some, key=_hash)[:MOST]}
    kept |= {min(some, key=_hash) for some in cases.values() if len(some) > 1 and kept.isdisjoint(some)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _test_and_case(item: pytest.Item) -> tuple[str, str]:
    """The names of a test and of its case, whatever event loop it is on."""
    test, _, case = item.nodeid.removesuffix("]").partition("[")
    return test, "-".join(part for part in case.split("-") if part not in ("asyncio", "trio"))


def _hash(item: pytest.Item) -> int:
    return zlib.crc32(item.nodeid.encode())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("tier") == "quick":
        terminalreporter.write_line("This was the quick tier, a sample: `make test-all` runs everything.")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop that an async test runs on: each runs on both."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _keys_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model needs its key here as anywhere: the plugin would let agents be created without one."""
    monkeypatch.delenv("REFOLD_OFFLINE", raising=False)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose store fails tries again at once: no test waits for a disk to recover."""
    monkeypatch.setattr("refold.engine.loop.AGAIN", (0.0, 0.0, 0.0))


@pytest.fixture
def without_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra `tokens` were not installed, and none of its tokenizers loaded before."""
    monkeypatch.setitem(sys.modules, "splintr", None)
    monkeypatch.setattr(estimate, "_tokenizer", estimate._tokenizer.__wrapped__)


# One machine's luck is no other's failure: examples are the same everywhere, and no example is timed.
settings.register_profile(
    "all",
    derandomize=True,
    deadline=None,
    max_examples=25,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.register_profile("quick", parent=settings.get_profile("all"), max_examples=5)
settings.register_profile(
    "thorough", parent=settings.get_profile("all"), derandomize=False, max_examples=2000
)


@pytest.fixture
def server() -> Iterator["Server"]:
    """A scripted server on a loopback port."""
    from support.wire import Server

    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    """A PostgreSQL database: that of `REFOLD_TEST_POSTGRES`, or one of a server started for this process."""
    if given := os.environ.get("REFOLD_TEST_POSTGRES"):
        yield given
        return
    from support.postgres import FAST, PostgresServer

    server = PostgresServer(FAST)
    try:
        yield server.start().address
    finally:
        server.remove()


@pytest.fixture
def postgres(postgres_address: str) -> Iterator[str]:
    """The address of a store in PostgreSQL that does not exist yet."""
    from support.postgres import drop_schema, new_schema

    address = new_schema(postgres_address)
    yield address
    drop_schema(address)
