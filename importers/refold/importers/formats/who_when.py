"""Failures of multi-agent teams from the Who&When dataset.

A document is `{question, history, mistake_agent, mistake_step, …}`, or a list of these. `history` is the
team's chat. Each message names its speaker: by `name` in chats of AG2, by `role` in those of Magentic-One.
The first message is the task. The others are responses, except terminal output and the message that ended the
chat. Human annotators recorded which agent failed, where and why. This becomes a score at that step, an
index into the history.

Calls are only in the text of messages; the reports of their output show that something ran. There are no
times, no usage and no prompts. Counts: messages, each a response.
"""

import re
from collections.abc import Iterator

from refold.importers.content import words
from refold.importers.documents import ANY, JsonValue, decode_beginning, values
from refold.importers.fields import (
    JSON,
    at,
    number,
    rest,
    rows,
    table,
    take,
    take_if,
    take_rows,
    take_text,
    take_words,
    text,
)
from refold.importers.items import Item, Place, RunBegan, Unread
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source
from refold.reducers.messages import Message
from refold.reducers.source_marks import UNCALLED
from refold.reducers.vocabulary import Role

_TERMINALS = frozenset({"Computer_terminal", "ComputerTerminal"})
_ACTING = _TERMINALS | {"FileSurfer", "WebSurfer"}
"""Speakers that report the output of calls that are not recorded."""
_ENDING = "Orchestrator (termination condition)"
_FOUND = (
    "mistake_agent",
    "mistake_step",
    "mistake_reason",
    "mistake_type",
    "ground_truth",
    "is_correct",
    "is_corrected",
)
_ENDS = (
    (re.compile(r"^Max rounds"), "limit:turns"),
    (re.compile(r"^Max time"), "limit:time"),
    (re.compile(r"Error processing publish"), "error"),
    (re.compile(r"^No agent selected"), "finished"),
    (re.compile(r"TERMINATE"), "finished"),
)


class WhoWhen:
    """The importer for documents of Who&When."""

    name = "who_when"

    def match(self, source: Source) -> FormatMatch | None:
        """Match a history with annotations of the failure."""
        head = decode_beginning(source)
        found = at(head, 0) if isinstance(head, list) else head
        named = table(found).keys()
        if "history" in named and ("mistake_agent" in named or {"question", "ground_truth"} <= named):
            return FormatMatch(95, "a history with mistake_agent, or question and ground_truth")
        if any(text(message, "role").startswith("Orchestrator (") for message in rows(found, "history")):
            # The other keys may be after the searched bytes.
            return FormatMatch(85, "a history with messages of an orchestrator")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield one run per document."""
        count = 0
        for value in values(source, ("history",), (ANY, "history")):
            if isinstance(value, Unread):
                yield value
            elif "history" in table(value.value):
                count += 1
                yield from _run(value)
            else:
                yield value.place.problem("no_history", "no history", value.value)
        if not count:
            raise BadTranscript(source.name, "$", "no history")


WHO_WHEN = WhoWhen()


def _run(value: JsonValue) -> Iterator[Item]:
    listed, place = take_rows(value.value, "history"), f"{value.position}.history"
    end, failed = _end(listed[-1] if listed else None), _find_mistake(value.value)
    places = [Place(f"{place}[{index}]") for index in range(len(listed))]
    given = tuple(Message(role=Role.USER, text=take_words(task, "content")) for task in listed[:1])
    level = table(value.value).get("level")
    key = take_text(value.value, "question_ID") or "question"
    found = {name: take(value.value, name) for name in _FOUND if name in table(value.value)}
    yield RunBegan(
        (places[0] if places else value.place).position,
        rest=rest(value.value),
        key=key,
        messages=given,
        agent="who-when",
        labels={"level": str(level)} if isinstance(level, str | int) else {},
        unsaid=("tool_messages", "tool_calls", "tool_results", "tool_errors"),
    )
    for index, (message, where) in enumerate(zip(listed, places, strict=True)):
        yield from _read_message(message, where) if index else _report_rest(message, where)
        if index == failed:
            yield where.remark("score:mistake", {**found})
    if found and failed not in range(len(listed)):
        yield value.place.remark("score:mistake", {**found})
    yield (places[-1] if places else value.place).end(end)


def _report_rest(task: JSON, where: Place) -> Iterator[Item]:
    """Yield a remark with the remaining fields of the task."""
    take_if(task, "role", "human", "user")
    if left := rest(task):
        yield where.remark("unmapped", rest=left)


def _read_message(message: JSON, where: Place) -> Iterator[Item]:
    yield _message(message, where)
    if _speaker(message) in _ACTING:
        yield where.remark(UNCALLED)


def _find_mistake(value: JSON) -> int | None:
    """Return the step annotated as the mistake: a number, possibly written as text."""
    step = table(value).get("mistake_step")
    return (
        int(step)
        if isinstance(step, str) and step.isascii() and step.isdigit() and len(step) < 9
        else number(step)
    )


def _speaker(message: JSON) -> str:
    return text(message, "name") or text(message, "role")


def _message(message: JSON, where: Place) -> Item:
    if not isinstance(message, dict) or "content" not in message:
        return where.problem("no_message", "not a message", message)
    speaker, content = _speaker(message), take_words(message, "content")
    if speaker == "human":
        return where.message(content, rest=rest(message))
    if speaker in _TERMINALS or speaker == _ENDING:
        return where.message(content, "harness", rest=rest(message))
    return where.reply(Message(role=Role.ASSISTANT, text=content), rest=rest(message))


def _end(last: JSON) -> tuple[str, str]:
    """Return how the chat ended, by its last message."""
    content = words(table(last).get("content"))
    for pattern, end in _ENDS:
        if found := pattern.search(content):
            return end, f"last message: {content[found.start() : found.start() + 40].splitlines()[0]}"
    return "unknown", "the last message does not record an end"
