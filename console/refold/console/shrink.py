"""`refold shrink`: the smallest log that still shows a condition."""

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import anyio
import msgspec

from refold.console import addresses, locations
from refold.console.locations import STORE, StorePlace
from refold.console.options import WholeRun, new_file, option
from refold.console.screen import Screen, note
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import WrongUse
from refold.replay import figures
from refold.replay.queries.rows import state_question
from refold.replay.reader import events
from refold.replay.shrink.rederivation import (
    FirstDivergence,
    Log,
    find_first_divergence,
    make_divergence_property,
    make_property,
    write,
)
from refold.replay.shrink.search import ShowsNothing, Shrinking, read_facts, shrink_steps
from refold.store import open_store
from refold.store.files import write_atomically
from refold.store.protocol import Store

Shows = Callable[[Log], bool]


class MinimalLog(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, as JSON: `facts` of `facts_before` facts are left, with the decisions that follow
    from them.
    """

    run: str
    path: str
    facts: int
    facts_before: int
    events: int
    tried: int


async def shrink_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    *,
    file: Annotated[Path, new_file("The new store's file; it must not exist.")],
    when: Annotated[
        str | None, option("--when", "The log must reach a state where this holds, as 'spent_usd > 1.0'.")
    ] = None,
    audit_differs: Annotated[
        bool, option("--audit-differs", "The first different decision must differ in the same way.")
    ] = False,
    check: Annotated[
        str | None,
        option("--check", "This command must exit with 0; REFOLD_STORE names the store of the log."),
    ] = None,
    most: Annotated[int, option("--most", "Try at most this many logs.", min=1)] = 10_000,
) -> int:
    """Write the smallest log that still shows a condition: leave facts out of RUN, and derive its decisions
    again.

    The log is valid, and is written to a new store. RUN is not changed.

    Example: refold shrink RUN --when 'spent_usd > 1.0' --out small.db
    """
    if [when is not None, audit_differs, check is not None].count(True) != 1:
        raise WrongUse("expected one of --when, --audit-differs and --check: what the smaller log must show")
    async with locations.reading(place) as store:
        run = await addresses.run_of(store, run)
        told = await read_facts(store, run)
        twist = await _first_difference(store, run) if audit_differs else None
    registry, shows = installed_guards(), None
    if twist is not None:
        shows = make_divergence_property(twist, registry)
    elif when is not None:
        shows = make_property(state_question(when).matches, registry)
    steps = shrink_steps(run, told, registry=registry, twist=twist, most=most)
    with write_atomically(file) as partial:
        log, tried = await _find_smallest(steps, shows, _words(check))
        async with await open_store(partial) as made:
            said = f"made of {len(log.told)} of the {figures.quantity(len(told), 'fact')} of run {run}, by refold shrink"
            name = await write(made, log, said)
            events_ = (await made.head(name)).seq
    facts = len(log.told)
    done = MinimalLog(
        run=name, path=str(file), facts=facts, facts_before=len(told), events=events_, tried=tried
    )
    screen.result(done, lambda: _tell_shrunk(screen, done))
    return 0


async def _first_difference(store: Store, run: str) -> FirstDivergence:
    log = [event async for _, event in events(store, run)]
    parted = find_first_divergence(log, installed_guards())
    if parted is None:
        raise WrongUse(f"run {run}: every decision follows from its facts: no difference to reproduce")
    return parted


async def _find_smallest(steps: Shrinking, shows: Shows | None, words: Sequence[str]) -> tuple[Log, int]:
    """Return the smallest log that shows the condition, or with which the command exits with 0, and the
    number tried.
    """
    tried = code = 0
    try:
        log = next(steps)
        while True:
            tried += 1
            code = 0 if shows else await _exit_code_for(words, log)
            log = steps.send(shows(log) if shows else code == 0)
    except ShowsNothing as error:
        if shows:
            raise
        raise WrongUse(f"--check: {words[0]} exits with {code} for the full log, expected 0") from error
    except StopIteration as found:
        smallest: Log = found.value
        return smallest, tried


def _words(command: str | None) -> list[str]:
    try:
        words = shlex.split(command or "")
    except ValueError as error:
        raise WrongUse(f"--check: {error}") from error
    if command is not None and not words:
        raise WrongUse("--check: expected a command")
    return words


async def _exit_code_for(words: Sequence[str], log: Log) -> int:
    """Run the command with a store of this log alone, named by REFOLD_STORE, and return its exit code."""
    with TemporaryDirectory(prefix="refold-shrink-") as folder:
        path = Path(folder) / "runs.db"
        async with await open_store(path, durability="process") as store:
            await write(store, log, "a log that refold shrink tries")
        try:
            ended = await anyio.run_process(
                words,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, STORE: str(path)},
            )
        except OSError as error:
            raise WrongUse(f"--check: {words[0]} cannot be run: {error.strerror or error}") from error
    return ended.returncode


def _tell_shrunk(screen: Screen, done: MinimalLog) -> None:
    left = f"{figures.count(done.facts)} of {figures.quantity(done.facts_before, 'fact')}"
    screen.say(f"{done.path}: run {done.run}, {left}, {figures.quantity(done.events, 'event')}")
    note(f"{figures.count(done.tried)} logs tried; without the removed facts, the log still shows the same")
    note(f"next    refold show {done.run}{StorePlace(done.path, '--store').option}")
