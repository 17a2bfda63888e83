"""`doubts`: calls whose end nobody saw, told from a log alone."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.effects import doubtful
from refold.reducers.events import (
    Annotation,
    DoubtResolved,
    LateResult,
    Manifest,
    ModelFailed,
    NoteAdded,
    Remark,
    RunResumed,
    ToolReturned,
)
from refold.reducers.evolution import evolve
from refold.reducers.vocabulary import Doubt, FailureClass, Replay, ToolError
from refold.replay.doubts import DoubtfulCall, doubt_of, doubts, remark_of
from refold.replay.reader import Pass
from refold.replay.timeline import Teller
from refold.store import MemoryStore
from refold.store.protocol import Record, UnknownRun
from support import golden
from support.following import unchained
from support.forging import recorded, write
from support.scenario import SECOND, START, TOOLS, Scenario

pytestmark = pytest.mark.anyio

ALL = (*TOOLS, Manifest(name="book", replay=Replay.RECONCILABLE))


def begun(*tools: str, **policy: Any) -> Scenario:
    run = Scenario(policy, tools=ALL)
    run.answer("", *[(tool, "{}") for tool in tools], after=5)
    return run


def crashed(*tools: str, **policy: Any) -> Scenario:
    run = begun(*tools, **policy)
    run.resume(*doubtful(run.state), downtime=10)
    return run


def after(run: Scenario, *steps: Callable[[Scenario], object]) -> Scenario:
    for step in steps:
        step(run)
    return run


def says(call: str, doubt: Doubt) -> Callable[[Scenario], object]:
    def say(run: Scenario) -> object:
        fact = DoubtResolved(at=run.at, call=call, doubt=doubt, by="tool:book", reconciled=True)
        return run.feed(fact)

    return say


def resolved(call: str, doubt: Doubt) -> Callable[[Scenario], object]:
    return lambda run: run.resolve(call, doubt)


def told(call: str) -> Callable[[Scenario], object]:
    return lambda run: run.result(call, error=ToolError.IN_DOUBT)


def beside(run: Scenario, note: Annotation) -> None:
    run.log.append(note)
    run.state = evolve(run.state, note)


def noted(text: str | None, *, about: int | None = None) -> Callable[[Scenario], object]:
    """A note of ann's about the newest result, or about another event; None: its text was erased."""

    def note(run: Scenario) -> None:
        results = [seq for seq, event in enumerate(run.log, 1) if isinstance(event, ToolReturned)]
        said = None if text is None else Remark(text=text)
        seq = results[-1] if about is None else about or None
        beside(run, NoteAdded(at=run.at, by="ann", seq=seq, content=said))

    return note


def late(call: str | None) -> Callable[[Scenario], object]:
    def came(run: Scenario) -> None:
        fact = (
            ToolReturned(at=run.at, call=call)
            if call
            else ModelFailed(at=run.at, request=1, failure=FailureClass.OTHER)
        )
        beside(run, LateResult(at=run.at, fact=fact))

    return came


def unattended(run: Scenario) -> object:
    return run.feed(RunResumed(at=run.at, in_doubt=doubtful(run.state), unattended=True))


async def found(run: Scenario) -> tuple[DoubtfulCall, ...]:
    """What `doubts` says of the log."""
    store, at = MemoryStore(), START
    records = list[Record]()
    for event in run.log:
        at = getattr(event, "at", at)
        records.append(recorded(event, at))
    await write(store, "r1", records)
    return await doubts(store, "r1")


ASK: Any = {"doubt": "ask"}


@pytest.mark.parametrize(
    ("run", "rows"),
    [
        pytest.param(begun("look", "set", "missing"), [], id="what may be repeated is in no doubt"),
        pytest.param(begun("act", "book"), ["c1 open", "c2 open"], id="the log ends with them begun"),
        pytest.param(after(begun("act"), lambda run: run.result("c1")), [], id="it returned"),
        pytest.param(crashed("act", "look"), ["c1 open"], id="found in doubt, and nothing came of it yet"),
        pytest.param(crashed("act", **ASK), ["c1 asked"], id="a person is asked"),
        pytest.param(after(crashed("act"), told("c1")), ["c1 told"], id="the model was told"),
        pytest.param(
            after(begun("act"), lambda run: run.cancel(), told("c1")), ["c1 told"], id="cut off when the run stopped"
        ),
        pytest.param(
            after(begun("look", "set", "act"), lambda run: run.cancel(), *map(told, ("c1", "c2", "c3"))),
            ["c2 told", "c3 told"],
            id="cut off before it was repeated: only what changes nothing is in no doubt",
        ),
        pytest.param(
            after(crashed("act", **ASK), resolved("c1", Doubt.HAPPENED)),
            ["c1 resolved happened by ann"],
            id="a person knows",
        ),
        pytest.param(
            after(crashed("act", **ASK), resolved("c1", Doubt.UNKNOWN), told("c1")),
            ["c1 resolved unknown by ann"],
            id="a person knows that nobody does",
        ),
        pytest.param(
            after(crashed("act", "act", **ASK), resolved("c1", Doubt.DID_NOT)),
            ["c1 resolved did_not by ann", "c2 asked"],
            id="one of two: it does not run before the other is known",
        ),
        pytest.param(
            after(crashed("act"), resolved("c1", Doubt.DID_NOT)), ["c1 open"], id="it runs again, and nobody saw it end"
        ),
        pytest.param(
            after(crashed("act"), resolved("c1", Doubt.DID_NOT), lambda run: run.result("c1")),
            ["c1 resolved did_not by ann"],
            id="it ran again",
        ),
        pytest.param(
            after(crashed("act"), resolved("c1", Doubt.DID_NOT), lambda run: run.cancel(), told("c1")),
            ["c1 told did_not by ann"],
            id="it ran again, and was cut off",
        ),
        pytest.param(
            after(begun("act"), unattended, resolved("c1", Doubt.DID_NOT)),
            ["c1 resolved did_not by ann"],
            id="written down by somebody who began nothing",
        ),
        pytest.param(
            after(crashed("book"), says("c1", Doubt.HAPPENED), lambda run: run.result("c1")),
            ["c1 resolved happened by tool:book"],
            id="its tool knows",
        ),
        pytest.param(
            after(crashed("book", **ASK), says("c1", Doubt.UNKNOWN)),
            ["c1 asked unknown by tool:book"],
            id="its tool does not know, and a person is asked",
        ),
        pytest.param(
            after(crashed("book"), says("c1", Doubt.UNKNOWN), told("c1")),
            ["c1 told unknown by tool:book"],
            id="its tool does not know, and the model is told",
        ),
        pytest.param(after(crashed("act"), lambda run: run.result("c1")), [], id="it returned after all"),
        pytest.param(after(crashed("act"), told("c1"), late("c1")), [], id="it returned after all, too late"),
        pytest.param(
            after(crashed("act", "act"), late("c2"), told("c1"), told("c2"), late(None)),
            ["c1 told"],
            id="another one returned too late",
        ),
        pytest.param(
            after(begun("act"), lambda run: run.cancel(), told("c1"), noted("it happened: I saw it")),
            ["c1 resolved happened by ann"],
            id="noted after the end",
        ),
        pytest.param(
            after(crashed("act"), told("c1"), noted("it did not happen")),
            ["c1 resolved did_not by ann"],
            id="noted while the run goes on",
        ),
        pytest.param(
            after(crashed("act"), told("c1"), noted("nobody knows: not even the bank")),
            ["c1 resolved unknown by ann"],
            id="noted that nobody will know",
        ),
        pytest.param(
            after(crashed("act", **ASK), resolved("c1", Doubt.UNKNOWN), told("c1"), noted("it happened")),
            ["c1 resolved happened by ann"],
            id="known later",
        ),
        pytest.param(
            after(crashed("act"), told("c1"), noted("it happened"), noted("it did not happen: mistyped")),
            ["c1 resolved did_not by ann"],
            id="the last note counts",
        ),
        pytest.param(
            after(crashed("act"), told("c1"), noted("it happened to rain"), noted("It happened"), noted("so it happened")),
            ["c1 told"],
            id="notes that say something else",
        ),
        pytest.param(after(crashed("act"), told("c1"), noted(None)), ["c1 told"], id="a note that was erased"),
        pytest.param(
            after(crashed("act"), told("c1"), noted("it happened", about=2), noted("it happened", about=0)),
            ["c1 told"],
            id="notes about another event, and about the run",
        ),
        pytest.param(
            after(crashed("act", "act"), told("c1"), told("c2"), noted("it happened")),
            ["c1 told", "c2 resolved happened by ann"],
            id="one of two is noted",
        ),
        pytest.param(
            after(begun("act"), lambda run: run.result("c1"), noted("it happened")), [], id="a note about no doubt"
        ),
    ],
)  # fmt: skip
async def test_how_a_call_stands(run: Scenario, rows: list[str]) -> None:
    """A row a rule: which calls are in doubt, and how each stands."""
    said = [
        f"{row.call} {row.standing}" + (f" {row.doubt} by {row.by}" if row.doubt else "")
        for row in await found(run)
    ]
    assert rows == said


async def test_the_instants() -> None:
    """A call is in doubt since it was begun, and resolved when somebody said so."""
    run = after(crashed("act", **ASK), lambda run: run.resolve("c1", Doubt.HAPPENED, after=100))
    (row,) = await found(run)
    assert (START + 5 * SECOND, START + 115 * SECOND) == (row.since, row.at)
    assert ("r1", "act") == (row.run, row.tool)


async def test_where_it_is_written() -> None:
    """A call that was told has the number of its result, which a note names; before it has one, it has
    none.
    """
    run = crashed("act")
    assert [None] == [row.result for row in await found(run)]
    (row,) = await found(after(run, told("c1")))
    assert row.result is not None
    assert isinstance(run.log[row.result - 1], ToolReturned)


@given(doubt=st.sampled_from(Doubt), note=st.text())
def test_a_remark_says_what_it_was_made_of(doubt: Doubt, note: str) -> None:
    """Whatever a person adds, their first words are recognised."""
    assert doubt is doubt_of(remark_of(doubt, note))
    assert remark_of(doubt, note).endswith(note)


def test_the_sentences_stay() -> None:
    """They are in logs: another wording would bring back calls that were settled."""
    said = ["it happened", "it did not happen", "nobody knows"]
    assert said == [remark_of(doubt, "") for doubt in (Doubt.HAPPENED, Doubt.DID_NOT, Doubt.UNKNOWN)]


async def test_no_such_run() -> None:
    """A run that is not there is an error, not a run without doubts."""
    with pytest.raises(UnknownRun):
        await doubts(MemoryStore(), "nobody")


def test_a_timeline_tells_doubts() -> None:
    """A turn's row says of each call whether it is in doubt, and of each word who said it."""
    teller, results, marks = Teller(lambda _: None), list[str](), set[str]()
    going = Pass([teller])
    for stored in unchained(golden.events("in_doubt_and_resolved")):
        assert going.take(stored)
        results.append("")
        for turn in teller.result():
            results[-1] = " ".join(call.result for call in turn.calls)
            marks |= set(turn.marks)
    assert ["doubted open doubted", "doubted ok doubted", "doubted ok open", "doubted ok ok"] == results[5:9]
    assert ["happened ok ok", "happened ok ok", "in_doubt ok ok"] == results[10:13]
    assert {
        "resumed, outcome unknown: c1, c3",
        "c3: did_not, by tool:book",
        "c1: happened, by ann",
    } <= marks
