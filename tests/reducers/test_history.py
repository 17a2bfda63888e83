"""History passes: when one runs, what it may be told, and what it says that it did."""

from typing import Any

import msgspec
import pytest

from refold.reducers.history import Pass
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role
from support.plans import only, plan_of, window
from support.scenario import Scenario

MOMENT: dict[str, Any] = {"step": 4, "model": "vendor/Sonnet-9", "context": 100, "turn_start": True}


@pytest.mark.parametrize(
    ("when", "moment", "holds"),
    [
        pytest.param({"messages": 7}, {}, False, id="not above 7 messages"),
        pytest.param({"messages": 6}, {}, True, id="above 6 messages"),
        pytest.param({"tokens": 70}, {}, False, id="not above 70 tokens"),
        pytest.param({"tokens": 70, "at_least": True}, {}, True, id="at least 70 tokens"),
        pytest.param({"tokens": 71, "at_least": True}, {}, False, id="not at least 71 tokens"),
        pytest.param({"messages": 7, "at_least": True}, {}, False, id="at least is said of tokens only"),
        pytest.param({"tokens": {"share": 0.7}}, {}, False, id="not above 70 % of 100 tokens"),
        pytest.param({"tokens": {"share": 0.69}}, {}, True, id="above 69 % of 100 tokens"),
        pytest.param(
            {"tokens": {"share": 0.7}, "at_least": True}, {}, True, id="at least 70 % of 100 tokens"
        ),
        pytest.param({"tokens": {"share": 0.1}}, {"context": None}, False, id="a share of nobody knows what"),
        pytest.param({"tokens": 99, "measure": "whole"}, {}, True, id="everything said weighs 100"),
        pytest.param({"tokens": 100, "measure": "whole"}, {}, False, id="and no more"),
        pytest.param({"model": ["opus", "sonnet"]}, {}, True, id="part of the model's name, any case"),
        pytest.param({"model": ["sonnet"], "model_case": True}, {}, False, id="not in this case"),
        pytest.param({"model": ["Sonnet"], "model_case": True}, {}, True, id="in this case"),
        pytest.param({"model": ["opus"]}, {}, False, id="another model"),
        pytest.param({"after_step": 3}, {}, True, id="step 4 is after step 3"),
        pytest.param({"after_step": 4}, {}, False, id="and not after step 4"),
        pytest.param({"turn_start": True}, {}, True, id="at the start of a turn"),
        pytest.param({"turn_start": True}, {"turn_start": False}, False, id="later in a turn"),
        pytest.param({"turn_start": True, "tokens": 70}, {}, False, id="one of two does not hold"),
        pytest.param(
            {"tokens": None, "at_least": True}, {}, False, id="null tokens and nothing else is never"
        ),
        pytest.param({"always": True, "tokens": None}, {}, True, id="null is not given"),
        pytest.param({"messages": 7}, {"forced": True}, True, id="forced, whatever it says"),
        pytest.param({}, {"forced": True}, True, id="forced, if never"),
    ],
)
def test_when(when: dict[str, Any], moment: dict[str, Any], holds: bool) -> None:
    """A pass runs when all that is given holds: counts are compared strictly, unless `at_least`."""
    whole = window("suauauauau")
    seven = only(whole, {1, 2, 6, 7, 8, 9, 10})
    plan = plan_of({"do": "tail", "last": 1, "when": when}, seven, **{**MOMENT, **moment})
    assert holds == (plan is not None)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        pytest.param({"do": "tail", "last": 1}, "window", id="to keep the window"),
        pytest.param({"do": "tail", "last": 1, "when": {"after_step": 3}}, "window", id="from some step on"),
        pytest.param(
            {"do": "tail", "last": 1, "when": {"messages": 9}}, "threshold", id="above so many messages"
        ),
        pytest.param(
            {"do": "tail", "last": 1, "when": {"tokens": 9}}, "threshold", id="above so many tokens"
        ),
        pytest.param({"do": "token_tail", "budget": 1, "when": {"tokens": 9}}, "budget", id="token_tail"),
        pytest.param({"do": "compact", "budget": 1}, "budget", id="compact"),
        pytest.param({"do": "summarise"}, "summary", id="summarise"),
    ],
)
def test_reason(step: dict[str, Any], reason: str) -> None:
    """A pass with a budget, and a summary, say so; others whether they waited for a threshold."""
    assert reason == msgspec.convert(step, Pass).reason


BOUNDS: list[tuple[str, dict[str, Any], str, Any, Any]] = [
    ("tail", {"last": 1}, "last", 0, -1),
    ("tail", {"last": 1, "when": {"messages": 1}}, "when.messages", 1, 0),
    ("tail", {"last": 1, "when": {"tokens": 1}}, "when.tokens", 1, 0),
    ("tail", {"last": 1, "when": {"after_step": 1}}, "when.after_step", 0, -1),
    ("tail", {"last": 1, "when": {"tokens": {"share": 1}}}, "when.tokens.share", 1, 1.01),
    ("tail", {"last": 1, "when": {"tokens": {"share": 1}}}, "when.tokens.share", 0.001, 0),
    ("tail", {"last": 1, "when": {"model": [""]}}, "when.model", ["x"], [""]),
    ("drop_oldest", {"fraction": 1}, "fraction", 1, 1.01),
    ("drop_oldest", {"fraction": 1}, "fraction", 0.001, 0),
    ("token_tail", {"budget": 1}, "budget", 1, 0),
    ("token_tail", {"budget": 1}, "min_last", 0, -1),
    ("token_tail", {"budget": {"context": 1}}, "budget.context", 0, -1),
    ("token_tail", {"budget": {"context": 1}}, "budget.minus_output", 0, -1),
    ("compact", {"budget": 1}, "budget", 1, 0),
    ("compact", {"budget": 1}, "tail_fraction", 1, 1.01),
    ("compact", {"budget": 1}, "tail_fraction", 0.001, 0),
    ("trim_messages", {"cap": 1}, "cap", 1, 0),
    ("trim_messages", {"cap": 1}, "last", 0, -1),
    ("trim_messages", {"cap": 1}, "codec", "char", "bpe:o200k"),
    ("trim_messages", {"cap": 1}, "marker", "beside", "on top"),
    ("age_results", {"keep_last": 1}, "keep_last", 0, -1),
    ("age_results", {"keep_last": 1, "hard": {"over": 1}}, "hard.over", 0, -1),
    ("age_results", {"keep_last": 1, "soft": {"over": 1, "head": 1, "tail": 1}}, "soft.tail", 0, -1),
    ("preview_results", {"tokens": 1, "chars": 1, "lines": 1}, "tokens", 1, 0),
    ("preview_results", {"tokens": 1, "chars": 1, "lines": 1}, "chars", 1, 0),
    ("preview_results", {"tokens": 1, "chars": 1, "lines": 1}, "lines", 1, 0),
    ("digest", {"keep_last": 1, "per_message": 1, "total": 1}, "keep_last", 0, -1),
    ("digest", {"keep_last": 1, "per_message": 1, "total": 1}, "per_message", 1, 0),
    ("digest", {"keep_last": 1, "per_message": 1, "total": 1}, "total", 1, 0),
    ("summarise", {}, "keep_tokens", 1, 0),
    ("summarise", {}, "max_output", 1, 0),
    ("summarise", {}, "min_gain", 0, -1),
]


@pytest.mark.parametrize(
    ("do", "plain", "path", "taken", "refused"), BOUNDS, ids=[f"{do} {path}" for do, _, path, _, _ in BOUNDS]
)
def test_values_that_cannot_be(do: str, plain: dict[str, Any], path: str, taken: Any, refused: Any) -> None:
    """A value just within its bounds is taken, and one just outside is refused with its path."""

    def of(value: Any) -> Any:
        data = msgspec.json.decode(msgspec.json.encode({"do": do, **plain}))
        *way, last = path.split(".")
        inner = data
        for key in way:
            inner = inner[key]
        inner[last] = value
        return msgspec.convert(data, Pass)

    of(taken)
    with pytest.raises(msgspec.ValidationError, match=path.replace(".", r"\.")):
        of(refused)


def test_passes_run_in_order_and_say_what_they_did() -> None:
    """Each pass that changes the window is one decision, with its name, counts and what stays."""
    passes = [
        {"do": "tail", "name": "wide", "last": 3},
        {"do": "tail", "name": "never", "last": 3},
        {"do": "tail", "name": "narrow", "last": 1},
    ]
    opening = tuple(Message(role=role, text="four") for role in (Role.USER, *[Role.ASSISTANT] * 5))
    scenario = Scenario({"history": passes}, messages=opening)
    assert [
        "history_pruned name=wide before=6 after=4 tokens_before=6 tokens_after=4 kept=[[1 1] [4 6]]",
        "history_pruned name=narrow before=4 after=2 tokens_before=4 tokens_after=2 kept=[[1 1] [6 6]]",
        "model_requested step=1 attempt=1 messages=[[1 1] [6 6]]",
    ] == scenario.last


def test_earlier_messages_are_units_too() -> None:
    """Calls and results that were there from the start are pruned as whole units."""
    opening = (
        Message(role=Role.SYSTEM, text="s"),
        Message(role=Role.USER, text="u"),
        Message(role=Role.ASSISTANT, calls=(MessageCall("x", "look", "{}"), MessageCall("y", "look", "{}"))),
        Message(role=Role.TOOL, call="x", text="1"),
        Message(role=Role.TOOL, call="y", text="2"),
        Message(role=Role.USER, text="the question"),
    )
    scenario = Scenario({"history": [{"do": "tail", "last": 2}]}, messages=opening)
    assert [(1, 2), (6, 6)] == list(scenario.state.window.ranges)
