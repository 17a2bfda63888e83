"""Alignment of SWE-agent's two records of a run: steps, and messages of the history."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import NamedTuple

from refold.importers.content import take_calls, words
from refold.importers.fields import JSON, at, json_text, rest, rows, take_if, take_text, take_words, text
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

SHELL = "bash"
"""Tool name for actions that are text."""

AHEAD = 64
"""Number of steps searched for the one that belongs to a message. Repeated requests may precede it."""


class Turn(NamedTuple):
    """A response, as indices: its step, its message, and the messages up to the next response."""

    step: int | None
    answer: int | None
    following: range


def turns(history: Sequence[JSON], begin: int, steps: Sequence[JSON]) -> Iterator[Turn]:
    """Yield each response once, in order. `begin`: index of the first response in the history.

    A message belongs to the next step with the same content; the steps before that one have no message. If
    no step has the same content, the message is a turn without a step.
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
    """Return whether a message of the history is a step's response."""
    content = words(at(answer, "content"))
    if content and content in (text(step, "response"), text(step, "thought")):
        return text(answer, "action") in ("", text(step, "action"))
    return bool(text(step, "action").strip()) and all(
        text(answer, key) == text(step, key) for key in ("action", "thought")
    )


def first_answer(history: Sequence[JSON]) -> int:
    """Return the index of the first response after system prompt, demonstrations and task."""
    for index, row in enumerate(history):
        if text(row, "role") == "assistant" and at(row, "is_demo") is not True:
            return index
    return len(history)


class _Read(NamedTuple):
    row: JSON
    ours: Message
    waiting: MessageCall | None


class TurnConversation:
    """Converts the messages of a history or a prompt. The message after a text action becomes its result.

    Messages that a prompt repeats from the previous one are converted once, and remaining fields are kept
    once per run.
    """

    def __init__(self) -> None:
        self._read: list[_Read] = []
        self._kept_rests: set[str] = set()
        self._rests: list[str] = []

    def read(self, messages: Sequence[JSON]) -> tuple[Message, ...]:
        """Return these messages without changing their rows."""
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

    def keep_others(self, messages: Sequence[JSON]) -> None:
        """Keep messages of a step that are in no prompt: those not at the same index of the last one."""
        for place, row in enumerate(messages):
            if place >= len(self._read) or self._read[place].row != row:
                self._keep(row)

    def _keep(self, row: JSON) -> None:
        if (remaining := rest(row)) and remaining not in self._kept_rests:
            self._kept_rests.add(remaining)
            self._rests.append(remaining)

    def encode_rest(self, row: JSON) -> str:
        """Return JSON text of the remaining fields of a history message; prompts do not repeat them."""
        remaining = rest(row)
        self._kept_rests.add(remaining)
        return remaining

    def take_rest(self) -> str:
        """Return JSON text of fields that remain of messages read since the last call; "" for none."""
        remaining, self._rests = self._rests, []
        return f"[{','.join(remaining)}]" if remaining else ""


def take_message(row: JSON, place: int) -> Message:
    """Take a message out of its row; its `thought` only if the text includes it."""
    role, content = role_of(row), take_words(row, "content")
    take_if(row, "role", role.value)
    if text(row, "thought") in content:
        take_text(row, "thought")
    return Message(role=role, text=content, calls=take_actions(row, place) if role is Role.ASSISTANT else ())


def prompt_of(steps: Sequence[JSON], index: int) -> Sequence[JSON]:
    """Return the messages of a step's exact prompt; none if not recorded.

    1.1 records it as `query`. 1.0 records `messages` after the step, so they end with its response and
    observation: the prompt is the `messages` of the previous step, for the first step those before its
    response.
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
    """Return the index of a step's own response in its recorded messages, None if it is not there."""
    last = next((n for n in range(len(messages) - 1, -1, -1) if role_of(messages[n]) is Role.ASSISTANT), None)
    return last if last is not None and _same(messages[last], step) else None


def role_of(row: JSON) -> Role:
    """Return a message's role; an unknown one becomes `user`."""
    word = text(row, "role")
    return Role(word) if word in set(Role) else Role.USER


def take_actions(row: JSON, place: int) -> tuple[MessageCall, ...]:
    """Take the calls of a response: its function calls, else its action as a call of the shell."""
    if rows(row, "tool_calls"):
        return take_calls(row)
    if not text(row, "action").strip():
        return ()
    return (MessageCall(f"action-{place}", SHELL, json_text({"command": take_text(row, "action")})),)
