"""Limits: what each counts, from when, and when it trips.

A limit trips when `used op value`. `null` means unlimited; 0 means 0. Values are written in steps, seconds,
tokens, messages and USD, and compared as integers: steps, nanoseconds, tokens, messages, nano-dollars.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from refold.reducers.machine import Trigger
from refold.reducers.vocabulary import Knob, Unknown, dollars, nano, seconds

Op = Literal[">=", ">"]
Scope = Literal["turn", "run", "lineage"]
Check = Literal["preflight", "response", "response_deferred"]
# Integers up to this are exact in a double; this many seconds (285 years) or dollars fit 64 bits as nanos.
_MAX, _MAX_SECONDS = 2**53, 9_000_000_000

Whole = Annotated[int, Meta(ge=0, le=_MAX)]
Amount = Annotated[int, Meta(ge=0, le=_MAX_SECONDS)] | Annotated[float, Meta(ge=0, le=_MAX_SECONDS)]


class Credit(Knob, frozen=True, kw_only=True):
    """Time that is subtracted from the elapsed time of a limit.

    `retry`: the back-off of requests that succeeded in the end (`on_success`), also of failed ones once
    another request succeeds (`on_next_success`), or every wait once it is `planned`. `person`: time that the
    run waits for a user. `downtime`: time without an engine.
    """

    retry: Literal["none", "on_success", "on_next_success", "planned"] = "none"
    person: bool = True
    downtime: bool = True


@unique
class LimitUnit(StrEnum):
    """Unit of the numbers of a `LimitHit`, in the order in which they are shown."""

    STEPS = "steps"
    TOKENS = "tokens"
    MESSAGES = "messages"
    NANO_USD = "nano_usd"
    NANOSECONDS = "nanoseconds"


class _Limit(Knob, frozen=True, kw_only=True, tag_field="type"):
    name: str = ""
    op: Op = ">="
    scope: Scope = "run"

    unit: ClassVar[LimitUnit]

    @property
    def reads(self) -> Unknown | None:
        """What it counts that a record may lack; None if nothing, or if a missing figure counts as zero."""
        return None

    @property
    def monotone(self) -> bool:
        """Whether missing facts can only make it trip earlier. A missing fact may have begun a turn."""
        return False


class StepLimit(_Limit, frozen=True, kw_only=True, tag="step"):
    """Requests of the agent; all attempts count as one. At preflight, `>=` N allows N requests.

    A step whose calls all go to `free_tools` is not counted; a step without calls is.
    """

    value: Whole | None
    check: Check = "preflight"
    free_tools: tuple[str, ...] = ()

    unit: ClassVar[LimitUnit] = LimitUnit.STEPS

    @property
    def monotone(self) -> bool:
        """Steps never decrease."""
        return self.scope != "turn"


class TimeLimit(_Limit, frozen=True, kw_only=True, tag="time"):
    """Seconds since the scope began, less `credit`. Also the deadline of work in flight.

    `clock: first_response`: counts from the first response in the scope.
    """

    value: Amount | None
    check: Check = "preflight"
    clock: Literal["start", "first_response"] = "start"
    credit: Credit = Credit()

    unit: ClassVar[LimitUnit] = LimitUnit.NANOSECONDS

    @property
    def reads(self) -> Unknown | None:
        """When facts happened."""
        return None if self.value is None else Unknown.TIME

    @property
    def monotone(self) -> bool:
        """Time never decreases, unless a missing fact may be a wait for a user or the first response."""
        return self.scope != "turn" and not self.credit.person and self.clock == "start"


class MessageLimit(_Limit, frozen=True, kw_only=True, tag="message"):
    """Messages in the window, including system messages, whatever the scope."""

    value: Whole | None
    check: Check = "preflight"

    unit: ClassVar[LimitUnit] = LimitUnit.MESSAGES


class TokenLimit(_Limit, frozen=True, kw_only=True, tag="token"):
    """Tokens: input + output as counted by the provider (`usage`), or tokens of the window (`estimate`).

    A response without a token count ends the run (`refuse`) or counts as zero (`uncounted: ignore`).
    """

    value: Whole | None
    measure: Literal["usage", "estimate"] = "usage"
    check: Check | None = None
    uncounted: Literal["refuse", "ignore"] = "refuse"

    unit: ClassVar[LimitUnit] = LimitUnit.TOKENS

    @property
    def reads(self) -> Unknown | None:
        """Return the provider's token count, if the limit needs it."""
        counts = self.value is not None and self.measure == "usage" and self.uncounted == "refuse"
        return Unknown.USAGE if counts else None

    @property
    def monotone(self) -> bool:
        """Tokens counted by the provider never decrease; tokens of the window may."""
        return self.scope != "turn" and self.measure == "usage"


class CostLimit(_Limit, frozen=True, kw_only=True, tag="cost"):
    """US dollars, at the prices known to the model's adapter.

    A model without a price is refused at the start, and a response without one ends the run; with
    `unpriced: ignore` both cost nothing.
    """

    value: Amount | None
    check: Check = "response"
    unpriced: Literal["refuse", "ignore"] = "refuse"

    unit: ClassVar[LimitUnit] = LimitUnit.NANO_USD

    @property
    def reads(self) -> Unknown | None:
        """Return prices, if the limit needs them."""
        return None if self.value is None or self.unpriced == "ignore" else Unknown.COST

    @property
    def monotone(self) -> bool:
        """Cost never decreases."""
        return self.scope != "turn"


Limit = StepLimit | TimeLimit | MessageLimit | TokenLimit | CostLimit


ENDS: Mapping[tuple[str, str], tuple[Trigger, str]] = MappingProxyType(
    {
        ("time", "usage"): (Trigger.TIME_OUT, "time_limit"),
        ("step", "usage"): (Trigger.EXHAUST_STEPS, "step_limit"),
        ("message", "usage"): (Trigger.EXCEED_BUDGET, "message_limit"),
        ("token", "estimate"): (Trigger.EXCEED_BUDGET, "token_estimate"),
        ("token", "usage"): (Trigger.EXCEED_BUDGET, "token_budget"),
        ("cost", "usage"): (Trigger.EXCEED_BUDGET, "cost_limit"),
    }
)
"""How a limit of each type and measure ends a run: trigger and code."""


UNKNOWN: Mapping[tuple[str, str], str] = MappingProxyType(
    {("token", "usage"): "token_unknown", ("cost", "usage"): "cost_unknown"}
)
"""The code of a failure because a limit's use is unknown, by type and measure."""


BEFORE = ((StepLimit, "usage"), (MessageLimit, "usage"), (TokenLimit, "estimate"))
COUNTED = ((TokenLimit, "usage"), (CostLimit, "usage"))
BUDGETS = ((TokenLimit, "usage"), (TokenLimit, "estimate"), (CostLimit, "usage"))
OTHERS = ((TimeLimit, "usage"), (StepLimit, "usage"), (MessageLimit, "usage"))
"""Order in which limits are checked, by type and measure: before a request BEFORE, then COUNTED (consumed by
use); on a response BUDGETS, then OTHERS. A test refuses a limit in none of them, which would never be
checked.
"""


class LimitHit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A limit that tripped: definition and numbers (integers in `unit`). `at` is the event's time."""

    name: str
    type: str
    measure: str
    scope: Scope
    check: str
    op: Op
    unit: LimitUnit
    value: int
    used: int
    exceeded_by: int
    at: int
    step: int
    agent: str = ""


def is_reached(found: LimitHit) -> bool:
    """Return whether the limit is known to be reached; if not, its use is unknown."""
    return found.used >= found.value + (found.op == ">")


def end_of(found: LimitHit) -> tuple[Trigger, str] | None:
    """Return the trigger and code with which this limit ends a run; None for an unknown type or measure."""
    kind = found.type, found.measure
    if kind in UNKNOWN and not is_reached(found):
        return Trigger.FAIL, UNKNOWN[kind]
    return ENDS.get(kind)


def code_of(found: LimitHit) -> str:
    """Return the code with which this limit ends a run; "" for an unknown type or measure."""
    end = end_of(found)
    return end[1] if end else ""


def needs(limit: Limit) -> Unknown | None:
    """Return the figure of a response without which this limit cannot be enforced; None if it needs none."""
    match limit:
        case CostLimit():
            return Unknown.UNPRICED
        case TokenLimit(measure="usage"):
            return Unknown.UNCOUNTED
        case _:
            return None


def refuses_unknown(limit: Limit) -> bool:
    """Return whether a missing figure that the limit needs ends the run. If not, it counts as zero."""
    match limit:
        case CostLimit(unpriced=unknown) | TokenLimit(measure="usage", uncounted=unknown):
            return unknown == "refuse"
        case _:
            return False


def measure_of(limit: Limit) -> str:
    """Return what the limit counts: `estimate` for tokens of the window, else `usage`."""
    return limit.measure if isinstance(limit, TokenLimit) else "usage"


def is_counted(limit: Limit) -> bool:
    """Return whether it limits what use consumes: tokens counted by the provider, or money."""
    return (type(limit), measure_of(limit)) in COUNTED


def is_bounded(limits: Iterable[Limit]) -> bool:
    """Return whether one of them always ends a run: a limit of steps or of time."""
    return any(isinstance(each, (StepLimit, TimeLimit)) and each.value is not None for each in limits)


def check_of(limit: Limit) -> str:
    """Return when the limit is checked. Default: usage after each response, others before a request."""
    if isinstance(limit, TokenLimit) and limit.check is None:
        return "response" if limit.measure == "usage" else "preflight"
    return limit.check or "preflight"


def name_of(limit: Limit) -> str:
    """Return the limit's name; by default its type (`token_estimate` for tokens of the window)."""
    if limit.name:
        return limit.name
    kind = type_of(limit)
    return "token_estimate" if kind == "token" and measure_of(limit) == "estimate" else kind


def type_of(limit: Limit) -> str:
    """Return the limit's type: `step`, `time`, `message`, `token` or `cost`."""
    return str(type(limit).__struct_config__.tag)


def threshold(limit: Limit) -> int | None:
    """Return the limit's value as the integer that use is compared with; None if unlimited."""
    if limit.value is None:
        return None
    return nano(limit.value) if isinstance(limit, (TimeLimit, CostLimit)) else int(limit.value)


def amount(number: int, unit: LimitUnit) -> str:
    """Format a number of a limit exactly, with its unit: `$0.026`, `1.5 seconds`, `3 steps`."""
    if unit is LimitUnit.NANO_USD:
        return dollars(number)
    return seconds(number) if unit is LimitUnit.NANOSECONDS else f"{number} {unit}"


def trip_value(limit: Limit) -> int | None:
    """Return the smallest amount at which the limit trips; None if unlimited."""
    value = threshold(limit)
    return None if value is None else value + (limit.op == ">")


def trips(limit: Limit, used: int) -> bool:
    """Return whether `used op value` holds."""
    least = trip_value(limit)
    return least is not None and used >= least
