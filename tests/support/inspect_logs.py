"""A log of Inspect with one sample of a few words, and what it is made of."""

from typing import Any

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
