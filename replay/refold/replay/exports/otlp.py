"""OTLP/JSON spans by OpenTelemetry's GenAI conventions, for collectors and trace viewers.

A run is an `invoke_agent` span. Its children are a `chat` span for each finished request and an
`execute_tool` span for each result. Decisions (guards, compaction, refusals, retries) are events of the next
span. Ids are digests of the run and the event, so exporting a log again gives the same trace. Source:
opentelemetry-proto `trace.proto` in its JSON encoding (ids in hex, 64-bit integers as strings), and the
`gen_ai.*` conventions; other attributes are under `refold.*`.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable
from importlib.metadata import version
from typing import Any, cast

import msgspec

from refold.reducers import events as ev
from refold.reducers.messages import Message, Usage
from refold.reducers.vocabulary import Role
from refold.replay import known
from refold.replay.exports.openai import Trail, of_tool
from refold.replay.figures import by
from refold.replay.kinds.table import kind_for
from refold.replay.reader import Step, Steps, stored_events
from refold.replay.source_words import export_end
from refold.store.protocol import Store

_ENCODER = msgspec.json.Encoder()
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2
_MOST_EVENTS = 128  # maximum per span, as in the SDKs; dropped events are counted

BEFORE = "refold.input.before"
"""Number of messages repeated from the previous request, before a span's input messages."""

Attributes = dict[str, Any]


async def otlp_spans(
    store: Store, run: str, upto: int | None = None, *, content: bool = True, prompts: bool = False
) -> AsyncIterator[str]:
    """Yield one `resourceSpans` entry in pieces; join those of several runs by commas.

    Without `content`, payloads are left out. Each request has only its new messages; with `prompts` it has
    all of them, which is quadratic in the length of the run.

    Raises `UnknownRun`, `DamagedLog` and `NewerLog`.
    """
    resource = _attributes({"service.name": "refold", "service.version": version("refold")})
    scope = {"name": "refold", "version": version("refold")}
    yield f'{{"resource":{{"attributes":{_json(resource)}}},"scopeSpans":[{{"scope":{_json(scope)},"spans":[\n'
    spans = Spans(run, content=content, prompts=prompts)
    between = ""
    async for step in Steps(stored_events(store, run, upto), folds=True):
        for span in spans.take(step):
            yield between + _json(span)
            between = ",\n"
    yield between + _json(spans.root()) + "]}]}\n"


class Spans:
    """Converts the steps of a run to spans. It holds the decisions of one turn and the calls in progress."""

    def __init__(self, run: str, *, content: bool = True, prompts: bool = False) -> None:
        self.trail = Trail()
        self._run, self._content, self._prompts = run, content, prompts
        self._trace = hashlib.sha256(f"refold trace {run}".encode()).hexdigest()[:32]
        self._began = self._last = 0
        self._started: Attributes = {}
        self._asked: tuple[int, ev.ModelRequested, Attributes] | None = None
        self._dispatched: dict[str, int] = {}
        self._arguments: dict[str, tuple[str, str]] = {}
        self._events: list[dict[str, Any]] = []
        self._dropped = 0

    def take(self, step: Step) -> list[dict[str, Any]]:
        """Return the spans that end with this event."""
        self.trail.take(step)
        at, seq, event = step.stored.at, step.stored.seq, step.event
        self._began = self._began or at
        if not isinstance(event, ev.Annotation):  # later annotations do not extend the run
            self._last = max(self._last, at)
        match event:
            case ev.RunStarted() | ev.RunForked():
                self._started |= self._opening(event)
            case ev.ModelRequested():
                self._asked = (at, event, self._prompt(step))
            case ev.ToolsDispatched():
                self._dispatched |= dict.fromkeys(event.calls, at)
            case ev.ModelResponded() | ev.ModelFailed():
                return [self._chat(at, seq, event)]
            case ev.ToolReturned() | ev.CallRefused():
                return [self._tool(at, seq, event)]
            case ev.Decision() if kind_for(event).compared:
                self._note(at, seq, event)
            case _:
                pass
        return []

    def root(self) -> dict[str, Any]:
        """Return the span of the whole run. Call it after the last event."""
        state = self.trail.state
        outcome = state.outcome
        own = self._started | {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": self._run,
            **_tokens("gen_ai.aggregated_usage", state.spent.usage),
            "refold.state": str(state.agent_state),
            "refold.reason": outcome.code if outcome else "",
            "refold.events": state.seq,
            **_cost(known.cost(state.spent)),
            **{f"refold.{name}": text for name, text in export_end(state, self.trail.source_end).items()},
        }
        if self._content and state.setup.tools:
            own["gen_ai.tool.definitions"] = _json([of_tool(tool) for tool in state.setup.tools])
        failed = state.agent_state.failed or self.trail.source_end.end == "error"
        name = f"invoke_agent {state.setup.agent}".strip()
        return self._span(0, name, _INTERNAL, self._began, self._last, own, failed=failed)

    def _opening(self, event: ev.RunStarted | ev.RunForked) -> Attributes:
        model = event.model or ""
        said = {
            "gen_ai.provider.name": model.partition(":")[0] if ":" in model else "",
            "gen_ai.request.model": model,
        }
        agent = event.agent if isinstance(event, ev.RunStarted) else ""
        labels = {f"refold.label.{name}": value for name, value in event.labels.items()}
        return {
            name: value for name, value in (said | {"gen_ai.agent.name": agent} | labels).items() if value
        }

    def _prompt(self, step: Step) -> Attributes:
        setup = step.after.setup
        own: Attributes = {
            "gen_ai.request.model": step.after.request.event.model if step.after.request else ""
        }
        own["gen_ai.request.model"] = own["gen_ai.request.model"] or setup.model
        if not self._content:
            return own
        whole = self.trail.view() if self._prompts else None
        before, shown = (0, whole) if self._prompts else self.trail.fresh() or (0, None)
        if shown is not None:
            own["gen_ai.input.messages"] = _json([of_message(message) for message in shown])
        return own | ({BEFORE: before} if before else {})

    def _chat(self, at: int, seq: int, event: ev.ModelResponded | ev.ModelFailed) -> dict[str, Any]:
        start, request, own = self._asked or (at - event.duration, None, {})
        usage = event.usage
        own = own | {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": self._run,
            **_tokens("gen_ai.usage", usage),
            "refold.seq": seq,
            "refold.step": request.step if request else 0,
        }
        own |= {"gen_ai.usage.cache_read.input_tokens": usage.cache_read} if usage.cache_read else {}
        own |= {"gen_ai.usage.cache_creation.input_tokens": usage.cache_write} if usage.cache_write else {}
        own |= _cost(event.cost_nanousd)
        failed = isinstance(event, ev.ModelFailed)
        own |= (
            {"error.type": str(event.failure)} if isinstance(event, ev.ModelFailed) else self._answer(event)
        )
        name = f"chat {own.get('gen_ai.request.model', '')}".strip()
        return self._span(seq, name, _CLIENT, min(start, at), at, own, failed=failed)

    def _answer(self, event: ev.ModelResponded) -> Attributes:
        said = event.content
        arguments = said.arguments if said else tuple("" for _ in event.calls)
        calls = [(call.id, call.name, given) for call, given in zip(event.calls, arguments, strict=True)]
        self._arguments = {call: (name, given) for call, name, given in calls}
        own: Attributes = {
            "gen_ai.response.model": event.model,
            "gen_ai.response.id": event.response_id,
            "gen_ai.response.finish_reasons": (event.stop_raw or known.stopped(event),),
        }
        if self._content and said is not None:
            parts = _parts(said.reasoning, said.text or None, calls)
            own["gen_ai.output.messages"] = _json(
                [{"role": "assistant", "parts": parts, "finish_reason": known.stopped(event)}]
            )
        return {name: value for name, value in own.items() if value}

    def _tool(self, at: int, seq: int, event: ev.ToolReturned | ev.CallRefused) -> dict[str, Any]:
        name, arguments = self._arguments.get(event.call, ("", ""))
        start = self._dispatched.pop(event.call, at)
        own: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.conversation.id": self._run,
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": event.call,
            "refold.seq": seq,
        }
        failed = False
        if isinstance(event, ev.CallRefused):
            own |= {"refold.refused": str(event.why), "refold.guard": by(event.cause, event.name)}
        else:
            own |= {"refold.outcome": known.outcome(event)}
            own |= {"error.type": str(event.error)} if event.error else {}
            own |= {"refold.refused": str(event.refused_by)} if event.refused_by else {}
            failed = known.failed(event) is True
        if self._content:
            own |= {"gen_ai.tool.call.arguments": arguments} if arguments else {}
            own |= {"gen_ai.tool.call.result": said} if (said := _result_text(event)) is not None else {}
        return self._span(
            seq, f"execute_tool {name}".strip(), _INTERNAL, min(start, at), at, own, failed=failed
        )

    def _note(self, at: int, seq: int, event: ev.Event) -> None:
        if len(self._events) >= _MOST_EVENTS:
            self._dropped += 1
            return
        body = msgspec.to_builtins(event)
        plain = {
            f"refold.{name}": value for name, value in body.items() if isinstance(value, str | int | float)
        }
        own = {"refold.seq": seq, "refold.says": kind_for(event).says(event)} | plain
        del own["refold.kind"]
        self._events.append(
            {"timeUnixNano": str(at), "name": f"refold.{ev.kind_of(event)}", "attributes": _attributes(own)}
        )

    def _span(
        self, seq: int, name: str, kind: int, start: int, end: int, own: Attributes, *, failed: bool
    ) -> dict[str, Any]:
        made: dict[str, Any] = {
            "traceId": self._trace,
            "spanId": self._id(seq),
            "name": name,
            "kind": kind,
            # 0 means unknown, as in logs of transcripts without times.
            "startTimeUnixNano": str(max(0, start)),
            "endTimeUnixNano": str(end),
            "attributes": _attributes(own),
            "events": self._events,
            "droppedEventsCount": self._dropped,
            "status": {"code": _ERROR} if failed else {},
        }
        if seq:
            made["parentSpanId"] = self._id(0)
        self._events, self._dropped = [], 0
        return made

    def _id(self, seq: int) -> str:
        return hashlib.sha256(f"refold span {self._run} {seq}".encode()).hexdigest()[:16]


def _result_text(event: ev.ToolReturned | ev.CallRefused) -> str | None:
    """Return the result of a call in the prompt; None if it was erased or not read."""
    match event:
        case ev.ToolReturned(content=output):
            return output.output if output else None
        case ev.CallRefused(content=texts):
            return texts.texts[0] if texts else None


def of_message(message: Message) -> dict[str, Any]:
    """Convert a message to the format of the conventions: a role and parts."""
    if message.role is Role.TOOL:
        part = {"type": "tool_call_response", "id": message.call or "", "response": message.text}
        return {"role": "tool", "parts": [part]}
    calls = [(call.id, call.name, call.arguments) for call in message.calls]
    text = message.text if message.text or not calls else None
    return {"role": str(message.role), "parts": _parts(message.reasoning, text, calls)}


def _parts(reasoning: str, text: str | None, calls: Iterable[tuple[str, str, str]]) -> list[dict[str, Any]]:
    parts = [{"type": "reasoning", "content": reasoning}] if reasoning else []
    parts += [{"type": "text", "content": text}] if text is not None else []
    return parts + [
        {"type": "tool_call", "id": id_, "name": name, "arguments": given} for id_, name, given in calls
    ]


def _attributes(own: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in own.items() if value is not None]


def _value(value: object) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case tuple():
            return {"arrayValue": {"values": [_value(each) for each in cast("tuple[object, ...]", value)]}}
        case _:
            return {"stringValue": str(value)}


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _tokens(of: str, usage: Usage) -> Attributes:
    counts = {"input_tokens": known.sent(usage), "output_tokens": known.got(usage)}
    return {f"{of}.{name}": count for name, count in counts.items() if count is not None}


def _cost(nano: int | None) -> Attributes:
    return {} if nano is None else {"refold.cost_nanousd": nano}
