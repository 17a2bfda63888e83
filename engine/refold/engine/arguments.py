"""Checks of caller arguments, stores given by address, and operator answers."""

import inspect
import json
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any, Literal, cast

from refold.reducers import pending
from refold.reducers.composition import ANSWERS, Answer
from refold.reducers.errors import WrongUse
from refold.reducers.machine import AgentState
from refold.reducers.state import RunState
from refold.store import open_memory, open_store
from refold.store.opening import MEMORY, store_address
from refold.store.protocol import Store

_LONGEST = 80
_PLAIN = frozenset({"NoneType", "bool", "int", "float", "str", "bytes", "list", "tuple", "dict", "set"})


def wrong_value(place: str, expected: str, value: object, way_out: str = "") -> WrongUse:
    """Return the error for an unexpected value at `place`."""
    return WrongUse(
        f"{place}: expected {expected}, got {describe_value(value)}{'; ' if way_out else ''}{way_out}"
    )


def describe_value(value: object) -> str:
    """Describe a value in an error: short values by their repr, functions and classes by name."""
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    kind = type(value).__name__
    if kind in _PLAIN:
        shown = repr(value)
        return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def text(given: object, place: str) -> str:
    """Return text. Raises `WrongUse` for anything else."""
    if not isinstance(given, str):
        raise wrong_value(place, "text", given)
    return given


def mapping(given: object, place: str, example: str) -> Mapping[str, Any]:
    """Return a mapping of names; None becomes an empty one. Raises `WrongUse` for anything else."""
    if given is not None and not isinstance(given, Mapping):
        raise wrong_value(place, f"a mapping, as in {example}", given)
    return cast("Mapping[str, Any]", given or {})


def check_list(given: object, place: str, example: str) -> Iterable[Any]:
    """Return the values of an iterable. Raises `WrongUse` for anything else, including text and mappings."""
    walk = (
        None if hasattr(given, "keys") or isinstance(given, str | bytes) else getattr(given, "__iter__", None)
    )
    if walk is None:
        raise wrong_value(place, f"a list, as in {example}", given)
    every: list[Any] = list(walk())
    return every


def seconds(given: object, place: str, otherwise: str = "") -> float:
    """Return seconds above 0. Raises `WrongUse` for anything else; `otherwise` names an alternative."""
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < math.inf:
        return given
    raise wrong_value(place, f"seconds above 0{otherwise}", given)


def function(given: object, place: str) -> Callable[..., Any]:
    """Return a callable. Raises `WrongUse` for anything else."""
    if not callable(given):
        raise wrong_value(place, "a function", given)
    return given


StoreSource = Store | str | PathLike[str]


def source(given: StoreSource | None) -> StoreSource:
    """Return the place for logs as given, or one store in memory for `memory:` and None.

    Raises `WrongUse` for anything but a store or an address.
    """
    if given is None:
        return open_memory()
    if isinstance(given, str | PathLike):
        return open_memory() if store_address(given).scheme == MEMORY else given
    if not callable(getattr(given, "append", None)):
        raise wrong_value("store", "the path of a file, or a store", given)
    return given


@asynccontextmanager
async def opened(source: StoreSource) -> AsyncGenerator[Store]:
    """Yield the store of a source, and close it if it was opened here."""
    if not isinstance(source, str | PathLike):
        yield source
        return
    async with await open_store(source) as store:
        yield store


Edit = tuple[Literal["edit"], Mapping[str, Any] | str]
Answers = Mapping[str, Answer | Edit]
"""By call id: an answer, or ("edit", the new arguments as a mapping or as JSON text)."""


class NotWaiting(WrongUse):
    """A message or an answer was given to a run that does not wait for it."""

    def __init__(self, run: str, state: AgentState, what: str = "a message") -> None:
        super().__init__(run, state, what)
        self.run, self.state, self.what = run, state, what

    def __str__(self) -> str:
        condition = "" if self.what == "a message" else ", and when it is requested"
        waiting = " or ".join(state for state in AgentState if state.awaits_operator)
        return f"run {self.run} is {self.state}: it accepts {self.what} only in {waiting}{condition}"


def refuse_message(run: str, state: RunState) -> None:
    """Raise `NotWaiting` if the run waits for no input, and `WrongUse` if it waits for something else."""
    if state.asked_at is None:
        raise NotWaiting(run, state.agent_state)
    if state.approval is not None:
        calls = ", ".join(state.approval.event.calls)
        raise WrongUse(f"run {run} waits for approval of calls {calls}: use answer() instead of a message")
    if doubted := pending.unknown_calls(state):
        raise WrongUse(
            f"run {run} waits for the outcome of calls {', '.join(doubted)}: use resolve() instead of a message"
        )


def split_answers(answers: Answers) -> tuple[dict[str, Answer], dict[str, str]]:
    """Return the answers, and new arguments as JSON text, each by call id.

    Raises `WrongUse` for an unknown answer, and for arguments that are not JSON.
    """
    words: dict[str, Answer] = {}
    arguments: dict[str, str] = {}
    for call, answer in answers.items():
        if isinstance(answer, str):
            words[call] = answer
        else:
            words[call], arguments[call] = answer[0], _text(call, answer[1])
        if words[call] not in ANSWERS:
            raise WrongUse(f"call {call}: expected one of {', '.join(ANSWERS)}, got {words[call]!r}")
    return words, arguments


def _text(call: str, arguments: Mapping[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise WrongUse(
            f"call {call}: expected new arguments that can be serialized as JSON: {error}"
        ) from error


class BadSyntax(Exception):
    """The file does not parse; the message names the position."""


DEEPEST = 60
"""Maximum nesting of a policy file: the time of YAML and TOML parsers grows at least with its square."""
