"""The engine's access to one run's log: loading, appending, snapshots, log lines about compaction.

Logger `refold.prune` (INFO) has its own switch: it is silent until its level is set to INFO. The command
line does that if `REFOLD_PRUNE_LOG` is on.

Imported runs are read-only: their agent ran elsewhere, and answering, stopping or driving such a run would
record what never happened. A fork of one begins with an event of its own and can be driven.
"""

import importlib.metadata
import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from refold.engine.conversation import Conversation
from refold.engine.tenure import Tenure
from refold.reducers import codec, folds
from refold.reducers.errors import DamagedLog, RefoldError, WrongUse
from refold.reducers.events import Annotation, Event, Fact, HistoryPruned, MessageTrimmed, RunStarted
from refold.reducers.evolution import FOUNDING, evolve
from refold.reducers.guards import Registry
from refold.reducers.history import Pass
from refold.reducers.policy import Policy, passes_of
from refold.reducers.state import NEW, RunState
from refold.reducers.views import needed_to_go_on, remembered
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.store.protocol import Conflict, Head, Held, Lease, Record, Snapshot, Store, Stored, StoreError

LOGGER = logging.getLogger("refold.prune")
_PLAIN = re.compile(r"[^\s\"=]+")

if LOGGER.level == logging.NOTSET:
    LOGGER.setLevel(logging.WARNING)


def log_pruning(run: str, first: int, state: RunState, events: Sequence[Event]) -> None:
    """Log the compaction lines of stored events, the first of them number `first`; `state` is after them."""
    if LOGGER.isEnabledFor(logging.INFO):
        for seq, event in enumerate(events, first):
            line = lines(event, state, run, seq)
            if line is not None:
                LOGGER.info("%s", line)


def lines(event: Event, state: RunState, run: str, seq: int) -> str | None:
    """Return the log line of event number `seq`, or None. `state` is any from it to before the next fact."""
    if not isinstance(event, HistoryPruned | MessageTrimmed):
        return None
    step = state.request.event.step if state.request is not None else state.spent.steps + 1
    behind = {"step": step, "seq": seq, "run": run, "pass": event.name}
    by = _pass(state.policy, event.name)
    if isinstance(event, MessageTrimmed):
        sizes = {
            "reason": event.reason,
            "pre": event.before,
            "post": event.size.tokens,
            "cap": getattr(by, "cap", None),
        }
        return _line("refold.trim", {**sizes, "message": event.message, **behind})
    counts = {"reason": event.reason, "pre": event.before, "post": event.after}
    return _line("refold.prune", {**counts, **_knobs(by), **behind, "over_budget": int(event.over_budget)})


def _pass(policy: Policy, name: str) -> Pass | None:
    return next((step for _, step in passes_of(policy) if step.name == name), None)


def _knobs(by: Pass | None) -> dict[str, Any]:
    """Return how much a compaction step keeps, and its threshold: in messages, else in estimated tokens."""
    when = None if by is None else by.when
    tokens = when.tokens if when is not None and isinstance(when.tokens, int) else None
    return {
        "keep_last": getattr(by, "last", getattr(by, "keep_last", None)),
        "threshold": when.messages if when is not None and when.messages is not None else tokens,
    }


def _line(prefix: str, fields: Mapping[str, Any]) -> str:
    pairs = [f"{key}={_value(value)}" for key, value in fields.items() if value is not None]
    return f"{prefix}: {' '.join(pairs)}"


def _value(value: object) -> str:
    """Return a value as one word; a name with spaces is written as JSON."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text).replace(" ", "\\u0020")


SNAPSHOT_EVERY = 256
"""Events between two snapshots; fewer are replayed in a few milliseconds."""


class RunExists(WrongUse):
    """The id of a new run exists in the store. Nothing was written."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        return f"the store has a run {self.run!r} already; use another id, or resume it"


class Overtaken(StoreError):
    """Another engine continued the run while this one waited for an operator. Nothing was written.

    `set_back`: the store no longer has the events that this engine wrote, as after a backup was restored.
    """

    def __init__(self, run: str, *, set_back: bool = False) -> None:
        super().__init__(run)
        self.run, self.set_back = run, set_back

    def __str__(self) -> str:
        if self.set_back:
            return (
                f"run {self.run}: the store no longer has events that this engine wrote, as after a backup was restored; "
                "this engine stopped. Check what is lost, then resume the run"
            )
        return f"run {self.run} was continued by another engine; see `refold show {self.run}`"


class Journal:
    """Appends facts with their decisions, and keeps the events that the present prompt needs.

    `contents` has the events of the window and of the open batch, by number; `conversation` makes requests of
    them. `base` is where a fork without events of its own continues from: a run and an event number. `head`
    is the last event that was read or written.
    """

    def __init__(self, store: Store, run: str, tenure: Tenure) -> None:
        self.store, self._run, self.tenure = store, run, tenure
        self.contents: dict[int, Event] = {}
        self.conversation = Conversation()
        self.base: tuple[str, int] | None = None
        self.head: Head | None = None
        self._lease: Lease | None = None  # under which it was written
        self._kept = 0  # the event of the last snapshot
        self._most = 32  # when `contents` exceeds it, events that are not needed are removed

    async def load(self, registry: Registry) -> RunState:
        """Return the state after the log's last event, computed from the last snapshot or the first event.

        Returns `NEW` for a run without events. Raises `Damaged`, which names the invalid event.
        """
        self.contents, self.conversation = {}, Conversation()  # payloads may have been erased meanwhile
        self.head = self._lease = None
        state = await self._from_snapshot(registry)
        self._kept = state.seq
        run, upto = await self._log()
        async for chunk in self.store.read(run, state.seq, upto):
            for stored in chunk:
                state = self._fold(state, stored, registry)
        return state

    async def _log(self) -> tuple[str, int | None]:
        """Return the log to read: the run's, or its parent's up to the fork while it has no events."""
        if self.base is None or (await self.store.head(self._run)).seq:
            return self._run, None
        return self.base

    async def append(self, before: RunState, after: RunState, events: Sequence[Event], salt: bytes) -> None:
        """Write one fact and its decisions atomically: all are on disk when this returns, or none.

        Raises the errors of `Tenure.hold` and `Store.append`, and `RunExists`.
        """
        at = max(before.at, after.at)
        records = [record(event, at, salt) for event in events]
        try:
            lease = await self.tenure.hold()
            await self._check_head(lease)
            # A child run is released only after its parent was woken: see `wake_parent`.
            if after.ended and after.setup.parent is None:
                async with self.tenure.ending():
                    self.head = await self.store.append(self._run, before.seq, lease, records, release=True)
            else:
                self.head = await self.store.append(self._run, before.seq, lease, records)
        except (Conflict, Held) as error:
            if isinstance(error, Held) and not (await self.store.head(self._run)).seq:
                raise  # another engine is about to begin the run, or died before
            if before.setup.run != self._run:
                raise RunExists(self._run) from None
            set_back = isinstance(error, Conflict) and error.head < error.expected
            raise Overtaken(self._run, set_back=set_back) from error
        self._lease = lease
        self.keep(before, after, events)

    async def _check_head(self, lease: Lease) -> None:
        """Raise `Overtaken` if the log has other events than this engine wrote before it took `lease`.

        A store that was restored may have other events up to the same number. While the lease is kept, only
        this engine can write them.
        """
        if self._lease is not None and lease != self._lease:
            head = await self.store.head(self._run)
            if self.head is not None and head.seq == self.head.seq and head != self.head:
                raise Overtaken(self._run, set_back=True)

    def keep(self, before: RunState, after: RunState, events: Sequence[Event]) -> None:
        """Keep the payloads of stored events, the first of them right after `before`."""
        log_pruning(self._run, before.seq + 1, after, events)
        self._keep(before.seq + 1, events, after)

    def snapshot_due(self, state: RunState) -> bool:
        """Return whether enough happened since the last snapshot for another one."""
        # A snapshot is as large as the window: with a growing window, events must not become more expensive.
        much = state.seq - self._kept >= max(SNAPSHOT_EVERY, state.window.count)
        return much and state.digested == state.seq  # otherwise the log could not confirm it

    async def snapshot(self, state: RunState) -> None:
        """Store a snapshot of a state on disk. It is a cache: without it, the log is replayed."""
        self._kept = state.seq
        data = folds.encode_snapshot(state)
        if data is None:
            return
        try:
            await self.store.save_snapshot(self._run, Snapshot(seq=state.seq, version=_version(), data=data))
        except StoreError:
            return  # the next append reports what is wrong with the store

    async def _from_snapshot(self, registry: Registry) -> RunState:
        kept = await self.store.snapshot(self._run, _version())
        if kept is None:
            return NEW
        try:
            state = folds.decode_snapshot(kept.data, registry)
        except folds.UnreadableSnapshot:
            return NEW
        needed = needed_to_go_on(state)
        found = await self.store.read_some(self._run, sorted({*needed, kept.seq}))
        events = {stored.seq: event_of(stored) for stored in found}
        last = next((Head(seq=each.seq, hash=each.hash) for each in found if each.seq == kept.seq), None)
        founding = [
            event_of(stored)
            for stored in await self.store.read_kinds(self._run, FOUNDING)
            if stored.seq <= kept.seq
        ]
        if state.seq != kept.seq or not folds.snapshot_holds(state, events.get(kept.seq), founding, registry):
            return NEW
        self.contents = {seq: events[seq] for seq in needed if seq in events and _says_something(events[seq])}
        self.head = last
        return state

    def _fold(self, state: RunState, stored: Stored, registry: Registry) -> RunState:
        event = event_of(stored)
        if stored.seq != state.seq + 1:
            raise DamagedLog(stored.run, stored.seq, f"event {state.seq + 1} is missing before it")
        try:
            state = evolve(state, event, registry)
        except RefoldError as error:
            raise DamagedLog(stored.run, stored.seq, str(error)) from error
        self._keep(stored.seq, (event,), state)
        self.head = Head(seq=stored.seq, hash=stored.hash)
        return state

    def _keep(self, first: int, events: Sequence[Event], state: RunState) -> None:
        for seq, event in enumerate(events, first):
            if _says_something(event):
                self.contents[seq] = event
        if len(self.contents) > self._most:
            # Searching the window costs as much as its size, so wait until a fifth of it may be removable.
            self.contents = remembered(state, self.contents)
            self._most = len(self.contents) * 5 // 4 + 32


def record(event: Event, at: int, salt: bytes) -> Record:
    """Encode an event for the store. The salt blinds payloads from outside; the harness's own need none."""
    encoded = codec.encode(event)
    blinded = encoded.content is not None and isinstance(event, Fact | Annotation)
    return Record(
        at=at,
        kind=encoded.kind,
        body=encoded.body,
        content=encoded.content,
        salt=salt if blinded else b"",
    )


def _says_something(event: Event) -> bool:
    return getattr(event, "content", None) is not None


@cache
def _version() -> str:
    return folds.snapshot_version(importlib.metadata.version("refold"))


def event_of(stored: Stored) -> Event:
    """Decode the event of a row. Raises `DamagedLog` and `NewerLog`."""
    return codec.decode(stored.kind, stored.body, stored.content, run=stored.run, seq=stored.seq)


class RunImported(WrongUse):
    """An imported run cannot be continued. Nothing was written.

    `source` is its format.
    """

    def __init__(self, run: str, source: str) -> None:
        super().__init__(run, source)
        self.run, self.source = run, source

    def __str__(self) -> str:
        return (
            f"run {self.run} was imported ({self.source}) and is read-only, because its agent ran elsewhere; "
            f"continue it in a fork: `refold fork {self.run}`"
        )


async def opening_of(store: Store, run: str) -> RunStarted | None:
    """Return event 1 of a run, for a fork that of the run at its root; None for an unknown run."""
    events = [event_of(stored) for stored in await store.read_some(run, [1])]
    return next((event for event in events if isinstance(event, RunStarted)), None)


async def source_of(store: Store, run: str) -> str:
    """Return the format of an imported run; "" for others, including forks of imported runs."""
    opened = await opening_of(store, run)
    return opened.labels.get(SOURCE_LABEL, "") if opened and opened.run == run else ""


async def refuse_imported(store: Store, run: str) -> None:
    """Raise `RunImported` for an imported run; call it before its lease is taken, so nothing changes."""
    if source := await source_of(store, run):
        raise RunImported(run, source)
