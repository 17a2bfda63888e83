"""A reply and its results stand in one piece in every window, whatever else is said while its calls are
open.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, ClassVar

import pytest

from refold.reducers.events import Event, MessageHead
from refold.reducers.guards import BUILTIN, Judgement, Place
from refold.reducers.guards.protocol import Config, Inject, Own
from refold.reducers.meanings.common import make_references
from refold.reducers.state import NEW, RunState
from refold.reducers.views import view
from refold.reducers.vocabulary import Role
from refold.reducers.window import refs
from support.naive import refused_by_a_provider
from support.scenario import TOOLS, Scenario


class Talker(Config, frozen=True, kw_only=True, tag="talker"):
    """Says something wherever a guard is asked."""

    kind: ClassVar[str] = "talker"
    places: ClassVar[frozenset[Place]] = frozenset(Place)
    observes: ClassVar[frozenset[type[Event]]] = frozenset()
    fresh: ClassVar[Own] = Own()
    texts: ClassVar[Mapping[str, str]] = {"talker": "mind the step"}

    def judge(self, own: Own, state: RunState, place: Place) -> Iterable[Judgement]:
        """The same, always."""
        yield Inject(code="talker", text="talker")


def in_pieces(state: RunState) -> list[int]:
    """The units of a window that stand in more than one piece."""
    units = [unit for unit, _ in groupby(refs(state.window), lambda ref: ref.unit)]
    return [unit for unit in units if units.count(unit) > 1]


@pytest.mark.parametrize("batch", ["parallel", "in_order"])
def test_what_a_guard_says_while_calls_are_open_stands_behind_their_results(batch: str) -> None:
    """A provider refuses a call without its result right after it, and so whatever stands between them."""
    policy: dict[str, Any] = {"guards": [{"guard": "talker"}], "batch": batch}
    run = Scenario(policy, tools=TOOLS, registry={**BUILTIN, "talker": Talker})
    for number in range(3):
        first = 1 + 2 * number
        run.answer("", ("look", "{}"), ("set", f'{{"to":{number}}}'))
        run.result(f"c{first}")
        run.result(f"c{first + 1}")
        assert [] == in_pieces(run.state)
        shown = view(run.state, dict(enumerate(run.log, 1)))
        assert [] == list(refused_by_a_provider(list(shown)))
        assert 2 * (number + 1) == sum(ref.role is Role.TOOL for ref in refs(run.state.window))


def test_a_forged_opening_has_its_units_in_one_piece() -> None:
    """A head that names another's unit from afar is a unit of its own."""
    heads = [MessageHead(role=Role.USER, unit=unit) for unit in (0, 0, 2, 0, 7, 2)]
    assert [1, 1, 3, 4, 5, 6] == [ref.unit for ref in make_references(NEW, heads)]
