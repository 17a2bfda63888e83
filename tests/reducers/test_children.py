"""What a child run gets from its parent: an id, chance and bounds, all of them pure functions of the
parent.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.events import Manifest
from refold.reducers.limits import CostLimit, Limit, TokenLimit, trips
from refold.reducers.messages import Size, Usage
from refold.reducers.meters import child_run_id, child_seed, limit_child_policy, open_children
from refold.reducers.policy import Policy
from refold.reducers.state import Batch, CallState, RunState, Spent
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef
from support.clocks import SECOND
from support.setups import setup_of


def parent(*limits: Limit, spent: Spent | None = None, deadline: int | None = None) -> RunState:
    batch = Batch(seq=3, number=3, calls=(), until=deadline)
    return RunState(
        setup=setup_of(policy=Policy(limits=limits)), at=1000 * SECOND, spent=spent or Spent(), batch=batch
    )


SPENT = Spent(usage=Usage(input=30, output=10), cost_nanousd=250_000_000)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(parent(), {}, id="no limits, no bounds"),
        pytest.param(
            parent(deadline=1007 * SECOND), {"parent:time": (7.0, "preflight")}, id="the batch's time"
        ),
        pytest.param(
            parent(deadline=900 * SECOND), {"parent:time": (0.0, "preflight")}, id="time that is over"
        ),
        pytest.param(
            parent(TokenLimit(value=100), spent=SPENT),
            {"parent:tokens": (60, "response")},
            id="tokens that are left",
        ),
        pytest.param(
            parent(TokenLimit(value=100, op=">"), spent=SPENT),
            {"parent:tokens": (61, "response")},
            id="`>` allows one more",
        ),
        pytest.param(
            parent(TokenLimit(value=100), TokenLimit(value=90, name="b"), spent=SPENT),
            {"parent:tokens": (50, "response")},
            id="of several the least",
        ),
        pytest.param(
            parent(TokenLimit(value=40), spent=SPENT),
            {"parent:tokens": (0, "preflight")},
            id="nothing left: not even one request",
        ),
        pytest.param(parent(TokenLimit(value=None), spent=SPENT), {}, id="unlimited is no bound"),
        pytest.param(
            parent(TokenLimit(value=100, measure="estimate"), spent=SPENT),
            {},
            id="a window's size is no budget",
        ),
        pytest.param(
            parent(CostLimit(value=0.35), spent=SPENT),
            {"parent:cost": (0.1, "response")},
            id="money that is left",
        ),
    ],
)
def test_what_a_parent_leaves_to_its_children(
    state: RunState, expected: dict[str, tuple[float, str]]
) -> None:
    """Each row: what of the parent's limits bounds a child, beside the child's own limits."""
    own = Policy()
    policy = limit_child_policy(own, state)
    assert own.limits == policy.limits[: len(own.limits)]
    bounds = policy.limits[len(own.limits) :]
    assert expected == {limit.name: (limit.value, limit.check) for limit in bounds}


@given(
    value=st.integers(0, 200),
    op=st.sampled_from([">=", ">"]),
    used=st.integers(0, 300),
    more=st.integers(0, 300),
)
def test_a_bound_trips_when_the_parents_own_limit_would(value: int, op: Any, used: int, more: int) -> None:
    """What a child may spend is what its parent could have spent itself: not one token more, none less."""
    limit = TokenLimit(value=value, op=op)
    (bound,) = limit_child_policy(
        Policy(limits=()), parent(limit, spent=Spent(usage=Usage(output=used)))
    ).limits
    if not trips(limit, used):
        assert trips(limit, used + more) == trips(bound, more)
    else:
        assert (0, "preflight") == (bound.value, bound.check)


@given(micros=st.integers(0, 10**12))
def test_the_time_that_is_left_survives_being_written_in_seconds(micros: int) -> None:
    """Seconds in the child's policy are the parent's nanoseconds, exactly."""
    left = micros * 1000
    (bound,) = limit_child_policy(Policy(limits=()), parent(deadline=1000 * SECOND + left)).limits
    assert trips(bound, left)
    assert not trips(bound, left - 1)


def test_the_same_call_has_the_same_child_and_no_other_has_it() -> None:
    """Ids follow from run and call, and differ where either does."""
    ids = {child_run_id(run, name) for run in ("p", "q") for name in ("c1", "c2")}
    assert 4 == len(ids)
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in ids)
    assert 0 <= child_seed(2**63 - 1, "c1") < 2**63


def test_open_children_are_those_of_calls_in_flight_that_start_runs() -> None:
    """A call that was not dispatched, that has its result, or that starts no run has no open child."""
    result = MessageRef(
        number=4, role=Role.TOOL, seq=9, unit=1, size=Size(chars=0, tokens=0, digest=""), call="c2"
    )
    calls = (
        CallState(id="c1", name="transfer", position=0, dispatched=5),
        CallState(id="c2", name="transfer", position=1, dispatched=5, result=result),
        CallState(id="c3", name="transfer", position=2),
        CallState(id="c4", name="look", position=3, dispatched=5),
    )
    tools = (Manifest(name="transfer", schema="{}", agent="writer"), Manifest(name="look", schema="{}"))
    state = RunState(setup=setup_of(run="p", tools=tools), batch=Batch(seq=4, number=2, calls=calls))
    assert (child_run_id("p", "c1"),) == open_children(state)
    assert () == open_children(RunState(setup=setup_of(run="p", tools=tools)))
