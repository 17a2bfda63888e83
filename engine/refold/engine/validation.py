"""Validation of an agent's arguments, and their recorded form."""

import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

from refold.engine import clock
from refold.engine.arguments import check_list, mapping, text, wrong_value
from refold.engine.models.lookup import model_at, resolve_model
from refold.engine.models.protocol import Model
from refold.engine.policy_files import load_policy
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
    """Return the text. Raises `WrongUse` for anything that cannot be recorded as text."""
    if not isinstance(value, str) or clean(value) != value:
        raise WrongUse(f"{place}: expected text, got {value!r}")
    return value


def settings_of(settings: Mapping[str, Any] | None) -> dict[str, str]:
    """Return sampling settings as JSON text by name. Raises `WrongUse` for values that JSON cannot hold."""
    given = mapping(settings, "settings", "{'temperature': 0.2}")
    return {recordable(key, "settings"): _setting_text(key, value) for key, value in given.items()}


def _setting_text(key: str, value: Any) -> str:
    """Return a sampling setting as JSON text."""
    try:
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise WrongUse(
            f"settings[{key!r}]: expected a value that can be serialized as JSON: {error}"
        ) from error
    return recordable(encoded, f"settings[{key!r}]")


def seed_of(chosen: object) -> int:
    """Return the chosen seed, or a new one. Raises `WrongUse` for an invalid seed."""
    seed = clock.new_seed() if chosen is None else chosen
    if not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise wrong_value("seed", "a whole number, 0 to 2**63 - 1", seed)
    return seed


def labels_of(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return labels for the log. Raises `WrongUse` for the label that marks imported runs."""
    given = mapping(labels, "labels", "{'team': 'billing'}")
    if SOURCE_LABEL in given:
        raise WrongUse(f"labels: {SOURCE_LABEL!r} is reserved for imported runs; use another name")
    return {recordable(key, "labels"): recordable(value, f"labels[{key!r}]") for key, value in given.items()}


def policy_of(
    given: Policy | Mapping[str, Any] | str | os.PathLike[str] | None, registry: Registry, agent: str
) -> tuple[Policy, tuple[str, ...]]:
    """Return a policy and what the environment set; it applies to files and to presets given by name.

    Raises `PolicyError`, and `PolicyFileError` for a file that cannot be read or cannot work.
    """
    if isinstance(given, str | os.PathLike):
        return load_policy(Path(given), registry, os.environ, agent=agent)
    return (
        checked(given, registry)
        if isinstance(given, Policy)
        else parse({} if given is None else given, registry)
    ), ()


def model_of(given: object, **served: Any) -> Model:
    """Return a model, given by name or as an object.

    `served` are `base_url`, `price` and `timeout`, or None. Raises `WrongUse` as `resolve_model`, for other
    values, and for `served` beside an object.
    """
    if isinstance(given, str):
        return resolve_model(given, **served)
    for what, value in served.items():
        if value is not None:
            kind = type(given)
            takes = what in inspect.signature(kind).parameters
            way_out = (
                f"pass it to the model: {kind.__name__}(..., {what}=...)"
                if takes
                else f"{kind.__name__} has no {what}; leave it out, or name a model as 'openai:gpt-5-mini'"
            )
            raise wrong_value(what, "None beside a model object", value, way_out)
    return known_model(given, "model")


def known_model(given: object, place: str) -> Model:
    """Return a model, recognised by its attributes. Raises `WrongUse` for anything else."""
    expected = "a model, or a name such as 'openai:gpt-5-mini'"
    if inspect.isclass(given):
        raise wrong_value(place, expected, given, f"create an instance: {given.__name__}(...)")
    if not callable(getattr(given, "stream", None)) or not hasattr(given, "name"):
        script = isinstance(given, list | tuple)
        raise wrong_value(place, expected, given, "write a script as ScriptedModel([...])" if script else "")
    return cast("Model", given)


def fallbacks_of(policy: Policy, models: Mapping[str, Model] | None) -> dict[str, Model]:
    """Return the fallback models of a policy by name: the given ones, others resolved by name.

    Raises `WrongUse`.
    """
    given = mapping(models, "models", "{'openai:gpt-5-mini': PydanticAIModel(...)}")
    known = {name: known_model(each, f"models[{name!r}]") for name, each in given.items()}
    names = policy.retry.fallback.models if policy.retry.fallback else ()
    return {name: known.get(name) or model_at(name) for name in names}


def earlier_of(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages from before a task. Raises `WrongUse` for other values."""
    example = "Message(role='user', text='...')"
    for place, each in enumerate(check_list(messages, "messages", f"[{example}]")):
        if not isinstance(each, Message):
            raise wrong_value(f"messages[{place}]", f"a message, as in {example}", each)
    return messages


def tools_of(given: Iterable[Tool | Callable[..., object]]) -> list[Tool]:
    """Return tools; plain functions become tools, with a warning that their replay class is unknown.

    Raises `WrongUse` for anything else.
    """
    made, warning = make_tools(given)
    if warning:
        warnings.warn(warning, stacklevel=4)  # points at the line that makes the agent
    return made


def make_tools(given: Iterable[Tool | Callable[..., object]]) -> tuple[list[Tool], str]:
    """Do the same as `tools_of`, but return the warning as text, "" for none."""
    made: list[Tool] = []
    plain: list[str] = []
    for place, each in enumerate(check_list(given, "tools", "tools=[search, book]")):
        if isinstance(each, Tool):
            made.append(each)
        elif callable(each):
            made.append(tool(each))
            plain += [made[-1].name] if _first_time(each) else []
        else:
            raise wrong_value(f"tools[{place}]", "a tool or a function", each, _advise(each))
    warning = (
        f"tools without @tool: {', '.join(plain)}. A call of them is never repeated; after a crash its outcome is "
        "unknown (in doubt) until an operator resolves it. Declare what may be repeated: "
        "@tool(replay='read_only'), 'idempotent', 'reconcilable' or 'at_most_once'"
    )
    return made, warning if plain else ""


# One warning per function and process, however many agents use it.
_warned_of: WeakSet[Callable[..., object]] = WeakSet()


def _first_time(function: Callable[..., object]) -> bool:
    known = getattr(function, "__func__", function)  # each access of a method makes a new object
    new = known not in _warned_of
    _warned_of.add(known)
    return new


def _advise(given: object) -> str:
    """Return what to write in place of something that is not a tool."""
    if callable(getattr(given, "as_tool", None)):
        return "pass an agent as handoffs=[agent], or as the tool agent.as_tool()"
    if isinstance(given, str | int | float | list | dict | None):
        return "pass the function itself, not its name or its result"
    return ""


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools by name. Raises `WrongUse` for duplicate names."""
    named: dict[str, Tool] = {}
    for each in tools:
        if each.name in named:
            raise WrongUse(f"two tools are named {each.name!r}; rename one")
        named[each.name] = each
    return named


def run_id_of(asked: str | None) -> str:
    """Return the requested id of a new run, or a random one.

    Raises `WrongUse` if the command line could not address it.
    """
    if asked is None:
        return clock.new_run_id()
    check_new_run(text(asked, "run_id"))
    return asked
