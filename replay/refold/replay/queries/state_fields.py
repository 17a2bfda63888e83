"""What can be asked of a state by name. Each name has one type, and always a value: 0, "" or false where there is none.

Numbers are integers. Money and time have nine digits after the point, so that nothing of a nano-dollar or a nanosecond
is lost: `spent_usd` is written in dollars and compared in nano-dollars.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from refold.reducers.machine import AgentState
from refold.reducers.state import RunState
from refold.replay.queries.language import Question, Vocabulary, parse
from refold.replay.queries.questions import BadQuestion, Field, FieldKind

NANO_DIGITS = 9

T = TypeVar("T")


class StateField(Field, Generic[T], frozen=True, kw_only=True):
    """A field of a state, and what reads it off."""

    name: str
    of: Callable[[RunState], T]


# What may be given back or taken out does not rise: a step after an overflow, messages and tokens of the window.
_RISING = frozenset((
    "seq", "elapsed", "requests", "calls", "spent_usd", "unpriced", "tokens",
    "input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens", "downtime", "ended",
))  # fmt: skip
_NANO = frozenset(("elapsed", "spent_usd", "downtime", "retry_wait", "person_wait"))
_NUMBERS: dict[str, tuple[str, Callable[[RunState], int]]] = {
    "seq": ("the number of the event", lambda state: state.seq),
    "elapsed": ("seconds since the log began", lambda state: state.fact_at - state.lineage.at),
    "steps": ("steps that were made, without those given back", lambda state: state.spent.steps),
    "requests": ("requests, each attempt counted", lambda state: state.spent.requests),
    "calls": ("calls that the model asked for", lambda state: state.spent.calls),
    "spent_usd": ("US dollars, as far as prices are known", lambda state: state.spent.cost_nanousd),
    "unpriced": ("answers without a known price", lambda state: state.spent.unpriced),
    "tokens": (
        "input and output tokens, as providers counted them",
        lambda state: state.spent.usage.input + state.spent.usage.output,
    ),
    "input_tokens": ("input tokens, those of the cache among them", lambda state: state.spent.usage.input),
    "output_tokens": ("output tokens", lambda state: state.spent.usage.output),
    "cache_read_tokens": ("input tokens read from a cache", lambda state: state.spent.usage.cache_read),
    "reasoning_tokens": ("output tokens of reasoning", lambda state: state.spent.usage.reasoning),
    "downtime": ("seconds in which no engine had the run", lambda state: state.spent.downtime),
    "retry_wait": ("seconds waited for another try", lambda state: state.spent.retry_wait),
    "person_wait": ("seconds waited for a person", lambda state: state.spent.person_wait),
    "messages": ("messages so far, whether still shown or not", lambda state: state.messages),
    "window_messages": ("messages that the model would be shown", lambda state: state.window.count),
    "window_tokens": ("their estimated tokens", lambda state: state.window.tokens),
    "context": ("the model's context in tokens, 0 if unknown", lambda state: state.setup.context or 0),
    "open_calls": (
        "calls without a result yet",
        lambda state: sum(call.result is None for call in state.batch.calls) if state.batch else 0,
    ),
    "attempt": (
        "the attempt of the request that is open, 0 if none is",
        lambda state: state.request.event.attempt if state.request else 0,
    ),
}
_TEXTS: dict[str, tuple[str, Callable[[RunState], str]]] = {
    "agent_state": ("as `RUNNING`, `COMPLETED`", lambda state: str(state.agent_state)),
    "model": ("the model that is asked", lambda state: state.model or state.setup.model),
    "outcome": (
        "the code with which the run ended",
        lambda state: state.outcome.code if state.outcome else "",
    ),
    "limit": ("the limit that tripped", lambda state: state.limit.name if state.limit else ""),
    "stopping": (
        "the code with which it is to end",
        lambda state: state.stopping.code if state.stopping else "",
    ),
    "stop": (
        "why the model stopped last",
        lambda state: str(state.answer.event.stop) if state.answer else "",
    ),
    "failure": (
        "the class of the failure that is not recovered from yet",
        lambda state: str(state.failure.event.failure) if state.failure else "",
    ),
    "pruned_by": ("the pass whose summary came since the last request", lambda state: state.pruned_by),
}
_FLAGS: dict[str, tuple[str, Callable[[RunState], bool]]] = {
    "ended": ("the run is in a terminal state", lambda state: state.ended),
    "asked_model": ("a request is open", lambda state: state.request is not None),
    "asked_person": ("a person is asked", lambda state: state.asked_at is not None),
    "waiting": ("a wait before another try is open", lambda state: state.backoff is not None),
    "overflowed": ("the context was too long, and no request was made since", lambda state: state.overflowed),
    "in_doubt": (
        "how an open call ended is not known",
        lambda state: state.batch is not None and any(call.in_doubt for call in state.batch.calls),
    ),
}


def _fields(
    kind: FieldKind, table: dict[str, tuple[str, Callable[[RunState], T]]]
) -> Mapping[str, StateField[T]]:
    made = {
        name: StateField(
            kind,
            means,
            NANO_DIGITS if name in _NANO else 0,
            _VALUES.get(name, ()),
            name in _RISING,
            name=name,
            of=of,
        )
        for name, (means, of) in table.items()
    }
    return MappingProxyType(made)


_VALUES = {"agent_state": tuple(map(str, AgentState))}

NUMBERS, TEXTS, FLAGS = _fields("number", _NUMBERS), _fields("words", _TEXTS), _fields("flag", _FLAGS)
FIELDS: Mapping[str, StateField[Any]] = MappingProxyType({**NUMBERS, **TEXTS, **FLAGS})
"""Every name that a question about states knows."""

STATES: Vocabulary[RunState] = Vocabulary(FIELDS, lambda state, name: FIELDS[name].of(state))


def state_question(text: str) -> Question[RunState]:
    """The question about a state that a person typed. Raises `BadQuestion`, of an empty one too: nothing is no question."""
    question = parse(text, STATES)
    if not question.names:
        raise BadQuestion(text, 1, "expected a condition, as steps>3")
    return question
