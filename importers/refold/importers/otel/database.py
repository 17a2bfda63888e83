"""Spans in a SQLite database: tables `spans`, `span_attributes` and `span_events`, as the span store of an editor keeps them.

What has a column there is often not among the attributes: a column stands in for the attribute of its meaning.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import cast

import msgspec

from refold.importers.fields import JSON, text
from refold.importers.items import Place, Remarked, Unread
from refold.importers.leftovers import drop_empty, take, take_text, take_time
from refold.importers.otel.spans import Attributes, Span, SpanEvent
from refold.importers.source import BadTranscript, Source
from refold.store.foreign import BadDatabase, ForeignTable, tables

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


def spans(source: Source) -> Iterator[Span | Unread | Remarked]:
    """The spans of a database, in the order of their rows; what is in no table of spans is said to be left.

    Raises `BadTranscript` where it is no database, or holds no table of spans.
    """
    try:
        found = tables(source.whole())
    except BadDatabase as error:
        raise BadTranscript(source.name, "", str(error)) from error
    if "spans" not in found or "span_id" not in found["spans"].columns:
        raise BadTranscript(source.name, "", "a SQLite database without a table `spans` of spans")
    attributes = _attributes(found.get("span_attributes", ()))
    events = _events(found.get("span_events", ()))
    for number, row in enumerate(found["spans"], 1):
        yield _span({**row}, number, attributes, events)
    for key, left in sorted(attributes.items()):
        yield Place(f"span_attributes span_id={key}").unread("no_span", "no such span", {**left})
    for key, late in sorted(events.items()):
        told: JSON = [{"name": event.name, "at": event.at, **event.attributes} for event in late]
        yield Place(f"span_events span_id={key}").unread("no_span", "no such span", told)
    yield from _others(found)


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
        found[key].append(SpanEvent(name, when, {**_decoded(take(left, "attributes")), **left}))
    return found


def _decoded(value: JSON) -> Attributes:
    if not isinstance(value, str):
        return {}
    try:
        read = cast("JSON", msgspec.json.decode(value))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {"attributes": value}
    return read if isinstance(read, dict) else {"attributes": read}


def _others(found: dict[str, ForeignTable]) -> Iterator[Unread | Remarked]:
    for name, table in found.items():
        if table.cut:
            yield Place(name).unread("too_many_rows", f"only the first {len(table.rows)} rows were read")
        if name not in _TABLES and table.rows:
            shown: list[JSON] = [list[JSON](row) for row in table.rows[:_MOST_SHOWN]]
            rest: JSON = {"columns": list[JSON](table.columns), "rows": shown, "of": len(table.rows)}
            yield Place(name).remarked("unmapped", rest)
