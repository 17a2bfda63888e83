"""Shrinking: what is left is a valid log, shows what it is to show, and has nothing that could be left
out.
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.composition import observed
from refold.reducers.events import (
    ContextObserved,
    Decision,
    Event,
    Fact,
    ModelResponded,
    RunForked,
    RunStarted,
    ToolReturned,
)
from refold.reducers.messages import Message
from refold.reducers.state import RunState
from refold.reducers.views import view
from refold.reducers.vocabulary import SOURCE_LABEL, Role
from refold.replay import Audit, audit, verify
from refold.replay.queries.rows import state_question
from refold.replay.shrink.rederivation import (
    Log,
    SaltedFact,
    find_first_divergence,
    make_divergence_property,
    make_property,
    rederive,
    write,
)
from refold.replay.shrink.search import ShowsNothing, read_facts, shrink_log
from refold.store import MemoryStore
from refold.testing import strategies
from refold.testing.strategies.driver import Driver
from support import audits, golden, runs
from support.planted import planted
from support.scenario import SALT, Scenario

pytestmark = pytest.mark.anyio

SHORT = [name for name in golden.names() if len(golden.recorded(name)) < 200]


@pytest.fixture
def anyio_backend() -> str:
    """Nothing here knows of an event loop."""
    return "asyncio"


def told(log: Sequence[Event]) -> list[SaltedFact]:
    facts = [event for event in log if isinstance(event, Fact)]
    return [SaltedFact(place, fact, b"salt") for place, fact in enumerate(facts)]


def audited(log: Log) -> Audit:
    return audits.audited(each.event for each in log.events)


def steps(least: int) -> Callable[[RunState], bool]:
    return lambda state: state.spent.steps >= least


@pytest.mark.parametrize("name", SHORT)
def test_every_log_is_derived_again_from_its_facts(name: str) -> None:
    """All facts of a clean log, each in its place, give the log back, decision by decision."""
    log = [event for event in golden.events(name) if not hasattr(event, "annotation")]
    facts = [each for each in log if isinstance(each, Fact)]
    assert facts == [each.fact for each in rederive(told(log)).told][: len(facts)]


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("least", [1, 2, 3])
def test_what_is_left_is_valid_and_least(name: str, least: int) -> None:
    """It audits clean, shows it, and without any single one of its facts it would not."""
    log, shows = told(golden.events(name)), make_property(steps(least))
    if not shows(rederive(log)):
        with pytest.raises(ShowsNothing):
            shrink_log(name, log, shows)
        return
    found, whole = shrink_log(name, log, shows), rederive(log)
    assert audited(found).clean
    assert shows(found)
    assert len(found.told) <= len(log)
    for place in range(1, len(found.told)):
        less = [*found.told[:place], *found.told[place + 1 :]]
        assert not shows(rederive(less, whole=whole)), place


@given(name=st.sampled_from(SHORT), data=st.data())
def test_any_facts_of_a_log_make_a_log(name: str, data: st.DataObject) -> None:
    """Whatever is left out, what is left is a log that audits clean, of some of the facts, in their order."""
    log = told(golden.events(name))
    some = [each for each in log[1:] if data.draw(st.booleans())]
    found = rederive([log[0], *some])
    assert audited(found).clean
    places = [each.place for each in found.told]
    assert places == sorted(set(places))
    assert {*places} <= {0, *(each.place for each in some)}


CHANGED = [
    pytest.param(name, index, event, id=f"{name}, {said}")
    for name in SHORT
    for said, index, event in planted(golden.events(name))
]


@pytest.mark.parametrize(("name", "index", "event"), CHANGED)
def test_a_difference_is_kept(name: str, index: int, event: Event) -> None:
    """What is left of a log with one wrong decision has one, of the same kind and in the same fields."""
    log = golden.events(name)
    log[index] = event
    parted = find_first_divergence(log)
    assert parted is not None
    shows = make_divergence_property(parted)
    found = shrink_log(name, told(log), shows, twist=parted)
    assert shows(found)
    assert type(parted.how.recorded) is type(event)
    assert len(found.told) <= len(told(log))


@pytest.mark.parametrize("kind", ["missing", "extra"])
async def test_a_missing_and_an_extra_decision(kind: str) -> None:
    """They are kept too: what is left lacks it, or has it, on the fact on which it did."""
    async with MemoryStore() as store:
        await runs.recorded_run(store)
        facts = await read_facts(store, runs.RUN)
    log = [each.event for each in rederive(facts).events]
    pruned = next(n for n, each in enumerate(log) if type(each).__name__ == "HistoryPruned")
    changed = [*log[:pruned], *([log[pruned]] * 2 if kind == "extra" else []), *log[pruned + 1 :]]
    if kind == "extra":
        changed = [*log[: pruned + 1], *log[pruned:]]
    parted = find_first_divergence(changed)
    assert parted is not None
    assert kind == parted.how.difference
    shows = make_divergence_property(parted)
    assert shows(shrink_log(runs.RUN, facts, shows, twist=parted))


async def test_a_run_that_is_written() -> None:
    """It is a run like any other: whole, clean, with the salts of what it kept, and a note that says what it
    is.
    """
    async with MemoryStore() as store, MemoryStore() as made:
        await runs.recorded_run(store)
        facts = await read_facts(store, runs.RUN)
        found = shrink_log(runs.RUN, facts, make_property(state_question("calls >= 2").matches))
        assert runs.RUN == await write(made, found, "why")
        assert (await verify(made, runs.RUN)).problem is None
        assert (await audit(made, runs.RUN)).clean
        kinds = [each.kind async for chunk in made.read(runs.RUN) for each in chunk]
    assert ["run_started", "note_added"] == [kinds[0], kinds[-1]]
    assert len(found.told) < len(facts)


async def test_a_fork_that_is_written() -> None:
    """A fork stays one, of a parent that has no more than what it stands on."""
    async with MemoryStore() as store, MemoryStore() as made:
        await runs.recorded_run(store)
        await runs.agent(store=store).fork(runs.RUN, 17, fork_id="f").result()
        facts = await read_facts(store, "f")

        def shows(log: Log) -> bool:
            kinds = [type(each.event) for each in log.events]
            return RunForked in kinds and ModelResponded in kinds[kinds.index(RunForked) :]

        found = shrink_log("f", facts, shows)
        assert [RunStarted, RunForked, ModelResponded] == [type(each.fact) for each in found.told]
        assert "f" == await write(made, found, "why")
        assert (await verify(made, "f")).problem is None
        assert (await audit(made, "f")).clean
        assert [runs.RUN] == [origin.run for origin in await made.lineage("f")]


async def test_texts_are_cut_where_they_make_no_difference() -> None:
    """Long words become short ones, with sizes that fit; where one is what is looked for, it stays."""
    async with MemoryStore() as store:
        await runs.recorded_run(store)
        facts = await read_facts(store, runs.RUN)
    found = shrink_log(runs.RUN, facts, make_property(steps(3)))
    texts = [
        each.fact.content.text
        for each in found.told
        if isinstance(each.fact, ModelResponded)
        if each.fact.content
    ]
    assert max(map(len, texts)) <= 1

    def says(log: Log) -> bool:
        return any(
            isinstance(each.event, ToolReturned)
            and each.event.content
            and each.event.content.output == "b is there"
            for each in log.events
        )

    assert says(shrink_log(runs.RUN, facts, says))


def _observing() -> tuple[list[SaltedFact], Log]:
    """A run of three questions, of which another harness kept the task and the last; a message joined behind
    the task.

    Messages 1 and 2 are the opening, 3 an answer, 4 a question, 5 an answer, 6 a question, 7 an answer, 8
    what joined.
    """
    scenario = Scenario({"preset": "observed"}, labels={SOURCE_LABEL: "made"})
    for number in (1, 2):
        scenario.answer(f"answer {number}")
        scenario.say(f"question {number}")
    scenario.answer("the last")
    fact = ContextObserved(at=scenario.at, kept=((2, 2), (5, 7)), after=(5,), continues=True)
    scenario.feed(observed(scenario.state, fact, [Message(role=Role.USER, text="joined")], SALT))
    log = told(scenario.log)
    return log, rederive(log)


def _texts(log: Log) -> list[str]:
    state = list(log.states())[-1]
    events = {seq: each.event for seq, each in enumerate(log.events, 1)}
    return [message.text for message in view(state, events)]


@pytest.mark.parametrize(
    ("gone", "texts"),
    [
        pytest.param((), ["do it", "answer 2", "joined", "question 2", "the last"], id="all of it"),
        pytest.param(
            (1, 2), ["do it", "answer 2", "joined", "question 2", "the last"], id="of what was dropped"
        ),
        pytest.param((3, 4), ["do it", "joined", "the last"], id="what was kept, and what it stands behind"),
    ],
)
def test_a_change_of_the_context_means_the_same_messages(gone: tuple[int, ...], texts: list[str]) -> None:
    """Whatever is left out before it, it keeps those that it kept, and what joins stands where it stood."""
    log, whole = _observing()
    less = rederive([each for each in log if each.place not in gone], whole=whole)
    assert texts == _texts(less)
    assert audited(less).clean


@given(driver=strategies.runs(), data=st.data())
def test_messages_keep_their_origins(driver: Driver, data: st.DataObject) -> None:
    """All facts give the same log again, byte for byte, and any of them one that audits clean."""
    log = told(driver.log)
    whole = rederive(log)
    assert whole == rederive(log, whole=whole)
    assert list(whole.states())[-1].messages == len(whole.origins)
    assert len(set(whole.origins)) == len(whole.origins)
    gone = data.draw(
        st.sets(st.sampled_from(log[1:]).map(lambda each: each.place)) if log[1:] else st.just(set[int]())
    )
    less = rederive([each for each in log if each.place not in gone], whole=whole)
    assert audited(less).clean
    assert len(set(less.origins)) == len(less.origins)


def test_what_is_shrunk_names_the_messages_that_it_named() -> None:
    """Where what the model is shown is what is looked for, nothing else is left of the log."""
    log, whole = _observing()

    def shows(candidate: Log) -> bool:
        kept = [each.event for each in candidate.events if isinstance(each.event, ContextObserved)]
        return bool(kept) and "do it" in _texts(candidate) and "be good" not in _texts(candidate)

    assert shows(whole)
    found = shrink_log("r1", log, shows)
    assert [RunStarted, ModelResponded, ContextObserved] == [type(each.fact) for each in found.told]


def test_how_many_are_tried() -> None:
    """After so many tries the smallest log so far is returned, and it shows what is looked for."""
    log, shows = told(golden.events("preset_hermes")), make_property(steps(2))
    asked = list[Log]()

    def counted(candidate: Log) -> bool:
        asked.append(candidate)
        return shows(candidate)

    assert shows(shrink_log("r", log, counted, most=5))
    assert 5 == len(asked)


class Counted:
    """A twist of no fact, which counts how often facts are derived: each asks whether it is the twisted
    one.
    """

    asked = 0

    @property
    def place(self) -> int:
        self.asked += 1
        return -1

    def apply(self, decisions: Sequence[Decision]) -> list[Decision]:
        return [*decisions]


@pytest.mark.parametrize("most", [1, 3])
def test_when_no_more_may_be_tried_nothing_is_derived(most: int) -> None:
    """A log is derived only to be tried: what may not be asked about costs nothing."""
    log, counted = told(golden.events("preset_hermes")), Counted()
    found = shrink_log("r", log, lambda each: len(each.told) == len(log), most=most, twist=counted)
    assert len(log) == len(found.told)
    assert counted.asked <= most * len(log)


def test_no_more_are_tried_wherever_it_stops() -> None:
    """Be it among the facts or among the texts: so many are asked about, and no log more."""
    log = told(golden.events("two_tools_then_an_answer"))
    whole, asked = rederive(log), list[Log]()

    def shows(candidate: Log) -> bool:
        asked.append(candidate)
        return candidate == whole

    shrink_log("r", log, shows)
    for most in range(1, len(asked)):
        asked.clear()
        assert whole == shrink_log("r", log, shows, most=most)
        assert most == len(asked)
