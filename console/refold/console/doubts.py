"""`refold doubts`, `resolve` and `cancel`: calls with an unknown outcome, and stopping a run."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from refold.console import addresses, descriptions, locations
from refold.console.addresses import Oldest, UnreadRuns, sweep, unread_note
from refold.console.agents import say_and_leave, tell_left
from refold.console.descriptions import ENDINGS, CallEnding, standing_of
from refold.console.locations import StorePlace, changing, without_event_loop
from refold.console.options import By, Note, WholeRun, argument, option, words
from refold.console.screen import Column, Screen, note
from refold.engine import halt
from refold.engine.compatibility import installed_guards
from refold.engine.fork import annotate
from refold.engine.journal import source_of
from refold.engine.secrets import redactor_of
from refold.reducers.errors import WrongUse
from refold.reducers.events import NoteAdded, Remark
from refold.reducers.state import RunState
from refold.reducers.text import label
from refold.reducers.vocabulary import Doubt
from refold.replay import figures
from refold.replay.doubts import DoubtfulCall, doubts, family_of, is_unresolved, remark_of
from refold.store.protocol import Store

_MOST = 1000


class Doubts(msgspec.Struct, frozen=True, kw_only=True):
    """Calls with an unknown outcome, as JSON: how many are unresolved, in how many runs, and the age of the
    oldest.

    `oldest` is in nanoseconds: 0 without unresolved calls, None if no start is recorded. `calls`: the oldest
    calls of those requested. `unread`: runs that could not be read, whose calls are not counted.
    """

    unresolved: int
    runs: int
    oldest: int | None
    calls: list[DoubtfulCall]
    unread: list[str] = []


class DoubtTally:
    """Counts unresolved calls, and keeps the oldest to display; with `everything`, settled ones too."""

    def __init__(self, *, everything: bool) -> None:
        self._everything = everything
        self.shown = Oldest[DoubtfulCall](_MOST)
        self.unresolved = self.runs = 0
        self.oldest: int | None = None

    def take(self, calls: Sequence[DoubtfulCall]) -> None:
        """Add the calls of one run whose outcome is or was unknown."""
        unresolved = [call for call in calls if is_unresolved(call)]
        self.unresolved += len(unresolved)
        self.runs += bool(unresolved)
        known = [] if self.oldest is None else [self.oldest]
        self.oldest = min([*known, *(call.since for call in unresolved if call.since)], default=None)
        for call in calls if self._everything else unresolved:
            self.shown.add(call.since, call)

    def document(self, now: int, unread: Sequence[str] = ()) -> Doubts:
        """Return the totals at the instant `now`."""
        none = None if self.unresolved else 0
        since = none if self.oldest is None else max(0, now - self.oldest)
        return Doubts(
            unresolved=self.unresolved, runs=self.runs, oldest=since, calls=self.shown.rows, unread=[*unread]
        )


@without_event_loop
async def doubts_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], words("RUN or @last; by default all runs of the store.")],
    *,
    everything: Annotated[bool, option("--all", "List settled calls, too.")] = False,
) -> int:
    """List calls with an unknown outcome, the oldest first. Exit code 1 if any is unresolved.

    Example: refold doubts

    The last line counts them. With -o json: one document with `unresolved`, `oldest` (ns) and the calls.
    """
    tally = DoubtTally(everything=everything)
    unread = UnreadRuns([], None)
    async with locations.reading(place) as store:

        async def look(run: str) -> None:
            tally.take(await in_doubt(store, run))

        async def look_if_own(run: str) -> None:
            if not await source_of(store, run):  # calls of an imported run cannot be settled here
                await look(run)

        if runs:
            for run in await addresses.runs_of(store, runs):
                await look(run)
        else:
            # Runs that have ended count too: their end does not settle a call's outcome.
            unread = await sweep(store, look_if_own)
        found = tally.document(time.time_ns(), unread.runs)
        runs_ = list(dict.fromkeys(call.run for call in found.calls))
        short = await addresses.shorten_ids(store, runs_) if screen.live else {}
    screen.result(found, lambda: _tell(screen, place, found, short, tally.shown.count))
    if unread.problem is not None:
        raise unread.problem
    return int(found.unresolved > 0)


async def resolve_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    call: Annotated[str, argument("The call, as `refold doubts` lists it.")],
    ending: Annotated[
        CallEnding,
        argument("How it ended; after did-not, a call without a result runs again.", metavar="ENDING"),
    ],
    *,
    why: Note = "",
    by: By,
) -> int:
    """Record how a call with an unknown outcome ended, and leave the run to a worker or `refold resume`.

    Example: refold resolve RUN c1 happened --why "it is in the ledger"

    If the call's result already states that the outcome is unknown, this adds a note to the log: the model is
    not informed, and nothing runs.
    """
    async with locations.reading(place) as store:
        run = await addresses.run_of(store, run)
        doubted = _find_doubt(run, call, await doubts(store, run))
    if doubted.result is None:
        return await say_and_leave(
            screen, place, run, lambda told: told.resolve(call, ending.doubt, by=by, note=why)
        )
    return await _note_beside(screen, place, doubted, ending.doubt, why, by)


async def in_doubt(store: Store, run: str) -> Sequence[DoubtfulCall]:
    """Return the calls of a run whose outcome is or was unknown, without those that an engine is running
    now.
    """
    calls = await doubts(store, run)
    if any(call.standing == "open" for call in calls):
        claimed = await descriptions.find_claim(store, run)
        if claimed is not None and claimed.standing == "driven":
            return [call for call in calls if call.standing != "open"]
    return calls


def _tell(screen: Screen, place: StorePlace, found: Doubts, short: Mapping[str, str], count: int) -> None:
    columns = [
        Column("run"),
        Column("call"),
        Column("tool", elastic=True),
        Column("since (UTC)"),
    ]
    columns.append(Column("status", elastic=True))
    if found.calls and screen.live:
        screen.table(columns, [[short[call.run], *_cells(place, call)[1:-1]] for call in found.calls])
        screen.say(f"settle one with: refold resolve RUN CALL {ENDINGS}{place.option}")
    elif found.calls:
        screen.table([*columns, Column("settle with")], [_cells(place, call) for call in found.calls])
    if count > len(found.calls):
        note(f"and {figures.count(count - len(found.calls))} newer ones")
    screen.say(_metric(found))


def _cells(place: StorePlace, call: DoubtfulCall) -> list[str]:
    way = f"refold resolve {call.run} {call.call} {ENDINGS}{place.option}"
    return [
        call.run, call.call, call.tool, figures.clock(call.since).removesuffix(" UTC"), describe_status(call), way if is_unresolved(call) else ""
    ]  # fmt: skip


def describe_status(call: DoubtfulCall) -> str:
    """Describe the status of a call."""
    match call.standing:
        case "open":
            return "outcome unknown"
        case "asked":
            return "waiting for an operator"
        case "told":
            return "recorded as unknown"
        case "resolved":
            return f"{call.doubt}, by {call.by}{'' if call.at is None else f', {figures.clock(call.at)}'}"


def _metric(found: Doubts) -> str:
    runs = figures.quantity(found.runs, "run")
    where = f" in {runs}" if found.unresolved else ""
    since = f", the oldest for {figures.seconds(found.oldest)}" if found.unresolved and found.oldest else ""
    return f"{figures.count(found.unresolved)} unresolved{where}{since}{unread_note(found.unread)}"


async def _note_beside(
    screen: Screen, place: StorePlace, call: DoubtfulCall, doubt: Doubt, why: str, by: str
) -> int:
    """Record the outcome as a note about the result, which states that it is unknown.

    It has no further effect.
    """

    def make(state: RunState, at: int, salt: bytes) -> NoteAdded:  # noqa: ARG001
        redactor = redactor_of().under(state.policy.redact)
        said = Remark(text=remark_of(doubt, redactor.text(why)))
        return NoteAdded(at=at, by=label(redactor.text(by)), seq=call.result, content=said)

    async with changing(place) as store:
        with descriptions.translate_conflicts(place):
            state = await annotate(store, call.run, make, registry=installed_guards())
    tell_left(screen, place, state)
    note(
        f"a note on event {call.result}, the result of {call.call}: the model is not informed, and nothing runs"
    )
    return 0


def _find_doubt(run: str, call: str, calls: Sequence[DoubtfulCall]) -> DoubtfulCall:
    """Return the call, if an answer about it is still possible. Raises `WrongUse`."""
    known = next((each for each in calls if each.call == call), None)
    # If the result records an unknown outcome, a later answer replaces an earlier one: operators mistype.
    if known is not None and (is_unresolved(known) or known.result is not None):
        return known
    open_ = [each.call for each in calls if is_unresolved(each)]
    problem = "is not in doubt" if known is None else f"is settled already: {describe_status(known)}"
    raise WrongUse(f"run {run}: call {call!r} {problem} (calls in doubt: {', '.join(open_) or 'none'})")


class Cancellation(msgspec.Struct, frozen=True, kw_only=True):
    """A run's state after it was stopped, as JSON. `in_doubt`: calls with an unknown outcome, including
    its children's.
    """

    run: str
    state: str
    code: str
    reason: str
    in_doubt: list[DoubtfulCall]


async def cancel_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    *,
    why: Annotated[str, option("--why", "Reason, recorded with the cancellation.")] = "",
    by: By,
) -> int:
    """Stop a run and the child runs that its calls started, at once. No model, tool or policy is needed.

    An engine that drives it loses its lease and cannot write any more. A run that has ended is not changed.

    Example: refold cancel @last --why "wrong task"
    """
    async with locations.reading(place) as store:
        run = await addresses.run_of(store, run)
    async with changing(place) as store:
        with descriptions.translate_conflicts(place):
            result = await halt(store, run, why, by=by, registry=installed_guards())
        family = await family_of(store, run)
        calls = [call for each in family for call in await in_doubt(store, each)]
    left = Cancellation(**standing_of(result), in_doubt=[call for call in calls if is_unresolved(call)])
    screen.result(left, lambda: _tell_cancellation(screen, place, left))
    return 0


def _tell_cancellation(screen: Screen, place: StorePlace, left: Cancellation) -> None:
    if left.code == "cancelled" and left.reason.startswith("cancelled "):
        screen.heading(f"run {left.run}: {left.state} {left.reason.removeprefix('cancelled ')}")
    else:
        screen.heading(f"run {left.run}: {left.state}, {left.reason} ({left.code})")
    if left.in_doubt:
        screen.say("in doubt: the outcome of these calls is unknown, and they are not run again")
        for call in left.in_doubt:
            screen.say(f"  {call.call}  {call.tool}  run {call.run}")
    note(f"next    refold show {left.run}{place.option}")
