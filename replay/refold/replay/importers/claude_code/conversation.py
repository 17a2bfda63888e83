"""The conversation of a Claude Code session as its next answer is shown it, kept for what cuts it: compactions, and forks."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role
from refold.replay.importers.call_ids import messages
from refold.replay.importers.claude_code.answers import Response
from refold.replay.importers.fields import JSON, rows, text

CLEARED = "[Old tool result content cleared]"
"""What a microcompaction leaves of a result, in the CLI's words; the session names the calls, not the words."""


class Spoken(msgspec.Struct):
    """A message and the uuids of its rows. An answer stands for itself until its rows are all read."""

    uuids: Collection[str]
    said: Message | Response


class Fork(NamedTuple):
    """What was said up to a row, at `position`: the first `upto` of `said`, to which more may be added."""

    position: str = ""
    said: Sequence[Spoken] = ()
    upto: int = 0


class Conversation:
    """Messages in order, from a fork on. A cut begins another list, so that a fork stays what it was."""

    def __init__(self, fork: Fork) -> None:
        self._said = list(fork.said[: fork.upto])
        self._kept: list[Spoken] = []
        self._answers: dict[Response, Spoken] = {}
        self._closed = False

    def close(self) -> None:
        """Nobody asks any more what was said: nothing is held."""
        if not self._closed:
            self._said, self._answers, self._closed = [], {}, True

    def add(self, uuid: str, said: Message) -> None:
        """One message more."""
        if not self._closed:
            self._said.append(Spoken((uuid,), said))

    def begin(self, answer: Response) -> None:
        """An answer of which more rows may follow, until it is settled."""
        if not self._closed:
            self._answers[answer] = Spoken(answer.uuids, answer)
            self._said.append(self._answers[answer])

    def settle(self, answer: Response) -> None:
        """An answer is complete: its rows are not held any longer."""
        if spoken := self._answers.pop(answer, None):
            spoken.uuids, spoken.said = tuple(answer.uuids), answer.message()

    def fork(self, position: str) -> Fork:
        """What was said up to the row there."""
        return Fork(position, self._said, len(self._said))

    def keep(self, boundary: JSON) -> None:
        """Note what a compaction says it keeps behind its summary, by `preservedMessages` or `preservedSegment`."""
        preserved = rows(boundary, "compactMetadata", "preservedMessages", "uuids")
        named = {uuid for uuid in preserved if isinstance(uuid, str)}
        head = text(boundary, "compactMetadata", "preservedSegment", "headUuid")
        tail = text(boundary, "compactMetadata", "preservedSegment", "tailUuid")
        places = [place for place, said in enumerate(self._said) if _is_of(said, {head, tail} - {""})]
        segment = self._said[places[0] : places[-1] + 1] if places and not named else []
        self._kept = [said for said in self._said if _is_of(said, named)] if named else segment

    def compact(self, uuid: str, summary: str) -> None:
        """Replace all by a summary and what the compaction kept."""
        self._said = [Spoken((uuid,), Message(role=Role.USER, text=summary)), *self._kept]
        self._kept = []

    def clear(self, boundary: JSON) -> bool:
        """Clear the results that a microcompaction names, in place. Whether there was one."""
        ids = {
            call
            for call in rows(boundary, "microcompactMetadata", "compactedToolIds")
            if isinstance(call, str)
        }
        before = self._said
        self._said = [_cleared(said, ids) for said in before]
        return any(was is not now for was, now in zip(before, self._said, strict=True))

    def messages(self) -> tuple[Message, ...]:
        """The messages that an answer is shown from here on."""
        found = (spoken.said for spoken in self._said)
        return messages(tuple(said.message() if isinstance(said, Response) else said for said in found))


def _is_of(spoken: Spoken, uuids: set[str]) -> bool:
    """Whether a message is one of these rows; an answer has several."""
    return any(uuid in uuids for uuid in spoken.uuids)


def _cleared(spoken: Spoken, ids: set[str]) -> Spoken:
    said = spoken.said
    if isinstance(said, Message) and said.role is Role.TOOL and said.call in ids:
        return Spoken(spoken.uuids, msgspec.structs.replace(said, text=CLEARED))
    return spoken
