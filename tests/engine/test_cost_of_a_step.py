"""What a step asks of its event loop: counted, for that is the same on every machine."""

import asyncio
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from refold.engine import Agent, ScriptedModel, call, calls, outcomes, say, tool
from refold.store import MemoryStore

pytestmark = pytest.mark.anyio

FEW, MANY = 5, 25


@tool(replay="read_only")
async def look() -> str:
    """Look."""
    return "a door"


class Counted:
    """How often the running loop is asked for a task, a callback and a timer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: Counter[str] = Counter()
        self._loop, self._monkeypatch = asyncio.get_running_loop(), monkeypatch

    def count(self, name: str) -> None:
        real = getattr(self._loop, name)

        def counted(*args: Any, **options: Any) -> Any:
            self.asked[name] += 1
            return real(*args, **options)

        self._monkeypatch.setattr(self._loop, name, counted)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("limit", "timers"),
    [
        pytest.param({"type": "step", "value": 1000}, 0, id="no deadline"),
        pytest.param({"type": "time", "value": 3600}, 2, id="a deadline for each request and each call"),
    ],
)
async def test_what_a_step_asks_of_its_loop(
    limit: dict[str, Any], timers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of one call makes a task, or a timer without a deadline, or waits for more than its two appends
    and its model.
    """
    counted = Counted(monkeypatch)
    for name in ("create_task", "call_soon", "call_at"):
        counted.count(name)

    async def asked(steps: int) -> Counter[str]:
        counted.asked.clear()
        model = ScriptedModel([*[call("look") for _ in range(steps)], say("Done.")])
        agent = Agent(model=model, tools=[look], policy={"limits": [limit]}, store=MemoryStore())
        await agent.start("Do it.").result()
        return Counter(counted.asked)

    few, many = await asked(FEW), await asked(MANY)
    steps = MANY - FEW
    assert Counter(call_soon=3 * steps, call_at=timers * steps) == many - few


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_a_call_asks_of_those_in_flight() -> None:
    """After a result each open call is looked up once among those in flight, and compared with none of
    them.
    """

    async def asked(number: int) -> int:
        frames = 0

        def count(frame: FrameType, event: str, arg: object) -> None:
            nonlocal frames
            frames += event == "call" and frame.f_code.co_filename == outcomes.__file__

        model = ScriptedModel([calls(*[("look", {})] * number), say("Done.")])
        agent = Agent(model=model, tools=[look], store=MemoryStore())
        sys.setprofile(count)
        try:
            await agent.start("Do it.").result()
        finally:
            sys.setprofile(None)
        return frames

    few, many = await asked(20), await asked(80)
    assert many < 20 * few
