"""Claude Code sessions: rows that form a tree, one row for each block of a response.

All rows with the same `message.id` are one response; results of its first calls may be between them. If the
user goes back to an earlier prompt, the rows after it leave the conversation but they happened: they become a
run of their own, like those of a subagent. Items follow the order of the file, because timestamps are not
always ascending.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from refold.importers.formats.claude_code.outline import Outline, read_outline
from refold.importers.formats.claude_code.queue import is_iflow
from refold.importers.formats.claude_code.reading import SessionReader
from refold.importers.formats.claude_code.rows import (
    is_bookkeeping,
    is_head,
    is_message,
    is_result,
)
from refold.importers.formats.claude_code.tree import SubAgent
from refold.importers.items import UNCOUNTED, Answered, Item, RunBegan
from refold.importers.registry import FormatMatch
from refold.importers.session_rows import Noise, Row, Rows, first_rows, gather
from refold.importers.source import Source
from refold.reducers.source_marks import BRANCH_LABEL, FORK_LABEL, PARENT_LABEL

_LINKED = b'"parentUuid"'
_BLOCKS = (b'"tool_use"', b'"tool_result"', b'"session_id"', b"toolu_")
_LOOK_AT = 40
"""The number of rows to search for a message or a bookkeeping row if the rows do not name their parents."""


class ClaudeCode:
    """The importer of Claude Code's session files."""

    name = "claude_code"

    def match(self, source: Source) -> FormatMatch | None:
        """Recognise a session by `parentUuid`, which its rows have since 1.0, or by the shape of trimmed
        rows.
        """
        head = source.head().lstrip(b"\xef\xbb\xbf \r\n")
        if head.startswith(b"{") and _LINKED in head:
            return FormatMatch(90, "rows with parentUuid")
        found = [row.value for row in first_rows(source, _LOOK_AT) if isinstance(row, Row)]
        if any(is_head(row) or is_result(row) for row in found):
            return FormatMatch(88, "first or last row of a print mode stream")
        if any(map(is_message, found)):
            return FormatMatch(50, "rows of type user or assistant with a message")
        if any(map(is_bookkeeping, found)):
            return FormatMatch(40, "bookkeeping rows of a session")
        printed = not found and b"claude" in head.lower() and sum(block in head for block in _BLOCKS) >= 2
        return FormatMatch(5, "no rows, but printed text of a session") if printed else None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the session, then its subagents that wrote into the same file, each a run started by a call.

        After each conversation, yield its branches that the user left by going back, each as a run.
        """
        rows = Rows(source)
        outline = read_outline(rows)
        calls: dict[str, str] = {}
        session = _begin_session(outline)
        yield from _read_conversation(source.name, rows, outline, session, calls)
        for agent in outline.agents.found:
            inner = read_outline(agent.rows)
            began = _begin_agent(agent, inner, session, calls.get(agent.call, session.key))
            for item in _read_conversation(
                source.name, agent.rows, inner, began, calls, timed=not agent.reported
            ):
                yield msgspec.structs.replace(item, counts=UNCOUNTED) if agent.reported else item


def _begin_session(outline: Outline) -> RunBegan:
    """Return the start of the session, or of the subagent if the whole file is a subagent's."""
    session = outline.session or "session"
    began = _begin_run(outline, f"{session}/{outline.agent}" if outline.alone and outline.agent else session)
    if outline.parted:
        began.labels[PARENT_LABEL] = session  # in another file
    return began


def _begin_agent(agent: SubAgent, outline: Outline, session: RunBegan, parent: str) -> RunBegan:
    """Return the start of a subagent. A call of `parent`, the session or a branch of it, started it."""
    began = _begin_run(outline, f"{session.key}/{agent.name}")
    position = f"line {agent.rows[0].line}"
    return msgspec.structs.replace(began, position=position, parent=parent, call=agent.call)


def _begin_run(outline: Outline, key: str) -> RunBegan:
    labels = {name: value for name in ("version", "cwd") if (value := getattr(outline, name))}
    agent = "iflow" if is_iflow(outline.session) else "claude-code"
    return RunBegan("line 1", outline.began, key=key, model=outline.model, agent=agent, labels=labels)


def _read_conversation(
    name: str,
    rows: Iterable[Row | Noise],
    outline: Outline,
    began: RunBegan,
    calls: dict[str, str],
    *,
    timed: bool = True,
) -> Iterator[Item]:
    """Yield a conversation and its branches.

    Calls of branches are added to `calls` with the keys of their runs.
    """
    forks: dict[int, str] = {}
    yield msgspec.structs.replace(began, cuts=outline.cuts[0])
    yield from gather(SessionReader(name, outline, forks, began.key, timed=timed).items(enumerate(rows)))
    keys = {0: began.key} | {
        left.number: left.make_key(began.key) for left in outline.branches.heads.values()
    }
    for left, told in outline.branches.read(rows):
        reading, its_rows = SessionReader(name, outline, forks, began.key, left, timed=False), iter(told)
        first = next(its_rows)
        yield msgspec.structs.replace(
            began,
            position=first[1].position,
            at=first[1].at,
            counts=UNCOUNTED,
            key=keys[left.number],
            parent=keys[left.above],
            call="",
            cuts=outline.cuts[left.number],
            labels={**began.labels, BRANCH_LABEL: "rewound", FORK_LABEL: reading.fork},
        )
        for item in gather(reading.items(chain([first], its_rows))):
            if isinstance(item, Answered):
                calls.update((call.id, keys[left.number]) for call in item.calls)
            yield item


CLAUDE_CODE = ClaudeCode()
