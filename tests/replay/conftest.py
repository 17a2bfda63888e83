"""Replay waits for nothing but its store: one event loop is as good as the other."""

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"
