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
            match row.get("from"):
                case "user":
                    end = "open", "the last message is the user's"
                    yield place.message(str(row.get("text", "")))
                case "bot":
                    calls = _calls(row)
                    end = (
                        ("open", "the last call has no result")
                        if calls
                        else ("finished", "the last message is an answer")
                    )
                    yield place.reply(
                        Message(role=Role.ASSISTANT, text=str(row.get("text", "")), calls=calls)
                    )
                case "tool":
                    end = "open", "the last message is a result"
                    failed = row["failed"] if isinstance(row.get("failed"), bool) else None
                    yield place.result(str(row.get("id", "")), str(row.get("text", "")), failed=failed)
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
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _calls(row: dict[str, Any]) -> tuple[MessageCall, ...]:
    call = row.get("call")
    if not isinstance(call, dict):
        return ()
    return (
        MessageCall(
            str(call.get("id", "")), str(call.get("tool", "")), json.dumps(call.get("arguments", {}))
        ),
    )
