"""Permission rules that never decide: found only where that is certain."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.rules import Order, PermissionRule, decide
from refold.reducers.permissions.run_facts import RunFacts, When
from refold.reducers.permissions.shadowing import find_shadowed


def rule(effect: str, **conditions: object) -> PermissionRule:
    """A rule of these conditions."""
    return PermissionRule(effect=effect, **conditions)  # type: ignore[arg-type]


CASES = [
    # the order, the rules, which never decides and which does instead
    ("strictest", [rule("refuse", command="git *"), rule("permit", command="git push *")], {1: 0}),
    ("strictest", [rule("permit", command="git push *"), rule("refuse", command="git *")], {0: 1}),
    ("strictest", [rule("permit", command="git *"), rule("refuse", command="git push *")], {}),
    ("strictest", [rule("ask", command="git *"), rule("ask", command="git *")], {1: 0}),
    ("strictest", [rule("refuse", command="git *"), rule("permit", command="git*")], {}),
    ("strictest", [rule("refuse", command="* *"), rule("permit", command="a *")], {}),
    ("strictest", [rule("refuse", command=("git",)), rule("permit", command=("git", "push"))], {1: 0}),
    ("strictest", [rule("refuse", command=("git", ("push", "x"))), rule("ask", command=("git", "push"))], {1: 0}),
    ("strictest", [rule("refuse", command=("git", "push")), rule("ask", command=("git", ("push", "x")))], {}),
    ("strictest", [rule("refuse", tool="mcp__*"), rule("ask", tool="mcp__a__b")], {1: 0}),
    ("strictest", [rule("refuse", tool="mcp_?"), rule("ask", tool="mcp_*")], {}),
    ("strictest", [rule("refuse", tool="A"), rule("ask", tool=("A", "B"))], {}),
    ("strictest", [rule("refuse", host=("*",)), rule("ask", host=("x.com",))], {1: 0}),
    ("strictest", [rule("refuse", host=("x.com",)), rule("ask", host=("x.com", "y.com"))], {}),
    ("strictest", [rule("refuse", path=("a",)), rule("ask", path=("a",))], {1: 0}),
    ("strictest", [rule("refuse", path=("a",)), rule("ask", path=("a", "!a"))], {}),
    ("strictest", [rule("refuse", after=rule("ask")), rule("ask")], {}),
    ("strictest", [rule("refuse", opaque="?"), rule("ask")], {}),
    ("first", [rule("permit", tool="A"), rule("refuse", tool="A")], {1: 0}),
    ("first", [rule("permit", command="git *"), rule("refuse", command="git push *")], {}),
    ("last", [rule("refuse", command="git *"), rule("permit")], {0: 1}),
    ("last", [rule("permit"), rule("refuse", command="git *")], {}),
    ("strictest", [rule("refuse", when=When(mode=("plan",))), rule("permit", command="git *")], {}),
    ("strictest", [rule("refuse", when=When(mode=("plan",))), rule("permit", when=When(mode=("plan",)))], {1: 0}),
    ("strictest", [rule("refuse"), rule("permit", when=When(mode=("plan",)))], {1: 0}),
]  # fmt: skip


@pytest.mark.parametrize(("order", "rules", "expected"), CASES)
def test_which_rules_never_decide(
    order: Order, rules: list[PermissionRule], expected: dict[int, int]
) -> None:
    """A rule is shadowed only by one that certainly matches all its calls and comes first."""
    assert expected == dict(find_shadowed(rules, order))


_COMMANDS = st.sampled_from(
    ["git *", "git push *", "git", "*", "g*", "git push", "* x", ("git",), ("git", "push")]
)
_RULES = st.builds(
    PermissionRule,
    effect=st.sampled_from(["refuse", "ask", "permit"]),
    tool=st.sampled_from(["*", "B*", "Bash", ("Bash", "Read")]),
    command=st.none() | _COMMANDS,
    path=st.none() | st.sampled_from([("a",), ("*",), ("!a", "b")]),
    host=st.none() | st.sampled_from([("*",), ("x.com",), ("x.com", "y.com")]),
    when=st.none() | st.sampled_from([When(mode=("plan",)), When(mode=("*",)), When(subagent=False)]),
)
_SCRIPTS = [
    "git",
    "git push",
    "git push x",
    "/usr/bin/git push",
    "git -C a push",
    "ls x",
    "a; git x",
    "eval x",
    "git > f",
]
_CALLS = st.builds(
    ToolCall,
    st.sampled_from(["Bash", "Read", "Bush"]),
    st.fixed_dictionaries(
        {},
        optional={
            "command": st.sampled_from(_SCRIPTS),
            "path": st.sampled_from(["a", "b", "../c", "/a"]),
            "url": st.sampled_from(["http://x.com", "http://y.com", "http://z.com", "x"]),
        },
    ).map(json.dumps),
    run=st.sampled_from([RunFacts(), RunFacts(mode="plan", child=False), RunFacts(mode="x", child=True)]),
)


@given(
    st.lists(_RULES, max_size=4),
    st.sampled_from(["strictest", "first", "last"]),
    st.lists(_CALLS, max_size=6),
)
def test_a_shadowed_rule_decides_nothing(
    rules: list[PermissionRule], order: Order, calls: list[ToolCall]
) -> None:
    """A shadowed rule decides no call, and without it every call is decided as before."""
    shadowed = dict(find_shadowed(rules, order))
    rest = [each for place, each in enumerate(rules) if place not in shadowed]
    for call in calls:
        decision = decide(rules, order, "permit", call)
        assert decision.effect == "unknown" or decision.rule not in shadowed
        assert decision.effect == decide(rest, order, "permit", call).effect
