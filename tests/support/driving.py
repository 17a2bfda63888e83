"""What tests of the engine share: models and tools that do as a test says, and the judgement over what they
left.
"""

from collections.abc import AsyncGenerator, Callable

import msgspec

from refold.engine import Finished, ModelRequest, Recorded, Reply, Run, RunResult, Update
from refold.engine.models.protocol import Delta
from refold.reducers import codec
from refold.reducers.events import Event, ModelRequested, kind_of
from refold.replay import audit, verify
from refold.store.protocol import Store

Stream = Callable[[ModelRequest], AsyncGenerator[Delta | Reply]]


class StreamingModel:
    """A model whose streams are a test's own generators, one a request."""

    def __init__(self, *streams: Stream, priced: bool = True) -> None:
        self._streams = list(streams)
        self.name, self.priced = "streaming", priced

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply]:
        return self._streams.pop(0)(request)

    async def aclose(self) -> None:
        """Nothing to let go of."""


async def events_of(store: Store, run: str) -> list[Event]:
    """A run's events as they stand in its log."""
    return [
        codec.decode(each.kind, each.body, each.content) async for chunk in store.read(run) for each in chunk
    ]


async def kinds(store: Store, run: str) -> list[str]:
    return [kind_of(event) for event in await events_of(store, run)]


async def assert_sound(store: Store, run: str) -> None:
    """The log is whole, and every decision in it follows from its facts."""
    verified, judged = await verify(store, run), await audit(store, run)
    assert verified.problem is None
    assert not judged.findings
    assert judged.clean


async def watch(run: Run, seen: list[Update]) -> None:
    """Collect a run's updates until it stops."""
    async for update in run.updates():
        seen.append(update)


def assert_each_stream_finished_once(seen: list[Update]) -> None:
    """Each request that was recorded has one `Finished`, after it and before the event that answers it."""
    asked = [u.seq for u in seen if isinstance(u, Recorded) and isinstance(u.event, ModelRequested)]
    finished = [u.request for u in seen if isinstance(u, Finished)]
    assert asked == finished
    for place, update in enumerate(seen):
        answers = getattr(update.event, "request", None) if isinstance(update, Recorded) else None
        if answers in asked:
            assert any(isinstance(before, Finished) and answers == before.request for before in seen[:place])


def told(seen: list[Update]) -> list[int]:
    """The numbers of the events that were reported as recorded."""
    return [update.seq for update in seen if isinstance(update, Recorded)]


def plain(result: RunResult) -> dict[str, object]:
    """A result as plain data, for one readable comparison."""
    data: dict[str, object] = msgspec.to_builtins(result)
    return data
