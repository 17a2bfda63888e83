"""Runs that start runs: a boss who hands tasks on to a writer."""

from collections.abc import Sequence
from typing import Any

import anyio

from refold.engine import Agent, Reply, ScriptedModel, call, say, tool
from refold.engine.models.script import Line
from refold.reducers.events import Event, ToolReturned
from refold.reducers.meters import child_run_id
from refold.reducers.vocabulary import ToolError
from refold.store.protocol import Store
from support.clocks import VirtualClock
from support.driving import assert_sound, events_of

PARENT = "p"
CHILD = child_run_id(PARENT, "c1")
RETRY_NOTHING: dict[str, Any] = {"retry": {"attempts": 1}}


def jumping() -> VirtualClock:
    return VirtualClock(jumps=True)


def writer(*script: Line, policy: dict[str, Any] | None = None, **options: Any) -> Agent:
    return Agent(model=ScriptedModel(script), name="writer", policy=policy or RETRY_NOTHING, **options)


def boss(
    *script: Line,
    to: Sequence[Agent] = (),
    store: Store,
    policy: dict[str, Any] | None = None,
    **options: Any,
) -> Agent:
    return Agent(
        model=ScriptedModel(script),
        name="boss",
        handoffs=to,
        store=store,
        policy=policy,
        clock=options.pop("clock", jumping),
        **options,
    )


def hand_on(task: str = "Write it.") -> Reply:
    return call("transfer_to_writer", task=task)


async def the(kind: type[Event], store: Store, run: str = PARENT) -> Any:
    """The one event of this kind in a run's log."""
    (found,) = [event for event in await events_of(store, run) if type(event) is kind]
    return found


async def runs_of(store: Store) -> set[str]:
    return {run async for chunk in store.runs() for run, _ in chunk}


async def result_of_call(store: Store, run: str = PARENT) -> tuple[ToolError | None, str]:
    returned = await the(ToolReturned, store, run)
    return returned.error, returned.content.output


async def all_sound(store: Store) -> None:
    for run in await runs_of(store):
        await assert_sound(store, run)


class Busy:
    """An agent whose run hangs in a tool: `began` is set there."""

    def __init__(self) -> None:
        self.began = anyio.Event()

        @tool(replay="read_only")
        async def hang() -> str:
            self.began.set()
            await anyio.sleep_forever()
            return ""

        self.agent = writer(call("hang"), tools=[hang])


ASKING: dict[str, Any] = {"end_of_turn": "wait"}


def asking(*more: Line) -> Agent:
    return writer(say("Which one?"), *more, policy=ASKING)
