"""Numbers as a person reads them. Time comes in nanoseconds, money in nano-dollars, sizes in bytes."""

from datetime import datetime

from refold.reducers.limits import UNITS, Limit, LimitHit, LimitUnit, MessageLimit, name_of, threshold
from refold.reducers.state import RunState
from refold.reducers.usage import used

_SECOND = 1_000_000_000
_MOST = 10**30
"""A number in a forged log may be longer than any double: from here on it is shown as this one."""


def seconds(nanoseconds: int) -> str:
    """`0.02 s`, `8.1 s`, `3 m 20 s`, `2 h 05 m`."""
    value = min(nanoseconds, _MOST) / _SECOND
    if nanoseconds % _SECOND == 0 and value < 100:
        return f"{round(value)} s"
    if value < 1:
        return f"{value:.2f} s"
    if value < 100:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 100:
        return f"{minutes} m {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} m"


def dollars(nano: int | None) -> str:
    """`$0.0012`; `-` where no price is known. Two digits that tell something, four at least after the point."""
    if nano is None:
        return "-"
    if nano == 0:
        return "$0"
    value = min(nano, _MOST) / 1e9
    return f"${value:.2f}" if value >= 10 else f"${value:.4f}" if value >= 0.001 else f"${value:.2g}"


def size(count: int) -> str:
    """`812 B`, `1.2 KiB`, `3.4 MiB`."""
    if count < 1024:
        return f"{count} B"
    count = min(count, _MOST)
    if count < 1024 * 1024:
        return f"{count / 1024:.1f} KiB"
    return f"{count / (1024 * 1024):.1f} MiB"


def count(number: int) -> str:
    """`4,210`."""
    return f"{number:,}"


def clock(at: int) -> str:
    """An instant in local time, to the second: `2025-11-21 11:40:28`."""
    try:
        return datetime.fromtimestamp(at / _SECOND).strftime("%Y-%m-%d %H:%M:%S")  # a person's own time
    except (ValueError, OverflowError, OSError):
        return f"{at} ns"


def amount(number: int, unit: LimitUnit) -> str:
    """A number of a limit in its unit."""
    if unit is LimitUnit.NANOSECONDS:
        return seconds(number)
    return dollars(number) if unit is LimitUnit.NANO_USD else f"{count(number)} {unit}"


def hit(limit: LimitHit) -> str:
    """`step: 3 of 3 steps`: which limit, what was used, what was allowed."""
    used_ = amount(limit.used, limit.unit).removesuffix(f" {limit.unit}")
    return f"{limit.name}: {used_} of {amount(limit.value, limit.unit)}"


def spent(state: RunState, running: int = 0) -> list[str]:
    """What was used, beside each limit: `step 3/12`, `4,210/20,000 tokens`, ...; `running` nanoseconds pass unrecorded.

    Steps, tokens, cost and time are told even where nothing limits them.
    """
    usage = state.spent.usage
    free = {
        LimitUnit.STEPS: f"step {state.spent.steps}",
        LimitUnit.TOKENS: f"{count(usage.input + usage.output)} tokens",
        LimitUnit.MESSAGES: "",
        LimitUnit.NANO_USD: dollars(state.spent.cost_nanousd) + ("+?" if state.spent.unpriced else ""),
        LimitUnit.NANOSECONDS: seconds(max(0, state.at - state.origin.at) + running),
    }
    limits = [limit for limit in state.policy.limits if limit.value is not None]
    told: list[str] = []
    for unit, text in free.items():
        limited = [_against(limit, state, running) for limit in limits if UNITS[type(limit)] is unit]
        told += limited or ([text] if text else [])
    return told


def _against(limit: Limit, state: RunState, running: int) -> str:
    unit, most = UNITS[type(limit)], threshold(limit)
    assert most is not None
    now = used(limit, state) + (running if unit is LimitUnit.NANOSECONDS else 0)
    match unit:
        case LimitUnit.STEPS:
            return f"step {count(now)}/{count(most)}"
        case LimitUnit.NANOSECONDS:
            return f"{seconds(now)}/{seconds(most)}"
        case LimitUnit.NANO_USD:
            return f"{dollars(now)}/{dollars(most)}"
        case _:
            word = (
                "messages"
                if isinstance(limit, MessageLimit)
                else name_of(limit).replace("token_estimate", "tokens in view")
            )
            return f"{count(now)}/{count(most)} {'tokens' if word == 'token' else word}"
