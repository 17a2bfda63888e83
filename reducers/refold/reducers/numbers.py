"""Exact numbers: what a policy writes in seconds and dollars becomes integers, once, half up."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated

from msgspec import Meta

NANO = 1_000_000_000

Number = int | float

Count = Annotated[int, Meta(ge=0)]
"""A number of things, or an amount: never below 0."""


def nano(value: Number) -> int:
    """Seconds to nanoseconds, or USD to nano-dollars: from the decimal text of `value`, half up.

    `0.1` is exactly 100,000,000, because the text is converted and not the binary fraction.
    """
    return int((Decimal(str(value)) * NANO).to_integral_value(ROUND_HALF_UP))


def scaled(hash64: int, span: int) -> int:
    """A uniform share of `span`: `u * span` for u = hash64 / 2**64, in integers."""
    return (hash64 * span) >> 64
