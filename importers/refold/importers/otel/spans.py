"""Spans as exporters write them: the SDKs of Python and JavaScript, OTLP/JSON, and a database of them. One value for all.

Only the shapes differ, never the meaning, which `otel_names` knows. Attribute values keep their JSON types.
Source of the shapes: opentelemetry-proto's `trace.proto` in its JSON encoding, `ReadableSpan.to_json` of the Python SDK,
`ReadableSpan` of the JavaScript SDK.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from refold.importers.documents import ANY
from refold.importers.fields import JSON, NANO, at, instant, left, rows, table, text
from refold.importers.items import Place, Unread
from refold.importers.leftovers import (
    drop_empty,
    rest,
    take,
    take_each,
    take_first,
    take_if,
    take_rows,
    take_text,
)
from refold.importers.source import Source
from refold.importers.values import values

Attributes = dict[str, JSON]


class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened within a span, `at` nanoseconds since the Unix epoch."""

    name: str
    at: int | None
    attributes: Attributes


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One span. `start`, `end` in nanoseconds since the Unix epoch; `left` is what of its row has no field here."""

    position: str
    id: str
    trace: str
    parent: str
    name: str
    start: int | None
    end: int | None
    failed: bool
    message: str
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    left: dict[str, JSON]


def spans(source: Source) -> Iterator[Span | Unread]:
    """The spans of a JSON document, or of one JSON value a line. Raises `BadTranscript` where there is none at all."""
    for value in values(source, (), ("resourceSpans", ANY, "scopeSpans", ANY, "spans")):
        if isinstance(value, Unread):
            yield value
        else:
            yield from found(value.value, value.position.removesuffix(" $"))


def found(value: JSON, position: str) -> Iterator[Span | Unread]:
    """The spans in a value: a span, a list of them, or OTLP's resources around them."""
    if isinstance(value, list):
        for index, row in enumerate(value):
            yield from found_one(row, f"{position}[{index}]")
    else:
        yield from found_one(value, position)


def found_one(value: JSON, position: str) -> Iterator[Span | Unread]:
    """The spans of one element."""
    if "resourceSpans" in table(value):
        yield from _resources(value, position)
    elif isinstance(value, dict) and isinstance(value.get("name"), str):
        yield span(value, position)
    elif lists := {name: listed for name, listed in table(value).items() if _lists_spans(listed)}:
        for name, listed in lists.items():  # grouped, under a name for each group
            yield from found(listed, f"{position}.{name}")
        yield from _beside(left(value, *lists), position)
    else:
        yield Place(position).unread("no_span", "neither a span nor a list of them", value)


def _lists_spans(value: JSON) -> bool:
    """Whether it is a list of objects with a name and an id, as spans have them."""
    listed = rows(value)
    ids = {"spanContext", "context", "spanId", "span_id"}
    return bool(listed) and all(ids & table(row).keys() and "name" in table(row) for row in listed)


def _beside(value: JSON, position: str) -> Iterator[Unread]:
    if around := rest(value):
        yield Place(position).unread("no_span", "beside the lists of spans", rest=around)


def _resources(value: JSON, position: str) -> Iterator[Span | Unread]:
    for i, resource in enumerate(take_each(value, "resourceSpans")):
        about = at(resource, "resource")
        for j, scope in enumerate(take_each(resource, "scopeSpans")):
            said: dict[str, JSON] = {"resource": about, "scope": at(scope, "scope")}
            for k, row in enumerate(take_rows(scope, "spans")):
                place = f"{position}.resourceSpans[{i}].scopeSpans[{j}].spans[{k}]"
                take(resource, "resource")
                take(scope, "scope")  # each of its spans has them
                if isinstance(row, dict):
                    yield span({**said, **row}, place)
                else:
                    yield Place(place).unread("no_span", "no object", row)
    yield from _beside(value, position)


def span(row: dict[str, JSON], position: str) -> Span:
    """One span of any of the JSON shapes, taken out of its row."""
    context = table(row, "context") or table(row, "spanContext")
    parent = take_first(row, "parent_id", "parentSpanId") or take_text(row, "parentSpanContext", "spanId")
    made = Span(
        position=position,
        id=_id(take_first(context, "span_id", "spanId") or take_first(row, "spanId", "id")),
        trace=_id(take_first(context, "trace_id", "traceId") or take_text(row, "traceId")),
        parent=_id(parent or take_text(row, "parentId")),
        name=take_text(row, "name"),
        start=_take_time(row, "start_time", "startTime", "startTimeUnixNano"),
        end=_take_time(row, "end_time", "endTime", "endTimeUnixNano"),
        failed=_failed(row.get("status")),
        message=take_text(row, "status", "description") or take_text(row, "status", "message"),
        attributes=_take_attributes(row),
        events=tuple([_take_event(event) for event in take_each(row, "events")]),
        left=row,
    )
    drop_empty(row)
    return made


def _take_attributes(row: JSON) -> Attributes:
    """Attributes as a table, OTLP's list of keys and typed values too."""
    if isinstance(at(row, "attributes"), list):
        return _take_pairs(row, "attributes")
    found = table(row, "attributes")
    take_if(row, "attributes", found)
    return found


def _take_pairs(value: JSON, *path: str) -> Attributes:
    found: Attributes = {}
    for pair in take_each(value, *path):
        if isinstance(pair, dict) and text(pair, "key") not in found:
            found[take_text(pair, "key")] = _take_any(pair.get("value"))
            take_if(pair, "value", {})
    return found


def _take_any(typed: JSON) -> JSON:
    """A value of OTLP's `AnyValue`; 64-bit integers are texts there."""
    kind = next((name for name in table(typed) if name.endswith("Value")), "")
    match kind, at(typed, kind):
        case "arrayValue", dict():
            return [_take_any(one) for one in take_each(typed, kind, "values")]
        case "kvlistValue", dict():
            return _take_pairs(typed, kind, "values")
        case "intValue", str() as digits if digits.lstrip("-").isdigit():
            take(typed, kind)
            return int(digits)
        case _:
            return take(typed, kind) if kind else None


def _id(text: str) -> str:
    return text.removeprefix("0x")


def _failed(status: JSON) -> bool:
    code = at(status, "status_code") if "status_code" in table(status) else at(status, "code")
    return code == 2 or (isinstance(code, str) and code.upper().endswith("ERROR"))


def _take_time(row: JSON, *names: str) -> int | None:
    name = next((name for name in names if name in table(row)), "")
    found = moment(at(row, name))
    if found is not None:
        take(row, name)
    return found


def moment(value: JSON) -> int | None:
    """An instant as exporters write it: `[seconds, nanoseconds]`, nanoseconds (also as text), ISO 8601, milliseconds."""
    match value:
        case [int(seconds), int(nanos)] if 0 <= seconds < 1 << 33 and 0 <= nanos < NANO:
            return seconds * NANO + nanos
        case str() if value.isascii() and value.isdigit() and len(value) <= 19:
            return int(value) or None
        case int() if value >= 10**17 and not isinstance(value, bool):
            return value if value < 1 << 62 else None
        case list() | bool():
            return None
        case _:
            return instant(value)


def stamp(nanoseconds: int) -> str:
    """An instant in ISO 8601 and UTC: microseconds, rounded; milliseconds or seconds where that is all of it."""
    micros = (nanoseconds + 500) // 1000
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    part = "seconds" if micros % 1_000_000 == 0 else "milliseconds" if micros % 1000 == 0 else "microseconds"
    return when.isoformat(timespec=part).replace("+00:00", "Z")


def _take_event(event: JSON) -> SpanEvent:
    when = _take_time(event, "timestamp", "time", "timeUnixNano")
    return SpanEvent(take_text(event, "name"), when, _take_attributes(event))
