"""The guard against calls that lead nowhere: each of its parts, one below, at, and one above its numbers."""

from itertools import permutations
from typing import Any

import msgspec
import pytest

from refold.reducers.guards import Place, Remind, Shorten, Stop
from refold.reducers.guards.stall import Stall
from refold.reducers.vocabulary import ToolError
from refold.reducers.window import Chunk, Shown, refs
from support.plans import only
from support.scenario import TOOLS
from support.watching import Watching

OFF: dict[str, Any] = dict.fromkeys(
    ("exact_failure", "same_tool", "no_progress", "identical", "cycle", "stub")
)
NAMES = {"l": "look", "a": "act", "s": "set", "p": "job_poll", "g": "x_get_result", "q": "ask"}


def play(watching: Watching, calls: str) -> Watching:
    """One batch a word, one call every two signs: the tool, then how it ends.

    `1`, `2`, …: well, with that result, and arguments of the same number; `f`, `g`, …: failed, arguments of that
    letter; `r`: refused. `say` and `fork` are what they are, `-` is an answer without calls.
    """
    for word in calls.split():
        if word in ("say", "fork"):
            {"say": watching.say, "fork": watching.fork}[word]()
            continue
        made = list(zip(word.strip("-")[::2], word.strip("-")[1::2], strict=True))
        ids = watching.answer("", *[(NAMES[name], f'{{"q":"{end}"}}') for name, end in made])
        for call, (_, end) in zip(ids, made, strict=True):
            if end == "r":
                watching.refuse(call)
            else:
                failed = None if end.isdecimal() else ToolError.RAISED
                watching.result(call, f"result {end}", failed)
    return watching


def stalling(calls: str, **config: Any) -> Watching:
    """A guard with only these parts on."""
    return play(Watching(Stall(**{**OFF, **config})), calls)


def warned(watching: Watching) -> list[tuple[str, str, int]]:
    said = watching.says(Place.BEFORE_REQUEST)
    assert all(isinstance(each, Remind) and each.values == each.saw for each in said)
    return [
        (each.text.removeprefix("stall:"), str(each.values["tool"]), int(each.values["count"]))
        for each in said
        if isinstance(each, Remind)
    ]


def counts(watching: Watching) -> list[int]:
    return [count for _, _, count in warned(watching)]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param("lf", [], id="the first failure"),
        pytest.param("lf lf", [2], id="the second"),
        pytest.param("lf lf lf", [3], id="each time after"),
        pytest.param("lf lg", [], id="other arguments are another call"),
        pytest.param("lf af", [], id="another tool is another call"),
        pytest.param("lf lg lf", [2], id="other calls between do not matter"),
        pytest.param("lf lr lf", [2], id="a refusal is no call"),
        pytest.param("lf - lf", [2], id="nor is an answer without calls"),
        pytest.param("lflf", [2], id="in one batch"),
        pytest.param("lf lf l1", [], id="only in the request that follows"),
        pytest.param("lf lf -", [], id="once"),
        pytest.param("lf lf say", [], id="a turn"),
        pytest.param("lf say lf", [], id="so many a turn"),
        pytest.param("lf fork lf", [], id="a fork begins a turn"),
        pytest.param("lf s1 lf", [], id="a progress tool's success clears"),
        pytest.param("lf sg lf", [2], id="its failure does not"),
    ],
)
def test_exact_failure(calls: str, expected: list[int]) -> None:
    """Failures of the same call are warned of from the second on."""
    assert expected == counts(stalling(calls, exact_failure=(2, 5), progress_tools=("set",)))


def test_a_success_of_the_same_call_clears() -> None:
    """What counts is failures since the call went well."""
    watching = Watching(Stall(**{**OFF, "exact_failure": (2, 5)}))
    for error, expected in (
        (ToolError.RAISED, []),
        (None, []),
        (ToolError.TIMEOUT, []),
        (ToolError.RAISED, [2]),
    ):
        watching.round(("look", "{}"), error=error)
        assert expected == counts(watching)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        pytest.param('{"a":1,"b":[2]}', '{"b": [2], "a": 1}', True, id="keys in any order, blanks anywhere"),
        pytest.param("", "{}", True, id="empty text is {}"),
        pytest.param('{"a":1}', '{"a":"1"}', False, id="1 is not '1'"),
        pytest.param('{"a":1}', '{"a":1.0}', False, id="numbers as they are written"),
        pytest.param("{broken", "{broken", True, id="the same text that is no object"),
        pytest.param("[1]", "[ 1]", False, id="what is no object counts as it is written"),
        pytest.param('{"a":"' + "x" * 300 + '1"}', '{"a":"' + "x" * 300 + '2"}', False, id="to the end"),
    ],
)
def test_the_same_call(first: str, second: str, same: bool) -> None:
    """Calls are the same by name and arguments, as compact JSON with sorted keys."""
    watching = Watching(Stall(**{**OFF, "exact_failure": (2, 5)}))
    watching.round(("look", first), error=ToolError.RAISED)
    watching.round(("look", second), error=ToolError.RAISED)
    assert same == bool(counts(watching))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param("lf lg", [], id="two"),
        pytest.param("lf lg lh", [3], id="three, with any arguments"),
        pytest.param("lf lg lh li", [4], id="each time after"),
        pytest.param("lf lg l1 lh", [], id="its success clears"),
        pytest.param("lf l1 lg lh", [], id="wholly"),
        pytest.param("l1 lf lg lh", [3], id="and no more than that"),
        pytest.param("lf lg a1 lh", [3], id="another tool's does not"),
        pytest.param("lf lg s1 lh", [], id="a progress tool's does"),
        pytest.param("lf ag lh", [], id="another tool's failure is another's"),
        pytest.param("qf qg qh", [3], id="a tolerant tool is warned of too"),
        pytest.param("lflglhli", [4], id="in one batch the highest count is told"),
        pytest.param("lflglhl1", [3], id="of each failure, whatever follows it in its batch"),
    ],
)
def test_same_tool(calls: str, expected: list[int]) -> None:
    """Failures of one tool, whatever its arguments, are warned of from the third on."""
    config = {"same_tool": (3, 8), "progress_tools": ("set",), "tolerant_tools": ("ask",)}
    assert expected == counts(stalling(calls, **config))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param("l1", [], id="once"),
        pytest.param("l1 l1", [2], id="twice"),
        pytest.param("l1 l1 l1", [3], id="each time after"),
        pytest.param("l1 a2 l1", [2], id="other calls between do not matter"),
        pytest.param("l1 l2 l1", [2], id="the same tool otherwise neither"),
        pytest.param("a1 a1", [], id="only of tools that change nothing"),
        pytest.param("s1 s1", [], id="idempotent is not read-only"),
        pytest.param("p1 p1 p1", [], id="pollers may ask again"),
        pytest.param("lf lf", [], id="failures are no results"),
    ],
)
def test_no_progress(calls: str, expected: list[int]) -> None:
    """The same call of a read-only tool with the same result is warned of from the second on."""
    assert expected == counts(stalling(calls, no_progress=(2, 5)))


def test_another_result_starts_anew() -> None:
    """A result is compared with the last of the same call; another one, or a failure, counts from 1 again."""
    watching = Watching(Stall(**{**OFF, "no_progress": (2, 5)}))
    told = []
    for output, error in (
        ("x", None),
        ("x", None),
        ("y", None),
        ("y", None),
        ("y", ToolError.RAISED),
        ("y", None),
    ):
        watching.round(("look", "{}"), output=output, error=error)
        told.append(counts(watching))
    assert [[], [2], [], [2], [], []] == told


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param("a1 a1", [], id="two"),
        pytest.param("a1 a1 a1", [3], id="three"),
        pytest.param("a1 a1 a1 a1", [4], id="each time after"),
        pytest.param("a1 a1 a2 a1", [], id="in a row"),
        pytest.param("a1 a1 - a1", [3], id="an answer without calls is no call"),
        pytest.param("a1a1 a1", [3], id="over batches"),
        pytest.param("af af af", [3], id="failures too"),
        pytest.param("a1 a1 l1", [], id="another name"),
        pytest.param("p1 p1 p1", [], id="not for pollers, by their ending"),
        pytest.param("g1 g1 g1", [], id="or the other one"),
        pytest.param("q1 q1 q1", [], id="or their name"),
        pytest.param("a1 a1 p1 a1", [], id="a poller's call is a call between"),
    ],
)
def test_identical(calls: str, expected: list[int]) -> None:
    """Equal calls with equal results in a row are warned of from the third on."""
    assert expected == counts(stalling(calls, identical=(3, 5), pollers=("ask",)))


def test_identical_results_only() -> None:
    """A call with another result, or the same words as a failure, is not identical."""
    watching = Watching(Stall(**{**OFF, "identical": (2, 5)}))
    told = []
    for output, error in (
        ("x", None),
        ("y", None),
        ("y", ToolError.RAISED),
        ("y", ToolError.RAISED),
        ("y", ToolError.TIMEOUT),
    ):
        watching.round(("act", "{}"), output=output, error=error)
        told.append(counts(watching))
    assert [[], [], [], [2], []] == told


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param("a1 a2 " * 2 + "a1", [], id="a block of 2, not yet three times"),
        pytest.param("a1 a2 " * 3, [3], id="three times"),
        pytest.param("a1 a2 " * 3 + "a1", [3], id="each time after, from whatever call on"),
        pytest.param("a1 a2 " * 4, [4], id="four times"),
        pytest.param("a1 a2 a3 " * 3, [3], id="a block of 3"),
        pytest.param("a1 a2 a3 " * 2 + "a1 a2", [], id="of 3, one call short"),
        pytest.param("a1 a2 a3 a4 " * 3, [3], id="a block of 4"),
        pytest.param("a1 a2 a3 a4 " * 2 + "a1 a2 a3", [], id="of 4, one call short"),
        pytest.param("a1 a2 a3 a4 a5 " * 4, [], id="5 are no block"),
        pytest.param("a1 a1 a2 " * 3, [3], id="a call may stand in it twice"),
        pytest.param("a1 " * 12, [], id="one call again and again is no circle"),
        pytest.param("a1a2 " * 3, [3], id="in batches of two"),
        pytest.param("a3 " + "a1 a2 " * 3, [3], id="what was before does not matter"),
        pytest.param("a1 a2 " * 3 + "a3", [], id="only the newest calls"),
        pytest.param("a1 a2 " * 40, [32], id="of the last 64"),
        pytest.param("a1 a2 a1 ar a2 a1 a2", [3], id="a refusal is no call"),
    ],
)
def test_cycle(calls: str, expected: list[int]) -> None:
    """The newest calls that repeat a block of 2 to 4 are warned of from the third time on."""
    assert expected == counts(stalling(calls, cycle=3))


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
        (each.code, each.text, *each.saw.values()) for each in watching.says(place) if isinstance(each, Stop)
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


def test_its_numbers_by_default() -> None:
    """Failures warn at 2 and 3, equal results at 2 and 3, circles at 3; nothing stops."""
    watching = play(Watching(Stall()), "lf lf lf")
    assert [
        ("exact_failure", "look", 3),
        ("identical", "look", 3),
        ("same_tool", "look", 3),
    ] == warned(watching)
    assert (False, (2, 5), (3, 8), (2, 5), (3, 5), 3, 512, "turn") == tuple(
        getattr(Stall(), key) for key in ("stop", *OFF, "scope")
    )
    assert [] == warned(play(Watching(Stall(**OFF)), "lf lf lf l1 l1 l1 l1 l2 l1 l2 l1 l2"))


@pytest.mark.parametrize(
    ("scope", "between", "expected"),
    [
        pytest.param("turn", "say", [], id="turn"),
        pytest.param("run", "say", [2], id="run"),
        pytest.param("run", "fork", [], id="run and fork"),
        pytest.param("lineage", "fork", [2], id="lineage"),
    ],
)
def test_scope(scope: str, between: str, expected: list[int]) -> None:
    """What was seen counts in its scope."""
    assert expected == counts(stalling(f"lf {between} lf", exact_failure=(2, 5), scope=scope))


def test_a_batch_goes_on_over_a_fork() -> None:
    """Calls in flight at a fork are still counted, in the fork's scope."""
    watching = stalling("lf", exact_failure=(1, 5))
    first, second = watching.answer("", ("look", '{"q":"f"}'), ("look", '{"q":"f"}'))
    watching.result(first, error=ToolError.RAISED)
    watching.fork()
    assert [] == counts(watching)
    watching.result(second, error=ToolError.RAISED)
    assert [2] == counts(watching)


def test_only_the_last_64_failures_and_results_are_remembered() -> None:
    """What it remembers is bounded: the 64th newest is there, the 65th is forgotten."""
    for others, expected in ((62, [2]), (63, [])):
        watching = Watching(Stall(**{**OFF, "exact_failure": (2, 5)}))
        # A failure is one of a call and one of its tool.
        for number in (0, *range(1, others + 1), 0):
            watching.round(("look", f'{{"q":{number}}}'), error=ToolError.RAISED)
        assert expected == counts(watching)
    for others, expected in ((63, [2]), (64, [])):
        watching = Watching(Stall(**{**OFF, "no_progress": (2, 5)}))
        for number in (0, *range(1, others + 1), 0):
            watching.round(("look", f'{{"q":{number}}}'))
        assert expected == counts(watching)


def test_names_that_no_tool_has_are_not_repeated() -> None:
    """A name that the model made up stands in no decision."""
    watching = stalling("qf qf", exact_failure=(2, 2), stop=True)
    assert [("exact_failure", "a tool", 2)] == warned(watching)
    watching.answer("", ("ask", '{"q":"f"}'))
    assert [("stalled", "refused:stalled", "exact_failure", "a tool", 2)] == stopped(watching, Place.ON_CALLS)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_arrival_does_not_matter(order: tuple[int, ...]) -> None:
    """A batch is counted in call order, in whatever order its results came."""
    both = [Watching(Stall(identical=(2, 5), stub=1)) for _ in range(2)]
    for watching, sequence in zip(both, (range(3), order), strict=True):
        ids = watching.answer("", ("act", "{}"), ("act", "{}"), ("look", "{}"))
        for place in sequence:
            watching.result(ids[place], error=ToolError.RAISED if place == 2 else None)
    assert both[0].own == both[1].own


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"exact_failure": [3, 2]}, id="a stop before the warning"),
        pytest.param({"identical": [3]}, id="one number"),
        pytest.param({"same_tool": [0, 2]}, id="never a warning at 0"),
        pytest.param({"cycle": 1}, id="once is no circle"),
        pytest.param({"cycle": 33}, id="more than the last 64 calls can hold"),
        pytest.param({"stub": 0}, id="no stub for nothing"),
        pytest.param({"scope": "day"}, id="no such scope"),
    ],
)
def test_configurations_that_cannot_work(config: dict[str, Any]) -> None:
    """A value that cannot work is refused when a policy is read."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"guard": "stall", **config}, Stall)
    assert msgspec.convert({"guard": "stall", "same_tool": [2, 2], "cycle": 32}, Stall)
