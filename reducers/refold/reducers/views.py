"""Exactly what the model sees: the window's references, with the words from the events' contents."""

from collections.abc import Mapping

from msgspec.structs import replace

from refold.reducers.errors import CannotJudge
from refold.reducers.events import (
    Answer,
    CallRefused,
    Event,
    InputReceived,
    MessageInjected,
    ModelResponded,
    RunStarted,
    ToolReturned,
    kind_of,
)
from refold.reducers.messages import Message, MessageCall
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, refs


class MissingContent(CannotJudge):
    """A message whose words are not there: erased, or not read. `seq` is its event."""

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(run, seq)
        self.run, self.seq = run, seq

    def __str__(self) -> str:
        return f"run {self.run} event {self.seq}: its content was erased or not read, so the view cannot be shown"


def needed(state: RunState) -> tuple[int, ...]:
    """The numbers of the events whose contents a view of this state needs, ascending."""
    return tuple(sorted({ref.seq for ref in refs(state.window)}))


def remembered(state: RunState, seen: Mapping[int, Event]) -> dict[int, Event]:
    """Of the events seen, those whose words are still needed: by a view, the last answer, or the open batch."""
    wanted = {*needed(state)}
    wanted |= {state.answer.seq} if state.answer else set()
    if state.batch is not None:
        # Its results join the window only when the last one is there; their words are needed then.
        wanted |= {state.batch.seq, *(call.result.seq for call in state.batch.calls if call.result)}
    return {seq: seen[seq] for seq in sorted(wanted) if seq in seen}


def view(state: RunState, contents: Mapping[int, Event]) -> tuple[Message, ...]:
    """The messages of the next request, in order. `contents` has the events, with content, by their number.

    Raises `MissingContent` for a message whose words were erased or are not in `contents`.
    """
    names: dict[str, str] = {}
    messages: list[Message] = []
    for ref in refs(state.window):
        message = message_of(state, ref, contents)
        names.update((call.id, call.name) for call in message.calls)
        if message.call is not None and message.name is None:
            message = replace(message, name=names.get(message.call))
        messages.append(message)
    return tuple(messages)


def message_of(state: RunState, ref: MessageRef, contents: Mapping[int, Event]) -> Message:
    """One message of the window."""
    event = contents.get(ref.seq)
    if event is None or getattr(event, "content", None) is None:
        raise MissingContent(state.setup.run, ref.seq)
    match event:
        case ModelResponded(content=Answer() as answer):
            return _answer(event, answer)
        case RunStarted(content=opening) if opening is not None:
            return opening.messages[ref.part]
        case ToolReturned(content=output) if output is not None:
            return Message(role=Role.TOOL, text=output.output, call=ref.call)
        case InputReceived(content=said) if said is not None:
            return Message(role=Role.USER, text=said.text)
        case CallRefused(content=texts) | MessageInjected(content=texts) if texts is not None:
            return Message(role=ref.role, text=texts.texts[0], call=ref.call)
        case _:
            raise AssertionError(f"{kind_of(event)} is no message")


def _answer(event: ModelResponded, answer: Answer) -> Message:
    calls = tuple(
        MessageCall(call.id, call.name, arguments)
        for call, arguments in zip(event.calls, answer.arguments, strict=True)
    )
    return Message(
        role=Role.ASSISTANT,
        text=answer.text,
        reasoning=answer.reasoning,
        calls=calls,
        provider_data=answer.provider_data,
    )
