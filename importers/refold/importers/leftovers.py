"""What an importer takes out of a value, and what it leaves: nothing that a source says is dropped, whoever wrote its rows.

A value is taken where an item says it, and is gone from its row with whatever is empty without it. So what is left is what no
item says, exactly, and no importer lists what it knows. Looking at a value (`fields`) leaves it where it stands. What is not of
the type that is asked for is not taken. Rows are an importer's own: it reads each of them to its end before it hands on what is left.
"""

from collections.abc import Iterator, Sequence

from refold.importers.fields import (
    JSON,
    as_written,
    at,
    instant,
    json_text,
    nano_usd,
    number,
    table,
    text,
)


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
    """The elements of the list there, one after the other; those of which all was taken are gone once the last was asked for."""
    listed = at(value, *path)
    if not isinstance(listed, list):
        return
    yield from listed
    listed[:] = [each for each in listed if each not in ({}, None)]
    if not listed:
        take(value, *path)


def take_words(value: JSON, *path: str, beside: frozenset[str] = frozenset(), lines: str = "\n") -> str:
    """The text of a content there: itself, or its parts, a line each; one that is no text stands as `[image]`, and is left.

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


def joined(*rests: str) -> str:
    """What was left of several values that one item tells, a line each."""
    return "\n".join(filter(None, rests))
