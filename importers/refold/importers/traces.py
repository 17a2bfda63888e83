"""Traces: runs whose requests each repeat the conversation so far and add a little.

Formats of spans have no list of messages, only the prompt of each request. `Talk` yields each message once: a
message that a prompt has more often than before has joined since. The exact prompt is yielded, too. Counts
refer to spans, not to messages in prompts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

import msgspec
from msgspec import to_builtins

from refold.importers.content import UnreadCall, decode_nested_json
from refold.importers.fields import JSON, json_text
from refold.importers.items import (
    UNCOUNTED,
    Answered,
    Item,
    Place,
    Remarked,
    RequestFailed,
    Returned,
)
from refold.importers.message_shapes import Read
from refold.importers.session_rows import drop_orphan_results
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

_Key = tuple[Role, str]


class TraceStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A span of a run: a request and its response, a tool call, or something else.

    If a response (`answer`) was not `captured`, its calls are the tools that ran before the next `turn`.
    `failure` replaces a response without content. `tool` is a call's result as the span records it;
    `arguments` are the call's, None if not captured. `alone` replaces a result that no call waits for (None:
    it stays a result). `remark` is a span of another kind. `unknown` are the unread parts of a response.
    """

    prompt: tuple[Message, ...] = ()
    before: int = 0
    place: Place = Place("")
    answer: Answered | None = None
    captured: bool = True
    failure: RequestFailed | None = None
    tool: Returned | None = None
    arguments: str | None = None
    problem: str = ""
    alone: Remarked | None = None
    remark: Remarked | None = None
    turn: bool = False
    unknown: tuple[JSON, ...] = ()


def answer_of(read: Read | None) -> Message:
    """Return the messages of a response as one message."""
    every = read.messages if read else ()
    return Message(
        role=Role.ASSISTANT,
        text="\n".join(each.text for each in every if each.text),
        reasoning="\n".join(each.reasoning for each in every if each.reasoning),
        calls=tuple(call for each in every for call in each.calls),
    )


def time_of(start: int | None, end: int | None) -> tuple[int | None, int]:
    """Return when something ended, as far as known, and its duration in nanoseconds (0 if unknown)."""
    if start is None or end is None:
        return start if end is None else end, 0
    return end, max(0, end - start)


class Trace:
    """One run, with its steps in the order of its items."""

    def __init__(self, steps: Sequence[TraceStep]) -> None:
        self._steps = steps
        self._talk = Talk(ShownPrompt(step.prompt for step in steps))

    def list_initial_messages(self, otherwise: Sequence[Message] = ()) -> tuple[Message, ...]:
        """Return the run's initial messages: the first captured prompt, else `otherwise`."""
        return self._talk.list_initial_messages(
            next((step.prompt for step in self._steps if step.prompt), otherwise)
        )

    def items(self) -> Iterator[Item]:
        """Yield the items of the run."""
        for index, step in enumerate(self._steps):
            if step.answer:
                yield from self._answer(step, step.answer, index)
            elif step.tool:
                yield self._tool(step, step.tool)
            elif step.remark:
                yield step.remark

    def _answer(self, step: TraceStep, answer: Answered, index: int) -> Iterator[Item]:
        yield from self._talk.add_prompt(step.prompt, step.place, before=step.before)
        if step.failure and not (answer.text or answer.calls):
            yield step.failure
            return
        calls = answer.calls if step.captured else self._list_following_calls(index)
        self._talk.add_calls(calls)
        yield msgspec.structs.replace(answer, calls=calls)
        yield from Place(answer.position, answer.at).hosted_calls([*step.unknown])

    def _list_following_calls(self, index: int) -> tuple[MessageCall, ...]:
        """Return the calls of a response that was not captured: tools that ran before the next request."""
        following = takewhile(lambda step: not (step.answer or step.turn), self._steps[index + 1 :])
        return tuple(_make_call(step.tool, step.arguments) for step in following if step.tool)

    def _tool(self, step: TraceStep, tool: Returned) -> Item:
        call, waiting = tool.id, self._talk.find_waiting(tool.name)
        if waiting is not None and not (call and step.alone) and not self._talk.is_waiting(call):
            call = waiting.id  # frameworks omit call ids in spans, or number the spans themselves
        elif not call and step.alone:
            return step.alone
        output = self._talk.result(call, tool.name, tool.output) or step.problem
        self._talk.remove_call(call, tool.name)
        return msgspec.structs.replace(tool, id=call, output=output)


class ShownPrompt:
    """Results as models received them, by id and by their number among the results of that id.

    A tool's span records the tool's output with the framework's own wrapping; the next prompt has what the
    model read.
    """

    def __init__(self, prompts: Iterable[Sequence[Message]]) -> None:
        self._texts: dict[tuple[str, int], Message] = {}
        for pieces in prompts:
            counted: Counter[str] = Counter()
            for piece in pieces:
                if piece.role is Role.TOOL:
                    call = piece.call or ""
                    counted[call] += 1
                    self._texts.setdefault((call, counted[call]), piece)

    def result(self, call: str, number: int, name: str) -> Message | None:
        """Return result `number` (from 1) of this id, None if no prompt has it.

        Without an id, the tool's name must match.
        """
        found = self._texts.get((call, number))
        return found if found is not None and (call or (found.name or "") in ("", name)) else None


class Talk:
    """Tracks which messages of a run's conversation were already yielded."""

    def __init__(self, shown: ShownPrompt) -> None:
        self._shown = shown
        self._yielded: Counter[_Key] = Counter()
        self._spelled: dict[tuple[str, str, str], str] = {}
        self._waiting: list[MessageCall] = []
        self._prompt: tuple[Message, ...] = ()
        self._counted: Counter[_Key] = Counter()

    def list_initial_messages(self, pieces: Sequence[Message]) -> tuple[Message, ...]:
        """Return the initial messages from the first prompt of the run.

        Results without their calls are left for `add_prompt`.
        """
        given = drop_orphan_results(pieces)
        self._yielded.update(_key(piece) for piece in given if piece.role is not Role.ASSISTANT)
        return given

    def add_prompt(self, pieces: Sequence[Message], place: Place, *, before: int = 0) -> Iterator[Item]:
        """Yield the new messages of a prompt, then the prompt.

        `before`: the number of messages of the previous prompt that precede it. A prompt with results but
        without their calls is partial (the provider kept the rest), and only yields a remark.
        """
        if before != len(self._prompt) or len(drop_orphan_results(pieces)) < len(pieces):
            pieces = (*self._prompt[:before], *pieces)
            self._prompt, self._counted = (), Counter()
        place = place.with_counts(UNCOUNTED)
        for piece in pieces:
            if piece.role is not Role.ASSISTANT:
                self._counted[_key(piece)] += 1
                if self._counted[_key(piece)] > self._yielded[_key(piece)]:
                    yield self._new(piece, place)
        spelled = tuple(self._unify_spelling(piece) for piece in pieces)
        self._prompt = (*self._prompt, *spelled)
        if len(drop_orphan_results(spelled)) < len(spelled):
            yield place.remark("prompt:partial", to_builtins(pieces))
        elif pieces:
            yield place.prompt(self._prompt)

    def add_calls(self, calls: Sequence[MessageCall]) -> None:
        """Record the calls of a response as waiting; later prompts use this spelling of arguments."""
        self._waiting += calls
        for call in calls:
            self._spelled.setdefault(_normalize(call), call.arguments)

    def find_waiting(self, name: str) -> MessageCall | None:
        """Return the first waiting call of this tool. A span without an id belongs to it."""
        return next((asked for asked in self._waiting if asked.name == name), None)

    def is_waiting(self, call: str) -> bool:
        """Return whether a call with this id waits for its result."""
        return bool(call) and any(asked.id == call for asked in self._waiting)

    def result(self, call: str, name: str, recorded: str) -> str:
        """Return the next result of this id as the model received it in a prompt, else as recorded."""
        number = self._yielded[Role.TOOL, call] + 1
        shown = self._shown.result(call, number, name)
        return shown.text if shown is not None else recorded

    def remove_call(self, call: str | None, name: str | None) -> None:
        """Record that a result was yielded."""
        self._yielded[Role.TOOL, call or ""] += 1
        for asked in self._waiting:
            if asked.id == call if call else asked.name == name:
                self._waiting.remove(asked)
                return

    def _new(self, piece: Message, place: Place) -> Item:
        if piece.role is Role.TOOL:
            self.remove_call(piece.call, piece.name)
            return place.result(piece.call, piece.text, name=piece.name)
        self._yielded[_key(piece)] += 1
        return place.message(piece.text, role=piece.role)

    def _unify_spelling(self, piece: Message) -> Message:
        if not piece.calls:
            return piece
        calls = tuple(
            msgspec.structs.replace(call, arguments=self._spelled.get(_normalize(call), call.arguments))
            for call in piece.calls
        )
        return msgspec.structs.replace(piece, calls=calls)


def _make_call(tool: Returned, given: str | None) -> MessageCall:
    return UnreadCall(tool.id, tool.name, "{}") if given is None else MessageCall(tool.id, tool.name, given)


def _key(piece: Message) -> _Key:
    return piece.role, (piece.call or "") if piece.role is Role.TOOL else piece.text


def _normalize(call: MessageCall) -> tuple[str, str, str]:
    """Return a call with decoded arguments, which recorders write as an object or as text."""
    return call.id, call.name, json_text(decode_nested_json(call.arguments))
