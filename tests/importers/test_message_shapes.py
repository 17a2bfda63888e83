"""One reader for the field's shapes of messages."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from refold.importers.content import decode_nested_json
from refold.importers.fields import JSON, json_text
from refold.importers.message_shapes import take_messages
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

SYSTEM = Message(role=Role.SYSTEM, text="be brief")
ASK = Message(role=Role.USER, text="hi")
CALL = MessageCall(id="c1", name="look", arguments='{"q":1}')
CALLED = Message(role=Role.ASSISTANT, calls=(CALL,))
RESULT = Message(role=Role.TOOL, text="found", call="c1")


def test_an_escape_that_json_has_not_costs_no_message() -> None:
    """Messages in JSON text are read where a recorder escaped what needs none; text that is no JSON stays
    text.
    """
    text = r'[{"role": "tool", "tool_call_id": "c1", "content": "a\*b"}]'
    assert [Message(role=Role.TOOL, text=r"a\*b", call="c1")] == list(take_messages(text).messages)
    assert r"[a\*b" == decode_nested_json(r"[a\*b")


def parts(role: str, *given: dict[str, JSON]) -> dict[str, JSON]:
    return {"role": role, "parts": list[JSON](given)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("hi", (ASK,), id="a bare text is the default role's"),
        pytest.param('[{"role":"user","content":"hi"}]', (ASK,), id="JSON text is read as what it encodes"),
        pytest.param('"[{\\"role\\":\\"user\\",\\"content\\":\\"hi\\"}]"', (ASK,), id="encoded twice"),
        pytest.param([{"role": "developer", "content": "be brief"}], (SYSTEM,), id="developer is system"),
        pytest.param(
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            (Message(role=Role.USER, text="a\nb"),),
            id="OpenAI: text parts are joined",
        ),
        pytest.param(
            [
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": '{"q":1}'}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "found"},
            ],
            (CALLED, RESULT),
            id="OpenAI: calls and results",
        ),
        pytest.param(
            [{"role": "assistant", "content": "", "function_call": {"name": "look", "arguments": '{"q":1}'}}],
            (Message(role=Role.ASSISTANT, calls=(MessageCall(id="", name="look", arguments='{"q":1}'),)),),
            id="OpenAI: the old function_call has no id",
        ),
        pytest.param(
            [
                {"type": "function_call", "call_id": "c1", "id": "fc_9", "name": "look", "arguments": '{"q":1}'},
                {"type": "function_call_output", "call_id": "c1", "output": "found"},
            ],
            (CALLED, RESULT),
            id="Responses: the call_id counts, not the item's id",
        ),
        pytest.param(
            {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}]},
            (Message(role=Role.ASSISTANT, text="hi"),),
            id="Responses: a response around its output",
        ),
        pytest.param(
            [
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "found"}]}]},
            ],
            (Message(role=Role.ASSISTANT, reasoning="hm", calls=(CALL,)), RESULT),
            id="Anthropic: blocks; a user's message of results is the results",
        ),
        pytest.param(
            [
                parts("system", {"type": "text", "content": "be brief"}),
                parts("assistant", {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"q": 1}}),
                parts("user", {"type": "tool_call_response", "id": "c1", "result": "found"}),
            ],
            (SYSTEM, CALLED, RESULT),
            id="GenAI: parts, results in a user's message",
        ),
        pytest.param(
            [
                {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"q": 1}}]},
                {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "output": {"type": "text", "value": "found"}}]},
            ],
            (CALLED, RESULT),
            id="AI SDK: parts with hyphens, tagged outputs",
        ),
        pytest.param(
            {
                "config": {"system_instruction": "be brief"},
                "contents": [
                    parts("user", {"text": "hi"}),
                    parts("model", {"function_call": {"name": "look", "args": {"q": 1}, "id": "c1"}}),
                    parts("user", {"function_response": {"name": "look", "response": "found", "id": "c1"}}),
                ],
            },
            (SYSTEM, ASK, CALLED, Message(role=Role.TOOL, text="found", call="c1", name="look")),
            id="Gemini: contents with their system instruction",
        ),
        pytest.param(
            {"messages": [{"type": "human", "content": "hi"}, {"type": "ai", "content": "", "tool_calls": [{"name": "look", "args": {"q": 1}, "id": "c1"}]}]},
            (ASK, CALLED),
            id="LangChain: types instead of roles",
        ),
        pytest.param(
            [
                {"role": "assistant", "content": '[{"type":"tool_use","id":"c1","name":"look","input":{"q":1}}]'},
                {"role": "look", "content": "found", "tool_call_id": "c1"},
            ],
            (CALLED, Message(role=Role.TOOL, text="found", call="c1", name="look")),
            id="calls as JSON text, and a result whose role is the tool's name",
        ),
        pytest.param(
            [{"role": "assistant", "content": '[{"type":"text","text":"hi"}]'}, {"role": "look", "content": "x"}],
            (
                Message(role=Role.ASSISTANT, text='[{"type":"text","text":"hi"}]'),
                Message(role=Role.USER, text="x"),
            ),
            id="JSON text without a call is text, and a role that names no tool is a person's",
        ),
        pytest.param(
            [{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "HumanMessage"], "kwargs": {"content": "hi"}}],
            (ASK,),
            id="LangChain: its own serialisation; the class is only read as a name",
        ),
    ],
)  # fmt: skip
def test_shapes(value: JSON, expected: tuple[Message, ...]) -> None:
    """Each framework's way of writing a message gives the same message."""
    read = take_messages(value)
    assert expected == read.messages
    assert () == read.unknown


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"content": "role"}, id="a message without a role"),
        pytest.param(
            [{"role": "tool", "content": {"type": "function", "function": {"name": "f", "parameters": {}}}}],
            id="a tool's definition logged as a message",
        ),
        pytest.param([17], id="a number"),
    ],
)
def test_no_message(value: JSON) -> None:
    """What is no message becomes none, and is handed back."""
    read = take_messages(deepcopy(value))
    assert () == read.messages
    assert len(read.unknown) == 1
    assert value == read.left


def test_an_image_leaves_its_place() -> None:
    """A part that is no text stands in its message as a word, and whole beside it."""
    image: JSON = {"type": "image_url", "image_url": {"url": "data:"}}
    read = take_messages([{"role": "user", "content": [{"type": "text", "text": "look"}, image]}])
    assert "look\n[image_url]" == read.messages[0].text
    assert [{"content": [image]}] == read.left
    assert (image,) == read.unknown


@pytest.mark.parametrize(
    ("value", "left"),
    [
        pytest.param([{"role": "user", "content": "hi"}], None, id="nothing, where all was read"),
        pytest.param('[{"role": "user", "content": "hi", "n": 1}]', [{"n": 1}], id="of JSON text: decoded"),
        pytest.param(
            [{"type": "function_call", "call_id": "c1", "id": "fc_9", "name": "look", "arguments": "{}"}],
            [{"id": "fc_9"}],
            id="Responses: the item's id, beside the call's",
        ),
        pytest.param(
            [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}],
            [{"content": [{"signature": "s"}]}],
            id="Anthropic: a thought's signature, in its part",
        ),
        pytest.param(
            [{"type": "ai", "content": "", "tool_calls": [{"name": "look", "args": {"q": 1}, "id": "c1", "type": "tool_call", "index": 0}]}],
            [{"tool_calls": [{"index": 0}]}],
            id="LangChain: what a call holds more, in its place",
        ),
        pytest.param(
            {"model": "m", "messages": [{"role": "user", "content": "hi", "refusal": None}]},
            {"model": "m"},
            id="what stands around messages; what holds nothing is nothing",
        ),
        pytest.param([{"role": "critic", "content": "hi"}], [{"role": "critic"}], id="a role that is none"),
        pytest.param(
            [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": "no"}]}],
            [{"content": [{"is_error": True}]}],
            id="that a result is an error",
        ),
    ],
)  # fmt: skip
def test_what_is_left(value: JSON, left: JSON) -> None:
    """What no message says stays where it stood, and nothing else."""
    assert left == take_messages(value).left


def test_what_is_left_of_repeated_messages_is_told_once() -> None:
    """Of what is left of a prompt's messages, only what is new stays."""
    told = set[str]()
    first: list[JSON] = [{"role": "user", "content": "hi", "id": 1}]
    assert [{"id": 1}] == take_messages(deepcopy(first), known_rests=told).left
    assert [{"id": 2}] == take_messages(
        [*first, {"role": "user", "content": "ho", "id": 2}], known_rests=told
    ).left


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "parts", "type", "tool_calls", "kwargs", "id", "messages", "output", "function_call", "text", "system", "reasoning", "refusal"]
            ),
            inner | st.sampled_from(["?", "tool", "tool_result", "thinking", "tool_use", "text", "function"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSONS)
def test_reading_is_total(value: JSON) -> None:
    """Any JSON is read without an exception."""
    assert isinstance(take_messages(value).messages, tuple)
    decode_nested_json(value)


@given(JSONS)
def test_what_is_taken_is_in_a_message(value: JSON) -> None:
    """Of any object a key that nobody has heard of is left, or in what a message says; so is any text that is
    its own.
    """
    marks: list[str] = []
    read = take_messages(_marked(value, marks))
    found = json_text([read.left, to_builtins(read.messages)])
    assert [] == [mark for mark in marks if mark not in found]


def _marked(value: JSON, marks: list[str]) -> JSON:
    """A value with a mark more in each object, and one for each `?`."""
    mark = f"mark-{len(marks)}-"
    match value:
        case "?":
            marks.append(mark)
            return mark
        case list():
            return [_marked(each, marks) for each in value]
        case dict():
            marks.append(mark)
            return {"not_heard_of": mark} | {name: _marked(inner, marks) for name, inner in value.items()}
        case _:
            return value
