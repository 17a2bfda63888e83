"""Related runs: conversations of a source, and child runs."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from refold.console import descriptions
from refold.console.imported_conversation import ImportedConversation
from refold.console.screen import Column, Screen
from refold.reducers.errors import Damaged, Inconclusive
from refold.reducers.events import Parent, RunStarted
from refold.reducers.machine import SUCCESSFUL
from refold.reducers.source_marks import BRANCH_LABEL
from refold.replay.doubts import ChildRuns, NamedDoubt
from refold.replay.reader import NO_GUARDS, Follower, event_of, follow, stored_events
from refold.replay.source_words import SourceEnd
from refold.replay.summary import RunSummary, continued_in, summary
from refold.store.protocol import Store, UnknownRun

if TYPE_CHECKING:
    from refold.importers.transcript import TranscriptRun


_MOST = 8  # newest runs of a conversation that are compared: a key may be just a task's name


class Conversations:
    """The imported runs of a store, newest first. Each format is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_key: dict[tuple[str, str], list[ImportedConversation]] = {}
        self._apart: dict[tuple[str, str], list[ImportedConversation]] = {}
        self._newest: dict[str, str] = {}  # of each format that was looked through
        self._runs: set[str] = set()
        self._calls: dict[tuple[str, int], Mapping[str, str]] = {}

    async def of(self, format_: str, key: str, but: str) -> Sequence[str]:
        """Return the newest runs of this conversation, without `but`."""
        await self._look(format_)
        return [each.run for each in self._of_key.get((format_, key), []) if each.run != but][:_MOST]

    def add(self, told: ImportedConversation) -> None:
        """Add a run that was just imported."""
        if told.run in self._runs:
            return
        self._runs.add(told.run)
        self._of_key.setdefault((told.format, told.key), []).insert(0, told)
        if told.apart:
            self._apart.setdefault((told.format, told.apart), []).append(told)

    async def look_again(self, format_: str) -> None:
        """Add runs that another import started meanwhile."""
        last, new = self._newest.get(format_, ""), list[str]()
        async for chunk in self._store.runs(f"{format_}-"):
            begun = [run for run, head in chunk if head.seq]
            new += takewhile(lambda run: run != last, begun)
            if last in begun:
                break
        self._newest[format_] = new[0] if new else last
        for run in reversed(new):
            if run not in self._runs:
                await self._learn(run)

    async def parent_of(self, told: ImportedConversation) -> Parent | None:
        """Return the run and call that started this one, or None if the store does not record it.

        Searched in this run, in the log of the session that it names, and in other runs that this session
        started.
        """
        if told.parent is not None or told.apart is None:
            return told.parent
        await self._look(told.format)
        async for run, seq in self._candidates(told):
            call = (await self._read_named_calls(run, seq)).get(told.key)
            if call is not None and run != told.run:
                return Parent(run=run, call=call)
        return None

    async def _candidates(self, told: ImportedConversation) -> AsyncIterator[tuple[str, int]]:
        """Yield possible parents with their last event: all of its format if the file names none."""
        if not told.apart:
            async for chunk in self._store.runs(f"{told.format}-"):
                for run, head in chunk:
                    yield run, head.seq
            return
        place = told.format, told.apart
        for above in (*self._of_key.get(place, []), *self._apart.get(place, [])):
            yield above.run, (await self._store.head(above.run)).seq

    async def recorded_parent(self, reading: "TranscriptRun", recorded: Parent | None) -> Parent | None:
        """Return the parent of a stored run.

        As recorded, unless the file now states another one: the recorded parent also holds if the file names
        the same call in another run of that conversation.
        """
        told = reading.parent
        if told is None or recorded is None or recorded.call != told.call:
            return told or recorded
        return recorded if recorded.run in await self.of(reading.format, reading.above, "") else told

    async def all(self, format_: str) -> Sequence[ImportedConversation]:
        """Return all runs of this format."""
        await self._look(format_)
        return [each for (of, _), told in self._of_key.items() if of == format_ for each in told]

    async def _read_named_calls(self, run: str, seq: int) -> Mapping[str, str]:
        place = run, seq
        if place not in self._calls:
            named = NamedDoubt()
            await follow(stored_events(self._store, run), named)
            self._calls[place] = named.result()
        return self._calls[place]

    async def _look(self, format_: str) -> None:
        if format_ not in self._newest:
            await self.look_again(format_)

    async def _learn(self, run: str) -> None:
        with suppress(Inconclusive, Damaged):  # skip runs whose first event is not readable
            for stored in await self._store.read_some(run, [1]):
                event = event_of(stored, content=False)
                if stored.run == run and isinstance(event, RunStarted):
                    self.add(ImportedConversation.of(run, event.labels, event.parent))


_TEXT = 70


class ChildRun(msgspec.Struct, frozen=True, kw_only=True):
    """A child run. `call` is "" if unknown; `task`, `code` and `source_end` as in a summary.

    `branch` is "rewound" for a branch that a user left by going back, which no call started. `damaged`: why
    the other fields may be wrong.
    """

    run: str
    call: str = ""
    branch: str = ""
    model: str = ""
    task: str | None = ""
    agent_state: str = ""
    code: str | None = None
    source_end: str = ""
    damaged: str = ""


class Kin:
    """Collects a run's children from its log while it is followed; then finds all children and the parent."""

    def __init__(self) -> None:
        self.begun, self.named = ChildRuns(), NamedDoubt()

    @property
    def followers(self) -> tuple[Follower[Any], ...]:
        """The followers that must read the log."""
        return self.begun, self.named

    async def of(self, store: Store, told: RunSummary) -> tuple[Parent | None, tuple[ChildRun, ...]]:
        """Return the run's parent, and its children in the order of their start."""
        calls = {run: "" for run in self.begun.result() if (await store.head(run)).seq}
        this = ImportedConversation.of(told.run, told.labels, told.parent)
        parent = told.parent
        if this.format:
            known = Conversations(store)
            parent = await known.parent_of(this)
            beside = await known.of(this.format, this.key, this.run)
            older = {run for run in beside if await continued_in(store, run) == this.run}
            calls |= await self._find_imported_children(known, this, older)
        found = [await _child(store, run, call) for run, call in calls.items()]
        return parent, tuple(child for _, child in sorted(found, key=lambda each: (each[0], each[1].run)))

    async def _find_imported_children(
        self, known: Conversations, this: ImportedConversation, older: Collection[str]
    ) -> dict[str, str]:
        """Return the imported children by run, with their calls.

        Of several imports of one subagent: the one that names this run or an older import of it, else the
        newest.
        """
        best = dict[str, tuple[int, str, str]]()
        for each in await known.all(this.format):
            found = await self._claim(known, this, older, each)
            if found is not None:
                best[each.key] = max(best.get(each.key, found), found, key=lambda one: one[0])
        return {run: call for _, run, call in best.values()}

    async def _claim(
        self,
        known: Conversations,
        this: ImportedConversation,
        older: Collection[str],
        each: ImportedConversation,
    ) -> tuple[int, str, str] | None:
        """Return how certain it is that this run started `each`, the id of `each`, and the call."""
        named = self.named.result()
        if each.parent is not None and each.parent.run == this.run:
            return 3, each.run, each.parent.call
        if each.parent is not None and each.parent.run in older:
            return 2, each.run, each.parent.call
        if each.key in named and each.run != this.run:
            return 1, each.run, named[each.key]
        if each.apart and each.apart == this.key and await known.parent_of(each) is None:
            return 0, each.run, ""
        return None


async def _child(store: Store, run: str, call: str) -> tuple[int, ChildRun]:
    """Return the start of a child run, and its description."""
    try:
        told, _ = await summary(store, run, None, NO_GUARDS)
    except (Inconclusive, Damaged, UnknownRun) as error:
        return 0, ChildRun(run=run, call=call, damaged=str(error))
    own = told.parent.call if told.parent else ""
    return told.started, ChildRun(
        run=run,
        call=call or own,
        branch=told.labels.get(BRANCH_LABEL, ""),
        model=told.model,
        task=told.task,
        agent_state=told.agent_state,
        code=told.code,
        source_end=told.source_end,
        damaged=told.damaged,
    )


def tell_children(screen: Screen, children: tuple[ChildRun, ...]) -> None:
    """Print a table of the child runs, if there are any."""
    if not children:
        return
    screen.say()
    columns = [Column("child run"), Column("call"), Column("state")]
    columns += [Column("model", elastic=True), Column("task", elastic=True)]
    screen.table(columns, [_cells(child) for child in children])


def _cells(child: ChildRun) -> list[str]:
    state = descriptions.standing(
        child.agent_state, child.code if child.agent_state not in SUCCESSFUL else None
    )
    state = SourceEnd(end=child.source_end).brief(0) if child.source_end else state
    state = "not fully readable" if child.damaged else descriptions.line(state)
    task = descriptions.task(child.task, _TEXT) if not child.damaged else child.damaged
    return [child.run, child.call or child.branch or "not known", state, child.model, task]
