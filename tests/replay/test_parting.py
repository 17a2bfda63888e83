"""Where decisions part from those that follow from the same fact: a row a rule."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from refold.reducers.events import Decision, MessageInjected, ModelRequested, differing
from refold.reducers.state import NEW
from refold.replay.parting import DecisionDifference, count_agreeing, find_divergence, place_of
from support import golden

LOG = [event for name in golden.names() for event in golden.events(name)]
INJECTED = next(each for each in LOG if isinstance(each, MessageInjected) and each.content is not None)
ERASED = replace(INJECTED, content=None)
ASKED = next(each for each in LOG if isinstance(each, ModelRequested))
ANOTHER = replace(ASKED, max_output=7)
AGAIN = replace(ASKED, attempt=9)


@pytest.mark.parametrize(
    ("recorded", "derived", "found"),
    [
        pytest.param([INJECTED, ASKED], [INJECTED, ASKED], None, id="the same"),
        pytest.param([], [], None, id="nothing"),
        pytest.param([ERASED, ASKED], [INJECTED, ASKED], None, id="erased words are the same words"),
        pytest.param([INJECTED], [ERASED], (0, "changed"), id="but words that nobody recorded are others"),
        pytest.param([ERASED, ASKED], [INJECTED, ANOTHER], (1, "changed"), id="another value"),
        pytest.param([INJECTED], [INJECTED, ASKED], (1, "missing"), id="one less at the end"),
        pytest.param([ASKED], [INJECTED, ASKED], (0, "missing"), id="one less"),
        pytest.param([INJECTED, ASKED], [INJECTED], (1, "extra"), id="one more at the end"),
        pytest.param([INJECTED, ASKED], [ASKED], (0, "extra"), id="one more"),
        pytest.param([INJECTED, ASKED], [ASKED, INJECTED], (0, "reordered"), id="in another order"),
    ],
)
def test_parting(
    recorded: Sequence[Decision], derived: Sequence[Decision], found: tuple[int, str] | None
) -> None:
    """The first place counts, and how the rest differs there."""
    how = find_divergence(NEW, recorded, derived)
    assert found == (how and (how.place, how.difference))
    if how is not None:
        assert count_agreeing(NEW, recorded, derived) == how.place
        assert (how.recorded is None) == (how.difference is DecisionDifference.MISSING)
        assert (how.derived is None) == (how.difference is DecisionDifference.EXTRA)


def test_fields() -> None:
    """Of two events of one kind the fields in which they differ, in their order; of others none."""
    assert ("attempt", "max_output") == differing(replace(AGAIN, max_output=7), ASKED)
    assert () == differing(ASKED, INJECTED) == differing(ASKED, None) == differing(None, None)


def test_erased_words_are_not_where_another_policy_parts() -> None:
    """What-if shows the decision that would be another, not one before it whose words are gone."""
    place, recorded, derived = place_of(NEW, [ERASED, ASKED], [INJECTED, ANOTHER])
    assert 2 == place
    assert "max_output" not in (recorded or "")
    assert "max_output" in (derived or "")
