"""The runs of a preset: a real local model drives them, and each is verified and audited.

The model's texts differ between machines, so only their effects are checked.
"""

import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from refold.console.demo.minute import path_setting
from refold.console.demo.presets import FILES, DemoScene, PlayedRun, scenes
from refold.reducers.errors import ExternalFailure, WrongUse
from refold.reducers.events import Event

_MODEL = "smollm2-135m"
# Bytes of a file per result: a small model on two cores reads about 60 tokens a second.
_PAGE = 1000
# Tokens: enough for a few pages, and quick to set up.
_CONTEXT = 4096
_SYSTEM = "You look things up in files with the tools, then answer in one sentence."

_OFFERED = ("list_files", "read_file")


def play_preset(preset: str, store: Path, root: Path | None) -> int:
    """Play the runs of a preset over the files in `root`, or the demo's own files.

    Exit code 0 if all checks passed, else 1.
    """
    from refold.console.agents import fetch_weights

    played = scenes(preset)
    path = fetch_weights(_MODEL)
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExternalFailure(
            f"{store.parent}: cannot be created: {error.strerror}; name another with --store"
        ) from error
    with _files(root) as place:
        _say(
            f"The model is {path.name}, in this process: no key, no network. It may read the files in {place}."
        )
        runs, failed = anyio.run(_scenes, store, place, played)
    _say("What to type next, in this folder")
    for command in _next(store, runs):
        print(f"  {command}")
    for problem in failed:
        print(f"demo: {problem}", file=sys.stderr)
    return 1 if failed else 0


async def _scenes(store: Path, place: Path, scenes: Sequence[DemoScene]) -> tuple[list[str], list[str]]:
    """Play every scene. Return the runs, and the checks that failed."""
    from refold.console.screen import Screen
    from refold.engine.models.local import LocalModel

    model = LocalModel(_MODEL, context=_CONTEXT)
    screen, runs, failed = Screen(), list[str](), list[str]()
    try:
        for scene in scenes:
            run, problems = await _scene(screen, store, place, model, scene)
            runs.append(run)
            failed += [f"{scene.title}: {problem}" for problem in problems]
    finally:
        await model.aclose()
    return runs, failed


async def _scene(
    screen: Any, store: Path, place: Path, model: Any, scene: DemoScene
) -> tuple[str, list[str]]:
    from refold.console import show, verdicts
    from refold.console.locations import StorePlace
    from refold.console.watchers import drive, watcher
    from refold.engine import Agent, files

    _say(scene.title)
    # Two of the file tools: a model of this size never stops searching if it has a search tool.
    offered = [tool for tool in files(place, write=False, page_size=_PAGE) if tool.name in _OFFERED]
    agent = Agent(
        model=model,
        tools=offered if scene.tools else [],
        policy=scene.policy,
        system=_SYSTEM if scene.tools else None,
        settings=scene.settings,
        store=store,
        name="demo",
    )
    run = agent.start(scene.task)
    watching = watcher(screen, run.id)
    here = StorePlace(str(store), "--store")
    try:
        result, interrupted = await drive(run, watching, here)
    finally:
        watching.close()
    if interrupted:
        raise KeyboardInterrupt
    _say(f"$ refold show {run.id}{here.option}")
    told = await show.print_timeline(screen, here, run.id)
    _say(f"$ refold verify {run.id}{here.option}; refold audit {run.id}{here.option}")
    verified = await verdicts.judge_command(screen, here, [run.id], verdicts.verify_run, everything=False)
    audited = await verdicts.judge_command(screen, here, [run.id], verdicts.audit_run, everything=False)
    seen = PlayedRun(told=told, events=await _events(here, run.id), text=result.outcome.text)
    shown = {expected.shown: expected.holds(seen) for expected in scene.expects}
    print()
    for what, held in shown.items():
        print(f"Shown: {what}." if held else f"NOT shown: {what}.")
    checks = {
        "the run did not end": seen.ended,
        **{f"not so: {what}": held for what, held in shown.items()},
        "verify found the log damaged": verified == 0,
        "audit found a difference": audited == 0,
    }
    return run.id, [problem for problem, held in checks.items() if not held]


async def _events(here: Any, run: str) -> tuple[Event, ...]:
    from refold.console import locations
    from refold.replay.reader import events

    async with locations.reading(here) as store:
        return tuple([event async for _, event in events(store, run)])


@contextmanager
def _files(root: Path | None) -> Generator[Path]:
    """Return the directory to read: `root`, or a few short files of the demo."""
    if root is not None:
        if not root.is_dir():
            raise WrongUse(f"--root {root}: is not a directory")
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="refold-demo-") as made:
        for name, text in FILES.items():
            (Path(made) / name).write_text(text)
        yield Path(made)


def _next(store: Path, runs: Sequence[str]) -> list[str]:
    from refold.console.locations import StorePlace

    option, path = StorePlace(str(store), "--store").option, path_setting(Path.cwd())
    return [
        *([f"export {path}"] if path else []),
        f"refold ls{option}",
        f"refold view {runs[0]}@t1{option}",
        f"refold show {runs[1]} --all{option}",
        f"refold state {runs[-1]}{option}",
        f"refold audit --all{option}",
    ]


def _say(title: str) -> None:
    print(f"\n{title}\n", flush=True)
