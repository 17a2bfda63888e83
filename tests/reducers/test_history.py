"""History passes: which messages stay, by hand."""

from typing import Any

import msgspec
import pytest

from refold.reducers.history import Pass, prune
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window, append, only, ranges_of, refs, resized
from support.scenario import Scenario

ROLES = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}


def window(spec: str, weights: dict[int, int] | None = None) -> Window:
    """A window from letters: s, u, a and t; results belong to the answer before them. Ten tokens each."""
    built, unit = Window(), 0
    for number, letter in enumerate(spec, 1):
        unit = unit if letter == "t" else number
        ref = MessageRef(
            number=number,
            role=ROLES[letter],
            seq=number,
            unit=unit,
            chars=0,
            tokens=(weights or {}).get(number, 10),
            digest=str(number),
        )
        built = append(built, ref)
    return built


def kept(spec: str, step: dict[str, Any], weights: dict[int, int] | None = None) -> list[int] | None:
    pruning = prune(window(spec, weights), msgspec.convert(step, Pass))
    return None if pruning is None else [ref.number for ref in refs(pruning.window)]


@pytest.mark.parametrize(
    ("spec", "step", "expected"),
    [
        pytest.param("suaua", {"last": 3}, None, id="nothing too many: nothing said"),
        pytest.param("suauaua", {"last": 3}, [1, 2, 5, 6, 7], id="the pinned and the last three others"),
        pytest.param("suauaua", {"last": 0}, [1, 2, 7], id="0 keeps one: max(1, last)"),
        pytest.param("suauaua", {"last": 1}, [1, 2, 7], id="one"),
        pytest.param("uauaua", {"last": 2}, [1, 5, 6], id="no system message"),
        pytest.param("aaaa", {"last": 2}, [3, 4], id="neither system message nor task"),
        pytest.param("asuaa", {"last": 1}, [2, 3, 5], id="the pinned keep their places"),
        pytest.param("suatatat", {"last": 4}, [1, 2, 5, 6, 7, 8], id="cut between units"),
        pytest.param("suatatat", {"last": 3}, [1, 2, 7, 8], id="a cut unit goes whole"),
        pytest.param("suatatat", {"last": 3, "pair_cut": "extend"}, [1, 2, 5, 6, 7, 8], id="or stays whole"),
        pytest.param("suattt", {"last": 2}, [1, 2], id="the newest unit too, never over budget"),
        pytest.param("suattta", {"last": 3, "pair_cut": "extend"}, None, id="extended to all of it"),
        pytest.param(
            "suasaua", {"last": 2}, [1, 2, 6, 7], id="a further system message counts among the others"
        ),
        pytest.param(
            "suasaua", {"last": 2, "systems": "all"}, [1, 2, 4, 6, 7], id="all system messages stay"
        ),
        pytest.param("suauaua", {"last": 1, "when": {"messages": 7}}, None, id="not above 7 messages"),
        pytest.param("suauaua", {"last": 1, "when": {"messages": 6}}, [1, 2, 7], id="above 6 messages"),
        pytest.param("suauaua", {"last": 1, "when": {"tokens": 70}}, None, id="not above 70 tokens"),
        pytest.param("suauaua", {"last": 1, "when": {"tokens": 69}}, [1, 2, 7], id="above 69 tokens"),
        pytest.param(
            "suauaua", {"last": 1, "when": {"tokens": 69, "messages": 7}}, None, id="both must hold"
        ),
        pytest.param(
            "suauaua",
            {"last": 1, "when": {"always": True, "messages": 7}},
            None,
            id="always does not overrule a condition",
        ),
        pytest.param("suauaua", {"last": 1, "when": {}}, None, id="no condition is never"),
        pytest.param("", {"last": 1}, None, id="an empty window"),
    ],
)
def test_tail(spec: str, step: dict[str, Any], expected: list[int] | None) -> None:
    """Keep the pinned and the last max(1, `last`) of the others; units whole."""
    assert expected == kept(spec, {"do": "tail", **step})


@pytest.mark.parametrize(
    ("spec", "weights", "step", "expected"),
    [
        pytest.param("suaua", {}, {"budget": 40}, None, id="fits: system messages do not count"),
        pytest.param("suaua", {}, {"budget": 39}, [1, 2, 4, 5], id="one token over"),
        pytest.param("suaua", {}, {"budget": 30}, [1, 2, 4, 5], id="exactly what is left"),
        pytest.param("suaua", {}, {"budget": 29}, [1, 2, 5], id="one less"),
        pytest.param(
            "suaua", {}, {"budget": 40, "count_system": True}, [1, 2, 4, 5], id="system messages count"
        ),
        pytest.param("suaua", {}, {"budget": 50, "count_system": True}, None, id="and fit"),
        pytest.param("suaua", {}, {"budget": 1}, [1, 2, 5], id="the last one whatever it weighs"),
        pytest.param("suaua", {}, {"budget": 1, "min_last": 2}, [1, 2, 4, 5], id="the last two"),
        pytest.param("suaua", {}, {"budget": 1, "min_last": 0}, [1, 2, 5], id="min_last 0 is one"),
        pytest.param("suaua", {2: 100}, {"budget": 20}, [1, 2, 5], id="a task heavier than the budget"),
        pytest.param("suaaa", {4: 100}, {"budget": 40}, [1, 2, 5], id="the walk stops at the first refused"),
        pytest.param("suatat", {}, {"budget": 40}, [1, 2, 5, 6], id="a cut unit goes whole"),
        pytest.param("suatat", {}, {"budget": 40, "pair_cut": "extend"}, None, id="or stays whole"),
        pytest.param("suatat", {}, {"budget": 10}, [1, 2], id="min_last inside a unit: the unit goes"),
        pytest.param("suasa", {}, {"budget": 20}, [1, 2, 4, 5], id="system messages stay"),
    ],
)
def test_token_tail(
    spec: str, weights: dict[int, int], step: dict[str, Any], expected: list[int] | None
) -> None:
    """Walk back from the newest while the estimate fits what the pinned leave of the budget."""
    assert expected == kept(spec, {"do": "token_tail", **step}, weights)


@pytest.mark.parametrize(
    ("spec", "weights", "step", "over"),
    [
        pytest.param("suaua", {}, {"do": "token_tail", "budget": 30}, False, id="kept"),
        pytest.param(
            "suaua", {}, {"do": "token_tail", "budget": 15}, True, id="the last message does not fit"
        ),
        pytest.param("suaua", {2: 99}, {"do": "token_tail", "budget": 50}, True, id="the task does not fit"),
        pytest.param("suatatat", {}, {"do": "tail", "last": 3}, False, id="drop is never over"),
        pytest.param(
            "suatatat", {}, {"do": "tail", "last": 3, "pair_cut": "extend"}, True, id="extend may be"
        ),
        pytest.param(
            "suasaua", {}, {"do": "tail", "last": 1, "systems": "all"}, True, id="every system message"
        ),
    ],
)
def test_over_budget_is_said(spec: str, weights: dict[int, int], step: dict[str, Any], over: bool) -> None:
    """What cannot fit is said, not hidden."""
    pruning = prune(window(spec, weights), msgspec.convert(step, Pass))
    assert pruning is not None
    assert over == pruning.over_budget


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


def test_window_by_hand() -> None:
    """Appending counts, weighs and pins; taking out undoes it; the digest tells two windows apart."""
    full = window("suatat")
    assert (6, 60, ((1, 6),)) == (full.count, full.tokens, full.ranges)
    assert [True, True, False, False, False, False] == [ref.pinned for ref in refs(full)]
    less = only(full, {1, 2, 5, 6})
    assert (4, 40, ((1, 2), (5, 6))) == (less.count, less.tokens, less.ranges)
    assert less.digest != full.digest
    assert only(window("suatat"), {1, 2, 5, 6}).digest == less.digest
    assert window("su").digest == only(full, {1, 2}).digest


def test_a_shorter_message_weighs_less() -> None:
    """A trimmed message keeps its place and changes totals and digest by its own."""
    full = window("sua")
    shorter = resized(full, 3, 4, 16, "x")
    assert (3, 24) == (shorter.count, shorter.tokens)
    assert [(3, 4, 16)] == [(ref.number, ref.tokens, ref.chars) for ref in refs(shorter)[2:]]
    assert full.digest != shorter.digest
    assert full.digest == resized(shorter, 3, 10, 0, "3").digest


@pytest.mark.parametrize(
    ("numbers", "ranges"),
    [
        pytest.param([], (), id="none"),
        pytest.param([1], ((1, 1),), id="one"),
        pytest.param([1, 2, 3, 7], ((1, 3), (7, 7)), id="two ranges"),
        pytest.param([1, 3, 5], ((1, 1), (3, 3), (5, 5)), id="all apart"),
    ],
)
def test_ranges_of(numbers: list[int], ranges: tuple[tuple[int, int], ...]) -> None:
    """Numbers in order become inclusive pairs."""
    assert ranges == ranges_of(numbers)


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
