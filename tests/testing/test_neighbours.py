"""The plugin beside others: event loops of other plugins, workers, random order, and recorded requests."""

import subprocess
import sys
from pathlib import Path

import pytest

from testing.conftest import SHOP

TESTS = """
import asyncio

import anyio
import pytest
from shop import make


def test_sync(refold_run):
    assert refold_run(make, "Buy.").calls.names == ["price", "pay"]


@pytest.mark.asyncio
async def test_asyncio(refold_run):
    await asyncio.sleep(0)
    assert (await refold_run.run(make, "Buy.")).state == "COMPLETED"


@pytest.mark.anyio
async def test_anyio(refold_run):
    await anyio.sleep(0)
    assert (await refold_run.run(make, "Buy.")).state == "COMPLETED"


async def _wrong(refold_run):
    with pytest.raises(Exception, match=r"in an async test: use `await refold_run.run"):
        refold_run(make, "Buy.")
    await refold_run.run(make, "Buy.")


@pytest.mark.asyncio
async def test_a_sync_call_in_a_loop(refold_run):
    await _wrong(refold_run)


@pytest.mark.vcr
@pytest.mark.block_network
def test_with_a_cassette(refold_run):
    refold_run(make, "Buy.")


@pytest.mark.parametrize("n", range(8))
def test_many(refold_run, n):
    refold_run(make, f"Buy {n}.")
"""
PLUGINS = ("asyncio", "randomly", "recording", "xdist", "anyio")


def pytest_in(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_all_in_one_session(tmp_path: Path) -> None:
    """With all of them at once: recorded in any order, by two workers, and replayed likewise."""
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n", encoding="utf-8"
    )
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    (tmp_path / "test_shop.py").write_text(TESTS, encoding="utf-8")
    recorded = pytest_in(tmp_path, "-n", "2", "--refold-record=missing")
    assert 0 == recorded.returncode, recorded.stdout
    assert 13 == recorded.stdout.count("refold: recorded recordings")
    for plugin in PLUGINS:
        assert plugin in pytest_in(tmp_path, "--collect-only").stdout
    for options in (["-n", "2", "--refold-unused=fail"], ["--refold-unused=fail"], ["-p", "no:randomly"]):
        again = pytest_in(tmp_path, *options)
        assert 0 == again.returncode, again.stdout
        assert "unused" not in again.stdout
    (tmp_path / "test_shop.py").write_text(TESTS.replace("range(8)", "range(7)"), encoding="utf-8")
    for options in (["-n", "2"], []):
        fewer = pytest_in(tmp_path, *options, "--refold-unused=fail")
        assert 1 == fewer.returncode
        assert "refold: unused recording recordings/test_shop/test_many-7.jsonl" in fewer.stdout
