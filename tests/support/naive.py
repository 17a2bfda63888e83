"""A run as whole message lists in plain Python: what a few lists say that the model sees, and what was spent.

It is fed the same events as the state, and knows nothing of chunks, ranges, references or digests.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.reducers.events import (
    CallRefused,
    ContextObserved,
    Event,
    HistoryPruned,
    InputReceived,
    MessageInjected,
    MessageTrimmed,
    ModelFailed,
    ModelResponded,
    RetryScheduled,
    RunStarted,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.messages import Gap, Message, MessageCall, TextCut
from refold.reducers.vocabulary import Role

_PINNED = (Role.SYSTEM, Role.USER)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its number; `whole` is what was said, `shown` what the model sees of it."""

    number: int
    whole: Message
    shown: Message
    stands_for_others: bool = False


class Transcript:
    """The messages of the next request, kept as a list of whole texts."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.count = 0
        self.ever: dict[int, Line] = {}  # as it was shown last
        self.batch: list[str] = []
        self.results: dict[str, Message | None] = {}
        self.partial = ""
        self.pinned: set[int] = set()
        self.summaries: dict[int, str] = {}
        self.joining: list[tuple[Message, int | None]] = []

    @property
    def messages(self) -> list[Message]:
        """What the model sees, texts of the one request left out."""
        return [line.shown for line in self.lines]

    def take(self, seq: int, event: Event, texts: Mapping[str, str]) -> None:  # noqa: PLR0912 - a case a kind
        """One more event, number `seq`; `texts` are the policy's."""
        match event:
            case RunStarted(content=opening) if opening is not None:
                self._opened(opening.messages)
            case ModelResponded(content=answer) if answer is not None and (
                event.calls or answer.text.strip()
            ):
                pairs = zip(event.calls, answer.arguments, strict=True)
                calls = tuple(MessageCall(call.id, call.name, text) for call, text in pairs)
                said = Message(role=Role.ASSISTANT, text=answer.text, reasoning=answer.reasoning, calls=calls)
                self._append(said)
                self.batch, self.results = [call.id for call in calls], {}
            case ModelFailed(content=failure) if failure is not None:
                self.partial = failure.partial_text
            case SummaryReturned(content=summary) if summary is not None:
                self.summaries[seq] = summary.text
            case ToolReturned(call=call, content=output) if output is not None:
                self._result(call, output.output)
            case CallRefused(call=call, content=said) if said is not None:
                self._result(call, None if event.hidden else said.texts[0])
            case InputReceived(content=said) if said is not None:
                self._append(Message(role=Role.USER, text=said.text))
            case ContextObserved(content=said, after=after) if said is not None:
                self.joining += list(zip(said.messages, after or [None] * len(said.messages), strict=True))
                self._join()
            case RetryScheduled(keeps=True):
                self._append(Message(role=Role.ASSISTANT, text=self.partial))
            case MessageInjected():
                self._injected(event, texts)
            case MessageTrimmed():
                self._trimmed(event)
            case HistoryPruned(kept=kept):
                self.lines = [line for line in self.lines if _within(kept, line.number)]
            case _:
                pass

    def _opened(self, messages: tuple[Message, ...]) -> None:
        names = {call.id: call.name for message in messages for call in message.calls}
        for message in messages:
            self._append(replace(message, name=names[message.call]) if message.call else message)
        firsts = [[line.number for line in self.lines if line.whole.role is role][:1] for role in _PINNED]
        self.pinned = {number for numbers in firsts for number in numbers}

    def _append(self, message: Message, *, before: int | None = None, at: int | None = None) -> None:
        self.count += 1
        before_others = before
        before = at if before is None else before
        line = Line(
            number=self.count, whole=message, shown=message, stands_for_others=before_others is not None
        )
        self.lines.insert(len(self.lines) if before is None else before, line)
        self.ever[self.count] = line

    def _result(self, call: str, text: str | None) -> None:
        self.results[call] = None if text is None else Message(role=Role.TOOL, text=text, call=call)
        if set(self.results) < set(self.batch):
            return
        place = next(p for p, line in enumerate(self.lines) if [c.id for c in line.whole.calls] == self.batch)
        asked = self.lines[place]
        names = {call.id: call.name for call in asked.whole.calls}
        calls = tuple(call for call in asked.whole.calls if self.results[call.id] is not None)
        seen = replace(asked.whole, calls=calls)
        self.lines[place] = self.ever[asked.number] = replace(asked, whole=seen, shown=seen)
        if not calls and not seen.text.strip():
            del self.lines[place]
        for each in self.batch:
            result = self.results[each]
            if result is None:
                self.count += 1  # its number was given with the call
            else:
                self._append(replace(result, name=names[each]))
        self.batch, self.results = [], {}
        self._join()

    def _join(self) -> None:
        """What another harness put there: never between an answer and its results."""
        while self.joining and not self.batch:
            message, after = self.joining.pop(0)
            place = None if after is None else self._behind(after)
            self._append(message, at=place)

    def _behind(self, number: int) -> int:
        place = next((place for place, line in enumerate(self.lines, 1) if line.number == number), 0)
        if not place:
            return 0
        while place < len(self.lines) and self.lines[place].whole.role is Role.TOOL:
            place += 1
        return place

    def _injected(self, event: MessageInjected, texts: Mapping[str, str]) -> None:
        gap, place = event.gap, None
        text = event.content.texts[0] if event.content else ""
        if gap:
            text = self._framed(gap, texts) if gap.source or gap.sources else text
            places = {line.number: place for place, line in enumerate(self.lines, 1)}
            place = places[gap.after] if gap.after else 0
        self._append(Message(role=event.role, text=text), before=place)

    def _framed(self, gap: Gap, texts: Mapping[str, str]) -> str:
        if gap.source:
            return texts["summary"].replace("{summary}", self.summaries[gap.source])
        numbers = [number for first, last in gap.sources for number in range(first, last + 1)]
        each, total = gap.per_message, gap.total
        quoted = [self.ever[number].shown for number in numbers]
        said = [f"{message.role.upper()}: {message.text[:each] or '[no text]'}" for message in quoted]
        text = "\n".join(said)[:total]
        return texts["digest"].replace("{digest}", text)

    def _trimmed(self, event: MessageTrimmed) -> None:
        place = next(place for place, line in enumerate(self.lines) if line.number == event.message)
        line = self.lines[place]
        shown = line.whole
        for cut, marker in zip(event.cuts, event.content.texts if event.content else (), strict=True):
            shown = _cut(shown, cut, marker)
        self.lines[place] = self.ever[line.number] = replace(line, shown=shown)


def _within(ranges: tuple[tuple[int, int], ...], number: int) -> bool:
    return any(first <= number <= last for first, last in ranges)


def _cut(message: Message, cut: TextCut, marker: str) -> Message:
    text: str = getattr(message, cut.part)
    tail = text[len(text) - min(cut.tail, max(0, len(text) - cut.head)) :] if cut.tail else ""
    return replace(message, **{cut.part: text[: cut.head] + marker + tail})


def rendered(texts: Mapping[str, str], key: str, values: Mapping[str, Any]) -> str:
    """A text of the harness with its placeholders filled."""
    text = texts[key]
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def refused_by_a_provider(messages: list[Message]) -> Iterator[str]:
    """What a provider would refuse: a call without its result right after it, the reverse, an empty
    answer.
    """
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if message.role is Role.TOOL:
            if not waiting or message.call != waiting.pop(0):
                yield f"message {place}: a result of {message.call}, for which nothing waits there"
            continue
        if waiting:
            yield f"message {place}: {waiting} have no result before it"
        waiting = [call.id for call in message.calls]
        if message.role is Role.ASSISTANT and not message.calls and not message.text.strip():
            yield f"message {place}: an empty answer"
    if waiting:
        yield f"the end: {waiting} have no result"
