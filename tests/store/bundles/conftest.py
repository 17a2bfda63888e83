"""A whole bundle, for each test of what may become of one."""

from pathlib import Path

import anyio
import pytest

from support.bundles import packed


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Files and zips know of no event loop; SQLite is tested on both elsewhere."""
    return "asyncio"


@pytest.fixture
async def bundle(tmp_path: Path) -> Path:
    return await packed(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return anyio.run(packed, tmp_path_factory.mktemp("whole")).read_bytes()
