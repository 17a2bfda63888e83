"""History passes that show messages shorter: which, and what is left of each, by hand."""

from typing import Any

import msgspec
import pytest

from refold.reducers.history import Pass, Scene, previewed
from refold.reducers.history.results import halves, head_and_tail, shares
from refold.reducers.messages import Gap, Size, TextCut
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window, append, insert, refs
from support.plans import TEXTS, applied, plan_of, window


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


@pytest.mark.parametrize(
    ("counts", "cap", "expected"),
    [
        pytest.param([12], 12, [None], id="at the cap"),
        pytest.param([12], 11, [5], id="an odd cap loses one"),
        pytest.param([60, 30], 30, [10, 5], id="parts share in proportion"),
        pytest.param([99, 1], 10, [4, None], id="one at least, which is all of it"),
        pytest.param([4, 21], 4, [0, 1], id="half of one is nothing"),
    ],
)
def test_halves(counts: list[int], cap: int, expected: list[int | None]) -> None:
    """With the marker on top, head and tail of each part are half of its share, rounded down."""
    assert expected == halves(counts, cap)


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
        pytest.param(
            51,
            {"cap": 50, "codec": "char", "marker": "beside"},
            (TextCut(head=25, tail=25, removed=1),),
            id="beside: half at each end, whatever the marker",
        ),
        pytest.param(
            41,
            {"cap": 10, "marker": "beside"},
            (TextCut(head=20, tail=17, removed=1),),
            id="beside: 11 tokens, the last of 1",
        ),
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
    """Old results become placeholders when they are too long together, else the long ones lose their
    middle.
    """
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
