"""Traces: steps of a run, of which each request repeats the conversation before it and tells a little that is
new.

Formats of spans have no list of messages, but the prompt of each request. Of these the conversation is told
once: what a prompt holds more of than was told before joined since then. The prompt itself is told as well,
exactly. Spans are what counts of them, and no messages of prompts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

import msgspec
from msgspec import to_builtins

from refold.importers.content import UnreadCall, unwrapped
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
from refold.importers.session_rows import answering
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

_Key = tuple[Role, str]


class TraceStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A span of a run, as one of three: a request and its answer, a call of a tool, or what is neither.

    An `answer` that was not `captured` has the calls whose tools ran before the next `turn`. `failure` is
    what is told instead of one that says nothing. `tool` is what came of a call by the span itself; what the
    span asked for are its `arguments`, None if they were not captured; `alone` is told of one that no call
    waits for (None: a result all the same). `remark` is a span that is neither. `unknown` is what no rule
    could read of an answer.
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


def answer_of(said: Read | None) -> Message:
    """The messages of an answer as the one that it is."""
    every = said.messages if said else ()
    return Message(
        role=Role.ASSISTANT,
        text="\n".join(each.text for each in every if each.text),
        reasoning="\n".join(each.reasoning for each in every if each.reasoning),
        calls=tuple(call for each in every for call in each.calls),
    )


def time_of(start: int | None, end: int | None) -> tuple[int | None, int]:
    """When something was over, as far as that is known, and how long it took, in nanoseconds; 0 where nobody
    says.
    """
    if start is None or end is None:
        return start if end is None else end, 0
    return end, max(0, end - start)


class Trace:
    """One run, its steps in the order in which they are told."""

    def __init__(self, steps: Sequence[TraceStep]) -> None:
        self._steps = steps
        self._talk = Talk(ShownPrompt(step.prompt for step in steps))

    def opening(self, otherwise: Sequence[Message] = ()) -> tuple[Message, ...]:
        """What the run begins with: the first prompt that was captured."""
        return self._talk.opening(next((step.prompt for step in self._steps if step.prompt), otherwise))

    def items(self) -> Iterator[Item]:
        """What happened."""
        for index, step in enumerate(self._steps):
            if step.answer:
                yield from self._answer(step, step.answer, index)
            elif step.tool:
                yield self._tool(step, step.tool)
            elif step.remark:
                yield step.remark

    def _answer(self, step: TraceStep, answer: Answered, index: int) -> Iterator[Item]:
        yield from self._talk.prompted(step.prompt, step.place, before=step.before)
        if step.failure and not (answer.text or answer.calls):
            yield step.failure
            return
        calls = answer.calls if step.captured else self._ran(index)
        self._talk.answered(calls)
        yield msgspec.structs.replace(answer, calls=calls)
        yield from Place(answer.position, answer.at).hosted_calls([*step.unknown])

    def _ran(self, index: int) -> tuple[MessageCall, ...]:
        """What an answer that was not captured asked for: the tools that ran before the model was asked
        again.
        """
        following = takewhile(lambda step: not (step.answer or step.turn), self._steps[index + 1 :])
        return tuple(_called(step.tool, step.arguments) for step in following if step.tool)

    def _tool(self, step: TraceStep, tool: Returned) -> Item:
        call, waiting = tool.id, self._talk.waiting(tool.name)
        if waiting is not None and not (call and step.alone) and not self._talk.asked(call):
            call = (
                waiting.id
            )  # frameworks leave their spans' calls without ids, or number them for themselves
        elif not call and step.alone:
            return step.alone
        output = self._talk.result(call, tool.name, tool.output) or step.problem
        self._talk.returned(call, tool.name)
        return msgspec.structs.replace(tool, id=call, output=output)


class ShownPrompt:
    """The results as models were shown them: of each id the first, the second … in the order of the prompts.

    A tool's span records what the tool gave, in the framework's own wrapping; the prompt after it what the
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
        """Result `number` (from 1) of this id, None where no prompt shows it.

        Without ids the tool's name must fit.
        """
        found = self._texts.get((call, number))
        return found if found is not None and (call or (found.name or "") in ("", name)) else None


class Talk:
    """What of one run's conversation was told already."""

    def __init__(self, shown: ShownPrompt) -> None:
        self._shown = shown
        self._told: Counter[_Key] = Counter()
        self._spelled: dict[tuple[str, str, str], str] = {}
        self._waiting: list[MessageCall] = []
        self._prompt: tuple[Message, ...] = ()
        self._counted: Counter[_Key] = Counter()

    def opening(self, pieces: Sequence[Message]) -> tuple[Message, ...]:
        """The first prompt of the run, as its beginning.

        Results without their calls are left for the prompt to tell.
        """
        given = answering(pieces)
        self._told.update(_key(piece) for piece in given if piece.role is not Role.ASSISTANT)
        return given

    def prompted(self, pieces: Sequence[Message], place: Place, *, before: int = 0) -> Iterator[Item]:
        """What is new in a prompt, then the prompt. `before` says how much of the prompt before stands in
        front of it.

        A prompt whose results lack their calls is a part of one (the provider kept the rest): only a remark.
        """
        if before != len(self._prompt) or len(answering(pieces)) < len(pieces):
            pieces = (*self._prompt[:before], *pieces)
            self._prompt, self._counted = (), Counter()
        place = place.with_counts(UNCOUNTED)
        for piece in pieces:
            if piece.role is not Role.ASSISTANT:
                self._counted[_key(piece)] += 1
                if self._counted[_key(piece)] > self._told[_key(piece)]:
                    yield self._new(piece, place)
        spelled = tuple(self._as_answered(piece) for piece in pieces)
        self._prompt = (*self._prompt, *spelled)
        if len(answering(spelled)) < len(spelled):
            yield place.remark("prompt:partial", to_builtins(pieces))
        elif pieces:
            yield place.prompt(self._prompt)

    def answered(self, calls: Sequence[MessageCall]) -> None:
        """An answer was told: its calls wait, and are spelled in later prompts as they are here."""
        self._waiting += calls
        for call in calls:
            self._spelled.setdefault(_meaning(call), call.arguments)

    def waiting(self, name: str) -> MessageCall | None:
        """The first call of this name that waits for its result: whose id a tool's span without one must
        mean.
        """
        return next((asked for asked in self._waiting if asked.name == name), None)

    def asked(self, call: str) -> bool:
        """Whether a call of this id waits for its result."""
        return bool(call) and any(asked.id == call for asked in self._waiting)

    def result(self, call: str, name: str, recorded: str) -> str:
        """What the model was shown for the next result of this id: by a prompt, else as it was recorded."""
        number = self._told[Role.TOOL, call] + 1
        shown = self._shown.result(call, number, name)
        return shown.text if shown is not None else recorded

    def returned(self, call: str | None, name: str | None) -> None:
        """A result was told."""
        self._told[Role.TOOL, call or ""] += 1
        for asked in self._waiting:
            if asked.id == call if call else asked.name == name:
                self._waiting.remove(asked)
                return

    def _new(self, piece: Message, place: Place) -> Item:
        if piece.role is Role.TOOL:
            self.returned(piece.call, piece.name)
            return place.result(piece.call, piece.text, name=piece.name)
        self._told[_key(piece)] += 1
        return place.message(piece.text, role=piece.role)

    def _as_answered(self, piece: Message) -> Message:
        if not piece.calls:
            return piece
        calls = tuple(
            msgspec.structs.replace(call, arguments=self._spelled.get(_meaning(call), call.arguments))
            for call in piece.calls
        )
        return msgspec.structs.replace(piece, calls=calls)


def _called(tool: Returned, given: str | None) -> MessageCall:
    return UnreadCall(tool.id, tool.name, "{}") if given is None else MessageCall(tool.id, tool.name, given)


def _key(piece: Message) -> _Key:
    return piece.role, (piece.call or "") if piece.role is Role.TOOL else piece.text


def _meaning(call: MessageCall) -> tuple[str, str, str]:
    """A call without the spelling of its arguments: recorders write an object in one place and its text in
    another.
    """
    return call.id, call.name, json_text(unwrapped(call.arguments))
