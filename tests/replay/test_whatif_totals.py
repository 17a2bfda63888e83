"""What `whatif` comes to over many runs: what is saved, and what forks share, is counted once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.reducers.events import Event, RunForked
from refold.reducers.parser import parse
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Prefixes, Spend, Totals, Verdict, WhatIf, totals_of
from refold.store.protocol import Origin
from support.following import shown
from support.scenario import Scenario
from support.stories import asked

_FOUND = st.builds(
    WhatIf,
    run=st.just("r"),
    verdict=st.sampled_from(Verdict),
    events=st.just(9),
    fact=st.just(3),
    turn=st.integers(0, 3),
    kind=st.sampled_from(["view", "calls"]),
    agent_state=st.sampled_from(["COMPLETED", "MAX_STEPS"]),
    code=st.sampled_from(["end_turn", "step_limit"]),
    recorded_state=st.just("COMPLETED"),
    until=st.just(Spend()),
    saved=st.builds(Spend, steps=st.integers(0, 3), input=st.integers(0, 9)),
    exact=st.booleans(),
    fired=st.just(()),
    unknown=st.sampled_from([(), ("x",)]),
)


@given(found=st.lists(_FOUND, max_size=8), cut=st.integers(0, 8), seed=st.randoms())
def test_totals_merge_in_any_order(found: list[WhatIf], cut: int, seed: Any) -> None:
    """The totals of many runs are the same however they are cut into pieces, and whatever comes first."""
    whole = sum(map(totals_of, found), Totals())
    pieces = sum(map(totals_of, found[:cut]), Totals()) + sum(map(totals_of, found[cut:]), Totals())
    shuffled = [*found]
    seed.shuffle(shuffled)
    assert whole == pieces == sum(map(totals_of, shuffled), Totals())
    assert len(found) == whole.runs == sum(whole.verdicts.values())


def test_only_what_was_cut_short_saves() -> None:
    """A run that would have been done sooner saves nothing, and one that diverges says nothing of money."""
    short = WhatIf(
        run="r", verdict=Verdict.STOPS, events=9, fact=3, agent_state="MAX_STEPS", code="step_limit",
        recorded_state="COMPLETED", until=Spend(), saved=Spend(input=5),
    )  # fmt: skip
    totals = sum(
        map(
            totals_of,
            [
                short,
                replace(short, agent_state="COMPLETED", code="end_turn"),
                replace(short, verdict=Verdict.DIVERGES),
                replace(short, exact=False),
            ],
        ),
        Totals(),
    )
    assert Spend(input=5) == totals.saved == totals.at_least
    assert ({"step_limit": 2}, 1, 1) == (totals.cut_short, totals.done, totals.inexact)


def test_answers_without_a_price_are_counted() -> None:
    """What was spent says how many answers have no known price: their cost is in no sum."""
    scenario = Scenario({})
    for cost in (7, None, None):
        scenario.answer("", ("look", "{}"), cost=cost)
        scenario.result(f"c{scenario.state.spent.calls}")
    scenario.answer("done", cost=None)
    found = asked(scenario.log, {"limits": [{"type": "step", "value": 2}]})
    assert [(7, 1), (0, 2)] == [(each.cost_nanousd, each.unpriced) for each in (found.until, found.saved)]
    assert 4 == (totals_of(found) + totals_of(found)).saved.unpriced


SHARED = [
    pytest.param(["p", "f"], [0, 5], id="a run, then its fork"),
    pytest.param(["f", "p"], [0, 5], id="a fork, then what it is of"),
    pytest.param(["g", "f"], [0, 7], id="a fork of a fork, then the one between"),
    pytest.param(["p", "g"], [0, 5], id="a run, then the fork of its fork"),
    pytest.param(["f", "h"], [0, 3], id="two forks of a run that is not asked about"),
    pytest.param(["p", "f", "h", "g"], [0, 5, 3, 7], id="all of them"),
    pytest.param(["p", "p"], [0, 9], id="a run twice"),
]


@pytest.mark.parametrize(("order", "shared"), SHARED)
def test_what_a_fork_shares_is_counted_once(order: list[str], shared: list[int]) -> None:
    """Whatever comes first, each event counts with one run: a fork knows up to where another has counted."""
    p, f, h = (Origin(run=run, seq=seq, hash=b"") for run, seq in (("p", 5), ("f", 7), ("p", 3)))
    behind = {"p": [], "f": [p], "g": [p, f], "h": [h]}
    prefixes, found = Prefixes(), list[int]()
    for run in order:
        found.append(prefixes.shared(run, behind[run]))
        prefixes.count(run, behind[run], 9)
    assert shared == found


def test_a_stop_before_the_fork_is_counted_once() -> None:
    """Of a fork that would have stopped in what it shares only its own spending is saved, and nothing else
    counts.
    """
    scenario = Scenario({})
    scenario.step()
    scenario.step()
    at = scenario.state.seq
    parent = scenario.log[:]
    fork = RunForked(
        at=scenario.at, run="r2", rules=1, parent="r1", parent_seq=at, parent_hash="00", downtime=0
    )  # fmt: skip
    scenario.feed(fork)
    scenario.step()
    scenario.answer("done")

    def of(log: list[Event], shared: int, limit: int) -> WhatIf:
        policy = parse({"limits": [{"type": "step", "value": limit, "scope": "lineage"}]})
        comparison = Comparison("r", policy, shared=shared)
        return shown(comparison, log)

    early = of(scenario.log, at, 1)
    assert (4, 1) == (early.until.steps + early.saved.steps, early.until.steps)
    totals = totals_of(of(parent, 0, 1)) + totals_of(early)
    assert ({"stops": 2}, {"step_limit": 1}, {"limit:step": 1}, 1) == (
        totals.verdicts,
        totals.cut_short,
        totals.in_runs,
        totals.before,
    )
    # All that the two spent after the first step, once: the request at which it was forked is the parent's.
    assert (early.saved.steps, early.saved.input) == (totals.saved.steps, totals.saved.input)
    late = totals_of(of(scenario.log, at, 3))
    assert ({"step_limit": 1}, 1, 0) == (late.cut_short, late.saved.steps, late.before)
