"""What an agent was given, in the form in which it is recorded with a run."""

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from refold.engine import entropy
from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import Tool
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.store.checks import check_new_run


def recordable(value: object, place: str) -> str:
    """The text, if it is one that can be written down."""
    if not isinstance(value, str) or clean(value) != value:
        raise WrongUse(f"{place}: expected text, got {value!r}")
    return value


def setting_text(key: str, value: Any) -> str:
    """A sampling setting as it is recorded: JSON text."""
    try:
        said = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise WrongUse(f"settings[{key!r}]: expected a value that JSON can write: {error}") from error
    return recordable(said, f"settings[{key!r}]")


def seed_of(chosen: int | None) -> int:
    """The seed of a run. Raises `WrongUse` for one that was chosen and is none."""
    seed = entropy.seed() if chosen is None else chosen
    if not 0 <= seed < 1 << 63:
        raise WrongUse(f"seed: expected 0 to 2**63 - 1, got {seed}")
    return seed


def labels_of(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Labels as they are recorded. Raises `WrongUse` for the one by which imported runs are known."""
    if SOURCE_LABEL in (labels or {}):
        raise WrongUse(f"labels: {SOURCE_LABEL!r} is what an import says of its run; take another name")
    given = (labels or {}).items()
    return {recordable(key, "labels"): recordable(value, f"labels[{key!r}]") for key, value in given}


def tools_of(given: Iterable[Tool | Callable[..., object]]) -> list[Tool]:
    """Tools, and plain functions made into tools, with a warning: nobody said what may be done with their calls.

    Raises `WrongUse` for anything else.
    """
    made: list[Tool] = []
    unsaid: list[str] = []
    for place, each in enumerate(given):
        if isinstance(each, Tool):
            made.append(each)
        elif callable(each):
            made.append(tool(each))
            unsaid.append(made[-1].name)
        else:
            raise WrongUse(f"tools[{place}]: expected a tool or a function, got a {type(each).__name__}")
    if unsaid:
        warnings.warn(
            f"tools without @tool: {', '.join(unsaid)}: a call of theirs is never repeated, and is in doubt after a crash "
            "until a person says how it ended; say what may be done with it: "
            "@tool(replay='read_only'), 'idempotent', 'reconcilable' or 'at_most_once'",
            stacklevel=3,
        )
    return made


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools by their names. Raises `WrongUse` for two of one name."""
    named: dict[str, Tool] = {}
    for each in tools:
        if each.name in named:
            raise WrongUse(f"two tools are called {each.name!r}; give one another name")
        named[each.name] = each
    return named


def run_id_of(asked: str | None) -> str:
    """The id of a new run: what was asked for, else one of its own. Raises `WrongUse` if no command could name it."""
    if asked is None:
        return entropy.run_id()
    check_new_run(asked)
    return asked
