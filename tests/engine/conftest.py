"""Modules of engine tests that run over stores on disk as well."""

import inspect
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from support.durable import DurableStore
from support.postgres import drop_schema, new_schema

DURABLE = {
    "test_annotation",
    "test_approvals",
    "test_children",
    "test_doubts",
    "test_families",
    "test_forks_live",
    "test_given_back",
    "test_holding_a_run",
    "test_late_results",
    "test_leftovers",
    "test_resuming",
    "test_starting",
    "test_stopped_anywhere",
    "test_unattended",
}
"""Modules whose every `MemoryStore()` may be another store: no test in them waits for a store's clock."""

LOOPS = {"memory": ("asyncio", "trio"), "sqlite": ("trio",), "postgres": ("asyncio",)}
"""The event loops for each store: the stores themselves are tested on both."""

SLOW = {"test_stopped_at_every_await", "test_every_append_fails_once"}
"""Tests that take more than about a second over a store on disk."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each async test of such a module over each store."""
    slow = [pytest.mark.slow] if metafunc.function.__name__ in SLOW else []
    module = metafunc.module.__name__.rpartition(".")[2]
    if module in DURABLE and inspect.iscoroutinefunction(metafunc.function):
        kinds = [pytest.param(kind, marks=[] if kind == "memory" else slow) for kind in LOOPS]
        metafunc.parametrize("_stores", kinds, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other event loops."""
    left = [item for item in items if not _runs_there(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if _runs_there(item)]


def _runs_there(item: pytest.Item) -> bool:
    chosen = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return "_stores" not in chosen or chosen.get("anyio_backend") in LOOPS[str(chosen["_stores"])]


@pytest.fixture(autouse=True)
def _stores(request: pytest.FixtureRequest) -> None:
    """Make each `MemoryStore()` of the module a store of this kind."""
    if getattr(request, "param", "memory") != "memory":
        request.getfixturevalue(f"_in_{request.param}")


@pytest.fixture
async def _in_sqlite(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[None]:
    made = list[DurableStore]()

    def store() -> DurableStore:
        made.append(DurableStore(str(tmp_path / f"store-{len(made)}.db")))
        return made[-1]

    monkeypatch.setattr(request.module, "MemoryStore", store)
    yield
    for each in made:
        await each.aclose()


@pytest.fixture
async def _in_postgres(
    request: pytest.FixtureRequest, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[None]:
    made = list[DurableStore]()

    def store() -> DurableStore:
        made.append(DurableStore(new_schema(postgres_address)))
        return made[-1]

    monkeypatch.setattr(request.module, "MemoryStore", store)
    yield
    for each in made:
        await each.aclose()
        drop_schema(each.address)
