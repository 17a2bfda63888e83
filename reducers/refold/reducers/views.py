"""The prompt: the window's references, with texts from the contents of events."""

from collections.abc import Iterator, Mapping, Set

from msgspec.structs import replace

from refold.reducers import events
from refold.reducers.errors import Inconclusive
from refold.reducers.messages import Gap, Message, MessageCall
from refold.reducers.pending import find
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Shown, refs, refs_within

NO_TEXT = "[no text]"


class MissingContent(Inconclusive):
    """The content of a message is missing: erased, or not read. `seq` is its event."""

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(run, seq)
        self.run, self.seq = run, seq

    def __str__(self) -> str:
        return f"run {self.run} event {self.seq}: its content was erased or not read, so the prompt cannot be rebuilt"


def needed(state: RunState) -> tuple[int, ...]:
    """Return the events whose contents the prompt of this state needs, in ascending order."""
    wanted = set[int]()
    for ref in refs(state.window):
        wanted.add(ref.seq)
        if ref.shown is not None or ref.gap is not None:  # otherwise only its own text, as for most messages
            wanted.update(_seqs(ref))
    if state.request is not None and state.request.event.request_only:
        wanted.add(state.request.seq)
    return tuple(sorted(wanted))


def _seqs(ref: MessageRef) -> Iterator[int]:
    yield ref.seq
    if ref.gap is not None and ref.gap.source:
        yield ref.gap.source
    if ref.shown is not None:
        yield ref.shown.seq
    for source in ref.sources:
        yield from _seqs(source)


def remembered(state: RunState, seen: Mapping[int, events.Event]) -> dict[int, events.Event]:
    """Return those of the events seen whose contents are still needed."""
    return {seq: seen[seq] for seq in needed_to_go_on(state) if seq in seen}


def needed_to_go_on(state: RunState) -> tuple[int, ...]:
    """Return the events whose contents the prompt, the last response or the open batch needs, ascending."""
    held = (state.answer, state.failure, state.summary, state.batch)
    wanted = {*needed(state), *state.parts, *(each.seq for each in held if each)}
    for call in state.batch.calls if state.batch else ():
        # Results join the window when the last one arrives; their contents are needed then.
        wanted |= {call.edited, call.result.seq if call.result else 0} - {0}
    joining = state.observed.joining if state.observed else ()  # these join once that batch is complete
    return tuple(sorted(wanted.union(ref.seq for ref, _ in joining)))


def view(state: RunState, contents: Mapping[int, events.Event]) -> tuple[Message, ...]:
    """Return the messages of the next request, or of the open request with its own texts.

    Args:
        state: The state.
        contents: Events with content, by number.

    Raises:
        MissingContent: The text of a message was erased or is not in `contents`.
    """
    shown = refs(state.window)
    answered = {ref.call for ref in shown if ref.call is not None}
    names: dict[str, str] = {}
    messages = [standing(message_of(state, ref, contents), answered, names) for ref in shown]
    return (*messages, *request_only(state, contents))


def standing(said: Message, answered: Set[str], names: dict[str, str]) -> Message:
    """Return a message as part of a window: only with calls that are `answered`, a result with its tool's
    name.

    `names` maps ids of earlier calls to tools; those of this message are added.
    """
    message = said
    if said.calls:
        calls = tuple([call for call in said.calls if call.id in answered])
        if len(calls) < len(said.calls):  # refused and hidden, because the call was incomplete
            message = replace(
                said, calls=calls, provider_data=""
            )  # provider data depends on the number of calls
        for call in calls:
            names[call.id] = call.name
    if message.call is not None and message.name is None:
        return replace(message, name=names.get(message.call))
    return message


def request_only(state: RunState, contents: Mapping[int, events.Event]) -> tuple[Message, ...]:
    """Return the messages that only the open request has. Raises as `view`."""
    request = state.request
    if request is None or not request.event.request_only:
        return ()
    said = _said(state, request.seq, contents)
    pairs = zip(request.event.request_only, said.texts, strict=True)
    return tuple([Message(role=text.role, text=words) for text, words in pairs])


def arguments_of(state: RunState, call: str, contents: Mapping[int, events.Event]) -> str:
    """Return the arguments of an open call as JSON text: the model's, or those of an approver's edit.

    Raises:
        MissingContent: As in `view`.
        UnexpectedEvent: No such call is open.
    """
    found = find(state, "run_tool", call)
    assert state.batch is not None
    seq = found.edited or state.batch.seq
    match contents.get(seq):
        case events.ModelResponded(content=events.Answer(arguments=arguments)):
            return arguments[found.position]
        case events.ApprovalAnswered(content=events.Edits(arguments=edits)) if call in edits:
            return edits[call]
        case _:
            raise MissingContent(state.setup.run, seq)


def summary_view(state: RunState, contents: Mapping[int, events.Event]) -> tuple[Message, ...]:
    """Return the messages of a summary request: the instructions, and the messages to summarize as one text.

    They are one text because no provider accepts a conversation that begins with a result. Raises as `view`.
    """
    pending = state.summary
    assert pending is not None
    instructions = _said(state, pending.seq, contents).texts[0]
    covered = refs_within(state.window, pending.event.messages)
    said = [_transcribed(message_of(state, ref, contents)) for ref in covered]
    return Message(role=Role.SYSTEM, text=instructions), Message(role=Role.USER, text="\n\n".join(said))


def message_of(state: RunState, ref: MessageRef, contents: Mapping[int, events.Event]) -> Message:
    """Return one message of the window, shortened if the window has it shortened."""
    message = _whole(state, ref, contents)
    return message if ref.shown is None else _shortened(state, ref.shown, message, contents)


def _whole(state: RunState, ref: MessageRef, contents: Mapping[int, events.Event]) -> Message:
    event = contents.get(ref.seq)
    match getattr(event, "content", None):
        case events.Answer() as answer if isinstance(event, events.ModelResponded):
            return _answer(event, answer)
        case events.Opening(messages=messages):
            return messages[ref.part]
        case events.Output(output=text) | events.Input(text=text) | events.Failure(partial_text=text):
            return Message(role=ref.role, text=text, call=ref.call)
        case events.Said(texts=texts):
            text = _framed(state, ref, contents).join(texts)
            return Message(role=ref.role, text=text, call=ref.call)
        case _:
            raise MissingContent(state.setup.run, ref.seq)


def _framed(state: RunState, ref: MessageRef, contents: Mapping[int, events.Event]) -> str:
    """Return the text that a message of the harness wraps: a summary, or the beginnings of older messages."""
    gap = ref.gap or Gap()
    if gap.source:
        summary = contents.get(gap.source)
        if isinstance(summary, events.SummaryReturned) and summary.content is not None:
            return summary.content.text
        raise MissingContent(state.setup.run, gap.source)
    lines = [digest_line(message_of(state, source, contents), gap.per_message) for source in ref.sources]
    return "\n".join(lines)[: gap.total]


def _said(state: RunState, seq: int, contents: Mapping[int, events.Event]) -> events.Said:
    """Return the harness's texts in the content of event `seq`."""
    said = getattr(contents.get(seq), "content", None)
    if not isinstance(said, events.Said):
        raise MissingContent(state.setup.run, seq)
    return said


def _answer(event: events.ModelResponded, answer: events.Answer) -> Message:
    pairs = zip(event.calls, answer.arguments, strict=True)
    return Message(
        role=Role.ASSISTANT,
        text=answer.text,
        reasoning=answer.reasoning,
        calls=tuple([MessageCall(call.id, call.name, arguments) for call, arguments in pairs]),
        provider_data=answer.provider_data,
    )


def digest_line(message: Message, per_message: int) -> str:
    """Return a line of a digest: the role in capitals and the first characters, or a mark for no text."""
    return f"{message.role.upper()}: {message.text[:per_message] or NO_TEXT}"


def _shortened(
    state: RunState, shown: Shown, message: Message, contents: Mapping[int, events.Event]
) -> Message:
    for cut, marker in zip(shown.cuts, _said(state, shown.seq, contents).texts, strict=True):
        before: str = getattr(message, cut.part)
        after = before[: cut.head] + marker + before[max(cut.head, len(before) - cut.tail) :]
        message = replace(message, **{cut.part: after})
    return message


def _transcribed(message: Message) -> str:
    calls = [f"[calls {call.name} {call.arguments}]" for call in message.calls]
    return "\n".join([f"{message.role.upper()}: {message.text}", *calls])
