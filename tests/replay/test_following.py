"""One pass over a log for many: each finds what it finds by itself, whatever becomes of the others."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.errors import DamagedLog, NewerLog
from refold.reducers.guards import BUILTIN
from refold.replay.audit import Auditor
from refold.replay.doubts import DoubtFinder
from refold.replay.queries.blame import Blamer, make_look
from refold.replay.queries.diffs import DifferenceFinder
from refold.replay.queries.rows import state_question
from refold.replay.queries.stats import Counter
from refold.replay.reader import Follower, Pass, Step, follow, follow_all, run_follower, stored_events
from refold.replay.reader import event_of as event_of_stored
from refold.replay.reader import fold_event as folded_once
from refold.replay.summary import Summing
from refold.replay.timeline import Teller
from refold.replay.verification import Verifier
from refold.replay.whatif.comparison import Comparison
from refold.store import MemoryStore
from refold.store.protocol import Record, Stored
from refold.testing.strategies.driver import Driver
from support import audits, golden, runs
from support.forging import records_of, write
from support.queried import driven, kept

RUN = "r1"
ALL: dict[str, Callable[[], Follower[Any]]] = {
    "audit": lambda: Auditor(RUN, BUILTIN),
    "verify": lambda: Verifier(RUN),
    "summary": lambda: Summing(RUN),
    "turns": lambda: Summing(RUN, Teller(lambda _: None)),
    "stats": Counter,
    "bisect": lambda: DifferenceFinder(RUN, state_question("calls > 2")),
    "blame": lambda: Blamer(RUN, "spent.steps", make_look("spent.steps")),
    "doubts": lambda: DoubtFinder(RUN),
    "whatif": lambda: Comparison(RUN, lambda policy: policy),
}


def told(follower: Follower[Any]) -> str:
    found = msgspec.json.encode(follower.result(), order="sorted").decode()
    return f"{found} {type(follower.problem).__name__} {follower.problem}"


def alone_and_together(log: Sequence[Stored]) -> tuple[dict[str, str], dict[str, str]]:
    """What each finds in a pass of its own, and what it finds in one pass with all others."""
    alone = {name: make() for name, make in ALL.items()}
    for each in alone.values():
        follow_all(log, each, registry=BUILTIN)
    together = {name: make() for name, make in ALL.items()}
    follow_all(log, *together.values(), registry=BUILTIN)
    return tuple({name: told(each) for name, each in some.items()} for some in (alone, together))  # type: ignore[return-value]


@given(driver=driven())
def test_together_each_finds_what_it_finds_alone(driver: Driver) -> None:
    """Followers of one pass do not see each other."""
    alone, together = alone_and_together(kept(driver.log, RUN))
    assert alone == together


BROKEN: dict[str, dict[str, Any]] = {
    "no JSON": {"body": b"{"},
    "of a newer refold": {"kind": "dreamt"},
    "other words": {"content": b"1"},
    "another instant": {"at": 1},
    "of another kind": {"kind": "step_exempted", "body": b'{"limit":"x"}', "content": None},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
@given(driver=driven(), place=st.integers(0, 10_000))
def test_damage_ends_each_where_it_ends_alone(change: dict[str, Any], driver: Driver, place: int) -> None:
    """What one of them cannot take keeps no other from going on, and is told of nobody else."""
    log = kept(driver.log, RUN)
    place %= len(log)
    log[place] = msgspec.structs.replace(log[place], **change)
    alone, together = alone_and_together(log)
    assert alone == together


def test_who_does_not_read_a_part_is_not_kept_by_it() -> None:
    """Words that cannot be read end those who read words, and nobody else."""
    log = audits.chained(audits.records(golden.events("two_tools_then_an_answer")))
    place = next(place for place, each in enumerate(log) if each.kind == "model_responded")
    log[place] = msgspec.structs.replace(log[place], content=b"{")
    auditor, counter = Auditor(audits.RUN), Counter()
    follow_all(log, auditor, counter)
    assert isinstance(auditor.problem, DamagedLog)
    assert (None, len(log)) == (counter.problem, counter.result().events)


class Looking(Follower[list[int]]):
    """Remembers what it was shown, up to an event; `asks` looks at each."""

    folds = True

    def __init__(self, upto: int, asks: Callable[[Step], object] = lambda step: None) -> None:
        self._upto, self._asks, self._seqs = upto, asks, list[int]()

    def take(self, step: Step) -> None:
        """See `Follower`."""
        self._seqs.append(step.stored.seq)
        self._asks(step)
        self.over = step.stored.seq == self._upto

    def result(self) -> list[int]:
        """See `Follower`."""
        return self._seqs


@pytest.mark.anyio
async def test_a_log_is_read_as_far_as_somebody_asks() -> None:
    """Once all have seen enough nothing more is read, and who has is shown no more."""
    store, read = MemoryStore(), list[int]()
    await runs.recorded_run(store)

    async def source() -> AsyncIterator[Stored]:
        async for stored in stored_events(store, runs.RUN):
            read.append(stored.seq)
            yield stored

    first, second = Looking(3), Looking(5)
    await follow(source(), first, second)
    assert ([1, 2, 3], [1, 2, 3, 4, 5]) == (first.result(), second.result())
    assert [1, 2, 3, 4, 5] == read


def test_each_event_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask for an event, and for the states around it, it is decoded once, and folded once."""
    decoded, folded = list[int](), list[int]()

    def event_of(stored: Stored, *, content: bool = True) -> Any:
        decoded.append(stored.seq)
        return event_of_stored(stored, content=content)

    def fold(state: Any, stored: Stored, *args: Any) -> Any:
        folded.append(stored.seq)
        return folded_once(state, stored, *args)

    monkeypatch.setattr("refold.replay.reader.event_of", event_of)
    monkeypatch.setattr("refold.replay.reader.fold_event", fold)
    log = audits.chained(audits.records(golden.events("two_tools_then_an_answer")))
    asking = [Looking(-1, lambda step: (step.event, step.bare, step.before, step.after)) for _ in range(3)]
    follow_all(log, *asking, registry=BUILTIN)
    assert [each.seq for each in log] == decoded == folded
    decoded.clear()
    follow_all(log, Looking(-1), registry=BUILTIN)
    assert [each.seq for each in log] == decoded


def test_nothing_is_decoded_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit of a log that agrees reads facts and annotations, and no decision."""
    decoded = list[str]()

    def event_of(stored: Stored, *, content: bool = True) -> Any:
        decoded.append(stored.kind)
        return event_of_stored(stored, content=content)

    monkeypatch.setattr("refold.replay.reader.event_of", event_of)
    log = audits.chained(audits.records(golden.events("two_tools_then_an_answer")))
    auditor = Auditor(audits.RUN)
    follow_all(log, auditor)
    assert auditor.result().clean
    assert auditor.result().facts == len(decoded)


@pytest.mark.anyio
async def test_alone_what_keeps_it_is_raised() -> None:
    """Whoever asks one thing of a run gets an answer for all of it, or the reason why there is none."""
    store = MemoryStore()
    await runs.recorded_run(store)
    log: list[Record] = await records_of(store, runs.RUN)
    newer = MemoryStore()
    await write(newer, runs.RUN, [*log[:9], msgspec.structs.replace(log[9], kind="dreamt")])
    with pytest.raises(NewerLog, match="event 10"):
        await run_follower(Counter(), newer, runs.RUN)


def test_what_cannot_be_folded_is_no_state() -> None:
    """Behind an event that cannot stand nobody is told of a state, and who asks for none goes on."""
    log = audits.chained(audits.records(golden.events("two_tools_then_an_answer")))
    gone = [each for each in log if each.seq != 3]
    states, numbers = Looking(-1, lambda step: step.after), Looking(-1)
    going = Pass([states, numbers])
    assert all(going.take(each) for each in gone)
    assert [1, 2, 4] == states.result()
    assert [each.seq for each in gone] == numbers.result()
    assert "event 3 is missing before it" in str(states.problem)
