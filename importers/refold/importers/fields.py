"""Access to fields of untrusted JSON values, and their removal from rows.

An importer takes each value that goes into an item. A taken value is removed from its row, with containers
that are empty without it. So exactly the fields without an item remain, and importers need no list of known
fields. Functions without `take` in their names only read. Values of an unexpected type are not taken. Rows
belong to the importer, which reads each row completely before it passes on the rest.

Labels such as `limit:steps` or `prompt:equal` are used by refold itself, so a source must not be able to
choose them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime

import msgspec

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]

NANO = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_AS_WRITTEN = msgspec.json.Encoder()


def at(value: JSON, *path: str | int) -> JSON:
    """Return the value at this path of keys and indices, None if missing."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text(value: JSON, *path: str | int) -> str:
    """Return the string there, else ""."""
    for step in path:  # inlines `at`: this is the most frequent call
        value = value.get(step) if isinstance(value, dict) and isinstance(step, str) else at(value, step)
    return value if isinstance(value, str) else ""


def number(value: JSON, *path: str | int) -> int | None:
    """Return the integer there if it is not negative, else None."""
    found = at(value, *path)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 63 else None


def rows(value: JSON, *path: str | int) -> Sequence[JSON]:
    """Return the list there, else an empty one."""
    found = at(value, *path)
    return found if isinstance(found, list) else ()


def table(value: JSON, *path: str | int) -> dict[str, JSON]:
    """Return the object there, else an empty one."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def json_text(value: JSON) -> str:
    """Return the canonical JSON text of a value."""
    return _ENCODER.encode(value).decode()


def as_written(value: JSON) -> str:
    """Return JSON text that keeps the order of keys, for what a model wrote."""
    return _AS_WRITTEN.encode(value).decode()


def omit_keys(row: JSON, *names: str) -> dict[str, JSON]:
    """Return the entries of an object except these keys."""
    return {key: value for key, value in table(row).items() if key not in names}


def instant(value: JSON) -> int | None:
    """Return a time as integer nanoseconds since the Unix epoch, or None.

    Accepts ISO 8601 (UTC if it has no zone), and numbers in seconds or smaller units, told apart by size.
    """
    if isinstance(value, str):
        return _iso_instant(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18:
        scale = NANO if value < 1e11 else NANO // 1000 if value < 1e14 else 1000 if value < 1e17 else 1
        return int(value * scale)
    return None


def _iso_instant(value: str) -> int | None:
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        return None
    since = (read if read.tzinfo else read.replace(tzinfo=UTC)) - _EPOCH
    whole = (since.days * 86_400 + since.seconds) * NANO + since.microseconds * 1000
    return whole if 0 <= whole < 1 << 62 else None


def labels_of(said: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that are not empty."""
    return {name: label for name, label in said.items() if label}


def nanoseconds(seconds: JSON) -> int:
    """Return a duration in seconds as nanoseconds, 0 if it is not a number."""
    return _scale(seconds) or 0


def nano_usd(dollars: JSON) -> int | None:
    """Return an amount in dollars as nano-dollars, None if it is not a number."""
    return _scale(dollars)


def _scale(value: JSON) -> int | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return round(value * NANO) if 0 <= value < (1 << 62) // NANO else None


def take(value: JSON, *path: str) -> JSON:
    """Remove and return the value at this path of keys, None if missing."""
    if not isinstance(value, dict):
        return None
    name, *further = path
    if not further:
        return value.pop(name, None)
    inner = value.get(name)
    found = take(inner, *further) if inner else None
    if inner == {}:
        del value[name]
    return found


def take_text(value: JSON, *path: str) -> str:
    """Take the string there, else return ""."""
    found = text(value, *path)
    if found or isinstance(at(value, *path), str):
        take(value, *path)
    return found


def take_first(value: JSON, *names: str) -> str:
    """Take the text under the first of these keys that has one, else return "". Other keys are left."""
    found = next((name for name in names if text(value, name)), "")
    return take_text(value, found) if found else ""


def take_number(value: JSON, *path: str) -> int | None:
    """Take the integer there if it is not negative, else return None."""
    found = number(value, *path)
    if found is not None:
        take(value, *path)
    return found


def take_time(value: JSON, *path: str) -> int | None:
    """Take the time there as `instant` reads it, else return None."""
    found = instant(at(value, *path))
    if found is not None:
        take(value, *path)
    return found


def take_cost(value: JSON, *path: str) -> int | None:
    """Take the amount in dollars there as nano-dollars, else return None."""
    found = nano_usd(at(value, *path))
    if found is not None:
        take(value, *path)
    return found


def take_flag(value: JSON, *path: str) -> bool | None:
    """Take the boolean there; leave anything else and return None."""
    found = at(value, *path)
    if isinstance(found, bool):
        take(value, *path)
        return found
    return None


def take_if(value: JSON, name: str, *known: JSON) -> None:
    """Remove a value that the item's type already implies, if it is one of these."""
    if isinstance(value, dict) and name in value and value[name] in known:
        del value[name]


def take_rows(value: JSON, *path: str) -> Sequence[JSON]:
    """Take the complete list there, else return an empty one."""
    found = at(value, *path)
    if not isinstance(found, list):
        return ()
    take(value, *path)
    return found


def take_each(value: JSON, *path: str) -> Iterator[JSON]:
    """Yield the elements of the list there. After the last, completely taken elements are removed."""
    listed = at(value, *path)
    if not isinstance(listed, list):
        return
    yield from listed
    listed[:] = [each for each in listed if each not in ({}, None)]
    if not listed:
        take(value, *path)


def take_words(value: JSON, *path: str, beside: frozenset[str] = frozenset(), lines: str = "\n") -> str:
    """Take the text of a content there: a string, or its parts joined by `lines`.

    A part that is not text becomes its type in brackets, as `[image]`, and is left. Parts of the types in
    `beside` (calls, results, reasoning) are skipped and left.
    """
    content = at(value, *path)
    if not isinstance(content, list):
        take(value, *path)
        return content if isinstance(content, str) else "" if content is None else as_written(content)
    said = [take_part(part) for part in content if text(part, "type") not in beside]
    content[:] = [part for part in content if part and not isinstance(part, str)]
    if not content:
        take(value, *path)
    return lines.join(said)


def word_of(part: JSON) -> str:
    """Return the text of a part, or its type (else its first key) in brackets, as `[image]`."""
    if isinstance(part, str):
        return part
    said = at(part, "text")
    return said if isinstance(said, str) else f"[{text(part, 'type') or next(iter(table(part)), 'part')}]"


def take_part(part: JSON) -> str:
    """Return the same, taken out of the part; anything that is not text is left."""
    said = word_of(part)
    if isinstance(at(part, "text"), str):
        take_if(part, "type", "text", "input_text", "output_text")
        take(part, "text")
    return said


def drop_empty(row: dict[str, JSON]) -> None:
    """Remove fields without content."""
    for name in [name for name, value in row.items() if value in (None, [], {})]:
        del row[name]


def rest(value: JSON) -> str:
    """Return JSON text of what is left of a value; "" if it is empty."""
    if isinstance(value, dict):
        value = {name: inner for name, inner in value.items() if inner not in ({}, [])}
    return json_text(value) if value else ""


def join_rests(*rests: str) -> str:
    """Join what is left of several values of one item, a line each."""
    return "\n".join(filter(None, rests))


class Times:
    """The first and the last of a series of times, as written in the source. Invalid times are ignored."""

    def __init__(self, written: Iterable[JSON] = ()) -> None:
        self._first: tuple[int, str] | None = None
        self._last: tuple[int, str] | None = None
        for each in written:
            self.see(each, instant(each))

    def see(self, written: JSON, at: int | None) -> None:
        """Add a time; `at` is its value in nanoseconds."""
        if at is None or not isinstance(written, str):
            return
        if self._first is None or at < self._first[0]:
            self._first = at, written
        if self._last is None or at > self._last[0]:
            self._last = at, written

    def edges(self) -> tuple[str, str] | None:
        """Return the first and the last time, formatted by `stamp`; None without times."""
        return (stamp(self._first[1]), stamp(self._last[1])) if self._first and self._last else None


def stamp(written: str) -> str:
    """Return a source's time in UTC with `Z` if it has a zone, and without a fraction of zero."""
    read = datetime.fromisoformat(written)
    if read.utcoffset():
        fine = re.search(r"\.\d{4}", written)
        timespec = "microseconds" if fine else "milliseconds"
        written = read.astimezone(UTC).isoformat(timespec=timespec)
    zone = "Z" if written.endswith(("Z", "z", "+00:00")) else ""
    bare = written.removesuffix("+00:00").rstrip("Zz") if zone else written
    whole, dot, fraction = bare.partition(".")
    return whole + (dot + fraction if fraction.strip("0") else "") + zone


_LONGEST = 40
_MARKS = "_-."


def known_or(word: str, known: Set[str]) -> str:
    """Return a word if it is in `known`, else `unmapped:WORD` or `unmapped`, as `add_prefix` does."""
    return word if word in known else add_prefix("unmapped", word)


def add_prefix(kind: str, word: str) -> str:
    """Return `KIND:WORD` if the word is at most 40 ASCII letters, digits, `_`, `-` or `.`; else `KIND`."""
    plain = word.isascii() and all(char.isalnum() or char in _MARKS for char in word)
    return f"{kind}:{word}" if word and plain and len(word) <= _LONGEST else kind
