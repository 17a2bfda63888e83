"""What was done where no run goes on: branches that somebody left, and rows of subagents, over the formats
that have them.
"""

from collections.abc import Sequence
from typing import Protocol

import pytest

from refold.importers.formats.gemini_cli.importer import GEMINI_CLI
from refold.importers.items import Answered, Remarked, Unread
from refold.importers.registry import Importer
from refold.reducers.events import Diagnosed, Event
from refold.reducers.parser import parse
from refold.reducers.source_marks import LEFT_BRANCH, SUBAGENT_ROWS
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict
from support.following import shown
from support.sessions import COPILOT_CLI, QWEN_CODE, TREES, Json, Rows, read, told
from support.told import derived, events
from support.transcribed import every

ARGUMENTS = {"command": "rm -rf /"}
GUARD = {"preset": "observed", "guards": [{"guard": "arguments", "matches": "rm -rf", "then": "stop"}]}
TIME = "2026-01-01T00:00:0{}.000Z"


class Session(Protocol):
    """A file in which somebody left a branch; `acts`: the model asked for a call there."""

    def __call__(self, *, acts: bool) -> Sequence[Json]:
        """Its rows."""
        ...


def gemini(*, acts: bool) -> Sequence[Json]:
    """A rewind to the first message behind the prompt."""
    call = {"id": "c", "name": "run", "args": ARGUMENTS, "status": "success"}
    inside = {"functionResponse": {"id": "c", "name": "run", "response": {"output": "ok"}}}
    left = {"type": "gemini", "content": "", "toolCalls": [call | {"result": [inside]}]}
    return [
        {"sessionId": "s", "projectHash": "p", "startTime": TIME.format(0)},
        {"id": "1", "timestamp": TIME.format(0), "type": "user", "content": "hi"},
        {"id": "2", "timestamp": TIME.format(1)} | (left if acts else {"type": "user", "content": "no"}),
        {"$rewindTo": "2"},
        {"id": "3", "timestamp": TIME.format(2), "type": "gemini", "content": "done"},
    ]


def rewritten(*, acts: bool) -> Sequence[Json]:
    """A message that was written anew without its call."""
    header, asked, left, _, done = gemini(acts=True)
    return [header, asked, left if acts else done | {"id": "2"}, done | {"id": "2"}]


def tree(rows: Rows) -> Session:
    """Rows whose parent is an earlier one."""

    def session(*, acts: bool) -> Sequence[Json]:
        left = [rows.answer("a", "u", rows.call("c", **ARGUMENTS)), rows.result("r", "a", "c")]
        rest = left if acts else [rows.user("a", "u", "no")]
        return [*rows.head, rows.user("u", None, "hi"), *rest, rows.answer("b", "u", "done")]

    return session


def beside(*, acts: bool) -> Sequence[Json]:
    """Rows of a subagent of Qwen Code that hang on nothing."""
    asked = QWEN_CODE.answer("a", None, QWEN_CODE.call("c", **ARGUMENTS)), QWEN_CODE.result("r", "a", "c")
    rest = asked if acts else [QWEN_CODE.user("a", None, "no")]
    side = [row | {"isSidechain": True} for row in rest]
    return [QWEN_CODE.user("u", None, "hi"), *side, QWEN_CODE.answer("b", "u", "done")]


def copilot(*, acts: bool) -> Sequence[Json]:
    """Events of a subagent."""
    asks = [{"toolCallId": "c", "name": "run", "arguments": ARGUMENTS}]
    event = COPILOT_CLI.event
    left = event("assistant.message", "a", messageId="n", content="", toolRequests=asks)
    rest = left if acts else event("user.message", "a", content="no")
    return [COPILOT_CLI.user("hi"), rest, COPILOT_CLI.answer("done")]


FORMATS = [
    pytest.param(GEMINI_CLI, gemini, LEFT_BRANCH, id="Gemini CLI"),
    pytest.param(GEMINI_CLI, rewritten, LEFT_BRANCH, id="Gemini CLI, a message written anew"),
    *(pytest.param(rows.importer, tree(rows), LEFT_BRANCH, id=rows.importer.name) for rows in TREES),
    pytest.param(QWEN_CODE.importer, beside, SUBAGENT_ROWS, id="Qwen Code, a subagent"),
    pytest.param(COPILOT_CLI.importer, copilot, SUBAGENT_ROWS, id="Copilot CLI, a subagent"),
]


def log_of(importer: Importer, rows: Sequence[Json]) -> list[Event]:
    """The log of the only run of a file."""
    return events(derived(read(importer, *rows))[1])


@pytest.mark.parametrize(("importer", "rows", "code"), FORMATS)
def test_a_call_on_a_branch_that_was_left_is_never_silently_absent(
    importer: Importer, rows: Session, code: str
) -> None:
    """A call that is in no answer of a run is counted in a diagnosis, which stands in the log too."""
    items = read(importer, *rows(acts=True))

    assert not any(answer.calls for answer in every(items, Answered)), "else this would show nothing"
    (found,) = [item for item in every(items, Unread) if item.code == code]
    assert found.read, "nothing of it could not be read"
    assert " 1 call" in f" {found.problem}"
    assert [code] == [
        event.code for event in log_of(importer, rows(acts=True)) if isinstance(event, Diagnosed)
    ]


@pytest.mark.parametrize(("importer", "rows", "code"), FORMATS)
def test_what_if_does_not_agree_over_a_call_that_is_in_no_run(
    importer: Importer, rows: Session, code: str
) -> None:
    """A policy that differs is judged where nobody left anything but a prompt, and not where a call ran."""
    verdicts = [
        shown(Comparison("r", parse(GUARD)), log_of(importer, rows(acts=acts))) for acts in (False, True)
    ]

    assert [Verdict.AGREE, Verdict.INCONCLUSIVE] == [each.verdict for each in verdicts]
    assert code in str(verdicts[1]), "and it says why"


@pytest.mark.parametrize(("importer", "rows", "code"), FORMATS)
def test_nothing_is_diagnosed_where_only_a_prompt_was_left(
    importer: Importer, rows: Session, code: str
) -> None:
    """What a person took back before the model did anything is in doubt for no rule."""
    codes = {item.code for item in every(read(importer, *rows(acts=False)), Unread)}
    assert code not in codes


@pytest.mark.parametrize("rows", TREES)
def test_a_branch_that_was_left_is_counted_beside_the_run(rows: Rows) -> None:
    """Rows that do not lead to the last one are no part of the run, and what they hold is counted."""
    left = [
        rows.user("v", "a", "wrong"),
        rows.answer("b", "v", rows.call("c")),
        rows.result("r", "b", "c", failed=True),
    ]
    items = rows.read(
        rows.user("u", None, "go"), rows.answer("a", "u", "hi"), *left, rows.user("w", "a", "right")
    )
    assert [
        ("Said", "go"), ("Answered", "hi"), ("Remarked", "rewound"), ("Unread", ""), ("Said", "right")
    ] == told(items)  # fmt: skip
    (counts,) = [item.counts for item in every(items, Remarked)]
    assert counts is not None
    assert (1, 1, 1, 1, 1) == (counts.user, counts.assistant, counts.calls, counts.results, counts.errors)


@pytest.mark.parametrize("rows", TREES)
def test_a_row_that_is_repeated_is_no_branch(rows: Rows) -> None:
    """A row that is there twice is said once."""
    go = rows.user("u", None, "go")
    assert [("Said", "go"), ("Remarked", "repeated")] == told(rows.read(go, go))
