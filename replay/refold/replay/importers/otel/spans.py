"""Spans as exporters write them: the SDKs of Python and JavaScript, OTLP/JSON, and a database of them. One value for all.

Only the shapes differ, never the meaning, which `otel_names` knows. Attribute values keep their JSON types.
Source of the shapes: opentelemetry-proto's `trace.proto` in its JSON encoding, `ReadableSpan.to_json` of the Python SDK,
`ReadableSpan` of the JavaScript SDK.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from refold.replay.importers.documents import ANY
from refold.replay.importers.fields import JSON, NANO, at, instant, rows, table, text, without
from refold.replay.importers.items import Place, Unread
from refold.replay.importers.source import Source
from refold.replay.importers.values import values

Attributes = dict[str, JSON]


class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened within a span, `at` nanoseconds since the Unix epoch."""

    name: str
    at: int | None
    attributes: Attributes


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One span. `start`, `end` in nanoseconds since the Unix epoch; `rest` is JSON text of what has no field here."""

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
    rest: str = ""


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
        if rest := without(value, *lists):
            yield Place(position).unread("no_span", "beside the lists of spans", rest=rest)
    else:
        yield Place(position).unread("no_span", "neither a span nor a list of them", value)


def _lists_spans(value: JSON) -> bool:
    """Whether it is a list of objects with a name and an id, as spans have them."""
    listed = rows(value)
    ids = {"spanContext", "context", "spanId", "span_id"}
    return bool(listed) and all(ids & table(row).keys() and "name" in table(row) for row in listed)


def _resources(value: JSON, position: str) -> Iterator[Span | Unread]:
    for i, resource in enumerate(rows(value, "resourceSpans")):
        for j, scope in enumerate(rows(resource, "scopeSpans")):
            said: dict[str, JSON] = {"resource": at(resource, "resource"), "scope": at(scope, "scope")}
            for k, row in enumerate(rows(scope, "spans")):
                place = f"{position}.resourceSpans[{i}].scopeSpans[{j}].spans[{k}]"
                if isinstance(row, dict):
                    yield span({**said, **row}, place)
                else:
                    yield Place(place).unread("no_span", "no object", row)


def span(row: dict[str, JSON], position: str) -> Span:
    """One span of any of the JSON shapes."""
    context = table(row, "context") or table(row, "spanContext")
    parent = text(row, "parent_id") or text(row, "parentSpanId") or text(row, "parentSpanContext", "spanId")
    status = row.get("status")
    return Span(
        position=position,
        id=_id(text(context, "span_id") or text(context, "spanId") or text(row, "spanId") or text(row, "id")),
        trace=_id(text(context, "trace_id") or text(context, "traceId") or text(row, "traceId")),
        parent=_id(parent or text(row, "parentId")),
        name=text(row, "name"),
        start=_time(row, "start_time", "startTime", "startTimeUnixNano"),
        end=_time(row, "end_time", "endTime", "endTimeUnixNano"),
        failed=_failed(status),
        message=text(status, "description") or text(status, "message"),
        attributes=attributes(row.get("attributes")),
        events=tuple(_event(event) for event in rows(row, "events")),
        rest=without(row, *_USED),
    )


_USED = (
    "context", "spanContext", "spanId", "traceId", "id", "parent_id", "parentSpanId", "parentId", "name", "start_time",
    "startTime", "startTimeUnixNano", "end_time", "endTime", "endTimeUnixNano", "status", "attributes", "events",
)  # fmt: skip


def attributes(value: JSON) -> Attributes:
    """Attributes as a table, OTLP's list of keys and typed values too."""
    if isinstance(value, list):
        return {text(pair, "key"): _any(at(pair, "value")) for pair in value}
    return table(value)


def _any(value: JSON) -> JSON:
    """A value of OTLP's `AnyValue`; 64-bit integers are texts there."""
    for kind, inner in table(value).items():
        match kind, inner:
            case "intValue", str() if inner.lstrip("-").isdigit():
                return int(inner)
            case "arrayValue", dict():
                return [_any(one) for one in rows(inner, "values")]
            case "kvlistValue", dict():
                return {text(pair, "key"): _any(at(pair, "value")) for pair in rows(inner, "values")}
            case _:
                return inner
    return None


def _id(text: str) -> str:
    return text.removeprefix("0x")


def _failed(status: JSON) -> bool:
    code = at(status, "status_code") if "status_code" in table(status) else at(status, "code")
    return code == 2 or (isinstance(code, str) and code.upper().endswith("ERROR"))


def _time(row: dict[str, JSON], *names: str) -> int | None:
    return moment(next((row[name] for name in names if name in row), None))


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


def _event(event: JSON) -> SpanEvent:
    row = table(event)
    return SpanEvent(
        text(row, "name"), _time(row, "timestamp", "time", "timeUnixNano"), attributes(row.get("attributes"))
    )
