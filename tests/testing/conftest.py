"""Sessions of pytest inside a test, and the shop whose agent they test."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Sessions within a test forget the modules that they import first; these would then be loaded twice.
import refold.testing.imported
import refold.testing.recorded_cases  # noqa: F401

SHOP = '''
import os

from refold.engine import Agent, ScriptedModel, call, calls, fail, say, tool

PRICES = {"apple": 30, "pear": 40}
SYSTEM = "Be brief."
SETTINGS = {"temperature": 0.2}
POLICY = {}
LINES = [call("price", item="apple"), call("pay", cents=30), say("Paid.")]


@tool(replay="read_only")
def price(item: str) -> int:
    """The price of an item, in cents."""
    return PRICES[item]


@tool
def pay(cents: int) -> str:
    """Pay the shop."""
    return f"paid {cents} cents"


def make(**more):
    return Agent(
        ScriptedModel(LINES), tools=[price, pay], system=SYSTEM, settings=SETTINGS, policy=POLICY, **more
    )
'''
TEST = """
from shop import make


def test_buy(refold_run):
    run = refold_run(make, "Buy an apple.")
    assert run.state == "COMPLETED"
"""

ALONE = (
    "-p",
    "no:randomly",
    "-p",
    "no:asyncio",
    "-p",
    "no:recording",
    "-p",
    "no:xdist",
    "-p",
    "no:cacheprovider",
)
"""Options of a session without the plugins that only the tests of neighbours need."""

Session = Callable[..., pytest.RunResult]


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Run pytest on files of text, given by name, with options; a shop is there."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # A file that changes within a second, and keeps its length, would be taken from the cache.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    pytester.syspathinsert()

    def run(*options: str, shop: str = SHOP, **files: str) -> pytest.RunResult:
        for name, text in {"shop": shop, **files}.items():
            path = pytester.path / f"{name}.py"
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
        return pytester.runpytest_inprocess("-q", *ALONE, *options)

    return run


def recordings(pytester: pytest.Pytester) -> list[str]:
    """The names of all recordings of a session, with those of their test files."""
    folder: Path = pytester.path / "recordings"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.jsonl"))
