"""Session files as coding agents write them: a row of JSON a line, built by format, and the items read from
them.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from refold.importers.derivation.gap import conversations
from refold.importers.formats import copilot_cli, droid, pi, qwen_code
from refold.importers.formats.codex.importer import CODEX as CODEX_IMPORTER
from refold.importers.items import Item
from refold.importers.registry import Importer
from refold.importers.source import Source

Json = dict[str, Any]
Kind = TypeVar("Kind", bound=Item)
TIME = "2026-01-01T00:00:01.000Z"


def lines(*rows: object) -> bytes:
    """A file of these rows."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def read(importer: Importer, *rows: object) -> list[Item]:
    """The items of a session of these rows."""
    return list(conversations(importer.items(Source.of("x", lines(*rows)))))


def score(importer: Importer, *rows: object) -> int | None:
    """How sure the importer is of a file of these rows; None if it is not its format."""
    match = importer.match(Source.of("x", lines(*rows)))
    return match.score if match else None


def only(kind: type[Kind], items: Sequence[Item]) -> Kind:
    """The one item of a kind."""
    (found,) = [item for item in items if isinstance(item, kind)]
    return found


def told(items: Sequence[Item]) -> list[tuple[str, str]]:
    """The kinds and texts of a session's items, in order, without its beginning and end."""
    return [(type(item).__name__, text_of(item)) for item in items[1:-1]]


def text_of(item: Item) -> str:
    """A message's text, a result's output, or the name of what was set aside."""
    found = [getattr(item, name, "") for name in ("text", "output", "what")]
    return str(next(filter(None, found), ""))


class Rows:
    """How a format writes a session as a tree: each row has an id and the id of its parent."""

    importer: ClassVar[Importer]
    head: ClassVar[tuple[Json, ...]] = ()

    def __init__(self, tool: str) -> None:
        """`tool`: the name of the tool that is called."""
        self.tool = tool

    def read(self, *rows: Json) -> list[Item]:
        """The items of a session of these rows, behind the format's head."""
        return read(self.importer, *self.head, *rows)

    def user(self, id_: str, parent: str | None, *parts: Any, **more: Any) -> Json:
        """A prompt; its parts are texts, or parts of the format."""
        raise NotImplementedError

    def answer(self, id_: str, parent: str | None, *parts: Any, **more: Any) -> Json:
        """An answer; its parts are texts, calls, or other parts of the format."""
        raise NotImplementedError

    def call(self, id_: str, **arguments: Any) -> Json:
        """A part with a call."""
        raise NotImplementedError

    def result(
        self, id_: str, parent: str | None, call: str, output: str = "7", *, failed: bool = False
    ) -> Json:
        """A row with the result of a call."""
        raise NotImplementedError


def blocks(parts: Sequence[Any]) -> list[Any]:
    """Parts of a message whose texts are blocks."""
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


class Droid(Rows):
    """Droid: results are blocks of a user's message. `more` goes into the message."""

    importer = droid.DROID
    head = ({"type": "session_start", "id": "s", "title": "Count", "owner": "a", "version": 2, "cwd": "/p"},)

    def user(self, id_: str, parent: str | None, *parts: Any, **more: Any) -> Json:
        return self._message("user", id_, parent, parts, more)

    def answer(self, id_: str, parent: str | None, *parts: Any, **more: Any) -> Json:
        return self._message("assistant", id_, parent, parts, more)

    def call(self, id_: str, **arguments: Any) -> Json:
        return {"type": "tool_use", "id": id_, "name": self.tool, "input": arguments}

    def output(self, call: str, said: Any = "7", **more: Any) -> Json:
        """A block with the result of a call."""
        return {"type": "tool_result", "tool_use_id": call, "content": said, **more}

    def result(
        self, id_: str, parent: str | None, call: str, output: str = "7", *, failed: bool = False
    ) -> Json:
        return self.user(id_, parent, self.output(call, output, is_error=failed))

    def _message(self, role: str, id_: str, parent: str | None, parts: Sequence[Any], more: Json) -> Json:
        ids = {"id": id_, "timestamp": TIME} | ({} if parent is None else {"parentId": parent})
        return {"type": "message", **ids, "message": {"role": role, "content": blocks(parts), **more}}


class Pi(Rows):
    """Pi: results are messages. `more` goes into the message."""

    importer = pi.PI
    head = ({"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z"},)

    def entry(self, kind: str, id_: str, parent: str | None, **more: Any) -> Json:
        """An entry of the tree."""
        return {"type": kind, "id": id_, "parentId": parent, "timestamp": TIME} | more

    def user(self, id_: str, parent: str | None, *parts: Any, **more: Any) -> Json:
        return self.entry("message", id_, parent, message={"role": "user", "content": blocks(parts), **more})

    def answer(self, id_: str, parent: str | None, *parts: Any, **more: Any) -> Json:
        message = {"role": "assistant", "content": blocks(parts), "model": "m", "stopReason": "stop"} | more
        return self.entry("message", id_, parent, message=message)

    def call(self, id_: str, **arguments: Any) -> Json:
        return {"type": "toolCall", "id": id_, "name": self.tool, "arguments": arguments}

    def result(
        self, id_: str, parent: str | None, call: str, output: str = "7", *, failed: bool = False
    ) -> Json:
        message = {"role": "toolResult", "toolCallId": call, "toolName": self.tool, "isError": failed}
        return self.entry("message", id_, parent, message=message | {"content": blocks([output])})


class QwenCode(Rows):
    """Qwen Code: results are rows of their own type. `more` goes into the row."""

    importer = qwen_code.QWEN_CODE

    def row(self, kind: str, id_: str, parent: str | None, **more: Any) -> Json:
        """A row of the tree."""
        ids = {"uuid": id_, "parentUuid": parent, "sessionId": "s", "timestamp": TIME}
        return {**ids, "type": kind, "version": "0.15.10", **more}

    def user(self, id_: str, parent: str | None, *parts: Any, **more: Any) -> Json:
        return self.row("user", id_, parent, message={"role": "user", "parts": self.parts(parts)}, **more)

    def answer(self, id_: str, parent: str | None, *parts: Any, **more: Any) -> Json:
        message = {"role": "model", "parts": self.parts(parts)}
        return self.row("assistant", id_, parent, message=message, model="m", **more)

    def parts(self, parts: Sequence[Any]) -> list[Any]:
        """Parts of a message."""
        return [{"text": part} if isinstance(part, str) else part for part in parts]

    def call(self, id_: str, **arguments: Any) -> Json:
        return {"functionCall": {"id": id_, "name": self.tool, "args": arguments}}

    def result(
        self, id_: str, parent: str | None, call: str, output: str = "7", *, failed: bool = False
    ) -> Json:
        kept = {"error" if failed else "output": output}
        return self.returned(id_, parent, call, kept, "error" if failed else "success")

    def returned(
        self, id_: str, parent: str | None, call: str, response: Any, status: str = "success"
    ) -> Json:
        """A row with the result of a call, as the model was sent it, and its status."""
        part = {"functionResponse": {"id": call, "name": self.tool, "response": response}}
        kept = {"callId": call, "status": status}
        message = {"role": "user", "parts": [part]}
        return self.row("tool_result", id_, parent, message=message, toolCallResult=kept)


class Codex:
    """Rows of a rollout of Codex: items of responses, and events of the screen."""

    importer: ClassVar[Importer] = CODEX_IMPORTER

    def row(self, kind: str, **payload: Any) -> Json:
        """A row in its envelope."""
        return {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}

    def item(self, kind: str, **payload: Any) -> Json:
        """A response item."""
        return self.row("response_item", type=kind, **payload)

    def event(self, kind: str, **payload: Any) -> Json:
        """What the screen showed."""
        return self.row("event_msg", type=kind, **payload)

    def message(self, role: str, text: str) -> Json:
        """A message of a role."""
        return self.item("message", role=role, content=[{"type": "output_text", "text": text}])

    def call(self, id_: str, arguments: str = "{}", name: str = "shell") -> Json:
        """A call of a function."""
        return self.item("function_call", name=name, call_id=id_, arguments=arguments)

    def result(self, id_: str, output: Any = "done") -> Json:
        """A function's output."""
        return self.item("function_call_output", call_id=id_, output=output)

    def tokens(self, entry: int, output: int, cached: int = 0) -> Json:
        """A cumulative counter."""
        total = {"input_tokens": entry, "cached_input_tokens": cached, "output_tokens": output}
        return self.event("token_count", info={"total_token_usage": total, "last_token_usage": total})


class CopilotCli:
    """Events of a session of Copilot CLI."""

    importer: ClassVar[Importer] = copilot_cli.COPILOT_CLI

    def event(self, kind: str, agent: str = "", **data: Any) -> Json:
        """An event, of a subagent if `agent` names one."""
        ids = {"id": "e", "timestamp": TIME, "parentId": None} | ({"agentId": agent} if agent else {})
        return {"type": kind, "data": data, **ids}

    def user(self, text: str = "go", **data: Any) -> Json:
        """A prompt."""
        return self.event("user.message", content=text, **data)

    def answer(self, text: str = "", *calls: str, **data: Any) -> Json:
        """A row of an answer."""
        asked = [{"toolCallId": call, "name": "bash", "arguments": {"z": 1, "a": 2}} for call in calls]
        return self.event("assistant.message", content=text, toolRequests=asked, **{"messageId": "m", **data})

    def result(self, call: str, output: str = "7", **data: Any) -> Json:
        """The result of a call."""
        given: Json = {"success": True, "result": {"content": output}} | data
        return self.event("tool.execution_complete", toolCallId=call, **given)


CODEX, COPILOT_CLI = Codex(), CopilotCli()
DROID, PI, QWEN_CODE = Droid("Execute"), Pi("bash"), QwenCode("run")
TREES: tuple[Rows, ...] = (DROID, PI, QWEN_CODE)


def row(kind: str, number: int, **message: Any) -> str:
    """A line of a session."""
    head = {"type": kind, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None}
    rest = {"sessionId": "s", "version": "2.0.0", "timestamp": f"2026-01-01T00:00:{number:02}Z"}
    return json.dumps({**head, **rest, "isSidechain": False, "cwd": "/srv", "message": message}) + "\n"


def session(*said: str) -> str:
    """A session in which a person says things and the model answers."""
    lines: list[str] = []
    for place, text in enumerate(said):
        content = [{"type": "text", "text": f"re: {text}"}]
        usage = {"input_tokens": 10, "output_tokens": 2}
        lines.append(row("user", 2 * place, role="user", content=text))
        answer = {"role": "assistant", "id": f"m{place}", "model": "x", "content": content, "usage": usage}
        lines.append(row("assistant", 2 * place + 1, **answer))
    return "".join(lines)


def documents(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]
