"""Leases: the exclusive right of one engine to write a run's log, and detection of dead holders.

A lease expires. To let a restarted process continue without waiting for that, an engine checks whether the
holder's process is gone: by process id and start time, within one boot and one namespace of process ids. On
another machine, in another container, or on a system other than Linux, a holder counts as alive.

The store's fencing token protects the log in any case. Renewing protects the outside world: an engine that is
not sure of its lease must not start another effect.
"""

import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

import anyio
from anyio import CancelScope, current_time, move_on_after

from refold.reducers.errors import ExternalFailure, RefoldError
from refold.store.cancellation import finish_despite_cancel
from refold.store.protocol import Held, Lease, LeaseLost, Store, StoreUnavailable

_PROC = Path("/proc")


def this_process() -> str:
    """Return the name of this process: `host:pid:birth`. `birth` is "" if unknown."""
    return _name(os.getpid())


def new_holder() -> str:
    """Return the name of one engine of this process: `host:pid:birth:nonce`."""
    return f"{this_process()}:{secrets.token_hex(4)}"


def is_gone(holder: str) -> bool:
    """Return whether the holder's process has certainly ended; False if that is unknown."""
    host, pid, birth = (*holder.rpartition(":")[0].rsplit(":", 2), "", "")[:3]
    if host != _host() or not birth or not pid.isdecimal() or birth.split(".")[0] != _era():
        return False
    now = _birth(int(pid))
    return not _runs(int(pid)) if now is None else now != birth


def _runs(pid: int) -> bool:
    """Return whether a process with this id exists, where /proc cannot be read."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's process
    return True


@cache  # by id, because a forked process has another
def _name(pid: int) -> str:
    return f"{_host()}:{pid}:{_birth(pid) or ''}"


@cache
def _host() -> str:
    return socket.gethostname()


def _birth(pid: int) -> str | None:
    """Return when a process was started, within its era; "" if it has ended, None if unknown."""
    era = _era()
    try:
        # The program's name in parentheses may contain anything; the fields follow the last parenthesis.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # Field 22 of proc(5); the first after the parentheses is field 3. A zombie holds nothing any longer.
    return f"{era}.{fields[19]}" if era and len(fields) > 19 and fields[0] not in "ZX" else ""


@cache
def _era() -> str:
    """Return an id of this boot and of the namespace of process ids."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot[:8]}-{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


_LAST_WORD = 5.0
"""Seconds that a store has to release a lease; otherwise the lease expires."""


BRIEF = 2.0
"""Seconds of a remaining lease that are waited out: its holder is only writing a line, or it is expiring."""


LOOK = 2.0
"""Seconds between two checks of the engine's own lease. An engine stops within that time if its run is
cancelled from elsewhere.
"""


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class LeaseLapsed(ExternalFailure):
    """The lease expired without renewal: another engine may have the run, so this one stops."""

    def __init__(self, run: str, seconds: float) -> None:
        super().__init__(run, seconds)
        self.run, self.seconds = run, seconds

    def __str__(self) -> str:
        return (
            f"run {self.run}: its lease could not be renewed for {self.seconds:g} s, so another engine may have it; "
            "this engine stopped. A worker or `refold resume` continues the run when the store is available again"
        )


class Grant(NamedTuple):
    """A lease that was granted to `holder`. `since`: when, by both clocks."""

    lease: Lease
    holder: str
    since: tuple[float, float]


class Tenure:
    """The lease of one run, held by one engine. `seconds` is its duration if the engine dies.

    `patience`: seconds to wait for another engine that has the run. `grant`: the lease, if it was granted
    already. `due`: seconds until the run is runnable after its release; None: when it is woken.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        seconds: float,
        *,
        take_over: bool = False,
        patience: float = 0.0,
        grant: Grant | None = None,
    ) -> None:
        self.store, self._run, self.seconds = store, run, seconds
        self.take_over, self._patience = take_over, patience
        self._by_force = take_over  # once only: after a release for an operator, wait for other engines
        self._holder = new_holder()
        self._lease: Lease | None = None
        self._asked = False
        self._ending = False
        self.due: float | None = 0.0
        self._since = (0.0, 0.0)  # when the lease was last granted, by both clocks
        if grant is not None:
            (self._lease, self._holder, self._since), self._asked = grant, True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.let_go(self.due)

    async def hold(self) -> Lease:
        """Return the lease, and take it first if needed. Raises `Held` while another engine has the run.

        A holder on this machine whose process has ended does not count; with `take_over` no holder does.
        """
        if self._lease is None:
            self._asked = True
            self._lease = await self._take()
            self._by_force = False
        return self._lease

    def pass_on(self) -> Grant:
        """Give the lease, which must be held, to another `Tenure` of the same store."""
        assert self._lease is not None
        grant = Grant(self._lease, self._holder, self._since)
        self._lease, self._asked = None, False
        return grant

    async def assure(self) -> Lease:
        """Return a valid lease; call this before an effect starts.

        Raises `LeaseLost` if another engine has the run.
        """
        lease = await self.hold()
        if self._seconds_left() <= 0:  # the process was suspended, or the machine slept
            await self._renew(lease)
        return lease

    async def keep(self) -> None:
        """Renew the lease until cancelled.

        Raises `LeaseLost` if another engine has the run, `LeaseLapsed` if another may have it.
        """
        while True:
            await anyio.sleep(min(LOOK, self.seconds / 3))
            lease = self._lease
            if lease is not None and not await self._keep_or_check(lease) and self._lease is lease:
                raise LeaseLapsed(self._run, self.seconds)

    async def confirm(self) -> None:
        """Check in the store that the lease is still ours. Raises `LeaseLost`."""
        if self._lease is not None:
            await self._check_claim(self._lease)

    @asynccontextmanager
    async def ending(self) -> AsyncGenerator[None]:
        """Around the append that also releases the lease: it is not lost meanwhile, and gone afterwards."""
        self._ending = True
        try:
            yield
            self._lease, self._asked = None, False
        finally:
            self._ending = False

    async def up_to_date(self) -> None:
        """Take the lease anew, which marks earlier wake-ups of the run as done."""
        lease, self._lease = self._lease, None  # so that `keep` does not report it as lost meanwhile
        if lease is not None:
            self._lease = await self.store.lease(
                self._run, holder=self._holder, seconds=self.seconds, over=lease.token
            )

    async def let_go(self, after: float | None) -> None:
        """Release the lease; the run is runnable again in `after` seconds, None: when it is woken.

        If the store does not respond, the lease expires.
        """
        if not self._asked:
            return
        self._asked = False
        tried, until = anyio.Event(), current_time() + _LAST_WORD

        async def give_back() -> None:
            with CancelScope(deadline=until), suppress(RefoldError):
                lease = self._lease or await self._find_unanswered()
                self._lease = None
                if lease is not None:
                    await self.store.release(lease, after)
            tried.set()

        await finish_despite_cancel(give_back, lambda: tried.is_set() or current_time() >= until)

    async def _take(self) -> Lease:
        over: int | None = None
        begun, pause = current_time(), 0.02
        while True:
            self._since = clocks()
            try:
                return await self.store.lease(self._run, holder=self._holder, seconds=self.seconds, over=over)
            except Held as error:
                # It may be ours: granted, but the response was lost.
                free = self._by_force or error.holder == self._holder or is_gone(error.holder)
                over = error.token if free else None
                patience = max(self._patience, BRIEF if error.seconds <= BRIEF else 0.0)
                if over is None and current_time() - begun >= patience:
                    raise
            if over is None:
                await anyio.sleep(pause)
                pause = min(2 * pause, LOOK)

    async def _find_unanswered(self) -> Lease | None:
        """Return the lease that was granted while the request for it was cancelled."""
        claim = await self.store.claim(self._run)
        if claim is None or claim.holder != self._holder:
            return None
        return Lease(run=self._run, token=claim.token)

    async def _keep_or_check(self, lease: Lease) -> bool:
        """Renew the lease after a third of its time, else check it. Return False if it expired.

        Raises `LeaseLost`.
        """
        left = self._seconds_left()
        with move_on_after(max(left, _LAST_WORD)):
            try:
                await (self._check_claim(lease) if left > 2 * self.seconds / 3 else self._renew(lease))
            except StoreUnavailable:
                pass
            except LeaseLost:
                if self._lease is lease and not self._ending:  # otherwise it was released meanwhile
                    raise
        return self._seconds_left() > 0

    async def _renew(self, lease: Lease) -> None:
        began = clocks()
        await self.store.renew(lease, self.seconds)
        self._since = began

    def _seconds_left(self) -> float:
        """Return the seconds for which the lease is certainly valid."""
        loop, machine = clocks()
        return self.seconds - max(loop - self._since[0], machine - self._since[1])

    async def _check_claim(self, lease: Lease) -> None:
        claim = await self.store.claim(self._run)
        if claim is None or claim.token != lease.token:
            raise LeaseLost(lease.run, lease.token, claim.token if claim else 0)


def clocks() -> tuple[float, float]:
    """Return the event loop's clock, and one that also counts sleep of the machine, if available."""
    loop = current_time()
    return loop, loop if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
