"""The object behind the fixture `refold_recording`: logs of production against today's agent."""

from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from refold.engine.tasks import in_event_loop
from refold.reducers.errors import WrongUse
from refold.testing.comparing import GivenAgent, compare_log, make_agent, resolve_agent
from refold.testing.fixtures import Fixture, Live
from refold.testing.loaded_logs import LoadedLog, how_to_show, load_log
from refold.testing.matchers import Ignored
from refold.testing.places import recordings_of
from refold.testing.recorder import Operator
from refold.testing.requests import allow_requests
from refold.testing.results import ObservedRun
from refold.testing.sessions import Session


class RecordingFixture(Fixture):
    """Opens logs of production, ours or imported, and compares today's code with them."""

    def __init__(self, item: pytest.Item, session: Session, refused: list[str]) -> None:
        super().__init__(item, session, refused)
        self._cases: list[RecordedCase] = []

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
        case = RecordedCase(self, found, load_log(found, run))
        self._cases.append(case)
        return case

    def list_unused(self) -> str:
        """Return the recordings that were opened and not looked at."""
        if not self._cases:
            return "refold_recording was requested and never called: nothing was tested"
        unused = [self.shown(case.path) for case in self._cases if not case.used]
        return (
            f"{', '.join(unused)}: opened, and neither compared nor read: call .against(agent)"
            if unused
            else ""
        )


class RecordedCase:
    """One recorded run. `used` tells whether a test looked at it."""

    def __init__(self, fixture: RecordingFixture, path: Path, log: LoadedLog) -> None:
        self._fixture, self.path, self._log = fixture, path, log
        self._run = ObservedRun(log.recordings[0].events, log.registry)
        self.used = False

    @property
    def run(self) -> ObservedRun:
        """What the recorded run did."""
        self.used = True
        return self._run

    def against(
        self,
        agent: GivenAgent,
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
        call = partial(
            self.compare, self._make(agent, live), ignore=ignore, live=live, operator=operator, **options
        )
        return self._fixture.session.run(call)

    def _make(self, agent: GivenAgent, live: Live) -> GivenAgent:
        with allow_requests() if live else nullcontext():
            return make_agent(agent)

    async def compare(
        self,
        agent: GivenAgent,
        *,
        ignore: Iterable[Ignored] = (),
        live: Live = "",
        operator: Operator | None = None,
        **options: Any,
    ) -> ObservedRun:
        """Do the same as `against` in an async test."""
        __tracebackhide__ = True
        self.used = True
        made = await resolve_agent(make_agent(agent))
        how = self._fixture.options(self.path, ignore, live, operator, options)
        how = replace(how, evidence=replace(how.evidence, shown_by=how_to_show(self.path)))
        found, unproved = await compare_log(self._log, made, replace(how, start=options))
        self._fixture.session.note_unproved(self.path, unproved)
        return found

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
        problem = self._fixture.session.run(partial(self._log.check, played=played))
        if problem:
            pytest.fail(f"{self._fixture.shown(self.path)}: {problem}", pytrace=False)
        return self.run


def _find(path: Path, item: pytest.Item) -> Path:
    folder = item.path.parent
    tried = dict.fromkeys([folder / path, recordings_of(item.path) / path, item.config.rootpath / path])
    for each in tried:
        if each.exists():
            return each
    shown = ", ".join(map(str, tried))
    raise WrongUse(f"recording {str(path)!r}: no such file; looked for {shown}")
