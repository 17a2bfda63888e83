"""Edges of guards that only a mutant showed.

Each of these held a comparison or a number that could be another without any other test minding.
"""

import pytest

from refold.reducers.events import CallRefused
from refold.reducers.guards import BUILTIN, Guard
from refold.reducers.guards.duty import OWN, versions_of
from refold.reducers.parsing import parse
from support.scenario import Scenario


@pytest.mark.parametrize("guard", [*BUILTIN.values(), *OWN.values()], ids=[*BUILTIN, *OWN])
def test_the_versions_that_logs_have_recorded(guard: type[Guard]) -> None:
    """Every guard is what it was when logs were first written: another version is blind in their audits."""
    assert 1 == guard.version


def test_a_person_rejects_under_another_chain_than_the_one_that_asked() -> None:
    """The new chain has said nothing of the call: the person's word counts as its first link's."""
    scenario = Scenario({"approvals": {"chain": [{"approver": "human"}]}})
    scenario.answer("", ("act", "{}"))
    scenario.amend({"approvals": {"chain": [{"approver": "human", "timeout": 60}]}})
    scenario.approve(c1="reject")
    (refused,) = scenario.events(CallRefused)
    assert ("rejected", {"link": 0}) == (refused.code, refused.saw)


def test_a_run_records_the_versions_of_the_guards_that_are_installed() -> None:
    """A guard that is not there has no version to record."""
    policy = parse({"guards": [{"guard": "loop", "window": 2}, {"guard": "nobodys"}]}, strict_guards=False)
    assert {"loop": 1} == versions_of(policy, BUILTIN)


@pytest.mark.parametrize(
    ("clip", "state"),
    [pytest.param(200, "ERROR", id="configured alike"), pytest.param(9, "WAITING_FOR_TOOL", id="otherwise")],
)
def test_an_amended_policy_keeps_what_its_guards_have_seen(clip: int, state: str) -> None:
    """A guard that is configured as before goes on counting; one that is not begins anew."""
    scenario = Scenario({"guards": [{"guard": "repetition", "repeats": 2}]})
    scenario.step()
    scenario.step()
    scenario.amend({"guards": [{"guard": "repetition", "repeats": 2, "clip": clip}]})
    scenario.answer("", ("look", "{}"))
    assert state == scenario.state.agent_state
