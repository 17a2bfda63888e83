"""Pi sessions: one entry a line, from version 2 on a tree of which the last entry is the leaf.

The texts around summaries and shell commands are Pi's own (its `messages.ts`), so that a view built from them is the model's.

Who goes back to an earlier entry begins a new branch; the old one is kept as a remark, and what was done there is diagnosed. A compaction says which entry is the
first that stays, so what the model was shown from there on is known exactly.
"""

import re
from collections.abc import Iterator

from refold.importers.answers import UsageNames, end_of
from refold.importers.content import take_call
from refold.importers.cuts import since, summed_up
from refold.importers.fields import (
    JSON,
    Times,
    at,
    number,
    rows,
    table,
    take,
    take_cost,
    take_each,
    take_flag,
    take_if,
    take_number,
    take_text,
    take_words,
    text,
)
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan, Said
from refold.importers.registry import Match
from refold.importers.session_rows import Noise, Row, Rows, first_rows, gathered, unread_parts
from refold.importers.source import Source
from refold.importers.trees import Repeats, branches, diagnose_repeat, find_repeats, path_to
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role, ToolError

SUMMARY = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n{}\n</summary>"
BRANCH = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
)

PARTS = frozenset({"text", "thinking", "toolCall", "image"})
"""What the content of a message is made of."""

_BESIDE = frozenset({"thinking", "toolCall"})

TOKENS = UsageNames(
    input=("input",),
    output=("output",),
    cache_read=("cacheRead",),
    cache_write=("cacheWrite",),
    beside=True,
)


def asked(message: JSON) -> list[JSON]:
    """The calls in a message, as they stand there."""
    return [block for block in rows(message, "content") if text(block, "type") == "toolCall"]


def is_cut(message: JSON) -> bool:
    """Whether nothing shows that an answer came to its end: it has no call, and Pi counted no token of it.

    Pi writes `stop` also where the stream broke off.
    """
    used = TOKENS.of(at(message, "usage"))
    return used is not None and used == Usage() and not asked(message)


def error_of(name: str, said: str) -> ToolError | bool:
    """How a call failed, by Pi's own words."""
    if said == f"Tool {name} not found":
        return ToolError.UNKNOWN_TOOL
    return ToolError.BAD_ARGUMENTS if said.startswith(f'Validation failed for tool "{name}"') else True


def take_spoken(message: JSON) -> str:
    """What a message says, taken out of it; an image is named where it stood."""
    return take_words(message, "content", beside=_BESIDE)


def take_answer(message: JSON) -> Message:
    """What the model said, thought and asked for, taken out of its message."""
    said, calls, thoughts = take_spoken(message), list[MessageCall](), list[str]()
    for block in take_each(message, "content"):
        match text(block, "type"):
            case "toolCall":
                calls.append(take_call(block))
                take(block, "type")
            case "thinking" if thought := take_text(block, "thinking"):
                thoughts.append(thought)
                take(block, "type")
            case _:
                pass
    return Message(role=Role.ASSISTANT, text=said, reasoning="\n".join(thoughts), calls=tuple(calls))


def take_shell(message: JSON) -> str:
    """A shell command that the person ran, as the model is told of it, taken out of its message."""
    command, shown = take_text(message, "command"), take_text(message, "output")
    said = f"Ran `{command}`\n" + (f"```\n{shown}\n```" if shown else "(no output)")
    if take_flag(message, "cancelled"):
        return f"{said}\n\n(command cancelled)"
    if number(message, "exitCode"):
        return f"{said}\n\nCommand exited with code {take_number(message, 'exitCode')}"
    return said


class Ending:
    """Whose the last message is, why it stopped, and which calls it asks for, by their names."""

    def __init__(self) -> None:
        self.role = self.stop = ""
        self.cut = False
        self.pending: dict[str, str] = {}
        self.answered: set[str] = set()

    def see(self, message: JSON) -> None:
        """Go on by a message of the main conversation."""
        match text(message, "role"):
            case "assistant":
                self.pending = {text(call, "id"): text(call, "name") for call in asked(message)}
            case "toolResult":
                self.answered.add(text(message, "toolCallId"))
            case "user":
                pass
            case _:
                return
        self.role, self.stop = text(message, "role"), text(message, "stopReason")
        self.cut = self.role == "assistant" and is_cut(message)

    def end(self) -> tuple[str, str]:
        """The end, and what says so."""
        match self.role:
            case "":
                return "open", "no message in the file"
            case "user":
                return "open", "last message is a prompt"
            case "toolResult":
                return "open", "last message is a tool result"
            case _:
                return self._answered()

    def _answered(self) -> tuple[str, str]:
        says = f"last message: assistant, stopReason={self.stop or None}"
        waiting = sum(call not in self.answered for call in self.pending)
        ends = {"aborted": "cancelled", "error": "error", "length": "limit:token"}
        if self.stop not in ends and waiting:
            return "open", f"{waiting} tool call(s) without result at the end"
        if self.stop not in ends and self.cut:
            return "unknown", f"{says}, and no token counted: the stream may have broken off"
        return ends.get(self.stop) or end_of(self.stop), says


_ENTRIES = (
    "message",
    "model_change",
    "thinking_level_change",
    "compaction",
    "custom",
    "custom_message",
    "branch_summary",
)
_HEADER = re.compile(rb'\s*\{\s*"type"\s*:\s*"session"')


class Pi:
    """The importer of Pi's session files."""

    name = "pi"

    def match(self, source: Source) -> Match | None:
        """By its header, or by its entries where the header is gone."""
        found = [row.value for row in first_rows(source, 20) if isinstance(row, Row)]
        if any("payload" in row or "parentUuid" in row for row in found):
            return None
        roles = {text(row, "message", "role") for row in found if text(row, "type") == "message"}
        if any(text(row, "type") == "session" and "id" in row for row in found):
            return Match(90, "an entry of type session")
        if roles & {"user", "assistant", "toolResult"}:
            known = all(text(row, "type") in _ENTRIES for row in found)
            return Match(70 if known else 55, "entries of type message")
        cut = not found and _HEADER.match(source.head())
        return Match(25, "cut in its entry of type session") if cut else None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        return gathered(_Reading(source).items())


def _look_ahead(rows: Rows) -> tuple[frozenset[str], Repeats]:
    """The ids of entries on branches that were left with messages on them, and the entries whose id another has."""
    parents: dict[str, str] = {}
    spoke, repeated = set[str](), set[str]()
    last = ""
    for row in rows:
        if isinstance(row, Row) and (id_ := text(row.value, "id")) and text(row.value, "type") != "session":
            if id_ in parents:
                repeated.add(id_)
                continue
            parents[id_] = text(row.value, "parentId")
            last = id_
            if text(row.value, "type") == "message":
                spoke.add(id_)
    path = path_to(parents, last)
    off = (branch.rows for branch in branches(parents, path))
    left = frozenset(id_ for branch in off if any(id_ in spoke for id_ in branch) for id_ in branch)
    return left, find_repeats(rows, "id", repeated, _says)


def _says(entry: JSON) -> JSON:
    """What tells one entry from another that has its id."""
    return {name: value for name, value in table(entry).items() if name not in ("parentId", "timestamp")}


class _Reading:
    """One reading of a session."""

    def __init__(self, source: Source) -> None:
        self.rows = Rows(source)
        self.left, self.repeats = _look_ahead(self.rows)
        self.numbers: dict[str, int] = {}
        self.times, self.ending = Times(), Ending()
        self.requests = 0
        self.header: Row | None = None

    def items(self) -> Iterator[Item | Noise]:
        """The run, noise not yet gathered."""
        yield self._began()
        last = 1
        for row in self.rows:
            last = row.line
            if isinstance(row, Noise):
                yield row
            else:
                yield from self._entry(row)
        yield Place(f"line {last}").ended(self.ending.end(), self.times.edges(), requests=self.requests)

    def _began(self) -> RunBegan:
        heads = (row for row in self.rows if isinstance(row, Row) and text(row.value, "type") == "session")
        self.header = next(heads, None)
        header = self.header.value if self.header else None
        place = self.header.place if self.header else Place("line 1")
        key, model = take_text(header, "id") or "session", take_text(header, "modelId")
        rest = self.header.rest() if self.header else ""
        return RunBegan(place.position, place.at, rest, key=key, model=model, agent="pi", cuts=None)

    def _entry(self, row: Row) -> Iterator[Item | Noise]:
        id_, value = text(row.value, "id"), row.value
        if self.header is not None and row.number == self.header.number:
            self.times.see(value.get("timestamp"), row.at)
            return
        if row.number in self.repeats.again:
            yield row.noise("repeated")
            return
        other = row.number in self.repeats.others
        if other:
            yield diagnose_repeat(row, "id")
        if id_:
            self.numbers.setdefault(id_, row.number)
        self.times.see(value.get("timestamp"), row.at)
        if id_ in self.left and not other:
            counts = _counted(value)
            yield row.noise("rewound", counts=counts, apart=counts)
            return
        match text(value, "type"):
            case "message":
                yield from self._message(row)
            case "compaction":
                yield from self._compacted(row)
            case "branch_summary" | "branchSummary":
                yield from self._branch(row)
            case "custom_message":
                yield self._say(row, take_spoken(value), "harness", UNCOUNTED)
            case "model_change":
                yield row.noise("model_change")
            case what:
                yield row.noise(known=what in _ENTRIES)

    def _message(self, row: Row) -> Iterator[Item | Noise]:
        message = at(row.value, "message")
        self.ending.see(message)
        kinds = (text(block, "type") for block in rows(message, "content"))
        yield from unread_parts(row, message, ("content", "command"), kinds, PARTS)
        match text(message, "role"):
            case "user":
                take(message, "role")
                yield self._say(row, take_spoken(message), "user")
            case "assistant":
                yield from self._answer(row, message)
            case "toolResult":
                yield self._result(row, message)
            case "bashExecution" if at(message, "excludeFromContext") is not True:
                # The model is told of it with the next prompt, and not asked for an answer to it.
                yield self._say(row, take_shell(message), "shell", UNCOUNTED)
            case "custom" | "hookMessage":
                yield self._say(row, take_spoken(message), "harness", UNCOUNTED)
            case _:
                yield row.noise()

    def _say(self, row: Row, said: str, by: str, counts: Counted | None = None) -> Said:
        return row.place.counting(counts).said(said, by, rest=row.rest())

    def _answer(self, row: Row, message: JSON) -> Iterator[Item]:
        self.requests += 1
        stop, problem = text(message, "stopReason"), take_text(message, "errorMessage")
        cut = is_cut(message)
        if stop == "error" and not asked(message):
            where, partial = row.place.counting(_counted(row.value)), take_spoken(message)
            yield where.failed(problem, partial=partial, rest=row.rest())
            return
        answer = take_answer(message)
        silent = not (answer.text or answer.calls or answer.reasoning)
        if not silent or stop != "aborted":
            take(message, "role")
            yield row.place.answered(
                answer,
                TOKENS.take(message, "usage"),
                stop="" if cut and stop == "stop" else take_text(message, "stopReason"),
                cost=take_cost(message, "usage", "cost", "total"),
                model=take_text(message, "model"),
                response=take_text(message, "responseId"),
                rest=row.rest(),
            )
        if stop == "aborted":
            where = row.place.counting(_counted(row.value) if silent else None)
            yield where.cancelled(problem, rest=row.rest() if silent else "")
        elif stop == "error":
            yield row.place.remarked("error", {"errorMessage": problem})

    def _result(self, row: Row, message: JSON) -> Item:
        call, name = take_text(message, "toolCallId"), text(message, "toolName")
        said, failed = take_spoken(message), take_flag(message, "isError")
        take(message, "role")
        take_if(message, "toolName", self.ending.pending.get(call))
        how = error_of(name, said) if failed else failed
        return row.place.returned(call, said, name=name, failed=how, rest=row.rest())

    def _branch(self, row: Row) -> Iterator[Item]:
        """What a branch that was left had come to: shown to the model, where it is an entry of Pi's own."""
        if text(row.value, "type") == "branch_summary":
            yield self._say(row, BRANCH.format(take_text(row.value, "summary")), "harness", UNCOUNTED)
        else:
            yield row.remarked("subagent")

    def _compacted(self, row: Row) -> Iterator[Item]:
        """Keep the entries from the first that it names, the summary before them."""
        yield row.remarked("compaction")
        first, index = text(row.value, "firstKeptEntryId"), number(row.value, "firstKeptEntryIndex")
        found = self.numbers.get(first, None if index is None else index + 1)
        tail = since(found) if found is not None else ()
        yield summed_up(row.place, SUMMARY.format(text(row.value, "summary")), tail=tail)


def _counted(entry: JSON) -> Counted | None:
    """As what an entry counts on a branch that was left."""
    message = at(entry, "message") if text(entry, "type") == "message" else None
    match text(message, "role"):
        case "user":
            return Counted(user=1)
        case "assistant":
            return Counted(assistant=1, calls=len(asked(message)), usage=TOKENS.of(at(message, "usage")))
        case "toolResult":
            return Counted(tool=1, results=1, errors=int(at(message, "isError") is True))
        case _:
            return None


PI = Pi()
