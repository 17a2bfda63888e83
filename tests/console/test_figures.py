"""Numbers as a person reads them, however large a log says they are."""

from collections.abc import Callable

import pytest

from refold.reducers.limits import LimitUnit
from refold.replay import figures

SECOND = 1_000_000_000
HUGE = 10**4400  # more digits than Python will write out


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (figures.seconds(0), "0 s"),
        (figures.seconds(SECOND // 50), "0.02 s"),
        (figures.seconds(8 * SECOND + SECOND // 10), "8.1 s"),
        (figures.seconds(200 * SECOND), "3 m 20 s"),
        (figures.seconds(7500 * SECOND), "2 h 05 m"),
        (figures.seconds(-8 * SECOND), "-8 s"),
        (figures.seconds(10**30), "277,777,777,777,777,777 h 46 m"),
        (figures.seconds(10**309), "over 10^30 h"),
        (figures.dollars(None), "-"),
        (figures.dollars(0), "$0"),
        (figures.dollars(12_345), "$1.2e-05"),
        (figures.dollars(1_234_567), "$0.0012"),
        (figures.dollars(12_345_678_901), "$12.35"),
        (figures.dollars(10**30 + 10**7), "$1,000,000,000,000,000,000,000.01"),
        (figures.dollars(-12_345_678_901), "-$12.35"),
        (figures.size(812), "812 B"),
        (figures.size(1229), "1.2 KiB"),
        (figures.size(3_565_158), "3.4 MiB"),
        (figures.size(10**24), "953,674,316,406,250,000.0 MiB"),
        (figures.count(4210), "4,210"),
        (figures.count(10**30), "1,000,000,000,000,000,000,000,000,000,000"),
        (figures.count(10**30 + 1), "over 10^30"),
        (figures.quantity(1, "entry"), "1 entry"),
        (figures.quantity(0, "policy"), "0 policies"),
        (figures.amount(1, LimitUnit.STEPS), "1 step"),
        (figures.amount(4210, LimitUnit.TOKENS), "4,210 tokens"),
    ],
)
def test_figures(shown: str, said: str) -> None:
    """A few digits that tell something; what is far beyond anything real says just that."""
    assert said == shown


@pytest.mark.parametrize("number", [HUGE, -HUGE], ids=["large", "small"])
@pytest.mark.parametrize(
    "show", [figures.seconds, figures.dollars, figures.size, figures.count, figures.clock]
)
def test_no_number_is_too_large(show: Callable[[int], str], number: int) -> None:
    """Neither a double nor a text of all its digits is ever made of a forged number."""
    assert "over 10^30" in show(number)
