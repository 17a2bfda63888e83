"""What the guard against calls that lead nowhere counts and warns of: one below, at, and one above its
numbers.
"""

from itertools import permutations
from typing import Any

import msgspec
import pytest

from refold.reducers.guards.progress import Stall
from refold.reducers.vocabulary import ToolError
from support.stalling import OFF, play, stalling, warned
from support.watching import Watching


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
