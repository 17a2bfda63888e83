"""Spans: which run each is of, what it tells, what is counted, and what is kept."""

from typing import Any

import msgspec
import pytest

from refold.importers.formats.otel.importer import OTEL
from refold.importers.items import (
    Answered,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Unread,
)
from refold.importers.source import Source
from refold.reducers.vocabulary import Role, ToolError
from support.spans import RUN, answers, chat, iso, of, says, source, span
from support.transcribed import every, tally_of


def test_a_run_is_its_agents_span() -> None:
    """A run begins with the first prompt, tells each prompt before its answer, and counts chats, not the
    agent's copy.
    """
    items = of(RUN)
    names = ["RunBegan", "Prompted", "Answered", "Returned", "Prompted", "Answered", "RunEnded"]
    assert names == [type(item).__name__ for item in items]
    assert ("a", "go") == (items[0].agent, items[0].messages[0].text)
    tally = tally_of(items)
    assert (2, 1, 1, 0, 20, 4) == (
        tally.messages, tally.tool_calls, tally.tool_results, tally.tool_errors, tally.input_tokens, tally.output_tokens,
    )  # fmt: skip
    assert (None, None, None) == (tally.user_messages, tally.tool_messages, tally.cache_read_tokens)
    assert ("finished", iso(0), iso(9)) == (items[-1].end, tally.first_timestamp, tally.last_timestamp)


def test_a_result_is_what_the_next_prompt_shows() -> None:
    """A tool's output is what the model read, not the framework's wrapping; arguments are spelled as in the
    answer.
    """
    items = of(RUN)
    assert "found" == every(items, Returned)[0].output
    assert (
        every(items, Answered)[0].calls[0].arguments
        == every(items, Prompted)[1].messages[1].calls[0].arguments
    )


def test_helpers_are_counted_but_no_part_of_the_conversation() -> None:
    """A chat outside of every agent is remarked in the run before it, and its tokens count."""
    title = chat(7, None, [says("user", "title?")], says("assistant", "T"))
    title["context"]["trace_id"] = "0xother"
    items = of([*RUN, title])
    assert ["helper:chat"] == [item.what for item in every(items, Remarked)]
    assert 30 == tally_of(items).input_tokens


def test_calls_are_inferred_where_contents_were_not_captured() -> None:
    """Without captured answers, a chat asked for the tools that ran before the next chat."""
    rows = [
        row | {"attributes": {k: v for k, v in row["attributes"].items() if "messages" not in k}}
        for row in RUN
    ]
    assert [["look"], []] == [[call.name for call in item.calls] for item in every(of(rows), Answered)]


def test_without_an_agent_a_conversation_is_a_run() -> None:
    """A file that lost its agent's span still imports, its end read off the last span."""
    items = of(RUN[1:])
    assert ["finished"] == [item.end for item in every(items, RunEnded)]
    assert 2 == len(every(items, Answered))
    assert ["open"] == [item.end for item in every(of(RUN[1:3]), RunEnded)]


def test_sub_agents_are_runs() -> None:
    """An agent under an agent is a run of its own, and a remark in the one above."""
    inner = [span(6, "invoke_agent", 0), chat(7, 6, [says("user", "sub")], says("assistant", "ok"))]
    items = of([*RUN, *inner])
    assert ["go", "sub"] == [item.messages[0].text for item in every(items, RunBegan)]
    assert ["subagent"] == [item.what for item in every(items, Remarked)]


@pytest.mark.parametrize(
    ("change", "end"),
    [
        pytest.param({"status": {"status_code": "ERROR"}}, "error", id="error status"),
        pytest.param({"end_time": None}, "open", id="no end"),
        pytest.param({}, "finished", id="ended"),
    ],
)
def test_ends(change: dict[str, Any], end: str) -> None:
    """A run ends as its agent's span says."""
    assert [end] == [item.end for item in every(of([RUN[0] | change, *RUN[1:]]), RunEnded)]


def test_failures() -> None:
    """A failed tool is an error of its result; a failed chat without an answer is a request that failed."""
    tool = RUN[2] | {"status": {"status_code": "ERROR"}}
    failed = chat(7, 0, [], None) | {
        "status": {"status_code": "ERROR", "description": "429 too many requests"}
    }
    items = of([RUN[0], RUN[1], tool, RUN[3], failed])
    assert [ToolError.RAISED] == [item.error for item in every(items, Returned)]
    assert ["rate_limit"] == [item.failure for item in every(items, RequestFailed)]
    assert (3, 1) == (tally_of(items).assistant_messages, tally_of(items).tool_errors)


def test_a_partial_prompt_is_a_remark() -> None:
    """A prompt with results but not their calls is only the new part of one: told as new messages, not as the
    prompt.
    """
    rows = [RUN[0], RUN[1], chat(5, 0, [answers("c1", "found")], says("assistant", "done"))]
    items = of(rows)
    assert 1 == len(every(items, Prompted))
    assert ["prompt:partial"] == [item.what for item in every(items, Remarked)]
    assert ["found"] == [item.output for item in every(items, Returned)]


def test_a_span_twice_counts_once() -> None:
    """A repeated span is said to be repeated, and counted once."""
    items = of([*RUN, RUN[1]])
    assert ["repeated"] == [item.code for item in every(items, Unread)]
    assert 2 == tally_of(items).assistant_messages


def test_every_span_has_its_place() -> None:
    """The positions of all items together name every span."""
    rows = [*RUN, span(8, "execute_hook", 0), span(9, "embeddings", 0)]
    assert {f"$[{number}]" for number in range(len(rows))} == {item.position for item in of(rows)}


def test_a_cut_document_imports_up_to_the_cut() -> None:
    """A document that breaks off gives its whole spans, and says where it broke off."""
    data = msgspec.json.encode(RUN)
    items = list(OTEL.items(Source.of("x", data[:-300])))
    assert ["cut"] == [item.code for item in every(items, Unread)]
    assert 1 == len(every(items, Answered))


def test_roles() -> None:
    """A result in a user's message is a tool's message in the prompt."""
    prompt = every(of(RUN), Prompted)[1]
    assert [Role.USER, Role.ASSISTANT, Role.TOOL] == [message.role for message in prompt.messages]


def test_spans_of_no_run_are_said_to_be_none() -> None:
    """A file of spans without an agent, a chat or a tool says that it holds no run."""
    items = list(OTEL.items(source([span(0, "embeddings")])))
    assert ["no_run"] == [item.code for item in every(items, Unread)]
    assert not every(items, RunBegan)
