"""Answers of which no source says why they stopped, and what follows them."""

import msgspec
import pytest

from refold.importers.items import Answered, Cancelled, Item, Remarked
from refold.reducers.events import ModelResponded
from refold.reducers.vocabulary import StopReason, Unknown
from refold.replay.known import UNSAID, stopped
from support.told import END, answered, began, derived, events, said

STOPPED = Cancelled(position="stopped", reason="by hand")


@pytest.mark.parametrize(
    ("answer", "following", "stop", "unknown"),
    [
        pytest.param(answered("a"), [], StopReason.END_TURN, True, id="nothing follows"),
        pytest.param(answered("a"), [STOPPED, said("b")], StopReason.OTHER, False, id="stopped by the user"),
        pytest.param(
            answered("a"),
            [Remarked(position="r", what="hook"), said("[interrupted]", by="harness"), STOPPED],
            StopReason.OTHER,
            False,
            id="the harness says so first",
        ),
        pytest.param(
            answered("a"),
            [said("b"), STOPPED],
            StopReason.END_TURN,
            True,
            id="what was asked next was stopped",
        ),
        pytest.param(answered("a", "1:x"), [STOPPED], StopReason.TOOL_USE, False, id="its call was stopped"),
        pytest.param(
            msgspec.structs.replace(answered("a"), stop=StopReason.MAX_TOKENS),
            [STOPPED],
            StopReason.MAX_TOKENS,
            False,
            id="the source says why it stopped",
        ),
    ],
)
def test_an_interrupted_answer_ended_no_turn(
    answer: Answered, following: list[Item], stop: StopReason, unknown: bool
) -> None:
    """An answer of which nothing says why it stopped is taken to have ended its turn, and said to be unknown.

    Unless stopped by the user before anything else was, or it has calls.
    """
    _, written = derived([began(), said("t"), answer, *following, END])
    (responded,) = [each for each in events(written) if isinstance(each, ModelResponded)]
    assert stop is responded.stop
    assert unknown is (Unknown.STOP in responded.unknown)
    assert unknown is (UNSAID == stopped(responded))
