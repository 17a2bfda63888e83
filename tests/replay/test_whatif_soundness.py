"""The law of `whatif`: what it says of a run is what happens when the agent really runs under the other policy.

Agents behave as they are shown, and their policies are any; each runs under one policy, is asked about under another,
and then runs under that one.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from refold.reducers.parsing import parse
from refold.replay.whatif.comparing import Comparison
from refold.replay.whatif.only import RULES, only
from refold.replay.whatif.verdict import Verdict, spend_of
from support.any_policy import policies
from support.shown_only import Life
from support.soundness import CASES, Case, asked_of, confirm, tempers
from support.strategies import Driver, each, runs


@settings(max_examples=each(60))
@given(case=CASES)
def test_what_is_said_is_what_happens(case: Case) -> None:
    """AGREE and STOPS are what happens under the other policy; nothing happens otherwise before DIVERGES."""
    policy, other = parse(case.policy), parse(case.other)
    for temper, facts in tempers(case.seed):
        recorded = Life(policy, temper, facts)
        found = asked_of(recorded, other)
        confirm(found, recorded, Life(other, temper, facts + 60))
        if found.verdict is Verdict.STOPS and found.exact:
            assert found.saved == spend_of(recorded.state) - found.until


@settings(max_examples=each(60))
@given(case=CASES, other=policies(), kinds=st.sets(st.sampled_from(sorted(RULES)), min_size=1))
def test_what_is_said_of_rules_alone_is_what_happens(
    case: Case, other: dict[str, Any], kinds: set[str]
) -> None:
    """The same of some rules of another policy, put in place of the run's own."""
    policy, change = parse(case.policy), only(sorted(kinds), parse(other))
    for temper, facts in tempers(case.seed):
        recorded = Life(policy, temper, facts)
        confirm(asked_of(recorded, change), recorded, Life(change(policy), temper, facts + 60))


@given(driver=runs())
def test_a_run_agrees_with_itself(driver: Driver) -> None:
    """Under its own policy, amended and forked as it was, every run agrees, whatever happened in it."""
    comparison = Comparison("r1", lambda policy: policy)
    for seq, each_event in enumerate(driver.log, 1):
        comparison.take(seq, each_event)
    assert Verdict.AGREE is comparison.result().verdict
