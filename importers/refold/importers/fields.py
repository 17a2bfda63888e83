"""JSON values of strangers, asked for what they should be, and what an importer takes out of them.

A value is taken where an item says it, and is gone from its row with whatever is empty without it. So what is
left is what no item says, exactly, and no importer lists what it knows. Looking at a value (`fields`) leaves
it where it stands. What is not of the type that is asked for is not taken. Rows are an importer's own: it
reads each of them to its end before it hands on what is left.

What an import says of a source is told by these words (`limit:steps`, `prompt:equal`), so no source may
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
    """A time as integer nanoseconds since the Unix epoch: ISO 8601 (without a zone: UTC), or seconds, or
    milliseconds.
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
    """The labels of a run: those of which the source says something."""
    return {name: label for name, label in said.items() if label}


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


def take(value: JSON, *path: str) -> JSON:
    """What stands at this path of keys, None where nothing does; it is gone from there."""
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
    """The text there, "" where there is none."""
    found = text(value, *path)
    if found or isinstance(at(value, *path), str):
        take(value, *path)
    return found


def take_first(value: JSON, *names: str) -> str:
    """The text under the first of these keys that has one, "" where none has; what the others have stays."""
    found = next((name for name in names if text(value, name)), "")
    return take_text(value, found) if found else ""


def take_number(value: JSON, *path: str) -> int | None:
    """The whole number there that is not negative, None where there is none."""
    found = number(value, *path)
    if found is not None:
        take(value, *path)
    return found


def take_time(value: JSON, *path: str) -> int | None:
    """The time there as `instant` reads it, None where there is none."""
    found = instant(at(value, *path))
    if found is not None:
        take(value, *path)
    return found


def take_cost(value: JSON, *path: str) -> int | None:
    """The amount of dollars there as nano-dollars, None where there is none."""
    found = nano_usd(at(value, *path))
    if found is not None:
        take(value, *path)
    return found


def take_flag(value: JSON, *path: str) -> bool | None:
    """True or false that stands there, None for neither: that is left."""
    found = at(value, *path)
    if isinstance(found, bool):
        take(value, *path)
        return found
    return None


def take_if(value: JSON, name: str, *known: JSON) -> None:
    """Take what stands under a key, if it is one of these: an item says it by what it is."""
    if isinstance(value, dict) and name in value and value[name] in known:
        del value[name]


def take_rows(value: JSON, *path: str) -> Sequence[JSON]:
    """The list there, whole, an empty one where there is none."""
    found = at(value, *path)
    if not isinstance(found, list):
        return ()
    take(value, *path)
    return found


def take_each(value: JSON, *path: str) -> Iterator[JSON]:
    """The elements of the list there, one after the other; those of which all was taken are gone once the
    last was asked for.
    """
    listed = at(value, *path)
    if not isinstance(listed, list):
        return
    yield from listed
    listed[:] = [each for each in listed if each not in ({}, None)]
    if not listed:
        take(value, *path)


def take_words(value: JSON, *path: str, beside: frozenset[str] = frozenset(), lines: str = "\n") -> str:
    """The text of a content there: itself, or its parts, a line each; one that is no text stands as
    `[image]`, and is left.

    Parts of the types in `beside` are no words, and are left: calls, results, thoughts.
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
    """The text of a part of a content, or `[image]`, by the type that it has, or its first key."""
    if isinstance(part, str):
        return part
    said = at(part, "text")
    return said if isinstance(said, str) else f"[{text(part, 'type') or next(iter(table(part)), 'part')}]"


def take_part(part: JSON) -> str:
    """The same, taken out of it; what is no text is left."""
    said = word_of(part)
    if isinstance(at(part, "text"), str):
        take_if(part, "type", "text", "input_text", "output_text")
        take(part, "text")
    return said


def drop_empty(row: dict[str, JSON]) -> None:
    """Take what holds nothing: it says nothing."""
    for name in [name for name, value in row.items() if value in (None, [], {})]:
        del row[name]


def rest(value: JSON) -> str:
    """JSON text of what is left of a value, "" for nothing; what holds nothing is nothing."""
    if isinstance(value, dict):
        value = {name: inner for name, inner in value.items() if inner not in ({}, [])}
    return json_text(value) if value else ""


def join_rests(*rests: str) -> str:
    """What was left of several values that one item tells, a line each."""
    return "\n".join(filter(None, rests))


class Times:
    """The first and the last of some times, in the words of their source. What is no time is none."""

    def __init__(self, written: Iterable[JSON] = ()) -> None:
        self._first: tuple[int, str] | None = None
        self._last: tuple[int, str] | None = None
        for each in written:
            self.see(each, instant(each))

    def see(self, written: JSON, at: int | None) -> None:
        """One time more, which is `at`."""
        if at is None or not isinstance(written, str):
            return
        if self._first is None or at < self._first[0]:
            self._first = at, written
        if self._last is None or at > self._last[0]:
            self._last = at, written

    def edges(self) -> tuple[str, str] | None:
        """The first and the last, each as `stamp` writes it; None without any."""
        return (stamp(self._first[1]), stamp(self._last[1])) if self._first and self._last else None


def stamp(written: str) -> str:
    """A time as its source wrote it, in UTC as `Z` where it names a zone, a fraction of zero left out."""
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
    """A source's word if it is one of `known`; else `unmapped:WORD`, or `unmapped` where it is no plain short
    word.
    """
    return word if word in known else prefixed("unmapped", word)


def prefixed(kind: str, word: str) -> str:
    """`KIND:WORD` for a word of at most 40 ASCII letters, digits and `_`, `-`, `.`; for anything else
    `KIND`.
    """
    plain = word.isascii() and all(char.isalnum() or char in _MARKS for char in word)
    return f"{kind}:{word}" if word and plain and len(word) <= _LONGEST else kind
