"""Driving a run from a terminal: it is watched, and Ctrl-C is heard. Once stops it cleanly, twice at once."""

import os
import signal
from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.abc

from refold.console import claims, hostile
from refold.console.places import StorePlace
from refold.console.watchers import Watcher
from refold.engine import Run, RunResult
from refold.reducers.errors import WorldFailed

INTERRUPTED = 130


class StoppedHalfway(WorldFailed):
    """The world failed in the middle of a run. `seq` is the last event that is on disk, `resume` what to type."""

    def __init__(self, run: str, seq: int, resume: str, problem: str) -> None:
        super().__init__(run, seq, resume, problem)
        self.run, self.seq, self.resume, self.problem = run, seq, resume, problem

    @property
    def lines(self) -> list[str]:
        """The message's lines: what the parts say is no end of one."""
        if not self.seq:
            return [self.problem, f"nothing of run {self.run} was recorded"]
        whole = f"run {self.run} stopped here; its log is whole up to event {self.seq}."
        return [self.problem, f"{whole} When this is mended, it goes on with", f"  {self.resume}"]

    def __str__(self) -> str:
        return "\n".join(map(hostile.line, self.lines))


class Interrupts:
    """Counts Ctrl-C. The first asks the run to stop; the second ends the process: what stands in the log is whole.

    A run that asks about calls is left at once, and not stopped: an answer may still come.
    """

    def __init__(self, run: Run, watcher: Watcher) -> None:
        self._run, self._watcher = run, watcher
        self.count = 0

    def __call__(self, _: signal.Signals) -> None:
        """One more."""
        self.count += 1
        if self.count == 1 and self._run.state.approval is None:
            self._run.cancel("Ctrl-C")
            self._watcher.note("stopping; Ctrl-C again ends at once, and the run can be resumed")
            return
        try:
            self._watcher.close()
            self._watcher.note(f"ended at once; run {self._run.id} can be resumed")
        finally:
            os._exit(INTERRUPTED)


async def drive(run: Run, watcher: Watcher, place: StorePlace, means: str = "") -> tuple[RunResult, bool]:
    """Watch a run until it has ended or waits, and say whether Ctrl-C was pressed.

    Raises what stops an engine: `Elsewhere` where another has the run, any other failure of the world as
    `StoppedHalfway`, which says how to go on.
    """
    interrupts = Interrupts(run, watcher)

    async def watch() -> None:
        async for update in run.updates():
            watcher.take(update, run.state)

    try:
        await while_heard(watch, interrupts, signal.SIGINT)
    except WorldFailed as failure:
        watcher.close()
        raise _halfway(run, failure, place, means) from failure
    watcher.close()
    return await run.result(), interrupts.count > 0


async def while_heard(
    work: Callable[[], Awaitable[None]], heard: Callable[[signal.Signals], None], *awaited: signal.Signals
) -> None:
    """Do `work`, and meanwhile call `heard` for each of these signals. Raises what it raises."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_listen, heard, awaited)
        try:
            await work()
        except Exception as error:  # raised below, for the group would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _halfway(run: Run, failure: WorldFailed, place: StorePlace, means: str) -> WorldFailed:
    resume = f"refold resume {run.id}{means}{place.option}"
    return claims.elsewhere(failure, place) or StoppedHalfway(run.id, run.state.seq, resume, str(failure))


async def _listen(
    heard: Callable[[signal.Signals], None],
    awaited: Sequence[signal.Signals],
    *,
    task_status: anyio.abc.TaskStatus[None],
) -> None:
    try:
        with anyio.open_signal_receiver(*awaited) as signals:
            task_status.started()
            async for each in signals:
                heard(each)
    except (NotImplementedError, RuntimeError, ValueError):
        # No signals here (Windows, a thread): Ctrl-C then ends the process as a crash does.
        task_status.started()
