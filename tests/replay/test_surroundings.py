"""What an event belongs to is found without reading on to the end of a log, and is the same."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given

from refold.reducers.events import Event
from refold.replay.reader import Step, event_of
from refold.replay.surroundings import Links, Surroundings, read_surroundings
from refold.store import MemoryStore
from refold.store.protocol import Stored
from refold.testing.strategies.driver import Driver
from support import audits, golden
from support.forging import write
from support.queried import driven, kept

RUN = "r"


def found_by_reading_all(log: Sequence[Stored]) -> list[Surroundings]:
    """What each event of a log belongs to, by every event of it."""
    events: dict[int, Event] = {each.seq: event_of(each) for each in log}
    found = list[Surroundings]()
    for stored in log:
        links = Links({stored.seq: events[stored.seq]})
        for each in log:
            links.take(Step(each))
        found.append(links.of(stored, events))
    return found


async def found(log: Sequence[Stored]) -> list[Surroundings]:
    """The same, as it is shown: of each event by itself."""
    store = MemoryStore()
    await write(store, RUN, audits.records(map(event_of, log)))
    told = [(await read_surroundings(store, RUN, each.seq, each.seq))[0] for each in log]
    return [each.around for each, *_ in told]


@pytest.mark.parametrize("name", golden.names())
def test_of_recorded_logs(name: str) -> None:
    """With persons, doubts, forks and crashes: what came late is found, too."""
    log = audits.chained(audits.records(golden.events(name)))
    assert found_by_reading_all(log) == asyncio.run(found(log))


@given(driver=driven())
def test_of_any_log(driver: Driver) -> None:
    """Whatever happened in it."""
    log = kept(driver.log, RUN)
    assert found_by_reading_all(log) == asyncio.run(found(log))
