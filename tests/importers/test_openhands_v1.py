"""OpenHands' second version: actions, observations, condensations and updates of the state, one a line."""

from typing import Any

import pytest

from refold.importers.formats.openhands.importer import OPENHANDS, v1_end
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
from refold.reducers.vocabulary import Refuser, ToolError
from support.openhands import V1_EVENTS, act, event, lines
from support.transcribed import every, items_of, tally_of


@pytest.mark.parametrize("document", [V1_EVENTS, lines(*V1_EVENTS)], ids=["a list", "lines"])
def test_v1_calls_of_one_response_are_one_answer(document: Any) -> None:
    """Parallel actions share a response: one answer, arguments byte for byte, results by their call."""
    items = items_of(OPENHANDS, document)
    answer = every(items, Answered)[0]
    assert (["c1", "c2"], '{"z": 1, "a": 2}') == (
        [call.id for call in answer.calls],
        answer.calls[0].arguments,
    )
    assert ("go", "because", 1) == (answer.text, answer.reasoning, len(every(items, Answered)))
    assert [None, ToolError.RAISED] == [each.error for each in every(items, Returned)]
    tally = tally_of(items)
    assert (4, 1, 1, 2) == (
        tally.messages,
        tally.user_messages,
        tally.assistant_messages,
        tally.tool_messages,
    )
    assert (2, 2, 1) == (tally.tool_calls, tally.tool_results, tally.tool_errors)


def test_v1_errors_and_refusals_are_results() -> None:
    """An agent's error and a refusal answer their calls; a refused call never ran, by a user or by a hook."""
    events = [act(1, "c1"), event(2, "AgentErrorEvent", tool_call_id="c1", error="no such tool")]
    events += [act(3, "c2", "S"), event(4, "UserRejectObservation", tool_call_id="c2", rejection_reason="no")]
    hooked = {"rejection_reason": "not here", "rejection_source": "hook"}
    events += [act(5, "c3", "T"), event(6, "UserRejectObservation", tool_call_id="c3", **hooked)]
    items = items_of(OPENHANDS, lines(*events))
    assert [
        ("no such tool", ToolError.RAISED, None),
        ("Action rejected: no", None, Refuser.USER),
        ("Action rejected: not here", None, Refuser.HOOK),
    ] == [(each.output, each.error, each.refused_by) for each in every(items, Returned)]
    assert ["approval", "approval"] == [each.what for each in every(items, Remarked)]


def test_v1_condensation_makes_the_next_prompt() -> None:
    """It forgets by event, and says its summary at its place."""
    condensed = event(6, "Condensation", forgotten_event_ids=["e2", "e4"], summary="SUM", summary_offset=1)
    items = items_of(OPENHANDS, lines(*V1_EVENTS, condensed, act(7, "c3", "S")))
    prompt = every(items, Prompted)[0]
    assert ["You are.", "SUM", "Do it", "go", "out c2"] == [message.text for message in prompt.messages]
    assert ["c2"] == [call.id for call in prompt.messages[3].calls]
    assert isinstance(items[items.index(prompt) + 1], Answered)


def test_v1_tokens_are_the_last_stats_of_all_uses() -> None:
    """The counters add up as they go: only the last update counts, the condenser's share included."""

    def stats(tokens: int) -> dict[str, Any]:
        used = {
            "accumulated_token_usage": {
                "prompt_tokens": tokens,
                "completion_tokens": 1,
                "cache_read_tokens": 2,
            }
        }
        return event(
            tokens,
            "ConversationStateUpdateEvent",
            key="stats",
            value={"usage_to_metrics": {"a": used, "b": used}},
        )

    tally = tally_of(items_of(OPENHANDS, lines(*V1_EVENTS, stats(10), stats(20))))
    assert (40, 4, 0, 2) == (
        tally.input_tokens,
        tally.cache_read_tokens,
        tally.cache_write_tokens,
        tally.output_tokens,
    )


@pytest.mark.parametrize(
    ("last", "end"),
    [
        (event(9, "ConversationStateUpdateEvent", key="execution_status", value="finished"), "finished"),
        (event(9, "ConversationStateUpdateEvent", key="execution_status", value="running"), "open"),
        (event(9, "ConversationStateUpdateEvent", key="execution_status", value="stuck"), "guardrail"),
        (event(9, "ConversationStateUpdateEvent", key="execution_status", value="paused"), "cancelled"),
        (
            event(9, "ConversationStateUpdateEvent", key="full_state", value={"execution_status": "error"}),
            "error",
        ),
        (
            event(9, "MessageEvent", source="agent", llm_message={"role": "assistant", "content": []}),
            "finished",
        ),
        (act(9, "c9"), "open"),
    ],
)
def test_how_a_v1_run_ended(last: Any, end: str) -> None:
    """The last state of its execution says it, else its last turn."""
    assert end == v1_end([*V1_EVENTS, last])[0]


def test_v1_keeps_what_it_does_not_know() -> None:
    """Events of unknown kinds are remarks, errors of the conversation failed requests, repeated ids are
    told.
    """
    odd = event(6, "NovelEvent", payload="kept")
    failed = event(7, "ConversationErrorEvent", code="LLMError", detail="down")
    items = items_of(OPENHANDS, lines(*V1_EVENTS, odd, odd, failed))
    assert ["kept" in each.rest for each in every(items, Remarked) if each.what == "unmapped"] == [True]
    assert ["LLMError: down"] == [each.message for each in every(items, RequestFailed)]
    assert [("repeated", "line 8")] == [(each.code, each.position) for each in every(items, Unread)]


HOW = {
    "exit_code": 0,
    "working_dir": "/srv",
    "py_interpreter_path": "/bin/python",
    "prefix": "",
    "suffix": "\n[Done.]",
}


@pytest.mark.parametrize(
    ("observation", "shown"),
    [
        ({}, "out"),
        ({"is_error": True}, "[An error occurred during execution.]\n\nout"),
        (
            {"metadata": HOW},
            "out\n[Done.]\n[Current working directory: /srv]\n[Python interpreter: /bin/python]\n"
            "[Command finished with exit code 0]",
        ),
        ({"metadata": {"exit_code": -1, "prefix": "[Below is more.]\n"}}, "[Below is more.]\nout"),
    ],
)
def test_v1_shows_a_result_as_the_sdk_does(observation: dict[str, Any], shown: str) -> None:
    """What the SDK adds to a result before the model sees it follows from the event, and is shown."""
    seen = {"content": [{"type": "text", "text": "out"}], "is_error": False} | observation
    events = [act(1, "c1"), event(2, "ObservationEvent", tool_call_id="c1", observation=seen)]
    assert [shown] == [each.output for each in every(items_of(OPENHANDS, lines(*events)), Returned)]


def test_v1_clips_a_long_output_as_the_sdk_does() -> None:
    """Of a long output the model is shown head and tail, 30,000 characters with the note between them."""
    text = "\n".join(f"line {number}" for number in range(5000))
    seen = {"content": [{"type": "text", "text": text}], "metadata": {"exit_code": 0}}
    events = [act(1, "c1"), event(2, "ObservationEvent", tool_call_id="c1", observation=seen)]
    events += [act(3, "c2", "S")]
    saved = {**seen, "full_output_save_dir": "/srv/saved"}
    events += [event(4, "ObservationEvent", tool_call_id="c2", observation=saved)]
    bare, named = (each.output for each in every(items_of(OPENHANDS, lines(*events)), Returned))
    assert (30_000, 30_000) == (len(bare), len(named))
    assert "/srv/saved/terminal_output_" in named
    assert (True, True) == (bare.startswith("line 0\n"), bare.endswith("[Command finished with exit code 0]"))


def test_v1_usage_and_name_are_those_of_its_state() -> None:
    """A state beside the events names the run and its model, and counts the tokens of each response."""
    used = [{"response_id": "S", "prompt_tokens": 9, "completion_tokens": 2}]
    state = {"id": "c-1", "agent": {"llm": {"model": "m"}}, "execution_status": "finished"}
    state |= {"stats": {"usage_to_metrics": {"agent": {"token_usages": used}}}}
    items = items_of(OPENHANDS, lines(act(1, "c1"), act(2, "c2", "S"), state))
    (began,) = every(items, RunBegan)
    assert ("c-1", "m") == (began.key, began.model)
    assert [("", 0), ("reported", 9)] == [(each.quality, each.usage.input) for each in every(items, Answered)]
    assert ["finished"] == [each.end for each in every(items, RunEnded)]
