"""What environment variables set, for whom, and beside what was given: a row a rule, then a law over any
environment.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import PolicyError, parse
from refold.reducers.overlay import apply_environment, find_ignored_variables, slug
from refold.reducers.parser import parse_with
from support.variables import ALL, GARBAGE, POLICY, Plain, changes


@pytest.mark.parametrize(
    ("name", "text", "changed"),
    [
        ("REFOLD_TIME_LIMIT", "30", {"limits.time.value": 30}),
        ("REFOLD_TIME_LIMIT", "0.5", {"limits.time.value": 0.5}),
        ("REFOLD_MAX_STEPS", "1", {"limits.step.value": 1}),
        ("REFOLD_MESSAGE_LIMIT", "5", {"limits.message.type": "message", "limits.message.value": 5}),
        ("REFOLD_TOKEN_BUDGET", "5", {"limits.token.type": "token", "limits.token.value": 5}),
        ("REFOLD_COST_LIMIT", "1.25", {"limits.cost.type": "cost", "limits.cost.value": 1.25}),
        ("REFOLD_PRUNE_AFTER_MESSAGES", "1", {"history.threshold.when.messages": 1}),
        ("REFOLD_PRUNE_KEEP_LAST", "1", {"history.threshold.last": 1}),
        ("REFOLD_MESSAGE_TOKEN_CAP", "1", {"history.trim.cap": 1}),
        ("REFOLD_TRIM_LAST", "1", {"history.trim.last": 1}),
        ("REFOLD_MAX_TOOL_OUTPUT", "1", {"tool_output.max": 1, "tool_output.unit": "bytes"}),
        ("REFOLD_RETRY_MAX_ATTEMPTS", "1", {"retry.attempts": 1}),
        ("REFOLD_RETRY_INITIAL_SECONDS", "0.25", {"retry.initial": 0.25}),
        ("REFOLD_RETRY_MAX_SECONDS", "7.5", {"retry.max": 7.5}),
        ("REFOLD_RETRY_JITTER", "2", {"retry.jitter.add": 2, "retry.jitter.full": "gone"}),
        ("REFOLD_RETRY_CREDIT", "yes", {"limits.time.credit.retry": "on_success"}),
        ("REFOLD_RETRY_CREDIT", "no", {"limits.time.credit.retry": "none"}),
        ("REFOLD_NEAR_LIMIT", "0.8", {"near.fraction": 0.8}),
        ("REFOLD_APPROVALS", "prod", {"approvals.preset": "prod"}),
        ("REFOLD_ONE_CALL", "1", {"guards.one_call.guard": "one_call"}),
        ("REFOLD_ONE_CALL", "0", {}),
    ],
)
def test_each_variable_has_its_knob(name: str, text: str, changed: dict[str, Any]) -> None:
    """A variable sets its knob, adds what has to be there for it, and changes nothing else."""
    assert changed == changes({name: text})


GIVEN = [
    ("REFOLD_TIME_LIMIT", {"limits": [{"type": "time", "value": None}]}),
    ("REFOLD_TIME_LIMIT", {"limits": [{"type": "time", "seconds": 5}]}),
    ("REFOLD_MAX_STEPS", {"limits": [{"type": "step", "max": 5}]}),
    ("REFOLD_COST_LIMIT", {"limits": [{"name": "cost", "type": "cost", "value": 5}]}),
    ("REFOLD_PRUNE_AFTER_MESSAGES", {"history": [{"name": "threshold", "when": {"messages": None}}]}),
    ("REFOLD_PRUNE_KEEP_LAST", {"history": [{"name": "threshold", "last": 0}]}),
    ("REFOLD_MESSAGE_TOKEN_CAP", {"history": [{"name": "trim", "cap": None}]}),
    ("REFOLD_TRIM_LAST", {"history": [{"name": "trim", "last": 0}]}),
    ("REFOLD_MAX_TOOL_OUTPUT", {"tool_output": {"max": None}}),
    ("REFOLD_MAX_TOOL_OUTPUT", {"tool_output": None}),
    ("REFOLD_RETRY_MAX_ATTEMPTS", {"retry": {"attempts": None}}),
    ("REFOLD_RETRY_INITIAL_SECONDS", {"retry": {"initial": 0}}),
    ("REFOLD_RETRY_MAX_SECONDS", {"retry": {"max": None}}),
    ("REFOLD_RETRY_JITTER", {"retry": {"jitter": {"spread": 5}}}),
    ("REFOLD_RETRY_CREDIT", {"limits": [{"type": "time", "value": 5, "credit": {"retry": "none"}}]}),
    ("REFOLD_NEAR_LIMIT", {"near": {"fraction": None}}),
    ("REFOLD_NEAR_LIMIT", {"near": None}),
    ("REFOLD_APPROVALS", {"approvals": None}),
    ("REFOLD_APPROVALS", {"approvals": {"chain": []}}),
    ("REFOLD_ONE_CALL", {"guards": [{"guard": "one_call"}]}),
]


@pytest.mark.parametrize(("name", "said"), GIVEN)
@pytest.mark.parametrize("text", ["1", "garbage", "0.5", "ci"])
def test_what_was_given_is_not_looked_up(name: str, said: Plain, text: str) -> None:
    """A knob that a file or an argument gave, null too, is not set by the environment, nor its variable
    read.
    """
    assert {} == changes({name: text}, said)


@pytest.mark.parametrize(
    ("name", "text", "said", "changed"),
    [
        pytest.param(
            "REFOLD_MAX_STEPS", "3", {"limits": [{"type": "time", "value": 5}]}, ["limits.step.value"],
            id="another limit",
        ),
        pytest.param(
            "REFOLD_TIME_LIMIT", "3", {"limits": [{"type": "time", "name": "wall", "value": 5}]},
            ["limits.time.value"], id="a limit of the same type under another name",
        ),
        pytest.param(
            "REFOLD_TOKEN_BUDGET", "3", {"limits": [{"type": "token", "measure": "estimate", "value": 5}]},
            ["limits.token.type", "limits.token.value"], id="tokens of the window are another limit",
        ),
        pytest.param(
            "REFOLD_RETRY_CREDIT", "1", {"limits": [{"type": "time", "value": 5}]}, ["limits.time.credit.retry"],
            id="the value but not the credit",
        ),
        pytest.param(
            "REFOLD_PRUNE_KEEP_LAST", "3", {"history": [{"name": "threshold", "when": {"messages": 5}}]},
            ["history.threshold.last"], id="another field of the pass",
        ),
        pytest.param(
            "REFOLD_RETRY_JITTER", "3", {"retry": {"attempts": 2}},
            ["retry.jitter.add", "retry.jitter.full"], id="another field of retry",
        ),
        pytest.param(
            "REFOLD_MAX_TOOL_OUTPUT", "3", {"tool_output": {"unit": "chars"}}, ["tool_output.max"],
            id="the unit that was given stays",
        ),
        pytest.param(
            "REFOLD_ONE_CALL", "on", {"guards": [{"guard": "handoff"}]}, ["guards.one_call.guard"],
            id="another guard",
        ),
    ],
)  # fmt: skip
def test_only_what_was_given_is_taken(name: str, text: str, said: Plain, changed: list[str]) -> None:
    """What was given beside a knob does not keep the environment from setting it."""
    assert changed == list(changes({name: text}, said))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("REFOLD_PRUNE_AFTER_MESSAGES", "1"),
        ("REFOLD_PRUNE_KEEP_LAST", "1"),
        ("REFOLD_MESSAGE_TOKEN_CAP", "1"),
        ("REFOLD_TRIM_LAST", "1"),
    ],
)
@pytest.mark.parametrize("history", [None, [], [{"do": "tail", "last": 3}]])
def test_a_pass_that_the_policy_lacks(name: str, text: str, history: Any) -> None:
    """A variable for a pass that is not there is refused by its name; where it says nothing it is not."""
    policy = {"history": history} if history is not None else {}
    with pytest.raises(PolicyError, match=r"has no compaction step '(threshold|trim)'") as refused:
        apply_environment({name: text}, policy, {})
    assert name == refused.value.path
    assert (policy, ()) == apply_environment({name: " "}, policy, {})


@pytest.mark.parametrize(
    ("environment", "agent", "changed"),
    [
        pytest.param({"REFOLD_LIMIT_STEP__WRITER": "3"}, "writer", {"limits.step.value": 3}, id="upper case"),
        pytest.param({"REFOLD_LIMIT_STEP__writer": "3"}, "Writer", {"limits.step.value": 3}, id="lower case"),
        pytest.param({"REFOLD_LIMIT_STEP__WRITER": "3"}, "reader", {}, id="another agent's"),
        pytest.param({"REFOLD_LIMIT_STEP__WRITER": "3"}, "", {}, id="no agent"),
        pytest.param({"REFOLD_LIMIT_STEP__": "  "}, "", {}, id="blank, for nobody"),
        pytest.param({"REFOLD_LIMIT_STEPS__a_b": "3"}, "A - b", {"limits.step.value": 3}, id="plural; a run is one _"),
        pytest.param({"REFOLD_LIMIT_TIME__a": "0.5"}, "a", {"limits.time.value": 0.5}, id="time"),
        pytest.param(
            {"REFOLD_LIMIT_MESSAGES__a": "4"}, "a",
            {"limits.message.type": "message", "limits.message.value": 4}, id="messages",
        ),
        pytest.param(
            {"REFOLD_LIMIT_TOKENS__a": "4"}, "a",
            {"limits.token.type": "token", "limits.token.value": 4}, id="tokens",
        ),
        pytest.param(
            {"REFOLD_LIMIT_COST__a": "4"}, "a", {"limits.cost.type": "cost", "limits.cost.value": 4}, id="cost"
        ),
        pytest.param(
            {"REFOLD_LIMIT_STEP__A": "3", "REFOLD_MAX_STEPS": "5"}, "a", {"limits.step.value": 3},
            id="the agent's own before that for all",
        ),
        pytest.param(
            {"REFOLD_LIMIT_STEP__A": "0", "REFOLD_MAX_STEPS": "5"}, "a", {"limits.step.value": 5},
            id="an own one that says nothing",
        ),
        pytest.param(
            {"REFOLD_LIMIT_STEP__A": "3", "REFOLD_LIMIT_STEPS__a": " "}, "a", {"limits.step.value": 3},
            id="two spellings, one of them blank",
        ),
    ],
)  # fmt: skip
def test_limits_for_one_agent(environment: dict[str, str], agent: str, changed: dict[str, Any]) -> None:
    """A limit may be set for the runs of one agent, by its name in lower case with `_` between the words."""
    assert changed == changes(environment, agent=agent)


def test_a_limit_given_is_not_set_for_an_agent() -> None:
    """What a file gave stands, also against a variable for one agent."""
    assert {} == changes({"REFOLD_LIMIT_STEP__A": "x"}, {"limits": [{"type": "step", "value": 5}]}, "a")


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"REFOLD_LIMIT_STEPP__A": "3"}, "REFOLD_LIMIT_STEPP__A"),
        ({"REFOLD_LIMIT_STEP": "3"}, "REFOLD_LIMIT_STEP"),
        ({"REFOLD_LIMIT_STEP__": "3"}, "REFOLD_LIMIT_STEP__"),
        ({"REFOLD_LIMIT_STEP__A": "3", "REFOLD_LIMIT_STEP__a": "4"}, "REFOLD_LIMIT_STEP__a"),
        ({"REFOLD_LIMIT_STEP__A": "3.5"}, "REFOLD_LIMIT_STEP__A"),
    ],
)
def test_a_limit_for_an_agent_that_cannot_be(environment: dict[str, str], named: str) -> None:
    """An unknown type, a missing agent, two variables for one limit, and no number are refused by name."""
    with pytest.raises(PolicyError) as refused:
        changes(environment, agent="a")
    assert named == refused.value.path


@pytest.mark.parametrize(
    ("agent", "said"),
    [("Writer", "writer"), ("a--b c", "a_b_c"), ("été 2", "été_2"), ("a__b", "a_b"), ("", "")],
)
def test_slug(agent: str, said: str) -> None:
    """Runs of anything but letters and digits become one underscore."""
    assert said == slug(agent)


def test_what_was_set_is_said() -> None:
    """Each knob that the environment set is named with its variable, and nothing that it did not set."""
    environment = {
        "REFOLD_TIME_LIMIT": "30", "REFOLD_MAX_STEPS": "0", "REFOLD_MESSAGE_LIMIT": "7",
        "REFOLD_LIMIT_TIME__A": "5", "REFOLD_RETRY_JITTER": "0", "HOME": "/", "REFOLD_STORE": "x",
    }  # fmt: skip
    _, notes = apply_environment(environment, POLICY, {"limits": [{"type": "message", "value": 1}]}, "a")
    assert ("limits.time: REFOLD_LIMIT_TIME__A", "retry.jitter: REFOLD_RETRY_JITTER") == notes


def test_the_default_limit_stays() -> None:
    """A policy that names no limits has the language's default, which a limit more does not take away."""
    policy, _ = parse_with({}, {"REFOLD_TIME_LIMIT": "30"})
    assert [("step", 50), ("time", 30)] == [(limit.name, limit.value) for limit in policy.limits]


def test_what_comes_out_is_a_policy() -> None:
    """What the environment sets is read as any other policy."""
    environment = {
        "REFOLD_MAX_STEPS": "3", "REFOLD_COST_LIMIT": "0.1", "REFOLD_MAX_TOOL_OUTPUT": "100",
        "REFOLD_RETRY_MAX_ATTEMPTS": "2", "REFOLD_RETRY_INITIAL_SECONDS": "0", "REFOLD_RETRY_JITTER": "0.5",
    }  # fmt: skip
    data, notes = apply_environment(environment, {"retry": {"jitter": {"full": 1}}}, {})
    policy = parse({key: data[key] for key in data if key != "tool_output"})
    assert [("step", 3), ("cost", 0.1)] == [(limit.name, limit.value) for limit in policy.limits]
    assert (2, 0, 0.5, None) == (
        policy.retry.attempts, policy.retry.initial, policy.retry.jitter.add, policy.retry.jitter.full
    )  # fmt: skip
    assert {"max": 100, "unit": "bytes"} == data["tool_output"]
    assert 7 == len(notes)


def test_one_call_can_be_switched_off() -> None:
    """The guard that a preset brings goes when its flag is off, and is there once when it is on."""
    policy = {"guards": [{"guard": "one_call"}, {"guard": "handoff"}]}
    off, _ = apply_environment({"REFOLD_ONE_CALL": "off"}, policy, {})
    on, _ = apply_environment({"REFOLD_ONE_CALL": "on"}, policy, {})
    assert ({"guards": [{"guard": "handoff"}]}, policy) == (off, on)


def test_a_name_that_is_taken_twice_stays_so() -> None:
    """Entries of one name are not merged here, so that the policy is refused for them where it is read."""
    policy = {"limits": [{"type": "step", "value": 1}, {"type": "step", "value": 2}]}
    data, _ = apply_environment({"REFOLD_MAX_STEPS": "3"}, policy, {})
    assert [3, 3] == [limit["value"] for limit in data["limits"]]


TEXT = st.one_of(st.sampled_from([*GARBAGE, "", "0", "1", "-1", "0.5", "ci", "on", "7"]), st.text(max_size=6))
ENVIRONMENTS = st.dictionaries(st.sampled_from([*ALL, "REFOLD_LIMIT_TIME__A", "REFOLD_LIMIT_X__A"]), TEXT)
SAID = st.sampled_from([{}, *(said for _, said in GIVEN), {"retry": 5}, {"limits": None}, {"limits": ["x"]}])


@given(environment=ENVIRONMENTS, said=SAID)
def test_any_environment_is_read_or_refused_by_name(environment: dict[str, str], said: Plain) -> None:
    """Whatever the variables hold, one of them is refused by name, or the policy is changed where a note says
    so.
    """
    try:
        after, notes = apply_environment(environment, POLICY, said, "a")
    except PolicyError as refused:
        at_fault = refused.path
        assert at_fault in environment
        return
    assert {note.partition(": ")[2] for note in notes} <= set(environment)
    assert bool(changes(environment, said, "a")) <= bool(notes)
    assert (after, notes) == apply_environment(environment, after, said, "a")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        pytest.param("REFOLD_COST_LIMIT", "-1", "REFOLD_COST_LIMIT=-1 sets no limit: zero or less counts as unset", id="below zero"),
        pytest.param("REFOLD_MAX_STEPS", "0", "REFOLD_MAX_STEPS=0 sets no limit: zero or less counts as unset", id="zero"),
        pytest.param("REFOLD_MAX_STEP", "5", "REFOLD_MAX_STEP: unknown variable, ignored; did you mean REFOLD_MAX_STEPS?", id="a slip"),
        pytest.param("REFOLD_ZZZZZZ", "5", "REFOLD_ZZZZZZ: unknown variable, ignored", id="like none"),
        pytest.param("REFOLD_MAX_STEPS", "5", "", id="a limit"),
        pytest.param("REFOLD_MAX_STEPS", "many", "", id="no number: refused, not told"),
        pytest.param("REFOLD_PRUNE_KEEP_LAST", "0", "", id="zero that says something"),
        pytest.param("REFOLD_LIMIT_TIME__BILLING", "5", "", id="of another agent"),
        pytest.param("PATH", "/bin", "", id="not ours"),
    ],
)  # fmt: skip
def test_what_is_set_and_comes_to_nothing(name: str, text: str, told: str) -> None:
    """Who sets a limit that is none, or a variable that nothing reads, is told."""
    assert ((told,) if told else ()) == find_ignored_variables({name: text})


def test_every_variable_is_known() -> None:
    """No variable that some code reads is taken for one that nothing reads."""
    root = Path(__file__).parents[2]
    texts = [path.read_text(encoding="utf-8") for path in root.glob("*/refold/**/*.py")]
    names = {name for text in texts for name in re.findall(r"\bREFOLD_[A-Z]+(?:_[A-Z]+)*\b", text)}
    assert len(names) > 20
    assert () == find_ignored_variables(dict.fromkeys(names, "1"))
