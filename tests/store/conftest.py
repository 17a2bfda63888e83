"""What tests of stores share."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

# The conformance suite is no test module of ours, so pytest must be told to rewrite its assertions.
pytest.register_assert_rewrite("refold.store.testing")

from refold.store import SqliteStore  # noqa: E402 - after that


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteStore]:
    """A store whose commits wait for no disk."""
    async with await SqliteStore.open(tmp_path / "runs.db", durability="process") as opened:
        yield opened
