"""Format numbers for display."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from refold.reducers.events import CallRefused, Event, GuardTripped, LimitNeared, LimitReached
from refold.reducers.limits import (
    Limit,
    LimitHit,
    LimitUnit,
    MessageLimit,
    code_of,
    is_reached,
    name_of,
    threshold,
)
from refold.reducers.meters import lacking, used
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, Unknown
from refold.replay import known

_SECOND = _DOLLAR = 1_000_000_000
_YEAR = 365 * 86_400
_AGES = (
    (60, 1, "s"),
    (3600, 60, "m"),
    (86_400, 3600, "h"),
    (14 * 86_400, 86_400, "d"),
    (_YEAR, 7 * 86_400, "w"),
)
"""Units of an age, each with its upper bound in seconds."""
_MOST = 10**30
"""Largest number to print. A forged log may hold numbers that exceed floats or Python's digit limit."""


def seconds(nanoseconds: int | None) -> str:
    """Format a duration: `0.02 s`, `8.1 s`, `3 m 20 s`, `2 h 05 m`; `-` if it was not measured."""
    if nanoseconds is None:
        return "-"
    if nanoseconds < 0:
        return f"-{seconds(-nanoseconds)}"
    if nanoseconds < 100 * _SECOND:
        return _few_seconds(nanoseconds)
    minutes, rest = divmod(_round_to(nanoseconds, _SECOND), 60)
    if minutes < 100:
        return f"{minutes} m {rest:02} s"
    hours = minutes // 60
    return f"{count(hours)} h {minutes % 60:02} m" if hours < _MOST else f"{count(hours)} h"


def dollars(nano: int | None) -> str:
    """Format a cost: `$0.0012`; `-` if unknown. At least four decimals and two significant digits."""
    if nano is None:
        return "-"
    if nano == 0:
        return "$0"
    if nano < 0:
        return f"-{dollars(-nano)}"
    if nano >= 10 * _DOLLAR:
        whole, cents = divmod(_round_to(nano, _DOLLAR // 100), 100)
        return f"${count(whole)}.{cents:02}"
    value = nano / _DOLLAR
    return f"${value:.4f}" if value >= 0.001 else f"${value:.2g}"


def at_least(figure: str, unknown: int) -> str:
    """Format a lower bound: `$0.0012+?` if `unknown` parts are missing, `-` if nothing is known."""
    return f"{figure}+?" if unknown and figure != "-" else figure


def unmarked(results: int) -> str:
    """Describe the number of results whose status was not recorded: "" if it is 0."""
    return (
        f"{quantity(results, 'result')} without a status: the source does not record whether the {'call' if results == 1 else 'calls'} failed"
        if results
        else ""
    )


def size(bytes_: int) -> str:
    """Format a size: `812 B`, `1.2 KiB`, `3.4 MiB`."""
    if bytes_ < 0:
        return f"-{size(-bytes_)}"
    if bytes_ < 1024:
        return f"{bytes_} B"
    unit, name = (1024, "KiB") if bytes_ < 1024 * 1024 else (1024 * 1024, "MiB")
    whole, tenths = divmod(_round_to(10 * bytes_, unit), 10)
    return f"{count(whole)}.{tenths} {name}"


def count(number: int | None) -> str:
    """Format a count: `4,210`; `-` if unknown."""
    if number is None:
        return "-"
    if abs(number) > _MOST:
        return f"{'-' if number < 0 else ''}over 10^30"
    return f"{number:,}"


def quantity(number: int, noun: str) -> str:
    """Format a count with its noun: `1 run`, `4,210 runs`, `2 entries`."""
    several = f"{noun[:-1]}ies" if noun.endswith(("ry", "cy")) else f"{noun}s"
    return f"{count(number)} {noun if number == 1 else several}"


def shorten(text: str, most: int) -> str:
    """Shorten a text, ending with `…` if it was cut."""
    return text if len(text) <= most else f"{text[:most]}…"


def clock(at: int) -> str:
    """Format a time in UTC, to the second: `2025-11-21 11:40:28 UTC`; `-` if it was not recorded."""
    if at == 0:
        return "-"
    told = _utc(at)
    return f"{told:%Y-%m-%d %H:%M:%S} UTC" if told else f"{count(at)} ns"


def instant(at: int) -> str | None:
    """Format a time as ISO 8601 with nanoseconds: `2025-11-21T11:40:28.000000123Z`.

    Returns None if it was not recorded or cannot be represented.
    """
    told = _utc(at) if at else None
    return f"{told:%Y-%m-%dT%H:%M:%S}.{at % _SECOND:09}Z" if told else None


def period(began: int, ended: int) -> str:
    """Format a period in UTC, with the day once if it is the same: `2025-11-21 11:40:28 to 11:47:02 UTC`."""
    first, last = clock(began), clock(ended)
    if began == 0 or ended in (0, began):
        return first if began else "no times were recorded"
    same = first.endswith("UTC") and last.endswith("UTC") and first[:10] == last[:10]
    return f"{first.removesuffix(' UTC')} to {last[11:] if same else last}"


def _utc(at: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(at // _SECOND, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def age(nanoseconds: int) -> str:
    """Format an age in one unit: `38 s`, `12 m`, `5 h`, `3 d`, `8 w`, `2 y`."""
    seconds_ = max(0, nanoseconds) // _SECOND
    for most, unit, name in _AGES:
        if seconds_ < most:
            return f"{seconds_ // unit} {name}"
    return f"{count(seconds_ // _YEAR)} y"


def amount(number: int, unit: LimitUnit) -> str:
    """Format a number of a limit in its unit."""
    if unit is LimitUnit.NANOSECONDS:
        return seconds(number)
    return dollars(number) if unit is LimitUnit.NANO_USD else quantity(number, unit.removesuffix("s"))


def hit(limit: LimitHit) -> str:
    """Format a reached limit: `step: 3 of 3 steps`."""
    used_ = amount(limit.used, limit.unit).partition(f" {limit.unit.removesuffix('s')}")[0]
    used_ = at_least(used_, not is_reached(limit))
    return f"{limit.name}: {used_} of {amount(limit.value, limit.unit)}"


def spent(state: RunState, running: int = 0, *, uncounted: int = 0) -> list[str]:
    """Format usage beside each limit: `step 3/12`, `4,210/20,000 tokens`, ...

    `running` nanoseconds have passed since the last event. Data missing from a transcript is marked as such;
    `uncounted` responses lack token counts. Steps, tokens, cost and time are listed even without a limit,
    tokens and cost from the first response on.
    """
    limits = [limit for limit in state.policy.limits if limit.value is not None]
    told: list[str] = []
    unlimited = _unlimited(state, running, uncounted)
    for unit in LimitUnit:
        limited = [_against(limit, state, running) for limit in limits if limit.unit is unit]
        told += limited or ([unlimited[unit]] if unlimited.get(unit) else [])
    return told


def _unlimited(state: RunState, running: int, uncounted: int) -> Mapping[LimitUnit, str]:
    """Return the usage text for units that are shown without a limit, too."""
    own = state.spent
    uncounted += own.count(Cause.UNKNOWN, Unknown.UNCOUNTED)
    tokens, cost = known.tokens(own.usage), known.cost(own)
    tokens_, cost_ = "", ""
    if tokens is not None or cost is not None or own.unpriced > 0:
        tokens_, cost_ = "tokens unknown", "cost unknown"
    if tokens is not None:
        tokens_ = f"{'at least ' if uncounted else ''}{count(tokens)} tokens"
    if cost is not None:
        cost_ = at_least(dollars(cost), own.unpriced)
    passed = max(0, state.fact_at - state.origin.at) + running
    return {
        LimitUnit.STEPS: f"step {own.steps}",
        LimitUnit.TOKENS: tokens_,
        LimitUnit.NANO_USD: cost_,
        LimitUnit.NANOSECONDS: seconds(passed) if state.at else "time unknown",
    }


def _few_seconds(nanoseconds: int) -> str:
    if nanoseconds % _SECOND == 0:
        return f"{nanoseconds // _SECOND} s"
    value = nanoseconds / _SECOND
    return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"


def _round_to(number: int, unit: int) -> int:
    return (number + unit // 2) // unit


def _against(limit: Limit, state: RunState, running: int) -> str:
    unit, most = limit.unit, threshold(limit)
    assert most is not None
    now = used(limit, state) + (running if unit is LimitUnit.NANOSECONDS else 0)
    lacks = lacking(limit, state)
    match unit:
        case LimitUnit.STEPS:
            return f"step {count(now)}/{count(most)}"
        case LimitUnit.NANOSECONDS:
            return f"{seconds(now)}/{seconds(most)}"
        case LimitUnit.NANO_USD:
            return f"{at_least(dollars(now), lacks)}/{dollars(most)}"
        case _:
            word = (
                "messages"
                if isinstance(limit, MessageLimit)
                else name_of(limit).replace("token_estimate", "tokens in view")
            )
            return f"{at_least(count(now), lacks)}/{count(most)} {'tokens' if word == 'token' else word}"


class SpokenVerdict(msgspec.Struct, frozen=True):
    """Verdict of a guard or limit: `who` it was, the verdict `said`, and a stable `code`."""

    who: str
    said: str
    code: str


def by(cause: Cause, name: str = "") -> str:
    """Return the author of a decision: the name of a guard or compaction step, else `limit:step`."""
    if cause in (Cause.GUARD, Cause.HISTORY):
        return name
    return f"{cause}:{name}" if name else str(cause)


def find_verdict(event: Event) -> SpokenVerdict | None:
    """Return the verdict of a guard or limit in this event; None for other events."""
    match event:
        case GuardTripped():
            return SpokenVerdict(event.guard, event.verdict, event.code)
        case CallRefused():
            return SpokenVerdict(by(event.cause, event.name), event.why, event.code)
        case LimitReached(limit=limit, deferred=deferred):
            return SpokenVerdict(by(Cause.LIMIT, limit.name), "defer" if deferred else "stop", code_of(limit))
        case LimitNeared(limit=limit):
            return SpokenVerdict(by(Cause.LIMIT, limit.name), "warn", "near_limit")
        case _:
            return None
