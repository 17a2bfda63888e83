"""What the guard against calls that lead nowhere does about them: results shown shorter, calls refused, runs
stopped.
"""

from typing import Any

import msgspec
import pytest

from refold.reducers.guards import Place, Shorten, Stop
from refold.reducers.guards.progress import Stall
from refold.reducers.window import Chunk, Shown, refs
from support.plans import only
from support.scenario import TOOLS
from support.stalling import NAMES, OFF, play, stalling, warned
from support.watching import Watching


def stubbed(watching: Watching) -> list[tuple[str, Any, Any]]:
    said = watching.says(Place.ON_RESULTS)
    assert all(isinstance(each, Shorten) and "stub" == each.text for each in said)
    return [
        (each.call, each.values["call"], each.values["tool"]) for each in said if isinstance(each, Shorten)
    ]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param("a1", [], id="the first is shown whole"),
        pytest.param("a1 a1", [("c2", "c1", "act")], id="the second refers to it"),
        pytest.param("a1 a1 a1", [("c3", "c1", "act")], id="and so does the third"),
        pytest.param("a1 a2", [], id="another call"),
        pytest.param("a1 a2 a1", [], id="not in a row"),
        pytest.param("af af", [], id="a failure is shown whole"),
        pytest.param("a1a1a1", [("c2", "c1", "act"), ("c3", "c1", "act")], id="in one batch"),
        pytest.param("p1 p1", [("c2", "c1", "job_poll")], id="pollers too"),
        pytest.param("a1 a1 a2 a2", [("c4", "c3", "act")], id="the first of the newest row"),
        pytest.param("a1 say a1", [], id="what was before the turn is not referred to"),
    ],
)
def test_stub(calls: str, expected: list[tuple[str, str, str]]) -> None:
    """From the second identical result in a row on, the later one is shown as a reference to the first."""
    tools = (*TOOLS, msgspec.structs.replace(TOOLS[1], name="job_poll"))
    assert expected == stubbed(play(Watching(Stall(**{**OFF, "stub": 8}), tools), calls))


@pytest.mark.parametrize(("chars", "calls"), [(511, []), (512, ["c2"]), (513, ["c2"])])
def test_stub_only_of_what_is_long(chars: int, calls: list[str]) -> None:
    """A result of fewer characters than the number is shown as it is."""
    watching = Watching(Stall())
    for _ in range(2):
        watching.round(("act", "{}"), output="é" * chars)
    assert calls == [call for call, _, _ in stubbed(watching)]


def test_stub_refers_to_nothing_that_is_gone() -> None:
    """A result that is not in the window any more, or not whole, is not referred to."""
    watching = stalling("a1 a1", stub=1)
    assert stubbed(watching)
    whole = watching.state
    watching.state = msgspec.structs.replace(whole, window=only(whole.window, set()))
    assert [] == stubbed(watching)
    shorter = [
        msgspec.structs.replace(ref, shown=Shown(seq=1, whole=ref.size, cuts=()))
        for ref in refs(whole.window)
    ]
    window = msgspec.structs.replace(whole.window, chunks=(Chunk(tuple(shorter)),))
    watching.state = msgspec.structs.replace(whole, window=window)
    assert [] == stubbed(watching)


def stopped(watching: Watching, place: Place) -> list[tuple[Any, ...]]:
    return [
        (each.code, each.text, *each.measured.values())
        for each in watching.says(place)
        if isinstance(each, Stop)
    ]


@pytest.mark.parametrize(
    ("part", "calls", "following", "stops"),
    [
        pytest.param("exact_failure", "lf lf", "lf", False, id="exact_failure: 2 of 3 failures"),
        pytest.param("exact_failure", "lf lf lf", "lf", True, id="exact_failure: 3"),
        pytest.param("exact_failure", "lf lf lf", "lg", False, id="exact_failure: another call may run"),
        pytest.param("exact_failure", "lf lf lf", "lgaflf", True, id="exact_failure: beside others"),
        pytest.param("exact_failure", "lf lf lf s1", "lf", False, id="exact_failure: progress clears"),
        pytest.param("exact_failure", "pf pf pf", "pf", True, id="exact_failure: pollers too"),
        pytest.param("no_progress", "l1 l1", "l1", False, id="no_progress: 2 of 3 results"),
        pytest.param("no_progress", "l1 l1 l1", "l1", True, id="no_progress: 3"),
        pytest.param("no_progress", "l1 l1 l1", "l2", False, id="no_progress: another call may run"),
        pytest.param("no_progress", "a1 a1 a1", "a1", False, id="no_progress: only what only reads"),
        pytest.param("no_progress", "p1 p1 p1", "p1", False, id="no_progress: not pollers"),
    ],
)
def test_stop_before_the_next_such_call(part: str, calls: str, following: str, stops: bool) -> None:
    """At the second number the next such call is refused, and the run ends; without `stop` it goes on."""
    poll = msgspec.structs.replace(TOOLS[0], name="job_poll")
    for stop in (True, False):
        config = {**OFF, part: (2, 3), "stop": stop, "progress_tools": ("set",)}
        watching = play(Watching(Stall(**config), (*TOOLS, poll)), calls)
        assert [] == stopped(watching, Place.ON_RESULTS)
        watching.answer(
            "",
            *[
                (NAMES[name], f'{{"q":"{end}"}}')
                for name, end in zip(following[::2], following[1::2], strict=True)
            ],
        )
        tool = NAMES[calls[0]]
        expected = [("stalled", "refused:stalled", part, tool, 3)] if stops and stop else []
        assert expected == stopped(watching, Place.ON_CALLS)


def test_a_call_that_is_refused_already_does_not_end_the_run() -> None:
    """Only a call that would run is stopped."""
    watching = stalling("lf lf", exact_failure=(2, 2), stop=True)
    ids = watching.answer("", ("look", '{"q":"f"}'), ("act", "{}"))
    watching.refuse(ids[0])
    assert [] == stopped(watching, Place.ON_CALLS)


@pytest.mark.parametrize(
    ("part", "calls", "stops"),
    [
        pytest.param("same_tool", "lf lg", False, id="same_tool: 2 of 3 failures"),
        pytest.param("same_tool", "lf lg lh", True, id="same_tool: 3"),
        pytest.param("same_tool", "lf lg lh li", True, id="same_tool: more"),
        pytest.param("same_tool", "qf qg qh", False, id="same_tool: a tolerant tool never"),
        pytest.param("identical", "a1 a1", False, id="identical: 2 of 3 calls"),
        pytest.param("identical", "a1 a1 a1", True, id="identical: 3"),
        pytest.param("identical", "q1 q1 q1", True, id="identical: a tolerant tool too"),
        pytest.param("identical", "p1 p1 p1", False, id="identical: not pollers"),
    ],
)
def test_stop_on_the_result(part: str, calls: str, stops: bool) -> None:
    """At the second number the result ends the run; without `stop` it goes on."""
    tools = (*TOOLS, msgspec.structs.replace(TOOLS[1], name="ask"))
    for stop in (True, False):
        config = {**OFF, part: (2, 3), "stop": stop, "tolerant_tools": ("ask",)}
        watching = play(Watching(Stall(**config), tools), calls)
        said = stopped(watching, Place.ON_RESULTS)
        expected = [("stalled", "refused:stalled", part, NAMES[calls[0]], len(calls.split()))]
        assert (expected if stops and stop else []) == said


def test_cycles_only_warn() -> None:
    """A circle never ends a run."""
    watching = stalling("a1 a2 " * 5, cycle=3, stop=True)
    assert [] == stopped(watching, Place.ON_RESULTS)
    watching.answer("", ("act", '{"q":"1"}'))
    assert [] == stopped(watching, Place.ON_CALLS)


def test_a_stop_comes_before_stubs() -> None:
    """A run that ends on a result shortens none any more."""
    said = stalling("a1 a1", identical=(2, 2), stub=1, stop=True).says(Place.ON_RESULTS)
    assert [Stop] == [type(each) for each in said]


def test_names_that_no_tool_has_are_not_repeated() -> None:
    """A name that the model made up stands in no decision."""
    watching = stalling("qf qf", exact_failure=(2, 2), stop=True)
    assert [("exact_failure", "a tool", 2)] == warned(watching)
    watching.answer("", ("ask", '{"q":"f"}'))
    assert [("stalled", "refused:stalled", "exact_failure", "a tool", 2)] == stopped(watching, Place.ON_CALLS)
