"""What can be asked of a state by name. Each name has one type, and always a value: 0, "" or false where there is none.

Numbers are integers. Money and time have nine digits after the point, so that nothing of a nano-dollar or a nanosecond
is lost: `spent_usd` is written in dollars and compared in nano-dollars.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from refold.reducers.state import RunState

NANO_DIGITS = 9


class NumberField(msgspec.Struct, frozen=True):
    """A number of the state, `digits` of it after the point. `rises`: it never falls in a log that can be folded."""

    name: str
    means: str
    of: Callable[[RunState], int]
    digits: int = 0
    rises: bool = False


class TextField(msgspec.Struct, frozen=True):
    """A word of the state, "" where there is none."""

    name: str
    means: str
    of: Callable[[RunState], str]


class FlagField(msgspec.Struct, frozen=True):
    """Something that is so, or not. `rises`: once true, it stays true."""

    name: str
    means: str
    of: Callable[[RunState], bool]
    rises: bool = False


def _elapsed(state: RunState) -> int:
    return state.fact_at - state.lineage.at


# What may be given back or taken out does not rise: a step after an overflow, messages and tokens of the window.
_NUMBERS = (
    NumberField("seq", "the number of the event", lambda state: state.seq, rises=True),
    NumberField("elapsed", "seconds since the log began", _elapsed, digits=NANO_DIGITS, rises=True),
    NumberField("steps", "steps that were made, without those given back", lambda state: state.spent.steps),
    NumberField("requests", "requests, each attempt counted", lambda state: state.spent.requests, rises=True),
    NumberField("calls", "calls that the model asked for", lambda state: state.spent.calls, rises=True),
    NumberField(
        "spent_usd",
        "US dollars, as far as prices are known",
        lambda state: state.spent.cost_nanousd,
        digits=NANO_DIGITS,
        rises=True,
    ),
    NumberField("unpriced", "answers without a known price", lambda state: state.spent.unpriced, rises=True),
    NumberField(
        "tokens",
        "input and output tokens, as providers counted them",
        lambda state: state.spent.usage.input + state.spent.usage.output,
        rises=True,
    ),
    NumberField(
        "input_tokens",
        "input tokens, those of the cache among them",
        lambda state: state.spent.usage.input,
        rises=True,
    ),
    NumberField("output_tokens", "output tokens", lambda state: state.spent.usage.output, rises=True),
    NumberField(
        "cache_read_tokens",
        "input tokens read from a cache",
        lambda state: state.spent.usage.cache_read,
        rises=True,
    ),
    NumberField(
        "reasoning_tokens",
        "output tokens of reasoning",
        lambda state: state.spent.usage.reasoning,
        rises=True,
    ),
    NumberField(
        "downtime",
        "seconds in which no engine had the run",
        lambda state: state.spent.downtime,
        digits=NANO_DIGITS,
        rises=True,
    ),
    NumberField(
        "retry_wait",
        "seconds waited for another try",
        lambda state: state.spent.retry_wait,
        digits=NANO_DIGITS,
    ),
    NumberField(
        "person_wait",
        "seconds waited for a person",
        lambda state: state.spent.person_wait,
        digits=NANO_DIGITS,
    ),
    NumberField("messages", "messages so far, whether still shown or not", lambda state: state.messages),
    NumberField(
        "window_messages", "messages that the model would be shown", lambda state: state.window.count
    ),
    NumberField("window_tokens", "their estimated tokens", lambda state: state.window.tokens),
    NumberField(
        "context", "the model's context in tokens, 0 if unknown", lambda state: state.setup.context or 0
    ),
    NumberField(
        "open_calls",
        "calls without a result yet",
        lambda state: sum(call.result is None for call in state.batch.calls) if state.batch else 0,
    ),
    NumberField(
        "attempt",
        "the attempt of the request that is open, 0 if none is",
        lambda state: state.request.event.attempt if state.request else 0,
    ),
)
_TEXTS = (
    TextField("agent_state", "as `RUNNING`, `COMPLETED`", lambda state: str(state.agent_state)),
    TextField("model", "the model that is asked", lambda state: state.model or state.setup.model),
    TextField(
        "outcome",
        "the code with which the run ended",
        lambda state: state.outcome.code if state.outcome else "",
    ),
    TextField("limit", "the limit that tripped", lambda state: state.limit.name if state.limit else ""),
    TextField(
        "stopping",
        "the code with which it is to end",
        lambda state: state.stopping.code if state.stopping else "",
    ),
    TextField(
        "stop",
        "why the model stopped last",
        lambda state: str(state.answer.event.stop) if state.answer else "",
    ),
    TextField(
        "failure",
        "the class of the failure that is not recovered from yet",
        lambda state: str(state.failure.event.failure) if state.failure else "",
    ),
    TextField(
        "pruned_by", "the pass whose summary came since the last request", lambda state: state.pruned_by
    ),
)
_FLAGS = (
    FlagField("ended", "the run is in a terminal state", lambda state: state.ended, rises=True),
    FlagField("asked_model", "a request is open", lambda state: state.request is not None),
    FlagField("asked_person", "a person is asked", lambda state: state.asked_at is not None),
    FlagField("waiting", "a wait before another try is open", lambda state: state.backoff is not None),
    FlagField(
        "overflowed",
        "the context was too long, and no request was made since",
        lambda state: state.overflowed,
    ),
    FlagField(
        "in_doubt",
        "how an open call ended is not known",
        lambda state: state.batch is not None and any(call.in_doubt for call in state.batch.calls),
    ),
)

NUMBERS: Mapping[str, NumberField] = MappingProxyType({field.name: field for field in _NUMBERS})
TEXTS: Mapping[str, TextField] = MappingProxyType({field.name: field for field in _TEXTS})
FLAGS: Mapping[str, FlagField] = MappingProxyType({field.name: field for field in _FLAGS})
FIELDS: Mapping[str, NumberField | TextField | FlagField] = MappingProxyType({**NUMBERS, **TEXTS, **FLAGS})
"""Every name that an expression knows."""
