"""Retries: which failures are tried again, how often, and after how long. Integers all through.

Back-off with jitter after "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015); the chance in it
is a keyed hash of the run's seed and the event's number, so that a replay waits equally long.
"""

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta

from refold.reducers.limits import Amount
from refold.reducers.numbers import nano, scaled
from refold.reducers.vocabulary import FailureClass

_MAX_DOUBLINGS = 20


class Jitter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """`add`: up to so many seconds more, uniformly."""

    add: Amount = 1


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """How often, and how long to wait.

    `attempts` counts the first one. The wait after attempt n is min(max, initial * 2**(n - 1) + jitter),
    in seconds; `max: null` is no cap. A provider's `retry_after` is a lower bound.
    """

    attempts: Annotated[int, Meta(ge=1, le=1_000_000)] = 6
    initial: Amount = 1
    max: Amount | None = 60
    jitter: Jitter = Jitter()
    classes: tuple[FailureClass, ...] = (
        FailureClass.RATE_LIMIT,
        FailureClass.OVERLOADED,
        FailureClass.TIMEOUT,
        FailureClass.NETWORK,
        FailureClass.STREAM_BROKEN,
    )


def chance(seed: int, seq: int) -> int:
    """64 bits that depend on nothing but the run's seed and an event's number."""
    key = (seed % (1 << 64)).to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(seq.to_bytes(8, "big"), digest_size=8, key=key).digest(), "big")


def delay(retry: Retry, failed_attempt: int, hash64: int, retry_after: int | None) -> int:
    """Nanoseconds to wait after attempt number `failed_attempt` (from 1)."""
    wait = nano(retry.initial) << min(failed_attempt - 1, _MAX_DOUBLINGS)
    wait += scaled(hash64, nano(retry.jitter.add))
    if retry.max is not None:
        wait = min(wait, max(nano(retry.max), nano(retry.initial)))
    return max(wait, retry_after or 0)
