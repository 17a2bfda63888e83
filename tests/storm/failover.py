"""A primary PostgreSQL server is lost under load, or its standby: `python tests/storm/failover.py`.

Workers drive runs, and clients append to runs of their own, by an address that names both servers. Then

- the primary is killed and the standby promoted, with synchronous replication and with asynchronous one;
- the standby stands still for a while, with synchronous replication.

Nothing that was acknowledged may be lost, but with asynchronous replication; no worker may end; and every run
must verify and audit. Exits with 1 otherwise. The figures are one line for each.
"""

import argparse
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # a script's own folder is on the path, not the one above it

from storm.clients import Clients, lost_events  # noqa: E402
from storm.pairs import SECONDS, Pair  # noqa: E402
from storm.raging import Figures, Workers, judge, queue, wait_until_calm  # noqa: E402

LEASE = 2.0


class Failover(msgspec.Struct):
    """What a failover came to. Seconds count from the kill of the primary."""

    synchronous: bool
    appends_a_second: int = 0
    acknowledged: int = 0
    lost: int = 0
    unknown: int = 0
    unknown_committed: int = 0
    known_failures: int = 0
    overtaken: int = 0
    promoted_after: float = 0.0
    writable_after: float = 0.0
    all_writable_after: float = 0.0
    runs: Figures = msgspec.field(default_factory=Figures)

    @property
    def violations(self) -> int:
        """How often a promise was broken."""
        lost = self.lost + self.overtaken + self.runs.lost_events if self.synchronous else 0
        return lost + self.runs.died + self.runs.unended + self.runs.unverified + self.runs.unaudited


class Load:
    """Workers and clients of a pair. `patient` clients find out outcomes in the store, others beside it."""

    def __init__(self, pair: Pair, folder: Path, *, runs: int, workers: int, steps: int, each: int) -> None:
        self.pair, self.folder = pair, folder
        self.figures = Figures(runs=runs, workers=workers)
        anyio.run(queue, folder, pair.address, runs, steps)
        # Each store has one append under way, of all runs that are ready: so the more of them lose theirs.
        self.clients = [
            Clients(pair.address, "patient", each),
            *(Clients(pair.address, f"impatient{place}-", 2, patience=0.0) for place in range(each // 2)),
        ]
        self._count, self._steps = workers, steps

    def run(self, happen: Callable[[], None]) -> None:
        """Have something happen while all are at work; then let the runs end."""
        given = {"steps": self._steps, "concurrency": 1 + self.figures.runs // self._count, "lease": LEASE}
        began = time.monotonic()
        crew = Workers(self.folder, self.pair.address, self._count, **given)  # type: ignore[arg-type]
        try:
            crew.wait_until_at_work()
            anyio.run(self._with_clients, happen)
            wait_until_calm(self.pair.address)
        finally:
            crew.close()
        self.figures.seconds, self.figures.died = round(time.monotonic() - began, 1), crew.died
        anyio.run(judge, self.folder, self.pair.address, self.figures)

    def stop(self) -> None:
        """Let the clients end."""
        for clients in self.clients:
            clients.stopping = True

    async def _with_clients(self, happen: Callable[[], None]) -> None:
        async with anyio.create_task_group() as tasks:
            for clients in self.clients:
                tasks.start_soon(clients.run)
            try:
                await to_thread.run_sync(happen)
            finally:
                self.stop()


def fail_over(
    folder: Path,
    *,
    synchronous: bool,
    seconds: float = 4.0,
    lag: float = 0.0,
    runs: int = 30,
    workers: int = 2,
    steps: int = 20,
    clients: int = 16,
) -> Failover:
    """Kill the primary after some seconds of load, promote the standby, and go on for as long.

    `lag`: seconds for which the standby received nothing before the kill; with synchronous replication
    nothing is acknowledged meanwhile.
    """
    found = Failover(synchronous)
    with Pair(synchronous=synchronous) as pair:
        load = Load(pair, folder, runs=runs, workers=workers, steps=steps, each=clients)
        killed = began = 0.0

        def happen() -> None:
            nonlocal killed, began
            began = time.monotonic()
            time.sleep(seconds)
            receiver = pair.receiver()
            if lag:
                os.kill(receiver, signal.SIGSTOP)
                time.sleep(lag)
            pair.primary.kill()
            killed = time.monotonic()
            if lag:
                os.kill(receiver, signal.SIGCONT)
            pair.fail_over()
            found.promoted_after = round(time.monotonic() - killed, 2)
            wait_until_written(load.clients, killed)
            time.sleep(seconds)

        load.run(happen)
        found.runs = load.figures
        times = [moment for each in load.clients for some in each.times.values() for moment in some]
        found.appends_a_second = round(sum(began < moment < killed for moment in times) / (killed - began))
        first = [moment - killed for each in load.clients for moment in each.first_after(killed)]
        found.writable_after, found.all_writable_after = round(min(first), 2), round(max(first), 2)
        found.acknowledged = sum(each.events for each in load.clients)
        found.lost = sum(anyio.run(lost_events, pair.address, each) for each in load.clients)
        unknown = [each for some in load.clients for each in some.unknown]
        found.unknown, found.unknown_committed = len(unknown), sum(bool(each.committed) for each in unknown)
        found.known_failures = sum(each.known for each in load.clients)
        found.overtaken = sum(len(each.overtaken) for each in load.clients)
    return found


def wait_until_written(clients: Sequence[Clients], since: float) -> None:
    """Wait until each run of the clients was written since a moment, or was overtaken."""
    until = time.monotonic() + SECONDS
    while any(moment == math.inf for each in clients for moment in each.first_after(since)):
        assert time.monotonic() < until, "clients cannot write"
        time.sleep(0.02)


class Absence(msgspec.Struct):
    """What it came to when the standby stood still under synchronous replication."""

    seconds: float = 0.0
    acknowledged: int = 0
    acknowledged_meanwhile: int = 0
    unknown: int = 0
    unknown_committed: int = 0
    known_failures: int = 0
    sessions: int = 0
    lost: int = 0
    overtaken: int = 0
    all_writable_after: float = 0.0
    runs: Figures = msgspec.field(default_factory=Figures)

    @property
    def violations(self) -> int:
        """How often a promise was broken."""
        runs = self.runs.lost_events + self.runs.died + self.runs.unended + self.runs.unverified
        return self.acknowledged_meanwhile + self.lost + self.overtaken + runs + self.runs.unaudited


SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'refold'"


def stand_still(
    folder: Path,
    *,
    seconds: float = 40.0,
    back: bool = True,
    runs: int = 30,
    workers: int = 2,
    steps: int = 20,
    clients: int = 16,
    before: float = 4.0,
) -> Absence:
    """Suspend the standby for some seconds; then wake it, or have the primary wait for none."""
    found = Absence(seconds)
    with Pair() as pair:
        load = Load(pair, folder, runs=runs, workers=workers, steps=steps, each=clients)
        stopped = woken = 0.0

        def happen() -> None:
            nonlocal stopped, woken
            time.sleep(before)
            pair.standby.suspend()
            # What it had flushed before may still be on its way to a client.
            stopped = time.monotonic() + min(2.0, seconds / 2)
            time.sleep(seconds)
            ((count,),) = pair.primary.execute(SESSIONS)
            assert isinstance(count, int)
            found.sessions = count
            woken = time.monotonic()
            if back:
                pair.standby.resume()
            else:
                pair.wait_for_standby("")
            wait_until_written(load.clients, woken)

        load.run(happen)
        found.runs = load.figures
        times = [moment for each in load.clients for some in each.times.values() for moment in some]
        found.acknowledged_meanwhile = sum(stopped < moment < woken for moment in times)
        found.all_writable_after = round(
            max(moment - woken for each in load.clients for moment in each.first_after(woken)), 2
        )
        found.acknowledged = sum(each.events for each in load.clients)
        found.lost = sum(anyio.run(lost_events, pair.address, each) for each in load.clients)
        unknown = [each for some in load.clients for each in some.unknown]
        found.unknown, found.unknown_committed = len(unknown), sum(bool(each.committed) for each in unknown)
        found.known_failures = sum(each.known for each in load.clients)
        found.overtaken = sum(len(each.overtaken) for each in load.clients)
    return found


def describe(found: Failover | Absence) -> str:
    """Return the figures in one line; of the workers' runs those that are not 0."""
    figures = {name: getattr(found, name) for name in found.__struct_fields__ if name != "runs"}
    runs = {name: getattr(found.runs, name) for name in found.runs.__struct_fields__}
    figures |= {f"runs.{name}": value for name, value in runs.items() if value}
    return ", ".join(f"{name} {value}" for name, value in figures.items())


def main() -> int:
    """Have each happen, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of load before and after")
    parser.add_argument("--lag", type=float, default=0.2, help="of an asynchronous standby, in seconds")
    parser.add_argument("--away", type=float, default=40.0, help="seconds for which a standby stands still")
    parser.add_argument("--only", choices=["synchronous", "asynchronous", "lagging", "standby", "emptied"])
    asked = parser.parse_args()
    happenings: dict[str, Callable[[Path], Failover | Absence]] = {
        "synchronous": lambda folder: fail_over(folder, synchronous=True, seconds=asked.seconds),
        "asynchronous": lambda folder: fail_over(folder, synchronous=False, seconds=asked.seconds),
        "lagging": lambda folder: fail_over(folder, synchronous=False, seconds=asked.seconds, lag=asked.lag),
        "standby": lambda folder: stand_still(folder, seconds=asked.away),
        "emptied": lambda folder: stand_still(folder, seconds=asked.away, back=False),
    }
    violations = 0
    for name, happen in happenings.items():
        if asked.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                found = happen(Path(folder))
                errors = (Path(folder) / "stderr").read_text(errors="replace")
            violations += found.violations
            print(f"{name}: {describe(found)}", errors[-2000:], sep="\n", flush=True)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
