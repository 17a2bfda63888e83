"""Chance, kept at the edge: run ids, seeds and salts."""

import hashlib
import secrets
from collections.abc import Callable

Salts = Callable[[int], bytes]
"""The salt of the fact that becomes event number so-and-so."""

_SALT_BYTES = 16


def run_id() -> str:
    """A new run's id: 16 hex digits. Random from the first, so that short prefixes tell runs apart."""
    return secrets.token_hex(8)


def seed() -> int:
    """64 bits that are recorded with the run."""
    return secrets.randbits(63)


def salts(chosen: int | None) -> Salts:
    """Random salts; for a chosen seed, salts that follow from it, so that a test's log is the same every time.

    A log whose seed was chosen protects erased content less: with the seed it can be guessed.
    """
    if chosen is None:
        return lambda seq: secrets.token_bytes(_SALT_BYTES)  # noqa: ARG005
    return lambda seq: hashlib.sha256(f"{chosen}|{seq}".encode()).digest()[:_SALT_BYTES]
