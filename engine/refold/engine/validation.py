"""What an agent was given, in the form in which it is recorded with a run."""

import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

from refold.engine import clock
from refold.engine.arguments import listed, mapping, text, wrong
from refold.engine.models.lookup import model_at, resolve_model
from refold.engine.models.protocol import Model
from refold.engine.policy_files import chosen_policy
from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import Tool
from refold.reducers.errors import WrongUse
from refold.reducers.guards import Registry
from refold.reducers.messages import Message
from refold.reducers.parser import checked, parse
from refold.reducers.policy import Policy
from refold.reducers.text import clean
from refold.reducers.vocabulary import SOURCE_LABEL
from refold.store.checks import check_new_run


def recordable(value: object, place: str) -> str:
    """The text, if it is one that can be written down."""
    if not isinstance(value, str) or clean(value) != value:
        raise WrongUse(f"{place}: expected text, got {value!r}")
    return value


def settings_of(settings: Mapping[str, Any] | None) -> dict[str, str]:
    """Sampling settings as they are recorded, by name. Raises `WrongUse` for what cannot be."""
    given = mapping(settings, "settings", "{'temperature': 0.2}")
    return {recordable(key, "settings"): _setting_text(key, value) for key, value in given.items()}


def _setting_text(key: str, value: Any) -> str:
    """A sampling setting as it is recorded: JSON text."""
    try:
        said = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise WrongUse(f"settings[{key!r}]: expected a value that JSON can write: {error}") from error
    return recordable(said, f"settings[{key!r}]")


def seed_of(chosen: object) -> int:
    """The seed of a run. Raises `WrongUse` for one that was chosen and is none."""
    seed = clock.new_seed() if chosen is None else chosen
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise wrong("seed", "a whole number, 0 to 2**63 - 1", seed)
    return seed


def labels_of(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Labels as they are recorded. Raises `WrongUse` for the one by which imported runs are known."""
    given = mapping(labels, "labels", "{'team': 'billing'}")
    if SOURCE_LABEL in given:
        raise WrongUse(f"labels: {SOURCE_LABEL!r} is what an import says of its run; take another name")
    return {recordable(key, "labels"): recordable(value, f"labels[{key!r}]") for key, value in given.items()}


def policy_of(
    given: Policy | Mapping[str, Any] | str | os.PathLike[str] | None, registry: Registry, agent: str
) -> tuple[Policy, tuple[str, ...]]:
    """A policy, and what the environment set of it: only a file and a preset by its name leave that to the
    environment.

    Raises `PolicyError`, and `PolicyFileError` for a file that cannot be read or cannot work.
    """
    if isinstance(given, str | os.PathLike):
        return chosen_policy(Path(given), registry, os.environ, agent=agent)
    return (
        checked(given, registry)
        if isinstance(given, Policy)
        else parse({} if given is None else given, registry)
    ), ()


def model_of(given: object, **served: Any) -> Model:
    """A model, by its name or as it is. Raises `WrongUse` as `resolve_model`, for what is none, and for terms
    of one that is made.

    `served` are `base_url`, `price` and `timeout`, None where nothing was given.
    """
    if isinstance(given, str):
        return resolve_model(given, **served)
    for what, value in served.items():
        if value is not None:
            kind = type(given)
            takes = what in inspect.signature(kind).parameters
            way_out = (
                f"give it to the model itself: {kind.__name__}(..., {what}=...)"
                if takes
                else f"a {kind.__name__} has no {what}; leave it out, or name a model, as in 'openai:gpt-5-mini'"
            )
            raise wrong(what, "none beside a model", value, way_out)
    return known_model(given, "model")


def known_model(given: object, place: str) -> Model:
    """A model, by what it can do. Raises `WrongUse` for anything else."""
    expected = "a model, or its name as in 'openai:gpt-5-mini'"
    if inspect.isclass(given):
        raise wrong(place, expected, given, f"make one of it: {given.__name__}(...)")
    if not callable(getattr(given, "stream", None)) or not hasattr(given, "name"):
        script = isinstance(given, list | tuple)
        raise wrong(place, expected, given, "a script is ScriptedModel([...])" if script else "")
    return cast("Model", given)


def fallbacks_of(policy: Policy, models: Mapping[str, Model] | None) -> dict[str, Model]:
    """The models that a policy falls back to, by name: those that were given, and others by their names.

    Raises `WrongUse`.
    """
    given = mapping(models, "models", "{'openai:gpt-5-mini': PydanticAIModel(...)}")
    known = {name: known_model(each, f"models[{name!r}]") for name, each in given.items()}
    names = policy.retry.fallback.models if policy.retry.fallback else ()
    return {name: known.get(name) or model_at(name) for name in names}


def earlier_of(messages: Sequence[Message]) -> Sequence[Message]:
    """Messages from before a task. Raises `WrongUse` for what is none."""
    example = "Message(role='user', text='...')"
    for place, each in enumerate(listed(messages, "messages", f"[{example}]")):
        if not isinstance(each, Message):
            raise wrong(f"messages[{place}]", f"a message, as in {example}", each)
    return messages


def tools_of(given: Iterable[Tool | Callable[..., object]]) -> list[Tool]:
    """Tools, and plain functions made into tools, with a warning: nobody said what may be done with their
    calls.

    Raises `WrongUse` for anything else.
    """
    made, unsaid = made_of(given)
    if unsaid:
        warnings.warn(unsaid, stacklevel=4)  # in the line that makes the agent
    return made


def made_of(given: Iterable[Tool | Callable[..., object]]) -> tuple[list[Tool], str]:
    """As `tools_of`, with the warning as text, "" for none."""
    made: list[Tool] = []
    unsaid: list[str] = []
    for place, each in enumerate(listed(given, "tools", "tools=[search, book]")):
        if isinstance(each, Tool):
            made.append(each)
        elif callable(each):
            made.append(tool(each))
            unsaid += [made[-1].name] if _first_time(each) else []
        else:
            raise wrong(f"tools[{place}]", "a tool or a function", each, _of_no_tool(each))
    said = (
        f"tools without @tool: {', '.join(unsaid)}: a call of theirs is never repeated, and is in doubt after a crash "
        "until a person says how it ended; say what may be done with it: "
        "@tool(replay='read_only'), 'idempotent', 'reconcilable' or 'at_most_once'"
    )
    return made, said if unsaid else ""


# Of a function one warning a process is enough, however many agents are made with it.
_warned_of: WeakSet[Callable[..., object]] = WeakSet()


def _first_time(function: Callable[..., object]) -> bool:
    known = getattr(function, "__func__", function)  # a method is made anew each time that it is named
    new = known not in _warned_of
    _warned_of.add(known)
    return new


def _of_no_tool(given: object) -> str:
    """What to write in place of something that is no tool."""
    if callable(getattr(given, "as_tool", None)):
        return "an agent is handed work by handoffs=[agent], or is a tool as agent.as_tool()"
    if isinstance(given, str | int | float | list | dict | None):
        return "give the function itself, neither its name nor what it returned"
    return ""


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools by their names. Raises `WrongUse` for two of one name."""
    named: dict[str, Tool] = {}
    for each in tools:
        if each.name in named:
            raise WrongUse(f"two tools are called {each.name!r}; give one another name")
        named[each.name] = each
    return named


def run_id_of(asked: str | None) -> str:
    """The id of a new run: what was asked for, else one of its own.

    Raises `WrongUse` if no command could name it.
    """
    if asked is None:
        return clock.new_run_id()
    check_new_run(text(asked, "run_id"))
    return asked
