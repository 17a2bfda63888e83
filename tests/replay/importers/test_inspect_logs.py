"""Inspect logs: samples as runs, prompts put together, limits, headers that tell of other samples."""

import io
import json
import zipfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.vocabulary import Role, StopReason, ToolError
from refold.replay.importers.inspect_logs.importer import INSPECT
from refold.replay.importers.items import (
    Answered,
    Cancelled,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.replay.importers.source import BadTranscript, Source
from support.transcribed import encoded, only, tally_of, told, whole_up_to

LONG = "You are a helpful assistant. " * 9
HASH = "0123456789abcdef0123456789abcdef"


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def called(*calls: str, content: Any = "go", **more: Any) -> dict[str, Any]:
    asked = [{"id": call, "function": "bash", "arguments": {"z": call, "a": 1}} for call in calls]
    return message("assistant", content, tool_calls=asked, **more)


def result(call: str, content: str, **more: Any) -> dict[str, Any]:
    return message("tool", content, tool_call_id=call, function="bash", **more)


def event(kind: str, second: int = 0, **more: Any) -> dict[str, Any]:
    return {"event": kind, "timestamp": f"2025-01-01T10:00:{second:02}.500000+01:00", **more}


def model(output: Any, second: int = 0, usage: Any = None, **more: Any) -> dict[str, Any]:
    choices = [] if output is None else [{"message": output, "stop_reason": "tool_calls"}]
    return event(
        "model", second, model="m", output={"choices": choices, "usage": usage, "model": "m-1"}, **more
    )


def tool(call: str, outcome: Any, **more: Any) -> dict[str, Any]:
    return event("tool", id=call, function="bash", arguments={}, result=outcome, **more)


def sample(events: list[Any], messages: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "epoch": 1,
        "input": "Do it",
        "messages": messages,
        "events": events,
        "scores": {"s": {"value": 1}},
        **more,
    }


def log(*samples: Any, status: str = "success", **more: Any) -> dict[str, Any]:
    return {
        "version": 2,
        "status": status,
        "eval": {"task": "t", "model": "m", "config": {"message_limit": 9}},
        "samples": list(samples),
        **more,
    }


def archive(members: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, value in members.items():
            packed.writestr(name, json.dumps(value))
    return file.getvalue()


SYSTEM, TASK = message("system", f"attachment://{HASH}"), message("user", "Do it", source="input")
POOL = [
    SYSTEM,
    TASK,
    called("c1"),
    result("c1", "one"),
    called("c2"),
    result("c2", "two"),
    message("user", "Go on"),
]
SAMPLE = sample(
    [
        event("span_begin", id="a", type="agent"),
        model(called("c1"), 1, input=[], input_refs=[[0, 2]]),
        tool("c1", "one", completed="2025-01-01T10:00:02+01:00"),
        model(called("c2"), 3, input=[], input_refs=[[0, 4]], retries=2),
        tool("c2", "two"),
        event("compaction", 4, type="trim", tokens_before=90, tokens_after=40),
        model(message("assistant", "done"), 5, input=[], input_refs=[[0, 2], [4, 7]]),
        event("span_end", 6, id="a"),
    ],
    [*POOL, message("assistant", "done")],
    attachments={HASH: LONG},
    events_data={"messages": POOL, "calls": []},
    model_usage={"m": {"input_tokens": 30, "output_tokens": 6, "input_tokens_cache_read": 4}},
)
DOCUMENT = log(SAMPLE)


def test_a_prompt_is_put_together_from_ranges_and_attachments() -> None:
    """Each request's prompt precedes its answer, whole, with the texts of the items before it."""
    items = told(INSPECT, DOCUMENT)
    prompts = only(items, Prompted)
    assert [["go", "one"], ["go", "two", "Go on"]] == [
        [m.text for m in prompt.messages[2:]] for prompt in prompts[1:]
    ]
    assert {(Role.SYSTEM, LONG)} == {(prompt.messages[0].role, prompt.messages[0].text) for prompt in prompts}
    assert all(isinstance(items[items.index(prompt) + 1], Answered | Remarked) for prompt in prompts)
    assert only(items, RunBegan)[0].messages == prompts[0].messages
    assert (
        '{"z":"c1","a":1}'
        == prompts[1].messages[2].calls[0].arguments
        == only(items, Answered)[0].calls[0].arguments
    )


def test_what_happened_between_is_told() -> None:
    """Results as the model was shown them, messages that no event told, compactions, retries."""
    items = told(INSPECT, DOCUMENT)
    assert [("c1", "one"), ("c2", "two")] == [(each.id, each.output) for each in only(items, Returned)]
    assert [("Go on", "harness")] == [(each.text, each.by) for each in only(items, Said)]
    assert {"compaction", "retry", "span", "score", "log"} <= {each.what for each in only(items, Remarked)}
    compaction = next(each for each in only(items, Remarked) if each.what == "compaction")
    assert {"tokens_before": 90, "tokens_after": 40}.items() <= json.loads(compaction.rest).items()


def test_the_counts_are_the_final_messages() -> None:
    """Roles of the sample's messages, usage of the sample, times of its events."""
    tally = tally_of(told(INSPECT, DOCUMENT))
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


MEMBERS = {
    "header.json": {**DOCUMENT, "samples": None},
    "samples/1_epoch_1.json": SAMPLE,
    "reductions.json": [{"kept": 1}],
}


def test_an_archive_says_what_a_document_says() -> None:
    """`.eval` and `.json` are one log: the same items, but for where they stand."""

    def bare(items: list[Item]) -> list[str]:
        kinds = (Prompted, Answered, Returned, Said)
        return [repr(item).replace(item.position, "") for item in items if isinstance(item, kinds)]

    items = told(INSPECT, archive(MEMBERS))
    assert bare(told(INSPECT, DOCUMENT)) == bare(items)
    assert "samples/1_epoch_1.json $.events[1]" == only(items, Answered)[0].position
    assert "kept" in " ".join(each.rest for each in only(items, Remarked))


def test_each_sample_of_each_epoch_is_a_run() -> None:
    """Runs are named by sample and epoch, and a name that repeats is made different."""
    items = told(INSPECT, log(SAMPLE, SAMPLE | {"epoch": 2}, SAMPLE))
    assert ["1_epoch_1", "1_epoch_2", "1_epoch_1 #2"] == [began.key for began in only(items, RunBegan)]


def test_a_log_that_broke_off_has_its_journal() -> None:
    """Without a header the start of the journal stands for it; finished samples are finished, others open."""
    broken = {"_journal/start.json": {"version": 2, "eval": DOCUMENT["eval"]}}
    broken |= {"samples/1_epoch_1.json": SAMPLE, "samples/2_epoch_1.json": SAMPLE | {"scores": {}}}
    ended = only(told(INSPECT, archive(broken)), RunEnded)
    assert [("finished", "log status=started"), ("open", "log status=started")] == [
        (each.end, each.end_source) for each in ended
    ]


def test_the_header_overrules_the_journal() -> None:
    """The journal's start is written first and stays; the header, written last, knows how it ended."""
    members = {"_journal/start.json": {"version": 2, "eval": DOCUMENT["eval"]}, **MEMBERS}
    assert "log status=success" == only(told(INSPECT, archive(members)), RunEnded)[0].end_source


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
    ended = only(told(INSPECT, log(SAMPLE | more, status=status)), RunEnded)[0]
    assert (end, source) == (ended.end, ended.end_source)


STATS = {
    "started_at": "2025-02-07T00:00:00+00:00",
    "completed_at": "2025-02-07T00:01:00+00:00",
    "model_usage": {"m": {"input_tokens": 999, "output_tokens": 9}},
}


def test_the_headers_usage_counts_only_where_no_sample_has_any() -> None:
    """A header may cover samples that the file does not hold."""
    with_usage = tally_of(told(INSPECT, log(SAMPLE, stats=STATS)))
    bare = {key: value for key, value in SAMPLE.items() if key not in ("model_usage", "events")}
    without = tally_of(told(INSPECT, log(bare, stats=STATS)))
    assert (30, 999) == (with_usage.input_tokens, without.input_tokens)
    assert ("2025-01-01T09:00:00.500000Z", "2025-02-07T00:00:00Z") == (
        with_usage.first_timestamp,
        without.first_timestamp,
    )


def test_a_log_without_samples_has_an_end_and_no_run() -> None:
    """Its counts are zero, its usage and times the header's."""
    items = told(INSPECT, log(status="cancelled", stats=STATS))
    assert ([], "cancelled") == (only(items, RunBegan), only(items, RunEnded)[0].end)
    assert (0, 999) == ((tally := tally_of(items)).messages, tally.input_tokens)


def test_without_events_the_messages_are_told() -> None:
    """Old logs have only the final conversation."""
    items = told(INSPECT, log({key: value for key, value in SAMPLE.items() if key != "events"}))
    assert (2, 3, 2, 1) == (
        len(only(items, RunBegan)[0].messages),
        len(only(items, Answered)),
        len(only(items, Returned)),
        len(only(items, Said)),
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
    """It has no text of its own: the model was shown the error's message, in the result and in the next prompt."""
    shown = result("c1", "", error=error)
    messages = [TASK, called("c1"), shown]
    events = [
        model(called("c1"), input=[TASK]),
        tool("c1", "", error=error),
        model(message("assistant", "end"), input=messages),
    ]
    items = told(INSPECT, log(sample(events, messages)))
    assert (error["message"], kind) == ((returned := only(items, Returned)[0]).output, returned.error)
    assert returned.output == only(items, Prompted)[1].messages[2].text
    assert 1 == tally_of(items).tool_errors


def test_reasoning_and_other_parts_are_no_text() -> None:
    """Text parts are the text, reasoning is kept apart, an image has a place and no words."""
    parts = [
        {"type": "reasoning", "reasoning": "because"},
        {"type": "text", "text": "a"},
        {"type": "image", "image": "data:…"},
    ]
    items = told(INSPECT, log(sample([model(message("assistant", parts), input=[TASK])], [TASK])))
    assert ("a\n[image]", "because") == ((answer := only(items, Answered)[0]).text, answer.reasoning)


def test_usage_that_leaves_the_cache_out_is_completed() -> None:
    """Where the total adds the cached tokens to the input, the provider had left them out of it."""
    apart = {"input_tokens": 5, "output_tokens": 2, "input_tokens_cache_read": 90, "total_tokens": 97}
    within = {"input_tokens": 95, "output_tokens": 2, "input_tokens_cache_read": 90, "total_tokens": 97}
    events = [model(message("assistant", "x"), usage=used, input=[TASK]) for used in (apart, within)]
    assert [95, 95] == [each.usage.input for each in only(told(INSPECT, log(sample(events, []))), Answered)]


def test_submit_is_a_call_with_a_result() -> None:
    """A `react` agent's last call is absent from the messages, and still a call that returned; it is not counted."""
    events = [model(called("s1"), input=[TASK]), tool("s1", "42")]
    items = told(INSPECT, log(sample(events, [TASK, message("assistant", "go")])))
    assert [("s1", "42")] == [(each.id, each.output) for each in only(items, Returned)]
    assert (0, 0) == ((tally := tally_of(items)).tool_calls, tally.tool_results)


def test_a_call_that_never_ended_has_no_result() -> None:
    """Pending and hard failures are remarks: the model was shown nothing; what was said then is told."""
    events = [model(called("c1"), input=[TASK]), tool("c1", "", pending=True)]
    items = told(INSPECT, log(sample(events, [TASK, called("c1"), message("user", "Timeout: late")])))
    assert ([], ["Timeout: late"]) == (only(items, Returned), [each.text for each in only(items, Said)])
    assert "pending" in [each.what for each in only(items, Remarked)]
    failed = [
        model(called("c1"), input=[TASK]),
        tool("c1", "", failed=True),
        event("error", error={"message": "x"}),
    ]
    kinds = [each.what for each in only(told(INSPECT, log(sample(failed, []))), Remarked)]
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
    items = told(INSPECT, log(sample(events, [])))
    assert ["mine"] == [answer.text for answer in only(items, Answered)]
    assert "theirs" in next(each.rest for each in only(items, Remarked) if each.what == what)


def test_messages_are_told_where_only_a_scorer_asked_a_model() -> None:
    """An agent whose requests were not logged has its final messages; its tools' events pair with nothing."""
    events = [
        tool("c1", "4"),
        event("span_begin", id="s", type="scorers", name="scorers"),
        model(message("assistant", "GRADE: C"), input=[TASK], span_id="s"),
    ]
    messages = [TASK, called("c1"), result("c1", "4"), message("assistant", "4")]
    items = told(INSPECT, log(sample(events, messages)))
    assert ["go", "4"] == [each.text for each in only(items, Answered)]
    assert ["4"] == [each.output for each in only(items, Returned)]


def test_an_old_logs_scorer_is_between_steps() -> None:
    """Before spans there were steps that begin and end."""
    events = [
        model(message("assistant", "mine"), input=[TASK]),
        event("step", action="begin", type="scorer"),
        model(message("assistant", "theirs"), input=[TASK]),
        event("step", action="end", type="scorer"),
    ]
    items = told(INSPECT, log(sample(events, [])))
    assert ["mine"] == [answer.text for answer in only(items, Answered)]


def test_limits_interrupts_approvals_and_failures_are_told() -> None:
    """The harness's own decisions are kept under the source's words."""
    events = [
        model(None, input=[TASK], error="429 rate limit"),
        event("interrupt", source="user"),
        event("approval", decision="reject", approver="human"),
        event("sample_limit", type="token", limit=3000),
        model(None, input=[TASK]),
    ]
    items = told(INSPECT, log(sample(events, [])))
    assert ["429 rate limit"] == [each.message for each in only(items, RequestFailed)]
    assert 1 == len(only(items, Cancelled))
    assert {"approval", "limit:token", "pending"} <= {each.what for each in only(items, Remarked)}


def test_a_cleared_result_does_not_change_what_was_returned() -> None:
    """An edited prompt repeats a call's id with another text: the first text is the result, the prompt shows the other."""
    pool = [TASK, called("c1"), result("c1", "long output", id="r1"), result("c1", "(removed)", id="r2")]
    events = [
        model(called("c1"), input=[], input_refs=[[0, 1]]),
        tool("c1", "long output"),
        model(message("assistant", "end"), input=[], input_refs=[[0, 2], [3, 4]]),
    ]
    items = told(INSPECT, log(sample(events, [*pool[:2], pool[3]], events_data={"messages": pool})))
    assert "long output" == only(items, Returned)[0].output
    assert "(removed)" == only(items, Prompted)[1].messages[2].text


def test_stop_reasons_are_read() -> None:
    """The provider's word stands beside ours."""
    answer = only(told(INSPECT, DOCUMENT), Answered)[0]
    assert (StopReason.TOOL_USE, "tool_calls", "m-1") == (answer.stop, answer.stop_raw, answer.model)


def test_nan_is_read() -> None:
    """Inspect writes it, though JSON has none."""
    assert 3 == len(only(told(INSPECT, json.dumps(log(SAMPLE | {"total_time": float("nan")}))), Answered))


def test_what_nothing_refers_to_is_kept() -> None:
    """Attachments of states, raw requests, unknown events and keys stand in some rest."""
    more = {
        "attachments": {HASH: LONG, "f" * 32: "kept1"},
        "events_data": {"messages": POOL, "calls": ["kept2"]},
        "novel": "kept3",
    }
    odd = SAMPLE | more | {"events": [*SAMPLE["events"], event("novel", payload="kept4")]}
    rests = " ".join(item.rest for item in told(INSPECT, log(odd, novel="kept5")))
    assert [] == [word for word in ("kept1", "kept2", "kept3", "kept4", "kept5") if word not in rests]


@pytest.mark.parametrize(
    ("document", "score"),
    [
        pytest.param(DOCUMENT, 95, id="a document"),
        pytest.param(archive(MEMBERS), 95, id="an archive"),
        pytest.param(archive({"word/document.xml": 1}), None, id="another archive"),
        pytest.param({"eval": {}, "version": 1}, None, id="another document"),
        pytest.param(
            {"eval": {"task": "t", "run_id": "r", "dataset": {}}, "pad": "x" * 70_000, "version": 2},
            90,
            id="its version far behind",
        ),
    ],
)
def test_knows_its_own(document: Any, score: int | None) -> None:
    """A log is told by its content."""
    match = INSPECT.match(Source.of("t", encoded(document)))
    assert score == (match.score if match else None)


@pytest.mark.parametrize(
    "document",
    [archive({"a.txt": 1}), b"PK\x05\x06", {"a": 1}, [1]],
    ids=["archive", "empty", "object", "list"],
)
def test_what_is_no_log_is_refused(document: Any) -> None:
    """Nothing is guessed of what holds not one sample or header."""
    with pytest.raises(BadTranscript):
        told(INSPECT, document)


def test_an_unreadable_member_is_told_and_passed_over() -> None:
    """One broken sample costs that sample; one that breaks off is told up to there."""
    file = io.BytesIO(archive(MEMBERS))
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr("samples/2_epoch_1.json", "oops")
        packed.writestr("samples/3_epoch_1.json", json.dumps(SAMPLE)[:-90])
    items = told(INSPECT, file.getvalue())
    assert ["1_epoch_1", "3_epoch_1"] == [began.key for began in only(items, RunBegan)]
    unread = [(each.position.split(".")[0], each.code) for each in only(items, Unread)]
    assert [("samples/2_epoch_1", "cut"), ("samples/3_epoch_1", "cut")] == unread
    assert isinstance(items[-2], Unread)  # with the run that it belongs to, before its end


@given(which=st.sampled_from([encoded(DOCUMENT), archive(MEMBERS)]), data=st.data())
def test_cut_anywhere_it_imports_up_to_the_cut(which: bytes, data: st.DataObject) -> None:
    """Half a log has no answer that the whole one has not, and no event by halves."""
    part = whole_up_to(INSPECT, which[: data.draw(st.integers(0, len(which)))])
    assert {"go", "done"} >= {answer.text for answer in only(part, Answered)}
    assert {"one", "two"} >= {returned.output for returned in only(part, Returned)}


def test_what_a_message_says_besides_is_kept() -> None:
    """Without events, an answer's and a result's other keys stand beside them; so do citations of a tool's result."""
    cited = [{"type": "text", "text": "4", "citations": [{"url": "u"}]}]
    messages = [
        TASK,
        called("c1", model="m"),
        result("c1", "4", error={"type": "timeout", "message": "late"}),
    ]
    items = told(INSPECT, log(sample([], messages)))
    assert '"model":"m"' in only(items, Answered)[0].rest
    assert '"message":"late"' in only(items, Returned)[0].rest
    told_by_events = told(INSPECT, log(sample([model(called("c1"), input=[TASK]), tool("c1", cited)], [])))
    assert '"url":"u"' in only(told_by_events, Returned)[0].rest
