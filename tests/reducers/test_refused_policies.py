"""Policies that cannot work: each is refused with the path, what was expected there, and what stood there."""

from typing import Any

import pytest

from refold.reducers.errors import PolicyError
from refold.reducers.parser import parse

INF = float("inf")


def limit(**fields: Any) -> dict[str, Any]:
    return {"limits": [{"type": "step", "value": 1}, fields]}


def tiers(*ats: dict[str, Any], value: int | None = 50) -> dict[str, Any]:
    listed = [{"name": f"t{place}", "at": at} for place, at in enumerate(ats)]
    return {"pressure": {"tiers": listed}, "limits": [{"type": "step", "value": value}]}


REFUSED: list[tuple[str, Any, str, str, str]] = [
    ("a list", [], "", "a policy is a mapping", "[]"),
    ("text", "x", "", "a policy is a mapping", '"x"'),
    ("nothing", None, "", "a policy is a mapping", "null"),
    ("a key that is no text", {True: 1}, "", "text keys", "true"),
    ("an inner one", {"grace": {True: ["step"]}}, "grace", "text keys", "true"),
    ("an unknown key", {"lmits": []}, "lmits", "unknown key", ""),
    ("a key that is nearly one", {"lmits": []}, "lmits", "did you mean 'limits'?", ""),
    ("a key like none of too many to list", {"qwertz": 1}, "qwertz", "refold policy schema", ""),
    ("an inner key", {"approvals": {"rules": []}}, "approvals.rules", "known are chain, preset", ""),
    ("keys of its own type", limit(type="time", value=1, qwertz=1), "limits[1].qwertz", "credit, ", ""),
    ("another schema", {"schema": "refold/v2"}, "schema", "", '"refold/v2"'),
    ("limits a mapping", {"limits": {"step": 3}}, "limits", "expected a list", '{"step": 3}'),
    ("a limit that is a number", {"limits": [3]}, "limits[0]", "expected a mapping", "3"),
    ("no type", limit(value=1), "limits[1].type", "required", ""),
    ("an unknown type", limit(type="stepp", value=1), "limits[1].type", "", '"stepp"'),
    ("a type that is no text", limit(type=3, value=1), "limits[1].type", "expected text", "3"),
    ("no value", limit(type="time"), "limits[1].value", "required", ""),
    ("text for a number", limit(type="time", value="ten"), "limits[1].value", "a number", '"ten"'),
    ("less than 0", limit(type="time", value=-1), "limits[1].value", ">= 0", "-1"),
    ("a little less than 0", limit(type="time", value=-0.5), "limits[1].value", ">= 0", "-0.5"),
    ("a number in quotes", limit(type="cost", value="1"), "limits[1].value", "a number", '"1"'),
    ("half a token", limit(type="token", value=1.5), "limits[1].value", "a whole number", "1.5"),
    ("true", limit(type="token", value=True), "limits[1].value", "a whole number", "true"),
    ("infinity", limit(type="time", value=INF), "limits[1].value", "null for unlimited", "inf"),
    ("not a number", limit(type="time", value=float("nan")), "limits[1].value", "finite", "nan"),
    ("twice", limit(type="time", value=1, seconds=2), "limits[1]", "write 'value' only", "'seconds'"),
    ("two aliases", limit(type="token", max=1, limit=2), "limits[1]", "write 'value' only", "'limit'"),
    ("type and kind", limit(type="step", kind="step", value=1), "limits[1]", "write 'type' only", ""),
    ("another type's alias", limit(type="step", seconds=1), "limits[1].seconds", "unknown key", ""),
    ("an unknown field", limit(type="cost", value=1, hurry=1), "limits[1].hurry", "unknown key", ""),
    ("an unknown operator", limit(type="token", value=1, op="<"), "limits[1].op", "", '"<"'),
    ("an unknown scope", limit(type="token", value=1, scope="day"), "limits[1].scope", "", '"day"'),
    ("check", limit(type="token", value=1, check="later"), "limits[1].check", "", '"later"'),
    ("a name", limit(type="token", value=1, name=3), "limits[1].name", "expected text", "3"),
    ("the same name", limit(type="step", value=2), "limits[1].name", "set another name here", "'step'"),
    ("an estimate has no scope", limit(type="token", measure="estimate", value=1, scope="turn"),
     "limits[1].scope", "remove 'scope'", ""),
    ("credit", limit(type="time", value=1, credit={"person": "yes"}),
     "limits[1].credit.person", "true or false", '"yes"'),
    ("a pass lacks a field", {"history": [{"do": "tail"}]}, "history[0].last", "required", ""),
    ("a pass that does nothing", {"history": [{"last": 3}]}, "history[0].do", "required", ""),
    ("an unknown pass", {"history": [{"do": "tale", "last": 1}]}, "history[0].do", "", '"tale"'),
    ("a tail below 0", {"history": [{"do": "tail", "last": -1}]}, "history[0].last", ">= 0", "-1"),
    ("a budget of 0", {"history": [{"do": "token_tail", "budget": 0}]}, "history[0].budget", ">= 1", "0"),
    ("a condition", {"history": [{"do": "tail", "last": 1, "when": {"messages": 0}}]},
     "history[0].when.messages", ">= 1", "0"),
    ("passes", {"history": [{"do": "tail", "last": 1}] * 2},
     "history[1].name", "set another name here", "'tail'"),
    ("a guard without a kind", {"guards": [{}]}, "guards[0].guard", "name of a guard", "null"),
    ("a word", {"guards": ["repetition"]}, "guards[0]", "expected a mapping", '"repetition"'),
    ("misspelt", {"guards": [{"guard": "repetitoin"}]}, "guards[0].guard", "did you mean 'repetition'?", ""),
    ("no such", {"guards": [{"guard": "zzz"}]}, "guards[0].guard", "known are arguments, errors,", "'zzz'"),
    ("repeats", {"guards": [{"guard": "repetition", "repeats": -1}]}, "guards[0].repeats", ">= 0", "-1"),
    ("clip", {"guards": [{"guard": "repetition", "clip": 0}]}, "guards[0].clip", ">= 1", "0"),
    ("its field", {"guards": [{"guard": "repetition", "x": 1}]}, "guards[0].x", "unknown key", ""),
    ("guards", {"guards": [{"guard": "repetition"}] * 2},
     "guards[1].name", "set another name here", "'repetition'"),
    ("deep infinity", {"guards": [{"guard": "zzz", "x": [INF]}]}, "guards[0].x[0]", "finite", "inf"),
    ("no such text", {"texts": {"contnue": "x"}}, "texts.contnue", "did you mean 'continue'?", ""),
    ("a cap of 0", {"tool_output": {"max": 0}}, "tool_output.max", ">= 1", "0"),
    ("no attempt at all", {"retry": {"attempts": 0}}, "retry.attempts", ">= 1", "0"),
    ("attempts for ever", {"retry": {"attempts": None}}, "retry.attempts", "null has no upper bound", ""),
    ("attempts for ever under a time limit that is none",
     {"retry": {"attempts": None}, "limits": [{"type": "time", "value": None}]},
     "retry.attempts", "null has no upper bound", ""),
    ("negative jitter", {"retry": {"jitter": {"add": -1}}}, "retry.jitter.add", ">= 0", "-1"),
    ("two jitters", {"retry": {"jitter": {"add": 1, "full": 1}}},
     "retry.jitter", "expected one of", '{"add": 1, "full": 1}'),
    ("a number for one class", {"retry": {"by_class": {"timeout": {}, "network": {"max": "x"}}}},
     "retry.by_class.network.max", "a number or null", '"x"'),
    ("no class", {"retry": {"by_class": {"timeouts": {}}}},
     "retry.by_class", "unknown key in this mapping", "timeouts"),
    ("a text", {"texts": {"nudge": "x", "continue": 3}}, "texts.continue", "expected text", "3"),
    ("near, no fraction", {"near": {"fraction": 0}}, "near.fraction", "> 0", "0"),
    ("near, the whole", {"near": {"fraction": 1}}, "near.fraction", "< 1", "1"),
    ("near, more than the whole", {"near": {"fraction": 1.5}}, "near.fraction", "< 1", "1.5"),
    ("a tier beyond", tiers({"fraction": 1.01}), "pressure.tiers[0].at.fraction", "<= 1", "1.01"),
    ("a tier below", tiers({"fraction": -0.1}), "pressure.tiers[0].at.fraction", ">= 0", "-0.1"),
    ("a tier nowhere", tiers({}), "pressure.tiers[0].at", "'fraction', 'remaining', or both", ""),
    ("tiers", tiers({"fraction": 0.9}, {"fraction": 0.7}),
     "pressure.tiers[1].at", "sort them", "'t0'"),
    ("at once", tiers({"fraction": 0.7}, {"fraction": 0.7}),
     "pressure.tiers[1].at", "would never be sent", "'t0'"),
    ("remaining", tiers({"remaining": 3}, {"remaining": 4}),
     "pressure.tiers[1].at", "sort them", "'t0'"),
    ("mixed, of 50", tiers({"fraction": 0.9}, {"remaining": 6}), "pressure.tiers[1].at", "sort them", "'t0'"),
    ("remaining, of no limit", tiers({"remaining": 3}, {"remaining": 10}, value=None),
     "pressure.tiers[1].at", "sort them", ""),
    ("tiers of no limit", tiers({"fraction": 0.9}, {"fraction": 0.7}, value=None),
     "pressure.tiers[1].at", "sort them", ""),
    ("two tiers alike",
     {"pressure": {"tiers": [{"name": "a", "at": {"fraction": 0.1}}, {"name": "a", "at": {"fraction": 0.2}}]}},
     "pressure.tiers[1].name", "set another name here", "'a'"),
    ("pressure of", {"pressure": {"of": "stepp", "tiers": []}},
     "pressure.of", "did you mean 'step'?", '"stepp"'),
    ("grace on nothing", {"grace": {"on": ["stepp"]}}, "grace.on[0]", "did you mean 'step'?", '"stepp"'),
    ("time", {**limit(type="time", value=1), "grace": {"on": ["step", "time"]}},
     "grace.on[1]", "time or money", ""),
    ("grace on cost", {**limit(type="cost", value=1), "grace": {"on": ["cost"]}},
     "grace.on[0]", "time or money", ""),
    ("tokens", {**limit(type="token", value=1), "grace": {"on": ["token"]}},
     "grace.on[0]", "time or money", ""),
    ("no such pass", {"overflow": {"do": ["trm"]}}, "overflow.do[0]", "history has no compaction step", '"trm"'),
    ("a pass misspelt", {"history": [{"name": "trim", "do": "tail", "last": 9}], "overflow": {"do": ["trm"]}},
     "overflow.do[0]", "did you mean 'trim'?", ""),
    ("an inline pass named as one of the history",
     {"history": [{"do": "tail", "last": 9}], "overflow": {"do": [{"do": "tail", "last": 1}]}},
     "overflow.do[0].name", "set another name here", "'tail'"),
    ("an inline pass", {"overflow": {"do": [{"do": "digest", "keep_last": 6}]}},
     "overflow.do[0].per_message", "required", ""),
    ("a pattern", {"overflow": {"patterns": ["("]}}, "overflow.patterns[0]", "not a valid RE2 pattern", '"("'),
    ("a pattern of single messages", {"overflow": {"single_patterns": ["a", "["]}},
     "overflow.single_patterns[1]", "not a valid RE2 pattern", '"["'),
    ("dropping more", {"history": [{"do": "drop_oldest", "fraction": 1.1}]},
     "history[0].fraction", "<= 1", "1.1"),
    ("no room", {"history": [{"do": "token_tail", "budget": {"context": 10, "minus_output": 10}}]},
     "history[0].budget.minus_output", "the output takes", "10"),
    ("a tokenizer as codec", {"history": [{"do": "trim_messages", "cap": 9, "codec": "bpe:o200k_base"}]},
     "history[0].codec", "marker: beside", "bpe:o200k_base"),
    ("no codec", {"history": [{"do": "trim_messages", "cap": 9, "codec": "bpe:o200k"}]},
     "history[0].codec", "bpe:o200k_base", '"bpe:o200k"'),
    ("no tokenizer", {"estimator": "bpe:o200k"},
     "estimator", "did you mean 'bpe:o200k_base'?", '"bpe:o200k"'),
    ("no word", {"guards": [{"guard": "keywords", "words": [""]}]}, "guards[0].words[0]", ">= 1", '""'),
    ("no words", {"guards": [{"guard": "keywords", "words": []}]}, "guards[0].words", ">= 1", "[]"),
    ("not there", {"guards": [{"name": "x", "guard": None}]}, "guards[0].guard", "name of a guard", "null"),
    ("premature end", {"premature_end": {"max": -1}}, "premature_end.max", ">= 0", "-1"),
    ("a key of premature end", {"premature_end": {"mx": 1}}, "premature_end.mx", "unknown key", ""),
    ("true for a number", {"truncation": {"max": True}}, "truncation.max", "a whole number", "true"),
    ("no approver", {"approvals": {}}, "approvals", "or a 'chain'", ""),
    ("approvals", {"approvals": {"preset": "stage"}}, "approvals.preset", "ci, dev, dev_any", '"stage"'),
    ("a preset misspelt", {"preset": "hermez"}, "preset", "did you mean 'hermes'?", '"hermez"'),
    ("no such preset", {"preset": "zzz"}, "preset", "known are awaken,", '"zzz"'),
    ("a preset that is no name", {"preset": 3}, "preset", "the name of a preset", "3"),
    ("the place is that in what was given", {"preset": "tirea", "limits": [{"type": "cost", "value": "x"}]},
     "limits[0].value", "a number or null", '"x"'),
    ("a second one does not inherit",
     {"preset": "tirea", "limits": [{"type": "step", "value": 1}, {"type": "token", "value": 1}, {"type": "token"}]},
     "limits[2].value", "required", ""),
    ("of guards too", {"preset": "guardrails", "guards": [{"guard": "loop", "window": -1}]},
     "guards[0].window", ">= 0", "-1"),
    ("an unknown class", {"retry": {"classes": ["nope"]}}, "retry.classes[0]", "", '"nope"'),
    ("a negative timeout", {"call_timeout": {"min": -1}}, "call_timeout.min", ">= 0", "-1"),
    ("an unknown end of turn", {"end_of_turn": "stop"}, "end_of_turn", "", '"stop"'),
    ("an unknown order", {"batch": "serial"}, "batch", "", '"serial"'),
    ("an unknown estimator", {"estimator": "guess"}, "estimator", "", '"guess"'),
    ("a long value", limit(type="token", value="x" * 500), "limits[1].value", "a whole number", "x…"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "path", "problem", "shown"), [pytest.param(*row, id=name) for name, *row in REFUSED]
)
def test_refused(data: Any, path: str, problem: str, shown: str) -> None:
    """What cannot work is refused with the path, what was expected and what stood there."""
    with pytest.raises(PolicyError) as caught:
        parse(data)
    assert path == caught.value.path
    assert problem in caught.value.problem
    assert shown in caught.value.problem
    assert "`" not in str(caught.value)
    assert 300 > len(str(caught.value))
