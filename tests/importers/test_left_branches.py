"""What was done where no run goes on: branches that somebody left, and rows of subagents, over the formats that have them."""

from collections.abc import Sequence
from typing import Any, Protocol

import pytest

from refold.importers.formats.copilot_cli import COPILOT_CLI
from refold.importers.formats.droid import DROID
from refold.importers.formats.gemini_cli.importer import GEMINI_CLI
from refold.importers.formats.pi import PI
from refold.importers.formats.qwen_code import QWEN_CODE
from refold.importers.items import Answered, Unread
from refold.importers.registry import Importer
from refold.reducers.events import Diagnosed, Event
from refold.reducers.parser import parse
from refold.reducers.source_marks import LEFT_BRANCH, SUBAGENT_ROWS
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict
from support.following import shown
from support.told import derived, events
from support.transcribed import encoded, only, told

Json = dict[str, Any]
ARGUMENTS = {"command": "rm -rf /"}
GUARD = {"preset": "observed", "guards": [{"guard": "arguments", "matches": "rm -rf", "then": "stop"}]}
TIME = "2026-01-01T00:00:0{}.000Z"


class Rows(Protocol):
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


def pi(*, acts: bool) -> Sequence[Json]:
    """An entry whose parent is an earlier one."""

    def entry(place: int, parent: int | None, role: str, content: list[Json], **more: Any) -> Json:
        message = {"role": role, "content": content, **more}
        ids = {"id": f"i{place}", "parentId": None if parent is None else f"i{parent}"}
        return {"type": "message", "timestamp": TIME.format(place), "message": message, **ids}

    call = {"type": "toolCall", "id": "c", "name": "run", "arguments": ARGUMENTS}
    ok = [{"type": "text", "text": "ok"}]
    left = [
        entry(1, 0, "assistant", [call], stopReason="toolUse"),
        entry(2, 1, "toolResult", ok, toolCallId="c", toolName="run", isError=False),
    ]
    return [
        {"type": "session", "version": 3, "id": "s", "timestamp": TIME.format(0)},
        entry(0, None, "user", ok),
        *(left if acts else [entry(1, 0, "user", ok)]),
        entry(3, 0, "assistant", ok, stopReason="stop"),
    ]


def qwen(*, acts: bool, parent: str | None = "u0", side: bool = False) -> Sequence[Json]:
    """A row whose parent is an earlier one, or rows of a subagent."""

    def row(place: int, above: str | None, kind: str, *parts: Json, **more: Any) -> Json:
        role = "model" if kind == "assistant" else "user"
        ids = {"uuid": f"u{place}", "parentUuid": above, "sessionId": "s", "timestamp": TIME.format(place)}
        return {**ids, "type": kind, "message": {"role": role, "parts": list(parts)}, **more}

    call = {"functionCall": {"id": "c", "name": "run", "args": ARGUMENTS}}
    ok = {"functionResponse": {"id": "c", "name": "run", "response": {"output": "ok"}}}
    marks = {"isSidechain": True} if side else {}
    left = [
        row(1, parent, "assistant", call, model="q", **marks),
        row(2, "u1", "tool_result", ok, toolCallResult={"callId": "c", "status": "success"}, **marks),
    ]
    return [
        row(0, None, "user", {"text": "hi"}),
        *(left if acts else [row(1, parent, "user", {"text": "no"}, **marks)]),
        row(3, "u0", "assistant", {"text": "done"}, model="q"),
    ]


def qwen_beside(*, acts: bool) -> Sequence[Json]:
    """Rows of a subagent that hang on nothing."""
    return qwen(acts=acts, parent=None, side=True)


def droid(*, acts: bool) -> Sequence[Json]:
    """A message whose parent is an earlier one."""

    def message(place: int, parent: str, role: str, block: Json) -> Json:
        ids = {"id": f"m{place}", "parentId": parent, "timestamp": TIME.format(place)}
        return {"type": "message", "message": {"role": role, "content": [block]}, **ids}

    words = {"type": "text", "text": "hi"}
    left = [
        message(1, "m0", "assistant", {"type": "tool_use", "id": "c", "name": "run", "input": ARGUMENTS}),
        message(2, "m1", "user", {"type": "tool_result", "tool_use_id": "c", "content": "ok"}),
    ]
    return [
        {"type": "session_start", "id": "s", "title": "t", "cwd": "/p"},
        message(0, "s", "user", words),
        *(left if acts else [message(1, "m0", "user", words)]),
        message(3, "m0", "assistant", words),
    ]


def copilot(*, acts: bool) -> Sequence[Json]:
    """Events of a subagent."""

    def event(kind: str, agent: str = "", **data: Any) -> Json:
        return {"type": kind, "data": data, "timestamp": TIME.format(1)} | (
            {"agentId": agent} if agent else {}
        )

    asks = [{"toolCallId": "c", "name": "run", "arguments": ARGUMENTS}]
    left = event("assistant.message", "a", messageId="n", content="", toolRequests=asks)
    return [
        event("user.message", content="hi"),
        left if acts else event("user.message", "a", content="no"),
        event("assistant.message", messageId="m", content="done", toolRequests=[]),
    ]


FORMATS = [
    pytest.param(GEMINI_CLI, gemini, LEFT_BRANCH, id="Gemini CLI"),
    pytest.param(GEMINI_CLI, rewritten, LEFT_BRANCH, id="Gemini CLI, a message written anew"),
    pytest.param(PI, pi, LEFT_BRANCH, id="Pi"),
    pytest.param(QWEN_CODE, qwen, LEFT_BRANCH, id="Qwen Code"),
    pytest.param(QWEN_CODE, qwen_beside, SUBAGENT_ROWS, id="Qwen Code, a subagent"),
    pytest.param(COPILOT_CLI, copilot, SUBAGENT_ROWS, id="Copilot CLI, a subagent"),
    pytest.param(DROID, droid, LEFT_BRANCH, id="Droid"),
]


def lines(rows: Sequence[Json]) -> bytes:
    """A file of one row a line."""
    return b"".join(encoded(row) + b"\n" for row in rows)


def log_of(importer: Importer, rows: Sequence[Json]) -> list[Event]:
    """The log of the only run of a file."""
    return events(derived(told(importer, lines(rows)))[1])


@pytest.mark.parametrize(("importer", "rows", "code"), FORMATS)
def test_a_call_on_a_branch_that_was_left_is_never_silently_absent(
    importer: Importer, rows: Rows, code: str
) -> None:
    """A call that is in no answer of a run is counted in a diagnosis, which stands in the log too."""
    items = told(importer, lines(rows(acts=True)))

    assert not any(answer.calls for answer in only(items, Answered)), "else this would show nothing"
    (found,) = [item for item in only(items, Unread) if item.code == code]
    assert found.read, "nothing of it could not be read"
    assert " 1 call" in f" {found.problem}"
    assert [code] == [
        event.code for event in log_of(importer, rows(acts=True)) if isinstance(event, Diagnosed)
    ]


@pytest.mark.parametrize(("importer", "rows", "code"), FORMATS)
def test_what_if_does_not_agree_over_a_call_that_is_in_no_run(
    importer: Importer, rows: Rows, code: str
) -> None:
    """A policy that differs is judged where nobody left anything but a prompt, and not where a call ran."""
    verdicts = [
        shown(Comparison("r", parse(GUARD)), log_of(importer, rows(acts=acts))) for acts in (False, True)
    ]

    assert [Verdict.AGREE, Verdict.INCONCLUSIVE] == [each.verdict for each in verdicts]
    assert code in str(verdicts[1]), "and it says why"


@pytest.mark.parametrize(("importer", "rows", "code"), FORMATS)
def test_nothing_is_diagnosed_where_only_a_prompt_was_left(importer: Importer, rows: Rows, code: str) -> None:
    """What a person took back before the model did anything is in doubt for no rule."""
    codes = {item.code for item in only(told(importer, lines(rows(acts=False))), Unread)}
    assert code not in codes
