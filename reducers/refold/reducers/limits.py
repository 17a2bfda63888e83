"""Limits: what each counts, since when, and when it trips.

A limit trips when `used op value`. `null` is the one way to say unlimited; 0 is 0. Values are written in
steps, seconds, tokens, messages and USD, and compared as integers: steps, nanoseconds, tokens, messages
and nano-dollars.
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
# Up to here a double counts exactly, and nanoseconds of seconds (285 years), or of dollars, fit 64 bits.
_MOST, _MOST_SECONDS = 2**53, 9_000_000_000

Whole = Annotated[int, Meta(ge=0, le=_MOST)]
Amount = Annotated[int, Meta(ge=0, le=_MOST_SECONDS)] | Annotated[float, Meta(ge=0, le=_MOST_SECONDS)]


class Credit(Knob, frozen=True, kw_only=True):
    """Which time is not the agent's, and so subtracted from the elapsed time of a limit.

    `retry`: the back-off of requests that succeeded in the end (`on_success`), of failed ones too once
    another succeeds (`on_next_success`), or every wait as soon as it is `planned`. `person`: while the run
    waits for a person. `downtime`: while no engine had the run.
    """

    retry: Literal["none", "on_success", "on_next_success", "planned"] = "none"
    person: bool = True
    downtime: bool = True


@unique
class LimitUnit(StrEnum):
    """In what the numbers of a `LimitHit` are."""

    STEPS = "steps"
    NANOSECONDS = "nanoseconds"
    MESSAGES = "messages"
    TOKENS = "tokens"
    NANO_USD = "nano_usd"


class _Limit(Knob, frozen=True, kw_only=True, tag_field="type"):
    name: str = ""
    op: Op = ">="
    scope: Scope = "run"

    unit: ClassVar[LimitUnit]

    @property
    def reads(self) -> Unknown | None:
        """What it counts that a record may lack; None: nothing, or what is lacking counts as nothing."""
        return None

    @property
    def monotone(self) -> bool:
        """Whether facts that a record lost can only make it trip earlier. A fact may have begun a turn."""
        return False


class StepLimit(_Limit, frozen=True, kw_only=True, tag="step"):
    """Requests of the agent, each with all its attempts. At preflight `>=` N allows N requests.

    A step with calls, all of them to `free_tools`, is not counted.
    """

    value: Whole | None
    check: Check = "preflight"
    free_tools: tuple[str, ...] = ()

    unit: ClassVar[LimitUnit] = LimitUnit.STEPS

    @property
    def monotone(self) -> bool:
        """Steps only add up."""
        return self.scope != "turn"


class TimeLimit(_Limit, frozen=True, kw_only=True, tag="time"):
    """Seconds since the scope began, less what `credit` says. Also a deadline for what is in flight.

    `clock: first_response`: nothing has elapsed before the first response in the scope.
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
        """Time only adds up, unless a lost fact may have been a wait for a person, or the first response."""
        return self.scope != "turn" and not self.credit.person and self.clock == "start"


class MessageLimit(_Limit, frozen=True, kw_only=True, tag="message"):
    """Messages in the window, system messages included. The scope does not matter."""

    value: Whole | None
    check: Check = "preflight"

    unit: ClassVar[LimitUnit] = LimitUnit.MESSAGES


class TokenLimit(_Limit, frozen=True, kw_only=True, tag="token"):
    """Tokens: input + output as the provider counted them (`usage`), or those of the window (`estimate`).

    An answer of which nobody counted the tokens ends the run, or counts as having none (`uncounted: ignore`).
    """

    value: Whole | None
    measure: Literal["usage", "estimate"] = "usage"
    check: Check | None = None
    uncounted: Literal["refuse", "ignore"] = "refuse"

    unit: ClassVar[LimitUnit] = LimitUnit.TOKENS

    @property
    def reads(self) -> Unknown | None:
        """The provider's count."""
        counts = self.value is not None and self.measure == "usage" and self.uncounted == "refuse"
        return Unknown.USAGE if counts else None

    @property
    def monotone(self) -> bool:
        """The provider's tokens only add up; those of the window may be fewer."""
        return self.scope != "turn" and self.measure == "usage"


class CostLimit(_Limit, frozen=True, kw_only=True, tag="cost"):
    """US dollars, by the price that the model's adapter knows.

    A model without a price is refused at the start, and an answer without one ends the run; or both count as
    costing nothing (`unpriced: ignore`).
    """

    value: Amount | None
    check: Check = "response"
    unpriced: Literal["refuse", "ignore"] = "refuse"

    unit: ClassVar[LimitUnit] = LimitUnit.NANO_USD

    @property
    def reads(self) -> Unknown | None:
        """Prices."""
        return None if self.value is None or self.unpriced == "ignore" else Unknown.COST

    @property
    def monotone(self) -> bool:
        """Money only adds up."""
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
"""How a run ends by a limit of each type and measure: the trigger and the code."""


UNKNOWN: Mapping[tuple[str, str], str] = MappingProxyType(
    {("token", "usage"): "token_unknown", ("cost", "usage"): "cost_unknown"}
)
"""By which code a run fails where nobody knows whether a limit is reached, by type and measure."""


BEFORE = ((StepLimit, "usage"), (MessageLimit, "usage"), (TokenLimit, "estimate"))
COUNTED = ((TokenLimit, "usage"), (CostLimit, "usage"))
BUDGETS = ((TokenLimit, "usage"), (TokenLimit, "estimate"), (CostLimit, "usage"))
OTHERS = ((TimeLimit, "usage"), (StepLimit, "usage"), (MessageLimit, "usage"))
"""In which order limits are looked at, by type and measure: before a request those of BEFORE, then COUNTED,
what is used up by being spent; on a response BUDGETS, then OTHERS. One that stands in none is never looked
at, and so refused by a test.
"""


class LimitHit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A limit that tripped: its definition and the numbers, integers in `unit`. `at` is the event's time."""

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
    """Whether it is known to be reached; else nobody knows."""
    return found.used >= found.value + (found.op == ">")


def end_of(found: LimitHit) -> tuple[Trigger, str] | None:
    """How this limit ends a run, the trigger and the code; None of a type or a measure that there is none
    of.
    """
    kind = found.type, found.measure
    if kind in UNKNOWN and not is_reached(found):
        return Trigger.FAIL, UNKNOWN[kind]
    return ENDS.get(kind)


def code_of(found: LimitHit) -> str:
    """The code by which this limit ends a run; "" of a type or a measure that there is none of."""
    end = end_of(found)
    return end[1] if end else ""


def needs(limit: Limit) -> Unknown | None:
    """What each answer has to tell so that this limit can be kept; None: nothing that an answer could
    lack.
    """
    match limit:
        case CostLimit():
            return Unknown.UNPRICED
        case TokenLimit(measure="usage"):
            return Unknown.UNCOUNTED
        case _:
            return None


def insists(limit: Limit) -> bool:
    """Whether what it needs and nobody knows ends a run.

    Else it counts as nothing, and the limit may not be kept.
    """
    match limit:
        case CostLimit(unpriced=said) | TokenLimit(measure="usage", uncounted=said):
            return said == "refuse"
        case _:
            return False


def measure_of(limit: Limit) -> str:
    """What the limit counts: `estimate` for tokens of the window, else `usage`."""
    return limit.measure if isinstance(limit, TokenLimit) else "usage"


def is_counted(limit: Limit) -> bool:
    """Whether it limits what is used up by being spent: tokens as the provider counted them, or money."""
    return (type(limit), measure_of(limit)) in COUNTED


def is_bounded(limits: Iterable[Limit]) -> bool:
    """Whether one of them is sure to end a run: of steps, or of time."""
    return any(isinstance(each, (StepLimit, TimeLimit)) and each.value is not None for each in limits)


def check_of(limit: Limit) -> str:
    """When the limit is looked at: usage and cost right after accounting, everything else before a
    request.
    """
    if isinstance(limit, TokenLimit) and limit.check is None:
        return "response" if limit.measure == "usage" else "preflight"
    return limit.check or "preflight"


def name_of(limit: Limit) -> str:
    """The limit's own name, or its type (`token_estimate` for tokens of the window)."""
    if limit.name:
        return limit.name
    kind = type_of(limit)
    return "token_estimate" if kind == "token" and measure_of(limit) == "estimate" else kind


def type_of(limit: Limit) -> str:
    """`step`, `time`, `message`, `token` or `cost`."""
    return str(type(limit).__struct_config__.tag)


def threshold(limit: Limit) -> int | None:
    """The limit's value as the integer it is compared with; None is unlimited."""
    if limit.value is None:
        return None
    return nano(limit.value) if isinstance(limit, (TimeLimit, CostLimit)) else int(limit.value)


def amount(number: int, unit: LimitUnit) -> str:
    """A number of a limit as a sentence in a log has it, exactly: `$0.026`, `1.5 seconds`, `3 steps`."""
    if unit is LimitUnit.NANO_USD:
        return dollars(number)
    return seconds(number) if unit is LimitUnit.NANOSECONDS else f"{number} {unit}"


def least_of(limit: Limit) -> int | None:
    """The smallest amount at which it trips; None is unlimited."""
    value = threshold(limit)
    return None if value is None else value + (limit.op == ">")


def trips(limit: Limit, used: int) -> bool:
    """Whether `used op value` holds."""
    least = least_of(limit)
    return least is not None and used >= least
