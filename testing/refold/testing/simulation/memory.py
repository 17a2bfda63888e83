"""The memory of a process: module globals and class attributes, which a new process does not inherit.

Simulated processes share one interpreter. So before a new process starts, the globals of the modules that
define the agent's tools and guards are reset to their values before the first process. Only plain values
are reset: numbers, texts, and lists, sets and mappings.
"""

import copy
import itertools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, MutableMapping
from inspect import unwrap
from typing import Any, cast

from refold.engine import Agent
from refold.engine.tools.decorator import FunctionTool

_ATOMS = (bool, int, float, str, bytes, type(None), tuple, frozenset)
_CONTAINERS = (list, dict, set, deque, Counter, defaultdict, OrderedDict)
_OURS = "refold."


class ProcessMemory:
    """Remembers the plain values of modules and classes when it first sees them, and restores them."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[object, dict[str, tuple[Any, Any]]]] = {}

    def watch(self, make: Callable[..., object], agents: list[Agent]) -> None:
        """Watch the modules of the function that makes agents, of their tools and of their guards."""
        for owner in (vars_of(make), *_owners(agents)):
            if owner is not None and id(owner) not in self._kept:
                self._kept[id(owner)] = owner, dict(_plain_values(owner))

    def restore(self) -> None:
        """Reset all watched values, as in a new process."""
        for owner, values in self._kept.values():
            for name, (value, first) in values.items():
                _reset(value, first)
                now = vars_or_itself(owner).get(name)
                if now is not value or isinstance(value, itertools.count):
                    fresh = copy.copy(first) if isinstance(value, itertools.count) else value
                    _assign(owner, name, fresh)


def vars_of(function: Callable[..., object]) -> dict[str, Any] | None:
    """Return the globals of the module of a function; None for a module of refold."""
    found: dict[str, Any] | None = getattr(unwrap(function), "__globals__", None)
    return None if found is None or str(found.get("__name__", "")).startswith(_OURS) else found


def vars_or_itself(owner: object) -> MutableMapping[str, Any]:
    """Return the attributes of a class; a dictionary of globals is returned itself."""
    return cast("MutableMapping[str, Any]", owner if isinstance(owner, dict) else vars(owner))


def _owners(agents: list[Agent]) -> Iterator[object]:
    for agent in agents:
        for tool in agent.tools.values():
            if isinstance(tool, FunctionTool):
                function = cast("Callable[..., object]", tool.function)
                yield vars_of(function)
                yield getattr(unwrap(function), "__dict__", None)
        for guard in agent.registry.values():
            if guard.__module__.startswith(_OURS):
                continue
            yield guard
            methods = (each for each in vars(guard).values() if hasattr(each, "__globals__"))
            yield next((vars_of(method) for method in methods), vars(sys.modules[guard.__module__]))


def _plain_values(owner: object) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name, value in list(vars_or_itself(owner).items()):
        if name.startswith("__"):
            continue
        if type(value) in _ATOMS or type(value) is itertools.count:
            yield name, (value, copy.copy(cast("object", value)))
        elif type(value) in _CONTAINERS:
            yield name, (value, _copy(value))


def _copy(value: object) -> Any:
    """Copy a collection with its nested plain collections; other members are kept."""
    if type(value) not in _CONTAINERS:
        return value
    copied: Any = copy.copy(value)
    if isinstance(copied, dict):
        entries = cast("dict[object, object]", copied)
        entries.update({key: _copy(each) for key, each in entries.items()})
    elif isinstance(copied, list):
        copied[:] = [_copy(each) for each in cast("list[object]", copied)]
    return cast("object", copied)


def _reset(value: object, first: object) -> None:
    """Give a collection its first members again, in place."""
    fresh = _copy(first)
    if isinstance(value, list):
        value[:] = cast("list[object]", fresh)
    elif isinstance(value, dict | set):
        cast("set[object]", value).clear()
        cast("set[object]", value).update(cast("set[object]", fresh))
    elif isinstance(value, deque):
        value.clear()
        cast("deque[object]", value).extend(cast("deque[object]", fresh))


def _assign(owner: object, name: str, value: object) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)
