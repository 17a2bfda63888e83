"""The conversation as OpenAI chat messages, one JSON object a run: what a fine-tune, an evaluation or a replay elsewhere reads.

All messages in the order in which they joined, those too that were pruned later; as they were said, not as they were shown
shorter. What the model saw at one request is another question: `refold view RUN@t7`.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from refold.reducers.events import Manifest, RunStarted
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role
from refold.replay.exports.trail import Trail
from refold.replay.following import Steps
from refold.replay.reader import stored_events
from refold.replay.source_words import exported
from refold.store.protocol import Store

_ENCODER = msgspec.json.Encoder()


async def openai_messages(store: Store, run: str, upto: int | None = None) -> AsyncIterator[str]:
    """One JSON object, in pieces; the last one ends its line.

    `{"id", "model", "messages", "tools", "metadata": {"events", "state", "reason"}}`; of an imported run `source_end`
    and `source_says`, too. Raises `UnknownRun`, `DamagedLog`, `NewerLog`.
    """
    trail = Trail()
    between = ""
    async for step in Steps(stored_events(store, run, upto), folds=True):
        trail.take(step)
        if isinstance(step.event, RunStarted) and not between:
            yield f'{{"id":{_json(run)},"model":{_json(step.event.model)},"messages":['
        for message in trail.joined():
            yield between + _json(of_message(message))
            between = ","
    for message in trail.pending():
        yield between + _json(of_message(message))
        between = ","
    yield "]" + _tail(trail) + "\n"


def of_message(message: Message) -> dict[str, Any]:
    """One message as the chat API takes it. Reasoning is `reasoning_content`, as providers that show it write it."""
    made: dict[str, Any] = {"role": str(message.role), "content": message.text}
    if message.role is Role.ASSISTANT:
        if message.reasoning:
            made["reasoning_content"] = message.reasoning
        if message.calls:
            made["content"] = message.text or None
            made["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.calls
            ]
    elif message.role is Role.TOOL:
        made["tool_call_id"] = message.call or ""
    return made


def of_tool(tool: Manifest) -> dict[str, Any]:
    """A tool's definition as the chat API takes it."""
    try:
        schema: Mapping[str, Any] = msgspec.json.decode(tool.schema, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        schema = {}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": schema},
    }


def _tail(trail: Trail) -> str:
    state = trail.state
    metadata = {
        "events": str(state.seq),
        "state": str(state.agent_state),
        "reason": state.outcome.code if state.outcome else "",
        **exported(state, trail.source_end),
    }
    tools = [of_tool(tool) for tool in state.setup.tools]
    listed = f',"tools":{_json(tools)}' if tools else ""
    return f'{listed},"metadata":{_json(metadata)}}}'


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()
