"""What a worker prints: a line for each run that it takes or puts down."""

import time
from typing import Literal

import anyio
import msgspec

from refold.console.descriptions import standing_of
from refold.console.screen import OutputClosed, Screen
from refold.engine.worker import Failed, HandedOver, News, PutDown, Skipped, TakenUp
from refold.reducers.vocabulary import nano
from refold.replay import figures


class NewsLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker did with a run, as a line of JSON. `at` is in nanoseconds since the epoch.

    `taken_up`: `events` is the length of its log. `put_down`: `state`, `code` and `reason` describe how it
    ended or what it waits for. `handed_over`: the worker stops; `calls` have an unknown outcome. `failed`,
    `lost` or `skipped`: `problem` is the cause, and `again` the seconds until this worker retries a failed
    run. `run` is "" if the search for runs failed.
    """

    type: Literal["taken_up", "put_down", "handed_over", "failed", "lost", "skipped"]
    at: int
    run: str
    events: int = 0
    state: str = ""
    code: str = ""
    reason: str = ""
    calls: tuple[str, ...] = ()
    problem: str = ""
    again: float = 0.0


class WorkerReport:
    """Prints what a worker does, a line for each event.

    If a line cannot be written, sets `closed` and cancels `stop`. `failures` counts the runs that the worker
    could not drive.
    """

    def __init__(self, screen: Screen, stop: anyio.CancelScope) -> None:
        self._screen, self._stop = screen, stop
        self.closed: OutputClosed | None = None
        self.failures = 0

    def __call__(self, news: News) -> None:
        """Print one event."""
        line = _line(news, time.time_ns())
        self.failures += line.type in ("failed", "skipped")
        try:
            if self._screen.json:
                self._screen.document(line)
            else:
                self._screen.say(f"{figures.clock(line.at)}  {_words(line)}")
        except OutputClosed as error:
            self.closed = error
            self._stop.cancel()


def _line(news: News, at: int) -> NewsLine:
    match news:
        case TakenUp(run=run, events=events):
            return NewsLine(type="taken_up", at=at, run=run, events=events)
        case PutDown(result=result):
            return NewsLine(type="put_down", at=at, **standing_of(result))
        case HandedOver(run=run, events=events, calls=calls):
            return NewsLine(type="handed_over", at=at, run=run, events=events, calls=calls)
        case Failed(run=run, problem=problem, lost=True):
            return NewsLine(type="lost", at=at, run=run, problem=problem)
        case Failed(run=run, problem=problem, again=again):
            return NewsLine(type="failed", at=at, run=run, problem=problem, again=again)
        case Skipped(run=run, problem=problem):
            return NewsLine(type="skipped", at=at, run=run, problem=problem)


def _words(line: NewsLine) -> str:
    if not line.run:
        return f"the store is not available, and the search for runs goes on: {line.problem}"
    return f"run {line.run}  {_what_happened(line)}"


def _what_happened(line: NewsLine) -> str:
    match line.type:
        case "taken_up":
            return f"taken up after event {line.events}"
        case "put_down":
            return f"put down, {line.state}: {line.reason} ({line.code})"
        case "handed_over":
            unknown = f"; outcome unknown: {', '.join(line.calls)}" if line.calls else ""
            return f"left to other workers after event {line.events}{unknown}"
        case "failed":
            return f"failed, retried in {figures.seconds(nano(line.again))}: {line.problem}"
        case "lost":
            return f"taken away: {line.problem}"
        case "skipped":
            return f"skipped, left to other workers: {line.problem}"
