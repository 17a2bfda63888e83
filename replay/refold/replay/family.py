"""A run and the runs that its calls started, as deep as they go."""

from collections.abc import Iterable

from refold.reducers.events import ChildEnded, Event, ModelResponded, RunForked, RunStarted
from refold.reducers.meters import child_run_id
from refold.replay.reader import events
from refold.store.protocol import Store


async def family_of(store: Store, run: str) -> list[str]:
    """The ids of the run and of all runs below it that the store has, each once. Raises `UnknownRun`."""
    found, left = [run], [run]
    while left:
        for child in await _children(store, left.pop()):
            if child not in found and (await store.head(child)).seq:
                found.append(child)
                left.append(child)
    return found


async def _children(store: Store, run: str) -> list[str]:
    """The runs that calls of this one started, or would have, ended or not."""
    agents, found = frozenset[str](), list[str]()
    async for stored, event in events(store, run):
        if isinstance(event, RunStarted | RunForked):
            agents = frozenset(tool.name for tool in event.tools or () if tool.agent) or agents
        found += _started(stored.run, event, agents)  # of a fork's prefix: what its parent started
    return found


def _started(run: str, event: Event, agents: frozenset[str]) -> Iterable[str]:
    if isinstance(event, ChildEnded):
        return [event.run]
    calls = event.calls if isinstance(event, ModelResponded) else ()
    return [child_run_id(run, call.id) for call in calls if call.name in agents]
