"""Guards that count batches: loop, errors, read_only and pivot."""

from typing import Any

import msgspec
import pytest

from refold.reducers.events import Manifest
from refold.reducers.guards import Inject, Place, Stop
from refold.reducers.guards.calls import ReadOnly
from refold.reducers.guards.endings import Errors, Pivot, PrematureEnd
from refold.reducers.guards.progress import Loop
from refold.reducers.vocabulary import ToolError
from support.scenario import TOOLS
from support.watching import Watching

BROKE = ToolError.RAISED


def named(*names: str) -> list[tuple[str, str]]:
    return [(name, "{}") for name in names]


@pytest.mark.parametrize(
    ("window", "rounds", "trips"),
    [
        pytest.param(2, "a a", True, id="two in a row"),
        pytest.param(2, "a", False, id="once is no pair"),
        pytest.param(2, "a b a b", False, id="not adjacent"),
        pytest.param(2, "ab ba", True, id="in any order"),
        pytest.param(2, "a aa", False, id="a doubled call is another batch"),
        pytest.param(2, "a - a", True, id="an answer without calls is no batch"),
        pytest.param(0, "a a", True, id="a window below 2 is 2"),
        pytest.param(0, "a a b", False, id="a window below 2 is not 3"),
        pytest.param(3, "a a b", True, id="the pair is the oldest of 3"),
        pytest.param(3, "a a b c", False, id="the pair is out of 3"),
        pytest.param(4, "a a b c", True, id="the pair is in 4"),
        pytest.param(30, "a a " + "b c " * 9, True, id="20 are remembered"),
        pytest.param(30, "a a " + "b c " * 9 + "b", False, id="21 are not"),
        pytest.param(5, "a a b b c", True, id="the newest pair counts"),
        pytest.param(3, "b b a a c", True, id="an older pair is no better than the newest"),
    ],
)
def test_loop(window: int, rounds: str, trips: bool) -> None:
    """Two adjacent batches of the same names among the last max(2, window), at most 20, trip."""
    watching = Watching(Loop(window=window))
    for names in rounds.split():
        watching.round(*named(*names.strip("-")))
    assert trips == watching.speaks(Place.AFTER_TOOLS)


def test_what_loop_says() -> None:
    """The stop has the code of a loop, how far back the pair begins, and the window as it is applied."""
    watching = Watching(Loop(window=99))
    for names in "aab":
        watching.round((names, '{"x":1}'))
    assert [
        Stop(
            code="loop_detected",
            reason="two batches in a row called the same tools",
            measured={"batches": 3, "window": 20},
        )
    ] == watching.says(Place.AFTER_TOOLS)


# One word a batch, one letter a call: f failed, o went well, r was refused; `-` is an answer without calls.
def errors_after(rounds: str, count: int, backwards: bool = False) -> Watching:
    watching = Watching(Errors(rounds=count))
    for ends in rounds.split():
        ids = watching.answer("", *named(*ends.strip("-")))
        results = list(zip(ids, ends, strict=False))
        for call, end in results[::-1] if backwards else results:
            if end == "r":
                watching.refuse(call)
            else:
                watching.result(call, error=BROKE if end == "f" else None)
    return watching


@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
@pytest.mark.parametrize(
    ("rounds", "count", "trips"),
    [
        pytest.param("f", 1, True, id="one of one"),
        pytest.param("f f", 3, False, id="two of three"),
        pytest.param("f f f", 3, True, id="three of three"),
        pytest.param("f f o f", 2, False, id="a good batch starts anew"),
        pytest.param("f ff fo f", 2, False, id="a batch in which one call went well too"),
        pytest.param("f ff of f", 2, False, id="whichever that is"),
        pytest.param("f - f", 2, False, id="an answer without calls starts anew"),
        pytest.param("f r", 1, False, id="a refusal is no failure"),
        pytest.param("f rf", 1, False, id="nor beside one"),
        pytest.param("ff fff", 2, True, id="every call of a batch failed"),
        pytest.param("o f", 1, True, id="after a good batch"),
        pytest.param("- f", 1, True, id="after an answer without calls"),
    ],
)
def test_errors(rounds: str, count: int, trips: bool, backwards: bool) -> None:
    """Batches in a row of which every call failed trip at the number, in whatever order the results came."""
    assert trips == errors_after(rounds, count, backwards).speaks(Place.ON_RESULTS)


def test_errors_counts_a_batch_when_it_is_done() -> None:
    """A batch of which one call still runs has not failed."""
    watching = Watching(Errors(rounds=1))
    first, second = watching.answer("", *named("look", "look"))
    watching.result(first, error=BROKE)
    assert not watching.speaks(Place.ON_RESULTS)
    watching.result(second, error=BROKE)
    assert watching.speaks(Place.ON_RESULTS)


def test_what_errors_says() -> None:
    """The stop has the code of consecutive errors, how many there were and how many are allowed."""
    (said,) = errors_after("f f f", 2).says(Place.ON_RESULTS)
    assert isinstance(said, Stop)
    assert ("consecutive_errors", {"batches": 3, "allowed": 2}) == (said.code, said.measured)


def reading(rounds: str, batches: int = 2, scope: Any = "lineage", tools: tuple[str, ...] = ()) -> Watching:
    watching = Watching(ReadOnly(batches=batches, scope=scope, tools=tools))
    names = {"l": "look", "a": "act", "s": "set", "x": "unheard of"}
    for word in rounds.split():
        match word:
            case "say":
                watching.say()
            case "fork":
                watching.fork()
            case "told":
                watching.tell("read_only")
            case "other":
                watching.tell("another guard")
            case _:
                watching.round(*named(*(names[letter] for letter in word.strip("-"))))
    return watching


@pytest.mark.parametrize(
    ("rounds", "batches", "trips"),
    [
        pytest.param("l", 2, False, id="one of two"),
        pytest.param("l l", 2, True, id="two of two"),
        pytest.param("l l l", 2, True, id="and beyond"),
        pytest.param("ll l", 2, True, id="a batch of two calls is one batch"),
        pytest.param("l la l", 2, False, id="another kind beside starts anew"),
        pytest.param("l s l", 2, False, id="idempotent is not read-only"),
        pytest.param("l x l", 2, False, id="nor is a tool that there is not"),
        pytest.param("l - l", 2, True, id="an answer without calls does not start anew"),
        pytest.param("a l l", 2, True, id="after an action"),
        pytest.param("l", 1, True, id="one of one"),
        pytest.param("l l told l", 2, False, id="once"),
        pytest.param("l l other l", 2, True, id="what others said does not count"),
        pytest.param("l l told a l l", 2, False, id="once in its scope, even after an action"),
    ],
)
def test_read_only(rounds: str, batches: int, trips: bool) -> None:
    """Batches in a row of read-only calls only: at the number, once in the scope."""
    assert trips == reading(rounds, batches).speaks(Place.ON_NUDGE)


@pytest.mark.parametrize(
    ("scope", "rounds", "trips"),
    [
        pytest.param("lineage", "l say l", True, id="lineage goes on over a turn"),
        pytest.param("lineage", "l fork l", True, id="and over a fork"),
        pytest.param("run", "l say l", True, id="run goes on over a turn"),
        pytest.param("run", "l fork l", False, id="run begins with a fork"),
        pytest.param("turn", "l say l", False, id="turn begins with a person's message"),
        pytest.param("turn", "l fork l", False, id="and with a fork"),
        pytest.param("turn", "l l told say l l", True, id="once a turn"),
        pytest.param("lineage", "l l told say l l", False, id="once a lineage"),
    ],
)
def test_read_only_scope(scope: str, rounds: str, trips: bool) -> None:
    """The count and the once hold for the scope."""
    assert trips == reading(rounds, scope=scope).speaks(Place.ON_NUDGE)


def test_read_only_by_names() -> None:
    """With names listed they are what reading means, whatever the tools declare."""
    assert not reading("l l", tools=("act",)).speaks(Place.ON_NUDGE)
    assert reading("a a", tools=("act",)).speaks(Place.ON_NUDGE)


def test_what_read_only_says() -> None:
    """It injects its text with the number of batches."""
    assert [
        Inject(code="read_only", text="read_only", measured={"count": 2}, values={"count": 2})
    ] == reading("l l").says(Place.ON_NUDGE)


BASH = (*TOOLS, Manifest(name="bash"), Manifest(name="acp_terminal"))
MISSING = "sh: foo: command not found"


# b: bash failed and lacks something; e: it failed otherwise; p: it went well and holds a mark; r: refused; l:
# look failed.
def pivoting(rounds: str, tools: Any = BASH, scope: Any = "lineage", backwards: bool = False) -> Watching:
    watching = Watching(Pivot(scope=scope), tools)
    for word in rounds.split():
        if word in ("say", "fork", "told"):
            watching.tell("pivot") if word == "told" else {"say": watching.say, "fork": watching.fork}[word]()
            continue
        letters = word.strip("-")
        ids = watching.answer("", *named(*("look" if letter == "l" else "bash" for letter in letters)))
        results = list(zip(ids, letters, strict=True))
        for call, letter in results[::-1] if backwards else results:
            if letter == "r":
                watching.refuse(call)
            else:
                output = "no luck" if letter == "e" else MISSING
                watching.result(call, output, None if letter == "p" else BROKE)
    return watching


@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
@pytest.mark.parametrize(
    ("rounds", "trips"),
    [
        pytest.param("b", False, id="one of two"),
        pytest.param("b b", True, id="two"),
        pytest.param("b b b", True, id="three"),
        pytest.param("bb", False, id="two calls of a batch count once"),
        pytest.param("b be", True, id="one such call of the batch suffices"),
        pytest.param("b eb", True, id="whichever that is"),
        pytest.param("b e b", False, id="a failure without a mark starts anew"),
        pytest.param("b p b", False, id="a mark without a failure too"),
        pytest.param("b r b", False, id="a refusal is no failure"),
        pytest.param("b l b", True, id="a batch without the tool does not count"),
        pytest.param("b - b", True, id="nor does an answer without calls"),
        pytest.param("b lb", True, id="another tool beside it"),
        pytest.param("l l", False, id="another tool is not looked at"),
        pytest.param("e b b", True, id="after a failure without a mark"),
        pytest.param("b b told b", False, id="once"),
    ],
)
def test_pivot(rounds: str, trips: bool, backwards: bool) -> None:
    """Batches in a row with a failed call of the tool that lacks something: at the number, once."""
    assert trips == pivoting(rounds, backwards=backwards).speaks(Place.ON_NUDGE)


@pytest.mark.parametrize(
    ("scope", "rounds", "trips"),
    [
        pytest.param("turn", "b say b", False, id="a turn"),
        pytest.param("turn", "b b told say b b", True, id="once a turn"),
        pytest.param("run", "b say b", True, id="a run goes on over turns"),
        pytest.param("run", "b fork b", False, id="a fork is another run"),
        pytest.param("lineage", "b fork b", True, id="a lineage goes on"),
    ],
)
def test_pivot_scope(scope: str, rounds: str, trips: bool) -> None:
    """The count and the once hold for the scope."""
    assert trips == pivoting(rounds, scope=scope).speaks(Place.ON_NUDGE)


def test_pivot_waits_for_the_last_call_of_the_tool() -> None:
    """A batch counts when all its calls of the tool have a result."""
    watching = Watching(Pivot(failures=1), BASH)
    first, second = watching.answer("", *named("bash", "bash"))
    watching.result(first, MISSING, BROKE)
    assert not watching.speaks(Place.ON_NUDGE)
    watching.fork()
    watching.result(second, "fine")
    assert watching.speaks(Place.ON_NUDGE)


def test_pivot_needs_somewhere_to_go() -> None:
    """Where the other tool is not in the manifest nothing is said."""
    assert not pivoting("b b", BASH[:-1]).speaks(Place.ON_NUDGE)


@pytest.mark.parametrize("mark", Pivot().marks)
def test_pivot_marks(mark: str) -> None:
    """Each mark shows that something is lacking, in the case in which it is written."""
    for output, trips in ((f"x{mark}y", True), (mark.swapcase(), False)):
        watching = Watching(Pivot(failures=1), BASH)
        watching.round(("bash", "{}"), output=output, error=BROKE)
        assert trips == watching.speaks(Place.ON_NUDGE)


def test_what_pivot_says() -> None:
    """It injects its text with the names of the two tools."""
    assert [
        Inject(
            code="pivot",
            text="pivot",
            measured={"batches": 2, "allowed": 2},
            values={"tool": "bash", "to": "acp_terminal"},
        )
    ] == pivoting("b b").says(Place.ON_NUDGE)


@pytest.mark.parametrize(
    ("guard", "config"),
    [
        pytest.param(Loop, {}, id="loop needs a window"),
        pytest.param(Loop, {"window": -1}, id="not below 0"),
        pytest.param(Errors, {}, id="errors needs rounds"),
        pytest.param(Errors, {"rounds": 0}, id="at least 1"),
        pytest.param(ReadOnly, {"batches": 0}, id="read_only at least 1"),
        pytest.param(Pivot, {"failures": 0}, id="pivot at least 1"),
        pytest.param(Pivot, {"marks": [""]}, id="no empty mark"),
        pytest.param(PrematureEnd, {"max": -1}, id="not below 0 times"),
        pytest.param(PrematureEnd, {"look_back": 0}, id="look back at least 1"),
        pytest.param(PrematureEnd, {"marks": [""]}, id="no empty mark of a failure"),
        pytest.param(Loop, {"window": 2, "tools": []}, id="no unknown key"),
    ],
)
def test_configurations_that_cannot_work(guard: type[Any], config: dict[str, Any]) -> None:
    """A value that cannot work is refused when a policy is read."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"guard": guard.kind, **config}, guard)
