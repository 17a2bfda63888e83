"""Edges of guards that only a mutant showed.

Each of these held a comparison or a number that could be another without any other test minding.
"""

import pytest

from refold.reducers.events import CallRefused
from refold.reducers.guards import BUILTIN, Guard, Place, Remind
from refold.reducers.guards.approvals import Approval
from refold.reducers.guards.duty import NO_CONTENT, OWN, judged, versions_of
from refold.reducers.guards.progress import Repetition
from refold.reducers.parser import parse
from refold.reducers.state import NEW, Watch
from refold.reducers.vocabulary import ToolError
from support.scenario import Scenario
from support.stalling import stalling
from support.watching import Watching


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
    assert ("rejected", {"link": 0}) == (refused.code, refused.measured)


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


def look(watching: Watching, arguments: str, error: ToolError | None = None) -> list[int]:
    """A call of `look`, and the counts of which the next request warns."""
    (call,) = watching.answer("", ("look", arguments))
    watching.result(call, "it", error)
    return [
        int(each.measured["count"])
        for each in watching.says(Place.BEFORE_REQUEST)
        if isinstance(each, Remind)
    ]


def test_a_failure_is_no_result_that_came_once() -> None:
    """With `no_progress` from the first result on, a failure is still none."""
    watching = stalling("", no_progress=(1, 9))
    assert [] == look(watching, "{}", ToolError.RAISED)
    assert [1] == look(watching, "{}")


def test_failures_push_no_result_out_of_the_64_that_are_remembered() -> None:
    """A result that comes again after any number of other calls that failed is the second one."""
    watching = stalling("", no_progress=(2, 9))
    look(watching, "{}")
    for number in range(64):
        look(watching, f'{{"other":{number}}}', ToolError.RAISED)
    assert [2] == look(watching, "{}")


@pytest.mark.parametrize(
    ("guard", "place", "codes"),
    [
        pytest.param(Approval(), Place.ON_APPROVAL, ["guard_failed"], id="approvals let nothing by unread"),
        pytest.param(Repetition(), Place.ON_REPETITION, [], id="another guard says nothing"),
    ],
)
def test_a_guard_that_could_not_read(guard: Guard, place: Place, codes: list[str]) -> None:
    """Where content was not read only the guard that answers for a person ends the run."""
    watch = Watch(name="g", kind=guard.kind, guard=guard, blind=NO_CONTENT)
    assert codes == [said.code for said in judged(watch, NEW, place)]
