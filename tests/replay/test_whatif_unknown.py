"""What `whatif` cannot judge for want of figures, what it says of time, and how it words where two runs
part.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers.events import RunStarted
from refold.reducers.parser import parse
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.mismatches import format_seconds
from refold.replay.whatif.upper_bounds import UNCOUNTED, UNPRICED
from refold.replay.whatif.verdict import Verdict, WhatIf, totals_of
from support.following import shown
from support.scenario import SECOND, Scenario

Plain = dict[str, Any]
Story = Callable[[Scenario], object]
COST: Plain = {"limits": [{"type": "cost", "value": 0.5}]}
TOKENS: Plain = {"limits": [{"type": "token", "value": 9000}]}


def told(policy: Plain, story: Story, other: Plain) -> WhatIf:
    """A story under one policy, asked about under another."""
    scenario = Scenario(policy)
    story(scenario)
    comparison = Comparison("r1", parse(other))
    return shown(comparison, scenario.log)


def answers(*costs: int | None, usage: tuple[int, int] = (10, 5)) -> Story:
    """An answer for each price, all but the last with a call."""

    def story(run: Scenario) -> None:
        for left, cost in zip(reversed(range(len(costs))), costs, strict=True):
            if not left:
                run.answer("done", usage=usage, cost=cost)
                break
            run.answer("", ("look", "{}"), usage=usage, cost=cost)
            run.result(f"c{run.state.spent.calls}")

    return story


@pytest.mark.parametrize(
    ("policy", "story", "other", "unknown"),
    [
        pytest.param({}, answers(0, 0), COST, (), id="every price is known"),
        pytest.param({}, answers(0, None), COST, (UNPRICED,), id="a price is missing"),
        pytest.param({}, answers(None, usage=(0, 0)), {}, (), id="no limit that counts"),
        pytest.param(
            {},
            answers(None),
            {"limits": [{"type": "cost", "value": 0.5, "unpriced": "ignore"}]},
            (),
            id="a limit that takes an unknown price for nothing",
        ),
        pytest.param(
            {}, answers(None), {"limits": [{"type": "cost", "value": None}]}, (), id="a limit of nothing"
        ),
        pytest.param({}, answers(None), TOKENS, (), id="tokens were counted"),
        pytest.param({}, answers(0, 0, usage=(0, 0)), TOKENS, (UNCOUNTED,), id="no token was counted"),
        pytest.param(
            {},
            answers(0, usage=(0, 0)),
            {"limits": [{"type": "token", "value": 9000, "measure": "estimate"}]},
            (),
            id="an estimate needs no count",
        ),
        pytest.param(TOKENS, answers(0, usage=(0, 0)), TOKENS, (), id="the limit that was recorded"),
        pytest.param({}, answers(), TOKENS, (), id="nothing was answered yet"),
        pytest.param(
            {},
            answers(None, usage=(0, 0)),
            {"limits": [*COST["limits"], *TOKENS["limits"], {**COST["limits"][0], "name": "more"}]},
            (UNCOUNTED, UNPRICED),
            id="each is told once",
        ),
    ],
)
def test_limits_without_figures(policy: Plain, story: Story, other: Plain, unknown: tuple[str, ...]) -> None:
    """A limit of cost or tokens is not judged where the record lacks some of what it counts."""
    found = told(policy, story, other)
    verdict = Verdict.INCONCLUSIVE if unknown else Verdict.AGREE
    assert (verdict, unknown) == (found.verdict, found.unknown)
    assert int(bool(unknown)) == totals_of(found).unknown


def test_only_what_comes_before_the_end_is_missed() -> None:
    """A price that is missing behind the end of the other run is nothing that it would have needed."""
    found = told({}, answers(0, None), {"limits": [*COST["limits"], {"type": "step", "value": 1}]})
    assert (Verdict.STOPS, ()) == (found.verdict, found.unknown)


def test_waiting_for_a_person_is_told_by_itself() -> None:
    """Of the time that is saved, what a person took is known, and so of the time until then."""

    def story(run: Scenario) -> None:
        run.answer("first", after=2)
        run.say("go on", after=40_000)
        run.answer("", ("look", "{}"), after=3)
        run.result("c1", after=1)
        run.answer("second", after=5)

    whole = {"end_of_turn": "wait"}
    one = told(whole, story, {})
    assert (40_009 * SECOND, 40_000 * SECOND) == (one.saved.duration, one.saved.waited)
    assert (2 * SECOND, 0) == (one.until.duration, one.until.waited)
    two = told(whole, story, {**whole, "limits": [{"type": "step", "value": 2}]})
    assert (40_006 * SECOND, 40_000 * SECOND) == (two.until.duration, two.until.waited)
    assert (5 * SECOND, 0) == (two.saved.duration, two.saved.waited)


def two_calls(run: Scenario) -> None:
    run.answer("", ("look", "{}"))
    run.result("c1")
    run.answer("", ("act", "{}"))


@pytest.mark.parametrize(
    ("other", "kind", "why"),
    [
        pytest.param(
            {"approvals": {"chain": [{"approver": "human", "tools": ["act"]}, {"approver": "approve"}]}},
            "calls",
            "the run would have waited for approval of c2",
            id="a person is asked about a call",
        ),
        pytest.param(
            {"approvals": {"chain": [{"approver": "gate", "sensitive": ["act"], "then": "reject"}]}},
            "request",
            "a model request would have been made here: call c2 would have been refused (",
            id="a call is refused, and the model asked at once",
        ),
    ],
)
def test_how_a_parting_is_worded(other: Plain, kind: str, why: str) -> None:
    """It is told what the other policy would have done with the call, by name."""
    found = told({}, two_calls, other)
    assert (Verdict.DIVERGES, kind) == (found.verdict, found.kind)
    assert found.why.startswith(why)


def test_a_recorded_pattern_that_no_policy_can_have() -> None:
    """A refused pattern, in a log that somebody forged, is not searched for: what it finds is unknown."""
    run = Scenario({"overflow": {"patterns": ["broke"]}})
    run.fail(message="a" * 4000)
    first, *rest = run.log
    assert isinstance(first, RunStarted)
    assert first.policy.overflow is not None
    unfit = replace(first.policy.overflow, patterns=("a(?!b)",))
    comparison = Comparison("r1", parse({"overflow": {"patterns": ["broke"]}}))
    found = shown(comparison, [replace(first, policy=replace(first.policy, overflow=unfit)), *rest])
    assert (Verdict.INCONCLUSIVE, "unknown") == (found.verdict, found.kind)
    assert "look-around" in found.why


@pytest.mark.parametrize(
    ("nanoseconds", "said"),
    [
        pytest.param(SECOND * 3 // 2, "1.500 s", id="to the millisecond"),
        pytest.param(1_000_000, "0.001 s", id="one millisecond"),
        pytest.param(999_999, "less than 1 ms", id="less than that"),
    ],
)
def test_a_short_time_is_never_told_as_nothing(nanoseconds: int, said: str) -> None:
    """What is less than a millisecond says so."""
    assert said == format_seconds(nanoseconds)
