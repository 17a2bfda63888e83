"""A payment whose end nobody sees: the engine dies in the middle of it."""

from pathlib import Path
from typing import Any

import anyio

from refold.engine import Agent, ScriptedModel, call, tool

TOOLS = ("--tools", "console.paying:pay")
PAID: list[int] = []
PAYING: list[anyio.Event] = []
"""What is told of a payment that then never ends; empty: payments end."""


@tool
async def pay(cents: int) -> str:
    """Pay so many cents."""
    PAID.append(cents)
    if PAYING:
        PAYING[0].set()
        await anyio.sleep_forever()
    return f"paid {cents}"


def crash(store: Path, run_id: str, **policy: Any) -> str:
    """A run whose engine stopped in the middle of a payment; its id."""

    async def begin() -> None:
        PAYING.append(anyio.Event())
        agent = Agent(model=ScriptedModel([call("pay", cents=30)]), tools=[pay], policy=policy, store=store)
        async with agent.start("Pay 30 cents.", run_id=run_id):
            await PAYING[0].wait()
        PAYING.clear()

    anyio.run(begin)
    return run_id
