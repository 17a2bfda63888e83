"""Runs that any number of workers may take up: a model that says the same to each, and a tool that notes
whose call it served.
"""

from collections.abc import AsyncGenerator
from typing import Any

import anyio

from refold.engine import Agent, CallContext, ModelRequest, Reply, call, say, tool
from refold.engine.models.protocol import Delta
from refold.reducers.machine import AgentState
from refold.reducers.vocabulary import Role
from refold.replay import audit, state_at, verify
from refold.store.protocol import Store
from support import virtual


class Plain:
    """A model that calls a tool once, then ends; any number of runs may ask it."""

    name = "plain"
    priced = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        await anyio.lowlevel.checkpoint()
        done = any(message.role is Role.TOOL for message in request.messages)
        yield say("Done.") if done else call("act")

    async def aclose(self) -> None:
        """Nothing to let go of."""


class World:
    """A tool that notes whose call it served, and takes its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.done: list[str] = []
        self.at_once, self.most = 0, 0
        self.seconds = seconds

    def agent(self, store: Store, policy: dict[str, Any] | None = None) -> Agent:
        @tool
        async def act(context: CallContext) -> str:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.done.append(context.run)
            await anyio.sleep(self.seconds)
            self.at_once -= 1
            return "done"

        return Agent(
            model=Plain(),
            tools=[act],
            store=store,
            name="worker",
            clock=virtual.LoopClock,
            policy=policy,
        )


ASK = {"approvals": {"chain": [{"approver": "human"}]}}


async def sound(store: Store, run: str) -> bool:
    return (await verify(store, run)).whole and not (await audit(store, run)).differences


async def state_of(store: Store, run: str) -> AgentState:
    return (await state_at(store, run))[0].agent_state
