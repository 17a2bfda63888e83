"""The runs that calls of a run began, as `show` and the page list them."""

from collections.abc import Collection
from typing import Any

import msgspec

from refold.console import descriptions, hostile
from refold.console.conversations import Conversation, Conversations
from refold.console.screen import Column, Screen
from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.events import Parent
from refold.replay.begun import Begun, Named
from refold.replay.following import Follower
from refold.replay.reader import NO_GUARDS
from refold.replay.source_words import BRANCH_LABEL, SourceEnd
from refold.replay.summary import Summary, goes_on_in, summary
from refold.store.protocol import Store, UnknownRun

_TEXT = 70


class ChildRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a call of another began. `call` is "" where nobody knows which; `task`, `code` and `source_end` as in a summary.

    `branch` is "rewound" for one that no call began: somebody went back, and left it. `damaged` says why the rest may be wrong.
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
        self.begun, self.named = Begun(), Named()

    @property
    def followers(self) -> tuple[Follower[Any], ...]:
        """Who is to be shown the log."""
        return self.begun, self.named

    async def of(self, store: Store, told: Summary) -> tuple[Parent | None, tuple[ChildRun, ...]]:
        """What began the run, and the runs that it began, in the order of their beginnings."""
        calls = {run: "" for run in self.begun.result() if (await store.head(run)).seq}
        this = Conversation.of(told.run, told.labels, told.parent)
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
        self, known: Conversations, this: Conversation, older: Collection[str]
    ) -> dict[str, str]:
        """Of several imports of one sub-agent the one that names this run, or an older one that goes on here; else the newest."""
        named, best = self.named.result(), dict[str, tuple[int, str, str]]()
        for each in await known.all(this.format):
            if each.parent is not None and each.parent.run == this.run:
                found = 3, each.run, each.parent.call
            elif each.parent is not None and each.parent.run in older:
                found = 2, each.run, each.parent.call
            elif each.key in named and each.run != this.run:
                found = 1, each.run, named[each.key]
            elif each.apart and each.apart == this.key and await known.parent_of(each) is None:
                found = 0, each.run, ""
            else:
                continue
            best[each.key] = max(best.get(each.key, found), found, key=lambda one: one[0])
        return {run: call for _, run, call in best.values()}


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
    state = descriptions.standing(child.agent_state, child.code if child.agent_state != "COMPLETED" else None)
    state = SourceEnd(end=child.source_end).brief(0) if child.source_end else state
    state = "cannot be read whole" if child.damaged else hostile.line(state)
    task = descriptions.task(child.task, _TEXT) if not child.damaged else child.damaged
    return [child.run, child.call or child.branch or "not known", state, child.model, task]
