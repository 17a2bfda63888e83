"""The conversation as OpenAI chat messages.

All messages in the order in which they joined, including those pruned later, with their full texts. For the
messages of one request, use `refold view RUN@t7`.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from refold.reducers.events import Event, Manifest, RunStarted
from refold.reducers.messages import Message
from refold.reducers.state import NEW, RunState
from refold.reducers.views import MissingContent, message_of, remembered, request_only, view
from refold.reducers.vocabulary import Role
from refold.reducers.window import Chunks, MessageRef, Window, refs
from refold.replay.reader import Step, Steps, stored_events
from refold.replay.source_words import SourceEnd, export_end, source_end
from refold.store.protocol import Store

ERASED = "[erased]"
"""Replaces an erased text."""


class Trail:
    """Follows a run. It holds the state and the texts of the window, not the whole run."""

    def __init__(self) -> None:
        self.state: RunState = NEW
        self.source_end = SourceEnd()
        self._said: dict[int, Event] = {}
        self._window: Window | None = None
        self._told = 0
        self._shown: Chunks = ()

    def take(self, step: Step) -> None:
        """Take the next step. Raises as `Step.after`."""
        stored, event = step.stored, step.event
        self.state = step.after
        self.source_end = source_end(stored, event, self.source_end)
        if getattr(event, "content", None) is not None:
            self._said[stored.seq] = event
            # Cleaning up takes time proportional to the window, so it is not done at each event.
            if len(self._said) > 3 * self.state.window.count + 64:
                self._said = remembered(self.state, self._said)

    def view(self) -> tuple[Message, ...] | None:
        """Return the messages of the open request; None if some text was erased."""
        try:
            return view(self.state, self._said)
        except MissingContent:
            return None

    def fresh(self) -> tuple[int, tuple[Message, ...]] | None:
        """Return the new messages of the open request, and the number of messages that it repeats.

        For the first request, or if a prompt does not start with the previous one: 0 and all messages. None
        if some text was erased.
        """
        shown, self._shown = self._shown, self.state.window.chunks
        if not shown or not _starts_with(self._shown, shown):
            whole = self.view()
            return None if whole is None else (0, whole)
        before = sum(map(len, shown))
        new = refs(self.state.window)[before:]
        answered = {ref.call for ref in new}
        try:
            made = [message_of(self.state, ref, self._said) for ref in new]
            once = request_only(self.state, self._said)
        except MissingContent:
            return None
        told = (
            msgspec.structs.replace(
                message, calls=tuple(call for call in message.calls if call.id in answered)
            )
            for message in made
        )
        return before, (*told, *once)

    def joined(self) -> list[Message]:
        """Return the messages that joined since the last call, ordered by number."""
        if self.state.window is self._window:
            return []
        self._window = self.state.window
        new = sorted(
            (ref for ref in refs(self.state.window) if ref.number > self._told), key=lambda ref: ref.number
        )
        self._told = max([self._told, *(ref.number for ref in new)])
        return [self._message(ref) for ref in new]

    def pending(self) -> list[Message]:
        """Return the results of an unfinished batch, which never joined if the log ends here."""
        batch = self.state.batch
        return [
            self._message(call.result) for call in (batch.calls if batch else ()) if call.result is not None
        ]

    def _message(self, ref: MessageRef) -> Message:
        # The full text: shortened forms belong to prompts, not to the conversation.
        whole = msgspec.structs.replace(ref, shown=None)
        try:
            return message_of(self.state, whole, self._said)
        except MissingContent:
            text = "" if ref.role is Role.ASSISTANT else ERASED
            return Message(role=ref.role, text=text or ERASED, call=ref.call)


def _starts_with(now: Chunks, then: Chunks) -> bool:
    """Return whether a window begins with all of an earlier one.

    Unchanged chunks are identical objects.
    """
    return len(now) >= len(then) and all(
        mine is theirs or mine.refs[: len(theirs)] == theirs.refs
        for mine, theirs in zip(now, then, strict=False)
    )


_ENCODER = msgspec.json.Encoder()


async def openai_messages(store: Store, run: str, upto: int | None = None) -> AsyncIterator[str]:
    """Yield one JSON object in pieces, followed by a newline.

    `{"id", "model", "messages", "tools", "metadata": {"events", "state", "reason"}}`; for an imported run
    also `source_end` and `source_says`. Raises `UnknownRun`, `DamagedLog`, `NewerLog`.
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
    """Convert a message to the format of the chat API.

    Reasoning is `reasoning_content`, as some providers name it.
    """
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
    """Convert a tool's definition to the format of the chat API."""
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
        **export_end(state, trail.source_end),
    }
    tools = [of_tool(tool) for tool in state.setup.tools]
    listed = f',"tools":{_json(tools)}' if tools else ""
    return f'{listed},"metadata":{_json(metadata)}}}'


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()
