"""Agents as command-line options describe them, runs that are left to a worker, and `refold model`."""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Annotated, cast

import msgspec

from refold.console.descriptions import next_words, translate_conflicts, waits_for
from refold.console.locations import StorePlace, changing
from refold.console.options import DriveOptions, argument, option
from refold.console.screen import Column, Screen, note
from refold.engine import Model, Run, Tool, files, shell, todos, unattended
from refold.engine.compatibility import installed_guards
from refold.engine.journal import LOGGER
from refold.engine.models import weights
from refold.engine.models.lookup import base_url_of, model_at
from refold.engine.models.prices import price_in
from refold.engine.models.weights import Progress
from refold.engine.validation import make_tools
from refold.reducers.errors import WrongUse
from refold.reducers.overlay import flag
from refold.reducers.state import RunState
from refold.replay import figures

Given = Tool | FunctionType

READING = frozenset({"read_file", "list_files", "search_files"})
WRITING = frozenset({"write_file", "edit_file"})
_BUILT_IN_NAMES = READING | WRITING | {"run_command", "write_todos"}


def _below_root(make: Callable[[Path], list[Tool]], word: str) -> Callable[[Path | None], list[Tool]]:
    def made(root: Path | None) -> list[Tool]:
        if root is None:
            raise WrongUse(f"--tools {word}: needs --root DIR, the directory that it may access")
        return make(root)

    return made


BUILT_IN: Mapping[str, Callable[[Path | None], list[Tool]]] = {
    "files": _below_root(files, "files"),
    "files-ro": _below_root(lambda root: files(root, write=False), "files-ro"),
    "todos": lambda root: todos(),  # noqa: ARG005
    "shell": _below_root(shell, "shell"),
}


def choose_tools(words: Sequence[str], root: Path | None) -> list[Tool]:
    """Return the tools of a new run. Without `words`: to-dos, and file tools if there is a `root`.

    Raises `WrongUse` for a word that names no tool, and for an error while importing a module.
    """
    asked = _split(words) if words else ["files", "todos"] if root is not None else ["todos"]
    return _make_tools(asked, root)


def rebuild_tools(run: str, offered: Sequence[str], words: Sequence[str], root: Path | None) -> list[Tool]:
    """Return the tools that a run was started with, by their recorded names. To-dos and files need no option.

    A shell is never restored without `--tools shell`. Raises `WrongUse` with the options to add.
    """
    asked = _split(words) if words else _words_for(offered, root)
    tools = _make_tools(asked, root)
    missing = [name for name in offered if name not in {tool.name for tool in tools}]
    if "write_todos" in missing:
        tools += todos()
        missing.remove("write_todos")
    if missing:
        raise WrongUse(
            f"run {run} was started with the tools {', '.join(missing)}, which are missing now; "
            f"add {_way_out(missing)}, as at its start"
        )
    return tools


def _split(words: Sequence[str]) -> list[str]:
    return [word.strip() for each in words for word in each.split(",") if word.strip()]


def _words_for(offered: Sequence[str], root: Path | None) -> list[str]:
    names, words = set(offered), list[str]()
    if root is not None and names & WRITING:
        words.append("files")
    elif root is not None and names & READING:
        words.append("files-ro")
    return words


def means_needed(state: RunState) -> str:
    """Return the options needed to continue a run, with placeholders for what only its owner knows."""
    names = {tool.name for tool in state.setup.tools}
    root = " --root DIR" if names & (READING | WRITING | {"run_command"}) else ""
    words = ["shell"] * ("run_command" in names) + ["MODULE:ATTRIBUTE"] * bool(names - _BUILT_IN_NAMES)
    return root + (f" --tools {','.join(words)}" if words else "")


def _way_out(missing: Sequence[str]) -> str:
    names = set(missing)
    needs = ["--root DIR"] if names & (READING | WRITING) else []
    needs += ["--root DIR --tools shell (and the other words of --tools)"] if "run_command" in names else []
    needs += ["--tools module:attribute"] if names - _BUILT_IN_NAMES else []
    return " and ".join(needs) or "--tools as before"


def _make_tools(words: Iterable[str], root: Path | None) -> list[Tool]:
    """Return the tools of all words. Plain functions become tools, with one note about all of them."""
    tools, unsaid = make_tools([tool for word in words for tool in _tools(word, root)])
    if unsaid:
        note(f"note: {unsaid}")
    return tools


def _tools(word: str, root: Path | None) -> Sequence[Given]:
    if word in BUILT_IN:
        return BUILT_IN[word](root)
    if ":" not in word and not all(part.isidentifier() for part in word.split(".")):
        raise WrongUse(f"--tools {word}: expected {', '.join(BUILT_IN)}, module or module:attribute")
    return _import_tools(word)


def _import_tools(word: str) -> Sequence[Given]:
    found = _load(word)
    kind = type(found).__name__
    listed = [*cast("Iterable[object]", found)] if isinstance(found, list | tuple) else [found]
    if not listed and ":" not in word:
        raise WrongUse(
            f"--tools {word}: the module defines no tools and no functions; expected module:attribute"
        )
    if not listed or not all(isinstance(each, Tool | FunctionType) for each in listed):
        raise WrongUse(f"--tools {word}: expected a tool, a function or a list of them, got a {kind}")
    return cast("list[Given]", listed)


def _load(word: str) -> object:
    name, colon, attribute = word.partition(":")
    # The path begins with the `refold` script's directory, but modules of the current folder are meant.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(name)
        return cast("object", getattr(module, attribute)) if colon else _all_of(module)
    except Exception as error:  # a user's module may raise anything
        there = "" if colon else f"; expected {', '.join(BUILT_IN)}, module or module:attribute"
        raise WrongUse(f"--tools {word}: {type(error).__name__}: {error}{there}") from error


def _all_of(module: ModuleType) -> list[Given]:
    """Return the tools of a module without duplicates; if it has none, its own public functions."""
    public = [value for name, value in vars(module).items() if not name.startswith("_")]
    tools = {id(value): value for value in public if isinstance(value, Tool)}
    functions = [
        value for value in public if isinstance(value, FunctionType) and value.__module__ == module.__name__
    ]
    return list(tools.values()) or list(functions)


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The address, the price in dollars per million input and output tokens, and the timeout; None: the
    default.
    """

    base_url: str | None = None
    price: tuple[float, float] | None = None
    timeout: float | None = None

    def model(self, name: str) -> Model:
        """Return the model of this name. Raises as `resolve_model`."""
        return model_at(name, base_url=self.base_url, price=self.price, timeout=self.timeout)


def model_options(means: DriveOptions, model: str, price: str = "") -> ModelOptions:
    """Return the typed options for the model of this name, or those of the environment, or a run's recorded
    `price`.

    Raises `WrongUse`.
    """
    said = price or None if means.price is None else means.price
    return ModelOptions(
        base_url=base_url_of(model, means.base_url),
        price=None if said is None else price_in(said),
        timeout=means.timeout,
    )


def recorded_options(price: str) -> ModelOptions:
    """Return the default address, with a run's recorded `price`."""
    return ModelOptions(price=price_in(price) if price else None)


PRUNE_LOG = "REFOLD_PRUNE_LOG"


class _OnStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def follow(environment: Mapping[str, str]) -> None:
    """Print log lines to stderr from now on. Raises `PolicyError` if the variable is neither on nor off."""
    if flag(environment, PRUNE_LOG):
        LOGGER.setLevel(logging.INFO)
        _show_log(LOGGER)
    _show_log(logging.getLogger("refold.policy"))


def _show_log(logger: logging.Logger) -> None:
    if not any(isinstance(handler, _OnStderr) for handler in logger.handlers):
        logger.addHandler(_OnStderr())


def model_list_command(screen: Screen) -> int:
    """List the embedded models, and whether their weights are on this machine."""
    found = weights.available()
    columns = [Column("model"), Column("size", right=True), Column("fetched"), Column("file")]
    rows = [
        [f"local:{each.name}", figures.size(each.size), "yes" if each.fetched else "no", each.path]
        for each in found
    ]
    screen.result(found, lambda: screen.table(columns, rows))
    return 0


def model_fetch_command(
    screen: Screen,
    name: Annotated[str, argument("The model's name.")] = "smollm2-135m",
    *,
    check: Annotated[
        bool, option("--check", "Also check the digest of weights that are already there.")
    ] = False,
) -> int:
    """Fetch a model's weights into the user's cache, and print their path.

    Example: refold model fetch smollm2-135m
    """
    bare = name.removeprefix("local:")
    path = fetch_weights(bare, check=check)
    made = {"name": bare, "path": str(path), "size": path.stat().st_size}
    screen.result(made, lambda: screen.say(str(path)))
    return 0


def fetch_weights(name: str, *, check: bool = False) -> Path:
    """Return the path of a model's weights, fetching them with a progress bar, or a line per tenth without
    a terminal.
    """
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False)
    if not console.is_terminal:
        return weights.fetch(name, progress=_lines(name), check=check)
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn(f"fetching {name}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=None)
        return weights.fetch(
            name, progress=lambda done, total: bar.update(task, completed=done, total=total), check=check
        )


def _lines(name: str) -> Progress:
    told = -1

    def progress(done: int, total: int) -> None:
        nonlocal told
        tenth = done * 10 // total if total else 0
        if tenth > told:
            told = tenth
            note(f"fetching {name}: {figures.size(done)} of {figures.size(total)}")

    return progress


class LeftRun(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="left"):
    """A run that was left, as JSON: its log has `events` events.

    `waits_for` a worker, an operator, or "" if it has ended.
    """

    run: str
    state: str
    events: int
    waits_for: str


async def leave(screen: Screen, place: StorePlace, run: Run, means: str = "") -> int:
    """Record what is queued for a run, and print who continues it. Exit code 0.

    Raises `Elsewhere` if an engine has the run.
    """
    with translate_conflicts(place):
        await run.detach()
    tell_left(screen, place, run.state, means)
    return 0


async def say_and_leave(
    screen: Screen, place: StorePlace, run_id: str, say: Callable[[Run], None], means: str = ""
) -> int:
    """Do as `leave`, using only the run's log: `say` queues the input. Exit code 0."""
    async with changing(place) as store:
        run = unattended(store, run_id, installed_guards())
        say(run)
        return await leave(screen, place, run, means)


async def wake(screen: Screen, place: StorePlace, state: RunState, means: str = "") -> int:
    """Let the next worker take up a run at once. Exit code 0."""
    async with changing(place) as store:
        await store.wake(state.setup.run)
    tell_left(screen, place, state, means)
    return 0


def tell_left(screen: Screen, place: StorePlace, state: RunState, means: str = "") -> None:
    """Print the id of a run that was left, and who continues it."""
    waits = "" if state.ended else waits_for(state)
    line = LeftRun(run=state.setup.run, state=str(state.agent_state), events=state.seq, waits_for=waits)
    screen.result(line, lambda: _tell(screen, place, state, line, means))


def _tell(screen: Screen, place: StorePlace, state: RunState, left: LeftRun, means: str) -> None:
    screen.say(left.run)
    stands = f"waits for {left.waits_for}" if left.waits_for else f"is {left.state}"
    note(f"recorded up to event {left.events}; the run {stands}")
    for words in next_words(state, means):
        note(f"next    refold {words}{place.option}")
