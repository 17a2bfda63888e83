"""Closed vocabularies, exact numbers and the bases of all plain values.

Each is a `StrEnum`: JSON shows the word itself, decoding returns the one interned member.
"""

from decimal import ROUND_HALF_UP, Context, Decimal
from enum import StrEnum, unique
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

SOURCE_LABEL = "source.format"
"""The label that every import puts on its run, and nobody else on any: it says that the run is not ours."""


@unique
class Unknown(StrEnum):
    """What the source of a fact does not say: what stands there is the least that it can have been.

    `time`: it was no earlier than `at`. `usage`, `cost`: no fewer tokens and no less money were used.
    `tools`: a run had the tools that are listed and those that were called, and perhaps more, some of which
    only read. `context`: it is not said how large the model's context is. `errors`: whether the call of a
    result failed. `stop`: why an answer ended, for it has no word for it, or none that anybody here knows.
    `result`: that the source has none, so how the call ended, and what it gave.

    Of a run of ours: `uncounted`: nobody counted the tokens of an answer, not even its provider; `unpriced`:
    nor does anybody know its price. So nobody knew when it was decided what follows.
    """

    TIME = "time"
    USAGE = "usage"
    COST = "cost"
    TOOLS = "tools"
    CONTEXT = "context"
    ERRORS = "errors"
    STOP = "stop"
    RESULT = "result"
    UNCOUNTED = "uncounted"
    UNPRICED = "unpriced"


UNMETERED = frozenset({Unknown.UNCOUNTED, Unknown.UNPRICED})
"""What an engine of ours does not know of an answer; all else that is unknown is of imported runs."""


@unique
class StopReason(StrEnum):
    """Why a model stopped, in our words; the provider's own word stands beside it as `stop_raw`."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


@unique
class FailureClass(StrEnum):
    """Why a model request failed. `refold.reducers.failures.classify` gives the class of a status and
    text.
    """

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    NETWORK = "network"
    STREAM_BROKEN = "stream_broken"
    CONTEXT_OVERFLOW = "context_overflow"
    AUTH = "auth"
    BAD_REQUEST = "bad_request"
    CANCELLED = "cancelled"
    OTHER = "other"
    QUOTA = "quota"


@unique
class ToolError(StrEnum):
    """How a tool call went wrong. A call without one returned normally, or nobody knows: `Unknown.ERRORS`."""

    RAISED = "raised"
    TIMEOUT = "timeout"
    BAD_ARGUMENTS = "bad_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    IN_DOUBT = "in_doubt"
    CANCELLED = "cancelled"


@unique
class Replay(StrEnum):
    """What may be done with a call of a tool whose end nobody saw.

    `read_only` and `idempotent` run again, under the same idempotency key; `reconcilable` asks the
    tool what happened; `at_most_once` is never run a second time.
    """

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    RECONCILABLE = "reconcilable"
    AT_MOST_ONCE = "at_most_once"


@unique
class Role(StrEnum):
    """Who a message is from, in the terms of the provider APIs."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@unique
class Doubt(StrEnum):
    """What is known, after asking, about a call whose end nobody saw."""

    HAPPENED = "happened"
    DID_NOT = "did_not"
    UNKNOWN = "unknown"


@unique
class Verdict(StrEnum):
    """What a guard says when it does not simply allow."""

    STOP = "stop"
    WARN = "warn"
    INJECT = "inject"


@unique
class Cause(StrEnum):
    """Why the harness refuses, says or counts something; whose doing it is has a name beside it.

    The name of a guard, a limit, a pass or a tier stands in a space of its own: it may be any.
    """

    GUARD = "guard"
    LIMIT = "limit"
    NEAR = "near"
    FREE = "free"
    GRACE = "grace"
    STOPPED = "stopped"
    OFFER = "offer"
    APPROVAL = "approval"
    TRUNCATION = "truncation"
    INTERRUPTION = "interruption"
    OVERFLOW = "overflow"
    EMPTY = "empty"
    END_OF_TURN = "end_of_turn"
    PROGRESS = "progress"
    NUDGE = "nudge"
    PRESSURE = "pressure"
    HISTORY = "history"
    FAILED = "failed"
    RETRY = "retry"
    FALLBACK = "fallback"
    STREAM = "stream"
    UNKNOWN = "unknown"

    __hash__ = str.__hash__  # tallies are looked up at every step, and an enum's own is Python code


@unique
class Refuser(StrEnum):
    """Who kept a call of an imported run from running, as its source records it.

    `rule`: a permission rule or mode; `classifier`: another model that judges calls; `harness`: the source
    says no more than that the call was refused.
    """

    USER = "user"
    RULE = "rule"
    HOOK = "hook"
    CLASSIFIER = "classifier"
    HARNESS = "harness"


@unique
class Refusal(StrEnum):
    """Why a call was not run: passed over by a rule, or judged and turned down."""

    SKIPPED = "skipped"
    REJECTED = "rejected"


class Value(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """An immutable value. As JSON what has its default is left out, and a field that nobody knows is
    refused.
    """


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A part of a policy, written out with its defaults.

    A method `problems()` may yield what in it cannot work (`Fault`s).
    """


NANO = 1_000_000_000

MOST_DIGITS = 300
"""A number in a log has no more digits: sums of such still fit a double, and Python writes them out whatever
its settings.
"""

# Our own: the precision and traps of whoever calls must not decide what a log means.
_EXACT = Context(prec=64, rounding=ROUND_HALF_UP, traps=[])

Number = int | float

Count = Annotated[int, Meta(ge=0)]
"""A number of things, or an amount: never below 0.

Sums have no end; see `MOST_DIGITS` for what a log may hold.
"""

Ordinal = Annotated[int, Meta(ge=1)]
"""The first, the second, …: counted from 1."""

Ranges = tuple[tuple[Count, Count], ...]
"""Numbers of messages in order, as inclusive (first, last) pairs."""


# A policy has a handful of values, and each is compared at every step: decimal arithmetic would be a fifth of
# a step.
@lru_cache(maxsize=256)
def nano(value: Number) -> int:
    """Seconds to nanoseconds, or USD to nano-dollars: from the decimal text of `value`, half up.

    `0.1` is exactly 100,000,000, because the text is converted and not the binary fraction.
    """
    return int(_EXACT.multiply(Decimal(str(value)), NANO).to_integral_value(ROUND_HALF_UP, _EXACT))


def dollars(nano_usd: int) -> str:
    """Nano-dollars to the last digit: `$0.026`."""
    return f"${_decimal(nano_usd)}"


def seconds(nanoseconds: int) -> str:
    """Nanoseconds to the last digit: `1.5 seconds`."""
    return f"{_decimal(nanoseconds)} seconds"


def _decimal(billionths: int) -> str:
    whole, part = divmod(billionths, NANO)
    return f"{whole}.{part:09}".rstrip("0").removesuffix(".")


def share_of(amount: int, fraction: Number) -> int:
    """So much of an amount: from the decimal text of `fraction`, half up."""
    return int(_EXACT.multiply(Decimal(str(fraction)), amount).to_integral_value(ROUND_HALF_UP, _EXACT))


def scaled(hash64: int, span: int) -> int:
    """A uniform share of `span`: `u * span` for u = hash64 / 2**64, in integers."""
    return (hash64 * span) >> 64
