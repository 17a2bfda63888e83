"""`refold erase`: delete an event's payload, and record who deleted it and why."""

import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import anyio
import msgspec

from refold.console import addresses, descriptions
from refold.console.locations import StorePlace, changing
from refold.console.options import By, argument, option
from refold.console.screen import Screen, note
from refold.engine.compatibility import installed_guards
from refold.engine.journal import record, source_of
from refold.engine.secrets import redactor_of
from refold.reducers.errors import Damaged, Inconclusive, WrongUse
from refold.reducers.events import ContentErased, RunStarted
from refold.reducers.secrets import Redactor
from refold.reducers.views import needed_to_go_on
from refold.replay import events, figures, state_at
from refold.store.protocol import Head, Lease, Store, Stored

STAYS = (
    "the event, its time and place in the log; sizes, names and numbers; its digest, which reveals nothing without "
    "the salt"
)
UNREACHED = (
    "bundles, backups, exports and recordings made before; copies in other events, such as summaries, later "
    "responses, and runs that calls of this one started"
)
_LISTED = 12


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an erasure, as JSON. Event `seq` had a payload of `size` bytes; event `notice` records
    the erasure.

    `forks`: runs that share the event, and have lost its payload too.
    """

    run: str
    seq: int
    kind: str
    size: int
    notice: int
    again: bool
    forks: tuple[str, ...]
    stays: str = STAYS
    unreached: str = UNREACHED


async def erase_command(
    screen: Screen,
    place: StorePlace,
    event: Annotated[str, argument("The event whose payload to erase, as RUN@e41.")],
    *,
    why: Annotated[str, option("--why", "Reason, recorded permanently: do not quote what is erased.")],
    by: By,
    yes: Annotated[
        bool, option("--yes", "Do not ask for confirmation; required without a terminal.")
    ] = False,
) -> int:
    """Erase an event's payload for good, after showing it and asking for confirmation.

    The event stays in its place with its size and digest, so the hash chain still verifies.

    Example: refold erase RUN@e41 --why "contains a password"
    """
    if not why.strip():
        raise WrongUse("--why: expected a reason; it is recorded permanently, so do not quote what is erased")
    address = addresses.parse(event)
    if address.event is None:
        raise addresses.BadAddress(
            event, "expected an event, as in RUN@e41; `refold show RUN --all` lists them"
        )
    async with changing(place) as store:
        run, seq = await addresses.resolve_id(store, address.run), address.event
        found = await _with_content(store, run, seq, event)
        forks = await _forks(store, found)
        if not (yes or await _confirm(store, found, forks)):
            note("nothing was erased")
            return 1
        async with _hold_lease(store, found.run) as lease:  # of a fork's prefix: the run that recorded it
            for each in (found.run, *forks):
                await _refuse_needed(store, each, seq)
            head = await _erase(store, lease, found, why, by)
    done = Erasure(
        run=found.run,
        seq=seq,
        kind=found.kind,
        size=len(found.content or b""),
        notice=head.seq,
        again=found.content is None,
        forks=tuple(forks),
    )
    screen.result(done, lambda: _tell(screen, done))
    return 0


async def _confirm(store: Store, event: Stored, forks: Sequence[str]) -> bool:
    """Show what would be erased, and ask. Raises `WrongUse` without a terminal."""
    what = f"{figures.quantity(len(event.content or b''), 'byte')} of event {event.seq} ({event.kind}) of run {event.run}"
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise WrongUse(
            f"erasing {what} needs a confirmation, and there is no terminal to ask for it: expected --yes"
        )
    for run in (event.run, *forks):
        await _refuse_needed(store, run, event.seq)
    note(f"to be erased permanently: {what}")
    note(
        f"  payload  {descriptions.short(None if event.content is None else event.content.decode(errors='replace'))}"
    )
    note(f"  forks    {', '.join(forks) or 'none'}")
    print("Erase it? Type yes: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


async def _forks(store: Store, event: Stored) -> list[str]:
    """Return the runs whose log shares this event of another run."""
    found = list[str]()
    async for chunk in store.runs():
        for run, _ in chunk:
            lineage = await store.lineage(run)
            found += [run] if any(each.run == event.run and each.seq >= event.seq for each in lineage) else []
    return found


async def _refuse_needed(store: Store, run: str, seq: int) -> None:
    """Raise `WrongUse` if an unfinished run needs this payload to continue. Imported runs never continue."""
    if await source_of(store, run):
        return
    state, _ = await state_at(store, run, registry=installed_guards())
    if not state.ended and seq in needed_to_go_on(state):
        raise WrongUse(
            f"run {run} has not ended, and needs event {seq} to continue: `refold cancel {run}` first, then erase"
        )


async def _with_content(store: Store, run: str, seq: int, typed: str) -> Stored:
    found = await store.read_some(run, [seq])
    if not found:
        raise addresses.BadAddress(typed, f"run {run} has events 1 to {(await store.head(run)).seq}")
    if found[0].content_digest is None:
        said = f"a {found[0].kind} has no payload to erase; events with a payload: {await _some(store, run)}"
        raise addresses.BadAddress(typed, said)
    return found[0]


async def _some(store: Store, run: str) -> str:
    listed = list[str]()
    async for chunk in store.read(run):
        listed += [f"e{event.seq} {event.kind}" for event in chunk if event.content is not None]
        if len(listed) > _LISTED:
            break
    return ", ".join(listed[:_LISTED]) + (", …" if len(listed) > _LISTED else "") if listed else "none"


@asynccontextmanager
async def _hold_lease(store: Store, run: str) -> AsyncGenerator[Lease]:
    """Hold the run's lease. What was queued for the run stays queued."""
    claim = await store.claim(run)
    lease = await store.lease(run, holder=f"refold erase, process {os.getpid()}")
    try:
        yield lease
    finally:
        with anyio.CancelScope(shield=True):
            await store.release(lease, None if claim is None else max(0.0, claim.seconds))


async def _erase(store: Store, lease: Lease, event: Stored, why: str, by: str) -> Head:
    head = await store.head(event.run)
    (last,) = await store.read_some(event.run, [head.seq])
    at = max(last.at, time.time_ns())
    redactor = await _redactor(store, event.run)
    notice = ContentErased(at=at, seqs=(event.seq,), by=redactor.text(by), why=redactor.text(why))
    return await store.erase(event.run, head.seq, lease, [event.seq], record(notice, at, b""))


async def _redactor(store: Store, run: str) -> Redactor:
    """Return the redactor of this process, under the policy that the run started with, if that is
    readable.
    """
    with suppress(Inconclusive, Damaged):
        async for _, event in events(store, run, upto=1):
            if isinstance(event, RunStarted):
                return redactor_of().under(event.policy.redact)
    return redactor_of()


def _tell(screen: Screen, done: Erasure) -> None:
    what = "erased again" if done.again else f"{figures.quantity(done.size, 'byte')} erased"
    screen.heading(f"run {done.run} event {done.seq} ({done.kind}): {what}")
    rows = [("  forks", f"also erased in {', '.join(done.forks)}")] if done.forks else []
    rows += [("  notice", f"event {done.notice}"), ("  kept", done.stays), ("  not reached", done.unreached)]
    screen.pairs(rows)
