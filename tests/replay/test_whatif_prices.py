"""Prices at the time of asking: which answers they are for, what a limit then says, and that nothing unknown
is made up.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.reducers.events import Event, Fact, ModelResponded
from refold.reducers.messages import Usage
from refold.reducers.parser import parse
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.tables import PriceQuery, Prices, add_price
from refold.replay.whatif.upper_bounds import UNPRICED
from refold.replay.whatif.verdict import Verdict, WhatIf, totals_of
from support.following import shown
from support.scenario import Scenario
from support.shown_only import Life
from support.soundness import CASES, Case, asked_of, confirm, tempers
from support.strategies import scaled

Plain = dict[str, Any]


def by_the_token(answered: PriceQuery) -> int | None:
    """Ten nano-dollars a token, whoever answers."""
    return 10 * (answered.usage.input + answered.usage.output)


TABLE = Prices("a table, third edition", by_the_token)


def asked(log: list[Event], other: Plain, prices: Prices | None = TABLE) -> WhatIf:
    comparison = Comparison("r1", parse(other), prices=prices)
    return shown(comparison, log)


def answers(*costs: int | None) -> Scenario:
    """An answer for each price, all but the last with a call."""
    scenario = Scenario({})
    for cost in costs[:-1]:
        scenario.answer("", ("look", "{}"), cost=cost)
        scenario.result(f"c{scenario.state.spent.calls}")
    scenario.answer("done", cost=costs[-1])
    return scenario


def cost_limit(dollars: float) -> Plain:
    return {"limits": [{"type": "cost", "value": dollars}]}


def test_a_limit_is_judged_by_prices_that_the_record_does_not_have() -> None:
    """What was asked for without a price stops the run where its price reaches the limit; the record's own
    prices stay.
    """
    log = answers(None, None, None).log
    unjudged = asked(log, cost_limit(0.0000003), None)
    assert (Verdict.INCONCLUSIVE, (UNPRICED,), "", 0) == (
        unjudged.verdict,
        unjudged.unknown,
        unjudged.prices,
        unjudged.priced,
    )
    found = asked(log, cost_limit(0.0000003))
    assert (Verdict.STOPS, "cost_limit", ()) == (found.verdict, found.code, found.unknown)
    assert ("a table, third edition", 3) == (found.prices, found.priced)
    assert [(300, 0), (150, 0)] == [(each.cost_nanousd, each.unpriced) for each in (found.until, found.saved)]
    assert 150 == totals_of(found).saved.cost_nanousd
    known = asked(answers(7, 7).log, cost_limit(1))
    assert (14, 0) == (known.until.cost_nanousd, known.priced)


UNKNOWN = [
    pytest.param(Usage(), 0, id="no token was counted"),
    pytest.param(Usage(output=5), 0, id="none of the request was"),
    pytest.param(Usage(input=10), 1, id="none of the answer was"),
    pytest.param(Usage(input=10, output=5), 51, id="more was written than was counted"),
    pytest.param(Usage(input=10, output=5, cache_read=11), 0, id="counts that contradict each other"),
]


@pytest.mark.parametrize(("usage", "chars"), UNKNOWN)
def test_what_was_not_counted_has_no_price(usage: Usage, chars: int) -> None:
    """Where the count is missing, or is surely only a part, the price is unknown, and the limit not
    judged.
    """
    scenario = Scenario({})
    scenario.answer("x" * chars, ("look", ""), usage=(usage.input, usage.output), cost=None)
    scenario.result("c1")
    scenario.answer("done", usage=(10, 5), cost=None)
    log = [
        replace(event, usage=usage) if isinstance(event, ModelResponded) and event.calls else event
        for event in scenario.log
    ]
    found = asked(log, cost_limit(1))
    assert (Verdict.INCONCLUSIVE, (UNPRICED,), 1) == (found.verdict, found.unknown, found.priced)
    assert (0, 1) == (found.until.cost_nanousd, found.until.unpriced)  # up to the answer that has none


def test_whose_price_it_is() -> None:
    """The model that answered is asked about, else the one that was asked, at the address and the time of the
    record.
    """
    seen: list[tuple[str, str]] = []

    def cost(answered: PriceQuery) -> None:
        seen.append((answered.model, answered.address))

    scenario = answers(None, None)
    log = [
        replace(event, model="m-2026") if isinstance(event, ModelResponded) and not event.calls else event
        for event in scenario.log
    ]
    asked(log, {}, Prices("t", cost))
    assert [("m", ""), ("m-2026", "")] == seen


class Priced(Life):
    """A life in a world in which the table's prices are known as each answer comes."""

    def _feed(self, fact: Fact) -> None:
        super()._feed(add_price(fact, self.state, TABLE))


@settings(max_examples=scaled(20))
@given(case=CASES, value=st.sampled_from([0, 0.0000005, 0.000002]))
def test_what_is_said_by_prices_is_what_happens_at_these_prices(case: Case, value: float) -> None:
    """AGREE and STOPS are what happens where the prices are known at once; nothing happens otherwise before
    DIVERGES.
    """
    policy = parse(case.policy)
    limits = parse(cost_limit(value)).limits
    other = replace(policy, limits=(*policy.limits, *(replace(limit, name="asked") for limit in limits)))
    for temper, facts in tempers(case.seed):
        recorded = Life(policy, temper, facts)
        confirm(asked_of(recorded, other, TABLE), recorded, Priced(other, temper, facts + 60))
