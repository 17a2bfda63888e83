"""Some rules of another policy over the rest of the run's own: which keys they are, and that no other word is
changed.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from refold.reducers.errors import WrongUse
from refold.reducers.events import PolicyAmended, RunForked
from refold.reducers.parser import checked, parse
from refold.reducers.policy import Policy
from refold.replay import replace_rules
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.rule_subset import RULES
from refold.replay.whatif.verdict import Verdict, WhatIf
from refold.testing.strategies.policies import policies
from support.following import shown
from support.scenario import Scenario
from support.strategies import scaled

Plain = dict[str, Any]
_KINDS = st.sets(st.sampled_from(sorted(RULES)), min_size=1).map(sorted)
REJECTS: Plain = {"approvals": {"chain": [{"approver": "reject"}]}}
STOPS_AT_2: Plain = {"limits": [{"type": "step", "value": 2}], "nudge": True}


def told(scenario: Scenario, kinds: Sequence[str], other: Plain) -> WhatIf:
    """What these rules of another policy would have done to a run."""
    comparison = Comparison("r1", replace_rules(kinds, parse(other)))
    return shown(comparison, scenario.log)


def three_steps(policy: Plain) -> Scenario:
    scenario = Scenario(policy)
    for _ in range(3):
        scenario.answer("", ("look", "{}"))
        if scenario.state.batch is not None:  # it was not refused
            scenario.result(f"c{scenario.state.spent.calls}")
    scenario.answer("done")
    return scenario


@settings(max_examples=scaled(60))
@given(one=policies().map(parse), other=policies().map(parse), kinds=_KINDS)
def test_only_these_rules_are_taken(one: Policy, other: Policy, kinds: list[str]) -> None:
    """Every key but those of these kinds is as it was, and so are all words; what comes out is a policy that
    works.
    """
    mixed, taken = replace_rules(kinds, other)(one), {key for kind in kinds for key in RULES[kind]}
    for key in {field.name for field in fields(Policy)} - {"texts", "pressure"}:
        assert getattr(other if key in taken else one, key) == getattr(mixed, key)
    assert {key: one.texts.get(key, text) for key, text in mixed.texts.items()} == mixed.texts
    assert mixed.pressure in (one.pressure, None)
    assert mixed == replace_rules(kinds, other)(mixed)
    assert mixed == checked(mixed)


@given(policy=policies().map(parse), kinds=_KINDS)
@example(
    policy=parse({"limits": [], "pressure": {"tiers": [{"name": "x", "at": {"fraction": 0.5}}]}}),
    kinds=["approvals"],
)
def test_a_policys_own_rules_change_nothing(policy: Policy, kinds: list[str]) -> None:
    """Under the rules that it had a run is as it was."""
    assert policy == replace_rules(kinds, policy)(policy)


RULED = [
    pytest.param(["limits"], {}, STOPS_AT_2, "stops", "step_limit", id="a limit, and not the nudge"),
    pytest.param(["guards"], {}, STOPS_AT_2, "agree", "end_turn", id="another kind than what would stop it"),
    pytest.param(
        ["limits"],
        {},
        {**STOPS_AT_2, "grace": {"on": ["step"]}},
        "diverges",
        "texts",
        id="a limit with the request that it grants",
    ),
    pytest.param(
        ["guards"], {}, {"guards": [{"guard": "repetition", "repeats": 1}]}, "stops", "repetition", id="a guard"
    ),
    pytest.param(
        ["approvals"], {}, REJECTS, "diverges", "request", id="approvals"
    ),
    pytest.param(
        ["limits", "guards"],
        {},
        {"limits": [{"type": "step", "value": 3}], "guards": [{"guard": "tool_cap", "tools": ["look"], "max": 1}]},
        "stops",
        "stalled",
        id="whichever of two kinds comes first",
    ),
    pytest.param(
        ["approvals"],
        REJECTS,
        {**REJECTS, "texts": {"refused:rejected": "No."}},
        "agree",
        "end_turn",
        id="the words of a refusal stay as they were",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "policy", "other", "verdict", "code"), RULED)
def test_what_rules_would_have_done(
    kinds: list[str], policy: Plain, other: Plain, verdict: str, code: str
) -> None:
    """Rules are judged by themselves: what else the policy says does not part the runs."""
    found = told(three_steps(policy), kinds, other)
    assert verdict == found.verdict
    assert code == (found.kind if found.verdict is Verdict.DIVERGES else found.code)


def test_rules_over_an_amended_policy() -> None:
    """Where a person gave the run another policy, its rules are replaced too, and its words are kept."""
    scenario = Scenario({"nudge": True})
    scenario.answer("", ("look", "{}"))
    scenario.feed(PolicyAmended(at=scenario.at, policy=parse({"nudge": True, "texts": {"nudge": "On."}})))
    scenario.result("c1")
    scenario.answer("", ("look", "{}"))
    scenario.result("c2")
    scenario.answer("done")
    assert Verdict.AGREE is told(scenario, ["guards", "approvals"], {}).verdict
    found = told(scenario, ["limits"], STOPS_AT_2)
    assert (Verdict.STOPS, "step_limit", 2) == (found.verdict, found.code, found.until.steps)


def test_rules_over_a_forks_policy() -> None:
    """A fork's own policy has its rules replaced, as its parent's had."""
    scenario = Scenario({})
    scenario.answer("", ("look", "{}"))
    scenario.result("c1")
    fork = RunForked(
        at=scenario.at, run="r2", rules=1, parent="r1", parent_seq=scenario.state.seq, parent_hash="00",
        policy=parse({"nudge": True}),
    )  # fmt: skip
    scenario.feed(fork)
    scenario.answer("", ("look", "{}"))
    scenario.result("c2")
    scenario.answer("done")
    limits = [{"type": "step", "value": 2, "scope": "lineage"}]
    found = told(scenario, ["limits"], {"limits": limits})
    assert (Verdict.STOPS, 2) == (found.verdict, found.until.steps)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        pytest.param(["limit"], "did you mean 'limits'", id="nearly a kind"),
        pytest.param(["limits", "colour"], "known are approvals, guards, limits", id="no kind"),
        pytest.param([], r"limits, guards, approvals\), got none", id="none"),
    ],
)
def test_kinds_that_there_are_not(kinds: list[str], said: str) -> None:
    """What is no kind of rules is refused, and those that there are named."""
    with pytest.raises(WrongUse, match=said):
        replace_rules(kinds, parse({}))
