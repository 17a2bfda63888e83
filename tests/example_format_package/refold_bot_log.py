"""A transcript format of a package of its own: a chat bot's log, one JSON object a line.

{"bot": "shop", "from": "user", "text": "What is an apple?"}
{"bot": "shop", "from": "bot", "call": {"id": "1", "tool": "price", "arguments": {"item": "apple"}}}
{"bot": "shop", "from": "tool", "id": "1", "text": "30", "failed": false}
{"bot": "shop", "from": "bot", "text": "30 cents."}
"""

import json
from collections.abc import Iterator
from typing import Any

from refold.importers import BadTranscript, FormatMatch, Item, Place, RunBegan, Source
from refold.reducers import Message, MessageCall, Role


class BotLog:
    """The importer. `name` is the name of its entry point."""

    name = "bot_log"

    def match(self, source: Source) -> FormatMatch | None:
        """FormatMatch by the first line: only this format has both `bot` and `from`."""
        first = _row(source.head().split(b"\n", 1)[0])
        return FormatMatch(90, "a first line with bot and from") if {"bot", "from"} <= first.keys() else None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the file's one run. A line that cannot be read becomes an `Unread`, and reading goes on."""
        place, end = Place("line 1"), ("open", "no message")
        yield RunBegan(place.position, key="log", agent="bot")
        for line in source.lines():
            place, row = Place(f"line {line.number}"), _row(line.text)
            match _take(row, "from", str):
                case "user":
                    end = "open", "the last message is the user's"
                    yield place.message(_take(row, "text", str) or "", rest=_rest(row))
                case "bot":
                    calls = _calls(row)
                    end = (
                        ("open", "the last call has no result")
                        if calls
                        else ("finished", "the last message is an answer")
                    )
                    text = _take(row, "text", str) or ""
                    yield place.reply(Message(role=Role.ASSISTANT, text=text, calls=calls), rest=_rest(row))
                case "tool":
                    end = "open", "the last message is a result"
                    call, text = _take(row, "id", str) or "", _take(row, "text", str) or ""
                    yield place.result(call, text, failed=_take(row, "failed", bool), rest=_rest(row))
                case _ if line.text.strip():
                    yield place.problem(
                        "no_row", "not a row of this format", rest=line.text.decode(errors="replace")
                    )
        if end == ("open", "no message"):
            raise BadTranscript(source.name, "line 1", "no message in it")
        yield place.end(end)


BOT_LOG = BotLog()


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _take(row: dict[str, Any], key: str, kind: type) -> Any:
    """Remove and return a value of this type. Any other value stays, and is stored as the item's rest."""
    return row.pop(key) if isinstance(row.get(key), kind) else None


def _rest(row: dict[str, Any]) -> str:
    return json.dumps(row) if row else ""


def _calls(row: dict[str, Any]) -> tuple[MessageCall, ...]:
    call = row.get("call")
    if not isinstance(call, dict):
        return ()
    name, tool = _take(call, "id", str) or "", _take(call, "tool", str) or ""
    arguments = json.dumps(call.pop("arguments", {}))
    if not call:
        del row["call"]
    return (MessageCall(name, tool, arguments),)
