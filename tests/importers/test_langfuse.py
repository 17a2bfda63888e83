"""Langfuse traces: what is an answer, what is only above one, and how results find their calls."""

from typing import Any

import msgspec
import pytest

from refold.importers.formats.langfuse import LANGFUSE
from refold.importers.items import (
    Answered,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Unread,
)
from refold.importers.source import BadTranscript, Source
from refold.reducers.vocabulary import ToolError
from support.transcribed import every, tally_of


def seen(number: int, kind: str, **own: Any) -> dict[str, Any]:
    return {
        "id": f"o{number}",
        "traceId": "t",
        "type": kind,
        "name": "look" if kind == "TOOL" else kind.lower(),
        "level": "DEFAULT",
        "startTime": f"2025-01-01T00:00:{number:02d}.000Z",
        "endTime": f"2025-01-01T00:00:{number + 1:02d}.000Z",
    } | own


ASK = [{"role": "user", "content": "go"}]
CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]}
ROWS = [
    seen(0, "AGENT", usageDetails={"input": 15, "output": 3}),
    seen(1, "GENERATION", input=msgspec.json.encode(ASK).decode(), output=CALL, usageDetails={"input": 5, "output": 1}),
    seen(3, "TOOL", input={"q": 1}, output="wrapped"),
    seen(5, "GENERATION", input=[*ASK, CALL, {"role": "tool", "tool_call_id": "c1", "content": "found"}],
         output={"role": "assistant", "content": "done"}, usageDetails={"input": 10, "output": 2}, costDetails={"total": 0.25}),
]  # fmt: skip


def trace(rows: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "trace": {"id": "t", "name": "run", "scores": [], "observations": []} | more,
        "observations": rows,
    }


def of(value: object) -> list[Item]:
    return list(LANGFUSE.items(Source.of("traces", msgspec.json.encode(value))))


@pytest.mark.parametrize("where", [0, 1])
def test_instructions_of_an_agent_begin_its_prompts(where: int) -> None:
    """System instructions that OpenTelemetry has in an attribute, of the request or of the agent above, are
    what the model saw.
    """
    attributes = {"gen_ai.system_instructions": '[{"type": "text", "content": "be brief"}]'}
    rows = [ROWS[0], ROWS[1] | {"parentObservationId": "o0"}]
    rows[where] = rows[where] | {"metadata": {"attributes": attributes}}
    items = of(trace(rows))
    shown = [["be brief", "go"]]
    assert shown == [[message.text for message in item.messages] for item in every(items, RunBegan)]
    assert shown == [[message.text for message in item.messages] for item in every(items, Prompted)]


def test_a_trace_is_a_run() -> None:
    """Generations are the answers and all that is summed; what is above them is a remark; calls are not
    counted.
    """
    items = of(trace(ROWS))
    ended = every(items, RunEnded)[0]
    tally = tally_of(items)
    assert (2, 2, 15, 3) == (
        tally.messages,
        tally.assistant_messages,
        tally.input_tokens,
        tally.output_tokens,
    )
    assert (None, None, 0) == (tally.tool_calls, tally.tool_results, tally.tool_errors)
    assert ("unknown", "2025-01-01T00:00:00Z", "2025-01-01T00:00:06Z") == (
        ended.end, tally.first_timestamp, tally.last_timestamp,
    )  # fmt: skip
    assert [None, 250_000_000] == [item.cost_nanousd for item in every(items, Answered)]
    assert ["agent"] == [item.what for item in every(items, Remarked)]


def test_a_tool_without_an_id_answers_the_call_of_its_name() -> None:
    """A TOOL's result has the id of the waiting call, and says what the next prompt showed; nothing is told
    twice.
    """
    items = of(trace(ROWS))
    assert [("c1", "found")] == [(item.id, item.output) for item in every(items, Returned)]
    assert [1, 3] == [len(item.messages) for item in every(items, Prompted)]


def test_tools_as_plain_spans() -> None:
    """Where tools are logged as SPAN, their results are told from the next prompt, and no errors are
    counted.
    """
    items = of(trace([ROWS[1], seen(3, "SPAN"), ROWS[3]]))
    assert ["found"] == [item.output for item in every(items, Returned)]
    assert None is tally_of(items).tool_errors


def test_calls_in_a_list_beside_the_answer() -> None:
    """`toolCalls` are the answer's calls where its output has none, named by the list beside them."""
    row = seen(1, "GENERATION", output={"role": "assistant", "content": "x"}, toolCalls=['{"id":"c1","arguments":"{}"}'], toolCallNames=["look"])  # fmt: skip
    assert [("c1", "look")] == [(call.id, call.name) for call in every(of(trace([row])), Answered)[0].calls]


def test_errors() -> None:
    """Level ERROR: of a TOOL an error of its result, of a GENERATION without output a failed request, of any
    the end.
    """
    rows = [
        ROWS[1],
        ROWS[2] | {"level": "ERROR"},
        seen(5, "GENERATION", level="ERROR", statusMessage="timed out"),
    ]
    items = of(trace(rows))
    assert [ToolError.RAISED] == [item.error for item in every(items, Returned)]
    assert ["timeout"] == [item.failure for item in every(items, RequestFailed)]
    assert ["error"] == [item.end for item in every(items, RunEnded)]
    assert 1 == tally_of(items).tool_errors


def test_scores_and_copies() -> None:
    """Scores are remarks with their names; the trace's own copy of its observations is said to be one."""
    items = of(trace(ROWS, scores=[{"name": "toxicity", "value": 0}], observations=[{"id": "o1"}]))
    assert ["score:toxicity", "repeated", "agent"] == [item.what for item in every(items, Remarked)]


@pytest.mark.parametrize(
    ("value", "runs"),
    [
        pytest.param([trace(ROWS), trace(ROWS)], 2, id="a list of traces, even with one id"),
        pytest.param({"id": "t", "observations": ROWS}, 1, id="a trace with its observations inside"),
        pytest.param(ROWS, 1, id="observations alone"),
    ],
)
def test_containers(value: Any, runs: int) -> None:
    """Traces come alone, in lists and as loose observations."""
    assert runs == len({item.key for item in every(of(value), RunBegan)})


def test_odd_rows() -> None:
    """A row that is no observation, and one that comes twice, are said to be, and not counted."""
    items = of(trace([*ROWS, 17, ROWS[1]]))
    assert {"no_observation", "repeated"} == {item.code for item in every(items, Unread)}
    assert 2 == tally_of(items).assistant_messages


def test_every_observation_has_its_place() -> None:
    """The positions of all items together name every observation."""
    places = {item.position for item in of(trace(ROWS))}
    assert {f"$.observations[{number}]" for number in range(len(ROWS))} <= places


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"observations'])
def test_nothing_to_read(data: bytes) -> None:
    """A file without a trace is refused by name."""
    with pytest.raises(BadTranscript, match="mine"):
        list(LANGFUSE.items(Source.of("mine", data)))
