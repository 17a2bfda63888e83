"""The guard against the end of a turn that comes too early: a blank answer while something failed."""

from typing import Any

import pytest

from refold.reducers.events import MessageInjected, Opening, RetryScheduled, RunStarted
from refold.reducers.guards import Inject, Place
from refold.reducers.guards.endings import PrematureEnd
from refold.reducers.messages import Gap, Message, Size
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Cause, FailureClass, Role, StopReason, ToolError
from support.watching import Watching

BROKE = ToolError.RAISED


def ending(words: str, **config: Any) -> Watching:
    """f: a result that failed, m: one with a mark, o: a good one, r: a refused one, each by a batch of its
    own; t: a plain answer, i: something injected, s: a person's message, k: a broken answer that was kept;
    told, fork.
    """
    watching = Watching(PrematureEnd(**config))
    for word in words.split():
        match word:
            case "f" | "m" | "o":
                output = "Traceback (most recent call last)" if word == "m" else "fine"
                watching.round(("look", "{}"), output=output, error=BROKE if word == "f" else None)
            case "r":
                watching.refuse(watching.answer("", ("look", "{}"))[0])
            case "t":
                watching.answer("so far, so good")
            case "told":
                watching.tell("premature_end")
            case "i":
                watching.tell("another")
            case "s":
                watching.say()
            case "k" | "lost":
                watching.see(
                    RetryScheduled(
                        attempt=1, delay=0, until=0, failure=FailureClass.STREAM_BROKEN, keeps=word == "k"
                    )
                )
            case _:
                watching.fork()
    watching.answer(" \n")
    return watching


@pytest.mark.parametrize(
    ("words", "look_back", "trips"),
    [
        pytest.param("o", 10, False, id="nothing failed"),
        pytest.param("f", 10, True, id="a result failed"),
        pytest.param("m", 10, True, id="a result holds a mark"),
        pytest.param("r", 10, False, id="a refusal is no failure"),
        pytest.param("f o", 10, True, id="it need not be the last"),
        pytest.param("f", 1, True, id="the last message"),
        pytest.param("f t", 1, False, id="a plain answer is a message"),
        pytest.param("f t", 2, True, id="in the last 2"),
        pytest.param("f o", 2, False, id="a batch of one call is two messages"),
        pytest.param("f o", 3, True, id="in the last 3"),
        pytest.param("f i", 1, False, id="so is what was injected"),
        pytest.param("f i", 2, True, id="in the last 2, with what was injected"),
        pytest.param("f s", 1, False, id="so is what a person says"),
        pytest.param("f s", 2, True, id="in the last 2, with what a person said"),
        pytest.param("f k", 1, False, id="so is a broken answer that was kept"),
        pytest.param("f lost", 1, True, id="one that was dropped is none"),
        pytest.param("f " + "t " * 9, 10, True, id="the 10th from the end"),
        pytest.param("f " + "t " * 10, 10, False, id="the 11th from the end"),
    ],
)
def test_premature_end(words: str, look_back: int, trips: bool) -> None:
    """A blank end of turn is too early while a failure is among the last messages."""
    assert trips == ending(words, look_back=look_back).speaks(Place.ON_FINISHED)


@pytest.mark.parametrize(
    ("words", "config", "trips"),
    [
        pytest.param("f told", {}, True, id="one of two"),
        pytest.param("f told told", {}, False, id="two of two"),
        pytest.param("f", {"max": 0}, False, id="0 is off"),
        pytest.param("f i i", {}, True, id="what others said does not count"),
        pytest.param("f told", {"max": 1, "scope": "turn"}, False, id="the same turn"),
        pytest.param("f told s", {"max": 1, "scope": "turn"}, True, id="so often a turn"),
        pytest.param("f told s", {"max": 1}, False, id="so often a run"),
        pytest.param("f told fork", {"max": 1}, True, id="a fork is another run"),
        pytest.param("f told fork", {"max": 1, "scope": "lineage"}, False, id="so often a lineage"),
    ],
)
def test_premature_end_so_often(words: str, config: dict[str, Any], trips: bool) -> None:
    """The model is sent back at most `max` times in the scope; older messages are still looked at."""
    assert trips == ending(words, **config).speaks(Place.ON_FINISHED)


@pytest.mark.parametrize(
    ("text", "stop", "trips"),
    [
        pytest.param("", StopReason.END_TURN, True, id="no text"),
        pytest.param("done", StopReason.END_TURN, False, id="a text"),
        pytest.param("", StopReason.MAX_TOKENS, False, id="another stop"),
    ],
)
def test_premature_end_only_of_a_blank_end(text: str, stop: StopReason, trips: bool) -> None:
    """Only a turn that ended by itself, with a blank text, is too early."""
    watching = ending("f")
    watching.answer(text, stop=stop)
    assert trips == watching.speaks(Place.ON_FINISHED)


def test_premature_end_is_not_asked_about_calls() -> None:
    """An answer with calls is no end of a turn."""
    watching = ending("f")
    watching.answer("", ("look", "{}"))
    assert not watching.speaks(Place.ON_FINISHED)
    assert not Watching(PrematureEnd()).speaks(Place.ON_FINISHED)


def test_results_stand_where_their_calls_put_them() -> None:
    """Which results are among the last does not depend on the order in which they came."""
    for order in ((0, 1), (1, 0)):
        watching = Watching(PrematureEnd(look_back=1))
        ids = watching.answer("", ("look", "{}"), ("act", "{}"))
        for place in order:
            watching.result(ids[place], error=BROKE if place == 0 else None)
        watching.answer("")
        assert not watching.speaks(Place.ON_FINISHED)


@pytest.mark.parametrize(
    ("role", "text", "trips"),
    [
        pytest.param(Role.TOOL, "FAILED", True, id="a result with a mark"),
        pytest.param(Role.TOOL, "passed", False, id="a good result"),
        pytest.param(Role.USER, "it FAILED", False, id="a person's words are no result"),
    ],
)
def test_earlier_messages_count(role: Role, text: str, trips: bool) -> None:
    """Results among the messages with which the run began are looked at."""
    watching = Watching(PrematureEnd())
    opening = Opening(messages=(Message(role=role, text=text),))
    watching.own = watching.guard.observe(
        watching.own,
        RunStarted(format=1, at=1, run="r", rules=1, policy=Policy(), model="m", content=opening),
    )
    watching.answer("")
    assert trips == watching.speaks(Place.ON_FINISHED)


def test_a_marker_that_stands_elsewhere_is_not_among_the_last() -> None:
    """What stands for older messages is not at the end of the history."""
    watching = ending("f", look_back=1)
    watching.see(
        MessageInjected(
            role=Role.USER,
            text="compacted",
            cause=Cause.HISTORY,
            name="fit",
            gap=Gap(after=2, covers=4),
            size=Size(chars=1, tokens=1),
        )
    )
    assert watching.speaks(Place.ON_FINISHED)


@pytest.mark.parametrize("mark", PrematureEnd().marks)
def test_premature_end_marks(mark: str) -> None:
    """Each mark shows a failure, in the case in which it is written."""
    for output, trips in ((f"x{mark}y", True), (mark.swapcase(), False)):
        watching = Watching(PrematureEnd(marks=(mark,)))
        watching.round(("look", "{}"), output=output)
        watching.answer("")
        assert trips == watching.speaks(Place.ON_FINISHED)


def test_what_premature_end_says() -> None:
    """It injects its text, and saw how many failures and how often it spoke before."""
    assert [
        Inject(code="premature_end", text="premature_end", measured={"failures": 2, "before": 1})
    ] == ending("f m told").says(Place.ON_FINISHED)
