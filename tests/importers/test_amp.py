"""Amp's threads, rule by rule, on messages of a few words."""

from typing import Any

import pytest

from refold.importers.formats.amp import AMP
from refold.importers.formats.openai_messages import OPENAI_MESSAGES
from refold.importers.items import (
    UNKNOWN_PART,
    Answered,
    Cancelled,
    Remarked,
    RequestFailed,
    Returned,
    RunEnded,
    Unread,
)
from refold.importers.registry import detect_format
from refold.importers.source import Source
from refold.reducers.vocabulary import Refuser, ToolError
from support.transcribed import encoded, every, items_of, whole_up_to

Json = dict[str, Any]


def thread(*messages: Json) -> Json:
    """A thread of these messages."""
    numbered = [{**message, "messageId": number} for number, message in enumerate(messages)]
    return {"v": 1, "id": "T-1", "created": 1772359200000, "messages": numbered}


def user(*blocks: Json) -> Json:
    """A message of the user's side."""
    return {"role": "user", "content": list(blocks)}


def answer(*blocks: Json, state: str = "complete", stop: str = "end_turn", **more: Any) -> Json:
    """An answer."""
    return {
        "role": "assistant",
        "content": list(blocks),
        "state": {"type": state, "stopReason": stop},
        **more,
    }


def said(words: str) -> Json:
    """A block of text."""
    return {"type": "text", "text": words}


CALL = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"cmd": "ls"}}


@pytest.mark.parametrize(
    ("run", "output", "error", "marked"),
    [
        ({"status": "done", "result": "a.py"}, "a.py", None, True),
        (
            {"status": "done", "result": {"output": "a", "exitCode": 0}},
            '{"output":"a","exitCode":0}',
            None,
            True,
        ),
        ({"status": "done", "result": {"exitCode": 3}}, '{"exitCode":3}', ToolError.RAISED, True),
        ({"status": "done", "result": {"success": False}}, '{"success":false}', ToolError.RAISED, True),
        ({"status": "done", "result": [{"type": "text", "text": "one"}]}, "one", None, True),
        ({"status": "done"}, "", None, True),
        ({"status": "error", "error": {"message": "no such file"}}, "no such file", ToolError.RAISED, True),
        ({"status": "cancelled"}, "", ToolError.CANCELLED, True),
        ({"status": "rejected-by-user", "reason": "no"}, "no", None, True),
        ({"result": "of a status to come"}, "of a status to come", None, False),
    ],
)
def test_a_result_says_how_it_ran(run: Json, output: str, error: ToolError | None, marked: bool) -> None:
    """A result has the words and the status of its run, whatever shape they have."""
    block = {"type": "tool_result", "toolUseID": "t", "run": run}
    (found,) = every(
        items_of(AMP, thread(user(said("go")), answer(CALL, stop="tool_use"), user(block))), Returned
    )
    assert ("t", "Bash", output, error, marked) == (
        found.id,
        found.name,
        found.output,
        found.error,
        found.marked,
    )


@pytest.mark.parametrize("status", ["in-progress", "queued", "blocked-on-user"])
def test_a_call_under_way_has_no_result(status: str) -> None:
    """A call that was under way when the thread was written stays open."""
    block = {"type": "tool_result", "toolUseID": "t", "run": {"status": status}}
    items = items_of(AMP, thread(user(said("go")), answer(CALL, stop="tool_use"), user(block)))
    assert ([], ["open"]) == (every(items, Returned), [each.end for each in every(items, RunEnded)])


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        ([user(said("go"))], "open"),
        ([answer(said("done"))], "finished"),
        ([answer(said("done"), stop="max_tokens")], "limit:token"),
        ([answer(said("done"), stop="")], "unknown"),
        ([answer(said("done"), state="", stop="end_turn")], "unknown"),
        ([answer(said("do"), state="streaming", stop="")], "open"),
        ([answer(said("do"), state="cancelled", stop="")], "cancelled"),
        ([answer(state="error", stop="")], "error"),
        ([answer(CALL, stop="tool_use")], "open"),
        ([], "open"),
    ],
)
def test_how_a_thread_ends(messages: list[Json], end: str) -> None:
    """A thread is finished only where its last answer says that it is complete, and that it ended its
    turn.
    """
    (found,) = every(items_of(AMP, thread(*messages)), RunEnded)
    assert end == found.end


def test_what_an_answer_says_of_itself() -> None:
    """An answer has its model, its time, and its tokens, with what was cached in the input."""
    usage = {"model": "m", "inputTokens": 1, "outputTokens": 5, "cacheReadInputTokens": 20}
    usage |= {"cacheCreationInputTokens": 300, "timestamp": "2026-03-01T10:00:00Z"}
    (found,) = every(items_of(AMP, thread(user(said("go")), answer(said("hi"), usage=usage))), Answered)
    used = found.usage
    assert ("m", 321, 20, 300, 5) == (found.model, used.input, used.cache_read, used.cache_write, used.output)
    assert 1772359200 * 10**9 == found.at


def test_an_answer_that_was_stopped_or_failed() -> None:
    """A person's stop and a failed request stand where they happened."""
    stopped = items_of(AMP, thread(user(said("go")), answer(said("I"), state="cancelled", stop="")))
    assert 1 == len(every(stopped, Cancelled))
    failed = {**answer(), "state": {"type": "error", "error": {"message": "overloaded"}}}
    (found,) = every(items_of(AMP, thread(user(said("go")), failed)), RequestFailed)
    assert "overloaded" == found.message


def test_a_rejected_call_is_an_approval_that_was_not_given() -> None:
    """A call that a user rejected was refused, and that stands beside its result."""
    block = {"type": "tool_result", "toolUseID": "t", "run": {"status": "rejected-by-user"}}
    items = items_of(AMP, thread(user(said("go")), answer(CALL, stop="tool_use"), user(block)))
    assert "approval:rejected" in [each.what for each in every(items, Remarked)]
    assert [Refuser.USER] == [each.refused_by for each in every(items, Returned)]


@pytest.mark.parametrize(
    "message",
    [user({"type": "video"}), {"role": "user"}, user({"type": "tool_result", "toolUseID": "t"})],
    ids=["a part of an unknown type", "no content", "a result without a run"],
)
def test_what_is_not_known_is_diagnosed(message: Json) -> None:
    """A part of a message in which nothing can be read is diagnosed, never an empty result."""
    items = items_of(AMP, thread(user(said("go")), answer(CALL, stop="tool_use"), message))
    assert {UNKNOWN_PART} == {each.code for each in every(items, Unread)}
    assert [] == every(items, Returned)


def test_a_thread_is_amps_by_its_content() -> None:
    """A thread is told from a list of chat messages, with its id or without."""
    whole = thread(user(said("go")), answer(CALL, stop="tool_use"))
    block = {"type": "tool_result", "toolUseID": "t", "run": {"status": "done", "result": "x"}}
    bare = {"messages": [*whole["messages"], {**user(block), "messageId": 2}]}
    assert ["amp", "amp"] == [detect_format(Source.of("t", encoded(each))).format for each in (whole, bare)]


def test_a_thread_may_be_cut_anywhere() -> None:
    """A thread that breaks off is read up to there, as a run that begins and ends."""
    data = encoded(thread(user(said("go")), answer(CALL, stop="tool_use"), user(said("on"))))
    for upto in range(0, len(data), 7):
        whole_up_to(AMP, data[:upto])


def test_a_result_whose_words_lie_elsewhere_is_diagnosed_in_any_list() -> None:
    """A list of chat messages with results in a form that nobody knows says so, and has no results that seem
    empty.
    """
    block = {"type": "tool_result", "tool_use_id": "t", "run": {"status": "done", "result": "x"}}
    items = items_of(
        OPENAI_MESSAGES, [user(said("go")), {"role": "assistant", "content": [CALL]}, user(block)]
    )
    assert [UNKNOWN_PART] == [each.code for each in every(items, Unread)]
