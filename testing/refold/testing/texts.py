"""Texts in the formats that JSON schemas name, drawn from a source of chance."""

import base64
import math
import random
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType

_LETTERS = "a0bZ é-_/.\n\"'\\{}<中🙂"
"""The first is the simplest. Quotes, escapes and characters of several bytes are what breaks tools."""


def plain_text(chance: random.Random, least: int, length: int) -> str:
    """Return a text of `length` characters, or of `least` if that is more."""
    return "".join([chance.choice(_LETTERS) for _ in range(max(least, length))])


def base64_text(chance: random.Random, least: int, most: float) -> str:
    """Return base64 of bytes; `least` and `most` bound the length of the base64 text.

    The schema of bytes has their length rounded up to a multiple of three: lengths near a bound are avoided.
    """
    low = 3 * math.ceil(least / 4)
    high = low + 6 if most == math.inf else 3 * (int(most) // 4) - 2
    count = chance.randint(low, high) if low <= high else max(0, high)
    return base64.b64encode(bytes([chance.randint(0, 255) for _ in range(count)])).decode()


def _date(chance: random.Random) -> str:
    return f"{chance.randint(2000, 2040)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"


def _clock(chance: random.Random) -> str:
    return f"{chance.randint(0, 23):02}:{chance.randint(0, 59):02}:{chance.randint(0, 59):02}"


def _host(chance: random.Random) -> str:
    return f"{chance.choice(['a', 'www', 'mail'])}.example.{chance.choice(['com', 'org'])}"


def _uri(chance: random.Random) -> str:
    return f"https://{_host(chance)}/{chance.choice(['', 'a', 'a/b?c=1'])}"


def _duration(chance: random.Random) -> str:
    return chance.choice(["PT0S", f"PT{chance.randint(1, 59)}S", f"P{chance.randint(1, 9)}DT1H"])


def _octets(chance: random.Random) -> str:
    return ".".join([str(chance.randint(0, 255)) for _ in range(4)])


def _hextets(chance: random.Random) -> str:
    return ":".join([f"{chance.randint(0, 0xFFFF):x}" for _ in range(8)])


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.randint(0, 2**128 - 1), version=4))


def _email(chance: random.Random) -> str:
    return f"{chance.choice(['a', 'ann.b', 'c+d'])}@{_host(chance)}"


FORMATS: Mapping[str, Callable[[random.Random], str]] = MappingProxyType(
    {
        "date": _date,
        "date-time": lambda chance: f"{_date(chance)}T{_clock(chance)}Z",
        "decimal": lambda chance: f"{chance.randint(-99, 99)}.{chance.randint(0, 99):02}",
        "duration": _duration,
        "email": _email,
        "hostname": _host,
        "idn-email": _email,
        "ipv4": _octets,
        "ipv4network": lambda chance: f"{_octets(chance)}/32",
        "ipv6": _hextets,
        "ipv6network": lambda chance: f"{_hextets(chance)}/128",
        "ipvanyaddress": _octets,
        "ipvanyinterface": _octets,
        "ipvanynetwork": lambda chance: f"{_octets(chance)}/32",
        "iri": _uri,
        "partial-time": _clock,
        "time": lambda chance: f"{_clock(chance)}Z",
        "uri": _uri,
        "url": _uri,
        "uuid": _uuid,
        "uuid4": _uuid,
    }
)
"""The generator of each format's texts, by the name of the format in a schema."""
