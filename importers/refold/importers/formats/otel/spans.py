"""Spans as exporters write them, in files or in a database.

Only shapes differ between exporters; `names` has the meaning of attributes, whose values keep their JSON
types. Source of the shapes: opentelemetry-proto's `trace.proto` in its JSON encoding, `ReadableSpan.to_json`
of the Python SDK, `ReadableSpan` of the JavaScript SDK.

In a database, some attributes are only in columns; these are read as attributes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import cast

import msgspec

from refold.importers.documents import ANY, values
from refold.importers.fields import (
    JSON,
    NANO,
    at,
    drop_empty,
    instant,
    omit_keys,
    rest,
    rows,
    table,
    take,
    take_each,
    take_first,
    take_if,
    take_rows,
    take_text,
    take_time,
    text,
)
from refold.importers.items import Place, Remarked, Unread
from refold.importers.source import BadTranscript, Source
from refold.store.foreign import BadDatabase, ForeignTable, tables

Attributes = dict[str, JSON]


class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a span; `at` is in nanoseconds since the Unix epoch."""

    name: str
    at: int | None
    attributes: Attributes


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A span.

    `start` and `end` are in nanoseconds since the Unix epoch; `left` are the other fields of its row.
    """

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
    """Yield the spans of a JSON document, or of one JSON value per line.

    Raises `BadTranscript` if nothing in the file is JSON.
    """
    for value in values(source, (), ("resourceSpans", ANY, "scopeSpans", ANY, "spans")):
        if isinstance(value, Unread):
            yield value
        else:
            yield from read_spans(value.value, value.position.removesuffix(" $"))


def read_spans(value: JSON, position: str) -> Iterator[Span | Unread]:
    """Yield the spans in a value: a span, a list of them, or OTLP's resources around them."""
    if isinstance(value, list):
        for index, row in enumerate(value):
            yield from read_element(row, f"{position}[{index}]")
    else:
        yield from read_element(value, position)


def read_element(value: JSON, position: str) -> Iterator[Span | Unread]:
    """Yield the spans of one element."""
    if "resourceSpans" in table(value):
        yield from _resources(value, position)
    elif isinstance(value, dict) and isinstance(value.get("name"), str):
        yield span(value, position)
    elif lists := {name: listed for name, listed in table(value).items() if _lists_spans(listed)}:
        for name, listed in lists.items():  # grouped, under a name for each group
            yield from read_spans(listed, f"{position}.{name}")
        yield from _report_beside(omit_keys(value, *lists), position)
    else:
        yield Place(position).problem("no_span", "neither a span nor a list of them", value)


def _lists_spans(value: JSON) -> bool:
    """Return whether it is a list of objects with a name and an id, like spans."""
    listed = rows(value)
    ids = {"spanContext", "context", "spanId", "span_id"}
    return bool(listed) and all(ids & table(row).keys() and "name" in table(row) for row in listed)


def _report_beside(value: JSON, position: str) -> Iterator[Unread]:
    if around := rest(value):
        yield Place(position).problem("no_span", "data beside the lists of spans", rest=around)


def _resources(value: JSON, position: str) -> Iterator[Span | Unread]:
    for i, resource in enumerate(take_each(value, "resourceSpans")):
        about = at(resource, "resource")
        for j, scope in enumerate(take_each(resource, "scopeSpans")):
            around: dict[str, JSON] = {"resource": about, "scope": at(scope, "scope")}
            for k, row in enumerate(take_rows(scope, "spans")):
                place = f"{position}.resourceSpans[{i}].scopeSpans[{j}].spans[{k}]"
                take(resource, "resource")
                take(scope, "scope")  # copied to each of its spans
                if isinstance(row, dict):
                    yield span({**around, **row}, place)
                else:
                    yield Place(place).problem("no_span", "not an object", row)
    yield from _report_beside(value, position)


def span(row: dict[str, JSON], position: str) -> Span:
    """Take a span out of its row, which has any of the JSON shapes."""
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
        failed=_is_failed(row.get("status")),
        message=take_text(row, "status", "description") or take_text(row, "status", "message"),
        attributes=_take_attributes(row),
        events=tuple([_take_event(event) for event in take_each(row, "events")]),
        left=row,
    )
    drop_empty(row)
    return made


def _take_attributes(row: JSON) -> Attributes:
    """Take the attributes as an object, also from OTLP's list of keys and typed values."""
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
    """Take a value out of OTLP's `AnyValue`, which writes 64-bit integers as text."""
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


def _is_failed(status: JSON) -> bool:
    code = at(status, "status_code") if "status_code" in table(status) else at(status, "code")
    return code == 2 or (isinstance(code, str) and code.upper().endswith("ERROR"))


def _take_time(row: JSON, *names: str) -> int | None:
    name = next((name for name in names if name in table(row)), "")
    found = moment(at(row, name))
    if found is not None:
        take(row, name)
    return found


def moment(value: JSON) -> int | None:
    """Return a time in nanoseconds, None for no time.

    Accepts `[seconds, nanoseconds]`, nanoseconds (also as text), ISO 8601, and milliseconds.
    """
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
    """Return a time as ISO 8601 in UTC, rounded to microseconds, or with fewer digits if these are zero."""
    micros = (nanoseconds + 500) // 1000
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    part = "seconds" if micros % 1_000_000 == 0 else "milliseconds" if micros % 1000 == 0 else "microseconds"
    return when.isoformat(timespec=part).replace("+00:00", "Z")


def _take_event(event: JSON) -> SpanEvent:
    when = _take_time(event, "timestamp", "time", "timeUnixNano")
    return SpanEvent(take_text(event, "name"), when, _take_attributes(event))


COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "operation_name": "gen_ai.operation.name",
        "provider_name": "gen_ai.provider.name",
        "agent_name": "gen_ai.agent.name",
        "conversation_id": "gen_ai.conversation.id",
        "request_model": "gen_ai.request.model",
        "response_model": "gen_ai.response.model",
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
        "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
        "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
        "tool_name": "gen_ai.tool.name",
        "tool_call_id": "gen_ai.tool.call.id",
        "tool_type": "gen_ai.tool.type",
    }
)
_TABLES = frozenset({"spans", "span_attributes", "span_events"})
_MOST_SHOWN = 100


def database_spans(source: Source) -> Iterator[Span | Unread | Remarked]:
    """Yield the spans of a database in row order, then remarks about other tables.

    Raises `BadTranscript` if it is not a database, or has no table of spans.
    """
    try:
        found = tables(source.whole())
    except BadDatabase as error:
        raise BadTranscript(source.name, "", str(error)) from error
    if "spans" not in found or "span_id" not in found["spans"].columns:
        raise BadTranscript(source.name, "", "a SQLite database without a table `spans`")
    attributes = _attributes(found.get("span_attributes", ()))
    events = _events(found.get("span_events", ()))
    for number, row in enumerate(found["spans"], 1):
        yield _span({**row}, number, attributes, events)
    for key, orphans in sorted(attributes.items()):
        yield Place(f"span_attributes span_id={key}").problem(
            "no_span", "of a span that is not in the file", {**orphans}
        )
    for key, late in sorted(events.items()):
        listed: JSON = [{"name": event.name, "at": event.at, **event.attributes} for event in late]
        yield Place(f"span_events span_id={key}").problem(
            "no_span", "of a span that is not in the file", listed
        )
    yield from _read_other_tables(found)


def _span(
    row: dict[str, JSON],
    number: int,
    attributes: dict[str, Attributes],
    events: dict[str, list[SpanEvent]],
) -> Span:
    key = text(row, "span_id")
    own = attributes.pop(key, {})
    for column, name in COLUMNS.items():
        value = row.get(column)
        if value not in (None, "") and own.setdefault(name, value) == value:
            take(row, column)
    drop_empty(row)
    return Span(
        position=f"spans row {number} span_id={key}",
        id=take_text(row, "span_id"),
        trace=take_text(row, "trace_id"),
        parent=take_text(row, "parent_span_id"),
        name=take_text(row, "name"),
        start=take_time(row, "start_time_ms"),
        end=take_time(row, "end_time_ms"),
        failed=row.get("status_code") == 2,
        message=take_text(row, "status_message"),
        attributes=own,
        events=tuple(events.pop(key, ())),
        left=row,
    )


def _attributes(rows: Iterable[Mapping[str, JSON]]) -> dict[str, Attributes]:
    found: dict[str, Attributes] = defaultdict(dict)
    for row in rows:
        found[str(row.get("span_id"))][str(row.get("key"))] = row.get("value")
    return found


def _events(rows: Iterable[Mapping[str, JSON]]) -> dict[str, list[SpanEvent]]:
    found: dict[str, list[SpanEvent]] = defaultdict(list)
    for row in rows:
        left: dict[str, JSON] = {**row}
        name, key, when = str(take(left, "name")), str(take(left, "span_id")), take_time(left, "timestamp_ms")
        found[key].append(SpanEvent(name, when, {**_decode(take(left, "attributes")), **left}))
    return found


def _decode(value: JSON) -> Attributes:
    if not isinstance(value, str):
        return {}
    try:
        read = cast("JSON", msgspec.json.decode(value))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {"attributes": value}
    return read if isinstance(read, dict) else {"attributes": read}


def _read_other_tables(found: dict[str, ForeignTable]) -> Iterator[Unread | Remarked]:
    for name, listed in found.items():
        if listed.cut:
            yield Place(name).problem("too_many_rows", f"only the first {len(listed.rows)} rows were read")
        if name not in _TABLES and listed.rows:
            shown: list[JSON] = [list[JSON](row) for row in listed.rows[:_MOST_SHOWN]]
            rest: JSON = {"columns": list[JSON](listed.columns), "rows": shown, "of": len(listed.rows)}
            yield Place(name).remark("unmapped", rest)
