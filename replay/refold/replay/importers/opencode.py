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
from refold.replay.importers.cuts import ALL, Cut, since
from refold.replay.importers.documents import ANY, beginning, document
from refold.replay.importers.fields import JSON, as_written, at, instant, json_text, number, rows, table, text
from refold.replay.importers.items import (
    UNKNOWN_PART,
    Counted,
    Item,
    Place,
    RunBegan,
)
from refold.replay.importers.leftovers import (
    rest,
    take,
    take_cost,
    take_each,
    take_if,
    take_part,
    take_rows,
    take_text,
    take_words,
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
_DONE = ("completed", "error")


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
        yield run.ended


OPENCODE = OpenCode()


class _Run:
    """A session, and where its messages stand. `standing`: how many of them nobody took back."""

    def __init__(self, value: JSON) -> None:
        self.value, self.info = value, at(value, "info")
        listed = isinstance(value, list)
        self.messages = rows(value) if listed else take_rows(value, "messages")
        self.place = "$" if listed else "$.messages"
        self.ids = [text(message, "info", "id") for message in self.messages]
        first = next(iter(self.messages), None)
        self.key = text(self.info, "id") or text(first, "info", "sessionID") or "session"
        taken = text(self.info, "revert", "messageID")
        self.standing = self.ids.index(taken) if taken and taken in self.ids else len(self.ids)
        # The message itself stays where only some parts of it were taken back.
        self.standing += bool(text(self.info, "revert", "partID"))
        self.ended = self._ended()

    def items(self) -> Iterator[Item]:
        """All of it but its end."""
        models = (text(message, "info", "modelID") for message in self.messages)
        take_if(self.info, "id", self.key)
        labels = {name: label for name in _LABELS if (label := take_text(self.info, name))}
        yield RunBegan(
            "$.info" if self.info else "$",
            instant(at(self.info, "time", "created")),
            rest(table(self.value)),
            key=self.key,
            model=next(filter(None, models), ""),
            agent="opencode",
            cuts=None,
            labels=labels,
        )
        for index, message in enumerate(self.messages):
            created = instant(at(message, "info", "time", "created"))
            where = Place(f"{self.place}[{index}]", created, row=index + 1)
            if index >= self.standing:
                whole, counts = json_text(message), counted(_message(message, where, self.key))
                yield where.counting(counts).remarked("rewound", rest=whole)
            else:
                summed_up = at(message, "info", "summary") is True and not table(message, "info", "error")
                yield from _message(message, where, self.key)
                if summed_up:
                    yield self._compacted(message, where)

    def _compacted(self, message: JSON, where: Place) -> Item:
        """What a summary leaves: the prompt that asked for it, itself, and before them what was to stay."""
        asked = self._index(text(message, "info", "parentID"))
        parts = rows(self.messages[asked], "parts") if asked is not None else ()
        tails = (self._index(text(part, "tail_start_id")) for part in parts)
        first = next((place for place in tails if place is not None), asked)
        tail = ALL if first is None else since(first + 1)
        return Cut(*where.common(), why="compaction", tail=tail)

    def _index(self, id_: str) -> int | None:
        return self.ids.index(id_) if id_ and id_ in self.ids else None

    def _ended(self) -> Item:
        """How it ended."""
        told = (at(message, "info", "time") for message in self.messages)
        said = [count for time in told for name in ("created", "completed") if (count := number(time, name))]
        place = Place(f"{self.place}[{len(self.ids) - 1}]" if self.ids else self.place)
        return place.ended(self._end(), (str(min(said)), str(max(said))) if said else None)

    def _end(self) -> tuple[str, str]:
        last = self.messages[self.standing - 1] if self.messages[: self.standing] else None
        error, finish = text(last, "info", "error", "name"), text(last, "info", "finish")
        tools = [part for part in rows(last, "parts") if text(part, "type") == "tool"]
        pending = sum(text(part, "state", "status") not in _DONE for part in tools)
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


def _message(message: JSON, where: Place, session: str) -> Iterator[Item]:
    parts = rows(message, "parts")
    strange = sorted({text(part, "type") for part in parts} - {*_SAYS, *_BESIDE})
    if strange or not isinstance(at(message, "parts"), list):
        told = ", ".join(kind[:40] or "none" for kind in strange[:5])
        yield where.unread(UNKNOWN_PART, f"parts of a message that are not known here: {told}")
    match text(message, "info", "role"):
        case "user":
            typed = any(text(part, "type") == "text" and at(part, "synthetic") is not True for part in parts)
            said = "\n".join([take_part(part) for part in parts if _is_shown(part)])
            take(message, "info", "role")
            rest_ = _left_of(message, session, text(message, "info", "id"))
            yield where.said(said, "user" if typed else "harness", rest=rest_)
        case "assistant":
            yield from _answer(message, where, session)
        case _:
            yield where.remarked("unmapped", message, known=False)


def _answer(message: JSON, where: Place, session: str) -> Iterator[Item]:
    info, steps = at(message, "info"), _steps(message)
    name, problem = text(info, "error", "name"), text(info, "error", "data", "message")
    told = [item for step in steps for item in (_response(info, step, where), *_results(step, where))]
    if told:
        failed = None if name in ("", _ABORTED) else where.remarked("error", take(info, "error"))
        id_ = take_text(info, "id")
        take_text(info, "modelID")
        take(info, "role")
        yield replace(told[0], rest=_left_of(message, session, id_))
        yield from told[1:]
        if failed:
            yield failed
    if name == _ABORTED:
        yield where.cancelled(problem, rest="" if told else json_text(message))
    elif name and not told:
        status = number(info, "error", "data", "statusCode")
        yield where.failed(problem or name, status=status, rest=json_text(message))
    elif not told:
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


def _response(info: JSON, step: Step, where: Place) -> Item:
    finish = _finish(step)
    said, why = (finish, "reason") if finish else (info, "finish")
    place = replace(where, at=_whole(step) or instant(at(info, "time", "completed")) or where.at)
    for name, same in (("tokens", "tokens"), ("cost", "cost"), ("finish", "reason")):
        take_if(info, name, *([at(finish, same)] if finish else []))
    take_if(finish, "type", "step-finish")
    return place.answered(
        _take_said(step),
        _take_usage(said, counted=finish is not None),
        stop="" if text(said, why) == "unknown" else take_text(said, why),
        cost=take_cost(said, "cost") if at(said, "cost") else None,  # 0 where it knows no price
        model=text(info, "modelID"),
        response=text(info, "id"),
    )


def _whole(step: Step) -> int | None:
    """When a response had been said: its message is complete only once its tools are, too."""
    ends = (instant(at(part, "time", "end")) for _, part in step)
    calls = (instant(at(part, "state", "time", "start")) for _, part in step)
    return max((time for time in (*ends, *calls) if time is not None), default=None)


def _take_usage(said: JSON, *, counted: bool) -> Usage | None:
    """The usage of a response; None where it broke off before anybody counted."""
    used = _TOKENS.of(at(said, "tokens"))
    if used is None or (not counted and used == Usage()):
        return None
    _TOKENS.take(said, "tokens")
    return replace(used, output=used.output + used.reasoning)


def _take_said(step: Step) -> Message:
    """What a response says, thinks and asks for; of its calls their arguments are taken."""
    texts, thoughts, calls = list[str](), list[str](), list[MessageCall]()
    for _, part in step:
        match text(part, "type"):
            case "text":
                texts.append(take_part(part))
            case "reasoning":
                thoughts.append(take_text(part, "text"))
                take(part, "type")
            case "tool":
                given = as_written(take(part, "state", "input"))
                calls.append(MessageCall(text(part, "callID"), text(part, "tool"), given))
            case _:
                take_if(part, "type", "step-start")
    said, thought = "\n".join(texts), "\n".join(thoughts)
    return Message(role=Role.ASSISTANT, text=said, reasoning=thought, calls=tuple(calls))


def _results(step: Step, where: Place) -> Iterator[Item]:
    for index, part in step:
        if text(part, "type") != "tool":
            continue
        take(part, "type")
        call, name, state = take_text(part, "callID"), take_text(part, "tool"), take(part, "state")
        begun, ended = (instant(at(state, "time", name)) for name in ("start", "end"))
        place = replace(where, position=f"{where.position}.parts[{index}]", at=ended or where.at)
        if text(state, "status") not in _DONE:
            yield place.remarked("unanswered", rest=json_text(state))
            continue
        error = _error(state)
        take_if(state, "status", "completed")
        yield place.counting(Counted(results=1, errors=error is not None)).returned(
            call,
            _take_output(state),
            name=name,
            failed=error or False,
            duration=max(0, ended - begun) if begun and ended else 0,
            rest=rest(state),
        )


def _take_output(state: JSON) -> str:
    """What the model is shown of a result."""
    if text(state, "status") != "error":
        return take_words(state, "output")
    if at(state, "metadata", "interrupted") is True:
        return take_text(state, "metadata", "output")
    return take_words(state, "error")


def _error(state: JSON) -> ToolError | None:
    if text(state, "status") != "error":
        return None
    stopped = at(state, "metadata", "interrupted") is True or text(state, "error") == _NOT_RUN
    return ToolError.CANCELLED if stopped else ToolError.RAISED


def _is_shown(part: JSON) -> bool:
    """Whether the model is shown a part of a person's message."""
    match text(part, "type"):
        case "text":
            return at(part, "ignored") is not True
        case "file":  # the text of others stands in parts of their own
            return text(part, "mime") not in _AS_TEXT
        case kind:
            return kind in ("compaction", "subtask")


def _left_of(message: JSON, session: str, id_: str) -> str:
    """JSON text of what is left of a message beside the ids that its parts have of it and of its session."""
    for part in take_each(message, "parts"):
        take_if(part, "sessionID", session)
        take_if(part, "messageID", id_)
    take_if(at(message, "info"), "sessionID", session)
    take_if(message, "info", {})
    return rest(message)
