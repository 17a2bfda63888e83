"""The largest and smallest numbers that a policy may hold, and the very next ones, which it may not."""

from typing import Any

import pytest

from refold.reducers.errors import PolicyError
from refold.reducers.failures import Jitter, Retry, chance, delay
from refold.reducers.parser import parse


def limit(kind: str, value: float) -> dict[str, Any]:
    return {"limits": [{"type": kind, "value": value}]}


BOUNDS = [
    pytest.param(limit("step", 0), limit("step", -1), id="no step"),
    pytest.param(limit("step", 2**53), limit("step", 2**53 + 1), id="steps: what a double counts exactly"),
    pytest.param(limit("time", 9_000_000_000), limit("time", 9_000_000_001), id="seconds: 285 years"),
    pytest.param(limit("cost", 9_000_000_000.0), limit("cost", 9_000_000_000.5), id="dollars"),
    pytest.param(
        {"retry": {"attempts": 1_000_000}}, {"retry": {"attempts": 1_000_001}}, id="a million attempts"
    ),
]


@pytest.mark.parametrize(("last", "beyond"), BOUNDS)
def test_bounds(last: dict[str, Any], beyond: dict[str, Any]) -> None:
    """The bound itself is taken as it is; one more is refused."""
    parse(last)
    with pytest.raises(PolicyError):
        parse(beyond)


@pytest.mark.parametrize("hash64", [0, 2**63, 2**64 - 1], ids=["the least chance", "half", "the most"])
def test_full_jitter_from_0_seconds(hash64: int) -> None:
    """`full: 0` waits from nothing up to the base, and never less than nothing."""
    retry = Retry(initial=1, jitter=Jitter(full=0))
    assert (hash64 * 1_000_000_000) >> 64 == delay(retry, 1, hash64, None)


def test_all_64_bits_of_a_seed_count_and_no_more() -> None:
    """Seeds that differ in their highest bit are two seeds; one bit more is the same again."""
    assert chance(0, 1) != chance(2**63, 1)
    assert chance(0, 1) == chance(2**64, 1)
