"""Codex rollouts: conversation items (`response_item`) and events of the user interface (`event_msg`).

Both record everything visible. Items are read as the conversation; events add what items lack: tokens,
aborts, policies, rollbacks. A response has no row of its own: it consists of the model's items up to the next
input, and its usage is the growth of the token counter after it. So a response waits for its usage until the
next one begins.
"""

import re
from collections import deque
from collections.abc import Iterator

from refold.importers.fields import JSON, at, json_text, labels_of, number, rows, table, take_text, text
from refold.importers.formats.codex.items import (
    CONTENT_FIELDS,
    ITEMS,
    TASK_EVENTS,
    Kind,
    Meter,
    author_of,
    call_of,
    encode_rest,
    end_of,
    failure,
    find_failure,
    is_from_user,
    is_known,
    item,
    kind,
    output,
    read_history_item,
    read_text,
    role_of,
    take_call,
    take_message_text,
    take_thought,
)
from refold.importers.items import UNCOUNTED, Answered, Counted, Item, Place, RunBegan, RunEnded
from refold.importers.registry import FormatMatch
from refold.importers.session import Draft, Session, SessionFormat
from refold.importers.session_rows import ALL, BEGINNING, Cut, Noise, Row, list_ranges, unread_parts
from refold.importers.source import Source, fits
from refold.reducers.messages import Message, Usage
from refold.reducers.source_marks import ASKED_FOR_SUMMARY, CALL_UNREAD, NO_SUMMARY, SYSTEM_LABEL
from refold.reducers.vocabulary import Role


class CodexResponse(Draft):
    """An unfinished response: items or its usage may follow. `counted_calls`: number of its new calls."""

    def __init__(self, first: Row, model: str) -> None:
        super().__init__(first)
        self.model, self.closed = model, False
        self.counted_calls = 0

    def add(self, row: Row, found: JSON) -> None:
        """Add an item to the response."""
        match kind(found):
            case "answer":
                self.texts.append(take_message_text(found))
            case "reasoning":
                self.thoughts.append(take_thought(found))
            case _:
                self.calls.append(take_call(found))
        self.grow(row, encode_rest(row, found))

    def to_item(self) -> Answered:
        """Return the response with its items so far."""
        # Each text row counts as a message; a response may have none, or several.
        counts = Counted(assistant=len(self.texts), calls=self.counted_calls, usage=self.usage)
        place = self.place.with_counts(counts)
        return place.reply(self.message(), self.usage, model=self.model, rest=self.rest)


_EVENTS = {
    "guardian_assessment": "guardrail",
    "context_compacted": "compaction",
    "exec_approval_request": "approval",
    "apply_patch_approval_request": "approval",
    "request_permissions": "approval",
    "turn_aborted": "turn_aborted",
    "sub_agent_activity": "subagent",
}
_HEADER = re.compile(rb'^\s*\{[^{}]*"type"\s*:\s*"session_meta"')
_ROWS = ("world_state", "token_usage_record", "inter_agent_communication_metadata")
"""Types of rows that are neither items nor events."""
_LOOK_AHEAD = 1000
"""Number of first rows that are searched for the session's header and its first turn."""


class _Codex(Session):
    """A reader of one rollout. `task` is the last task event, from which the end of the run follows."""

    id = ""
    looked = _LOOK_AHEAD

    def __init__(self, source: Source) -> None:
        self.turn: Row | None = None
        super().__init__(source)
        self.model = text(self.turn.value, "payload", "model") if self.turn else ""
        self.queue: deque[Item | Noise | CodexResponse] = deque()
        self.draft: CodexResponse | None = None
        self.meter = Meter()
        self.task: JSON = None
        self.seen_ids: dict[Kind, set[str]] = {"call": set(), "result": set()}
        self.seen_calls = set[str]()
        self.names: dict[str, str] = {}
        self.latest: CodexResponse | None = None

    def is_header(self, row: Row) -> bool:
        return text(row.value, "type") == "session_meta"

    def look(self, row: Row) -> None:
        self.turn = self.turn or (row if text(row.value, "type") == "turn_context" else None)

    def beside(self, noise: Noise) -> Iterator[Item | Noise]:
        self.queue.append(noise)
        yield from self._ready()

    def main(self, row: Row) -> Iterator[Item | Noise]:
        self._note(row)
        yield from self._ready()

    def pause(self) -> Iterator[Item | Noise]:
        self.draft = None
        yield from self._ready()

    def end(self, place: Place) -> RunEnded:
        return place.end(end_of(self.task), self.times.edges())

    def begin(self) -> RunBegan:
        head = self.head.value if self.head else None
        meta = at(head, "payload")
        key = text(meta, "id") or text(meta, "session_id") or "session"
        template = take_text(meta, "base_instructions", "text")
        base = template or take_text(meta, "instructions")
        labels = labels_of({key: text(meta, key) for key in ("cli_version", "originator", "cwd")})
        labels |= {SYSTEM_LABEL: "template"} if template else {}
        place = self.head.place if self.head else Place("line 1")
        self.times.see(at(head, "timestamp"), place.at)
        return RunBegan(
            place.position,
            place.at,
            rest=self.head.rest() if self.head else "",
            key=key,
            messages=(Message(role=Role.SYSTEM, text=base),) if base else (),
            cuts=None,
            model=self.model,
            agent="codex",
            labels=labels,
            unsaid=("cache_write_tokens",),
        )

    def _ready(self) -> Iterator[Item | Noise]:
        """Yield the queue up to the response that still waits for its usage."""
        while self.queue and self.queue[0] is not self.draft:
            first = self.queue.popleft()
            yield first.to_item() if isinstance(first, CodexResponse) else first

    def _note(self, row: Row) -> None:
        if (found := item(row.value)) is not None:
            self._item(row, found)
            return
        match text(row.value, "type"):
            case "event_msg":
                self._event(row)
            case "turn_context":
                self.model = text(row.value, "payload", "model") or self.model
                self.queue.append(row.remark("policy"))
            case "compacted":
                self._queue_compaction(row)
            case "session_meta":
                self.queue.append(row.remark("session"))
            case what:
                self.queue.append(row.noise(known=what in _ROWS or "record_type" in row.value))

    def _item(self, row: Row, found: JSON) -> None:
        what = kind(found)
        if what in CONTENT_FIELDS:
            self.queue.extend(unread_parts(row, found, CONTENT_FIELDS[what]))
        match what:
            case "answer" | "reasoning" | "call":
                self._answer(row, found)
            case "message":
                self._message(row, found)
            case "result":
                self._result(row, found)
            case "hosted":
                counts = Counted(calls=int(self._is_new("call", found)))
                self.queue.append(row.noise("hosted_call", counts=counts))
            case "other":
                self.queue.append(row.noise(known=text(found, "type") in ITEMS))

    def _answer(self, row: Row, found: JSON) -> None:
        if self.draft is None or self.draft.closed:
            self.draft = CodexResponse(row, self.model)
            self.queue.append(self.draft)
        self.latest = self.draft
        if kind(found) == "call":
            self.draft.counted_calls += self._is_new("call", found)
            name = text(found, "namespace") + text(found, "name")
            self.names[text(found, "call_id") or text(found, "id")] = name
        self.draft.add(row, found)
        fits(self.source.name, row.position, self.draft.size)

    def _is_new(self, what: Kind, found: JSON) -> bool:
        """Return whether a call or result has a new id; only then it counts."""
        name, before = text(found, "call_id") or text(found, "id"), self.seen_ids[what]
        new = not name or name not in before
        before.add(name)
        self.seen_calls.add(name)
        return new

    def _close(self) -> None:
        if self.draft is not None:
            self.draft.closed = True

    def _message(self, row: Row, found: JSON) -> None:
        self._close()
        role, who = role_of(found), author_of(found)
        approved = read_text(found).startswith("Approved command prefix") and role is Role.SYSTEM
        approval = row.remark("approval:approved") if approved else None
        content = take_message_text(found)
        self.queue.append(row.place.message(content, who, role=role, rest=encode_rest(row, found)))
        if approval is not None:
            self.queue.append(approval)

    def _result(self, row: Row, found: JSON) -> None:
        self._close()
        counts = None if self._is_new("result", found) else UNCOUNTED
        content = output(found)
        failed = find_failure(found, self.names.get(text(found, "call_id"), ""))
        call_id, _ = take_text(found, "call_id"), take_text(found, "output")
        place = row.place.with_counts(counts)
        self.queue.append(place.result(call_id, content, failed=failed, rest=encode_rest(row, found)))

    def _event(self, row: Row) -> None:
        payload = at(row.value, "payload")
        self.task = payload if text(payload, "type") in TASK_EVENTS else self.task
        match text(payload, "type"):
            case "token_count":
                self._tokens(row, payload)
            case "turn_aborted" if text(payload, "reason") in ("", "interrupted"):
                self._close()
                self.queue.append(row.place.cancellation(text(payload, "reason"), rest=json_text(row.value)))
            case "error" | "stream_error":
                self._close()
                failed, _, message = failure(payload)
                self.queue.append(row.place.failure(message, failed, rest=json_text(row.value)))
            case "thread_rolled_back":
                self._queue_rollback(row, number(payload, "num_turns") or 0)
            case what:
                called = call_of(payload)
                self.queue.append(
                    row.noise(_EVENTS.get(what, "unmapped"), known=bool(called) or is_known(what))
                )
                if called and called not in self.seen_calls and not is_from_user(payload):
                    self.seen_calls.add(called)
                    self.queue.append(
                        row.place.oddity(CALL_UNREAD, f"event {what[:40]} of a call without an item")
                    )

    def _tokens(self, row: Row, payload: JSON) -> None:
        grown = self.meter.growth(payload)
        if grown is not None and grown != Usage() and self.draft is not None and self.draft.usage is None:
            self.draft.usage, grown = grown, None
            self.draft = None
        self.queue.append(row.noise(counts=Counted(usage=grown)))

    def _queue_compaction(self, row: Row) -> None:
        """Queue a compaction: the recorded history after it, or only the summary in old versions."""
        self._close()
        history, place = rows(row.value, "payload", "replacement_history"), Place(row.position)
        summary = text(row.value, "payload", "message")
        alone = [place.message(summary, "harness")] if summary and not history else []
        joins = (*alone, *(told for part in history if (told := read_history_item(part, place)) is not None))
        self.queue.append(row.remark("compaction"))
        if history and not summary:
            self.queue.append(row.place.remark(NO_SUMMARY))
        elif self.latest is not None and self.latest.texts and "\n".join(self.latest.texts) in summary:
            self.queue.append(row.place.remark(ASKED_FOR_SUMMARY))
        self.queue.append(
            Cut(*row.place.common(), why="compaction", head=list_ranges([BEGINNING]), joins=joins)
        )

    def _queue_rollback(self, row: Row, turns: int) -> None:
        """Queue a rollback of the last user turns and everything after them."""
        self._close()
        self.queue.append(row.remark("rollback"))
        if turns:
            self.queue.append(Cut(*row.place.common(), why="rollback", turns=turns, head=ALL))


def _is_bare_header(row: JSON) -> bool:
    """Return whether a row is the header of the oldest versions, which has no type."""
    return {"id", "timestamp", "instructions"} <= table(row).keys() and "type" not in table(row)


def _match(found: list[dict[str, JSON]]) -> FormatMatch | None:
    """Match rows with an envelope, or the bare items of old versions."""
    kinds = {text(row, "type") for row in found if isinstance(at(row, "payload"), dict)}
    if "session_meta" in kinds:
        return FormatMatch(95, "a row session_meta with a payload")
    if kinds & {"response_item", "event_msg", "turn_context", "compacted", "world_state"}:
        return FormatMatch(85, "rows with type and payload, such as response_item")
    if any(item(row) is not None for row in found) and "parentUuid" not in found[0]:
        return FormatMatch(45, "bare response items")
    return FormatMatch(25, "the bare header of an old rollout") if _is_bare_header(found[0]) else None


def _match_head(head: bytes) -> FormatMatch | None:
    """Match the first bytes of a header that is truncated."""
    return FormatMatch(25, "a truncated row session_meta") if _HEADER.search(head) else None


CODEX = SessionFormat("codex", _Codex, _match, _match_head, rows=40)
