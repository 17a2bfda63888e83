"""JSON values of strangers, asked for what they should be: each answer has its type, and no question raises."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]

NANO = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_AS_WRITTEN = msgspec.json.Encoder()


def at(value: JSON, *path: str | int) -> JSON:
    """What stands at this path of keys and indices, None where nothing does."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text(value: JSON, *path: str | int) -> str:
    """The text there, "" where there is none."""
    for step in path:  # as in `at`, which costs a call more: nothing is asked as often
        value = value.get(step) if isinstance(value, dict) and isinstance(step, str) else at(value, step)
    return value if isinstance(value, str) else ""


def number(value: JSON, *path: str | int) -> int | None:
    """The whole number there that is not negative, None where there is none."""
    found = at(value, *path)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 63 else None


def rows(value: JSON, *path: str | int) -> Sequence[JSON]:
    """The list there, an empty one where there is none."""
    found = at(value, *path)
    return found if isinstance(found, list) else ()


def table(value: JSON, *path: str | int) -> dict[str, JSON]:
    """The object there, an empty one where there is none."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def json_text(value: JSON) -> str:
    """The one JSON text of a value."""
    return _ENCODER.encode(value).decode()


def as_written(value: JSON) -> str:
    """The JSON text of what a model wrote: its keys stay in their order."""
    return _AS_WRITTEN.encode(value).decode()


def left(row: JSON, *names: str) -> dict[str, JSON]:
    """What an object holds beside these keys."""
    return {key: value for key, value in table(row).items() if key not in names}


def instant(value: JSON) -> int | None:
    """A time as integer nanoseconds since the Unix epoch: ISO 8601 (without a zone: UTC), or seconds, or milliseconds."""
    if isinstance(value, str):
        try:
            read = datetime.fromisoformat(value)
        except ValueError:
            return None
        since = (read if read.tzinfo else read.replace(tzinfo=UTC)) - _EPOCH
        whole = (since.days * 86_400 + since.seconds) * NANO + since.microseconds * 1000
        return whole if 0 <= whole < 1 << 62 else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18:
        scale = NANO if value < 1e11 else NANO // 1000 if value < 1e14 else 1000 if value < 1e17 else 1
        return int(value * scale)
    return None


def nanoseconds(seconds: JSON) -> int:
    """A duration in seconds as nanoseconds, 0 where there is none."""
    return _scaled(seconds) or 0


def nano_usd(dollars: JSON) -> int | None:
    """An amount of dollars as nano-dollars, None where there is none."""
    return _scaled(dollars)


def _scaled(value: JSON) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return round(value * NANO) if 0 <= value < (1 << 62) // NANO else None
