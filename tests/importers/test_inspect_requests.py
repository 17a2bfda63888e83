"""What Inspect's adapters sent in place of results that failed: by the raw requests of a log, else by the
rule of each adapter.
"""

from typing import Any

import pytest

from refold.importers.formats.inspect_logs.importer import INSPECT
from refold.importers.items import Answered, Prompted, Remarked, Returned
from support.inspect_logs import TASK, called, log, message, model, result, sample, tool
from support.transcribed import every, items_of

Json = dict[str, Any]
FAILED = {"type": "unknown", "message": "no such file"}


def failing(
    adapter: str, *, content: str = "", call: Json | None = None, pool: list[Json] | None = None
) -> Json:
    """A log of one call that failed, by a model of this adapter; `call` is the raw request behind it."""
    shown = result("c1", content, error=FAILED)
    events = [
        model(called("c1"), 1, input=[TASK]),
        tool("c1", content, error=FAILED),
        model(message("assistant", "done"), 3, input=[TASK, called("c1"), shown], call=call),
    ]
    data = {"messages": [], "calls": pool or []}
    document = log(sample(events, [TASK, called("c1"), shown], events_data=data))
    document["eval"]["model"] = adapter
    return document


def shown_of(document: Json) -> list[str]:
    """What the model was shown of the call: by its result, and by the next prompt."""
    items = items_of(INSPECT, document)
    prompt = every(items, Prompted)[-1]
    return [every(items, Returned)[0].output, next(each.text for each in prompt.messages if each.call)]


@pytest.mark.parametrize(
    ("adapter", "shown"),
    [
        ("openai/gpt-5", "Error: no such file"),
        ("openai-api/local/m", "Error: no such file"),
        ("mistral/m", "Error: no such file"),
        ("anthropic/claude", "no such file"),
        ("google/gemini", "no such file"),
        ("mockllm/model", "no such file"),
    ],
)
@pytest.mark.parametrize("content", ["", "half of it"])
def test_an_adapter_has_a_rule_for_errors(adapter: str, shown: str, content: str) -> None:
    """An error is sent as the adapter of the model does it, and not what the result says besides."""
    assert [shown, shown] == shown_of(failing(adapter, content=content))


CHAT = {"role": "tool", "tool_call_id": "c1", "content": "as it was sent"}
RESPONSES = {"type": "function_call_output", "call_id": "c1", "output": "as it was sent"}
BLOCK = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "as it was sent"}]}


@pytest.mark.parametrize(
    ("call", "pool"),
    [
        ({"request": {"messages": [CHAT]}}, None),
        ({"request": {"input": [RESPONSES]}}, None),
        ({"request": {"messages": [{"role": "user", "content": [BLOCK]}]}}, None),
        ({"request": {}, "call_refs": [[0, 1]], "call_key": "messages"}, [CHAT]),
    ],
    ids=["chat", "responses", "blocks", "in the pool"],
)
def test_a_raw_request_has_the_last_word(call: Json, pool: list[Json] | None) -> None:
    """Where a log has the raw request, what stands there in place of a failed result is what the model was
    shown.
    """
    document = failing("openai/gpt-5", call=call, pool=pool)
    assert ["as it was sent", "as it was sent"] == shown_of(document)


THOUGHT = [{"type": "reasoning", "reasoning": "because"}, {"type": "text", "text": "I look."}]
SENT = {"role": "assistant", "content": "\nI look.", "tool_calls": [{"id": "c1"}]}


@pytest.mark.parametrize(
    ("content", "sent", "shown"),
    [
        pytest.param(THOUGHT, SENT, "\nI look.", id="parts"),
        pytest.param(THOUGHT, SENT | {"tool_calls": [{"id": "c9"}]}, "I look.", id="of another call"),
        pytest.param(THOUGHT, SENT | {"content": "\nI saw."}, "I look.", id="other words"),
        pytest.param(THOUGHT, SENT | {"content": [{"text": "\nI look."}]}, "I look.", id="parts in both"),
        pytest.param("I look.", SENT, "I look.", id="a text"),
        pytest.param(THOUGHT, None, "I look.", id="no raw request"),
    ],
)
@pytest.mark.parametrize("pooled", [False, True], ids=["in the request", "in the pool"])
def test_an_answer_is_shown_again_as_it_was_sent(
    content: Any, sent: Json | None, shown: str, pooled: bool
) -> None:
    """The line breaks that an adapter puts around an answer's parts are in the next prompt, and not in the
    answer.
    """
    asked, raw = called("c1", content=content), [sent] if sent else []
    call: Json = {"request": {}, "call_refs": [[0, 1]]} if pooled else {"request": {"messages": raw}}
    prompt = [TASK, asked, result("c1", "one")]
    events = [
        model(asked, 1, input=[TASK]),
        tool("c1", "one"),
        model(message("assistant", "done"), 3, input=prompt, call=call),
    ]
    messages = [*prompt, message("assistant", "done")]
    data = {"messages": [], "calls": raw if pooled else []}
    items = items_of(INSPECT, log(sample(events, messages, events_data=data)))
    assert ["I look.", "done"] == [answer.text for answer in every(items, Answered)]
    assert ["Do it", shown, "one"] == [each.text for each in every(items, Prompted)[-1].messages]
    assert ["one"] == [each.output for each in every(items, Returned)]
    assert [] == [each.rest for each in every(items, Remarked) if ".messages[" in each.position]
