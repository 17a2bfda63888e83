"""Policies from plain data: what is refused, and how; what is read as what."""

from typing import Any

import msgspec
import pytest

from refold.reducers.errors import PolicyError
from refold.reducers.guards import BUILTIN
from refold.reducers.parser import checked, parse
from refold.reducers.policy import Empty, Policy, Stream, Truncation
from refold.reducers.texts import TEXTS

INF = float("inf")


def limit(**fields: Any) -> dict[str, Any]:
    return {"limits": [{"type": "step", "value": 1}, fields]}


def tiers(*ats: dict[str, Any], value: int | None = 50) -> dict[str, Any]:
    listed = [{"name": f"t{place}", "at": at} for place, at in enumerate(ats)]
    return {"pressure": {"tiers": listed}, "limits": [{"type": "step", "value": value}]}


REFUSED = [
    pytest.param([], "", "a policy is a mapping", "[]", id="a list"),
    pytest.param("x", "", "a policy is a mapping", '"x"', id="text"),
    pytest.param(None, "", "a policy is a mapping", "null", id="nothing"),
    pytest.param({True: 1}, "", "keys that are text", "true", id="a key that is no text"),
    pytest.param({"grace": {True: ["step"]}}, "grace", "keys that are text", "true", id="an inner one"),
    pytest.param({"lmits": []}, "lmits", "unknown key", "", id="an unknown key"),
    pytest.param({"lmits": []}, "lmits", "did you mean 'limits'?", "", id="a key that is nearly one"),
    pytest.param(
        {"qwertz": 1}, "qwertz", "refold policy schema", "", id="a key like none of too many to list"
    ),
    pytest.param(
        {"approvals": {"rules": []}}, "approvals.rules", "known are chain, preset", "", id="an inner key"
    ),
    pytest.param(
        limit(type="time", value=1, qwertz=1), "limits[1].qwertz", "credit, ", "", id="keys of its own type"
    ),
    pytest.param({"schema": "refold/v2"}, "schema", "", '"refold/v2"', id="another schema"),
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
        {"guards": [{"guard": "zzz"}]},
        "guards[0].guard",
        "known are arguments, errors,",
        "'zzz'",
        id="no such",
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
        {"retry": {"attempts": None}}, "retry.attempts", "null would be for ever", "", id="attempts for ever"
    ),
    pytest.param(
        {"retry": {"attempts": None}, "limits": [{"type": "time", "value": None}]},
        "retry.attempts",
        "null would be for ever",
        "",
        id="attempts for ever under a time limit that is none",
    ),
    pytest.param({"retry": {"jitter": {"add": -1}}}, "retry.jitter.add", ">= 0", "-1", id="negative jitter"),
    pytest.param(
        {"retry": {"jitter": {"add": 1, "full": 1}}},
        "retry.jitter",
        "expected one of",
        '{"add": 1, "full": 1}',
        id="two jitters",
    ),
    pytest.param(
        {"retry": {"by_class": {"timeout": {}, "network": {"max": "x"}}}},
        "retry.by_class.network.max",
        "a number or null",
        '"x"',
        id="a number for one class",
    ),
    pytest.param(
        {"retry": {"by_class": {"timeouts": {}}}},
        "retry.by_class",
        "means nothing there",
        "timeouts",
        id="no class",
    ),
    pytest.param(
        {"texts": {"nudge": "x", "continue": 3}}, "texts.continue", "expected text", "3", id="a text"
    ),
    pytest.param({"near": {"fraction": 0}}, "near.fraction", "> 0", "0", id="near, no fraction"),
    pytest.param({"near": {"fraction": 1}}, "near.fraction", "< 1", "1", id="near, the whole"),
    pytest.param({"near": {"fraction": 1.5}}, "near.fraction", "< 1", "1.5", id="near, more than the whole"),
    pytest.param(
        tiers({"fraction": 1.01}), "pressure.tiers[0].at.fraction", "<= 1.0", "1.01", id="a tier beyond"
    ),
    pytest.param(
        tiers({"fraction": -0.1}), "pressure.tiers[0].at.fraction", ">= 0", "-0.1", id="a tier below"
    ),
    pytest.param(
        tiers({}), "pressure.tiers[0].at", "'fraction', 'remaining', or both", "", id="a tier nowhere"
    ),
    pytest.param(
        tiers({"fraction": 0.9}, {"fraction": 0.7}),
        "pressure.tiers[1].at",
        "put them in order",
        "'t0'",
        id="tiers",
    ),
    pytest.param(
        tiers({"fraction": 0.7}, {"fraction": 0.7}),
        "pressure.tiers[1].at",
        "would not be shown",
        "'t0'",
        id="at once",
    ),
    pytest.param(
        tiers({"remaining": 3}, {"remaining": 4}),
        "pressure.tiers[1].at",
        "put them in order",
        "'t0'",
        id="remaining",
    ),
    pytest.param(
        tiers({"fraction": 0.9}, {"remaining": 6}),
        "pressure.tiers[1].at",
        "in order",
        "'t0'",
        id="mixed, of 50",
    ),
    pytest.param(
        tiers({"remaining": 3}, {"remaining": 10}, value=None),
        "pressure.tiers[1].at",
        "put them in order",
        "",
        id="remaining, of no limit",
    ),
    pytest.param(
        tiers({"fraction": 0.9}, {"fraction": 0.7}, value=None),
        "pressure.tiers[1].at",
        "put them in order",
        "",
        id="tiers of no limit",
    ),
    pytest.param(
        {
            "pressure": {
                "tiers": [{"name": "a", "at": {"fraction": 0.1}}, {"name": "a", "at": {"fraction": 0.2}}]
            }
        },
        "pressure.tiers[1].name",
        "give this one a name",
        "'a'",
        id="two tiers alike",
    ),
    pytest.param(
        {"pressure": {"of": "stepp", "tiers": []}},
        "pressure.of",
        "did you mean 'step'?",
        '"stepp"',
        id="pressure of",
    ),
    pytest.param(
        {"grace": {"on": ["stepp"]}}, "grace.on[0]", "did you mean 'step'?", '"stepp"', id="grace on nothing"
    ),
    pytest.param(
        {**limit(type="time", value=1), "grace": {"on": ["step", "time"]}},
        "grace.on[1]",
        "time or money",
        "",
        id="time",
    ),
    pytest.param(
        {**limit(type="cost", value=1), "grace": {"on": ["cost"]}},
        "grace.on[0]",
        "time or money",
        "",
        id="grace on cost",
    ),
    pytest.param(
        {**limit(type="token", value=1), "grace": {"on": ["token"]}},
        "grace.on[0]",
        "time or money",
        "",
        id="tokens",
    ),
    pytest.param(
        {"overflow": {"do": ["trm"]}}, "overflow.do[0]", "history has no pass", '"trm"', id="no such pass"
    ),
    pytest.param(
        {"history": [{"name": "trim", "do": "tail", "last": 9}], "overflow": {"do": ["trm"]}},
        "overflow.do[0]",
        "did you mean 'trim'?",
        "",
        id="a pass misspelt",
    ),
    pytest.param(
        {"history": [{"do": "tail", "last": 9}], "overflow": {"do": [{"do": "tail", "last": 1}]}},
        "overflow.do[0].name",
        "give this one a name",
        "'tail'",
        id="an inline pass named as one of the history",
    ),
    pytest.param(
        {"overflow": {"do": [{"do": "digest", "keep_last": 6}]}},
        "overflow.do[0].per_message",
        "required",
        "",
        id="an inline pass",
    ),
    pytest.param(
        {"overflow": {"patterns": ["("]}}, "overflow.patterns[0]", "regular expression", '"("', id="a pattern"
    ),
    pytest.param(
        {"overflow": {"single_patterns": ["a", "["]}},
        "overflow.single_patterns[1]",
        "regular expression",
        '"["',
        id="a pattern of single messages",
    ),
    pytest.param(
        {"history": [{"do": "drop_oldest", "fraction": 1.1}]},
        "history[0].fraction",
        "<= 1",
        "1.1",
        id="dropping more",
    ),
    pytest.param(
        {"history": [{"do": "token_tail", "budget": {"context": 10, "minus_output": 10}}]},
        "history[0].budget.minus_output",
        "the answer takes all",
        "10",
        id="no room",
    ),
    pytest.param(
        {"history": [{"do": "trim_messages", "cap": 9, "codec": "bpe:o200k_base"}]},
        "history[0].codec",
        "expected one of char, chars4",
        '"bpe:o200k_base"',
        id="a tokenizer as codec",
    ),
    pytest.param(
        {"estimator": "bpe:o200k"},
        "estimator",
        "did you mean 'bpe:o200k_base'?",
        '"bpe:o200k"',
        id="no tokenizer",
    ),
    pytest.param(
        {"guards": [{"guard": "keywords", "words": [""]}]}, "guards[0].words[0]", ">= 1", '""', id="no word"
    ),
    pytest.param(
        {"guards": [{"guard": "keywords", "words": []}]}, "guards[0].words", ">= 1", "[]", id="no words"
    ),
    pytest.param(
        {"guards": [{"name": "x", "guard": None}]},
        "guards[0].guard",
        "name of a guard",
        "null",
        id="not there",
    ),
    pytest.param({"premature_end": {"max": -1}}, "premature_end.max", ">= 0", "-1", id="premature end"),
    pytest.param(
        {"premature_end": {"mx": 1}}, "premature_end.mx", "unknown key", "", id="a key of premature end"
    ),
    pytest.param(
        {"truncation": {"max": True}}, "truncation.max", "a whole number", "true", id="true for a number"
    ),
    pytest.param({"approvals": {}}, "approvals", "or a 'chain'", "", id="no approver"),
    pytest.param(
        {"approvals": {"preset": "stage"}}, "approvals.preset", "ci, dev, dev_any", '"stage"', id="approvals"
    ),
    pytest.param(
        {"preset": "hermez"}, "preset", "did you mean 'hermes'?", '"hermez"', id="a preset misspelt"
    ),
    pytest.param({"preset": "zzz"}, "preset", "known are awaken,", '"zzz"', id="no such preset"),
    pytest.param({"preset": 3}, "preset", "the name of a preset", "3", id="a preset that is no name"),
    pytest.param(
        {"preset": "tirea", "limits": [{"type": "cost", "value": "x"}]},
        "limits[0].value",
        "a number or null",
        '"x"',
        id="the place is that in what was given",
    ),
    pytest.param(
        {
            "preset": "tirea",
            "limits": [{"type": "step", "value": 1}, {"type": "token", "value": 1}, {"type": "token"}],
        },
        "limits[2].value",
        "required",
        "",
        id="a second one does not inherit",
    ),
    pytest.param(
        {"preset": "guardrails", "guards": [{"guard": "loop", "window": -1}]},
        "guards[0].window",
        ">= 0",
        "-1",
        id="of guards too",
    ),
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
        pytest.param({"type": "message", "value": 5}, ("message", "message", 5), id="message value"),
        pytest.param(
            {"type": "message", "value": None}, ("message", "message", None), id="unlimited messages"
        ),
        pytest.param({"type": "time", "value": 0.5}, ("time", "time", 0.5), id="half a second"),
        pytest.param({"type": "cost", "limit": 0.5}, ("cost", "cost", 0.5), id="half a dollar"),
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


def test_what_the_language_takes_for_what_nobody_wrote() -> None:
    """Recoveries that a log without their keys did not have are on by default, and off with null."""
    policy = parse({})
    assert (Truncation(), Stream(), Empty()) == (policy.truncation, policy.stream, policy.empty)
    policy = parse({"truncation": None, "stream": None, "empty": None})
    assert (None, None, None) == (policy.truncation, policy.stream, policy.empty)


def test_a_policy_built_in_python_means_what_its_struct_says() -> None:
    """A Struct's defaults are those of a log without the key: `checked` adds nothing to them."""
    assert (None, None, None) == (
        checked(Policy()).truncation,
        checked(Policy()).stream,
        checked(Policy()).empty,
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(tiers({"fraction": 0.7}, {"fraction": 0.9}), id="tiers in order"),
        pytest.param(
            tiers({"remaining": 10}, {"remaining": 3}, value=2), id="under pressure from the first step"
        ),
        pytest.param(tiers({"fraction": 0.9}, {"remaining": 4}), id="mixed, the later one later"),
        pytest.param(
            tiers({"fraction": 0.9}, {"remaining": 6}, value=None), id="mixed, of nobody knows what"
        ),
        pytest.param(tiers({"fraction": 0, "remaining": 3}), id="a tier from the start"),
        pytest.param(tiers({"fraction": 1}), id="a tier at the end"),
        pytest.param(
            {"retry": {"attempts": None, "window": 9}}, id="attempts without number within a window"
        ),
        pytest.param(
            {"retry": {"attempts": None}, "limits": [{"type": "time", "value": 9}]}, id="or a time limit"
        ),
        pytest.param(
            {
                "grace": {"on": ["token_estimate", "message"]},
                **limit(type="tokens", measure="estimate", value=1),
            }
            | {
                "limits": [
                    {"type": "message", "value": 1},
                    {"type": "token", "measure": "estimate", "value": 1},
                ]
            },
            id="grace on what is of the window",
        ),
        pytest.param({"history": None, "guards": None}, id="lists switched off"),
        pytest.param({"preset": None}, id="no preset"),
        pytest.param(
            {"history": [{"do": "token_tail", "budget": {"context": 10, "minus_output": 9}}]},
            id="a little room",
        ),
    ],
)
def test_taken(data: dict[str, Any]) -> None:
    """What stands right at the edge of what cannot work is taken, and taken again as it was."""
    policy = parse(data)
    assert policy == parse(msgspec.to_builtins(policy))


def test_tiers_of_other_names_have_words() -> None:
    """The last tier warns and those before it caution, unless the policy says it otherwise."""
    data = tiers({"fraction": 0.1}, {"fraction": 0.2}, {"fraction": 0.3})
    texts = parse({**data, "texts": {"pressure:t1": "Hurry."}}).texts
    assert TEXTS["pressure:caution"] == texts["pressure:t0"]
    assert "Hurry." == texts["pressure:t1"]
    assert TEXTS["pressure:warning"] == texts["pressure:t2"]


def test_premature_end_is_complete() -> None:
    """Its configuration is recorded with every field, and its words are among the texts."""
    policy = parse({"premature_end": {"max": 1}})
    assert policy.premature_end is not None
    assert (1, 10) == (policy.premature_end["max"], policy.premature_end["look_back"])
    assert "premature_end" in policy.texts
    assert policy == parse(msgspec.to_builtins(policy))


@pytest.mark.parametrize(
    ("data", "guards"),
    [
        pytest.param({"approvals": {"preset": "ci"}}, [], id="ci brings none"),
        pytest.param({"approvals": {"preset": "dev"}}, ["handoff"], id="dev brings handoff"),
        pytest.param({"approvals": {"preset": "prod"}, "guards": [{"guard": "one_call"}]}, ["handoff", "one_call"],
                     id="ahead of the others"),
        pytest.param({"approvals": {"preset": "prod"}, "guards": [{"guard": "one_call"}, {"guard": "handoff"}]},
                     ["one_call", "handoff"], id="once"),
        pytest.param({"approvals": {"chain": [{"approver": "reject"}]}}, [], id="a chain brings none"),
        pytest.param({"approvals": None}, [], id="switched off"),
    ],
)  # fmt: skip
def test_presets_of_approvals(data: dict[str, Any], guards: list[str]) -> None:
    """A preset of approvals is recorded as its chain; `dev` and `prod` bring the guard of handoffs."""
    policy = parse(data)
    assert guards == [guard["guard"] for guard in policy.guards]
    assert policy.approvals is None or (policy.approvals.preset is None and policy.approvals.chain)
    assert policy == parse(msgspec.to_builtins(policy))


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


def test_a_policy_that_was_parsed_is_parsed_again_only_with_other_guards_or_changed() -> None:
    """That it can work was found of this value, with these guards."""
    policy = parse({"guards": [{"guard": "loop", "window": 2}]})
    assert policy is checked(policy, dict(BUILTIN))
    with pytest.raises(PolicyError, match=r"guards\[0\]\.guard: no guard 'loop' is installed"):
        checked(policy, {})
    with pytest.raises(PolicyError, match=r"end_of_turn"):
        checked(msgspec.structs.replace(policy, end_of_turn="stop"))


def test_a_guard_that_was_only_kept_is_not_taken_for_installed() -> None:
    """A policy of a recorded run may be read without its guards; to run with it they must be here."""
    recorded = parse({"guards": [{"guard": "nowhere"}]}, strict_guards=False)
    with pytest.raises(PolicyError, match=r"guards\[0\]\.guard: no guard 'nowhere' is installed"):
        checked(recorded)


def test_a_name_is_one_line() -> None:
    """A name that would start a line of its own, where it is shown, is refused."""
    with pytest.raises(PolicyError, match=r"limits\[0\]\.name: expected one line"):
        parse({"limits": [{"type": "step", "value": 1, "name": "x\nrun r9: whole"}]})
