"""Inspect logs: what a sample tells: prompts put together, results, limits, others' requests."""

import json
from typing import Any

import pytest

from refold.importers.formats.inspect_logs.importer import INSPECT
from refold.importers.items import (
    Answered,
    Cancelled,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
)
from refold.reducers.vocabulary import Role, StopReason, ToolError
from support.inspect_logs import (
    DOCUMENT,
    HASH,
    LONG,
    POOL,
    SAMPLE,
    TASK,
    called,
    event,
    log,
    message,
    model,
    result,
    sample,
    tool,
)
from support.transcribed import every, items_of, tally_of


def test_a_prompt_is_put_together_from_ranges_and_attachments() -> None:
    """Each request's prompt precedes its answer, whole, with the texts of the items before it."""
    items = items_of(INSPECT, DOCUMENT)
    prompts = every(items, Prompted)
    assert [["go", "one"], ["go", "two", "Go on"]] == [
        [m.text for m in prompt.messages[2:]] for prompt in prompts[1:]
    ]
    assert {(Role.SYSTEM, LONG)} == {(prompt.messages[0].role, prompt.messages[0].text) for prompt in prompts}
    assert all(isinstance(items[items.index(prompt) + 1], Answered | Remarked) for prompt in prompts)
    assert every(items, RunBegan)[0].messages == prompts[0].messages
    assert (
        '{"z":"c1","a":1}'
        == prompts[1].messages[2].calls[0].arguments
        == every(items, Answered)[0].calls[0].arguments
    )


def test_what_happened_between_is_told() -> None:
    """Results as the model was shown them, messages that no event told, compactions, retries."""
    items = items_of(INSPECT, DOCUMENT)
    assert [("c1", "one"), ("c2", "two")] == [(each.id, each.output) for each in every(items, Returned)]
    assert [("Go on", "harness")] == [(each.text, each.by) for each in every(items, Said)]
    assert {"compaction", "retry", "span", "score", "log"} <= {each.what for each in every(items, Remarked)}
    compaction = next(each for each in every(items, Remarked) if each.what == "compaction")
    assert {"tokens_before": 90, "tokens_after": 40}.items() <= json.loads(compaction.rest).items()


def test_the_counts_are_the_final_messages() -> None:
    """Roles of the sample's messages, usage of the sample, times of its events."""
    tally = tally_of(items_of(INSPECT, DOCUMENT))
    assert (7, 2, 3, 2) == (
        tally.messages,
        tally.user_messages,
        tally.assistant_messages,
        tally.tool_messages,
    )
    assert (2, 2, 0) == (tally.tool_calls, tally.tool_results, tally.tool_errors)
    assert (30, 4, 0, 6) == (
        tally.input_tokens,
        tally.cache_read_tokens,
        tally.cache_write_tokens,
        tally.output_tokens,
    )
    assert ("2025-01-01T09:00:00.500000Z", "2025-01-01T09:00:06.500000Z") == (
        tally.first_timestamp,
        tally.last_timestamp,
    )


@pytest.mark.parametrize(
    ("status", "more", "end", "source"),
    [
        pytest.param("success", {}, "finished", "log status=success", id="finished"),
        pytest.param(
            "success",
            {"limit": {"type": "message", "limit": 50}},
            "limit:message",
            "log status=success; sample 1 limit message=50",
            id="a limit, though the log is a success",
        ),
        pytest.param(
            "error",
            {"error": {"message": "E" * 70}},
            "error",
            "log status=error; sample 1 error: " + "E" * 50,
            id="an error",
        ),
        pytest.param(
            "cancelled", {}, "finished", "log status=cancelled", id="finished before the log was cancelled"
        ),
        pytest.param("cancelled", {"scores": None}, "cancelled", "log status=cancelled", id="cancelled"),
    ],
)
def test_how_a_sample_ended(status: str, more: dict[str, Any], end: str, source: str) -> None:
    """The sample's own error and limit first, then the log's status."""
    ended = every(items_of(INSPECT, log(SAMPLE | more, status=status)), RunEnded)[0]
    assert (end, source) == (ended.end, ended.end_source)


def test_without_events_the_messages_are_told() -> None:
    """Old logs have only the final conversation."""
    items = items_of(INSPECT, log({key: value for key, value in SAMPLE.items() if key != "events"}))
    assert (2, 3, 2, 1) == (
        len(every(items, RunBegan)[0].messages),
        len(every(items, Answered)),
        len(every(items, Returned)),
        len(every(items, Said)),
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "parsing", "message": "bad"}, ToolError.BAD_ARGUMENTS),
        ({"type": "parsing", "message": "Tool x not found"}, ToolError.UNKNOWN_TOOL),
        ({"type": "timeout", "message": "late"}, ToolError.TIMEOUT),
        ({"type": "approval", "message": "no"}, ToolError.CANCELLED),
        ({"type": "permission", "message": "no"}, ToolError.RAISED),
    ],
)
def test_a_failed_result_says_its_error(error: dict[str, str], kind: ToolError) -> None:
    """It has no text of its own: the model was shown the error's message, in the result and in the next
    prompt.
    """
    shown = result("c1", "", error=error)
    messages = [TASK, called("c1"), shown]
    events = [
        model(called("c1"), input=[TASK]),
        tool("c1", "", error=error),
        model(message("assistant", "end"), input=messages),
    ]
    items = items_of(INSPECT, log(sample(events, messages)))
    assert (error["message"], kind) == ((returned := every(items, Returned)[0]).output, returned.error)
    assert returned.output == every(items, Prompted)[1].messages[2].text
    assert 1 == tally_of(items).tool_errors


def test_reasoning_and_other_parts_are_no_text() -> None:
    """Text parts are the text, reasoning is kept apart, an image has a place and no words."""
    parts = [
        {"type": "reasoning", "reasoning": "because"},
        {"type": "text", "text": "a"},
        {"type": "image", "image": "data:…"},
    ]
    items = items_of(INSPECT, log(sample([model(message("assistant", parts), input=[TASK])], [TASK])))
    assert ("a\n[image]", "because") == ((answer := every(items, Answered)[0]).text, answer.reasoning)


def test_usage_that_leaves_the_cache_out_is_completed() -> None:
    """Where the total adds the cached tokens to the input, the provider had left them out of it."""
    apart = {"input_tokens": 5, "output_tokens": 2, "input_tokens_cache_read": 90, "total_tokens": 97}
    within = {"input_tokens": 95, "output_tokens": 2, "input_tokens_cache_read": 90, "total_tokens": 97}
    events = [model(message("assistant", "x"), usage=used, input=[TASK]) for used in (apart, within)]
    assert [95, 95] == [
        each.usage.input for each in every(items_of(INSPECT, log(sample(events, []))), Answered)
    ]


def test_submit_is_a_call_with_a_result() -> None:
    """A `react` agent's last call is absent from the messages, and still a call that returned; it is not
    counted.
    """
    events = [model(called("s1"), input=[TASK]), tool("s1", "42")]
    items = items_of(INSPECT, log(sample(events, [TASK, message("assistant", "go")])))
    assert [("s1", "42")] == [(each.id, each.output) for each in every(items, Returned)]
    assert (0, 0) == ((tally := tally_of(items)).tool_calls, tally.tool_results)


def test_a_call_that_never_ended_has_no_result() -> None:
    """Pending and hard failures are remarks: the model was shown nothing; what was said then is told."""
    events = [model(called("c1"), input=[TASK]), tool("c1", "", pending=True)]
    items = items_of(INSPECT, log(sample(events, [TASK, called("c1"), message("user", "Timeout: late")])))
    assert ([], ["Timeout: late"]) == (every(items, Returned), [each.text for each in every(items, Said)])
    assert "pending" in [each.what for each in every(items, Remarked)]
    failed = [
        model(called("c1"), input=[TASK]),
        tool("c1", "", failed=True),
        event("error", error={"message": "x"}),
    ]
    kinds = [each.what for each in every(items_of(INSPECT, log(sample(failed, []))), Remarked)]
    assert {"tool_failed", "error"} <= set(kinds)


SPANS = [
    event("span_begin", id="a", type="agent"),
    event("span_begin", id="t", type="tool", parent_id="a"),
    event("span_begin", id="s", type="scorer"),
]


@pytest.mark.parametrize(("span", "what"), [("t", "subagent"), ("s", "scorer")])
def test_others_requests_are_no_answers_of_the_agent(span: str, what: str) -> None:
    """What a scorer asked, and an agent inside a tool, is kept beside the run."""
    events = [
        *SPANS,
        model(message("assistant", "mine"), span_id="a", input=[TASK]),
        model(message("assistant", "theirs"), span_id=span, input=[]),
    ]
    items = items_of(INSPECT, log(sample(events, [])))
    assert ["mine"] == [answer.text for answer in every(items, Answered)]
    assert "theirs" in next(each.rest for each in every(items, Remarked) if each.what == what)


def test_messages_are_told_where_only_a_scorer_asked_a_model() -> None:
    """An agent whose requests were not logged has its final messages; its tools' events pair with nothing."""
    events = [
        tool("c1", "4"),
        event("span_begin", id="s", type="scorers", name="scorers"),
        model(message("assistant", "GRADE: C"), input=[TASK], span_id="s"),
    ]
    messages = [TASK, called("c1"), result("c1", "4"), message("assistant", "4")]
    items = items_of(INSPECT, log(sample(events, messages)))
    assert ["go", "4"] == [each.text for each in every(items, Answered)]
    assert ["4"] == [each.output for each in every(items, Returned)]


def test_an_old_logs_scorer_is_between_steps() -> None:
    """Before spans there were steps that begin and end."""
    events = [
        model(message("assistant", "mine"), input=[TASK]),
        event("step", action="begin", type="scorer"),
        model(message("assistant", "theirs"), input=[TASK]),
        event("step", action="end", type="scorer"),
    ]
    items = items_of(INSPECT, log(sample(events, [])))
    assert ["mine"] == [answer.text for answer in every(items, Answered)]


def test_limits_interrupts_approvals_and_failures_are_told() -> None:
    """The harness's own decisions are kept under the source's words."""
    events = [
        model(None, input=[TASK], error="429 rate limit"),
        event("interrupt", source="user"),
        event("approval", decision="reject", approver="human"),
        event("sample_limit", type="token", limit=3000),
        model(None, input=[TASK]),
    ]
    items = items_of(INSPECT, log(sample(events, [])))
    assert ["429 rate limit"] == [each.message for each in every(items, RequestFailed)]
    assert 1 == len(every(items, Cancelled))
    assert {"approval", "limit:token", "pending"} <= {each.what for each in every(items, Remarked)}


def test_a_cleared_result_does_not_change_what_was_returned() -> None:
    """An edited prompt repeats a call's id with another text: the first text is the result, the prompt shows
    the other.
    """
    pool = [TASK, called("c1"), result("c1", "long output", id="r1"), result("c1", "(removed)", id="r2")]
    events = [
        model(called("c1"), input=[], input_refs=[[0, 1]]),
        tool("c1", "long output"),
        model(message("assistant", "end"), input=[], input_refs=[[0, 2], [3, 4]]),
    ]
    items = items_of(INSPECT, log(sample(events, [*pool[:2], pool[3]], events_data={"messages": pool})))
    assert "long output" == every(items, Returned)[0].output
    assert "(removed)" == every(items, Prompted)[1].messages[2].text


def test_stop_reasons_are_read() -> None:
    """The provider's word stands beside ours."""
    answer = every(items_of(INSPECT, DOCUMENT), Answered)[0]
    assert (StopReason.TOOL_USE, "tool_calls", "m-1") == (answer.stop, answer.stop_raw, answer.model)


def test_what_nothing_refers_to_is_kept() -> None:
    """Attachments of states, raw requests, unknown events and keys stand in some rest."""
    more = {
        "attachments": {HASH: LONG, "f" * 32: "kept1"},
        "events_data": {"messages": POOL, "calls": ["kept2"]},
        "novel": "kept3",
    }
    odd = SAMPLE | more | {"events": [*SAMPLE["events"], event("novel", payload="kept4")]}
    rests = " ".join(item.rest for item in items_of(INSPECT, log(odd, novel="kept5")))
    assert [] == [word for word in ("kept1", "kept2", "kept3", "kept4", "kept5") if word not in rests]


def test_what_a_message_says_besides_is_kept() -> None:
    """Without events, an answer's and a result's other keys stand beside them; so do citations of a tool's
    result.
    """
    cited = [{"type": "text", "text": "4", "citations": [{"url": "u"}]}]
    messages = [
        TASK,
        called("c1", model="m"),
        result("c1", "4", error={"type": "timeout", "message": "late"}),
    ]
    items = items_of(INSPECT, log(sample([], messages)))
    assert '"model":"m"' in every(items, Answered)[0].rest
    assert '"message":"late"' in every(items, Returned)[0].rest
    told_by_events = items_of(
        INSPECT, log(sample([model(called("c1"), input=[TASK]), tool("c1", cited)], []))
    )
    assert '"url":"u"' in every(told_by_events, Returned)[0].rest
