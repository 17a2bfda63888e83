"""Items of a transcript, and the log that is derived of them, as a person would write both down."""

from collections.abc import Iterable, Sequence

from refold.importers.derivation.derivation import Derivation
from refold.importers.derivation.log import Derived, TranscriptOrigin
from refold.importers.items import (
    Answered,
    Item,
    Prompted,
    Returned,
    RunBegan,
    RunEnded,
    Said,
)
from refold.reducers import codec
from refold.reducers.events import Event, kind_of
from refold.reducers.folds import fold
from refold.reducers.messages import Message, MessageCall
from refold.reducers.state import RunState
from refold.reducers.views import view
from refold.reducers.vocabulary import Refuser, Role, ToolError
from refold.replay.audit import Audit
from support import audits
from support.transcripts import salts

ORIGIN = TranscriptOrigin("test", "a.jsonl", "0" * 64)
END = RunEnded(position="end", end="finished", end_source="it says so")


def began(*messages: Message, at: int | None = None) -> RunBegan:
    return RunBegan(position="head", at=at, key="k", messages=messages, model="m")


def said(text: str, role: Role = Role.USER, by: str = "user", at: int | None = None) -> Said:
    return Said(position=f"said {text}", at=at, text=text, role=role, by=by)


def answered(text: str = "", *calls: str, at: int | None = None) -> Answered:
    """An answer; a call is `id:name`."""
    asked = tuple(
        MessageCall(id=call.split(":")[0], name=call.split(":")[-1], arguments="{}") for call in calls
    )
    return Answered(position=f"answer {text}", at=at, text=text, calls=asked)


def returned(
    id: str,  # noqa: A002
    output: str,
    name: str = "",
    at: int | None = None,
    error: ToolError | None = None,
    by: Refuser | None = None,
) -> Returned:
    """A result, of which the source says how the call ended; `by`: who refused it."""
    position = f"result {output}"
    return Returned(
        position=position, at=at, id=id, output=output, name=name, marked=True, error=error, refused_by=by
    )


def prompted(*messages: Message, why: str = "prompt") -> Prompted:
    return Prompted(position="prompt", messages=messages, why=why)


def user(text: str) -> Message:
    return Message(role=Role.USER, text=text)


def system(text: str) -> Message:
    return Message(role=Role.SYSTEM, text=text)


def reply(text: str, *calls: str) -> Message:
    asked = tuple(MessageCall(call.split(":")[0], call.split(":")[-1], "{}") for call in calls)
    return Message(role=Role.ASSISTANT, text=text, calls=asked)


def result(id: str, text: str) -> Message:  # noqa: A002
    return Message(role=Role.TOOL, text=text, call=id)


def derived(items: Iterable[Item]) -> tuple[Derivation, list[Derived]]:
    """The log of these items, and who derived it."""
    deriving = Derivation("r", ORIGIN, salts)
    return deriving, [event for item in items for event in deriving.take(item)]


def events(log: Iterable[Derived]) -> list[Event]:
    """The events as they would be read again."""
    read: list[Event] = []
    for each in log:
        encoded = codec.encode(each.event)
        read.append(codec.decode(encoded.kind, encoded.body, encoded.content, run="r", seq=each.seq))
    return read


def audited(log: Sequence[Derived]) -> Audit:
    """What an audit says of the log."""
    return audits.audited(each.event for each in log)


def kinds(log: Iterable[Derived], *, without: Iterable[str] = ("source_recorded",)) -> list[str]:
    """The events' kinds in order."""
    return [kind for each in log if (kind := kind_of(each.event)) not in set(without)]


def shown(log: Sequence[Derived], upto: int | None = None) -> list[tuple[Role, str]]:
    """What the model is shown after event `upto`: role and text."""
    read = events(log)[:upto]
    state: RunState = fold(read)
    return [(message.role, message.text) for message in view(state, dict(enumerate(read, start=1)))]
