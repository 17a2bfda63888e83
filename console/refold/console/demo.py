"""`python -m refold.console.demo`: a real model, in this process, drives recorded runs, and each is audited.

Nothing is asserted of what the model says, which differs from machine to machine; only of what must hold whatever
it says. Exit code 0 means that all of it held.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from refold.console import main as console
from refold.reducers.errors import WorldFailed, WrongUse
from refold.reducers.machine import TERMINAL
from refold.replay.timeline import Timeline

_MODEL = "smollm2-135m"
# Bytes of a file that one answer holds: a small model on two cores reads about 60 tokens a second.
_PAGE = 1000
_SYSTEM = "You look things up in files with the tools, then answer in one sentence."

_OFFERED = ("list_files", "read_file")

_SAMPLES = {
    "README.md": "# refold\n\nrefold runs agents on a log: every run can be replayed, audited and forked.\n",
    "log.md": "# The log\n\nA run is an append-only log of events. The state is a fold over the log.\n",
    "limits.md": "# Limits\n\nA limit that trips ends the run: steps, time, tokens, cost or messages.\n",
    "audit.md": "# Audit\n\nAn audit derives every decision again from the facts, and compares.\n",
}


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the demo: what is asked under which limits, and what must hold of its log afterwards."""

    title: str
    task: str
    limits: list[dict[str, Any]]
    tools: bool = True
    settings: dict[str, Any] = {}
    shown: str
    holds: Callable[["Seen"], bool]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a log shows of a run: its end, how many calls came back well, and whether an answer was cut."""

    ended: bool
    limit: str
    calls: int
    truncated: bool


_SCENES = (
    Scene(
        title="1. An agent reads the documentation",
        task="List the files, then read README.md and say what it is about.",
        limits=[
            {"type": "step", "value": 4},
            {"type": "time", "value": 60},
            {"type": "token", "value": 20_000},
        ],
        settings={"max_tokens": 120},
        shown="the model called a tool, and the result came back",
        holds=lambda seen: seen.calls > 0,
    ),
    Scene(
        title="2. An answer is cut at the output limit",
        task="Tell me everything about event sourcing, at length.",
        limits=[{"type": "step", "value": 3}, {"type": "time", "value": 30}],
        tools=False,
        settings={"max_tokens": 24},
        shown="the answer was cut (max_tokens), and the log says so",
        holds=lambda seen: seen.truncated,
    ),
    Scene(
        title="3. A limit ends a run",
        task="Read every file, one after the other.",
        limits=[{"type": "token", "value": 120}, {"type": "step", "value": 8}, {"type": "time", "value": 30}],
        settings={"max_tokens": 120},
        shown="a limit ended the run, and the log says which",
        holds=lambda seen: seen.limit != "",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Play the demo. Exit code 0 if everything held, 1 if something did not, else that of the error."""
    words = argparse.ArgumentParser(prog="python -m refold.console.demo", description=__doc__)
    words.add_argument("--store", type=Path, default=Path(".demo") / "runs.db", help="the store's file")
    words.add_argument("--root", type=Path, default=None, help="the files to read, by default docs/ here")
    options = words.parse_args(argv)
    return console.guarded(lambda: _play(options.store, options.root), sys.argv[1:] if argv is None else argv)


def _play(store: Path, root: Path | None) -> int:
    from refold.console.weights import fetched

    path = fetched(_MODEL)
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorldFailed(
            f"{store.parent}: cannot be made: {error.strerror}; name another by --store"
        ) from error
    with _files(root) as place:
        _say(
            f"The model is {path.name}, in this process: no key, no network. It may read the files in {place}."
        )
        runs, failed = anyio.run(_scenes, store, place)
    _say("What to type next, in this directory")
    for command in _next(store, runs):
        print(f"  {command}")
    for problem in failed:
        print(f"demo: {problem}", file=sys.stderr)
    return 1 if failed else 0


async def _scenes(store: Path, place: Path) -> tuple[list[str], list[str]]:
    """Play every scene; the runs, and what did not hold."""
    from refold.console.screen import Screen
    from refold.engine import resolve_model

    model = resolve_model(f"local:{_MODEL}")
    screen, runs, failed = Screen(), list[str](), list[str]()
    try:
        for scene in _SCENES:
            run, problems = await _scene(screen, store, place, model, scene)
            runs.append(run)
            failed += [f"{scene.title}: {problem}" for problem in problems]
    finally:
        await model.aclose()
    return runs, failed


async def _scene(screen: Any, store: Path, place: Path, model: Any, scene: Scene) -> tuple[str, list[str]]:
    from refold.console import judging, looking
    from refold.console.driving import drive
    from refold.console.places import Place
    from refold.console.watching import watcher
    from refold.engine import Agent, files

    _say(scene.title)
    # Two tools of the set: with a search to choose as well, a model of this size searches for ever.
    offered = [tool for tool in files(place, write=False, page_size=_PAGE) if tool.name in _OFFERED]
    agent = Agent(
        model=model,
        tools=offered if scene.tools else [],
        policy={"limits": scene.limits},
        system=_SYSTEM if scene.tools else None,
        settings=scene.settings,
        store=store,
        name="demo",
    )
    run = agent.start(scene.task)
    watching = watcher(screen, run.id)
    here = Place(store, "--store")
    try:
        _, interrupted = await drive(run, watching, f"refold resume {run.id}{here.option}")
    finally:
        watching.close()
    if interrupted:
        raise KeyboardInterrupt
    _say(f"$ refold show {run.id}{here.option}")
    told = await looking.shown(screen, here, run.id)
    _say(f"$ refold verify {run.id}{here.option}; refold audit {run.id}{here.option}")
    verified = await judging.judge_command(screen, here, [run.id], judging.verify_run, everything=False)
    audited = await judging.judge_command(screen, here, [run.id], judging.audit_run, everything=False)
    seen = _seen(told)
    print(f"\nShown: {scene.shown}." if scene.holds(seen) else f"\nNOT shown: {scene.shown}.")
    checks = {
        "the run did not end": seen.ended,
        f"not so: {scene.shown}": scene.holds(seen),
        "verify found the log damaged": verified == 0,
        "audit found a difference": audited == 0,
    }
    return run.id, [problem for problem, held in checks.items() if not held]


def _seen(told: Timeline) -> Seen:
    calls = [call for turn in told.turns for call in turn.calls if call.result == "ok"]
    return Seen(
        ended=told.agent_state in TERMINAL,
        limit=told.limit.name if told.limit else "",
        calls=len(calls),
        truncated=any(turn.stop == "max_tokens" for turn in told.turns),
    )


@contextmanager
def _files(root: Path | None) -> Generator[Path]:
    """The directory to read: what was asked for, `docs/` here, or a few files of our own where neither is."""
    if root is not None and not root.is_dir():
        raise WrongUse(f"--root {root}: is not a directory")
    chosen = root or Path("docs")
    if chosen.is_dir() and any(chosen.rglob("*.md")):
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="refold-demo-") as made:
        for name, text in _SAMPLES.items():
            (Path(made) / name).write_text(text)
        yield Path(made)


def _next(store: Path, runs: Sequence[str]) -> list[str]:
    from refold.console.places import Place

    refold = _command()
    option = Place(store, "--store").option
    first, cut, limited = runs
    return [
        f"{refold} ls{option}",
        f"{refold} view {first}@t1{option}",
        f"{refold} show {cut} --all{option}",
        f"{refold} state {limited}{option}",
        f"{refold} audit --all{option}",
    ]


def _command() -> str:
    """How the command is typed here: by its name where that is found, else by the path of this environment's."""
    if shutil.which("refold"):
        return "refold"
    script = Path(sys.executable).parent / "refold"
    if script.exists():
        return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)
    return f"{sys.executable} -m refold.console"


def _say(title: str) -> None:
    print(f"\n{title}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
