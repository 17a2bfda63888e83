"""Live output of a run, and Ctrl-C."""

import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.abc
from rich.console import Group
from rich.live import Live
from rich.text import Text

from refold.console import descriptions
from refold.console.locations import StorePlace
from refold.console.screen import Screen, fit_text, note
from refold.engine import Missed, Recorded, Run, RunResult, Streamed, Update
from refold.engine.models.protocol import CallDelta, ReasoningDelta, TextDelta
from refold.reducers import events as ev
from refold.reducers.errors import ExternalFailure
from refold.reducers.state import RunState
from refold.replay import figures
from refold.replay.kinds import sentences
from refold.replay.kinds.arguments import format_partial_call
from refold.replay.kinds.table import remark, sentence

_INDENT = " " * 14
_SHORT = 100
_QUIET = 3  # seconds without an update after which the status line displays them
_NO_CALL = CallDelta(-1)
_CUT = ("task", "call", "result")  # cut to one line of the terminal: the log has all of it
_MARGIN = "  "  # before the model's text, so that it cannot imitate refold's own lines, which have none


class Watcher:
    """Receives the updates of a run while it runs."""

    def take(self, update: Update, state: RunState) -> None:
        """Handle an update; `state` is the one on disk."""

    def note(self, text: str) -> None:
        """Display a message to the user at once."""
        note(text)

    def close(self) -> None:
        """End the output and restore the terminal. May be called twice."""


def watcher(screen: Screen, run: str) -> Watcher:
    """Return the watcher for the output's format."""
    if screen.json:
        return JsonWatcher(screen, run)
    return LiveWatcher(screen) if screen.live else PlainWatcher(screen)


class JsonWatcher(Watcher):
    """One line per recorded event: `{"type": "recorded", "run": ..., "seq": ..., "event": {...}}`."""

    def __init__(self, screen: Screen, run: str) -> None:
        self._screen, self._run = screen, run

    def take(self, update: Update, state: RunState) -> None:  # noqa: ARG002
        """See `Watcher.take`."""
        if isinstance(update, Recorded):
            line = {"type": "recorded", "run": self._run, "seq": update.seq, "event": update.event}
            self._screen.document(line)


class PlainWatcher(Watcher):
    """Lines of plain text for recorded events, each with its turn."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._turn = 0

    def take(self, update: Update, state: RunState) -> None:  # noqa: ARG002
        """See `Watcher.take`."""
        match update:
            case Recorded(event=event):
                # The state may be ahead of the update: it is the newest one on disk.
                self._turn = event.step if isinstance(event, ev.ModelRequested) else self._turn
                for word, text in lines(event, said=True):
                    shown = text if word == "said" else descriptions.line(text)
                    self._screen.styled(label_line(self._turn, word, shown))
            case Missed(count=count):
                self._screen.say(label_line(self._turn, "missed", f"{count} updates; they are in the log"))
            case _:
                pass


class LiveWatcher(Watcher):
    """Text as it streams, with a status line below it: the state, and what is spent of each limit."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen, self._clock = screen, clock
        self._state: RunState | None = None
        self._turn = 0
        self._since = self._clock()
        self._open, self._style, self._calling = "", "", _NO_CALL
        self._heard = self._clock()
        self._live = Live(
            console=screen.rich, get_renderable=self.bottom, refresh_per_second=8, transient=True
        )
        self._live.start()

    def take(self, update: Update, state: RunState) -> None:
        """See `Watcher.take`."""
        self._heard = self._clock()
        match update:
            case Streamed(delta=TextDelta(text=text)):
                self._stream(text, "")
            case Streamed(delta=ReasoningDelta(text=text)):
                self._stream(text, "dim italic")
            case Streamed(delta=CallDelta(index=index, name=name, arguments=arguments)):
                before = self._calling if index == self._calling.index else CallDelta(index)
                self._calling = CallDelta(index, before.name + name, before.arguments + arguments)
            case Recorded(event=event):
                self._state, self._since = state, self._clock()
                self._show_event(event)
            case Missed(count=count):
                self._screen.styled(f"… {count} updates were dropped here; they are in the log", "dim")
            case _:
                pass

    def note(self, text: str) -> None:
        """See `Watcher.note`."""
        self._screen.styled(descriptions.line(text), "yellow")

    def close(self) -> None:
        """See `Watcher.close`."""
        self._flush()
        self._live.stop()

    def _show_event(self, event: ev.Event) -> None:
        self._turn = event.step if isinstance(event, ev.ModelRequested) else self._turn
        self._flush()
        for word, text in lines(event, said=False):
            style = "red" if word in ("failed", "error") else "bold" if word == "end" else "dim"
            told = label_line(self._turn, word, descriptions.line(text))
            self._screen.styled(fit_text(told, self._screen.rich.width) if word in _CUT else told, style)

    def _stream(self, text: str, style: str) -> None:
        if style != self._style:
            self._flush()
            self._style = style
        *whole, self._open = (self._open + descriptions.block(text).expandtabs(4)).split("\n")
        for line in whole:
            self._screen.styled(_MARGIN + line, style)
        self._open = self._wrap(self._open, style)

    def _wrap(self, line: str, style: str) -> str:
        """Print full lines of the terminal's width, and return the rest."""
        width = max(self._screen.rich.width, 20) - len(_MARGIN)
        while len(line) >= width:  # the terminal wraps a surplus of wide characters
            cut = line.rfind(" ", 0, width)
            cut = cut if cut > 0 else width - 1
            self._screen.styled(_MARGIN + line[:cut], style)
            line = line[cut:].lstrip(" ")
        return line

    def _flush(self) -> None:
        self._calling = _NO_CALL
        if self._open:
            self._screen.styled(_MARGIN + self._open, self._style)
            self._open = ""

    def bottom(self) -> Group:
        """Return the last lines of the terminal: unfinished text and calls, and the status."""
        parts = [Text(_MARGIN + self._open, style=self._style, no_wrap=True)] if self._open else []
        if self._calling.name:
            told = format_partial_call(self._calling.name, self._calling.arguments, _SHORT)
            parts.append(_one_line(f"calling {descriptions.line(told)}", "dim"))
        return Group(*parts, _one_line(self._status(), "reverse"))

    def _status(self) -> str:
        state = self._state
        if state is None:
            return " starting "
        running = 0 if state.ended else int((self._clock() - self._since) * 1e9)
        stopping = " (stopping)" if state.stopping else ""
        quiet = int(self._clock() - self._heard)
        silent = f"  silent for {quiet} s" if quiet >= _QUIET and not state.ended else ""
        return f" {state.agent_state}{stopping}  {'  '.join(figures.spent(state, running))}{silent} "


def lines(event: ev.Event, *, said: bool) -> list[tuple[str, str]]:
    """Describe an event to a watcher, by pairs of a word and a text. `said`: include the response's text."""
    match event:
        case ev.RunStarted():
            return _tell_start(event)
        case ev.ModelRequested():
            return [("asked", sentence(event))]
        case ev.ModelResponded():
            return _tell_answer(event, said=said)
        case ev.ModelFailed():
            return [("failed", sentence(event))]
        case ev.ToolReturned():
            result = f"{sentences.describe_result(event)}: {sentences.quote_output(event, _SHORT)}"
            return [("error" if event.error else "result", result)]
        case ev.ApprovalRequested():
            return _tell_wait(event)
        case ev.StateChanged(target=target) if target.terminal or target.awaits_operator:
            return [("end", f"{target}: {event.reason}")]
        case _:
            remarked = remark(event)
            return [("note", descriptions.line(remarked))] if remarked else []


def _tell_start(event: ev.RunStarted) -> list[tuple[str, str]]:
    messages = event.content.messages if event.content else ()
    task = messages[-1].text if messages else None if event.messages else ""
    policy = sentences.describe_limits(event.policy)
    return [("run", f"{event.run} on {event.model}; {policy}"), ("task", descriptions.task(task))]


def _tell_answer(event: ev.ModelResponded, *, said: bool) -> list[tuple[str, str]]:
    text = event.content.text if event.content else ""
    told = [("said", text)] if said and text.strip() else []
    calls = [("call", call) for call in sentences.list_calls(event, _SHORT)]
    return [*told, *calls, ("spent", sentences.describe_response(event))]


def _tell_wait(event: ev.ApprovalRequested) -> list[tuple[str, str]]:
    until = "" if event.deadline is None else f" until {figures.clock(event.deadline)}"
    return [("waits", f"for approval of {', '.join(event.calls)}{until}: refold approvals @last")]


def label_line(turn: int, word: str, text: str) -> str:
    """Format a line as `t3 call ...`, with further lines of the text indented below."""
    first, *rest = descriptions.block(text.rstrip()).split("\n")
    return "\n".join(
        [f"{f't{turn}' if turn else '':<6}{word:<8}{first}", *(f"{_INDENT}{line}" for line in rest)]
    )


def _one_line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


INTERRUPTED = 130


class StoppedHalfway(ExternalFailure):
    """An external failure in the middle of a run.

    `seq` is the last event on disk, `resume` the command to continue.
    """

    def __init__(self, run: str, seq: int, resume: str, problem: str) -> None:
        super().__init__(run, seq, resume, problem)
        self.run, self.seq, self.resume, self.problem = run, seq, resume, problem

    @property
    def lines(self) -> list[str]:
        """The lines of the message. Line breaks in its parts are escaped."""
        if not self.seq:
            return [self.problem, f"run {self.run}: nothing was recorded"]
        whole = f"run {self.run} stopped; its log is intact up to event {self.seq}."
        return [self.problem, f"{whole} When this is fixed, continue with", f"  {self.resume}"]

    def __str__(self) -> str:
        return "\n".join(map(descriptions.line, self.lines))


class Interrupts:
    """Handles Ctrl-C: the first asks the run to stop; the second ends the process, and the log stays intact.

    A run that waits for approval is left at once instead of stopped: an answer may still come.
    """

    def __init__(self, run: Run, watcher: Watcher) -> None:
        self._run, self._watcher = run, watcher
        self.count = 0

    def __call__(self, _: signal.Signals) -> None:
        """Handle one Ctrl-C."""
        self.count += 1
        if self.count == 1 and self._run.state.approval is None:
            self._run.cancel("Ctrl-C")
            self._watcher.note("stopping; Ctrl-C again ends at once (the run can be resumed)")
            return
        try:
            self._watcher.close()
            self._watcher.note(f"ended at once; run {self._run.id} can be resumed")
        finally:
            os._exit(INTERRUPTED)


async def drive(run: Run, watcher: Watcher, place: StorePlace, means: str = "") -> tuple[RunResult, bool]:
    """Watch a run until it ends or waits. Return its result, and whether Ctrl-C was pressed.

    Raises what stops an engine: `Elsewhere` if another engine has the run, any other external failure as
    `StoppedHalfway`, with the command to continue.
    """
    interrupts = Interrupts(run, watcher)

    async def watch() -> None:
        async for update in run.updates():
            watcher.take(update, run.state)

    try:
        await run_with_signals(watch, interrupts, signal.SIGINT)
    except ExternalFailure as failure:
        watcher.close()
        raise _stop_error(run, failure, place, means) from failure
    watcher.close()
    return await run.result(), interrupts.count > 0


async def run_with_signals(
    work: Callable[[], Awaitable[None]], heard: Callable[[signal.Signals], None], *awaited: signal.Signals
) -> None:
    """Run `work`, and call `heard` for each of these signals meanwhile. Raises what `work` raises."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_listen, heard, awaited)
        try:
            await work()
        except Exception as error:  # raised below, because the group would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _stop_error(run: Run, failure: ExternalFailure, place: StorePlace, means: str) -> ExternalFailure:
    resume = f"refold resume {run.id}{means}{place.option}"
    return descriptions.explain_conflict(failure, place) or StoppedHalfway(
        run.id, run.state.seq, resume, str(failure)
    )


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
        # Signals are unavailable (Windows, a thread): Ctrl-C ends the process like a crash.
        task_status.started()
