"""OpenTelemetry spans of agents, by the GenAI semantic conventions, from all common file formats.

Contents are recorded only if their capture was enabled.

Counts: runs = agent spans; responses and tokens = chat spans (an agent span repeats the usage of its chats);
calls = tool spans, failed ones by their status.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from refold.importers.content import end_of, take_tools
from refold.importers.fields import JSON, json_text, labels_of, take_if, text
from refold.importers.formats.otel import names as otel_names
from refold.importers.formats.otel import spans as otel_spans
from refold.importers.formats.otel.names import is_outer, operation
from refold.importers.formats.otel.spans import Span, stamp
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RequestFailed, RunBegan
from refold.importers.message_shapes import Read
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source
from refold.importers.traces import Trace, TraceStep, answer_of, time_of
from refold.importers.usage import sum_counts
from refold.reducers.events import Manifest
from refold.reducers.failures import classify
from refold.store.foreign import MAGIC

_NEAR = 100  # maximum number of concurrent outer spans


class SpanMember(msgspec.Struct, frozen=True, gc=False):
    """A span of a run. `helper`: its agent is not known; it was assigned to the nearest one by time."""

    span: Span
    helper: bool = False


class SpanTree(msgspec.Struct, frozen=True, gc=False):
    """A run: its agent's span (None if not recorded), and its members by start."""

    key: str
    agent: Span | None
    members: tuple[SpanMember, ...]


def trees(spans: Sequence[Span]) -> tuple[SpanTree, ...]:
    """Return the runs of these spans, by start. Every span is in exactly one."""
    agents = sorted((span for span in spans if operation(span) == "agent"), key=_start)
    if not agents:
        return _group_without_agents(spans)
    by_id = {span.id: span for span in spans if span.id}
    owned: dict[int, list[SpanMember]] = {id(agent): [] for agent in agents}
    for span in spans:
        owner, sure = _owner(span, by_id, agents)
        if id(span) not in owned:
            owned[id(owner)].append(SpanMember(span, helper=not sure))
        elif owner is not span:
            owned[id(owner)].append(SpanMember(span))
    keys = _keys([agent.id or agent.position for agent in agents])
    return tuple(
        SpanTree(key, agent, tuple(sorted(owned[id(agent)], key=lambda member: _start(member.span))))
        for key, agent in zip(keys, agents, strict=True)
    )


def _owner(span: Span, by_id: dict[str, Span], agents: Sequence[Span]) -> tuple[Span, bool]:
    """Return the agent of a span, and whether that is certain. An outermost agent belongs to itself."""
    above, seen = by_id.get(span.parent), {id(span)}
    while above is not None and id(above) not in seen:
        if operation(above) == "agent":
            return above, True
        seen.add(id(above))
        above = by_id.get(above.parent)
    if operation(span) == "agent":
        return span, True
    return _nearest(span, by_id, agents)


def _nearest(span: Span, by_id: dict[str, Span], agents: Sequence[Span]) -> tuple[Span, bool]:
    """Return the agent of a span without a parent agent: the innermost around it, else one of its trace."""
    begun = bisect_right(agents, _start(span), key=_start)
    around = next(
        (agent for agent in reversed(agents[max(0, begun - _NEAR) : begun]) if is_outer(agent, span)), None
    )
    if around is not None:
        return around, True  # the one that began last is the innermost
    # Its parent is not in the file, for example after truncation: the trace is still known.
    near = [
        agent for agent in agents if span.parent and span.parent not in by_id and agent.trace == span.trace
    ]
    before = bisect_right(near or agents, _start(span), key=_start)
    return (near or agents)[max(0, before - 1)], bool(near)


def _group_without_agents(spans: Sequence[Span]) -> tuple[SpanTree, ...]:
    """Return the runs of spans without agents: one per conversation id, else one per trace."""
    groups = _conversations(spans)
    kept = {key: group for key, group in groups.items() if any(map(operation, group))}
    spare = [span for key, group in groups.items() if key not in kept for span in group]
    if not kept:
        return ()
    head = next(iter(kept))
    kept[head] = kept[head] + spare
    return tuple(
        SpanTree(key or "spans", None, tuple(SpanMember(span) for span in sorted(group, key=_start)))
        for key, group in sorted(kept.items(), key=lambda pair: min(map(_start, pair[1])))
    )


def _conversations(spans: Sequence[Span]) -> dict[str, list[Span]]:
    groups: dict[str, list[Span]] = {}
    names: dict[str, str] = {}
    for span in spans:
        if conversation := text(span.attributes, "gen_ai.conversation.id"):
            names.setdefault(span.trace, conversation)
    for span in spans:
        own = text(span.attributes, "gen_ai.conversation.id") or names.get(span.trace, span.trace)
        groups.setdefault(own, []).append(span)
    return groups


def _keys(wanted: Sequence[str]) -> list[str]:
    made: list[str] = []
    for key in wanted:
        made.append(key if key not in made else f"{key}#{len(made) + 1}")
    return made


def _start(span: Span) -> int:
    return span.start if span.start is not None else span.end or 0


def times_of(tree: SpanTree) -> tuple[str, str] | None:
    """Return the first and the last time of a run's spans, including the agent's."""
    spans = [member.span for member in tree.members] + ([tree.agent] if tree.agent else [])
    times = [time for span in spans for time in (span.start, span.end) if time is not None]
    return (stamp(min(times)), stamp(max(times))) if times else None


def list_unrecorded(tree: SpanTree) -> tuple[str, ...]:
    """Return the counts that no chat of a run records, and those that spans never record."""
    chats = (member.span.attributes for member in tree.members if operation(member.span) == "chat")
    return ("user_messages", "tool_messages", *otel_names.TOKENS.list_unrecorded(chats))


def find_end(tree: SpanTree, answers: Mapping[int, Read | None]) -> tuple[str, str]:
    """Return how a run ended, and where that is recorded: by the agent's status, else by the last span.

    `answers` are the responses by `id()` of their spans.
    """
    if tree.agent is not None:
        if tree.agent.end is None:
            return "open", "the agent span has no end"
        return ("error" if tree.agent.failed else "finished"), "status of the agent span"
    happened = [member.span for member in tree.members if operation(member.span) in {"chat", "tool"}]
    if not happened:
        return "unknown", "no agent span, chat or tool"
    return _end_with_last(happened[-1], answers)


def _end_with_last(last: Span, answers: Mapping[int, Read | None]) -> tuple[str, str]:
    if operation(last) == "tool" or last.end is None:
        return "open", "no agent span; the last span is a tool, or has no end"
    if last.failed:
        return "error", "no agent span; the last chat failed"
    response = answers.get(id(last))
    if response and any(message.calls for message in response.messages):
        return "open", "no agent span; the last response has calls"
    # Not every exporter records a stop reason, but a span has an end only if its response is complete.
    return end_of(otel_names.stop(last.attributes) or "stop"), "no agent span; the last response has no calls"


_SETTINGS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "frequency_penalty", "presence_penalty")


class OpenTelemetry:
    """The importer for spans in a SQLite database, in lists of the SDKs' exporters, or in OTLP/JSON.

    JSON files have one document, or one value per line.
    """

    name = "otel"

    def match(self, source: Source) -> FormatMatch | None:
        """Match OTLP's outermost key, keys of spans, or the tables of a database."""
        head = source.head()
        if head.startswith(MAGIC):
            return (
                FormatMatch(90, "a SQLite database with a table of spans")
                if b"span_attributes" in head
                else None
            )
        if head.lstrip()[:1] not in (b"{", b"["):
            return None
        if b'"resourceSpans"' in head:
            return FormatMatch(95, "OTLP resourceSpans")
        ids = any(
            key in head for key in (b'"spanContext"', b'"trace_state"', b'"parentSpanId"', b'"span_id"')
        )
        if ids and any(
            name in head for name in (b'"gen_ai.', b'"ai.operationId"', b'"openinference.span.kind"')
        ):
            return FormatMatch(90, "spans with attributes of the GenAI conventions")
        return FormatMatch(40, "spans") if ids and b'"attributes"' in head else None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the runs one after the other; before them, problems with values that are not imported."""
        read = (
            otel_spans.database_spans(source)
            if source.head(len(MAGIC)) == MAGIC
            else otel_spans.spans(source)
        )
        spans, seen = list[Span](), dict[tuple[str, str], Span]()
        for found in read:
            if not isinstance(found, Span):
                yield found
            elif found.id and (found.trace, found.id) in seen:
                first = replace(seen[found.trace, found.id], position=found.position)
                code, problem = (
                    ("repeated", "occurs again") if first == found else ("other_span", "is another span's id")
                )
                yield Place(found.position).problem(code, f"span {found.id} {problem}", _span(found))
            else:
                seen[found.trace, found.id] = found
                spans.append(found)
        if not spans:
            raise BadTranscript(source.name, "", "no spans")
        forest = trees(spans)
        for tree in forest:
            yield from _SpanRun(tree).items()
        if not forest:
            yield Place("").problem("no_run", "no span of an agent, a chat or a tool")
            for span in spans:
                yield Place(span.position, span.start).remark("span", _span(span))


OTEL = OpenTelemetry()


class _SpanRun:
    """A reader of one run; its spans are ordered by start."""

    def __init__(self, tree: SpanTree) -> None:
        self.tree = tree
        own = [member.span for member in tree.members if not member.helper]
        self.chats = [span for span in own if operation(span) == "chat"]
        self.known_rests = set[str]()
        self.prompts = {id(span): otel_names.take_prompt(span, self.known_rests) for span in self.chats}
        self.answers: dict[int, Read | None] = {}
        self.tools = self._take_tools([*self.chats, *([tree.agent] if tree.agent else [])])

    def _take_tools(self, offering: Sequence[Span]) -> tuple[Manifest, ...]:
        """Take the tools of the first span that has any, and the same definitions from others."""
        named = [span.attributes for span in offering if otel_names.TOOLS in span.attributes]
        for own in named[1:]:
            take_if(own, otel_names.TOOLS, named[0][otel_names.TOOLS])
        return take_tools(named[0], otel_names.TOOLS) if named else ()

    def items(self) -> Iterator[Item]:
        """Yield the start, the steps, and the end."""
        agent = self.tree.agent
        trace = Trace([self._step(member) for member in self.tree.members])
        head = agent or self.tree.members[0].span
        own = (self.chats[0] if self.chats else head).attributes
        labels = {"trace": head.trace, "conversation": text(head.attributes, "gen_ai.conversation.id")}
        settings = {name: own.get(f"gen_ai.request.{name}") for name in _SETTINGS}
        yield RunBegan(
            head.position,
            head.start,
            json_text(_list_rest(agent)) if agent else "",
            key=self.tree.key,
            messages=trace.list_initial_messages(
                otel_names.take_prompt(agent, self.known_rests) if agent else ()
            ),
            model=text(otel_names.first(own, otel_names.MODEL)),
            agent=text(head.attributes, "gen_ai.agent.name"),
            tools=self.tools,
            settings={name: json_text(value) for name, value in settings.items() if value is not None},
            labels=labels_of(labels),
            unsaid=list_unrecorded(self.tree),
            counts=UNCOUNTED,
        )
        yield from trace.items()
        last = agent or self.tree.members[-1].span
        yield Place(last.position, last.end).end(find_end(self.tree, self.answers), times_of(self.tree))

    def _step(self, member: SpanMember) -> TraceStep:
        span, kind = member.span, operation(member.span)
        start = Place(span.position, span.start, _count_span(span))
        if member.helper:
            known = bool(kind) or not otel_names.names_tool(span)
            what = f"helper:{kind}" if kind else "span"
            return TraceStep(remark=start.remark(what, _span(span), known=known))
        match kind:
            case "chat":
                return self._chat(span, start)
            case "tool" if span.end is not None:
                return _tool(span, start)
            case "agent":
                # A subagent is a separate run, which has the attributes of this span.
                return TraceStep(remark=start.remark("subagent", {"run": span.id, "name": span.name}))
            case _:
                what = {"hook": "hook", "tool": "tool:open"}.get(kind, "span")
                known = bool(kind) or not otel_names.names_tool(span)
                return TraceStep(remark=start.remark(what, _span(span), known=known))

    def _chat(self, span: Span, start: Place) -> TraceStep:
        own, failure = span.attributes, _failure(span) if span.failed else None
        response = self.answers[id(span)] = otel_names.take_answer(span)
        done, took = time_of(span.start, span.end)
        answer = Place(span.position, done, start.counts).reply(
            answer_of(response),
            otel_names.usage(span),
            quality="reported"
            if sum_counts([otel_names.parse_counts(span)], *otel_names.TOKENS.input) is not None
            else "",
            stop=(response.stop if response else "") or otel_names.stop(own),
            cost=otel_names.cost(span),
            model=text(own, "gen_ai.response.model") or text(own, "ai.response.model"),
            response=text(own, "gen_ai.response.id") or text(own, "ai.response.id"),
            duration=took,
            rest=json_text(_list_rest(span)),
        )
        return TraceStep(
            place=start,
            prompt=self.prompts[id(span)],
            before=otel_names.count_before(span),
            answer=answer,
            captured=response is not None,
            unknown=response.unknown if response else (),
            failure=failure,
        )


def _failure(span: Span) -> RequestFailed:
    raised = next((event.attributes for event in span.events if event.name == "exception"), None)
    message = span.message or text(raised, "exception.message") or text(span.attributes, "error.type")
    failure = classify(None, f"{text(raised, 'exception.type')} {message}")
    place = Place(span.position, span.end, _count_span(span))
    return place.failure(message, failure, rest=json_text(_list_rest(span)))


def _count_span(span: Span) -> Counted | None:
    """Return the counts of a span. Helpers count, too, because they use tokens."""
    match operation(span):
        case "chat":
            return Counted(assistant=1, usage=otel_names.usage(span))
        case "tool":
            return Counted(calls=1, results=int(span.end is not None), errors=int(span.failed))
        case _:
            return None


def _tool(span: Span, start: Place) -> TraceStep:
    """Return the step of a tool span.

    A tool that the harness ran without a call of the model has no id; its result becomes a remark.
    """
    own = span.attributes
    given = otel_names.call_text(span, otel_names.CALL_ARGUMENTS)
    done, took = time_of(span.start, span.end)
    tool = Place(span.position, done, start.counts).result(
        text(otel_names.first(own, otel_names.CALL_ID)),
        otel_names.call_text(span, otel_names.CALL_RESULT),
        name=text(otel_names.first(own, otel_names.CALL_NAME)) or span.name,
        failed=span.failed or (None if span.end is None else False),
        duration=took,
        rest=json_text(_list_rest(span)),
    )
    alone = start.remark("tool", _span(span))
    return TraceStep(tool=tool, arguments=given or None, problem=span.message, alone=alone)


def _span(span: Span) -> dict[str, JSON]:
    """Return a complete span, with its times in nanoseconds since the Unix epoch."""
    return {**_list_rest(span), "start": span.start, "end": span.end}


def _list_rest(span: Span) -> dict[str, JSON]:
    """Return the remaining fields of a span, without its times."""
    whole: dict[str, JSON] = {"name": span.name, "id": span.id, "trace": span.trace, "parent": span.parent}
    whole["message"], whole["failed"] = span.message, span.failed
    whole["attributes"], whole["row"] = span.attributes, span.left
    whole["events"] = [
        {"name": event.name, "at": event.at, "attributes": event.attributes} for event in span.events
    ]
    return {name: value for name, value in whole.items() if value}
