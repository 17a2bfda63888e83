"""Grok CLI's histories, rule by rule, on rows of a few words."""

from functools import partial

import pytest

from refold.importers.formats.grok_cli import GROK_CLI
from refold.importers.items import (
    Answered,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
)
from refold.reducers.source_marks import HOSTED
from refold.reducers.vocabulary import Role
from support import sessions
from support.sessions import Json, only, score, told

read = partial(sessions.read, GROK_CLI)

SYSTEM: Json = {"type": "system", "content": "You count."}
GO: Json = {"type": "user", "content": [{"type": "text", "text": "go"}], "prompt_index": 0}
THOUGHT: Json = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}
HI: Json = {"type": "assistant", "content": "hi", "tool_calls": [], "model_id": "m"}
CALL: Json = {"id": "c", "name": "run", "arguments": '{"z": 1, "a": 2}'}
ASK: Json = HI | {"content": "", "tool_calls": [CALL]}
RESULT: Json = {"type": "tool_result", "tool_call_id": "c", "content": "7"}


def test_the_system_prompt_begins_the_run() -> None:
    """No result is marked as failed, and nothing is said of tokens and times."""
    items = read(SYSTEM, GO, HI)
    began = items[0]
    assert isinstance(began, RunBegan)
    assert [(Role.SYSTEM, "You count.")] == [(each.role, each.text) for each in began.messages]
    assert ("m", ("tool_errors",)) == (began.model, began.unsaid)
    assert only(RunEnded, items).times is None


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param([THOUGHT, HI], id="in a row"),
        pytest.param([HI | {"reasoning": {"text": "hm"}}], id="inside"),
    ],
)
def test_an_answer_has_its_thoughts(listed: list[Json]) -> None:
    """They stand in the rows before it, or in it."""
    found = only(Answered, read(GO, *listed))
    assert ("hi", "hm", "m") == (found.text, found.reasoning, found.model)


def test_calls_find_their_results() -> None:
    """Arguments are the text that the model wrote."""
    items = read(GO, ASK, RESULT, HI)
    (asked,) = next(item for item in items if isinstance(item, Answered)).calls
    assert ("c", "run", '{"z": 1, "a": 2}') == (asked.id, asked.name, asked.arguments)
    assert ("c", "run", "7", None) == (
        only(Returned, items).id, only(Returned, items).name, only(Returned, items).output, only(Returned, items).error
    )  # fmt: skip


def test_calls_that_the_provider_answered_are_told() -> None:
    """They stand with the answer whose thoughts they are among."""
    items = read(GO, {"type": "backend_tool_call", "kind": {"tool_type": "web_search"}}, THOUGHT, HI)
    assert [("Said", "go"), ("Answered", "hi"), ("Remarked", HOSTED)] == told(items)
    assert "lines 2-4" == only(Answered, items).position


def test_thoughts_without_an_answer() -> None:
    """The turn was interrupted, as the next prompt says."""
    items = read(GO, THOUGHT, GO | {"prior_turn_interrupt": "mid_turn_abort"})
    assert [("Said", "go"), ("Answered", ""), ("Cancelled", ""), ("Said", "go")] == told(items)


def test_whose_messages_they_are() -> None:
    """What the harness put in has a reason."""
    items = read(GO | {"synthetic_reason": "environment_context"}, GO, SYSTEM)
    assert [("harness", Role.USER), ("user", Role.USER), ("harness", Role.SYSTEM)] == [
        (item.by, item.role) for item in items if isinstance(item, Said)
    ]


def test_rows_that_nobody_knows() -> None:
    """They are counted as such."""
    assert not only(Remarked, read(GO, {"type": "oracle"})).known


@pytest.mark.parametrize(
    ("listed", "end"),
    [
        pytest.param([SYSTEM], "open", id="nothing"),
        pytest.param([GO], "open", id="a prompt"),
        pytest.param([GO, HI], "finished", id="an answer"),
        pytest.param([GO, ASK], "open", id="a call"),
        pytest.param([GO, ASK, RESULT], "open", id="a result"),
        pytest.param([GO, THOUGHT], "open", id="a thought"),
    ],
)
def test_how_a_history_ends(listed: list[Json], end: str) -> None:
    """The last row says how."""
    assert end == only(RunEnded, read(*listed)).end


@pytest.mark.parametrize(
    ("listed", "sure"),
    [
        pytest.param([SYSTEM, GO], 85, id="a prompt with its number"),
        pytest.param([HI], 85, id="an answer with its model"),
        pytest.param([SYSTEM, {"type": "user", "content": "x"}], None, id="rows that might be anybody's"),
    ],
)
def test_detection(listed: list[Json], sure: int | None) -> None:
    """The format is told by what only its rows have."""
    assert sure == score(GROK_CLI, *listed)
