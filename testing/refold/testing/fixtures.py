"""The objects behind the fixtures `refold_run` and `refold_recording`."""

import os
import shlex
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import anyio
import pytest
from msgspec.structs import replace

from refold.engine.agent import Agent
from refold.engine.playback import Recording
from refold.engine.tasks import in_event_loop
from refold.reducers.errors import MissingFact, WrongUse
from refold.store.recordings import read_recording, write_recording
from refold.testing.failures import Evidence
from refold.testing.live import compare_live
from refold.testing.loaded_logs import LoadedLog, load_log, recording_of
from refold.testing.matchers import Ignored, Matchers
from refold.testing.places import recordings_of
from refold.testing.recorder import Filter, Operator, record
from refold.testing.replays import Replayed, ReplayOptions, replay
from refold.testing.requests import allow_requests, forbid_requests
from refold.testing.results import ObservedRun
from refold.testing.sessions import SESSION, Mode, Session, name_test

Live = Literal["", "tools", "model", "all"]
"""What runs for real in a replay: nothing, the tools, the model, or both."""

MakeAgent = Callable[[], Agent]


class Fixture:
    """What both fixtures share: the test, the session, and the refusal of requests."""

    def __init__(self, item: pytest.Item, session: Session, refused: list[str]) -> None:
        self.item, self.session, self.refused = item, session, refused

    @classmethod
    @contextmanager
    def of(cls, request: pytest.FixtureRequest) -> Generator[Self]:
        """Yield the fixture of a test. Until it ends, requests to other machines are refused."""
        with forbid_requests() as refused:
            yield cls(request.node, request.config.stash[SESSION], refused)

    def matchers(self, ignore: Iterable[Ignored]) -> Matchers:
        """Return the matchers of a call and of the test's markers."""
        marked = [each for marker in self.item.iter_markers("refold_ignore") for each in marker.args]
        return Matchers([*marked, *_list(ignore)])

    def options(
        self,
        path: Path,
        ignore: Iterable[Ignored],
        live: Live,
        operator: Operator | None,
        start: Mapping[str, Any],
        *,
        accept: bool,
    ) -> ReplayOptions:
        """Return the options of a comparison. Raises `WrongUse` for an unknown value of `live`."""
        if live not in get_args(Live):
            raise WrongUse(f"live={live!r}: expected one of 'tools', 'model', 'all', or ''")
        return ReplayOptions(
            matchers=self.matchers(ignore),
            evidence=self.evidence(path, accept=accept),
            live_model=live in ("model", "all"),
            live_tools=live in ("tools", "all"),
            operator=operator,
            start=start,
        )

    def evidence(self, path: Path, *, accept: bool) -> Evidence:
        """Return what a failure says of this test and its recording."""
        return Evidence(
            what="",
            test=self.item.nodeid,
            recording=self.shown(path),
            requests=self.refused,
            accept=f"{self.command} --refold-record=all" if accept else "",
        )

    def shown(self, path: Path) -> str:
        """Return a path as a user would type it where pytest was started."""
        return os.path.relpath(path, self.item.config.invocation_params.dir)

    @property
    def command(self) -> str:
        """The command that runs this test."""
        _, *names = self.item.nodeid.split("::")
        return f"pytest {shlex.quote('::'.join([self.shown(self.item.path), *names]))}"


class RunFixture(Fixture):
    """Runs agents from this test's recordings: call it once for each run."""

    def __init__(self, item: pytest.Item, session: Session, refused: list[str]) -> None:
        super().__init__(item, session, refused)
        self._count = 0

    def __call__(
        self,
        agent: Agent | MakeAgent,
        task: str,
        *,
        ignore: Iterable[Ignored] = (),
        live: Live = "",
        operator: Operator | None = None,
        before_record: Sequence[Filter] = (),
        **options: Any,
    ) -> ObservedRun:
        """Run an agent on a task, and return what it did.

        With a recording, the model's responses and the tools' results come from it, and the test fails at the
        first decision, prompt or call that differs. Without one, the option `--refold-record` decides.

        Args:
            agent: The agent, or a function that makes it.
            task: The task.
            ignore: Texts that may differ, as `date` or a regular expression; see `Ignore`.
            live: `tools` calls the tools and compares their results; `model` asks the model and compares its
                calls; `all` does both. Requests are allowed.
            operator: Called with the `Run` whenever it waits for an operator, to answer. Without it, the
                recorded answers are given again.
            before_record: Functions that change texts before they are recorded, such as names of customers.
            options: Further arguments of `Agent.start`, such as `messages` or `labels`.

        Raises:
            BehaviourChanged: The agent does not behave as recorded.
            WrongUse: Within an event loop: use `await refold_run.run(...)`.
        """
        __tracebackhide__ = True
        if in_event_loop():
            raise WrongUse("refold_run(...) in an async test: use `await refold_run.run(...)`")
        call = partial(
            self.run,
            agent,
            task,
            ignore=ignore,
            live=live,
            operator=operator,
            before_record=before_record,
            **options,
        )
        return anyio.run(call)

    async def run(
        self,
        agent: Agent | MakeAgent,
        task: str,
        *,
        ignore: Iterable[Ignored] = (),
        live: Live = "",
        operator: Operator | None = None,
        before_record: Sequence[Filter] = (),
        **options: Any,
    ) -> ObservedRun:
        """Do the same in an async test."""
        __tracebackhide__ = True
        made = agent if isinstance(agent, Agent) else agent()
        path, run_id = self._next()
        exists = path.exists()
        if self.session.mode is Mode.ALL or (self.session.mode is Mode.MISSING and not exists):
            with allow_requests():
                runs = await record(
                    made,
                    task,
                    run_id=run_id,
                    operator=operator,
                    before_record=before_record,
                    options=options,
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            write_recording(path, runs)
            self.session.use(path, written=True)
            return ObservedRun(recording_of(runs[0]).events, made.registry)
        if not exists:
            self._fail_without(path)
        self.session.use(path)
        recordings = [recording_of(each, made.registry) for each in read_recording(path)]
        how = self.options(path, ignore, live, operator, options, accept=True)
        found = await compare(recordings, made, task, replace(how, before_record=before_record))
        self.session.note_edited(path, () if live in ("tools", "all") else found.changed_code)
        return found.run

    def _next(self) -> tuple[Path, str]:
        self._count += 1
        name = name_test(self.item)
        name += f".{self._count}" if self._count > 1 else ""
        path = recordings_of(self.item.path) / f"{name}.jsonl"
        self.session.claim(path, self.item.nodeid)
        return path, name

    def _fail_without(self, path: Path) -> None:
        __tracebackhide__ = True
        pytest.fail(
            f"no recording: {self.shown(path)} does not exist, and --refold-record=none records nothing\n"
            f"\n  record    {self.command} --refold-record=missing",
            pytrace=False,
        )


class RecordingFixture(Fixture):
    """Opens logs of production, ours or imported, and compares today's code with them."""

    def __call__(self, path: str | Path, run: str = "") -> "RecordedCase":
        """Open a recording, a store, a bundle or a transcript.

        Args:
            path: Its path, relative to the test file, to its folder `recordings`, or to pytest's root.
            run: The run's id or its first characters; needed if there are several.

        Raises:
            WrongUse: No such file or run, or several runs.
        """
        found = _find(Path(path), self.item)
        self.session.use(found)
        return RecordedCase(self, found, load_log(found, run))


class RecordedCase:
    """One recorded run. `run` is what it did."""

    def __init__(self, fixture: RecordingFixture, path: Path, log: LoadedLog) -> None:
        self._fixture, self.path, self._log = fixture, path, log
        self.run = ObservedRun(log.recordings[0].events, log.registry)

    def against(
        self,
        agent: Agent | MakeAgent,
        *,
        ignore: Iterable[Ignored] = (),
        live: Live = "",
        operator: Operator | None = None,
        **options: Any,
    ) -> ObservedRun:
        """Compare today's agent with the recorded run; arguments as for `refold_run`.

        The task is the recorded one. For an imported run, the prompt, the tools and the arguments of its
        calls are compared as far as its source records them, and the agent's policy is tested by a what-if;
        the recorded run is returned.

        Raises:
            BehaviourChanged: Today's agent does not behave as recorded.
            Inconclusive: The source does not record enough to tell.
        """
        __tracebackhide__ = True
        if in_event_loop():
            raise WrongUse("against(...) in an async test: use `await recording.compare(...)`")
        call = partial(self.compare, agent, ignore=ignore, live=live, operator=operator, **options)
        return anyio.run(call)

    async def compare(
        self,
        agent: Agent | MakeAgent,
        *,
        ignore: Iterable[Ignored] = (),
        live: Live = "",
        operator: Operator | None = None,
        **options: Any,
    ) -> ObservedRun:
        """Do the same as `against` in an async test."""
        __tracebackhide__ = True
        made = agent if isinstance(agent, Agent) else agent()
        how = self._fixture.options(self.path, ignore, live, operator, options, accept=False)
        if self._log.imported:
            from refold.testing.imported import compare_imported

            with allow_requests() if how.live_tools else nullcontext():
                unproved = await compare_imported(self._log, made, how)
            self._fixture.session.note_unproved(self.path, unproved)
            return self.run
        first = self._log.recordings[0]
        task, earlier = _task_of(first)
        how = replace(how, start={"messages": earlier, **options})
        return (await compare(self._log.recordings, made, task, how)).run

    def replays(self, *, played: bool = True) -> ObservedRun:
        """Check that the log is intact and that every decision follows from its facts, and return the run.

        Args:
            played: Also play the facts through the engine, which must record the same log. Set it to False
                for imported or shrunk runs: no engine recorded them.

        Raises:
            AssertionError: An event was edited, or a decision differs from what its facts give today.
        """
        __tracebackhide__ = True
        if in_event_loop():
            raise WrongUse("replays() needs no event loop: call it in a test that is not async")
        problem = anyio.run(partial(self._log.check, played=played))
        if problem:
            pytest.fail(f"{self._fixture.shown(self.path)}: {problem}", pytrace=False)
        return self.run


async def compare(recordings: Sequence[Recording], agent: Agent, task: str, how: ReplayOptions) -> Replayed:
    """Compare an agent with a recording, in lockstep or, with a live model, by its calls."""
    __tracebackhide__ = True
    if not (how.live_model or how.live_tools):
        return await replay(recordings, agent, task, how)
    with allow_requests():
        if how.live_model:
            return await compare_live(recordings[0], agent, task, how)
        return await replay(recordings, agent, task, how)


def _task_of(recording: Recording) -> tuple[str, list[Any]]:
    """Return the recorded task, and the messages before it without the system prompt."""
    opening = recording.opening
    if opening.content is None:
        raise MissingFact(recording.run, "the payload of its first event was erased")
    messages = [each for each in opening.content.messages if each.role != "system"]
    if not messages:
        raise MissingFact(recording.run, "its first event has no task")
    return messages[-1].text, messages[:-1]


def _find(path: Path, item: pytest.Item) -> Path:
    folder = item.path.parent
    tried = dict.fromkeys([folder / path, recordings_of(item.path) / path, item.config.rootpath / path])
    for each in tried:
        if each.exists():
            return each
    shown = ", ".join(map(str, tried))
    raise WrongUse(f"recording {str(path)!r}: no such file; looked for {shown}")


def _list(ignore: Iterable[Ignored]) -> list[Ignored]:
    if isinstance(ignore, str):
        raise WrongUse(f"ignore={ignore!r}: expected a list, as in ignore=[{ignore!r}]")
    return list(ignore)
