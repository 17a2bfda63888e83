"""SWE-agent's two accounts of a run, steps and messages, laid side by side."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role
from refold.replay.importers.content import calls_of, words
from refold.replay.importers.fields import JSON, at, json_text, rows, text

SHELL = "bash"
"""The tool whose calls are text."""

AHEAD = 64
"""Steps that are looked through for the one that a message belongs to: requests that had to be repeated lie between."""


class Turn(NamedTuple):
    """An answer: its step, its message in the history, and the messages up to the next answer, all as indices."""

    step: int | None
    answer: int | None
    following: range


def turns(history: Sequence[JSON], begin: int, steps: Sequence[JSON]) -> Iterator[Turn]:
    """Each answer once, in order. `begin`: the first answer of the history.

    A message belongs to the next step that says the same; steps before that one are in no history. Where no step
    says the same, it speaks for itself.
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


def conversation(messages: Sequence[JSON]) -> tuple[Message, ...]:
    """Messages of a history, or of a prompt, as ours: behind an action that is text, the next one is its result."""
    ours: list[Message] = []
    waiting: MessageCall | None = None
    for place, row in enumerate(messages):
        said, role = words(at(row, "content")), role_of(row)
        if role is Role.ASSISTANT:
            calls = asked(row, place)
            ours.append(Message(role=role, text=said, calls=calls))
            waiting = calls[-1] if calls else None
        elif waiting and role is not Role.SYSTEM:
            ours.append(Message(role=Role.TOOL, text=said, call=waiting.id, name=waiting.name))
            waiting = None
        else:
            ours.append(Message(role=Role.USER if role is Role.TOOL else role, text=said))
    return tuple(ours)


def prompt_of(steps: Sequence[JSON], index: int) -> tuple[Message, ...] | None:
    """The exact prompt of a step, None where none was recorded.

    1.1 records it as `query`. The `messages` of 1.0 were written when the step was over, so its own answer and
    observation stand at their end: the prompt is what the step before had written, for the first step the rest.
    """
    query, messages = rows(steps[index], "query"), rows(steps[index], "messages")
    if query or not messages:
        return conversation(query) if query else None
    own = _own_answer(messages, steps[index])
    if own is None:
        return conversation(messages)
    before = rows(steps[index - 1], "messages") if index else ()
    if before and _own_answer(before, steps[index - 1]) is not None:
        return conversation(before)
    return conversation(messages[:own])


def _own_answer(messages: Sequence[JSON], step: JSON) -> int | None:
    """Where in the messages that a step recorded its own answer stands, None where it does not."""
    last = next((n for n in range(len(messages) - 1, -1, -1) if role_of(messages[n]) is Role.ASSISTANT), None)
    return last if last is not None and _same(messages[last], step) else None


def role_of(row: JSON) -> Role:
    """A message's role; an unknown one is a user's."""
    word = text(row, "role")
    return Role(word) if word in set(Role) else Role.USER


def asked(row: JSON, place: int) -> tuple[MessageCall, ...]:
    """What an answer asks for: its function calls, else its action as a command for the shell."""
    if rows(row, "tool_calls"):
        return calls_of(row)
    action = text(row, "action")
    if not action.strip():
        return ()
    return (MessageCall(f"action-{place}", SHELL, json_text({"command": action})),)
