"""Runs that belong together: conversations of a source, and runs that calls began."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from refold.console import descriptions
from refold.console.screen import Column, Screen
from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.events import Parent, RunStarted
from refold.reducers.machine import SUCCESSFUL
from refold.reducers.source_marks import BRANCH_LABEL, PARENT_LABEL
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.replay.doubts import Begun, NamedDoubt
from refold.replay.reader import NO_GUARDS, Follower, event_of, follow, stored_events
from refold.replay.source_words import SourceEnd
from refold.replay.summary import RunSummary, goes_on_in, summary
from refold.store.protocol import Store, UnknownRun

if TYPE_CHECKING:
    from refold.importers.transcript import TranscriptRun


_MOST = 8  # runs of one conversation that are compared, the newest: a key may be no more than a task's name


class ImportedConversation(msgspec.Struct, frozen=True):
    """What the first event of an imported run says: what it is in its source, and what began it, if that was
    known then.

    `apart` is the key of the run that began it, where its file does not say by which call: "" if the file
    does not even name that run, None if no other run began it, or the call is known.
    """

    run: str
    format: str
    key: str
    apart: str | None = None
    parent: Parent | None = None

    @classmethod
    def of(cls, run: str, labels: Mapping[str, str], parent: Parent | None) -> "ImportedConversation":
        """By the labels of a run."""
        key, above = labels.get("source.key", ""), labels.get(PARENT_LABEL)
        return cls(run, labels.get(SOURCE_LABEL, ""), key, None if "source.call" in labels else above, parent)


class Conversations:
    """The imported runs of a store, the newest first. Looked through once a format."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_key: dict[tuple[str, str], list[ImportedConversation]] = {}
        self._apart: dict[tuple[str, str], list[ImportedConversation]] = {}
        self._newest: dict[str, str] = {}  # of each format that was looked through
        self._runs: set[str] = set()
        self._calls: dict[tuple[str, int], Mapping[str, str]] = {}

    async def of(self, format_: str, key: str, but: str) -> Sequence[str]:
        """The newest runs of this conversation, without `but`."""
        await self._look(format_)
        return [each.run for each in self._of_key.get((format_, key), []) if each.run != but][:_MOST]

    def add(self, told: ImportedConversation) -> None:
        """A run was imported just now."""
        if told.run in self._runs:
            return
        self._runs.add(told.run)
        self._of_key.setdefault((told.format, told.key), []).insert(0, told)
        if told.apart:
            self._apart.setdefault((told.format, told.apart), []).append(told)

    async def look_again(self, format_: str) -> None:
        """See what another import began meanwhile."""
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
        """The run and the call that began this one: as it says, or as the log of the session that it names
        says, or that of another run that this session began. None: nothing in the store says so.
        """
        if told.parent is not None or told.apart is None:
            return told.parent
        await self._look(told.format)
        async for run, seq in self._candidates(told):
            call = (await self._named(run, seq)).get(told.key)
            if call is not None and run != told.run:
                return Parent(run=run, call=call)
        return None

    async def _candidates(self, told: ImportedConversation) -> AsyncIterator[tuple[str, int]]:
        """The runs that may have begun this one, and their last events: all of its format if its file names
        none.
        """
        if not told.apart:
            async for chunk in self._store.runs(f"{told.format}-"):
                for run, head in chunk:
                    yield run, head.seq
            return
        place = told.format, told.apart
        for above in (*self._of_key.get(place, []), *self._apart.get(place, [])):
            yield above.run, (await self._store.head(above.run)).seq

    async def kept(self, reading: "TranscriptRun", recorded: Parent | None) -> Parent | None:
        """What began a run whose log is there: as recorded, where the file says nothing else, or has that
        call in another run of the conversation that it names now. Else as the file says, and that is no word
        of this log.
        """
        told = reading.parent
        if told is None or recorded is None or recorded.call != told.call:
            return told or recorded
        return recorded if recorded.run in await self.of(reading.format, reading.above, "") else told

    async def all(self, format_: str) -> Sequence[ImportedConversation]:
        """All of this format."""
        await self._look(format_)
        return [each for (of, _), told in self._of_key.items() if of == format_ for each in told]

    async def _named(self, run: str, seq: int) -> Mapping[str, str]:
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
        with suppress(CannotJudge, Damaged):  # what cannot be read at its first event is not known
            for stored in await self._store.read_some(run, [1]):
                event = event_of(stored, content=False)
                if stored.run == run and isinstance(event, RunStarted):
                    self.add(ImportedConversation.of(run, event.labels, event.parent))


_TEXT = 70


class ChildRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a call of another began. `call` is "" where nobody knows which; `task`, `code` and
    `source_end` as in a summary.

    `branch` is "rewound" for one that no call began: somebody went back, and left it. `damaged` says why the
    rest may be wrong.
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
    """What a run's own log says of its children, while it is followed; then all of them, and its parent."""

    def __init__(self) -> None:
        self.begun, self.named = Begun(), NamedDoubt()

    @property
    def followers(self) -> tuple[Follower[Any], ...]:
        """Who is to be shown the log."""
        return self.begun, self.named

    async def of(self, store: Store, told: RunSummary) -> tuple[Parent | None, tuple[ChildRun, ...]]:
        """What began the run, and the runs that it began, in the order of their beginnings."""
        calls = {run: "" for run in self.begun.result() if (await store.head(run)).seq}
        this = ImportedConversation.of(told.run, told.labels, told.parent)
        parent = told.parent
        if this.format:
            known = Conversations(store)
            parent = await known.parent_of(this)
            beside = await known.of(this.format, this.key, this.run)
            older = {run for run in beside if await goes_on_in(store, run) == this.run}
            calls |= await self._imported(known, this, older)
        found = [await _child(store, run, call) for run, call in calls.items()]
        return parent, tuple(child for _, child in sorted(found, key=lambda each: (each[0], each[1].run)))

    async def _imported(
        self, known: Conversations, this: ImportedConversation, older: Collection[str]
    ) -> dict[str, str]:
        """Of several imports of one sub-agent the one that names this run, or an older one that goes on here;
        else the newest.
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
        """How surely this run began another, which that is, and by which call."""
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
    """When it began, and how it stands."""
    try:
        told, _ = await summary(store, run, None, NO_GUARDS)
    except (CannotJudge, Damaged, UnknownRun) as error:
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
    """A table of them, if there are any."""
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
    state = "cannot be read whole" if child.damaged else descriptions.line(state)
    task = descriptions.task(child.task, _TEXT) if not child.damaged else child.damaged
    return [child.run, child.call or child.branch or "not known", state, child.model, task]
