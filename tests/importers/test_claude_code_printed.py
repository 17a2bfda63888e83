"""What Claude Code prints as a stream of JSON: a session without times, whose last row says how it ended and
what it cost.
"""

from typing import Any

import pytest

from refold.importers.items import Answered, Remarked, Returned, RunBegan, RunEnded
from refold.importers.registry import detect_format
from refold.importers.source import Source
from refold.reducers.source_marks import END
from refold.reducers.vocabulary import Refuser
from refold.replay.source_words import source_totals
from support.claude_code import called, ending, read, said
from support.sessions import Json, only
from support.told import derived, events
from support.transcribed import encoded, tallies

HEAD: Json = {
    "type": "system",
    "subtype": "init",
    "session_id": "s1",
    "model": "m",
    "claude_code_version": "2.1.42",
}


def printed(kind: str, *blocks: Json, parent: str | None = None, **message: Any) -> Json:
    """A row of a stream."""
    inner = {"role": kind, "content": list(blocks), **message}
    return {"type": kind, "message": inner, "parent_tool_use_id": parent, "session_id": "s1"}


def result(subtype: str = "success", **more: Any) -> Json:
    """The row that ends a stream."""
    return {"type": "result", "subtype": subtype, "is_error": False, "session_id": "s1"} | more


def returned(call: str, **more: Any) -> Json:
    """A block with a result."""
    return {"type": "tool_result", "tool_use_id": call, "content": "done"} | more


@pytest.mark.parametrize(
    ("row", "end"),
    [
        (result(stop_reason="end_turn"), "finished"),
        (result(), "finished"),
        (result(stop_reason="max_tokens"), "limit:token"),
        (result(is_error=True), "error"),
        (result("error_max_turns"), "limit:turns"),
        (result("error_max_budget_usd"), "limit:cost"),
        (result("error_during_execution"), "error"),
        (result("error_of_a_version_to_come"), "unknown"),
    ],
)
def test_the_result_says_how_it_ended(row: Json, end: str) -> None:
    """The last row says how the run ended, whatever the answer before it leaves open."""
    assert end == ending(read(HEAD, printed("assistant", said("done"), id="m1"), row)).end


def test_a_message_behind_a_result_is_another_turn() -> None:
    """A result ends the stream only where nothing follows."""
    items = read(HEAD, printed("assistant", said("done"), id="m1"), result(), printed("user", said("and?")))
    assert "open" == ending(items).end


def test_a_stream_is_named_by_its_session() -> None:
    """The run has the session's id, the version and the model of its head."""
    began = only(RunBegan, read(HEAD, printed("assistant", said("done"), id="m1")))
    assert ("s1", "m", "2.1.42") == (began.key, began.model, began.labels["version"])
    stream = [HEAD, printed("assistant", said("done"), id="m1")]
    lines = b"\n".join(map(encoded, stream))
    assert "claude_code" == detect_format(Source.of("t", lines)).format


def test_a_call_that_was_not_permitted_was_refused() -> None:
    """A call among the denials of the result never ran; others did."""
    rows = [
        HEAD,
        printed("assistant", called("t1"), called("t2"), id="m1"),
        printed("user", returned("t1", is_error=True), returned("t2")),
        result(permission_denials=[{"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {}}]),
    ]
    found = [(item.id, item.refused_by, item.error) for item in read(*rows) if isinstance(item, Returned)]
    assert [("t1", Refuser.RULE, None), ("t2", None, None)] == found


def test_what_the_result_sums_up() -> None:
    """The tokens of the run are those of the result, which count for each answer what its rows do not; so is
    the cost.
    """
    usage = {
        "input_tokens": 9,
        "cache_read_input_tokens": 450,
        "cache_creation_input_tokens": 20,
        "output_tokens": 120,
    }
    answer = printed("assistant", said("done"), id="m1", usage={"input_tokens": 3, "output_tokens": 1})
    items = read(HEAD, answer, result(usage=usage, total_cost_usd=0.25))
    (tally,) = tallies(items)
    assert (479, 450, 20, 120) == (
        tally.input_tokens,
        tally.cache_read_tokens,
        tally.cache_write_tokens,
        tally.output_tokens,
    )
    _, written = derived(items)
    totals = None
    for event in events(written):
        totals = source_totals(event, totals)
    assert totals is not None
    assert (479, 120, 0.25) == (totals.input, totals.output, totals.cost)


def test_rows_that_name_a_call_are_of_its_sub_agent() -> None:
    """What a sub-agent did is a run of its own, which that call began."""
    items = read(
        HEAD,
        printed("assistant", called("t1", prompt="look"), id="m1"),
        printed("user", said("look"), parent="t1"),
        printed("assistant", called("t2", command="ls"), parent="t1", id="m2"),
        printed("user", returned("t2"), parent="t1"),
        printed("user", returned("t1")),
        printed("assistant", said("done"), id="m3"),
        result(),
    )
    began = [(item.key, item.call) for item in items if isinstance(item, RunBegan)]
    asked = [call.id for item in items if isinstance(item, Answered) for call in item.calls]
    assert ([("s1", ""), ("s1/agent-1", "t1")], ["t1", "t2"]) == (began, asked)
    assert ["finished", "open"] == [item.end for item in items if isinstance(item, RunEnded)]
    assert not [item for item in items if isinstance(item, Remarked) and item.what.startswith(END)]
