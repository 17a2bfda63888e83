"""What every test may use."""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from refold.reducers import tokenizers


def pytest_configure(config: pytest.Config) -> None:
    """`-m "not slow"` leaves out what takes up to a minute: tests with real processes."""
    config.addinivalue_line("markers", "slow: takes up to a minute")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop that an async test runs on: each runs on both."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose store fails tries again at once: no test waits for a disk to recover."""
    monkeypatch.setattr("refold.engine.loop.AGAIN", (0.0, 0.0, 0.0))


@pytest.fixture
def without_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra `tokens` were not installed, and none of its tokenizers loaded before."""
    monkeypatch.setitem(sys.modules, "splintr", None)
    monkeypatch.setattr(tokenizers, "_encoder", tokenizers._encoder.__wrapped__)


# One machine's luck is no other's failure: examples are the same everywhere, and no example is timed.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=25,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.register_profile("thorough", parent=settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
