"""Closed vocabularies, exact numbers and the bases of all plain values.

Each vocabulary is a `StrEnum`: JSON has the word itself, and decoding returns the one interned member.
"""

from decimal import ROUND_HALF_UP, Context, Decimal
from enum import StrEnum, unique
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

SOURCE_LABEL = "source.format"
"""The label that every import sets on its run, and nothing else sets: the run was not made by refold."""


@unique
class Unknown(StrEnum):
    """What the source of a fact does not record. The fact then has the lower bound of that value.

    `time`: it happened no earlier than `at`. `usage`, `cost`: at least these tokens and this money were used.
    `tools`: the run had the listed tools and those that were called, and maybe more; some may be read-only.
    `context`: the size of the model's context. `errors`: whether the call of a result failed. `stop`: why a
    response ended; the source has no reason, or one that refold does not know. `result`: the result of a
    call, so its outcome and output.

    In live runs: `uncounted`: no token count of a response, not even from its provider; `unpriced`: no price.
    So later decisions were made without these numbers.
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
"""What a live engine can lack about a response. All other unknowns occur in imported runs only."""


@unique
class StopReason(StrEnum):
    """Why a model stopped, in refold's words; `stop_raw` has the provider's own word."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"
    OTHER = "other"


@unique
class FailureClass(StrEnum):
    """Why a model request failed. `refold.reducers.failures.classify` derives it from a status and a text."""

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
    """How a tool call failed.

    A call without one returned normally, or its status is unknown (`Unknown.ERRORS`).
    """

    RAISED = "raised"
    TIMEOUT = "timeout"
    BAD_ARGUMENTS = "bad_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    IN_DOUBT = "in_doubt"
    CANCELLED = "cancelled"


@unique
class Replay(StrEnum):
    """How to handle a call whose outcome is unknown, by its tool.

    `read_only` and `idempotent` run again, under the same idempotency key; `reconcilable` asks the tool for
    the outcome; `at_most_once` never runs a second time.
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
    """The answer to the question whether a call with an unknown outcome ran."""

    HAPPENED = "happened"
    DID_NOT = "did_not"
    UNKNOWN = "unknown"


@unique
class Verdict(StrEnum):
    """What a guard returns when it does not simply allow."""

    STOP = "stop"
    WARN = "warn"
    INJECT = "inject"


@unique
class Cause(StrEnum):
    """Why the harness refuses, adds or counts something; a name field beside it has the rule that did it.

    Names of guards, limits, compaction steps and tiers are a separate namespace and may be any text.
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

    __hash__ = str.__hash__  # tallies are looked up at every step, and an enum's own hash is Python code


@unique
class Refuser(StrEnum):
    """Who refused a call of an imported run, as its source records it.

    `rule`: a permission rule or mode; `classifier`: another model that judges calls; `harness`: the source
    records only that the call was refused.
    """

    USER = "user"
    RULE = "rule"
    HOOK = "hook"
    CLASSIFIER = "classifier"
    HARNESS = "harness"


@unique
class Refusal(StrEnum):
    """Why a call did not run: skipped by a rule, or rejected after review."""

    SKIPPED = "skipped"
    REJECTED = "rejected"


class Value(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """An immutable value. JSON omits fields that have their default; decoding refuses unknown fields."""


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A part of a policy; encoding includes its defaults.

    A method `problems()` may yield settings that cannot work, as `Fault`s.
    """


NANO = 1_000_000_000

MOST_DIGITS = 300
"""The maximum number of digits of a number in a log.

Sums of such numbers still fit a double, and Python prints them under any setting.
"""

# A context of our own: the caller's precision and traps must not change what a log means.
_EXACT = Context(prec=64, rounding=ROUND_HALF_UP, traps=[])

Number = int | float

Count = Annotated[int, Meta(ge=0)]
"""A number of things, or an amount: 0 or more.

Sums are unbounded; `MOST_DIGITS` limits what a log may hold.
"""

Ordinal = Annotated[int, Meta(ge=1)]
"""A position, counted from 1."""

Ranges = tuple[tuple[Count, Count], ...]
"""Numbers of messages in order, as inclusive (first, last) pairs."""


# A policy has a handful of values, and each is compared at every step: without the cache, decimal arithmetic
# would take a fifth of a step.
@lru_cache(maxsize=256)
def nano(value: Number) -> int:
    """Convert seconds to nanoseconds, or USD to nano-dollars, rounding half up.

    The decimal text of `value` is converted, not its binary fraction: `0.1` is exactly 100,000,000.
    """
    return int(_EXACT.multiply(Decimal(str(value)), NANO).to_integral_value(ROUND_HALF_UP, _EXACT))


def dollars(nano_usd: int) -> str:
    """Format nano-dollars with all their digits: `$0.026`."""
    return f"${_decimal(nano_usd)}"


def seconds(nanoseconds: int) -> str:
    """Format nanoseconds as seconds with all their digits: `1.5 seconds`."""
    return f"{_decimal(nanoseconds)} seconds"


def _decimal(billionths: int) -> str:
    whole, part = divmod(billionths, NANO)
    return f"{whole}.{part:09}".rstrip("0").removesuffix(".")


def share_of(amount: int, fraction: Number) -> int:
    """Return `fraction` of `amount`, computed from the decimal text of `fraction`, rounded half up."""
    return int(_EXACT.multiply(Decimal(str(fraction)), amount).to_integral_value(ROUND_HALF_UP, _EXACT))


def scaled(hash64: int, span: int) -> int:
    """Return a uniform share of `span`: `u * span` for u = hash64 / 2**64, in integers."""
    return (hash64 * span) >> 64
