"""Policies from plain data: what is refused, and how; what is read as what."""

from typing import Any

import msgspec
import pytest

from refold.reducers.errors import PolicyError
from refold.reducers.parsing import checked, parse
from refold.reducers.policy import Policy
from refold.reducers.texts import TEXTS

INF = float("inf")


def limit(**fields: Any) -> dict[str, Any]:
    return {"limits": [{"type": "step", "value": 1}, fields]}


REFUSED = [
    pytest.param([], "", "a policy is a mapping", "[]", id="a list"),
    pytest.param("x", "", "a policy is a mapping", '"x"', id="text"),
    pytest.param(None, "", "a policy is a mapping", "null", id="nothing"),
    pytest.param({"lmits": []}, "lmits", "unknown key", "", id="an unknown key"),
    pytest.param({"schema": "refold/v2"}, "schema", "", '"refold/v2"', id="another schema"),
    pytest.param({"limits": None}, "limits", "expected a list", "null", id="limits null"),
    pytest.param({"limits": {"step": 3}}, "limits", "expected a list", '{"step": 3}', id="limits a mapping"),
    pytest.param({"limits": [3]}, "limits[0]", "expected a mapping", "3", id="a limit that is a number"),
    pytest.param(limit(value=1), "limits[1].type", "required", "", id="no type"),
    pytest.param(limit(type="stepp", value=1), "limits[1].type", "", '"stepp"', id="an unknown type"),
    pytest.param(limit(type=3, value=1), "limits[1].type", "expected text", "3", id="a type that is no text"),
    pytest.param(limit(type="time"), "limits[1].value", "required", "", id="no value"),
    pytest.param(
        limit(type="time", value="ten"), "limits[1].value", "a number", '"ten"', id="text for a number"
    ),
    pytest.param(limit(type="time", value=-1), "limits[1].value", ">= 0", "-1", id="less than 0"),
    pytest.param(
        limit(type="time", value=-0.5), "limits[1].value", ">= 0", "-0.5", id="a little less than 0"
    ),
    pytest.param(
        limit(type="cost", value="1"), "limits[1].value", "a number", '"1"', id="a number in quotes"
    ),
    pytest.param(
        limit(type="token", value=1.5), "limits[1].value", "a whole number", "1.5", id="half a token"
    ),
    pytest.param(limit(type="token", value=True), "limits[1].value", "a whole number", "true", id="true"),
    pytest.param(
        limit(type="time", value=INF), "limits[1].value", "null for unlimited", "inf", id="infinity"
    ),
    pytest.param(
        limit(type="time", value=float("nan")), "limits[1].value", "finite", "nan", id="not a number"
    ),
    pytest.param(
        limit(type="time", value=1, seconds=2), "limits[1]", "write 'value' only", "'seconds'", id="twice"
    ),
    pytest.param(
        limit(type="token", max=1, limit=2), "limits[1]", "write 'value' only", "'limit'", id="two aliases"
    ),
    pytest.param(
        limit(type="step", kind="step", value=1), "limits[1]", "write 'type' only", "", id="type and kind"
    ),
    pytest.param(
        limit(type="step", seconds=1), "limits[1].seconds", "unknown key", "", id="another type's alias"
    ),
    pytest.param(
        limit(type="cost", value=1, hurry=1), "limits[1].hurry", "unknown key", "", id="an unknown field"
    ),
    pytest.param(limit(type="token", value=1, op="<"), "limits[1].op", "", '"<"', id="an unknown operator"),
    pytest.param(
        limit(type="token", value=1, scope="day"), "limits[1].scope", "", '"day"', id="an unknown scope"
    ),
    pytest.param(limit(type="token", value=1, check="later"), "limits[1].check", "", '"later"', id="check"),
    pytest.param(limit(type="token", value=1, name=3), "limits[1].name", "expected text", "3", id="a name"),
    pytest.param(
        limit(type="step", value=2), "limits[1].name", "give this one a name", "'step'", id="the same name"
    ),
    pytest.param(
        limit(type="token", measure="estimate", value=1, scope="turn"),
        "limits[1].scope",
        "leave it out",
        "",
        id="an estimate has no scope",
    ),
    pytest.param(
        limit(type="time", value=1, credit={"person": "yes"}),
        "limits[1].credit.person",
        "true or false",
        '"yes"',
        id="credit",
    ),
    pytest.param({"history": [{"do": "tail"}]}, "history[0].last", "required", "", id="a pass lacks a field"),
    pytest.param({"history": [{"last": 3}]}, "history[0].do", "required", "", id="a pass that does nothing"),
    pytest.param(
        {"history": [{"do": "tale", "last": 1}]}, "history[0].do", "", '"tale"', id="an unknown pass"
    ),
    pytest.param(
        {"history": [{"do": "tail", "last": -1}]}, "history[0].last", ">= 0", "-1", id="a tail below 0"
    ),
    pytest.param(
        {"history": [{"do": "token_tail", "budget": 0}]}, "history[0].budget", ">= 1", "0", id="a budget of 0"
    ),
    pytest.param(
        {"history": [{"do": "tail", "last": 1, "when": {"messages": 0}}]},
        "history[0].when.messages",
        ">= 1",
        "0",
        id="a condition",
    ),
    pytest.param(
        {"history": [{"do": "tail", "last": 1}] * 2},
        "history[1].name",
        "give this one a name",
        "'tail'",
        id="passes",
    ),
    pytest.param({"guards": [{}]}, "guards[0].guard", "name of a guard", "null", id="a guard without a kind"),
    pytest.param({"guards": ["repetition"]}, "guards[0]", "expected a mapping", '"repetition"', id="a word"),
    pytest.param(
        {"guards": [{"guard": "repetitoin"}]},
        "guards[0].guard",
        "did you mean 'repetition'?",
        "",
        id="misspelt",
    ),
    pytest.param(
        {"guards": [{"guard": "zzz"}]}, "guards[0].guard", "known are repetition", "'zzz'", id="no such"
    ),
    pytest.param(
        {"guards": [{"guard": "repetition", "repeats": -1}]}, "guards[0].repeats", ">= 0", "-1", id="repeats"
    ),
    pytest.param({"guards": [{"guard": "repetition", "clip": 0}]}, "guards[0].clip", ">= 1", "0", id="clip"),
    pytest.param(
        {"guards": [{"guard": "repetition", "x": 1}]}, "guards[0].x", "unknown key", "", id="its field"
    ),
    pytest.param(
        {"guards": [{"guard": "repetition"}] * 2},
        "guards[1].name",
        "give this one a name",
        "'repetition'",
        id="guards",
    ),
    pytest.param(
        {"guards": [{"guard": "zzz", "x": [INF]}]}, "guards[0].x[0]", "finite", "inf", id="deep infinity"
    ),
    pytest.param(
        {"texts": {"contnue": "x"}}, "texts.contnue", "did you mean 'continue'?", "", id="no such text"
    ),
    pytest.param({"tool_output": {"max": 0}}, "tool_output.max", ">= 1", "0", id="a cap of 0"),
    pytest.param({"retry": {"attempts": 0}}, "retry.attempts", ">= 1", "0", id="no attempt at all"),
    pytest.param(
        {"retry": {"attempts": None}}, "retry.attempts", "a whole number", "null", id="attempts null"
    ),
    pytest.param({"retry": {"jitter": {"add": -1}}}, "retry.jitter.add", ">= 0", "-1", id="negative jitter"),
    pytest.param({"retry": {"classes": ["nope"]}}, "retry.classes[0]", "", '"nope"', id="an unknown class"),
    pytest.param({"call_timeout": {"min": -1}}, "call_timeout.min", ">= 0", "-1", id="a negative timeout"),
    pytest.param({"end_of_turn": "stop"}, "end_of_turn", "", '"stop"', id="an unknown end of turn"),
    pytest.param({"batch": "serial"}, "batch", "", '"serial"', id="an unknown order"),
    pytest.param({"estimator": "guess"}, "estimator", "", '"guess"', id="an unknown estimator"),
    pytest.param(
        limit(type="token", value="x" * 500), "limits[1].value", "a whole number", "x…", id="a long value"
    ),
]


@pytest.mark.parametrize(("data", "path", "problem", "shown"), REFUSED)
def test_refused(data: Any, path: str, problem: str, shown: str) -> None:
    """What cannot work is refused with the path, what was expected and what stood there."""
    with pytest.raises(PolicyError) as caught:
        parse(data)
    assert path == caught.value.path
    assert problem in caught.value.problem
    assert shown in caught.value.problem
    assert "`" not in str(caught.value)
    assert 300 > len(str(caught.value))


@pytest.mark.parametrize(
    ("data", "canonical"),
    [
        pytest.param({"type": "time", "seconds": 5}, ("time", "time", 5), id="seconds"),
        pytest.param({"type": "time", "limit": 5}, ("time", "time", 5), id="time limit"),
        pytest.param({"type": "step", "max": 5}, ("step", "step", 5), id="step max"),
        pytest.param({"type": "step", "limit": 5}, ("step", "step", 5), id="step limit"),
        pytest.param({"type": "message", "messages": 5}, ("message", "message", 5), id="messages"),
        pytest.param({"type": "message", "max": 5}, ("message", "message", 5), id="message max"),
        pytest.param({"type": "message", "limit": 5}, ("message", "message", 5), id="message limit"),
        pytest.param({"type": "token", "tokens": 5}, ("token", "token", 5), id="tokens"),
        pytest.param({"type": "token", "max": 5}, ("token", "token", 5), id="token max"),
        pytest.param({"type": "token", "limit": 5}, ("token", "token", 5), id="token limit"),
        pytest.param({"type": "cost", "max": 0.5}, ("cost", "cost", 0.5), id="cost max"),
        pytest.param({"type": "cost", "limit": 5}, ("cost", "cost", 5), id="cost limit"),
        pytest.param({"kind": "step", "value": 5}, ("step", "step", 5), id="kind"),
        pytest.param({"type": " Steps ", "value": 5}, ("step", "step", 5), id="trimmed, lower-cased, plural"),
        pytest.param({"type": "MESSAGES", "value": 5}, ("message", "message", 5), id="plural messages"),
        pytest.param({"type": "tokens", "value": 5}, ("token", "token", 5), id="plural tokens"),
        pytest.param({"type": "step", "value": None}, ("step", "step", None), id="null is unlimited"),
        pytest.param({"type": "step", "value": 0}, ("step", "step", 0), id="0 is 0"),
        pytest.param(
            {"type": "token", "measure": "estimate", "value": 5},
            ("token", "token_estimate", 5),
            id="estimate's name",
        ),
        pytest.param({"type": "step", "name": "mine", "value": 5}, ("step", "mine", 5), id="its own name"),
    ],
)
def test_aliases(data: dict[str, Any], canonical: tuple[str, str, Any]) -> None:
    """Every spelling of a limit is read, and one is recorded."""
    (read,) = msgspec.to_builtins(parse({"limits": [data]}))["limits"]
    assert canonical == (read["type"], read["name"], read["value"])
    assert not {"kind", "max", "limit", "seconds", "tokens", "messages"} & set(read)


def test_the_default_policy() -> None:
    """What nobody said: 50 steps, six attempts, 16 KiB of output, a turn's end is the run's."""
    policy = parse({})
    assert [("step", 50)] == [(limit.name, limit.value) for limit in policy.limits]
    assert (6, 1, 60, 1) == (
        policy.retry.attempts,
        policy.retry.initial,
        policy.retry.max,
        policy.retry.jitter.add,
    )
    assert policy.tool_output is not None
    assert (16384, "complete", "parallel", (), ()) == (
        policy.tool_output.max,
        policy.end_of_turn,
        policy.batch,
        policy.history,
        policy.guards,
    )


def test_texts_are_complete_and_may_be_overridden() -> None:
    """The whole table of texts is recorded with the run, the policy's own wording in it."""
    policy = parse({"texts": {"continue": "Go on."}})
    assert set(TEXTS) == set(policy.texts)
    assert "Go on." == policy.texts["continue"]
    assert TEXTS["in_doubt"] == policy.texts["in_doubt"]


def test_guards_are_recorded_with_every_field() -> None:
    """A guard's defaults are filled in, so that a recorded policy never changes its meaning."""
    (guard,) = parse({"guards": [{"guard": "repetition", "repeats": 5}]}).guards
    assert {
        "guard": "repetition",
        "name": "repetition",
        "repeats": 5,
        "clip": 200,
        "scope": "lineage",
    } == guard


def test_a_guard_that_is_not_installed_may_be_read() -> None:
    """Without `strict_guards` a guard that nobody installed stays as it was written, with its name."""
    (guard,) = parse({"guards": [{"guard": "other", "x": [1]}]}, strict_guards=False).guards
    assert {"guard": "other", "x": [1], "name": "other"} == guard


RICH: dict[str, Any] = {
    "schema": "refold/v1",
    "limits": [
        {"type": "steps", "max": 3},
        {"type": "time", "seconds": 1.5},
        {"type": "cost", "value": None},
    ],
    "history": [{"do": "tail", "last": 3}, {"do": "token_tail", "budget": 9, "when": {"tokens": 5}}],
    "guards": [{"guard": "repetition"}],
    "tool_output": None,
    "retry": {"max": None, "classes": ["auth"]},
    "texts": {"continue": "On."},
}


@pytest.mark.parametrize("data", [pytest.param({}, id="default"), pytest.param(RICH, id="rich")])
def test_round_trip(data: dict[str, Any]) -> None:
    """The printed JSON of a policy, read again, is the same policy: canonical form is a fixed point."""
    policy = parse(data)
    printed = msgspec.json.encode(policy)
    assert policy == parse(msgspec.json.decode(printed))
    assert policy == msgspec.json.decode(printed, type=Policy)
    assert printed == msgspec.json.encode(checked(policy))


def test_parse_leaves_its_input_alone() -> None:
    """The caller's data is as it was."""
    before = msgspec.json.encode(RICH)
    parse(RICH)
    assert before == msgspec.json.encode(RICH)


def test_a_policy_built_in_python_is_checked() -> None:
    """Constructing validates nothing; `checked` does."""
    with pytest.raises(PolicyError, match=r"end_of_turn"):
        checked(Policy(end_of_turn="stop"))  # type: ignore[arg-type]


def test_a_name_is_one_line() -> None:
    """A name that would start a line of its own, where it is shown, is refused."""
    with pytest.raises(PolicyError, match=r"limits\[0\]\.name: expected one line"):
        parse({"limits": [{"type": "step", "value": 1, "name": "x\nrun r9: whole"}]})
