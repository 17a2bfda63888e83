"""Exact numbers: what a policy writes in seconds and dollars becomes integers, once, half up."""

from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

NANO = 1_000_000_000

MOST_DIGITS = 300
"""A number in a log has no more digits: sums of such still fit a double, and Python writes them out whatever its settings."""

# Our own: the precision and traps of whoever calls must not decide what a log means.
_EXACT = Context(prec=64, rounding=ROUND_HALF_UP, traps=[])

Number = int | float

Count = Annotated[int, Meta(ge=0)]
"""A number of things, or an amount: never below 0. Sums have no end; see `MOST_DIGITS` for what a log may hold."""

Ordinal = Annotated[int, Meta(ge=1)]
"""The first, the second, …: counted from 1."""

Ranges = tuple[tuple[Count, Count], ...]
"""Numbers of messages in order, as inclusive (first, last) pairs."""


# A policy has a handful of values, and each is compared at every step: decimal arithmetic would be a fifth of a step.
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
