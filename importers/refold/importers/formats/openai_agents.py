"""Traces of the OpenAI Agents SDK as exported by its processors: rows `trace` and `trace.span`.

Rows are one per line, or in a list. A trace is a run. Responses are in `generation` spans, if these were
recorded. Otherwise, a `turn` span with usage shows that there was a response, and the function spans under it
are its calls. Spans are written when they end; they are yielded by their start.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from refold.importers.content import arguments
from refold.importers.documents import values
from refold.importers.fields import (
    JSON,
    Times,
    at,
    instant,
    json_text,
    known_or,
    labels_of,
    rest,
    rows,
    table,
    take_if,
    take_rows,
    take_text,
    text,
)
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan, Unread
from refold.importers.message_shapes import Read, take_messages
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source
from refold.importers.traces import Trace, TraceStep, answer_of, time_of
from refold.importers.usage import UsageNames
from refold.reducers.events import Manifest
from refold.reducers.vocabulary import Role

_ANSWERS = ("generation", "response")
_STOPS = (("Guardrail tripwire triggered", "guardrail"), ("Max turns exceeded", "limit:turns"))
"""Prefixes of span errors that stopped a run, and the run's end."""
_UNSAID = ("user_messages", "tool_messages", "cache_read_tokens", "cache_write_tokens")
_KINDS = frozenset({
    "agent", "custom", "function", "generation", "guardrail", "handoff", "mcp_tools", "response", "span",
    "speech", "speech_group", "task", "transcription", "turn"
})  # fmt: skip
_TOKENS = UsageNames(
    input=("input_tokens",),
    output=("output_tokens",),
    cache_read=("cached_input_tokens",),
    cache_write=("cache_write_input_tokens",),
)


class AgentSpan(msgspec.Struct, frozen=True, gc=False):
    """A span with its position. For the SDK's own `custom` spans, the inner kind counts (`turn`, `task`)."""

    position: str
    row: JSON

    @property
    def kind(self) -> str:
        """Return its type."""
        kind = text(self.data, "type")
        return text(self.data, "data", "sdk_span_type") or kind if kind == "custom" else kind

    @property
    def data(self) -> dict[str, JSON]:
        """Return its data."""
        return table(self.row, "span_data")

    @property
    def error(self) -> str:
        """Return its error message, "" for none."""
        return text(self.row, "error", "message")

    @property
    def used(self) -> dict[str, JSON]:
        """Return the usage of a response or turn."""
        return table(self.data, "usage") or table(self.data, "data", "usage")

    def moment(self, name: str) -> int | None:
        """Return one of its times, in nanoseconds since the Unix epoch."""
        return instant(at(self.row, name))


class OpenAIAgents:
    """The importer for rows of traces and spans."""

    name = "openai_agents"

    def match(self, source: Source) -> FormatMatch | None:
        """Match the object names of its rows."""
        head = source.head().replace(b'": "', b'":"')
        if b'"object":"trace' in head:
            return FormatMatch(95, 'rows of object "trace" and "trace.span"')
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield one run per trace, in the order in which traces first appear."""
        traces: dict[str, tuple[list[AgentSpan], list[AgentSpan]]] = {}
        seen: dict[str, JSON] = {}
        for position, row in _rows(source):
            if isinstance(row, Unread):
                yield row
            elif text(row, "object") == "trace":
                traces.setdefault(text(row, "id"), ([], []))[0].append(AgentSpan(position, row))
            elif text(row, "object") == "trace.span":
                mark = text(row, "id") if text(row, "ended_at") else json_text(row)
                if mark and mark in seen:
                    code = "repeated" if seen[mark] == row else "other_span"
                    yield Place(position).problem(code, f"span {mark[:80]} occurs again", row)
                    continue
                seen[mark] = row
                traces.setdefault(text(row, "trace_id"), ([], []))[1].append(AgentSpan(position, row))
            else:
                yield Place(position).problem("no_span", "neither a trace nor a span", row)
        if not traces:
            raise BadTranscript(source.name, "", "no traces of the OpenAI Agents SDK")
        for key, (heads, spans) in traces.items():
            yield from _run(key or "trace", heads, spans)


OPENAI_AGENTS = OpenAIAgents()


def _rows(source: Source) -> Iterator[tuple[str, JSON | Unread]]:
    for value in values(source, (), ("data",)):
        if isinstance(value, Unread):
            yield value.position, value
        elif "object" not in table(value.value) and (
            inner := take_rows(value.value, "data") or rows(value.value)
        ):
            place = f"{value.position}.data" if isinstance(value.value, dict) else value.position
            yield from ((f"{place}[{index}]", row) for index, row in enumerate(inner))
            if isinstance(value.value, dict) and (around := rest(value.value)):
                yield value.position, value.place.problem("no_span", "data beside the rows", rest=around)
        else:
            yield value.position.removesuffix(" $"), value.value


def _run(key: str, heads: Sequence[AgentSpan], every: Sequence[AgentSpan]) -> Iterator[Item]:
    """Yield the items of a trace, by the start times of its spans; `heads` are its rows `trace`."""
    spans, begun = _split_spans(every)
    has_responses = any(span.kind in _ANSWERS for span in spans)
    known_rests = set[str]()
    trace = Trace([_step(span, known_rests, has_responses=has_responses) for span in spans])
    yield _begin(
        key,
        heads[0] if heads else AgentSpan(spans[0].position, None),
        spans,
        trace,
        has_responses=has_responses,
    )
    for span in begun:
        yield Place(span.position, span.moment("started_at")).remark("begun", span.row)
    yield from trace.items()
    for head in heads[1:]:
        yield Place(head.position).remark("trace", head.row)
    last = heads[-1] if heads else spans[-1]
    times = Times(at(span.row, name) for span in spans for name in ("started_at", "ended_at")).edges()
    yield Place(last.position).end(_end(spans), times)


def _split_spans(every: Sequence[AgentSpan]) -> tuple[list[AgentSpan], list[AgentSpan]]:
    """Return the spans by start time, and separately the start rows of spans that have a complete row."""
    whole = {text(span.row, "id") for span in every if text(span.row, "ended_at")}
    begun = [span for span in every if not text(span.row, "ended_at") and text(span.row, "id") in whole]
    return sorted((span for span in every if span not in begun), key=_start), begun


def _begin(
    key: str, first: AgentSpan, spans: Sequence[AgentSpan], trace: Trace, *, has_responses: bool
) -> RunBegan:
    agent = next((span.data for span in spans if span.kind == "agent"), None)
    labels = {"workflow": take_text(first.row, "workflow_name"), "group": take_text(first.row, "group_id")}
    take_if(first.row, "object", "trace")
    take_if(first.row, "id", key)
    tools = (tool for tool in rows(agent, "tools") if isinstance(tool, str))
    return RunBegan(
        first.position,
        spans[0].moment("started_at") if spans else None,
        rest(first.row),
        key=key,
        messages=trace.list_initial_messages(),
        model=next((name for span in spans if (name := text(span.data, "model"))), ""),
        agent=text(agent, "name"),
        tools=tuple(Manifest(name=name) for name in dict.fromkeys(tools)),
        labels=labels_of(labels),
        unsaid=_UNSAID if has_responses else (*_UNSAID, "assistant_messages"),
        counts=UNCOUNTED,
    )


def _start(span: AgentSpan) -> int:
    return span.moment("started_at") or span.moment("ended_at") or 0


def _step(span: AgentSpan, known_rests: set[str], *, has_responses: bool) -> TraceStep:
    """Return a span as a step. `has_responses`: separate spans record responses, so turns are not responses.

    `known_rests`: state of `take_messages` from earlier prompts.
    """
    start = Place(span.position, span.moment("started_at"))
    if span.kind in _ANSWERS or (
        span.kind == "turn" and not has_responses and table(span.data, "data", "usage")
    ):
        return _answer(span, start, known_rests, has_responses=has_responses)
    if span.kind == "function":
        return _tool(span, start)
    known = not span.kind or span.kind in _KINDS
    remark = start.remark(known_or(span.kind or "span", _KINDS), span.row, known=known)
    return TraceStep(remark=remark, turn=span.kind == "turn")


def _answer(span: AgentSpan, start: Place, known_rests: set[str], *, has_responses: bool) -> TraceStep:
    data, (done, took) = span.data, time_of(start.at, span.moment("ended_at"))
    prompt = take_messages(data, "input", known_rests=known_rests) if span.kind in _ANSWERS else Read()
    output = take_messages(data, "output", role=Role.ASSISTANT)
    used = _TOKENS.of(span.used or None)
    place = Place(span.position, done, Counted(assistant=1, usage=used) if has_responses else UNCOUNTED)
    answer = place.reply(
        answer_of(output),
        used,
        model=text(data, "model"),
        response=text(data, "response_id"),
        duration=took,
        stop=output.stop,
        rest=rest(span.row),
    )
    return TraceStep(
        place=start,
        prompt=prompt.messages,
        answer=answer,
        captured=bool(output.messages),
        unknown=output.unknown,
    )


def _tool(span: AgentSpan, start: Place) -> TraceStep:
    data, (done, took) = span.data, time_of(start.at, span.moment("ended_at"))
    output = "" if data.get("output") is None else arguments(data.get("output"))
    ended, broke = bool(text(span.row, "ended_at")), bool(at(span.row, "error"))
    place = Place(span.position, done, Counted(calls=1, results=int(ended), errors=int(broke)))
    failed, name = broke or (False if ended else None), text(data, "name")
    tool = place.result("", output, name=name, failed=failed, duration=took, rest=json_text(span.row))
    given = None if data.get("input") is None else arguments(data.get("input"))
    return TraceStep(tool=tool, arguments=given, problem=span.error)


def _end(spans: Sequence[AgentSpan]) -> tuple[str, str]:
    failed = [span for span in spans if span.error and span.kind in ("agent", "turn", "task")]
    for span, (words, end) in product(failed, _STOPS):
        if span.error.startswith(words):
            return end, f"span error: {words}"
    if failed:
        return "error", f"error of a span of type {failed[-1].kind}"
    roots = [text(span.row, "ended_at") for span in spans if not text(span.row, "parent_id")]
    if not roots or not all(roots):
        return "open", "the outermost span has no end"
    return "finished", "the outermost span ended without an error"
