"""SWE-agent's two accounts of a run, steps and messages, laid side by side."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import NamedTuple

from refold.importers.content import take_calls, words
from refold.importers.fields import JSON, at, json_text, rest, rows, take_if, take_text, take_words, text
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

SHELL = "bash"
"""The tool whose calls are text."""

AHEAD = 64
"""Steps that are looked through for the one that a message belongs to: requests that had to be repeated lie
between.
"""


class Turn(NamedTuple):
    """An answer: its step, its message in the history, and the messages up to the next answer, all as
    indices.
    """

    step: int | None
    answer: int | None
    following: range


def turns(history: Sequence[JSON], begin: int, steps: Sequence[JSON]) -> Iterator[Turn]:
    """Each answer once, in order. `begin`: the first answer of the history.

    A message belongs to the next step that says the same; steps before that one are in no history. Where no
    step says the same, it speaks for itself.
    """
    answers = [index for index in range(begin, len(history)) if text(history[index], "role") == "assistant"]
    step = 0
    for answer, end in pairwise([*answers, len(history)]):
        ahead = range(step, min(step + AHEAD, len(steps)))
        found = next((n for n in ahead if _same(history[answer], steps[n])), None)
        if found is not None:
            yield from (Turn(alone, None, range(0)) for alone in range(step, found))
            step = found + 1
        yield Turn(found, answer, range(answer + 1, end))
    yield from (Turn(alone, None, range(0)) for alone in range(step, len(steps)))


def _same(answer: JSON, step: JSON) -> bool:
    """Whether a message of the history is a step's answer."""
    said = words(at(answer, "content"))
    if said and said in (text(step, "response"), text(step, "thought")):
        return text(answer, "action") in ("", text(step, "action"))
    return bool(text(step, "action").strip()) and all(
        text(answer, key) == text(step, key) for key in ("action", "thought")
    )


def first_answer(history: Sequence[JSON]) -> int:
    """Where a run's own messages begin: behind the system prompt, demonstrations and the task."""
    for index, row in enumerate(history):
        if text(row, "role") == "assistant" and at(row, "is_demo") is not True:
            return index
    return len(history)


class _Read(NamedTuple):
    row: JSON
    ours: Message
    waiting: MessageCall | None


class TurnConversation:
    """Messages of a history, or of a prompt, as ours: behind an action that is text, the next one is its
    result.

    A prompt repeats most of the one before, which is read once; what of it no message of ours says is told
    once a run.
    """

    def __init__(self) -> None:
        self._read: list[_Read] = []
        self._told: set[str] = set()
        self._unsaid: list[str] = []

    def read(self, messages: Sequence[JSON]) -> tuple[Message, ...]:
        """These messages, which stay as they are."""
        pairs = enumerate(zip(self._read, messages, strict=False))
        shorter = min(len(self._read), len(messages))
        del self._read[next((place for place, (read, row) in pairs if read.row != row), shorter) :]
        for place in range(len(self._read), len(messages)):
            self._read.append(self._add(messages[place], place))
        return tuple(read.ours for read in self._read)

    def _add(self, row: JSON, place: int) -> _Read:
        own = deepcopy(row)
        message, waiting = take_message(own, place), self._read[-1].waiting if self._read else None
        if message.role is Role.ASSISTANT:
            waiting = message.calls[-1] if message.calls else None
        elif waiting is not None and message.role is not Role.SYSTEM:
            take_if(own, "tool_call_ids", [waiting.id])
            message = Message(role=Role.TOOL, text=message.text, call=waiting.id, name=waiting.name)
            waiting = None
        elif message.role is Role.TOOL:
            message = Message(role=Role.USER, text=message.text)
        self._keep(own)
        return _Read(row, message, waiting)

    def pass_by(self, messages: Sequence[JSON]) -> None:
        """See that messages of a step are told, though no prompt has them: those that are not at their place
        in the last one.
        """
        for place, row in enumerate(messages):
            if place >= len(self._read) or self._read[place].row != row:
                self._keep(row)

    def _keep(self, row: JSON) -> None:
        if (unsaid := rest(row)) and unsaid not in self._told:
            self._told.add(unsaid)
            self._unsaid.append(unsaid)

    def left_of(self, row: JSON) -> str:
        """JSON text of what is left of a message of the history, which no prompt need tell again."""
        unsaid = rest(row)
        self._told.add(unsaid)
        return unsaid

    def take_unsaid(self) -> str:
        """JSON text of what was left of the messages that were read since the last time, "" for nothing."""
        unsaid, self._unsaid = self._unsaid, []
        return f"[{','.join(unsaid)}]" if unsaid else ""


def take_message(row: JSON, place: int) -> Message:
    """What a message says, taken out of it; a thought only where it is in the text."""
    role, said = role_of(row), take_words(row, "content")
    take_if(row, "role", role.value)
    if text(row, "thought") in said:
        take_text(row, "thought")
    return Message(role=role, text=said, calls=take_asked(row, place) if role is Role.ASSISTANT else ())


def prompt_of(steps: Sequence[JSON], index: int) -> Sequence[JSON]:
    """The messages of the exact prompt of a step, none where none was recorded.

    1.1 records it as `query`. The `messages` of 1.0 were written when the step was over, so its own answer
    and observation stand at their end: the prompt is what the step before had written, for the first step the
    rest.
    """
    query, messages = rows(steps[index], "query"), rows(steps[index], "messages")
    if query or not messages:
        return query
    own = _own_answer(messages, steps[index])
    if own is None:
        return messages
    before = rows(steps[index - 1], "messages") if index else ()
    if before and _own_answer(before, steps[index - 1]) is not None:
        return before
    return messages[:own]


def _own_answer(messages: Sequence[JSON], step: JSON) -> int | None:
    """Where in the messages that a step recorded its own answer stands, None where it does not."""
    last = next((n for n in range(len(messages) - 1, -1, -1) if role_of(messages[n]) is Role.ASSISTANT), None)
    return last if last is not None and _same(messages[last], step) else None


def role_of(row: JSON) -> Role:
    """A message's role; an unknown one is a user's."""
    word = text(row, "role")
    return Role(word) if word in set(Role) else Role.USER


def take_asked(row: JSON, place: int) -> tuple[MessageCall, ...]:
    """What an answer asks for, taken out of it: its function calls, else its action as a command for the
    shell.
    """
    if rows(row, "tool_calls"):
        return take_calls(row)
    if not text(row, "action").strip():
        return ()
    return (MessageCall(f"action-{place}", SHELL, json_text({"command": take_text(row, "action")})),)
