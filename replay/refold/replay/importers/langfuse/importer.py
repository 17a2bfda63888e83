"""Langfuse traces: `{trace, observations}`. A trace is a run, its GENERATIONs are the answers, in each framework's own shape.

Counted: responses are the GENERATIONs, tokens their `usageDetails` (an AGENT above may carry their sum), failed calls the TOOLs
at level ERROR. No common rule tells calls, and no end is recorded: only a level ERROR says that something went wrong.
"""

from collections.abc import Iterator, Sequence

from refold.reducers.events import Manifest
from refold.reducers.failures import classify
from refold.reducers.vocabulary import Role, ToolError
from refold.replay.importers.documents import ANY
from refold.replay.importers.fields import instant, json_text, number, rows, table, text, without
from refold.replay.importers.items import (
    Answered,
    Item,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Tally,
    Unread,
)
from refold.replay.importers.langfuse.observations import (
    Observation,
    cost,
    duration,
    left,
    listed_calls,
    moment,
    start,
    summed,
    usage,
    when,
)
from refold.replay.importers.message_shapes import plain, read, unwrapped
from refold.replay.importers.otel.names import STOPS, manifests
from refold.replay.importers.prompts import Shown, Talk
from refold.replay.importers.protocol import Match
from refold.replay.importers.remarks import known_or, prefixed
from refold.replay.importers.source import BadTranscript, Source
from refold.replay.importers.stamps import edges
from refold.replay.importers.values import Value, values

_KINDS = frozenset(
    {"agent", "chain", "embedding", "evaluator", "event", "guardrail", "observation", "retriever", "span"}
)


class Langfuse:
    """A trace with its observations: one document, a list of them, or one a line."""

    name = "langfuse"

    def match(self, source: Source) -> Match | None:
        """By the names that observations have and nothing else has."""
        head = source.head()
        if b'"observations"' in head and b'"trace"' in head:
            return Match(95, "a trace with observations")
        if b'"parentObservationId"' in head or (b'"observations"' in head and b'"traceId"' in head):
            return Match(90, "observations")
        return Match(70, "a trace of Langfuse") if b'"trace"' in head and b'"projectId"' in head else None

    def items(self, source: Source) -> Iterator[Item]:
        """One run a trace."""
        keys: set[str] = set()
        loose: list[Observation] = []
        for value in values(source, (), ("observations",), (ANY, "observations")):
            if isinstance(value, Unread):
                yield value
            elif "observations" in table(value.value) or "trace" in table(value.value):
                yield from _Run(_observations(value), value, keys).items()
            elif "type" in table(value.value) and "startTime" in table(value.value):
                loose.append(Observation(value.position, value.value))
            else:
                rest = json_text(value.value)
                yield Unread(
                    position=value.position, code="no_trace", problem="no trace with observations", rest=rest
                )
        for trace in dict.fromkeys(text(one.row, "traceId") for one in loose):
            own = [one for one in loose if text(one.row, "traceId") == trace]
            yield from _Run(own, Value(own[0].position, {"trace": {"id": trace}}), keys).items()
        if not keys:
            raise BadTranscript(source.name, "", "no trace with observations in it")


LANGFUSE = Langfuse()


def _observations(value: Value) -> list[Observation]:
    return [
        Observation(f"{value.position}.observations[{index}]", row)
        for index, row in enumerate(rows(value.value, "observations"))
    ]


class _Run:
    """One trace, told by the starts of its observations."""

    def __init__(self, listed: Sequence[Observation], value: Value, keys: set[str]) -> None:
        self.value = value
        self.trace = table(value.value, "trace") or {
            name: inner for name, inner in table(value.value).items() if name != "observations"
        }
        key = text(self.trace, "id") or "trace"
        self.key = key if key not in keys else f"{key}#{len(keys) + 1}"
        keys.add(self.key)
        seen: set[str] = set()
        self.odd: list[Item] = []
        self.all: list[Observation] = []
        for one in listed:
            name = text(one.row, "id")
            if not isinstance(one.row, dict) or (name and name in seen):
                code = "repeated" if isinstance(one.row, dict) else "no_observation"
                self.odd.append(
                    Unread(position=one.position, code=code, problem="not told", rest=json_text(one.row))
                )
                continue
            seen.add(name)
            self.all.append(one)
        self.all.sort(key=start)
        self.answers = [one for one in self.all if one.kind == "GENERATION"]
        self.prompts = {id(one): read(table(one.row).get("input")) for one in self.answers}
        self.talk = Talk(Shown(prompt.pieces for prompt in self.prompts.values()))

    def items(self) -> Iterator[Item]:
        """Beginning, what happened, end."""
        yield self._began()
        yield from self.odd
        yield from self._beside()
        for one in self.all:
            match one.kind:
                case "GENERATION":
                    yield from self._answer(one)
                case "TOOL":
                    yield self._tool(one)
                case kind:
                    what = known_or(kind.lower() or "observation", _KINDS)
                    yield Remarked(
                        position=one.position, at=moment(one, "startTime"), what=what, rest=json_text(one.row)
                    )
        end, why = self._end()
        yield RunEnded(position=self.value.position, end=end, end_source=why, tally=self._tally())

    def _began(self) -> RunBegan:
        first = next((prompt.pieces for prompt in self.prompts.values() if prompt.pieces), ())
        agent = next((one for one in self.all if one.kind == "AGENT"), None)
        named = {"session": text(self.trace, "sessionId"), "user": text(self.trace, "userId")}
        given = ("name", "environment", "release", "version")
        labels = named | {name: text(self.trace, name) for name in given}
        return RunBegan(
            position=f"{self.value.position}.trace",
            at=instant(self.trace.get("timestamp")),
            rest=without(self.trace, "id", "observations", "scores", "timestamp"),
            key=self.key,
            messages=self.talk.opening(first),
            model=next((text(one.row, "model") for one in self.answers if text(one.row, "model")), ""),
            agent=text(agent.row, "name") if agent else "",
            tools=self._tools(),
            labels={name: label for name, label in labels.items() if label},
        )

    def _tools(self) -> tuple[Manifest, ...]:
        for one in self.answers:
            attributes = one.attributes
            for value in (table(one.row).get("toolDefinitions"), attributes.get("gen_ai.tool.definitions")):
                if value and (found := manifests(value)):
                    return found
            asked = unwrapped(table(one.row).get("input"))
            if found := manifests(list(self.prompts[id(one)].left) or table(asked).get("tools")):
                return found
        return ()

    def _beside(self) -> Iterator[Item]:
        """Scores, and the trace's own copy of its observations, which says nothing new."""
        place = f"{self.value.position}.trace"
        for index, score in enumerate(rows(self.trace, "scores")):
            what = prefixed("score", text(score, "name") or "score")
            yield Remarked(
                position=f"{place}.scores[{index}]", at=when(score), what=what, rest=json_text(score)
            )
        ids = {text(one.row, "id") for one in self.all}
        if copied := rows(self.trace, "observations"):
            new = [row for row in copied if text(row, "id") not in ids]
            rest = json_text({"ids": [text(row, "id") or json_text(row) for row in copied], "more": new})
            yield Remarked(position=f"{place}.observations", what="repeated", rest=rest)

    def _answer(self, one: Observation) -> Iterator[Item]:
        prompt = self.prompts[id(one)]
        yield from self.talk.prompted(prompt.pieces, one.position, moment(one, "startTime"))
        output = read(table(one.row).get("output"), Role.ASSISTANT)
        pieces = tuple(piece for piece in output.pieces if piece.role is Role.ASSISTANT)
        if one.failed and not pieces:
            yield self._failure(one)
            return
        calls = tuple(call for piece in pieces for call in piece.calls) or listed_calls(one)
        self.talk.answered(calls)
        raw = output.stop
        yield Answered(
            position=one.position,
            at=moment(one, "endTime") or moment(one, "startTime"),
            rest=left(one, prompt, output, pieces),
            text="\n".join(piece.text for piece in pieces if piece.text),
            reasoning="\n".join(piece.reasoning for piece in pieces if piece.reasoning),
            calls=calls,
            stop=STOPS.get(raw.lower()) if raw else None,
            stop_raw=raw,
            usage=usage(one),
            quality="reported" if number(one.row, "usageDetails", "input") is not None else "",
            cost_nanousd=cost(one),
            model=text(one.row, "model"),
            duration=duration(one),
        )

    def _failure(self, one: Observation) -> RequestFailed:
        said = text(one.row, "statusMessage")
        when = moment(one, "endTime") or moment(one, "startTime")
        return RequestFailed(
            position=one.position,
            at=when,
            rest=json_text(one.row),
            failure=classify(None, said),
            message=said,
        )

    def _tool(self, one: Observation) -> Item:
        attributes = one.attributes
        name = text(attributes, "gen_ai.tool.name") or text(attributes, "tool.name") or text(one.row, "name")
        waiting = self.talk.waiting(name)
        call = text(attributes, "gen_ai.tool.call.id")
        if waiting is not None and not self.talk.asked(call):
            call = waiting.id  # frameworks number their spans' calls for themselves
        output = self.talk.result(call, name, plain(unwrapped(table(one.row).get("output"))))
        self.talk.returned(call, name)
        return Returned(
            position=one.position,
            at=moment(one, "endTime") or moment(one, "startTime"),
            rest=json_text(one.row),
            id=call,
            output=output or text(one.row, "statusMessage"),
            name=name,
            error=ToolError.RAISED if one.failed else None,
            duration=duration(one),
        )

    def _end(self) -> tuple[str, str]:
        failed = next((one for one in self.all if one.failed), None)
        if failed is None:
            return "unknown", "the format records no end; no observation has level ERROR"
        return "error", f"level ERROR of {failed.position}"

    def _tally(self) -> Tally:
        tools = [one for one in self.all if one.kind == "TOOL"]
        first, last = edges(table(one.row).get(name) for one in self.all for name in ("startTime", "endTime"))
        return Tally(
            messages=len(self.answers),
            assistant_messages=len(self.answers),
            tool_errors=sum(one.failed for one in tools) if tools else None,
            input_tokens=summed(self.answers, "input"),
            output_tokens=summed(self.answers, "output"),
            first_timestamp=first,
            last_timestamp=last,
        )
