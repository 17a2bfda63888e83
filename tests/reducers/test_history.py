"""History passes: which messages stay, by hand."""

from typing import Any

import msgspec
import pytest

from refold.reducers.history import Pass, Plan, Scene, planned, previewed
from refold.reducers.history.trim_messages import head_and_tail, shares
from refold.reducers.messages import Gap, Message, MessageCall, Size, TextCut
from refold.reducers.vocabulary import Role
from refold.reducers.window import (
    MessageRef,
    Window,
    append,
    insert,
    ranges_of,
    refs,
    resized,
)
from support.plans import TEXTS, applied, only, staying, window
from support.scenario import Scenario


def plan_of(step: dict[str, Any], window: Window, /, **moment: Any) -> Plan | None:
    """What the pass would do with this window."""
    return planned(Scene(window=window, texts=TEXTS, **moment), msgspec.convert(step, Pass))


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
    ("trim_messages", {"cap": 1}, "codec", "char", "bpe:o200k_base"),
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
    """Of the messages other than system, the task among them, the first max(1, floor(fraction of them)) go."""
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
    """The next marker replaces the last one and counts what that stood for; alone it is no reason to prune."""
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


@pytest.mark.parametrize(
    ("cap", "marker", "expected"),
    [
        pytest.param(9, 8, (9, 0, False), id="no room for the marker and two"),
        pytest.param(10, 8, (1, 1, True), id="one of each"),
        pytest.param(11, 8, (1, 2, True), id="odd: the tail has one more"),
        pytest.param(100, 28, (36, 36, True), id="halves"),
        pytest.param(1, 0, (1, 0, False), id="a cap of one"),
        pytest.param(2, 0, (1, 1, True), id="an empty marker takes nothing"),
    ],
)
def test_head_and_tail(cap: int, marker: int, expected: tuple[int, int, bool]) -> None:
    """Head, marker and tail are the cap together; without room for all three there is a head only."""
    assert expected == head_and_tail(cap, marker)


@pytest.mark.parametrize(
    ("counts", "cap", "expected"),
    [
        pytest.param([5, 5], 10, [5, 5], id="fits"),
        pytest.param([679, 588], 142, [76, 66], id="what is left over goes to the larger remainder"),
        pytest.param([30, 30], 11, [5, 6], id="equal remainders: the later part"),
        pytest.param([1000, 1, 1], 10, [8, 1, 1], id="one at least, taken back from who has more"),
        pytest.param([50, 1, 1, 1, 1, 1], 6, [1] * 6, id="down to one"),
        pytest.param([5, 6], 1, [1, 1], id="less than one each there is not"),
        pytest.param([100, 0], 10, [10, 0], id="nothing of nothing"),
    ],
)
def test_shares(counts: list[int], cap: int, expected: list[int]) -> None:
    """Parts share a cap in proportion, in whole numbers that add up to it where they can."""
    assert expected == shares(counts, cap)


def trimmed(chars: int, cap: int | None, reasoning: int = 0, **more: Any) -> tuple[TextCut, ...] | None:
    ref = MessageRef(
        number=1,
        role=Role.ASSISTANT,
        seq=1,
        unit=1,
        size=Size(chars=chars, reasoning=reasoning, tokens=1, digest="1"),
    )
    plan = plan_of({"do": "trim_messages", "cap": cap, **more}, append(Window(), ref))
    return plan.shorter[0].cuts if plan else None


@pytest.mark.parametrize(
    ("chars", "step", "expected"),
    [
        pytest.param(50, {"cap": 50, "codec": "char"}, None, id="at the cap"),
        pytest.param(
            51, {"cap": 50, "codec": "char"}, (TextCut(head=19, tail=19, removed=13),), id="one above"
        ),
        pytest.param(
            101, {"cap": 50, "codec": "char"}, (TextCut(head=18, tail=19, removed=64),), id="longer"
        ),
        pytest.param(
            51,
            {"cap": 13, "codec": "char"},
            (TextCut(head=13, tail=0, removed=38),),
            id="no marker",
        ),
        pytest.param(51, {"cap": 14, "codec": "char"}, (TextCut(head=1, tail=1, removed=49),), id="a marker"),
        pytest.param(40, {"cap": 10}, None, id="10 tokens of 4"),
        pytest.param(41, {"cap": 10}, (TextCut(head=12, tail=13, removed=4),), id="11 tokens, the last of 1"),
        pytest.param(44, {"cap": 10}, (TextCut(head=12, tail=16, removed=4),), id="11 tokens of 4"),
        pytest.param(99, {"cap": None}, None, id="no cap is off"),
        pytest.param(99, {"cap": 10, "last": 0}, None, id="none of the last 0"),
        pytest.param(
            41, {"cap": 10, "last": 9}, (TextCut(head=12, tail=13, removed=4),), id="fewer than the last"
        ),
        pytest.param(99, {"cap": 10, "roles": ["user"]}, None, id="another role"),
        pytest.param(99, {"cap": 10, "single": True}, None, id="nobody complained about one message"),
    ],
)
def test_trim_messages(chars: int, step: dict[str, Any], expected: tuple[TextCut, ...] | None) -> None:
    """Above the cap: head, marker and tail, which are the cap together, counted in the codec's tokens."""
    assert expected == trimmed(chars, **step)


def test_text_and_reasoning_share_a_cap() -> None:
    """Each part is cut to its share; one within its share stays whole."""
    both = trimmed(60, 100, reasoning=140, codec="char")
    assert (
        TextCut(head=9, tail=9, removed=42),
        TextCut(part="reasoning", head=28, tail=29, removed=83),
    ) == both
    assert (TextCut(head=37, tail=38, removed=425),) == trimmed(500, 89, reasoning=1, codec="char")


def test_the_last_messages_of_the_roles_are_trimmed() -> None:
    """`last` counts messages with a role in `roles`; the harness's own markers are left alone."""
    step = {"do": "trim_messages", "cap": 20, "codec": "char", "last": 2}
    spec = window("suatu", chars=dict.fromkeys(range(1, 6), 30))
    marker = MessageRef(
        number=9,
        role=Role.USER,
        seq=9,
        unit=9,
        size=Size(chars=99, tokens=10, digest="9"),
        gap=Gap(covers=3),
    )
    plan = plan_of(step, insert(spec, marker, 5))
    assert plan is not None
    assert [3, 5] == [shorter.number for shorter in plan.shorter]
    single = plan_of({**step, "single": True, "last": None}, spec, single=True)
    assert single is not None
    assert [2, 3, 5] == [shorter.number for shorter in single.shorter]


def test_a_message_is_cut_from_the_whole_of_it() -> None:
    """A second cut counts what the first one took, too, and is made of the whole text."""
    scene = Scene(window=window("sua", chars={3: 1000}), texts=TEXTS)
    once = applied(scene, plan_of({"do": "trim_messages", "cap": 100, "codec": "char"}, scene.window), 9)
    assert 99 == refs(once)[2].size.chars
    assert plan_of({"do": "trim_messages", "cap": 100, "codec": "char"}, once) is None
    again = plan_of({"do": "trim_messages", "cap": 50, "codec": "char"}, once)
    assert again is not None
    assert (TextCut(head=18, tail=18, removed=964),) == again.shorter[0].cuts


AGE: dict[str, Any] = {
    "do": "age_results",
    "keep_last": 2,
    "soft": {"over": 100, "head": 20, "tail": 30},
    "hard": {"over": 1000},
}
SOFT, HARD = (20, 30), (0, 0)


@pytest.mark.parametrize(
    ("spec", "chars", "step", "expected"),
    [
        pytest.param("suataa", {4: 100}, AGE, {}, id="exactly too long is not"),
        pytest.param("suataa", {4: 101}, AGE, {4: (*SOFT, 51)}, id="too long"),
        pytest.param("suata", {4: 101}, AGE, {}, id="among the last two"),
        pytest.param("suaaaa", {3: 999}, AGE, {}, id="no result"),
        pytest.param(
            "suattaa", {4: 500, 5: 500}, AGE, {4: (*SOFT, 450), 5: (*SOFT, 450)}, id="not too long together"
        ),
        pytest.param(
            "suattaa", {4: 5, 5: 996}, AGE, {4: (*HARD, 5), 5: (*HARD, 996)}, id="too long together: each"
        ),
        pytest.param("suattaa", {4: 5, 5: 996}, {**AGE, "hard": None}, {5: (*SOFT, 946)}, id="no hard limit"),
        pytest.param(
            "suattaa", {4: 5, 5: 996}, {**AGE, "soft": None}, {4: (*HARD, 5), 5: (*HARD, 996)}, id="no soft"
        ),
        pytest.param("suattaa", {4: 500, 5: 500}, {**AGE, "soft": None}, {}, id="neither"),
        pytest.param(
            "suattaa", {4: 0, 5: 1001}, AGE, {4: (*HARD, 0), 5: (*HARD, 1001)}, id="an empty one, too"
        ),
        pytest.param(
            "suataa",
            {4: 61},
            {**AGE, "soft": {"over": 60, "head": 20, "tail": 30}},
            {},
            id="it would get longer",
        ),
    ],
)
def test_age_results(
    spec: str, chars: dict[int, int], step: dict[str, Any], expected: dict[int, tuple[int, int, int]]
) -> None:
    """Old results become placeholders when they are too long together, else the long ones lose their middle."""
    scene = Scene(window=window(spec, chars=chars), texts=TEXTS)
    plan = plan_of(step, scene.window)
    cuts = {shorter.number: shorter.cuts[0] for shorter in plan.shorter} if plan else {}
    assert expected == {number: (cut.head, cut.tail, cut.removed) for number, cut in cuts.items()}
    assert plan_of(step, applied(scene, plan, 9)) is None


@pytest.mark.parametrize(
    ("tokens", "preview", "chars", "expected"),
    [
        pytest.param(20, 50, 100, 50, id="large enough"),
        pytest.param(19, 50, 100, None, id="one token less"),
        pytest.param(20, 0, 100, None, id="nothing to cut"),
        pytest.param(20, 95, 100, None, id="it would get longer"),
    ],
)
def test_preview_results(tokens: int, preview: int, chars: int, expected: int | None) -> None:
    """A large result is shown as its beginning, as long as was found when it came in."""
    step = {"do": "preview_results", "tokens": 20, "chars": 60, "lines": 3}
    before = window("suat", {3: 99, 4: tokens}, {3: 99, 4: chars}, {4: preview})
    plan = plan_of(step, before)
    cut = TextCut(head=expected, tail=0, removed=chars - expected) if expected else None
    assert cut == (plan.shorter[0].cuts[0] if plan else None)
    assert plan_of(step, applied(Scene(window=before, texts=TEXTS), plan, 9)) is None


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        pytest.param("x" * 11, 20, 10, id="its first characters"),
        pytest.param("x" * 10, 20, 0, id="no more than those: all of it"),
        pytest.param("ab\ncd\nef\n", 20, 6, id="up to and including the second newline"),
        pytest.param("ab\ncd\n", 20, 0, id="no more than two lines: all of it"),
        pytest.param("x" * 11, 19, 0, id="not large enough"),
    ],
)
def test_previewed(text: str, tokens: int, expected: int) -> None:
    """How much of a result a preview shows is found when it comes in; 0 is all of it."""
    passes = [{"do": "tail", "last": 1}, {"do": "preview_results", "tokens": 20, "chars": 10, "lines": 2}]
    assert expected == previewed([msgspec.convert(step, Pass) for step in passes], text, tokens)


DIGEST: dict[str, Any] = {"do": "digest", "keep_last": 3, "per_message": 10, "total": 40}


def numbered(ranges: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    return tuple(number for first, last in ranges for number in range(first, last + 1))


@pytest.mark.parametrize(
    ("spec", "total", "expected", "sources", "after"),
    [
        pytest.param("sua", 40, None, None, None, id="no more than the tail"),
        pytest.param("suaua", 40, None, None, None, id="the task is older, and stays"),
        pytest.param("suauaua", 40, [1, 2, 5, 6, 7], (3, 4), 2, id="a line for each of the others"),
        pytest.param("suatattt", 99, [1, 2], (3, 4, 5, 6, 7, 8), 2, id="a cut unit goes, and is told"),
        pytest.param("suaauauaua", 40, [1, 2, 8, 9, 10], (3, 4, 5), 2, id="no more than certainly fill it"),
        pytest.param("suaauauaua", 43, [1, 2, 8, 9, 10], (3, 4, 5), 2, id="just filled"),
        pytest.param("suaauauaua", 44, [1, 2, 8, 9, 10], (3, 4, 5, 6), 2, id="not quite filled"),
        pytest.param("suasauau", 40, [1, 2, 4, 6, 7, 8], (3, 5), 4, id="system messages stay"),
    ],
)
def test_digest(
    spec: str, total: int, expected: list[int] | None, sources: tuple[int, ...] | None, after: int | None
) -> None:
    """The last messages and the task stay; one message quotes the others, oldest first."""
    before = window(spec, chars=dict.fromkeys(range(1, 20), 7))
    plan = plan_of({**DIGEST, "total": total}, before)
    gap = plan.gap if plan else None
    assert expected == staying(plan, before)
    assert sources == (numbered(gap.sources) if gap else None)
    assert after == (gap.after if gap else None)


def test_a_digest_of_a_digest_gives_it_a_line() -> None:
    """What an earlier digest quoted is quoted again as far as fills a line, so that it cannot crowd out the rest."""
    first = Scene(window=window("suauaua", chars=dict.fromkeys(range(1, 20), 7)))
    after = applied(first, plan_of(DIGEST, first.window), 20)
    assert [1, 2, 20, 5, 6, 7] == [ref.number for ref in refs(after)]
    assert plan_of(DIGEST, after) is None
    for number in (21, 22):
        ref = MessageRef(
            number=number, role=Role.USER, seq=1, unit=number, size=Size(chars=7, tokens=10, digest="1")
        )
        after = append(after, ref)
    again = plan_of(DIGEST, after)
    assert again is not None
    assert again.gap is not None
    assert [1, 2, 7, 21, 22] == staying(again, after)
    assert (3, 5, 6) == numbered(again.gap.sources)
    assert (2, 4, 40) == (again.gap.after, again.gap.covers, again.gap.tokens)


@pytest.mark.parametrize(
    ("spec", "step", "covered", "after"),
    [
        pytest.param("suauaua", {}, (3, 4, 5, 6, 7), 2, id="all but the pinned"),
        pytest.param("suauaua", {"keep_last": 2}, (3, 4, 5), 2, id="but the last two"),
        pytest.param("suauaua", {"keep_first": 3, "keep_last": 2}, (4, 5), 3, id="and the first three"),
        pytest.param("suauaua", {"keep_first": 5, "keep_last": 2}, (), None, id="nothing between"),
        pytest.param("suauaua", {"keep_last": 99}, (), None, id="everything protected"),
        pytest.param("suatatta", {"keep_last": 2}, (3, 4), 2, id="the cut moves back before a unit"),
        pytest.param(
            "suatatta", {"keep_first": 3, "keep_last": 1}, (5, 6, 7), 4, id="the first unit stays whole"
        ),
        pytest.param("suatat", {}, (3, 4, 5, 6), 2, id="up to the end"),
        pytest.param(
            "suauaaa", {"keep_last": 1, "from_last_user": True}, (3,), 2, id="all from the last user message"
        ),
        pytest.param("suauaaa", {"keep_last": 5, "from_last_user": True}, (), None, id="or more of them"),
        pytest.param("suaaa", {"from_last_user": True}, (), None, id="which may be the task"),
        pytest.param("suauaaa", {"keep_tokens": 20}, (3, 4, 5), 2, id="where 20 tokens are gathered"),
        pytest.param("suauaaa", {"keep_tokens": 21}, (3, 4), 2, id="21 need one more"),
        pytest.param("suauaaa", {"keep_tokens": 75}, (), None, id="never gathered"),
        pytest.param("aaua", {"keep_last": 4}, (), None, id="everything protected, without a system message"),
        pytest.param("suauaaa", {"keep_tokens": 10, "keep_last": 2}, (3, 4, 5), 2, id="the larger tail"),
        pytest.param("suauaaa", {"keep_last": 1, "cut_at": "user"}, (3,), 2, id="only before a user message"),
        pytest.param("suaaa", {"cut_at": "user"}, (), None, id="before the task is nothing"),
        pytest.param("suaua", {"min_gain": 30}, (3, 4, 5), 2, id="gain enough"),
        pytest.param("suaua", {"min_gain": 31}, (), None, id="too little to gain"),
        pytest.param("suaua", {"min_messages": 3}, (3, 4, 5), 2, id="messages enough"),
        pytest.param("suaua", {"min_messages": 4}, (), None, id="too few messages"),
        pytest.param("ssuasaa", {"role": "system"}, (4, 6, 7), 2, id="after the leading system messages"),
        pytest.param("uaa", {"role": "system"}, (2, 3), 0, id="or in front"),
        pytest.param("aaua", {}, (1, 2, 4), 0, id="in front of the first"),
        pytest.param("aaua", {"keep_tokens": 99}, (), None, id="never gathered, without a system message"),
    ],
)
def test_summarise(spec: str, step: dict[str, Any], covered: tuple[int, ...], after: int | None) -> None:
    """What is neither protected nor pinned is covered, whole units of it, and the summary stands where it began."""
    plan = plan_of({"do": "summarise", **step}, window(spec))
    summary = plan.summary if plan else None
    assert covered == (numbered(summary.messages) if summary else ())
    assert after == (summary.after if summary else None)
    assert 10 * len(covered) == (summary.input_tokens if summary else 0)


@pytest.mark.parametrize("role", ["user", "system"])
def test_the_next_summary_is_given_the_last(role: str) -> None:
    """An earlier summary is covered wherever it stands; alone it is no reason for another."""
    step = {"do": "summarise", "keep_first": 3, "keep_last": 1, "role": role}
    first = Scene(window=window("suauaua"))
    after = applied(first, plan_of(step, first.window), 20)
    assert ([1, 2, 3, 20, 7] if role == "user" else [1, 20, 2, 3, 7]) == [ref.number for ref in refs(after)]
    assert plan_of(step, after) is None
    again = plan_of(
        step,
        append(
            after,
            MessageRef(number=21, role=Role.USER, seq=1, unit=21, size=Size(chars=0, tokens=10, digest="1")),
        ),
    )
    assert again is not None
    assert again.summary is not None
    assert {20, 7} == set(numbered(again.summary.messages))
    assert (3 if role == "user" else 1) == again.summary.after


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
    shorter = resized(full, 3, Size(tokens=4, chars=16, digest="x"))
    assert (3, 24) == (shorter.count, shorter.tokens)
    assert [(3, 4, 16)] == [(ref.number, ref.size.tokens, ref.size.chars) for ref in refs(shorter)[2:]]
    assert full.digest != shorter.digest
    assert full.digest == resized(shorter, 3, Size(tokens=10, digest="3")).digest


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
