"""OpenHands: trajectories of its first version, rows of evaluations, and which files are either version's."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers.formats.openhands.importer import OPENHANDS, v0_end
from refold.importers.items import (
    Answered,
    Cancelled,
    Prompted,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.importers.source import BadTranscript, Source
from refold.reducers.vocabulary import Role, ToolError
from support.openhands import EVENTS, THREE, V1_EVENTS, acted, asked, lines
from support.transcribed import encoded, every, items_of, tallies, tally_of, whole_up_to


def test_actions_of_one_answer_are_one_answer() -> None:
    """Two calls of one response are told together, once, with its text and usage; their results follow."""
    items = items_of(OPENHANDS, EVENTS)
    assert [["c1"], ["c2", "c3"], ["c4"]] == [
        [call.id for call in each.calls] for each in every(items, Answered)
    ]
    assert [("c1", "one"), ("c2", "two"), ("c3", "three")] == [
        (each.id, each.output) for each in every(items, Returned)
    ]
    assert [None, ToolError.RAISED, None] == [each.error for each in every(items, Returned)]
    assert ('{"command": "ls"}', 9) == (
        (first := every(items, Answered)[0]).calls[0].arguments,
        first.usage.input,
    )
    assert ["call"] == [each.what for each in every(items, Remarked)]


def test_v0_counts_follow_the_rules() -> None:
    """Responses by their id, calls and results by theirs; `finish` is a call without result."""
    items = items_of(OPENHANDS, EVENTS)
    ended, tally = every(items, RunEnded)[0], tally_of(items)
    assert (7, 1, 3, 3) == (
        tally.messages,
        tally.user_messages,
        tally.assistant_messages,
        tally.tool_messages,
    )
    assert (4, 3, 1, None) == (tally.tool_calls, tally.tool_results, tally.tool_errors, tally.input_tokens)
    assert ("2025-01-01T10:00:00", "2025-01-01T10:00:08.5") == (tally.first_timestamp, tally.last_timestamp)
    assert ("finished", "action finish") == (ended.end, ended.end_source)


def test_rows_are_runs() -> None:
    """`output.jsonl` has a run a line: its tokens are its metrics', its end may be its error."""
    metrics = {
        "accumulated_token_usage": {"prompt_tokens": 5, "completion_tokens": 1, "cache_read_tokens": 2}
    }
    error = "RuntimeError: Agent reached maximum iteration in headless mode. Current iteration: 50, max iteration: 50"
    rows = [{"instance_id": "a", "history": EVENTS, "metrics": metrics, "error": None}]
    rows += [{"instance_id": "b", "history": EVENTS[:6], "metrics": metrics, "error": error}]
    items = items_of(OPENHANDS, "\n".join(map(json.dumps, rows)))
    assert ["a", "b"] == [began.key for began in every(items, RunBegan)]
    assert ["finished", "limit:steps"] == [each.end for each in every(items, RunEnded)]
    assert [5, 5] == [each.input_tokens for each in tallies(items)]
    assert (
        "error: RuntimeError: Agent reached maximum iteration in headless mo"
        == every(items, RunEnded)[1].end_source
    )


def test_the_oldest_events_name_nothing() -> None:
    """Without ids and sources a message is the user's, all else the agent's, and a result follows its
    call.
    """
    events = [
        {"action": "message", "args": {"content": "Do it"}},
        {"action": "run", "args": {"command": "ls", "thought": "look"}},
        {"observation": "run", "content": "a.txt", "extras": {"exit_code": 0}},
        {"action": "finish", "args": {"thought": "done"}},
    ]
    items = items_of(OPENHANDS, events)
    assert ["Do it"] == [each.text for each in every(items, Said)]
    assert [("look", 1), ("done", 0)] == [(each.text, len(each.calls)) for each in every(items, Answered)]
    assert [(every(items, Answered)[0].calls[0].id, "a.txt")] == [
        (each.id, each.output) for each in every(items, Returned)
    ]


CONDENSATIONS = [
    pytest.param({"forgotten_event_ids": [2, 3, 4, 5, 6, 7]}, id="by ids"),
    pytest.param({"forgotten_events_start_id": 2, "forgotten_events_end_id": 7}, id="by a range"),
]


@pytest.mark.parametrize("forgotten", CONDENSATIONS)
def test_a_condensation_makes_the_next_prompt(forgotten: dict[str, Any]) -> None:
    """Forgotten events are gone from it, the summary stands at its place; what is said later stands behind
    it.
    """
    action = {
        "id": 8,
        "source": "agent",
        "action": "condensation",
        "args": {**forgotten, "summary": "SUM", "summary_offset": 2},
    }
    late = acted(9, "c4", THREE)
    items = items_of(OPENHANDS, [*EVENTS[:8], action, asked(8, "More"), late])
    prompt = every(items, Prompted)[0]
    expected = [(Role.SYSTEM, "You are."), (Role.USER, "Do it"), (Role.USER, "SUM")]
    assert expected == [(message.role, message.text) for message in prompt.messages]
    assert ("condensation", "$[8]") == (prompt.why, prompt.position)
    assert "More" == every(items[items.index(prompt) :], Said)[0].text
    assert "condensation" in [remark.what for remark in every(items, Remarked)]


def test_what_a_condensation_keeps_says_what_it_said() -> None:
    """Messages that stay have the texts of the items before; an answer's calls stay in one message."""
    action = {"id": 8, "source": "agent", "action": "condensation", "args": {"forgotten_event_ids": [2, 3]}}
    prompt = every(items_of(OPENHANDS, [*EVENTS[:8], action, acted(9, "c4", THREE)]), Prompted)[0]
    assert ["You are.", "Do it", "go", "two", "three"] == [message.text for message in prompt.messages]
    assert ["c2", "c3"] == [call.id for call in prompt.messages[2].calls]


def test_states_are_no_turns_and_a_stop_is_a_cancellation() -> None:
    """Changes of state are remarks; `stopped` is somebody's."""
    state = {
        "id": 9,
        "source": "environment",
        "observation": "agent_state_changed",
        "content": "",
        "extras": {"agent_state": "stopped"},
    }
    stop = {"id": 8, "source": "user", "action": "change_agent_state", "args": {"agent_state": "stopped"}}
    items = items_of(OPENHANDS, [*EVENTS[:4], stop, state])
    assert ["user"] == [each.by for each in every(items, Cancelled)]
    assert ("cancelled", ["state"]) == (
        every(items, RunEnded)[0].end,
        [each.what for each in every(items, Remarked)],
    )


@pytest.mark.parametrize(
    ("events", "error", "end"),
    [
        pytest.param(EVENTS, None, "finished", id="finish"),
        pytest.param(EVENTS[:6], None, "open", id="nothing said"),
        pytest.param(EVENTS, "RuntimeError: boom", "error", id="an error overrules"),
        pytest.param(EVENTS, "AgentStuckInLoopError: Agent got stuck in a loop", "guardrail", id="stuck"),
        pytest.param(EVENTS, "RuntimeError: Agent reached maximum budget", "limit:cost", id="budget"),
        pytest.param(
            [asked(1), {"id": 2, "source": "agent", "action": "message"}],
            None,
            "finished",
            id="said",
        ),
        pytest.param([], None, "open", id="empty"),
    ],
)
def test_how_a_v0_run_ended(events: list[Any], error: Any, end: str) -> None:
    """The error first, then the last action, then the state."""
    assert end == v0_end(events, error)[0]


@pytest.mark.parametrize(
    ("document", "score"),
    [
        pytest.param(EVENTS, 90, id="V0 events"),
        pytest.param({"history": EVENTS}, 95, id="a V0 row"),
        pytest.param(lines(*V1_EVENTS), 90, id="V1 lines"),
        pytest.param(V1_EVENTS, 90, id="a V1 list"),
        pytest.param({"history": [{"role": "user", "agent": "main"}]}, None, id="SWE-agent's history"),
        pytest.param([{"role": "user"}], None, id="a chat"),
    ],
)
def test_knows_its_own(document: Any, score: int | None) -> None:
    """Events are told by their content."""
    match = OPENHANDS.match(Source.of("t", encoded(document)))
    assert score == (match.score if match else None)


def test_rubbish_is_refused() -> None:
    """Where not one event can be read, that is said."""
    with pytest.raises(BadTranscript):
        items_of(OPENHANDS, "nothing\nof\nthis")


ROWS = lines({"instance_id": "a", "history": EVENTS}, {"instance_id": "b", "history": EVENTS})


@given(
    which=st.sampled_from([encoded(EVENTS), encoded(V1_EVENTS), encoded(lines(*V1_EVENTS)), encoded(ROWS)]),
    data=st.data(),
)
def test_cut_anywhere_it_imports_up_to_the_cut(which: bytes, data: st.DataObject) -> None:
    """Half a file has no answer's text that the whole one has not."""
    part = whole_up_to(OPENHANDS, which[: data.draw(st.integers(0, len(which)))])
    assert {"go", "done"} >= {answer.text for answer in every(part, Answered)}


@given(places=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4))
def test_lines_in_another_order_are_still_told(places: list[tuple[int, int]]) -> None:
    """Swapped and repeated lines lose nothing: each is an item, or said to be a repetition."""
    events = list(V1_EVENTS)
    for one, other in places:
        events[one], events[other] = events[other], events[one]
        events.append(events[one])
    items = whole_up_to(OPENHANDS, encoded(lines(*events)))
    assert len(places) == len([each for each in every(items, Unread) if each.code == "repeated"])
    assert {"out c1", "out c2"} == {each.output for each in every(items, Returned)}


def test_a_list_of_rows_is_a_run_a_row() -> None:
    """Rows of an evaluation in one list are what they are as JSON lines, and known as such, however late
    their history.
    """
    history = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}},
        {"id": 1, "source": "agent", "action": "finish", "args": {}},
    ]
    row = {
        "instance_id": "i",
        "metadata": {"agent_class": "CodeActAgent"},
        "pad": "x" * 70_000,
        "history": history,
    }
    for document in (row, [row, row | {"instance_id": "j"}, {"note": 1}]):
        match = OPENHANDS.match(Source.of("x", encoded(document)))
        assert match is not None
    items = items_of(OPENHANDS, [row, row | {"instance_id": "j"}, {"note": 1}])
    assert ["i", "j"] == [item.key for item in every(items, RunBegan)]
    assert ["finished", "finished"] == [item.end for item in every(items, RunEnded)]
    assert ["no_run"] == [item.code for item in every(items, Unread)]
