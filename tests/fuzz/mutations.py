"""What somebody may do to recorded bytes: to a JSON text at one of its values, to any bytes, to a log by its
records.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from refold.reducers.events import KINDS
from refold.reducers.machine import AgentState, Trigger
from refold.reducers.vocabulary import (
    MOST_DIGITS,
    Doubt,
    FailureClass,
    Refusal,
    Replay,
    Role,
    StopReason,
    ToolError,
    Verdict,
)
from refold.store.protocol import Record

Bytes = st.SearchStrategy[bytes]
Log = list[Record]

VOCABULARIES = (
    AgentState,
    Trigger,
    Doubt,
    FailureClass,
    Refusal,
    Replay,
    Role,
    StopReason,
    ToolError,
    Verdict,
)

_HERE = "@here@"

EVIL: tuple[str, ...] = (
    *("null", "true", "false", "[]", "{}", '""', "[[]]", "[{}]", '{"":{}}', "[null]", '[["a",1]]', '{"a":1}'),
    *("0", "1", "-1", "2", "3", "7", "255", "4294967296", "9007199254740993", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775809", "18446744073709551616"),
    *("9" * digits for digits in (100, 300, 301, 4300, 4301, 20_000)),
    *(
        "0.5",
        "1.0",
        "-0.0",
        "1e308",
        "1e-308",
        "1e309",
        "1e999999999",
        "NaN",
        "Infinity",
        "-Infinity",
        "0x10",
    ),
    *(
        r'"\u0000"',
        r'"\ud800"',
        r'"\udc00\ud800"',
        r'"\u001b[2J"',
        r'"\u202e"',
        r'"x\nrun r9: intact"',
        '"\U0001d518"',
    ),
    *(
        json.dumps("a" * 5000),
        json.dumps("9" * 700),
        '"%s{}{0}$x"',
        '"\x00"',
        '"\x1b[31m"',
        '"',
        "",
        "}",
        "//",
    ),
    *(
        '"run_started"',
        '"RUNNING"',
        '"COMPLETED"',
        '"user"',
        '"system"',
        '"assistant"',
        '"tool"',
        '"c1"',
        '"1"',
    ),
    *("[" * 5000, '{"a":' * 3000, "[" * 900 + "]" * 900, '{"a":' * 300 + "1" + "}" * 300),
)
"""JSON texts that are wrong nearly everywhere, each at home somewhere; and texts that are no JSON at all."""


def values(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in plain data, the whole first."""
    yield path
    for step, inner in (
        data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    ):
        yield from values(inner, (*path, step))


def put(data: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """The data with what stands at `path` changed."""
    if not path:
        return change(data)
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = put(copy[path[0]], path[1:], change)
    return copy


def _text(data: Any, evil: str = "null") -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace(f'"{_HERE}"', evil)


@st.composite
def json_texts(draw: st.DrawFn, whole: bytes, others: Sequence[Any] = ()) -> bytes:
    """The JSON text with one value changed: to an evil one, to one of `others`, without a key, with one
    twice.
    """
    data = plain(whole)
    if data is None:  # changed before, and no JSON text any more
        return draw(flipped(whole))
    path = draw(st.sampled_from(list(values(data))))
    evil = draw(st.sampled_from(EVIL))

    def change(value: Any) -> Any:
        if draw(st.booleans()):
            return draw(_likely(value, data))
        way = draw(st.integers(0, 9))
        if way == 0 and others:
            return draw(st.sampled_from(others))
        if isinstance(value, dict) and value and way in (1, 2, 3):
            key = draw(st.sampled_from(sorted(value)))
            rest = {name: inner for name, inner in value.items() if name != key}
            again = {1: {}, 2: {f"{key}x": value[key]}, 3: {key: value[key], _HERE: None}}[way]
            return {**rest, **again}
        if isinstance(value, list) and way == 1:
            return [*value, *value]
        if isinstance(value, list) and way == 2:
            return value[::-1]
        return _HERE

    changed = put(data, path, change)
    text = json.dumps(changed, ensure_ascii=False, separators=(",", ":"))
    twice = f'"kind":{evil},"kind":'
    text = text.replace(f'"{_HERE}":', twice).replace(f'"{_HERE}"', evil)
    return text.encode(errors="surrogatepass")


_WORDS = (
    "",
    "c1",
    "c2",
    "step",
    "time",
    "retry",
    "user",
    "assistant",
    "tool",
    "system",
    "x",
    "read_only",
    "chars4",
)
_STEPS = (-(10**9), -2, -1, 1, 2, 256, 10**9, 10**18, 10**299)


def _likely(value: Any, data: Any) -> st.SearchStrategy[Any]:
    """A value of the same type, so that it is taken for one that was written so."""
    match value:
        case bool():
            return st.just(not value)
        case int():
            return st.sampled_from([abs(value + step) for step in _STEPS] + [0, 1])
        case str():
            words = {word for path in values(data) if isinstance(word := at(data, path), str)}
            members = [
                str(member)
                for vocabulary in VOCABULARIES
                if value in list(vocabulary)
                for member in vocabulary
            ]
            return st.sampled_from([*sorted(words), *_WORDS, *members, *members])
        case list() if value:
            return st.lists(st.sampled_from(value), max_size=2 * len(value))
        case dict() if value:
            return st.sets(st.sampled_from(sorted(value))).map(
                lambda kept: {key: value[key] for key in value if key in kept}
            )
        case _:
            return st.sampled_from([value, None])


def at(data: Any, path: tuple[Any, ...]) -> Any:
    """What stands at a path."""
    for step in path:
        data = data[step]
    return data


@st.composite
def flipped(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes with a few of them flipped, cut out, cut off, doubled, or put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        size = draw(st.sampled_from([1, 1, 2, 16, 1000]))
        match draw(st.integers(0, 4)):
            case 0 if data:
                data[place] ^= draw(st.integers(1, 255))
            case 1:
                del data[place : place + size]
            case 2:
                del data[place:]
            case 3:
                data[place:place] = data[place : place + size]
            case _:
                data[place:place] = draw(st.binary(min_size=1, max_size=8))
    return bytes(data)


def texts(whole: bytes, others: Sequence[Any] = ()) -> Bytes:
    """Any change to a JSON text."""
    return st.one_of(json_texts(whole, others), json_texts(whole, others), flipped(whole))


@st.composite
def logs(draw: st.DrawFn, log: Sequence[Record]) -> Log:
    """The log after one to three changes: to records, to their order, to their number."""
    changed = list(log)
    if draw(st.integers(0, 9)) == 0:
        changed = grown(
            changed, draw(st.sampled_from(["[a-z_]+", *_FIELDS])), draw(st.sampled_from([30, 300, 301]))
        )
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        if changed:
            changed = draw(_changed(changed))
    return changed


_FIELDS = (
    "duration",
    "chars",
    "tokens",
    "cost_nanousd",
    "at",
    "delay",
    "until",
    "deadline",
    "step",
    "attempt",
)


def grown(log: Sequence[Record], fields: str, digits: int = MOST_DIGITS) -> Log:
    """All numbers of these fields (a regular expression) as long as that."""
    number = rb'"(%b)":\d+' % fields.encode()
    return [replace(record, body=re.sub(number, rb'"\1":' + b"9" * digits, record.body)) for record in log]


@st.composite
def _changed(draw: st.DrawFn, log: Log) -> Log:
    place = draw(st.integers(0, len(log) - 1))
    other = draw(st.integers(0, len(log) - 1))
    record, twin = log[place], log[other]
    match draw(st.integers(0, 13)):
        case 0:
            return log[:place] + log[place + 1 :]
        case 1:
            return [*log[:place], twin, *log[place:]]
        case 2:
            new = list(log)
            new[place], new[other] = twin, record
            return new
        case 3:
            kind = draw(st.sampled_from([*KINDS, "dreamt"]))
            body = record.body.replace(f'"{record.kind}"'.encode(), f'"{kind}"'.encode(), 1)
            new_record = replace(record, kind=kind, body=draw(st.sampled_from([body, record.body])))
        case 4:
            content = draw(st.sampled_from([None, b"{}", b"null", b"[]", twin.content]))
            new_record = replace(record, content=content)
        case 5 | 6 if record.content is not None:
            new_record = replace(record, content=draw(texts(record.content, _inner(twin.content))))
        case 7:
            new_record = replace(
                record, at=draw(st.sampled_from([0, -1, 1, 2**63 - 1, -(2**63), record.at - 1]))
            )
        case _:
            new_record = replace(record, body=draw(texts(record.body, _inner(twin.body))))
    return [*log[:place], new_record, *log[place + 1 :]]


def plain(text: bytes | None) -> dict[str, Any] | None:
    """The object in a JSON text; None if there is none, or one that no test should have to walk."""
    try:
        data = json.loads(text or b"null")
    except (ValueError, RecursionError):
        return None
    walked = text is not None and len(text) < 50_000 and b"[" * 99 not in text
    return data if walked and isinstance(data, dict) else None


def _inner(text: bytes | None) -> list[Any]:
    return list((plain(text) or {}).values())
