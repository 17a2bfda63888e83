"""Langfuse traces: `{trace, observations}`.

A trace is a run. Its GENERATIONs are the responses, each in the shape of its framework. The end is not
recorded; only a level ERROR shows a failure.

Counts: responses = GENERATIONs; tokens = their `usageDetails` (an AGENT above may have the sum of them);
failed calls = TOOLs at level ERROR. Calls are not counted, because frameworks record them differently.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from refold.importers.content import call_of, decode_nested_json, manifests, plain, unwrap
from refold.importers.documents import ANY, JsonValue, values
from refold.importers.fields import (
    JSON,
    Times,
    add_prefix,
    at,
    instant,
    json_text,
    known_or,
    labels_of,
    nano_usd,
    number,
    omit_keys,
    rest,
    rows,
    table,
    take_if,
    take_rows,
    take_text,
    take_time,
    text,
)
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan, Unread
from refold.importers.message_shapes import Read, add_instructions, take_messages
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source
from refold.importers.traces import Trace, TraceStep, answer_of, time_of
from refold.importers.usage import UsageNames
from refold.reducers.events import Manifest
from refold.reducers.messages import MessageCall
from refold.reducers.vocabulary import Role

_KINDS = frozenset(
    ["agent", "chain", "embedding", "evaluator", "event", "guardrail", "observation", "retriever", "span"]
)
_TOKENS = UsageNames(
    input=("input",),
    output=("output",),
    cache_read=(
        "input_cache_read",
        "input_cached_tokens",
        "prompt_details.cache_read",
        "cache_read_input_tokens",
    ),
    cache_write=("input_cache_creation", "cache_creation_input_tokens", "prompt_details.cache_write"),
    reasoning=("output_reasoning", "output_reasoning_tokens", "completion_details.reasoning"),
)

_SYSTEM = "gen_ai.system_instructions"
_UNSAID = (
    "user_messages", "tool_messages", "tool_calls", "tool_results", "cache_read_tokens", "cache_write_tokens"
)  # fmt: skip


class Observation(msgspec.Struct, frozen=True, gc=False):
    """An observation with its position."""

    position: str
    row: JSON

    @property
    def kind(self) -> str:
        """Return its type: `GENERATION`, `TOOL`, `AGENT`, …"""
        return text(self.row, "type")

    @property
    def failed(self) -> bool:
        """Return whether it is at level ERROR."""
        return text(self.row, "level") == "ERROR"

    @property
    def attributes(self) -> dict[str, JSON]:
        """Return the span's attributes, if the trace came from OpenTelemetry."""
        return table(self.row, "metadata", "attributes")

    def start(self) -> int:
        """Return its start in nanoseconds, else its end, else 0."""
        return self.moment("startTime") or self.moment("endTime") or 0

    def moment(self, name: str) -> int | None:
        """Return one of its times, in nanoseconds since the Unix epoch."""
        return instant(at(self.row, name))


class Langfuse:
    """The importer for traces with observations: one document, a list of them, or one per line."""

    name = "langfuse"

    def match(self, source: Source) -> FormatMatch | None:
        """Match keys that only traces and observations have."""
        head = source.head()
        if b'"observations"' in head and b'"trace"' in head:
            return FormatMatch(95, "a trace with observations")
        if b'"parentObservationId"' in head or (b'"observations"' in head and b'"traceId"' in head):
            return FormatMatch(90, "observations")
        return (
            FormatMatch(70, "a trace of Langfuse") if b'"trace"' in head and b'"projectId"' in head else None
        )

    def items(self, source: Source) -> Iterator[Item]:
        """Yield one run per trace."""
        keys: set[str] = set()
        loose: dict[str, list[Observation]] = {}
        for value in values(source, (), ("observations",), (ANY, "observations")):
            if isinstance(value, Unread):
                yield value
            elif "observations" in table(value.value) or "trace" in table(value.value):
                place = f"{value.position}.observations"
                listed = take_rows(value.value, "observations")
                observed = [Observation(f"{place}[{index}]", row) for index, row in enumerate(listed)]
                yield from _TraceRun(observed, value, keys).items()
            elif "type" in table(value.value) and "startTime" in table(value.value):
                own = loose.setdefault(text(value.value, "traceId"), [])
                own.append(Observation(value.position, value.value))
            else:
                yield value.place.problem("no_trace", "not a trace with observations", value.value)
        for trace, own in loose.items():
            yield from _TraceRun(own, JsonValue(own[0].position, {"trace": {"id": trace}}), keys).items()
        if not keys:
            raise BadTranscript(source.name, "", "no trace with observations")


LANGFUSE = Langfuse()


class _TraceRun:
    """A reader of one trace; its observations are ordered by start."""

    def __init__(self, listed: Sequence[Observation], value: JsonValue, keys: set[str]) -> None:
        self.position = value.position
        self.around = table(value.value)
        self.trace = table(self.around, "trace") or self.around
        key = take_text(self.trace, "id") or "trace"
        self.key = key if key not in keys else f"{key}#{len(keys) + 1}"
        keys.add(self.key)
        self.odd: list[Item] = []
        self.all = self._deduplicate(listed)
        self.all.sort(key=Observation.start)
        self.answers = [one for one in self.all if one.kind == "GENERATION"]
        self._by_id = {text(one.row, "id"): one for one in self.all}
        self.copies = self._compare_copies()
        for one in self.all:
            unwrap(one.row, "metadata")
        self.known_rests = set[str]()
        self.prompts = {id(one): self._prompt(one) for one in self.answers}

    def _deduplicate(self, listed: Sequence[Observation]) -> list[Observation]:
        """Return the observations to import: each once, by its id. Others become problems."""
        seen: dict[str, JSON] = {}
        unique: list[Observation] = []
        for one in listed:
            name = text(one.row, "id")
            if not isinstance(one.row, dict) or (name and name in seen):
                same = "repeated" if seen.get(name) == one.row else "other_span"
                code = same if isinstance(one.row, dict) else "no_observation"
                self.odd.append(Place(one.position).problem(code, "not imported", one.row))
                continue
            seen[name] = one.row
            unique.append(one)
        return unique

    def _prompt(self, one: Observation) -> Read:
        """Return the prompt of a request.

        With OpenTelemetry, the instructions are in an attribute of the span, or of an agent above it.
        """
        given, around, seen = take_messages(one.row, "input", known_rests=self.known_rests), one, set[str]()
        while not (system := around.attributes.get(_SYSTEM)):
            above = text(around.row, "parentObservationId")
            if above in seen or above not in self._by_id:
                return given
            seen.add(above)
            around = self._by_id[above]
        # Not taken out, because an agent's instructions apply to all of its requests.
        messages = add_instructions({_SYSTEM: system}, _SYSTEM, given.messages) if given.messages else ()
        return replace(given, messages=messages)

    def items(self) -> Iterator[Item]:
        """Yield the start, the steps, and the end."""
        trace = Trace([self._step(one) for one in self.all])
        agent = next((one for one in self.all if one.kind == "AGENT"), None)
        labels = {"session": take_text(self.trace, "sessionId"), "user": take_text(self.trace, "userId")}
        labels |= {
            name: take_text(self.trace, name) for name in ("name", "environment", "release", "version")
        }
        beside = [*self._read_scores()]
        yield RunBegan(
            position=f"{self.position}.trace",
            at=take_time(self.trace, "timestamp"),
            rest=rest(self.around),
            key=self.key,
            messages=trace.list_initial_messages(),
            model=next((name for one in self.answers if (name := text(one.row, "model"))), ""),
            agent=text(agent.row, "name") if agent else "",
            tools=next((tools for one in self.answers if (tools := self._tools(one))), ()),
            labels=labels_of(labels),
            unsaid=_UNSAID if any(one.kind == "TOOL" for one in self.all) else (*_UNSAID, "tool_errors"),
            counts=UNCOUNTED,
        )
        yield from self.odd
        yield from beside
        yield from trace.items()
        yield Place(self.position).end(self._end(), self._times())

    def _tools(self, one: Observation) -> tuple[Manifest, ...]:
        """Return the tools that a request offered, from the first of four places that has any."""
        unread = list(self.prompts[id(one)].unknown)
        offered = unread or at(one.row, "input", "tools")
        definitions = (at(one.row, "toolDefinitions"), one.attributes.get("gen_ai.tool.definitions"), offered)
        return next((tools for value in definitions if (tools := manifests(value))), ())

    def _read_scores(self) -> Iterator[Item]:
        """Yield the scores, and the trace's copy of its observations."""
        place = f"{self.position}.trace"
        for index, score in enumerate(take_rows(self.trace, "scores")):
            where = Place(f"{place}.scores[{index}]", instant(at(score, "timestamp")))
            yield where.remark(add_prefix("score", text(score, "name") or "score"), score)
        if self.copies:
            yield Place(f"{place}.observations").remark("repeated", self.copies)

    def _compare_copies(self) -> dict[str, JSON]:
        """Return what differs in the trace's copy of its observations."""
        copied = take_rows(self.trace, "observations")
        for row in copied:
            own = self._by_id.get(text(row, "id"))
            for name in omit_keys(row, "id"):
                take_if(row, name, at(own.row if own else None, name), None, "{}")
        ids = [text(row, "id") for row in copied]
        new = [row for row, id_ in zip(copied, ids, strict=True) if row != {"id": id_}]
        return {"ids": [*ids], "more": new} if copied else {}

    def _step(self, one: Observation) -> TraceStep:
        start = Place(one.position, one.moment("startTime"))
        done, took = time_of(start.at, one.moment("endTime"))
        place, problem = Place(one.position, done), text(one.row, "statusMessage")
        if one.kind == "GENERATION":
            return self._request(one, start, place, took)
        if one.kind == "TOOL":
            own, output = one.attributes, plain(decode_nested_json(at(one.row, "output")))
            name = text(own, "gen_ai.tool.name") or text(own, "tool.name") or text(one.row, "name")
            call, failed = text(own, "gen_ai.tool.call.id"), one.failed if text(one.row, "level") else None
            place = place.with_counts(Counted(errors=int(one.failed)))
            tool = place.result(
                call, output, name=name, failed=failed, duration=took, rest=json_text(one.row)
            )
            return TraceStep(tool=tool, problem=problem)
        kind = one.kind.lower() or "observation"
        return TraceStep(remark=start.remark(known_or(kind, _KINDS), one.row, known=kind in _KINDS))

    def _request(self, one: Observation, start: Place, place: Place, took: int) -> TraceStep:
        counts = Counted(assistant=1, usage=_TOKENS.of(at(one.row, "usageDetails")))
        place, whole = place.with_counts(counts), rest(one.row) if one.failed else ""
        failure = place.failure(text(one.row, "statusMessage"), rest=whole) if one.failed else None
        output = take_messages(one.row, "output", role=Role.ASSISTANT)
        answer = answer_of(
            Read(tuple(message for message in output.messages if message.role is Role.ASSISTANT))
        )
        beside = [to_builtins(message) for message in output.messages if message.role is not Role.ASSISTANT]
        response = place.reply(
            answer if answer.calls else replace(answer, calls=_read_listed_calls(one)),
            counts.usage,
            quality="reported" if number(one.row, "usageDetails", "input") is not None else "",
            stop=output.stop,
            cost=nano_usd(table(one.row, "costDetails").get("total", at(one.row, "totalCost"))),
            model=text(one.row, "model"),
            duration=took,
            rest=rest({**table(one.row), "beside": beside}),
        )
        prompt = self.prompts[id(one)].messages
        return TraceStep(place=start, prompt=prompt, answer=response, failure=failure, unknown=output.unknown)

    def _end(self) -> tuple[str, str]:
        failed = next((one for one in self.all if one.failed), None)
        if failed is None:
            return "unknown", "the format records no end; no observation has level ERROR"
        return "error", f"level ERROR of {failed.position}"

    def _times(self) -> tuple[str, str] | None:
        return Times(at(one.row, name) for one in self.all for name in ("startTime", "endTime")).edges()


def _read_listed_calls(one: Observation) -> tuple[MessageCall, ...]:
    """Return the calls in `toolCalls` (JSON texts) of an observation; `toolCallNames` lists their names."""
    found = [decode_nested_json(call) for call in rows(one.row, "toolCalls")]
    names = [text(name) for name in rows(one.row, "toolCallNames")] + [""] * len(found)
    return tuple(call_of(call, name) for call, name in zip(found, names, strict=False))
