"""Answers of which no source says why they stopped, and what follows them."""

import msgspec
import pytest

from refold.reducers.events import ModelResponded
from refold.reducers.vocabulary import StopReason, Unknown
from refold.replay.importers.items import Answered, Cancelled, Item, Remarked
from support.told import END, answered, began, derived, events, said

STOPPED = Cancelled(position="stopped", reason="by hand")


@pytest.mark.parametrize(
    ("answer", "following", "stop"),
    [
        pytest.param(answered("a"), [], StopReason.END_TURN, id="nothing follows"),
        pytest.param(answered("a"), [STOPPED, said("b")], StopReason.OTHER, id="a person stopped it"),
        pytest.param(
            answered("a"),
            [Remarked(position="r", what="hook"), said("[interrupted]", by="harness"), STOPPED],
            StopReason.OTHER,
            id="the harness says so first",
        ),
        pytest.param(
            answered("a"), [said("b"), STOPPED], StopReason.END_TURN, id="what was asked next was stopped"
        ),
        pytest.param(answered("a", "1:x"), [STOPPED], StopReason.TOOL_USE, id="its call was stopped"),
        pytest.param(
            msgspec.structs.replace(answered("a"), stop=StopReason.MAX_TOKENS),
            [STOPPED],
            StopReason.MAX_TOKENS,
            id="the source says why it stopped",
        ),
    ],
)
def test_an_interrupted_answer_ended_no_turn(
    answer: Answered, following: list[Item], stop: StopReason
) -> None:
    """An answer that does not say why it stopped ended its turn, unless a person stopped it before anything else was."""
    _, written = derived([began(), said("t"), answer, *following, END])
    (responded,) = [each for each in events(written) if isinstance(each, ModelResponded)]
    assert stop is responded.stop
    assert Unknown.STOP not in responded.unknown
