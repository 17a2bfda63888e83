"""An engine's hold on its run: the lease, and who holds it.

A lease runs out by itself. But a restart of what was killed should not have to wait for that, and a machine
knows which of its processes are gone: by process id and the instant it was started, in one boot and one
namespace of process ids. Where that cannot be known (another machine or container, another system than
Linux), nobody is taken for dead.

The store's fencing token keeps the log right whatever happens here; renewing keeps the world right: an engine
that cannot be sure of its lease any more must not start another effect.
"""

import os
import secrets
import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

import anyio
from anyio import CancelScope, current_time, move_on_after

from refold.reducers.errors import RefoldError, WorldFailed
from refold.store.protocol import Held, Lease, LeaseLost, Store, StoreUnavailable
from refold.store.thread import seen_through

_PROC = Path("/proc")


def this_process() -> str:
    """A name for this process: `host:pid:birth`. `birth` is "" where a process has none."""
    return _name(os.getpid())


def new_holder() -> str:
    """A name for one engine of this process: `host:pid:birth:nonce`."""
    return f"{this_process()}:{secrets.token_hex(4)}"


def is_gone(holder: str) -> bool:
    """Whether the process of this holder surely runs no more.

    False where that cannot be known, as of a name without a birth.
    """
    host, pid, birth = (*holder.rpartition(":")[0].rsplit(":", 2), "", "")[:3]
    if host != _host() or not birth or not pid.isdecimal() or birth.split(".")[0] != _era():
        return False
    now = _birth(int(pid))
    return not _runs(int(pid)) if now is None else now != birth


def _runs(pid: int) -> bool:
    """Whether there is a process of this id, where its files cannot be read."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


@cache  # by the id: a process that was forked has another
def _name(pid: int) -> str:
    return f"{_host()}:{pid}:{_birth(pid) or ''}"


@cache
def _host() -> str:
    return socket.gethostname()


def _birth(pid: int) -> str | None:
    """When a process was started, within its era; "" if it is over, None if that cannot be known."""
    era = _era()
    try:
        # The name of the program stands in brackets, and may hold anything: what follows the last one is
        # fields.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # Field 22 of proc(5); after the brackets the third is the first. A zombie holds nothing any more.
    return f"{era}.{fields[19]}" if era and len(fields) > 19 and fields[0] not in "ZX" else ""


@cache
def _era() -> str:
    """This boot of this machine, and the namespace in which process ids mean something."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot[:8]}-{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


_LAST_WORD = 5.0
"""Seconds within which a store is to take back a lease; else the lease runs out by itself."""


BRIEF = 2.0
"""Seconds of a lease that is waited for: its holder only writes a line, or runs out right now."""


LOOK = 2.0
"""Seconds between two looks at one's own lease: so soon an engine stops whose run was cancelled from
elsewhere.
"""


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class LeaseLapsed(WorldFailed):
    """The lease ran out, and the store did not let us renew it: another engine may have the run, so this one
    stops.
    """

    def __init__(self, run: str, seconds: float) -> None:
        super().__init__(run, seconds)
        self.run, self.seconds = run, seconds

    def __str__(self) -> str:
        return (
            f"run {self.run}: its lease could not be renewed for {self.seconds:g} s, so another engine may have it now; "
            "this one stopped. When the store answers again, resume the run"
        )


class Tenure:
    """The lease of one run, for one engine. `seconds` is how long it is good for when its engine dies.

    `patience`: so many seconds another engine is waited for that has the run. `due`: in how many seconds the
    run is to be taken up again, once the block ends for which it is held; None: when it is woken.
    """

    def __init__(
        self, store: Store, run: str, seconds: float, *, take_over: bool = False, patience: float = 0.0
    ) -> None:
        self.store, self._run, self.seconds = store, run, seconds
        self.take_over, self._patience = take_over, patience
        self._by_force = take_over  # once: a run given back for a person is taken again like any other
        self._holder = new_holder()
        self._lease: Lease | None = None
        self._asked = False
        self.due: float | None = 0.0
        self._since = (0.0, 0.0)  # when the lease was last asked for, with success, by both clocks

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.let_go(self.due)

    async def hold(self) -> Lease:
        """The lease; taken if it is not held. Raises `Held` while another engine lives that has the run.

        An engine of this machine that is surely dead is not waited for; with `take_over` no engine is.
        """
        if self._lease is None:
            self._asked = True
            self._lease = await self._taken()
            self._by_force = False
        return self._lease

    async def assure(self) -> Lease:
        """Be sure of the lease before anything is begun in the world.

        Raises `LeaseLost` once another engine has it.
        """
        lease = await self.hold()
        if self._left() <= 0:  # the process was stopped, or the machine slept
            await self._renew(lease)
        return lease

    async def keep(self) -> None:
        """Renew the lease for ever.

        Raises `LeaseLost` once another engine has it, `LeaseLapsed` if one may have.
        """
        while True:
            await anyio.sleep(min(LOOK, self.seconds / 3))
            lease = self._lease
            if lease is not None and not await self._kept(lease) and self._lease is lease:
                raise LeaseLapsed(self._run, self.seconds)

    async def confirm(self) -> None:
        """See that the run is still ours, whatever the clocks say. Raises `LeaseLost`."""
        if self._lease is not None:
            await self._seen(self._lease)

    async def up_to_date(self) -> None:
        """What the run was woken for until now, its own engine has seen to: no other need look at it again
        for that.
        """
        lease, self._lease = self._lease, None  # `keep` is not to miss it meanwhile
        if lease is not None:
            self._lease = await self.store.lease(
                self._run, holder=self._holder, seconds=self.seconds, over=lease.token
            )

    async def let_go(self, after: float | None) -> None:
        """Give the run back, to be taken up in `after` seconds; None: when it is woken.

        Where the store does not answer, the lease runs out by itself.
        """
        if not self._asked:
            return
        self._asked = False
        tried, until = anyio.Event(), current_time() + _LAST_WORD

        async def give_back() -> None:
            with CancelScope(deadline=until), suppress(RefoldError):
                lease = self._lease or await self._unanswered()
                self._lease = None
                if lease is not None:
                    await self.store.release(lease, after)
            tried.set()

        await seen_through(give_back, lambda: tried.is_set() or current_time() >= until)

    async def _taken(self) -> Lease:
        over: int | None = None
        begun, pause = current_time(), 0.02
        while True:
            self._since = _clocks()
            try:
                return await self.store.lease(self._run, holder=self._holder, seconds=self.seconds, over=over)
            except Held as error:
                # It may be ours: granted, and the answer lost on its way.
                free = self._by_force or error.holder == self._holder or is_gone(error.holder)
                over = error.token if free else None
                patience = max(self._patience, BRIEF if error.seconds <= BRIEF else 0.0)
                if over is None and current_time() - begun >= patience:
                    raise
            if over is None:
                await anyio.sleep(pause)
                pause = min(2 * pause, LOOK)

    async def _unanswered(self) -> Lease | None:
        """The lease that we asked for, and were cancelled before we had it."""
        claim = await self.store.claim(self._run)
        if claim is None or claim.holder != self._holder:
            return None
        return Lease(run=self._run, token=claim.token)

    async def _kept(self, lease: Lease) -> bool:
        """Renew the lease when a third of it is over, else see that it is ours; False: it ran out.

        Raises `LeaseLost`.
        """
        left = self._left()
        with move_on_after(max(left, _LAST_WORD)):
            try:
                await (self._seen(lease) if left > 2 * self.seconds / 3 else self._renew(lease))
            except StoreUnavailable:
                pass
            except LeaseLost:
                if self._lease is lease:  # else it was given back meanwhile
                    raise
        return self._left() > 0

    async def _renew(self, lease: Lease) -> None:
        began = _clocks()
        await self.store.renew(lease, self.seconds)
        self._since = began

    def _left(self) -> float:
        """Seconds for which the lease is surely good."""
        loop, machine = _clocks()
        return self.seconds - max(loop - self._since[0], machine - self._since[1])

    async def _seen(self, lease: Lease) -> None:
        claim = await self.store.claim(self._run)
        if claim is None or claim.token != lease.token:
            raise LeaseLost(lease.run, lease.token, claim.token if claim else 0)


def _clocks() -> tuple[float, float]:
    """The event loop's clock, and one that goes on while the machine sleeps, where there is one."""
    loop = current_time()
    return loop, loop if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
