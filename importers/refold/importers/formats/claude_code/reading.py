"""Read one conversation of a Claude Code file row by row, and join the rows of its responses."""

from collections import deque
from collections.abc import Iterable, Iterator

from refold.importers.content import read_call
from refold.importers.fields import JSON, Times, at, json_text, nano_usd, number, rows, table, text
from refold.importers.formats.claude_code.attachments import read_attachment
from refold.importers.formats.claude_code.outline import Outline, OutlineEnding, is_side
from refold.importers.formats.claude_code.queue import Fate, find_sender
from refold.importers.formats.claude_code.rows import (
    PARTS,
    Kind,
    choose_label,
    describe_failure,
    encode_unmapped,
    find_error,
    find_refuser,
    is_head,
    is_id,
    is_kept,
    join_text,
    list_blocks,
    list_preserved,
    list_results,
    read_status,
    read_totals,
    render_output,
)
from refold.importers.formats.claude_code.tree import TreeBranch, is_report
from refold.importers.items import UNCOUNTED, Answered, Counted, Item, Place, Quality
from refold.importers.session import Draft, diagnose_repeat
from refold.importers.session_rows import ALL, Cut, Forked, Noise, Row, list_ranges, unread_parts
from refold.importers.source import fits
from refold.importers.usage import UsageNames, larger
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Refuser, Role, ToolError

PER_TOKEN = 10
"""Characters per token, upper bound. Longer text shows that the recorded count is that of an early row."""

TOKENS = UsageNames(
    input=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cache_read_input_tokens",),
    cache_write=("cache_creation_input_tokens",),
    reasoning=("output_tokens_details/thinking_tokens",),
    beside=True,
)


class ClaudeResponse(Draft):
    """A response with rows still to be read. `complete` is the place of its last row."""

    def __init__(self, response: str, first: Row, complete: int) -> None:
        super().__init__(first)
        self.response, self.complete = response, complete
        self.model, self.stop = text(first.value, "message", "model"), ""
        self.cost = self.duration = 0

    def add(self, row: Row) -> None:
        """Add a row of the response."""
        self.grow(row, encode_unmapped(row, self.model))
        # The first rows were written when the response had only begun.
        self.usage = larger(self.usage, TOKENS.of(at(row.value, "message", "usage")))
        stop = text(row.value, "message", "stop_reason") or self.stop
        if self.stop not in ("", stop):
            self.left.append(json_text({"stop_reason": self.stop}))
        self.stop = stop
        self.cost = max(self.cost, nano_usd(at(row.value, "costUSD")) or 0)
        self.duration = max(self.duration, (number(row.value, "durationMs") or 0) * 1_000_000)
        for block in list_blocks(row.value):
            self._add_block(block)

    def _add_block(self, block: JSON) -> None:
        match text(block, "type"):
            case "text":
                self.texts.append(text(block, "text"))
            case "thinking":
                self.thoughts.append(text(block, "thinking"))
            case "tool_use":
                given = at(block, "input")
                call = read_call(text(block, "id"), text(block, "name"), given, block, beside=("input",))
                if not call.id or call not in self.calls:  # another call by the same id is one too
                    self.calls.append(call)
            case _:
                pass  # is part of `rest`

    def make_reply(self) -> Answered:
        """Return the response as read so far."""
        said = self.message()
        return self.place.reply(
            said,
            self.usage,
            stop=self.stop,
            quality=self._assess_quality(said),
            cost=self.cost or None,
            model=self.model,
            response=self.response if is_id(self.response) else "",
            duration=min(self.duration, 1 << 62),
            rest=self.rest,
        )

    def _assess_quality(self, said: Message) -> Quality:
        written = len(said.text) + len(said.reasoning) + sum(len(call.arguments) for call in said.calls)
        return "partial" if self.usage and self.usage.output * PER_TOKEN < written else "reported"


CLEARED = "[Old tool result content cleared]"
"""The text that replaces a result after a microcompaction, from the CLI.

The session has only the ids of calls.
"""


class SessionReader:
    """A reader of one conversation. Items after the start of a response wait until the response is complete.

    `forks` is shared by all conversations of the file: it has the positions of rows after which others fork,
    by their places. `session` is the key of the run from which the branches are named. `timed`: the first and
    last times of the rows are recorded.
    """

    def __init__(
        self,
        name: str,
        outline: Outline,
        forks: dict[int, str],
        session: str,
        branch: TreeBranch | None = None,
        *,
        timed: bool = True,
    ) -> None:
        self.name, self.outline, self.forks, self.session = name, outline, forks, session
        self.number = branch.number if branch else 0
        self.fork = forks.get(branch.fork, "?") if branch else ""
        self.boundary: JSON = None
        self.queue: deque[Item | Noise | ClaudeResponse] = deque()
        self.drafts: dict[int, ClaudeResponse] = {}
        self.times, self.ending = Times() if timed else None, OutlineEnding()
        self.line = 1
        self.mode = ""

    def items(self, rows: Iterable[tuple[int, Row | Noise]]) -> Iterator[Item | Noise]:
        """Yield the items of these rows, which have their places, and then the end.

        Noise is not gathered yet.
        """
        for place, row in rows:
            if isinstance(row, Noise):
                self.queue.append(row)
            else:
                self._read_row(row, place)
            yield from self._release(place)
        yield from self._release(None)
        end, source = self.ending.end()
        if self.number:
            source = f"{source}; then the user went back to {self.fork}"
        line = self.line if self.number else self.outline.lines
        used, totals = read_totals(self.ending.result, TOKENS)
        edges = self.times.edges() if self.times else None
        yield Place(f"line {line}").end((end, source), edges, used, rest=totals)

    def _release(self, place: int | None) -> Iterator[Item | Noise]:
        """Yield what need not wait any longer; with None, after the last row, everything."""
        while self.queue:
            first = self.queue[0]
            if isinstance(first, ClaudeResponse) and place is not None and first.complete > place:
                return
            self.queue.popleft()
            if isinstance(first, ClaudeResponse):
                self.drafts.pop(first.complete, None)
                yield first.make_reply()
            else:
                yield first

    def _read_row(self, row: Row, place: int) -> None:
        outline = self.outline
        if place in outline.repeated:
            self.queue.append(row.noise("repeated"))
            return
        if row.number in outline.others:
            self.queue.append(diagnose_repeat(row, "uuid"))
        apart = not outline.alone and (is_side(row.value) or is_report(row.value))  # a run of its own
        if self.times and not apart and text(row.value, "type") in ("user", "assistant", "system"):
            self.times.see(row.value.get("timestamp"), row.at)
        if outline.branches.of.get(place, 0) == self.number:
            if not apart:
                self._read_own_row(row, place, outline.kinds[place])
            for branch in outline.forks.get(place, ()):
                self.forks[place] = row.position
                self.queue.append(Forked(row.position, key=branch.make_key(self.session)))
        elif (left := outline.branches.heads.get(place)) and left.above == self.number:
            self.queue.append(row.place.remark("rewound", {"source.key": left.make_key(self.session)}))

    def _read_own_row(self, row: Row, place: int, found: Kind) -> None:
        self.line = row.line
        if place in self.outline.branches.unanswered:
            self.queue.append(row.noise("rewound", counts=_count_unanswered(row, found)))
            return
        self.ending.see(row.value, found)
        self._record_permission_mode(row)
        self._read_message(row, place, found)

    def _read_message(self, row: Row, place: int, found: Kind) -> None:
        if found != "other":
            kinds = (text(block, "type") for block in list_blocks(row.value))
            self.queue.extend(unread_parts(row, at(row.value, "message"), ("content",), kinds, PARTS))
        match found:
            case "answer":
                self._add_to_response(row, place)
            case "failed":
                self._record_failure(row)
            case "synthetic":
                self._add_text(row, by="harness", role=Role.ASSISTANT)
            case "result":
                self._add_results(row)
            case "summary":
                self._record_compaction(row)
            case "interrupt":
                # Later requests contain the marker as a message; the cancellation is recorded as well.
                self._add_text(row, by="harness")
                self.queue.append(row.place.cancellation(join_text(row.value)[:200]))
            case "meta":
                self._add_text(row, by="hook" if join_text(row.value).startswith("Stop hook") else "harness")
            case "command":
                self._add_text(row, by="harness")
            case "prompt":
                self._add_text(row, by="user")
            case "other":
                self._read_other(row, place)

    def _record_permission_mode(self, row: Row) -> None:
        """Record a change of the mode that decides which calls require approval."""
        mode = text(row.value, "permissionMode")
        if mode and mode != self.mode and (text(row.value, "type") == "user" or is_head(row.value)):
            self.mode = mode
            self.queue.append(row.place.remark("permission_mode", {"permissionMode": mode}))

    def _add_to_response(self, row: Row, place: int) -> None:
        last = self.outline.complete.get(self.outline.pieces.get(place, place), place)
        draft = self.drafts.get(last)
        if draft is None:
            draft = ClaudeResponse(text(row.value, "message", "id"), row, last)
            self.drafts[last] = draft
            self.queue.append(draft)
        draft.add(row)
        fits(self.name, row.position, draft.size)

    def _record_failure(self, row: Row) -> None:
        failed, message, status = describe_failure(row.value)
        self.queue.append(row.place.failure(message, failed, status=status, rest=encode_unmapped(row)))

    def _add_text(self, row: Row, *, by: str, role: Role = Role.USER) -> None:
        if said := join_text(row.value):
            self._add_message(row, said, by=by, role=role)
        else:
            known, counts = "content" in table(row.value, "message"), Counted(user=int(role is Role.USER))
            self.queue.append(row.noise(known=known, counts=counts))

    def _add_message(
        self, row: Row, said: str, *, by: str, role: Role = Role.USER, counts: Counted | None = None
    ) -> None:
        place = row.place.with_counts(counts)
        self.queue.append(place.message(said, by, role=role, rest=encode_unmapped(row)))

    def _add_results(self, row: Row) -> None:
        rest = encode_unmapped(row)
        # The key is the one in the subagent's own file. A row with several results does not show which of
        # them the agent id belongs to.
        agent, session = text(row.value, "toolUseResult", "agentId"), text(row.value, "sessionId")
        returned = list_results(row.value)
        began = f"{session}/{agent}" if is_id(agent) and is_id(session) and len(returned) == 1 else ""
        for index, result in enumerate(returned):
            call, shown, error = text(result, "tool_use_id"), render_output(result), find_error(result)
            # A row with several results is one message.
            counts = Counted(results=1, errors=int(error is not None)) if index else None
            place = row.place.with_counts(counts)
            self.queue.append(
                place.result(
                    call,
                    shown,
                    failed=find_refuser(row.value, result)
                    or (Refuser.RULE if call in self.outline.denied else error or read_status(result)),
                    began=began,
                    rest=rest,
                )
            )
            if error is ToolError.CANCELLED:
                self.queue.append(row.place.remark("approval:rejected", {"tool_use_id": call}))
            rest = ""
        if beside := join_text(row.value):
            self.queue.append(row.place.with_counts(UNCOUNTED).message(beside, "harness"))

    def _read_other(self, row: Row, place: int) -> None:
        match choose_label(row.value):
            case "failure":
                self._record_failure(row)
            case "attached":
                said, by = read_attachment(row.value)
                self._add_uncounted(row, by=by, said=said)
            case "queue" if place in self.outline.fates:
                self._record_typed(row, self.outline.fates[place])
            case "compaction":
                self.queue.append(row.remark("compaction"))
                self.boundary = row.value
            case "microcompaction":
                self.queue.append(row.remark("microcompaction"))
                calls = rows(row.value, "microcompactMetadata", "compactedToolIds")
                cleared = {call: CLEARED for call in calls if isinstance(call, str)}
                self.queue.append(Cut(*row.place.common(), why="microcompaction", head=ALL, cleared=cleared))
            case what:
                self.queue.append(row.noise(what, known=what != "unmapped" or is_kept(row.value)))

    def _record_compaction(self, row: Row) -> None:
        """Record a summary, which a later compaction may keep, and the messages kept by the row before it."""
        uuids, between = list_preserved(self.boundary)
        tail = list_ranges(self.outline.named[uuid] for uuid in uuids if uuid in self.outline.named)
        common, joins = (
            row.place.with_counts(Counted(user=1)).common(encode_unmapped(row)),
            row.place.message(join_text(row.value)),
        )
        self.queue.append(Cut(*common, why="compaction", joins=(joins,), tail=tail, between=between))
        self.boundary = None

    def _record_typed(self, row: Row, fate: Fate) -> None:
        if fate.what == "said":
            self._add_uncounted(row, by=find_sender(fate.said), said=fate.said)
        else:
            self.queue.append(row.remark(fate.what))

    def _add_uncounted(self, row: Row, *, by: str, said: str) -> None:
        """Add a message of a row that the format does not count as a message."""
        self._add_message(row, said, by=by, counts=Counted(beside=1))


def _count_unanswered(row: Row, found: Kind) -> Counted | None:
    """Return what a row counts as after a prompt that the user replaced before a response."""
    match found:
        case "result":
            returned = list_results(row.value)
            failed = sum(find_error(result) is not None for result in returned)
            return Counted(tool=1, results=len(returned), errors=failed)
        case "interrupt" | "summary" | "command" | "meta" | "prompt":
            return Counted(user=1)
        case _:
            return None
