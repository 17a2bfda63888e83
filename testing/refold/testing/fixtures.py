"""The objects behind the fixtures `refold_run` and `refold_recording`."""

import difflib
import os
import shlex
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import pytest
from msgspec.structs import replace

from refold.engine import arguments
from refold.engine.agent import Agent
from refold.engine.tasks import in_event_loop
from refold.reducers.errors import WrongUse
from refold.reducers.machine import TERMINAL
from refold.store.recordings import DamagedRecording, write_recording
from refold.testing.comparing import GivenAgent, compare, make_agent, resolve_agent
from refold.testing.failures import Evidence
from refold.testing.loaded_logs import read_intact, recording_of
from refold.testing.matchers import Ignored, Matchers
from refold.testing.places import recordings_of
from refold.testing.recorder import Filter, Operator, record
from refold.testing.replays import ReplayOptions
from refold.testing.requests import allow_requests, forbid_requests
from refold.testing.results import ObservedRun
from refold.testing.sessions import NUMBER, SESSION, Mode, Session, name_test

Live = Literal["", "tools", "model", "all"]
"""What runs for real in a replay: nothing, the tools, the model, or both."""


_START = ("messages", "labels", "environment")
_PROVIDER = "provider:"
"""The beginning of the codes of runs that a failed request ended."""


class Fixture:
    """What both fixtures share: the test, the session, and the refusal of requests."""

    def __init__(self, item: pytest.Item, session: Session, refused: list[str]) -> None:
        self.item, self.session, self.refused = item, session, refused

    @classmethod
    @contextmanager
    def of(cls, request: pytest.FixtureRequest) -> Generator[Self]:
        """Yield the fixture of a test. Until it ends, requests to other machines are refused."""
        with forbid_requests() as refused:
            fixture = cls(request.node, request.config.stash[SESSION], refused)
            yield fixture
        fixture.session.note_refused(request.node, refused)
        if fixture.session.passed(request.node) and (unused := fixture.list_unused()):
            pytest.fail(unused, pytrace=False)

    def list_unused(self) -> str:
        """Return what the test requested and did not use; "" for nothing."""
        return ""

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
        before_record: Sequence[Filter] = (),
    ) -> ReplayOptions:
        """Return the options of a comparison. Raises `WrongUse` for values that cannot be meant."""
        if live not in get_args(Live):
            raise WrongUse(f"live={live!r}: expected one of 'tools', 'model', 'all', or ''")
        if operator is not None:
            arguments.function(operator, "operator")
        if callable(before_record):
            raise arguments.wrong_value(
                "before_record", "a list of functions, as in [hide_names]", before_record
            )
        for name in start:
            if name not in _START:
                near = difflib.get_close_matches(
                    name, ["ignore", "live", "operator", "before_record", *_START], 1
                )
                meant = f" (did you mean {near[0]!r}?)" if near else ""
                raise WrongUse(
                    f"unknown argument {name!r}{meant}; arguments of Agent.start: {', '.join(_START)}"
                )
        return ReplayOptions(
            matchers=self.matchers(ignore),
            evidence=self.evidence(path),
            live_model=live in ("model", "all"),
            live_tools=live in ("tools", "all"),
            operator=operator,
            before_record=tuple(before_record),
            start=start,
        )

    def evidence(self, path: Path) -> Evidence:
        """Return what a failure says of this test and its recording."""
        return Evidence(what="", test=self.item.nodeid, recording=self.shown(path), requests=self.refused)

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
        agent: GivenAgent,
        task: str,
        *,
        ignore: Iterable[Ignored] = (),
        live: Live = "",
        operator: Operator | None = None,
        before_record: Sequence[Filter] = (),
        allow_error: bool = False,
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
            allow_error: Record a run that ends because a request to the model failed, too.
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
            self._make(agent, live),
            task,
            ignore=ignore,
            live=live,
            operator=operator,
            before_record=before_record,
            allow_error=allow_error,
            **options,
        )
        return self.session.run(call)

    async def run(
        self,
        agent: GivenAgent,
        task: str,
        *,
        ignore: Iterable[Ignored] = (),
        live: Live = "",
        operator: Operator | None = None,
        before_record: Sequence[Filter] = (),
        allow_error: bool = False,
        **options: Any,
    ) -> ObservedRun:
        """Do the same in an async test."""
        __tracebackhide__ = True
        made = await resolve_agent(self._make(agent, live))
        path, run_id = self._next()
        how = self.options(path, ignore, live, operator, options, before_record)
        exists = path.exists()
        if self.session.mode is Mode.ALL or (self.session.mode is Mode.MISSING and not exists):
            return await self._record(made, task, run_id, path, how, allow_error=allow_error)
        if not exists:
            self._fail_without(path)
        self.session.use(path)
        recordings = [recording_of(each, made.registry) for each in read_intact(path)]
        states = [ObservedRun(each.events, made.registry).state for each in recordings]
        if states[0] not in TERMINAL and not any(each.awaits_operator for each in states):
            problem = f"run {recordings[0].run} breaks off while it is {states[0]}: record it again"
            raise DamagedRecording(str(path), problem)
        accept = f"{self.command} --refold-record=all"
        how = replace(how, evidence=replace(how.evidence, accept=accept))
        found = await compare(recordings, made, task, how)
        self.session.note_edited(path, () if how.live_tools else found.changed_code)
        return found.run

    def _make(self, agent: GivenAgent, live: Live) -> GivenAgent:
        """Call the function that makes an agent: outside of an event loop if possible, as it may need one."""
        with allow_requests() if live or self.session.mode is not Mode.NONE else nullcontext():
            return make_agent(agent)

    async def _record(
        self, agent: Agent, task: str, run_id: str, path: Path, how: ReplayOptions, *, allow_error: bool
    ) -> ObservedRun:
        """Run the agent for real, and write the recording unless the provider failed."""
        __tracebackhide__ = True
        with allow_requests():
            runs = await record(
                agent,
                task,
                run_id=run_id,
                operator=how.operator,
                before_record=how.before_record,
                options=how.start,
            )
        run = ObservedRun(recording_of(runs[0], agent.registry).events, agent.registry)
        if run.code.startswith(_PROVIDER) and not allow_error:
            self._fail_after(run, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_recording(path, runs)
        waits = "" if run.state in TERMINAL else ": it waits, and no operator answers"
        self.session.use(path, written=f"{run.state}{waits}")
        return run

    def list_unused(self) -> str:
        """Return that no run was made, if so."""
        return (
            ""
            if self._count
            else "refold_run was requested and never called, or not awaited: nothing was tested"
        )

    def _next(self) -> tuple[Path, str]:
        self._count += 1
        name = name_test(self.item)
        number = f"{NUMBER}{self._count}" if self._count > 1 else ""
        path = recordings_of(self.item.path) / f"{name}{number}.jsonl"
        self.session.claim(path, self.item)
        return path, name if self._count == 1 else f"{name}.{self._count}"

    def _fail_after(self, run: ObservedRun, path: Path) -> None:
        __tracebackhide__ = True
        pytest.fail(
            f"not recorded: the run ended in {run.state} ({run.code}): {run.reason}\n"
            f"\n  recording {self.shown(path)} {'is unchanged' if path.exists() else 'was not written'}\n"
            "  accept    pass allow_error=True to record a run that ends like this",
            pytrace=False,
        )

    def _fail_without(self, path: Path) -> None:
        __tracebackhide__ = True
        pytest.fail(
            f"no recording: {self.shown(path)} does not exist, and --refold-record=none records nothing\n"
            f"\n  record    {self.command} --refold-record=missing",
            pytrace=False,
        )


def _list(ignore: Iterable[Ignored]) -> list[Ignored]:
    if isinstance(ignore, str):
        raise WrongUse(f"ignore={ignore!r}: expected a list, as in ignore=[{ignore!r}]")
    return list(ignore)
