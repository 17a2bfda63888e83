"""Many runs, a few workers over one store, SIGKILL and SIGSTOP at random: what is lost, what is done twice,
what does not end?

Workers are killed at moments that a seed chooses, and started again at once; others stand still for longer
than their leases are good for, and are woken. When the time is up they are left alone until every run has
ended. Then the log is held against what lies beside it: each head that any worker was told is on disk, and
each line that a tool wrote when it really ran. Over PostgreSQL the server is hit as well: see `places`.
"""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import msgspec

from refold.reducers import codec
from refold.reducers.events import RunResumed, ToolReturned
from refold.reducers.machine import TERMINAL
from refold.reducers.vocabulary import ToolError
from refold.replay import audit, verify
from refold.store.base import BaseStore
from refold.store.protocol import DamagedStore
from storm.agents import agent
from storm.places import HitServer, open_place

WORKER = Path(__file__).with_name("worker.py")
PATIENCE = 300.0
"""Seconds that the runs may take to end once nobody kills their workers any more."""


NAME = "run"
"""How the ids of the runs begin."""

_STOPPED = 0.4
"""How many of the workers that something happens to are suspended, and not killed."""
_SERVER = 0.3
"""How often it is the server that is hit, and not a worker."""


class Figures(msgspec.Struct):
    """What a storm came to. All from `lost_events` to `damaged` must be 0."""

    runs: int = 0
    workers: int = 0
    seconds: float = 0.0
    kills: int = 0
    stops: int = 0
    sessions_ended: int = 0
    sessions_killed: int = 0
    servers_killed: int = 0
    events: int = 0
    resumptions: int = 0
    charges: int = 0
    bookings: int = 0
    in_doubt: int = 0
    lost_events: int = 0
    repeated_charges: int = 0
    repeated_bookings: int = 0
    charges_without_effect: int = 0
    other_keys: int = 0
    unended: int = 0
    unverified: int = 0
    unaudited: int = 0
    failures: int = 0
    died: int = 0
    damaged: str = ""
    unavailable: int = 0
    unopened: int = 0

    @property
    def violations(self) -> int:
        """How often a promise was broken."""
        return (
            self.lost_events
            + self.repeated_charges
            + self.repeated_bookings
            + self.charges_without_effect
            + self.other_keys
            + self.unended
            + self.unverified
            + self.unaudited
            + self.failures
            + self.died
            + bool(self.damaged)
        )


class Workers:
    """The processes."""

    def __init__(
        self, folder: Path, address: str, count: int, *, steps: int, concurrency: int, lease: float
    ) -> None:
        given = (folder, address, steps, concurrency, lease)
        self._command = [sys.executable, str(WORKER), *map(str, given)]
        self._folder, self._errors = folder, (folder / "stderr").open("ab")
        self._running = [self._started() for _ in range(count)]
        self._still: dict[int, float] = {}  # by place: when it is to be woken
        self._lease = lease
        self.died = self.unopened = 0
        """How many ended by themselves at work; and before, because a server took too long to start."""

    def kill_one(self, chance: random.Random) -> bool:
        """Kill one that is at work, and start another in its place. Whether there was one."""
        place = self._one(chance)
        if place is None:
            return False
        self._end(*self._running[place])
        self._running[place] = self._started()
        return True

    def stop_one(self, chance: random.Random) -> bool:
        """Have one that is at work stand still, mostly for longer than its leases are good for.

        Whether there was one.
        """
        place = self._one(chance)
        if place is None or len(self._still) + 1 == len(self._running):
            return False
        self._running[place][0].send_signal(signal.SIGSTOP)
        self._still[place] = time.monotonic() + self._lease * chance.uniform(0.5, 4)
        return True

    def replace_ended(self) -> None:
        """Start another in the place of each that has ended, as a supervisor does."""
        for place, (process, at_work) in enumerate(self._running):
            if process.poll() is not None:
                self._end(process, at_work)
                self._running[place] = self._started()

    def wake(self, *, everybody: bool = False) -> None:
        """Let go on who stood still for long enough."""
        for place in [each for each, until in self._still.items() if everybody or until < time.monotonic()]:
            del self._still[place]
            self._running[place][0].send_signal(signal.SIGCONT)

    def _one(self, chance: random.Random) -> int | None:
        known = [place for place in range(len(self._running)) if place not in self._still]
        at_work = [place for place in known if self._running[place][1].exists()]
        return chance.choice(at_work) if at_work else None

    def wait_until_at_work(self, seconds: float = 60.0) -> None:
        """Wait until each has taken a run."""
        until = time.monotonic() + seconds
        while not all(at_work.exists() for _, at_work in self._running):
            assert time.monotonic() < until, (self._folder / "stderr").read_text()
            time.sleep(0.05)

    def close(self) -> None:
        for process, at_work in self._running:
            self._end(process, at_work)
        self._errors.close()

    def _end(self, process: "subprocess.Popen[bytes]", at_work: Path) -> None:
        if process.poll() is not None and at_work.exists():
            self.died += 1
        elif process.returncode is not None:
            self.unopened += 1
        process.kill()
        process.wait()

    def _started(self) -> "tuple[subprocess.Popen[bytes], Path]":
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=self._errors)
        return process, self._folder / f"at_work.{process.pid}"


def storm(
    folder: Path,
    *,
    runs: int,
    workers: int,
    steps: int,
    seconds: float,
    seed: int,
    lease: float = 2.0,
    at_least: int = 1,
    server: HitServer | None = None,
) -> Figures:
    """Let it rage, for longer where so many were not killed yet; wait until it is calm, and count."""
    address = server.address if server else f"sqlite:{folder / 'runs.db'}"
    anyio.run(queue, folder, address, runs, steps)
    chance = random.Random(seed)
    figures = Figures(runs=runs, workers=workers)
    began = time.monotonic()
    # With room for the runs of those that stand still.
    crew = Workers(folder, address, workers, steps=steps, concurrency=1 + 2 * runs // workers, lease=lease)
    try:
        while (passed := time.monotonic() - began) < seconds or (
            min(figures.kills, figures.stops, *(server.hits if server else ())) < at_least
            and anyio.run(going, address)
        ):
            time.sleep(chance.uniform(0.05, 0.6))
            crew.wake()
            crew.replace_ended()
            if server and chance.random() < _SERVER:
                server.strike(chance, passed / seconds)
            elif chance.random() < _STOPPED:
                figures.stops += crew.stop_one(chance)
            else:
                figures.kills += crew.kill_one(chance)
        crew.wake(everybody=True)
        crew.replace_ended()
        wait_until_calm(address)
    finally:
        crew.close()
    figures.seconds = round(time.monotonic() - began, 1)
    figures.died, figures.unopened = crew.died, crew.unopened
    if server:
        figures.servers_killed, figures.sessions_killed, figures.sessions_ended = server.hits
    anyio.run(judge, folder, address, figures)
    return figures


async def queue(folder: Path, address: str, runs: int, steps: int) -> None:
    """Leave so many runs to workers."""
    async with await open_place(address) as store:
        someone = agent(steps, folder / "effects")
        someone.store = store
        for number in range(runs):
            await someone.start("Do it.", run_id=f"{NAME}{number}").detach()


def wait_until_calm(address: str) -> None:
    """Wait until no run wants an engine, for `PATIENCE` at most."""
    calm = time.monotonic()
    while time.monotonic() - calm < PATIENCE and anyio.run(going, address):
        time.sleep(0.5)


async def going(address: str) -> bool:
    """Whether a run still has an engine, or wants one."""
    async with await open_place(address, readonly=True) as store:
        async for chunk in store.runs(NAME):
            for run, _ in chunk:
                if await store.claim(run) is not None:
                    return True
    return False


async def judge(folder: Path, address: str, figures: Figures) -> None:
    """Hold the store against what lies beside it."""
    effects = [line.split() for line in _lines(folder / "effects")]
    charged = Counter((run, call) for kind, run, call, _ in effects if kind == "charge")
    keys: dict[tuple[str, str, str], set[str]] = {}
    for kind, run, call, key in effects:
        keys.setdefault((kind, run, call), set()).add(key)
    booked = Counter((run, call) for kind, run, call, _ in effects if kind == "book")
    figures.charges, figures.bookings = sum(charged.values()), sum(booked.values())
    figures.repeated_charges = sum(count - 1 for count in charged.values())
    figures.repeated_bookings = sum(count - 1 for count in booked.values())
    figures.other_keys = sum(len(each) - 1 for each in keys.values())
    # Who is suspended in the middle of a commit holds SQLite's lock: the others say so, and their runs are
    # taken up again.
    failed = [line for line in _lines(folder / "told") if " failed " in line]
    figures.unavailable = sum(
        any(mark in line for mark in ("SQLITE_BUSY", "StoreUnavailable", "store postgresql:"))
        for line in failed
    )
    figures.failures = len(failed) - figures.unavailable
    async with await open_place(address, readonly=True) as store:
        try:
            await store.check()
        except DamagedStore as error:
            figures.damaged = str(error)
        hashes: dict[str, list[str]] = {}
        async for chunk in store.runs(NAME):
            for run, _ in chunk:
                hashes[run] = await _judge_run(store, run, charged, figures)
    for line in _lines(folder / "recorded"):
        run, seq, digest = line.split()
        log = hashes.get(run, [])
        figures.lost_events += len(log) < int(seq) or log[int(seq) - 1] != digest


async def _judge_run(
    store: BaseStore, run: str, charged: Counter[tuple[str, str]], figures: Figures
) -> list[str]:
    digests: list[str] = []
    async for chunk in store.read(run):
        for stored in chunk:
            digests.append(stored.hash.hex())
            event = codec.decode(stored.kind, stored.body, run=run, seq=stored.seq)
            figures.resumptions += isinstance(event, RunResumed)
            if isinstance(event, ToolReturned) and event.error is ToolError.IN_DOUBT:
                figures.in_doubt += 1
            elif isinstance(event, ToolReturned) and b"charged for" in (stored.content or b""):
                figures.charges_without_effect += charged[run, event.call] != 1
    figures.events += len(digests)
    found = await verify(store, run)
    figures.unverified += not found.whole
    figures.unended += found.agent_state not in {str(state) for state in TERMINAL}
    figures.unaudited += bool((await audit(store, run)).differences)
    return digests


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
