"""One policy laid over another: what merges, by what, and what is replaced whole."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.errors import PolicyError
from refold.reducers.overlay import merge_layers, name_of_entry, set_value

STEP, TIME = {"type": "step", "value": 5}, {"type": "time", "value": 9, "op": ">"}
GUARD, CAP = {"guard": "loop", "window": 3}, {"guard": "tool_cap", "name": "searches", "max": 2}

ROWS = [
    pytest.param({}, {"batch": "in_order"}, {"batch": "in_order"}, id="a key that was not there"),
    pytest.param({"batch": "parallel"}, {}, {"batch": "parallel"}, id="a key that nobody says again"),
    pytest.param(
        {"near": {"fraction": 0.8, "scope": "run"}}, {"near": {"fraction": 0.5}},
        {"near": {"fraction": 0.5, "scope": "run"}}, id="mappings merge key by key",
    ),
    pytest.param(
        {"retry": {"by_class": {"timeout": {"initial": 1, "max": 2}}}},
        {"retry": {"by_class": {"timeout": {"max": 3}, "network": {"max": 4}}}},
        {"retry": {"by_class": {"timeout": {"initial": 1, "max": 3}, "network": {"max": 4}}}},
        id="however deep",
    ),
    pytest.param({"near": {"fraction": 0.8}}, {"near": None}, {"near": None}, id="null switches off"),
    pytest.param({"near": None}, {"near": {"fraction": 0.8}}, {"near": {"fraction": 0.8}}, id="and what is off, on"),
    pytest.param({"history": [{"do": "tail", "last": 9}]}, {"history": [{"do": "tail"}]},
                 {"history": [{"do": "tail"}]}, id="a list is replaced whole"),
    pytest.param({"pressure": {"tiers": [{"name": "a"}, {"name": "b"}], "counts": "used"}},
                 {"pressure": {"tiers": [{"name": "c"}]}},
                 {"pressure": {"tiers": [{"name": "c"}], "counts": "used"}}, id="an inner list too"),
    pytest.param({"limits": [STEP, TIME]}, {"limits": [{"type": "time", "value": 1}]},
                 {"limits": [STEP, {"type": "time", "value": 1, "op": ">"}]}, id="limits merge by type"),
    pytest.param({"limits": [TIME]}, {"limits": [{"type": "time", "name": "wall", "value": 1}]},
                 {"limits": [TIME, {"type": "time", "name": "wall", "value": 1}]}, id="another name is another limit"),
    pytest.param({"limits": [{"name": "a", **TIME}]}, {"limits": [{"name": "a", "value": 1}]},
                 {"limits": [{"name": "a", **TIME, "value": 1}]}, id="by its own name, without its type"),
    pytest.param({"limits": [{"type": "token", "measure": "estimate", "value": 5}]},
                 {"limits": [{"type": "token", "value": 1}, {"name": "token_estimate", "value": 2}]},
                 {"limits": [{"type": "token", "measure": "estimate", "value": 2, "name": "token_estimate"},
                             {"type": "token", "value": 1}]}, id="an estimate has a name of its own"),
    pytest.param({"limits": [{**TIME, "credit": {"retry": "planned"}}]},
                 {"limits": [{"type": "time", "credit": {"person": False}}]},
                 {"limits": [{**TIME, "credit": {"retry": "planned", "person": False}}]}, id="within a limit too"),
    pytest.param({"limits": [STEP]}, {"limits": []}, {"limits": [STEP]}, id="nothing laid over is nothing changed"),
    pytest.param({"limits": [STEP]}, {"limits": [STEP, {**STEP, "value": 6}]},
                 {"limits": [STEP, {**STEP, "value": 6}]}, id="two alike are not hidden"),
    pytest.param({"limits": [STEP]}, {"limits": ["x", 3]}, {"limits": [STEP, "x", 3]}, id="what is no limit stays"),
    pytest.param({"limits": [STEP]}, {"limits": None}, {"limits": None}, id="limits null"),
    pytest.param({"guards": [GUARD]}, {"guards": [{"guard": "loop", "window": 4}]},
                 {"guards": [{"guard": "loop", "window": 4}]}, id="guards merge by kind"),
    pytest.param({"guards": [GUARD, CAP]}, {"guards": [{"name": "searches", "max": 7}]},
                 {"guards": [GUARD, {**CAP, "max": 7}]}, id="or by name"),
    pytest.param({"guards": [CAP]}, {"guards": [{"guard": "tool_cap", "max": 7}]},
                 {"guards": [CAP, {"guard": "tool_cap", "max": 7}]}, id="not by the kind of one with a name"),
    pytest.param({"guards": [GUARD, CAP]}, {"guards": [{"name": "loop", "guard": None}]}, {"guards": [CAP]},
                 id="a guard is taken out by its name"),
    pytest.param({"guards": [GUARD]}, {"guards": [{"guard": None}]}, {"guards": [GUARD, {"guard": None}]},
                 id="but not without one"),
    pytest.param({"retry": {"jitter": {"add": 1}}}, {"retry": {"jitter": {"full": 2}}},
                 {"retry": {"jitter": {"full": 2}}}, id="one way of jitter takes the place of another"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "over", "laid"), ROWS)
def test_rules(base: dict[str, Any], over: dict[str, Any], laid: dict[str, Any]) -> None:
    """One row a rule; neither of the two is changed."""
    before = copy.deepcopy((base, over))
    assert laid == merge_layers(base, over)
    assert before == (base, over)


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        pytest.param({"type": "step"}, "step", id="a limit's type"),
        pytest.param({"type": "token", "measure": "usage"}, "token", id="tokens"),
        pytest.param({"type": "token", "measure": "estimate"}, "token_estimate", id="tokens of the window"),
        pytest.param({"type": "step", "name": ""}, "step", id="an empty name is none"),
        pytest.param({"guard": "loop"}, "loop", id="a guard's kind"),
        pytest.param({"guard": "loop", "name": "mine"}, "mine", id="its name"),
        pytest.param({"do": "tail", "last": 1}, "tail", id="what a pass does"),
        pytest.param({}, "", id="nothing"),
        pytest.param([], "", id="no mapping"),
    ],
)
def test_names(entry: object, name: str) -> None:
    """What an entry goes by."""
    assert name == name_of_entry(entry)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "name", "type", "guard", "jitter"]), inner, max_size=3)
    ),
    max_leaves=8,
)
ENTRIES = st.lists(PLAIN, max_size=3)
POLICIES = st.fixed_dictionaries(
    {}, optional={"a": PLAIN, "limits": PLAIN | ENTRIES, "guards": PLAIN | ENTRIES}
)


@given(base=POLICIES, over=POLICIES)
def test_nothing_over_it_changes_nothing_and_a_key_given_once_is_as_given(
    base: dict[str, Any], over: dict[str, Any]
) -> None:
    """Laying is total; an empty overlay is none; over nothing an overlay is itself."""
    merge_layers(base, over)
    assert base == merge_layers(base, {})
    assert over == merge_layers({}, over)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        pytest.param("retry.attempts", 2, {"retry": {"attempts": 2, "max": 3}}, id="one key stays beside another"),
        pytest.param("retry", {"attempts": 2}, {"retry": {"attempts": 2, "max": 3}}, id="a mapping is laid over"),
        pytest.param("near.fraction", 0.5, {"near": {"fraction": 0.5}}, id="what was not there"),
        pytest.param("limits.step.value", 9, {"limits": [{"type": "step", "value": 9}]}, id="an entry by its name"),
        pytest.param("limits.cost.value", 9, {"limits": [{"type": "step", "value": 5}, {"type": "cost", "value": 9}]}, id="an entry more"),
        pytest.param("guards.loop", None, {"guards": []}, id="an entry less"),
        pytest.param("limits.cost.value", None, {"limits": [{"type": "step", "value": 5}, {"type": "cost", "value": None}]}, id="one without a value"),
        pytest.param("guards.stall.stop", True, {"guards": [{"guard": "loop"}, {"guard": "stall", "stop": True}]}, id="a guard more"),
        pytest.param("history.tail.last", 7, {"history": [{"do": "tail", "last": 7}]}, id="a pass"),
        pytest.param("approvals.preset", "ci", {"approvals": {"preset": "ci"}}, id="a key of what is one of two"),
        pytest.param("approvals", {"preset": "ci"}, {"approvals": {"preset": "ci"}}, id="one of two for the other"),
    ],
)  # fmt: skip
def test_one_value_at_a_path(path: str, value: Any, expected: dict[str, Any]) -> None:
    """Files, the environment and settings come to the same data."""
    base = {
        "retry": {"max": 3},
        "limits": [{"type": "step", "value": 5}],
        "guards": [{"guard": "loop"}],
        "history": [{"do": "tail", "last": 3}],
        "approvals": {"chain": []},
    }
    assert {**base, **expected} == set_value(base, path.split("."), value)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        pytest.param("history.trim.cap", 3, "no compaction step 'trim' to set; it has tail", id="whose name does not say what it does"),
        pytest.param("history.trim", None, "no compaction step 'trim' to remove; it has tail; leave this out", id="a pass to go"),
        pytest.param("guards.stall", None, "no guard 'stall' to remove; it has loop; leave this out", id="a guard to go"),
        pytest.param("limits.cost", None, "no limit 'cost' to remove; it has none with a name; leave", id="a limit to go"),
    ],
)  # fmt: skip
def test_an_entry_that_is_not_there_is_no_path(path: str, value: Any, told: str) -> None:
    """What is to change, or to go, is there: that nothing changes would look as if it made no difference."""
    base = {"limits": [], "guards": [{"guard": "loop"}], "history": [{"do": "tail", "last": 3}]}
    with pytest.raises(PolicyError) as raised:
        set_value(base, path.split("."), value)
    assert path == raised.value.path
    assert told in raised.value.problem
