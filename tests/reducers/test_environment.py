"""What environment variables set: a row a rule, then laws over any environment."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import PolicyError, parse
from refold.reducers.environment import flag, from_environment, slug
from refold.reducers.parser import parse_with

Plain = dict[str, Any]

POLICY: Plain = {
    "limits": [
        {"type": "time", "value": None},
        {"type": "step", "value": 9},
        {"type": "token", "measure": "estimate", "value": 1000},
        {"type": "time", "name": "wall", "value": 90},
    ],
    "history": [
        {"name": "trim", "when": {"messages": 120}, "do": "trim_messages", "cap": None, "last": 200},
        {"name": "threshold", "when": {"messages": 120}, "do": "tail", "last": 40},
        {"when": {"always": True}, "do": "tail", "last": 100},
    ],
    "retry": {"attempts": 6, "jitter": {"full": 1}},
    "tool_output": {"max": 50000, "unit": "chars", "keep": "head"},
    "guards": [{"guard": "repetition"}],
    "near": None,
}


def named(entry: Plain) -> str:
    kind = "token_estimate" if entry.get("measure") == "estimate" else entry.get("type")
    return str(entry.get("name") or kind or entry.get("guard") or entry["do"])


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every value by its place, entries of lists by their names."""
    if isinstance(value, list | tuple):
        value = {named(each): each for each in value}
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {
        place: said for key, inner in value.items() for place, said in flat(inner, f"{path}.{key}").items()
    }


def changes(
    environment: Mapping[str, str], given: Plain | None = None, agent: str = "", policy: Plain = POLICY
) -> dict[str, Any]:
    """What the environment changed of the policy, place by place; `gone` for a value that is no longer there."""
    before = deepcopy(policy)
    after, notes = from_environment(environment, policy, given or {}, agent)
    assert before == policy
    assert bool(notes) or policy == after
    old, new = flat(policy), flat(after)
    places = {
        place.removeprefix(".") for place in old.keys() | new.keys() if old.get(place) != new.get(place)
    }
    return {place: new.get(f".{place}", "gone") for place in sorted(places)}


def the_only(name: str, text: str) -> Any:
    (value,) = changes({name: text}).values()
    return value


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


POSITIVE = [
    "REFOLD_TIME_LIMIT", "REFOLD_MAX_STEPS", "REFOLD_MESSAGE_LIMIT", "REFOLD_TOKEN_BUDGET", "REFOLD_COST_LIMIT",
    "REFOLD_MESSAGE_TOKEN_CAP", "REFOLD_TRIM_LAST", "REFOLD_RETRY_MAX_ATTEMPTS", "REFOLD_RETRY_MAX_SECONDS",
]  # fmt: skip
WAITS = ["REFOLD_RETRY_INITIAL_SECONDS", "REFOLD_RETRY_JITTER"]
SIZES = ["REFOLD_PRUNE_AFTER_MESSAGES", "REFOLD_PRUNE_KEEP_LAST", "REFOLD_MAX_TOOL_OUTPUT"]
WORDS = ["REFOLD_RETRY_CREDIT", "REFOLD_APPROVALS", "REFOLD_ONE_CALL"]
ALL = [*POSITIVE, *WAITS, *SIZES, *WORDS, "REFOLD_NEAR_LIMIT"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_blank_is_unset(name: str, text: str) -> None:
    """A variable of white space says nothing."""
    assert {} == changes({name: text})


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("text", ["0", "-0", "-1", "000"])
def test_zero_or_less_is_unset(name: str, text: str) -> None:
    """For most numbers zero and everything below it says nothing; one does."""
    assert {} == changes({name: text})
    assert {} != changes({name: "1"})


@pytest.mark.parametrize("name", WAITS)
def test_no_wait_is_a_wait(name: str) -> None:
    """A first wait or a jitter of 0 is 0; below that it says nothing."""
    assert (
        the_only(name, "0") == 0
        if name.endswith("SECONDS")
        else changes({name: "0"})["retry.jitter.add"] == 0
    )
    assert {} == changes({name: "-1"})
    assert {} == changes({name: "-0.5"})


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("REFOLD_PRUNE_AFTER_MESSAGES", ("0", "-1", "-40"), None),
        ("REFOLD_PRUNE_KEEP_LAST", ("0", "-1", "-40"), 0),
        ("REFOLD_MAX_TOOL_OUTPUT", ("0", "-0"), None),
    ],
)
def test_a_size_can_be_off(name: str, texts: tuple[str, ...], value: int | None) -> None:
    """Zero or less messages switch the pruning off, and keep none; zero bytes are no cap."""
    assert [value] * len(texts) == [the_only(name, text) for text in texts]


@pytest.mark.parametrize("text", [" 7 ", "+7", "7\n", "007", "\u30007"])
def test_blanks_a_sign_and_zeros(text: str) -> None:
    """A number may have blanks around it, a sign, and zeros in front."""
    assert 7 == the_only("REFOLD_MAX_STEPS", text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), (" +2.50 ", 2.5), (".5", 0.5), ("5.", 5.0), ("000.125", 0.125), ("0.000000001", 1e-9)],
)
def test_decimals(text: str, value: float) -> None:
    """Seconds and dollars are decimal numbers."""
    assert value == the_only("REFOLD_TIME_LIMIT", text)


GARBAGE = ["x", "1e3", "0x10", "1_000", "1,5", "- 5", "--5", "nan", "inf", ".", "+", "½", "٣", "true", "1 2"]


@pytest.mark.parametrize("name", [*POSITIVE, *WAITS, *SIZES, "REFOLD_NEAR_LIMIT"])
@pytest.mark.parametrize("text", [*GARBAGE, "1" + "0" * 15])
def test_what_is_no_number_is_refused(name: str, text: str) -> None:
    """What cannot be read as a number is refused, by the variable's name and with the text."""
    with pytest.raises(PolicyError) as refused:
        changes({name: text})
    assert name == refused.value.path
    assert "expected a" in str(refused.value)
    assert str(refused.value).endswith(f"got {text!r}")


@pytest.mark.parametrize("name", ["REFOLD_MAX_STEPS", "REFOLD_TRIM_LAST", *SIZES])
def test_a_count_is_whole(name: str) -> None:
    """There is no half a step, message, token or byte."""
    with pytest.raises(PolicyError, match="whole number"):
        changes({name: "3.5"})


@pytest.mark.parametrize(
    ("text", "fits"),
    [("9" * 15, True), ("0" * 40 + "9" * 15, True), ("1" + "0" * 15, False), ("9" * 5000, False)],
)
def test_the_largest_count(text: str, fits: bool) -> None:
    """Fifteen digits fit a limit, zeros in front aside; more are refused, however many, and shown cut."""
    if fits:
        assert int(text) == the_only("REFOLD_MAX_STEPS", text)
        return
    with pytest.raises(PolicyError) as refused:
        changes({"REFOLD_MAX_STEPS": text})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "seconds"), [("999999999", 999999999), ("1000000000", None), ("0.0000000001", None)]
)
def test_the_largest_amount(text: str, seconds: int | None) -> None:
    """Nine digits before the point fit, and nine after it: more than a lifetime, less than a nanosecond."""
    if seconds is None:
        with pytest.raises(PolicyError, match="9 digits before the point and 9 after"):
            changes({"REFOLD_TIME_LIMIT": text})
    else:
        assert seconds == the_only("REFOLD_TIME_LIMIT", text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("REFOLD_MAX_TOOL_OUTPUT", "-1", "0 for no cap, or more"),
        ("REFOLD_NEAR_LIMIT", "0", "above 0 and below 1"),
        ("REFOLD_NEAR_LIMIT", "-0.5", "above 0 and below 1"),
        ("REFOLD_NEAR_LIMIT", "1", "above 0 and below 1"),
        ("REFOLD_NEAR_LIMIT", "1.5", "above 0 and below 1"),
        ("REFOLD_APPROVALS", "Prod", "one of ci, dev, prod"),
        ("REFOLD_APPROVALS", "none", "one of ci, dev, prod"),
        ("REFOLD_ONE_CALL", "2", "one of 1, true, yes, on, 0, false, no, off"),
        ("REFOLD_RETRY_CREDIT", "t", "one of 1, true, yes, on, 0, false, no, off"),
    ],
)
def test_what_is_no_such_value_is_refused(name: str, text: str, expected: str) -> None:
    """A value outside its range, and a word that is none of those known, is refused by the variable's name."""
    with pytest.raises(PolicyError) as refused:
        changes({name: text})
    assert name == refused.value.path
    assert expected in str(refused.value)
    assert text in str(refused.value)


def test_the_fraction_may_come_near_its_ends() -> None:
    """A fraction just above 0 and just below 1 is one."""
    assert [0.001, 0.999] == [
        changes({"REFOLD_NEAR_LIMIT": text})["near.fraction"] for text in ("0.001", "0.999")
    ]


@pytest.mark.parametrize(
    ("text", "on"),
    [(word, True) for word in ("1", "true", "YES", " On ")]
    + [(word, False) for word in ("0", "False", "NO", "\toff")]
    + [(word, None) for word in ("", "  ", None)],
)
def test_flags(text: str | None, on: bool | None) -> None:
    """A flag is one of eight words, any case, blanks around; else it is unset."""
    assert on is flag({} if text is None else {"REFOLD_PRUNE_LOG": text}, "REFOLD_PRUNE_LOG")


def test_another_word_is_no_flag() -> None:
    """Any other word is refused by the variable's name."""
    with pytest.raises(PolicyError, match=r"^REFOLD_PRUNE_LOG: expected one of 1, true.*got 'enabled'$"):
        flag({"REFOLD_PRUNE_LOG": "enabled"}, "REFOLD_PRUNE_LOG")


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
    """A knob that a file or an argument gave, null too, is not set by the environment, nor its variable read."""
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
    with pytest.raises(PolicyError, match=r"has no pass '(threshold|trim)'") as refused:
        from_environment({name: text}, policy, {})
    assert name == refused.value.path
    assert (policy, ()) == from_environment({name: " "}, policy, {})


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
    _, notes = from_environment(environment, POLICY, {"limits": [{"type": "message", "value": 1}]}, "a")
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
    data, notes = from_environment(environment, {"retry": {"jitter": {"full": 1}}}, {})
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
    off, _ = from_environment({"REFOLD_ONE_CALL": "off"}, policy, {})
    on, _ = from_environment({"REFOLD_ONE_CALL": "on"}, policy, {})
    assert ({"guards": [{"guard": "handoff"}]}, policy) == (off, on)


def test_a_name_that_is_taken_twice_stays_so() -> None:
    """Entries of one name are not merged here, so that the policy is refused for them where it is read."""
    policy = {"limits": [{"type": "step", "value": 1}, {"type": "step", "value": 2}]}
    data, _ = from_environment({"REFOLD_MAX_STEPS": "3"}, policy, {})
    assert [3, 3] == [limit["value"] for limit in data["limits"]]


TEXT = st.one_of(st.sampled_from([*GARBAGE, "", "0", "1", "-1", "0.5", "ci", "on", "7"]), st.text(max_size=6))
ENVIRONMENTS = st.dictionaries(st.sampled_from([*ALL, "REFOLD_LIMIT_TIME__A", "REFOLD_LIMIT_X__A"]), TEXT)
SAID = st.sampled_from([{}, *(said for _, said in GIVEN), {"retry": 5}, {"limits": None}, {"limits": ["x"]}])


@given(environment=ENVIRONMENTS, said=SAID)
def test_any_environment_is_read_or_refused_by_name(environment: dict[str, str], said: Plain) -> None:
    """Whatever the variables hold, one of them is refused by name, or the policy is changed where a note says so."""
    try:
        after, notes = from_environment(environment, POLICY, said, "a")
    except PolicyError as refused:
        at_fault = refused.path
        assert at_fault in environment
        return
    assert {note.partition(": ")[2] for note in notes} <= set(environment)
    assert bool(changes(environment, said, "a")) <= bool(notes)
    assert (after, notes) == from_environment(environment, after, said, "a")
