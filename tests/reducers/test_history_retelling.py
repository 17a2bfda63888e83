"""History passes that tell older messages in fewer words: which are told, and where, by hand."""

from typing import Any

import pytest

from refold.reducers.history import Scene
from refold.reducers.messages import Size
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, append, refs
from support.plans import applied, plan_of, staying, window

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
    """What an earlier digest quoted is quoted again as far as fills a line, so that it cannot crowd out the
    rest.
    """
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
    """What is neither protected nor pinned is covered, whole units of it, and the summary stands where it
    began.
    """
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
