"""The conversation of a Claude Code session as its next answer is shown it, kept for what cuts it: compactions."""

import msgspec

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role
from refold.replay.importers.call_ids import (
    messages,
)
from refold.replay.importers.claude_code.answers import Response
from refold.replay.importers.fields import JSON, rows, text

CLEARED = "[Old tool result content cleared]"
"""What a microcompaction leaves of a result, in the CLI's words; the session names the calls, not the words."""


class Conversation:
    """Messages in order, each with the uuid of its row."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Message | Response]] = []
        self.kept: list[tuple[str, Message | Response]] = []

    def add(self, uuid: str, said: Message | Response) -> None:
        """One message more."""
        self.said.append((uuid, said))

    def keep(self, boundary: JSON) -> None:
        """Note what a compaction says it keeps behind its summary, by `preservedMessages` or `preservedSegment`."""
        preserved = rows(boundary, "compactMetadata", "preservedMessages", "uuids")
        named = {uuid for uuid in preserved if isinstance(uuid, str)}
        head = text(boundary, "compactMetadata", "preservedSegment", "headUuid")
        tail = text(boundary, "compactMetadata", "preservedSegment", "tailUuid")
        places = [place for place, said in enumerate(self.said) if _is_of(said, {head, tail} - {""})]
        segment = self.said[places[0] : places[-1] + 1] if places and not named else []
        self.kept = [said for said in self.said if _is_of(said, named)] if named else segment

    def compact(self, uuid: str, summary: str) -> None:
        """Replace all by a summary and what the compaction kept."""
        self.said = [(uuid, Message(role=Role.USER, text=summary)), *self.kept]
        self.kept = []

    def clear(self, boundary: JSON) -> bool:
        """Clear the results that a microcompaction names, in place. Whether there was one."""
        ids = {
            call
            for call in rows(boundary, "microcompactMetadata", "compactedToolIds")
            if isinstance(call, str)
        }
        before = self.said
        self.said = [(uuid, _cleared(said, ids)) for uuid, said in before]
        return any(was is not now for (_, was), (_, now) in zip(before, self.said, strict=True))

    def messages(self) -> tuple[Message, ...]:
        """The messages that an answer is shown from here on."""
        return messages(
            tuple(said.message() if isinstance(said, Response) else said for _, said in self.said)
        )


def _is_of(said: tuple[str, Message | Response], uuids: set[str]) -> bool:
    """Whether a message is one of these rows; an answer has several."""
    uuid, message = said
    return bool(message.uuids & uuids) if isinstance(message, Response) else uuid in uuids


def _cleared(said: Message | Response, ids: set[str]) -> Message | Response:
    if isinstance(said, Message) and said.role is Role.TOOL and said.call in ids:
        return msgspec.structs.replace(said, text=CLEARED)
    return said
