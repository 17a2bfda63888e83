"""Branches of a Claude Code session that somebody left by going back: what the agent did there is a run of
its own.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.formats.claude_code.importer import CLAUDE_CODE
from refold.importers.items import Answered, Item, Prompted, Remarked, RunBegan, RunEnded, Said
from refold.importers.session_rows import MOST_HELD
from refold.importers.source import Source
from support.claude_code import answer, called, read, result, row, said, user
from support.sessions import Json, told
from support.transcribed import encoded, tallies

BEGUN = [user("u", None, "go"), answer("a", "u", "r", said("hi"))]
LEFT = [
    user("x", "a", "wrong"),
    answer("y", "x", "q", called("t", command="rm -rf /")),
    result("z", "y", "t", "gone"),
]
ANEW = [user("b", "a", "right"), answer("c", "b", "p", said("yes"))]


def runs(items: Sequence[Item]) -> list[list[Item]]:
    """The items run by run."""
    begins = [place for place, item in enumerate(items) if isinstance(item, RunBegan)]
    return [list(items[begin:end]) for begin, end in zip(begins, [*begins[1:], len(items)], strict=True)]


def began(items: Sequence[Item]) -> RunBegan:
    """How a run begins."""
    (first,) = [item for item in items if isinstance(item, RunBegan)]
    return first


def shown(items: Sequence[Item]) -> list[str]:
    """The texts of the messages that a run was given to begin with."""
    return [message.text for message in began(items).messages]


def test_what_was_done_on_a_branch_that_was_left_is_a_run() -> None:
    """It begins with the conversation up to the fork, and tells what was said, asked and returned behind
    it.
    """
    session, branch = runs(read(*BEGUN, *LEFT, *ANEW))

    assert [
        ("Said", "go"),
        ("Answered", "hi"),
        ("Remarked", "rewound"),
        ("Said", "right"),
        ("Answered", "yes"),
    ] == (told(session))
    assert [("Said", "wrong"), ("Answered", ""), ("Returned", "gone")] == told(branch)
    assert ["go", "hi"] == shown(branch)
    first = began(branch)
    assert ("s/rewound-x", "s", "", "line 3") == (first.key, first.parent, first.call, first.position)
    assert {"source.branch": "rewound", "source.fork": "line 2"}.items() <= first.labels.items()
    assert any("s/rewound-x" in item.rest for item in session if isinstance(item, Remarked))


def test_each_row_counts_once() -> None:
    """What is counted of a file is the same whether somebody went back in it or went on."""
    on = [user("b", "z", "right"), *ANEW[1:]]
    (straight,) = tallies(read(*BEGUN, *LEFT, *on))
    session, branch = tallies(read(*BEGUN, *LEFT, *ANEW))

    for name in (
        "messages",
        "user_messages",
        "assistant_messages",
        "tool_calls",
        "tool_results",
        "output_tokens",
    ):
        assert getattr(straight, name) == getattr(session, name) + getattr(branch, name), name
    edges = (straight.first_timestamp, straight.last_timestamp)
    assert [edges, (None, None)] == [
        (each.first_timestamp, each.last_timestamp) for each in (session, branch)
    ]


def test_the_end_of_a_branch_says_that_somebody_went_back() -> None:
    """How it stood when it was left, and that this is no end of the session."""
    (_, branch) = runs(read(*BEGUN, *LEFT, *ANEW))
    (end,) = [item for item in branch if isinstance(item, RunEnded)]
    assert ("open", "line 5") == (end.end, end.position)
    assert end.end_source == "last message is a result without a response; then the user went back to line 2"


def test_a_prompt_that_was_asked_anew_is_no_run() -> None:
    """Where nothing was answered, nothing was done: the rows are a remark of the session, as they are."""
    (session,) = runs(read(*BEGUN, user("x", "a", "wrong"), *ANEW))
    assert ("Remarked", "rewound") == told(session)[2]
    assert any('"wrong"' in item.rest for item in session)


def test_going_back_within_a_branch_leaves_a_branch_of_that() -> None:
    """Each run begins with what its own answers were shown, whatever was left before."""
    items = read(
        *BEGUN,
        user("x", "a", "wrong"),
        answer("y", "x", "q", said("oh")),
        user("v", "y", "worse"),
        answer("w", "v", "q2", said("no")),
        user("v2", "y", "better"),
        answer("w2", "v2", "q3", said("so")),
        *ANEW,
    )
    session, branch, inner = runs(items)

    assert [("Said", "right"), ("Answered", "yes")] == told(session)[-2:]
    assert [
        ("Said", "wrong"),
        ("Answered", "oh"),
        ("Remarked", "rewound"),
        ("Said", "better"),
        ("Answered", "so"),
    ] == (told(branch))
    assert [("Said", "worse"), ("Answered", "no")] == told(inner)
    assert ["go", "hi", "wrong", "oh"] == shown(inner)
    assert ("s/rewound-v", "s/rewound-x") == (began(inner).key, began(inner).parent)


def test_several_branches_of_one_place_are_several_runs() -> None:
    """Who goes back twice to the same prompt leaves two branches, none of which was shown the other."""
    again = [user("x2", "a", "wrong too"), answer("y2", "x2", "q2", said("oh"))]
    _, first, second = runs(read(*BEGUN, *LEFT, *again, *ANEW))
    assert ["go", "hi"] == shown(first) == shown(second)
    assert [("Said", "wrong too"), ("Answered", "oh")] == told(second)


def test_a_branch_is_shown_the_summary_of_a_compaction_before_it() -> None:
    """The conversation up to the fork is that of the model: compacted in the session, compacted in the
    branch.
    """
    items = read(
        *BEGUN,
        row("system", "k", None, subtype="compact_boundary", logicalParentUuid="a"),
        user("s", "k", "Summary.", isCompactSummary=True),
        answer("a2", "s", "r2", said("on")),
        user("x", "a2", "wrong"),
        answer("y", "x", "q", said("oh")),
        row("system", "k2", None, subtype="compact_boundary", logicalParentUuid="y"),
        user("s2", "k2", "Summary of the branch.", isCompactSummary=True),
        answer("y2", "s2", "q2", said("still")),
        user("b", "a2", "right"),
        answer("c", "b", "p", said("yes")),
    )
    _, branch = runs(items)
    assert ["Summary.", "on"] == shown(branch)
    (prompted,) = [item for item in branch if isinstance(item, Prompted)]
    assert ["Summary of the branch."] == [message.text for message in prompted.messages]


def test_a_sub_agent_that_a_branch_began_is_its_child() -> None:
    """The call that began it is in the run of the branch."""
    side = {"isSidechain": True}
    items = read(
        *BEGUN,
        user("x", "a", "wrong"),
        answer("y", "x", "q", called("t", prompt="explore")),
        user("s1", None, "explore") | side,
        answer("s2", "s1", "q1", said("found")) | side,
        result("z", "y", "t"),
        *ANEW,
    )
    _, branch, agent = runs(items)
    assert (began(branch).key, "t") == (began(agent).parent, began(agent).call)


def test_what_was_typed_while_a_branch_worked_is_in_its_run() -> None:
    """Rows of the queue have no place in the tree, and belong to where they stand."""
    queued: Json = {"type": "queue-operation", "sessionId": "s", "content": "stop"}
    typed = [queued | {"operation": "enqueue"}, queued | {"operation": "remove"}]
    session, branch = runs(read(*BEGUN, *LEFT, *typed, answer("y2", "z", "q2", said("ok")), *ANEW))
    assert "stop" not in [item.text for item in session if isinstance(item, Said)]
    assert ["wrong", "stop"] == [item.text for item in branch if isinstance(item, Said)]


def test_branches_of_a_long_session_are_read_as_of_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are not held are read again, branch by branch, and say the same."""
    again = [user("x2", "a", "wrong too"), answer("y2", "x2", "q2", said("oh"))]
    short = read(*BEGUN, *LEFT, *again, *ANEW)
    for module in ("session_rows", "formats.claude_code.tree"):
        monkeypatch.setattr(f"refold.importers.{module}.MOST_HELD", 1)
    assert short == read(*BEGUN, *LEFT, *again, *ANEW)
    assert MOST_HELD > 1


@given(parents=st.lists(st.integers(-1, 30), min_size=1, max_size=30))
def test_no_answer_is_lost_or_told_twice(parents: list[int]) -> None:
    """Whatever tree the rows make, each answer is in one run, and each run but the first has one."""
    rows: list[Json] = []
    for place, wanted in enumerate(parents):
        parent = f"a{wanted}" if 0 <= wanted < place else None
        rows += [
            user(f"u{place}", parent, "say"),
            answer(f"a{place}", f"u{place}", f"r{place}", said(str(place))),
        ]
    items = list(CLAUDE_CODE.items(Source.of("x", b"".join(encoded(each) + b"\n" for each in rows))))
    found = [item.text for item in items if isinstance(item, Answered)]
    assert sorted(map(str, range(len(parents)))) == sorted(found)
    assert all(any(isinstance(item, Answered) for item in run) for run in runs(items))
