"""OpenCode sessions as it exports them: `{info, messages: [{info, parts}]}`, or the list of messages alone.

What was called and what came of it are one part, `tool`, with its state. A message is one response as a rule; where more
than one `step-finish` stands in it, it is as many. A message that fails before anything of it arrived is a failed request.

A compaction is a part of a person's message, and the answer with `summary` behind it: later requests show that, and what
stands before it from `tail_start_id` on. What a person took back stands from `revert` of the session on until the next
prompt drops it: it is counted, and kept beside the log.

Counted: messages by their role, an answer for each response; results have no messages of their own. Tokens as each
`step-finish` tells them; there the input leaves out what was cached, and the output what was thought. Times are milliseconds.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.call_ids import messages
from refold.replay.importers.content import words
from refold.replay.importers.documents import ANY, beginning, document
from refold.replay.importers.fields import (
    JSON,
    as_written,
    at,
    instant,
    json_text,
    left,
    nano_usd,
    number,
    rows,
    table,
    text,
)
from refold.replay.importers.items import (
    UNKNOWN_PART,
    Answered,
    Counted,
    Item,
    Place,
    Returned,
    RunBegan,
    Said,
    message_of,
)
from refold.replay.importers.protocol import Match
from refold.replay.importers.source import BadTranscript, Source
from refold.replay.importers.tallies import counted
from refold.replay.importers.usages import UsageNames

_TOKENS = UsageNames(
    input=("input",),
    output=("output",),
    cache_read=("cache/read",),
    cache_write=("cache/write",),
    reasoning=("reasoning",),
    beside=True,
)
_ABORTED = "MessageAbortedError"
_NOT_RUN = "Tool execution aborted"
_SAYS = ("text", "reasoning", "tool")
_BESIDE = (
    "step-start",
    "step-finish",
    "snapshot",
    "patch",
    "file",
    "agent",
    "subtask",
    "retry",
    "compaction",
)
_AS_TEXT = ("text/plain", "application/x-directory")
_LABELS = ("version", "agent", "parentID")
_TOLD = ("id", "sessionID", "role", "modelID", "finish", "tokens", "cost")
_TOLD_OF_PART = {"step-finish": ("reason", "tokens", "cost"), "tool": ("callID", "tool", "state")}


class OpenCode:
    """The importer of OpenCode's exports."""

    name = "opencode"

    def match(self, source: Source) -> Match | None:
        """By messages with parts of a session, or by the session's own header."""
        head = beginning(source)
        first = at(head, 0) if isinstance(head, list) else at(head, "messages", 0)
        if {"info", "parts"} <= table(first).keys() and text(first, "info", "role"):
            return Match(95, "messages with info and parts")
        if {"id", "projectID", "directory"} <= table(head, "info").keys():
            return Match(80, "info of a session")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the document."""
        read = document(source, ("messages",), ("messages", ANY, "parts"), (), (ANY, "parts"))
        run = _Run(read.value)
        if not (run.messages or read.problem or "info" in table(read.value)):
            raise BadTranscript(source.name, "$", "no session and no messages in it")
        yield from run.items()
        # What could not be read is told before the end.
        yield from read.cut()
        yield run.ended()


OPENCODE = OpenCode()


class _Run:
    """A session, and where its messages stand. `standing`: how many of them nobody took back."""

    def __init__(self, value: JSON) -> None:
        self.info = at(value, "info")
        listed = isinstance(value, list)
        self.messages = rows(value) if listed else rows(value, "messages")
        self.place = "$" if listed else "$.messages"
        self.ids = [text(message, "info", "id") for message in self.messages]
        taken = text(self.info, "revert", "messageID")
        self.standing = self.ids.index(taken) if taken and taken in self.ids else len(self.ids)
        # The message itself stays where only some parts of it were taken back.
        self.standing += bool(text(self.info, "revert", "partID"))
        self.talk: list[tuple[int, Message]] = []

    def items(self) -> Iterator[Item]:
        """All of it but its end."""
        rest = left(self.info, "id", *_LABELS)
        models = (text(message, "info", "modelID") for message in self.messages)
        yield RunBegan(
            "$.info" if self.info else "$",
            instant(at(self.info, "time", "created")),
            json_text(rest) if rest else "",
            key=text(self.info, "id")
            or text(next(iter(self.messages), None), "info", "sessionID")
            or "session",
            model=next(filter(None, models), ""),
            agent="opencode",
            labels={name: label for name in _LABELS if (label := text(self.info, name))},
        )
        for index, message in enumerate(self.messages):
            where = Place(f"{self.place}[{index}]", instant(at(message, "info", "time", "created")))
            if index >= self.standing:
                yield where.counting(counted(_message(message, where))).remarked("rewound", message)
            else:
                for item in _message(message, where):
                    self.talk += (
                        [(index, message_of(item))] if isinstance(item, Said | Answered | Returned) else []
                    )
                    yield item
                yield from self._compacted(message, where)

    def _compacted(self, message: JSON, where: Place) -> Iterator[Item]:
        """What a summary leaves: the prompt that asked for it, itself, and before them what was to stay."""
        info = at(message, "info")
        if at(info, "summary") is not True or table(info, "error"):
            return
        asked = self._index(text(info, "parentID"))
        parts = rows(self.messages[asked], "parts") if asked is not None else ()
        tails = (self._index(text(part, "tail_start_id")) for part in parts)
        first = next((place for place in tails if place is not None), asked)
        self.talk = [(place, said) for place, said in self.talk if first is None or place >= first]
        yield where.prompted(messages([said for _, said in self.talk]), "compaction")

    def _index(self, id_: str) -> int | None:
        return self.ids.index(id_) if id_ and id_ in self.ids else None

    def ended(self) -> Item:
        """How it ended."""
        told = (at(message, "info", "time") for message in self.messages)
        said = [count for time in told for name in ("created", "completed") if (count := number(time, name))]
        place = Place(f"{self.place}[{len(self.ids) - 1}]" if self.ids else self.place)
        return place.ended(self._end(), (str(min(said)), str(max(said))) if said else None)

    def _end(self) -> tuple[str, str]:
        last = self.messages[self.standing - 1] if self.messages[: self.standing] else None
        error, finish = text(last, "info", "error", "name"), text(last, "info", "finish")
        tools = [part for part in rows(last, "parts") if text(part, "type") == "tool"]
        pending = sum(_output(part) is None for part in tools)
        match text(last, "info", "role"):
            case "assistant" if error:
                return "cancelled" if error == _ABORTED else "error", f"last answer: {error[:60]}"
            case "assistant" if pending:
                return "open", f"{pending} tool call(s) without result at the end"
            case "assistant" if finish == "length":
                return "limit:token", "last answer: finish=length"
            case "assistant" if not finish:
                return "open", "last answer has no finish: cut while it was being written"
            case "assistant" if finish == "tool-calls" or (tools and finish != "stop"):
                return "open", f"last answer asks for tools, finish={finish[:20]}"
            case "assistant":
                return "finished", f"last answer: finish={finish[:20]}"
            case "user":
                return "open", "last message is a prompt, no answer after it"
            case _:
                return "open", "no message in it"


def _message(message: JSON, where: Place) -> Iterator[Item]:
    parts = rows(message, "parts")
    strange = sorted({text(part, "type") for part in parts} - {*_SAYS, *_BESIDE})
    if strange or not isinstance(at(message, "parts"), list):
        told = ", ".join(kind[:40] or "none" for kind in strange[:5])
        yield where.unread(UNKNOWN_PART, f"parts of a message that are not known here: {told}")
    match text(message, "info", "role"):
        case "user":
            typed = any(text(part, "type") == "text" and at(part, "synthetic") is not True for part in parts)
            yield where.said(_words(message), "user" if typed else "harness", rest=_rest(message))
        case "assistant":
            yield from _answer(message, where)
        case _:
            yield where.remarked("unmapped", message, known=False)


def _answer(message: JSON, where: Place) -> Iterator[Item]:
    info, steps = at(message, "info"), _steps(message)
    name, problem = text(info, "error", "name"), text(info, "error", "data", "message")
    for step in steps:
        yield _response(info, step, where, rest=_rest(message) if step is steps[0] else "")
        yield from _results(step, where)
    if name == _ABORTED:
        yield where.cancelled(problem, rest="" if steps else json_text(message))
    elif name and steps:
        yield where.remarked("error", at(info, "error"))
    elif name:
        status = number(info, "error", "data", "statusCode")
        yield where.failed(problem or name, status=status, rest=json_text(message))
    elif not steps:
        yield where.remarked("unmapped", message)


Step = list[tuple[int, JSON]]
"""The parts of one response, each with its place in the message."""


def _steps(message: JSON) -> list[Step]:
    """The responses of a message that say something: what stands behind a `step-finish` is of another."""
    steps: list[Step] = [[]]
    for place, part in enumerate(rows(message, "parts")):
        if _finish(steps[-1]) and text(part, "type") in ("step-start", *_SAYS):
            steps.append([])
        steps[-1].append((place, part))
    return [step for step in steps if any(text(part, "type") in (*_SAYS, "step-finish") for _, part in step)]


def _finish(step: Step) -> JSON:
    return next((part for _, part in step if text(part, "type") == "step-finish"), None)


def _response(info: JSON, step: Step, where: Place, *, rest: str) -> Item:
    finish = _finish(step)
    stop = text(finish, "reason") if finish else text(info, "finish")
    return replace(where, at=_whole(step) or instant(at(info, "time", "completed")) or where.at).answered(
        _said(step),
        _usage(at(finish or info, "tokens"), counted=finish is not None),
        stop="" if stop == "unknown" else stop,
        cost=nano_usd(at(finish or info, "cost")) or None,  # 0 where it knows no price
        model=text(info, "modelID"),
        response=text(info, "id"),
        rest=rest,
    )


def _whole(step: Step) -> int | None:
    """When a response had been said: its message is complete only once its tools are, too."""
    ends = (instant(at(part, "time", "end")) for _, part in step)
    calls = (instant(at(part, "state", "time", "start")) for _, part in step)
    return max((time for time in (*ends, *calls) if time is not None), default=None)


def _usage(tokens: JSON, *, counted: bool) -> Usage | None:
    """The usage of a response; None where it broke off before anybody counted."""
    used = _TOKENS.of(tokens)
    if used is None or (not counted and used == Usage()):
        return None
    return replace(used, output=used.output + used.reasoning)


def _said(step: Step) -> Message:
    texts, thoughts = (
        "\n".join(text(part, "text") for _, part in step if text(part, "type") == kind) for kind in _SAYS[:2]
    )
    calls = tuple(
        MessageCall(text(part, "callID"), text(part, "tool"), as_written(at(part, "state", "input")))
        for _, part in step
        if text(part, "type") == "tool"
    )
    return Message(role=Role.ASSISTANT, text=texts, reasoning=thoughts, calls=calls)


def _results(step: Step, where: Place) -> Iterator[Item]:
    for index, part in step:
        if text(part, "type") != "tool":
            continue
        state, output, error = at(part, "state"), _output(part), _error(at(part, "state"))
        begun, ended = (instant(at(state, "time", name)) for name in ("start", "end"))
        place = Place(f"{where.position}.parts[{index}]", ended or where.at)
        rest = json_text(left(state, "input", "output", "error"))
        if output is None:
            yield place.remarked("unanswered", rest=rest)
            continue
        yield place.counting(Counted(results=1, errors=error is not None)).returned(
            text(part, "callID"),
            output,
            name=text(part, "tool"),
            error=error,
            duration=max(0, ended - begun) if begun and ended else 0,
            rest=rest,
        )


def _output(part: JSON) -> str | None:
    """What the model is shown of a result, None where there is none."""
    state = at(part, "state")
    match text(state, "status"):
        case "completed":
            return words(at(state, "output"))
        case "error" if at(state, "metadata", "interrupted") is True:
            return text(state, "metadata", "output")
        case "error":
            return words(at(state, "error"))
        case _:
            return None


def _error(state: JSON) -> ToolError | None:
    if text(state, "status") != "error":
        return None
    stopped = at(state, "metadata", "interrupted") is True or text(state, "error") == _NOT_RUN
    return ToolError.CANCELLED if stopped else ToolError.RAISED


def _words(message: JSON) -> str:
    """The text of a person's message as the model is shown it; what is no text stands as `[kind]`."""
    return words([part for part in rows(message, "parts") if _is_shown(part)])


def _is_shown(part: JSON) -> bool:
    match text(part, "type"):
        case "text":
            return at(part, "ignored") is not True
        case "file":  # the text of others stands in parts of their own
            return text(part, "mime") not in _AS_TEXT
        case kind:
            return kind in ("compaction", "subtask")


def _rest(message: JSON) -> str:
    """JSON text of what no item says of a message."""
    parts: list[JSON] = []
    for part in rows(message, "parts"):
        told = _TOLD_OF_PART.get(text(part, "type"), ("text",) if _says_all(part) else ())
        if rest := left(part, "id", "sessionID", "messageID", "type", *told):
            parts.append({"type": text(part, "type"), **rest})
    rest = left(at(message, "info"), *_TOLD)
    return json_text({**rest, "parts": parts} if parts else rest) if rest or parts else ""


def _says_all(part: JSON) -> bool:
    return text(part, "type") in _SAYS and at(part, "ignored") is not True
