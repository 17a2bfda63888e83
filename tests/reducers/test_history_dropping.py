"""History passes that drop messages: which stay, by hand."""

from typing import Any

import msgspec
import pytest

from refold.reducers.history import Pass, Scene
from refold.reducers.messages import Size
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, append, refs
from support.plans import TEXTS, applied, plan_of, staying, window


def kept(spec: str, step: dict[str, Any], weights: dict[int, int] | None = None) -> list[int] | None:
    """The numbers that the pass keeps; None: it says nothing."""
    before = window(spec, weights)
    return staying(plan_of(step, before), before)


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
        pytest.param(
            "suatata", {"last": 1, "salvage": True}, [1, 2, 5, 6, 7], id="no result left: the newest unit"
        ),
        pytest.param(
            "suatatt", {"last": 1, "salvage": True}, [1, 2, 5, 6, 7], id="a cut unit is salvaged whole"
        ),
        pytest.param(
            "suataat", {"last": 2, "salvage": True}, [1, 2, 6, 7], id="a result is left: none salvaged"
        ),
        pytest.param("suaaa", {"last": 1, "salvage": True}, [1, 2, 5], id="no result to salvage"),
        pytest.param(
            "suatat",
            {"last": 1, "salvage": True, "pair_cut": "extend"},
            [1, 2, 5, 6],
            id="extended: no need to salvage",
        ),
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
        pytest.param(
            "suaua", {2: 100, 4: 0, 5: 1}, {"budget": 20}, [1, 2, 5], id="which leaves nothing, not less"
        ),
        pytest.param(
            "suaua",
            {1: 0, 2: 0, 4: 0, 5: 1},
            {"budget": {"context": 5, "minus_output": 99}},
            [1, 2, 5],
            id="nor less room",
        ),
        pytest.param("suaaa", {4: 100}, {"budget": 40}, [1, 2, 5], id="the walk stops at the first refused"),
        pytest.param("suatat", {}, {"budget": 40}, [1, 2, 5, 6], id="a cut unit goes whole"),
        pytest.param("suatat", {}, {"budget": 40, "pair_cut": "extend"}, None, id="or stays whole"),
        pytest.param("suatat", {}, {"budget": 10}, [1, 2], id="min_last inside a unit: the unit goes"),
        pytest.param("suasa", {}, {"budget": 20}, [1, 2, 4, 5], id="system messages stay"),
        pytest.param(
            "suaua",
            {},
            {"budget": {"context": 50, "minus_output": 11}},
            [1, 2, 4, 5],
            id="room less the answer",
        ),
        pytest.param("suaua", {}, {"budget": {"context": 50, "minus_output": 10}}, None, id="room enough"),
        pytest.param(
            "suaua",
            {},
            {"budget": {"context": 50, "minus_output": 3, "minus_tools": True}},
            [1, 2, 4, 5],
            id="less the tools (8)",
        ),
        pytest.param(
            "suaua", {}, {"budget": {"context": 50, "minus_output": 99}}, [1, 2, 5], id="no room is 0"
        ),
    ],
)
def test_token_tail(
    spec: str, weights: dict[int, int], step: dict[str, Any], expected: list[int] | None
) -> None:
    """Walk back from the newest while the estimate fits what the pinned leave of the budget."""
    before = window(spec, weights)
    assert expected == staying(plan_of({"do": "token_tail", **step}, before, tools=8), before)


@pytest.mark.parametrize(
    ("spec", "weights", "step", "over"),
    [
        pytest.param("suaua", {}, {"do": "token_tail", "budget": 30}, False, id="kept"),
        pytest.param(
            "suaua", {}, {"do": "token_tail", "budget": 15}, True, id="the last message does not fit"
        ),
        pytest.param("suaua", {2: 99}, {"do": "token_tail", "budget": 50}, True, id="the task does not fit"),
        pytest.param("suatatat", {}, {"do": "tail", "last": 3}, False, id="drop is never over"),
        pytest.param("suauaua", {}, {"do": "tail", "last": 3}, False, id="just as many as may stay"),
        pytest.param(
            "suaua",
            {},
            {"do": "token_tail", "budget": 40, "count_system": True},
            False,
            id="just as much as may stay",
        ),
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
    before = window(spec, weights)
    plan = plan_of(step, before)
    assert plan is not None
    assert plan.drop is not None
    fits = msgspec.convert(step, Pass).fits(Scene(window=before, texts=TEXTS), plan.drop)
    assert over == (not fits)


@pytest.mark.parametrize(
    ("spec", "fraction", "expected"),
    [
        pytest.param("suauaua", 0.3, None, id="6 others: 1 goes, which is the task"),
        pytest.param("suauauau", 0.3, [1, 2, 4, 5, 6, 7, 8], id="7 others: 2"),
        pytest.param("suauauauau", 0.3, [1, 2, 4, 5, 6, 7, 8, 9, 10], id="9 others: floor(2.7)"),
        pytest.param("suauauauaua", 0.3, [1, 2, *range(5, 12)], id="10 others: 3"),
        pytest.param("su", 0.3, None, id="the task alone"),
        pytest.param("suatat", 0.4, [1, 2, 5, 6], id="a result whose call goes, goes"),
        pytest.param("suasaua", 0.5, [1, 2, 4, 5, 6, 7], id="system messages stay and do not count"),
        pytest.param("suaua", 1, [1, 2], id="all but the task"),
        pytest.param("aaaa", 0.5, [3, 4], id="no task"),
    ],
)
def test_drop_oldest(spec: str, fraction: float, expected: list[int] | None) -> None:
    """Of the messages other than system, the task among them, the first max(1, floor(fraction of them))
    go.
    """
    assert expected == kept(spec, {"do": "drop_oldest", "fraction": fraction})


@pytest.mark.parametrize(
    ("spec", "step", "expected", "after"),
    [
        pytest.param("suaua", {"budget": 50, "tail_fraction": 0.5}, None, None, id="fits"),
        pytest.param("suaua", {"budget": 49, "tail_fraction": 0.5}, [1, 2, 4, 5], 2, id="one token over"),
        pytest.param("suaua", {"budget": 49}, None, None, id="it does not fit, yet nothing is to be dropped"),
        pytest.param("suauaua", {"budget": 40}, [1, 2, 5, 6, 7], 2, id="exactly 30"),
        pytest.param("suauaua", {"budget": 39}, [1, 2, 6, 7], 2, id="29"),
        pytest.param("suauaua", {"budget": 1}, [1, 2, 7], 2, id="one at least"),
        pytest.param("sua", {"budget": 1}, None, None, id="two messages other than system stay"),
        pytest.param("saa", {"budget": 1}, None, None, id="whatever they are"),
        pytest.param("suaa", {"budget": 1, "tail_fraction": 1}, [1, 2, 4], 2, id="three do not"),
        pytest.param("suatat", {"budget": 30, "tail_fraction": 1}, [1, 2, 5, 6], 2, id="a cut unit goes"),
        pytest.param("uaaa", {"budget": 13}, [1, 4], 1, id="no system message"),
        pytest.param("aaa", {"budget": 13}, [3], 0, id="no task: in front"),
        pytest.param("aaua", {"budget": 13}, [3, 4], 0, id="the gap lies before the task"),
    ],
)
def test_compact(spec: str, step: dict[str, Any], expected: list[int] | None, after: int | None) -> None:
    """The pinned, a marker where the gap ends, and the newest within a fraction of the budget."""
    before = window(spec)
    plan = plan_of({"do": "compact", **step}, before)
    assert expected == staying(plan, before)
    assert after == (None if plan is None or plan.gap is None else plan.gap.after)


def test_one_marker_tells_of_all_that_was_dropped() -> None:
    """The next marker replaces the last one and counts what that stood for; alone it is no reason to
    prune.
    """
    step = {"do": "compact", "budget": 40}
    first = window("suauaua")
    plan = plan_of(step, first)
    assert plan is not None
    assert plan.gap is not None
    assert (2, 20) == (plan.gap.covers, plan.gap.tokens)
    after = applied(Scene(window=first), plan, 20)
    assert [1, 2, 20, 5, 6, 7] == [ref.number for ref in refs(after)]
    assert plan_of(step, after) is None
    longer = append(
        after,
        MessageRef(number=21, role=Role.USER, seq=21, unit=21, size=Size(chars=0, tokens=10, digest="21")),
    )
    again = plan_of(step, longer)
    assert again is not None
    assert again.gap is not None
    assert [1, 2, 6, 7, 21] == staying(again, longer)
    assert (3, 30) == (again.gap.covers, again.gap.tokens)
    assert 2 == again.gap.after
