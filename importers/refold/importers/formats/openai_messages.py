"""Lists of chat messages as in the OpenAI API, read as a conversation.

Such a list has no times, no usage and no prompts. A call's result follows it, and call ids may repeat.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from refold.importers.content import find_call_mark, take_tools
from refold.importers.documents import ANY, JsonValue, decode_beginning, values
from refold.importers.fields import JSON, at, omit_keys, rest, rows, table, take_rows, take_text
from refold.importers.items import UNKNOWN_PART, Item, Place, RunBegan, Unread
from refold.importers.message_shapes import take_messages
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role

_READ = ("role", "content", "tool_call_id", "name")
_LIST = re.compile(rb'\s*\[\s*\{\s*"(?:role|content)"\s*:')
_OBJECT = re.compile(
    rb'\s*\{\s*(?:"[^"\\]*+"\s*:\s*(?:"[^"\\]*+"|null|true|false|-?\d++)\s*,\s*)*"(?:messages|tools)"\s*:\s*\['
)


class ChatMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of the list: its place, its content, and `rest` without a field in an item.

    `lost` names a key or type that suggests a call or result of an unknown form.
    """

    place: Place
    messages: tuple[Message, ...]
    rest: str = ""
    lost: str = ""


def read_rows(listed: Sequence[JSON], position: str) -> list[ChatMessage]:
    """Return the messages of the list at `position`, and take them out of it."""
    found: list[ChatMessage] = []
    for index, row in enumerate(listed):
        said = take_messages(row)
        known = (*_READ, "tool_calls") if any(message.calls for message in said.messages) else _READ
        lost = find_call_mark([omit_keys(said.left, *known), *said.unknown])
        found.append(ChatMessage(Place(f"{position}[{index}]"), said.messages, rest(said.left), lost))
    return found


def conversation(
    listed: Sequence[ChatMessage], began: RunBegan, odd: Sequence[Unread] = ()
) -> Iterator[Item]:
    """Yield the run `began`, with the messages before the first response, then the rest of the list.

    `odd` are warnings to yield at its beginning.
    """
    answered = (n for n, row in enumerate(listed) if not all(map(_is_initial, row.messages)))
    first = next(answered, len(listed))
    given = tuple(message for row in listed[:first] for message in row.messages)
    where = f"{listed[0].place.position.rpartition('[')[0]}[0:{first}]" if first else began.position
    yield msgspec.structs.replace(began, position=where, messages=given)
    yield from odd
    for index, row in enumerate(listed):
        if row.lost:
            problem = f"{row.lost!r} may be a call or a result of an unknown form"
            yield row.place.problem(UNKNOWN_PART, problem)
        if index >= first:
            yield from _items(row)
        elif row.rest:
            yield row.place.remark("unmapped", rest=row.rest)


def _items(row: ChatMessage) -> Iterator[Item]:
    for part, message in enumerate(row.messages):
        yield _item(message, row.place, "" if part else row.rest)
    if not row.messages:
        yield row.place.problem("no_message", "not a message", rest=row.rest)


def _is_initial(message: Message) -> bool:
    return message.role not in (Role.ASSISTANT, Role.TOOL)


def _item(message: Message, place: Place, rest: str) -> Item:
    match message.role:
        case Role.ASSISTANT:
            return place.reply(message, rest=rest)
        case Role.TOOL:
            return place.result(message.call, message.text, name=message.name, rest=rest)
        case role:
            by = "user" if role is Role.USER else "harness"
            return place.message(message.text, by, role=role, rest=rest)


class OpenAIMessages:
    """The importer for a list of chat messages, an object with `messages`, or one of these per line."""

    name = "openai_messages"

    def match(self, source: Source) -> FormatMatch | None:
        """Match weakly: many formats consist of such messages, and match themselves with a higher score."""
        head = source.head()
        if b'"role"' not in head:
            return None
        found = decode_beginning(source)
        first = at(found, 0) if isinstance(found, list) else found
        if _LIST.match(head) or _OBJECT.match(head) or _is_request(first):
            return FormatMatch(30, "a list of messages with roles")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield one run per list; messages outside of a list are one run together."""
        bare: list[JSON] = []
        count = 0
        for value in values(source, (), ("messages",), (ANY, "messages")):
            if isinstance(value, Unread):
                yield value
            elif "role" in table(value.value):
                bare.append(value.value)
            elif rows(value.value, "messages") or rows(value.value):
                yield from _run(value, count)
                count += 1
            else:
                yield value.place.problem("no_messages", "not a list of messages", value.value)
        if bare:
            yield from _run(JsonValue("$", bare), count)
        if not bare and not count:
            raise BadTranscript(source.name, "", "no list of messages")


OPENAI_MESSAGES = OpenAIMessages()


def _is_request(value: JSON) -> bool:
    """Return whether it is an object with messages; one with `info` of the run is another format."""
    return {"role", "content"} <= table(value, "messages", 0).keys() and "info" not in table(value)


def _run(value: JsonValue, count: int) -> Iterator[Item]:
    around: JSON = table(value.value)
    place = f"{value.position}.messages" if around else value.position
    found = read_rows(take_rows(around, "messages") or rows(value.value), place)
    head = RunBegan(
        position=place,
        key=take_text(around, "id") or str(count),
        model=take_text(around, "model"),
        tools=take_tools(around, "tools"),
        unsaid=("tool_errors",),
        rest=rest(around),
    )
    yield from conversation(found, head)
    last = next((row.messages[-1] for row in reversed(found) if row.messages), None)
    done = last is not None and last.role is Role.ASSISTANT and not last.calls
    end = ("finished", "last message is a response without calls")
    end = end if done else ("open", "last message is not a response, or has calls")
    yield found[-1].place.end(end)
