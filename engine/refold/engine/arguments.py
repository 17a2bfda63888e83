"""Arguments of callers: refused values, stores, and answers of people."""

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


def wrong(place: str, expected: str, value: object, way_out: str = "") -> WrongUse:
    """The error for a value that is not what was expected at `place`."""
    return WrongUse(f"{place}: expected {expected}, got {named(value)}{'; ' if way_out else ''}{way_out}")


def named(value: object) -> str:
    """A value as a person knows it: short ones as they are written, a function or a class by its name."""
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    kind = type(value).__name__
    if kind in _PLAIN:
        said = repr(value)
        return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"


def text(given: object, place: str) -> str:
    """Text. Raises `WrongUse` for anything else."""
    if not isinstance(given, str):
        raise wrong(place, "text", given)
    return given


def mapping(given: object, place: str, example: str) -> Mapping[str, Any]:
    """A mapping of names, None as an empty one. Raises `WrongUse` for anything else."""
    if given is not None and not isinstance(given, Mapping):
        raise wrong(place, f"a mapping, as in {example}", given)
    return cast("Mapping[str, Any]", given or {})


def listed(given: object, place: str, example: str) -> Iterable[Any]:
    """Several values in a row, and not one of them, a text or a mapping. Raises `WrongUse` for anything
    else.
    """
    walk = (
        None if hasattr(given, "keys") or isinstance(given, str | bytes) else getattr(given, "__iter__", None)
    )
    if walk is None:
        raise wrong(place, f"a list, as in {example}", given)
    every: list[Any] = list(walk())
    return every


def seconds(given: object, place: str, otherwise: str = "") -> float:
    """Seconds above 0. Raises `WrongUse` for anything else; `otherwise` says what might stand there, too."""
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < math.inf:
        return given
    raise wrong(place, f"seconds above 0{otherwise}", given)


def function(given: object, place: str) -> Callable[..., Any]:
    """Something to be called. Raises `WrongUse` for anything else."""
    if not callable(given):
        raise wrong(place, "a function", given)
    return given


StoreSource = Store | str | PathLike[str]


def source(given: StoreSource | None) -> StoreSource:
    """Where logs are to be: as given, or one store in memory for `memory:` and None.

    Raises `WrongUse` for what is neither a store nor the address of one.
    """
    if given is None:
        return open_memory()
    if isinstance(given, str | PathLike):
        return open_memory() if store_address(given).scheme == MEMORY else given
    if not callable(getattr(given, "append", None)):
        raise wrong("store", "the path of a file, or a store", given)
    return given


@asynccontextmanager
async def opened(source: StoreSource) -> AsyncGenerator[Store]:
    """The store of a source; one that was opened here is closed here."""
    if not isinstance(source, str | PathLike):
        yield source
        return
    async with await open_store(source) as store:
        yield store


Edit = tuple[Literal["edit"], Mapping[str, Any] | str]
Answers = Mapping[str, Answer | Edit]
"""By call id: a word, or ("edit", the new arguments as a mapping or as JSON text)."""


class NotWaiting(WrongUse):
    """Something for a run that does not wait for it: a message, or an answer about calls."""

    def __init__(self, run: str, state: AgentState, what: str = "a message") -> None:
        super().__init__(run, state, what)
        self.run, self.state, self.what = run, state, what

    def __str__(self) -> str:
        asked = "" if self.what == "a message" else ", and when it is asked for"
        waiting = " or ".join(state for state in AgentState if state.awaits_operator)
        return f"run {self.run} is {self.state}: it takes {self.what} only in {waiting}{asked}"


def refuse_message(run: str, state: RunState) -> None:
    """Raise `NotWaiting` if the run waits for nobody, and `WrongUse` if it waits for something other than a
    message.
    """
    if state.asked_at is None:
        raise NotWaiting(run, state.agent_state)
    if state.approval is not None:
        calls = ", ".join(state.approval.event.calls)
        raise WrongUse(f"run {run} asks whether calls {calls} may run: answer() says so, not a message")
    if doubted := pending.unknown_calls(state):
        raise WrongUse(
            f"run {run} asks how calls {', '.join(doubted)} ended: resolve() says so, not a message"
        )


def words_of(answers: Answers) -> tuple[dict[str, Answer], dict[str, str]]:
    """The words, and the new arguments as JSON text, by call id.

    Raises `WrongUse` for another word, and for arguments that are no JSON.
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
        raise WrongUse(f"call {call}: expected new arguments that JSON can write: {error}") from error


class BadSyntax(Exception):
    """The file is not in its own format; the message says where."""


DEEPEST = 60
"""How deep a policy file may nest: the time that readers of YAML and TOML take grows with the square of it,
or worse.
"""
