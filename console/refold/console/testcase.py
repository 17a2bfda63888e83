"""`refold testcase`: recorded runs as regression tests."""

import importlib
import os
import re
import shlex
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from refold.console import addresses, locations
from refold.console.addresses import is_path
from refold.console.locations import StorePlace
from refold.console.options import argument, new_file, option
from refold.console.screen import Screen, note
from refold.engine import Agent
from refold.engine.models.lookup import OFFLINE
from refold.reducers.errors import WrongUse
from refold.reducers.events import ChildEnded
from refold.replay import events, figures
from refold.store.files import write_atomically
from refold.store.protocol import Store, UnknownRun
from refold.store.recordings import RecordedRun, encode_recording, recorded_run
from refold.testing.comparing import find_change, make_agent, resolve_agent
from refold.testing.loaded_logs import LoadedLog, families_of, load_runs
from refold.testing.places import recordings_of

_HEAD = '''\
"""Recorded runs as regression tests. Written by `refold testcase`.

{says}
"""

{imports}
'''
_CASE = '''

def test_{name}(refold_recording: RecordingFixture) -> None:
    """{says}"""
    refold_recording("{recording}").{check}
'''
_REPLAY_SAYS = """\
Responses and results come from the recordings: no model, tool or network is used. Each test fails at the first
decision that no longer follows from the recorded facts."""
_AGENT_SAYS = """\
Responses and results come from the recordings: no model, tool or network is used. Each test fails at the first
prompt, call or decision in which the agent differs from its recording."""


class TestOfRun(msgspec.Struct, frozen=True, kw_only=True):
    """One test. `played`: it also plays the run through the engine, else `why` not.

    `differs`: the first difference of the agent, "" for none. `passes`: the log is intact, and its decisions
    follow from its facts.
    """

    run: str
    test: str
    recording: str
    events: int
    played: bool
    why: str
    differs: str = ""
    passes: bool


class Testcase(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, as JSON."""

    file: str
    tests: tuple[TestOfRun, ...]


async def testcase_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[
        list[str], argument("RUN or @last, or files and folders with recordings, stores and transcripts.")
    ],
    *,
    file: Annotated[Path, new_file("The test file, as in tests/test_x.py; it must not exist.")],
    agent: Annotated[
        str | None,
        option(
            "--agent", "MODULE:NAME of your agent, or of a function that makes it: compare it with each run."
        ),
    ] = None,  # noqa: PT028 - a command, not a test
) -> int:
    """Write a pytest file with a test for each run, and the runs as recordings beside it.

    Each test fails at the first changed decision; with --agent, at the first difference of your agent.

    Example: refold testcase RUN --out tests/test_payment.py

    Exit code 1 if a test fails now.
    """
    _check_file(file)
    made = None if agent is None else await _load_agent(agent)
    logs = [each async for each in _read_all(place, runs)]
    names = _name_tests(logs)
    tests = [await _judge(log, name, file, made) for log, name in zip(logs, names, strict=True)]
    _write(file, logs, tests, agent)
    done = Testcase(file=str(file), tests=tuple(tests))
    screen.result(done, lambda: _tell(screen, done, place, agent))
    return 0 if all(each.passes and not each.differs for each in tests) else 1


def _check_file(file: Path) -> None:
    if not file.parent.is_dir():
        raise WrongUse(f"{file}: the folder {file.parent} does not exist: create it first, or name another")
    if not re.fullmatch(r"test_\w+\.py|\w+_test\.py", file.name, re.ASCII):
        raise WrongUse(
            f"{file}: expected test_NAME.py, with letters, digits and underscores: else pytest does not find it"
        )


async def _read_all(place: StorePlace, typed: Sequence[str]) -> AsyncIterator[LoadedLog]:
    paths = [each for each in typed if is_path(each) or os.path.lexists(each)]  # noqa: ASYNC240
    for each in paths:
        path = locations.expand_home(Path(each))
        if not path.exists():
            raise WrongUse(f"{path}: no such file or folder")
        found = families_of(load_runs(path))
        if not found:
            raise WrongUse(f"{path}: no recordings, stores or transcripts in it")
        for log in found:
            yield log
    others = [each for each in typed if each not in paths]
    if others:
        async with locations.reading(place) as store:
            for each in others:
                run = await addresses.run_of(store, each)
                (log,) = families_of([each async for each in _family(store, run)])
                yield log


async def _family(store: Store, run: str) -> AsyncIterator[RecordedRun]:
    """Yield a run and the runs below it; those that the store lacks are left out."""
    try:
        yield await recorded_run(store, run)
    except UnknownRun:
        return
    children = [event.run async for _, event in events(store, run) if isinstance(event, ChildEnded)]
    for child in dict.fromkeys(children):
        async for each in _family(store, child):
            yield each


def _name_tests(logs: Sequence[LoadedLog]) -> list[str]:
    """Return a name for each test, each once."""
    names: list[str] = []
    for log in logs:
        run = log.runs[0].run
        if not re.fullmatch(r"[\w.:-]{1,200}", run, re.ASCII):
            raise WrongUse(f"run {run!r}: its id cannot be written to a Python file")
        name = re.sub(r"\W", "_", f"run_{run}", flags=re.ASCII)
        if name in names:
            raise WrongUse(
                f"run {run}: another of the runs would have the same test, test_{name}: leave one out"
            )
        names.append(name)
    return names


async def _load_agent(named: str) -> Agent:
    """Import an agent, or the function that makes it. Raises `WrongUse` with the place."""
    module, colon, name = named.partition(":")
    if not colon or not all(
        part.isidentifier() and not iskeyword(part) for part in (*module.split("."), name)
    ):
        raise WrongUse(f"--agent {named!r}: expected module:name, as in shop.desk:make_agent")
    sys.path.insert(0, os.getcwd())  # where pytest's rootdir usually is
    os.environ.setdefault(OFFLINE, "1")
    try:
        found: object = getattr(importlib.import_module(module), name)
        return await resolve_agent(make_agent(cast("Any", found)))
    except Exception as error:
        raise WrongUse(f"--agent {named!r}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(os.getcwd())


async def _judge(log: LoadedLog, name: str, file: Path, agent: Agent | None) -> TestOfRun:
    first = log.runs[0]
    problem = await log.check(played=False)
    why = "its audit is not clean" if problem else await log.play()
    recording = recordings_of(file) / f"{first.run.replace(':', '_')}.jsonl"
    return TestOfRun(
        run=first.run,
        test=f"test_{name}",
        recording=str(recording),
        events=len(first.records),
        played=not why,
        why=why,
        differs="" if agent is None or problem else await find_change(log, agent),
        passes=not problem,
    )


def _write(file: Path, logs: Sequence[LoadedLog], tests: Sequence[TestOfRun], agent: str | None) -> None:
    """Write all files or none."""
    text = "".join(_lines(tests, agent))
    with ExitStack() as stack:
        stack.enter_context(write_atomically(file)).write_text(text, encoding="utf-8")
        folder = recordings_of(file)
        folder.mkdir(parents=True, exist_ok=True)
        for log, test in zip(logs, tests, strict=True):
            partial = stack.enter_context(write_atomically(Path(test.recording)))
            partial.write_text(encode_recording(log.runs), encoding="utf-8", newline="\n")


def _lines(tests: Sequence[TestOfRun], agent: str | None) -> Iterator[str]:
    imports = "from refold.testing import RecordingFixture"
    if agent is not None:
        module, _, name = agent.partition(":")
        imports = "\n".join(sorted([imports, f"from {module} import {name}"]))
    yield _HEAD.format(says=_REPLAY_SAYS if agent is None else _AGENT_SAYS, imports=imports)
    for test in tests:
        check = f"replays({'' if test.played else 'played=False'})"
        says = f"Run {test.run}: every decision follows from its facts."
        if agent is not None:
            check, says = (
                f"against({agent.partition(':')[2]})",
                f"Run {test.run}: the agent behaves as recorded.",
            )
        yield _CASE.format(
            name=test.test.removeprefix("test_"),
            says=says,
            recording=Path(test.recording).name,
            check=check,
        )


def _tell(screen: Screen, done: Testcase, place: StorePlace, agent: str | None) -> None:
    for test in done.tests:
        count = figures.quantity(test.events, "event")
        verb = "replays" if agent is None else f"compares {agent} with"
        screen.say(f"{done.file}: {test.test} {verb} run {test.run}, {count}, from {test.recording}")
        if test.differs:
            note(f"the test fails now: {test.differs}")
        if agent is None and not test.played:
            why = f"the test audits the log, but does not play it through the live engine: {test.why}"
            note(textwrap.shorten(why, 300))
        if not test.passes:
            note(f"the test fails now: refold audit {test.run}{place.option} shows where")
    note(f"next    python -m pytest {shlex.quote(done.file)}")
