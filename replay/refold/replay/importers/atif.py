"""ATIF trajectories (Agent Trajectory Interchange Format), versions 1.0 to 1.8: one JSON document a run.

Collections of them are lists, or JSON lines.

`steps` are the system's, the user's, or the agent's; an agent's step has the answer, its calls, and what came back
(`observation.results`). Copied steps (`is_copied_context`) are what a continuation was given to begin with, no new work.
An observation of a step without calls is not tied to any: then the model was told it, and so it stands here. The format
has no mark of an error, and no end.

Counted: messages by the steps' source, copied ones too; results = observation results; tokens as `final_metrics` has
them, which need not be the sum of the steps (sub-agents are in them, copied steps are not).
"""

from collections.abc import Generator, Iterator, Sequence

import msgspec

from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.vocabulary import Role
from refold.replay.importers.chat_parts import arguments, nano_usd, tools_of, words, written_time
from refold.replay.importers.documents import ANY, beginning
from refold.replay.importers.fields import JSON, at, instant, json_text, number, rows, table, text, without
from refold.replay.importers.items import (
    Answered,
    Asked,
    Item,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Tally,
    Unread,
)
from refold.replay.importers.protocol import Match
from refold.replay.importers.remarks import known_or
from refold.replay.importers.source import BadTranscript, Source
from refold.replay.importers.values import values
from refold.replay.source_words import UNCALLED

_MANAGED = frozenset({"compaction", "condensation", "summarization", "trim", "truncation"})


class Atif(msgspec.Struct, frozen=True):
    """The importer of ATIF trajectories."""

    name: str = "atif"

    def match(self, source: Source) -> Match | None:
        """Its own name in `schema_version`, or steps of a system, a user and an agent."""
        head = beginning(source)
        found = at(head, 0) if isinstance(head, list) else head
        version = text(found, "schema_version")
        if version.upper().startswith("ATIF"):
            return Match(98, f"names its schema {version[:20]}")
        if {"step_id", "source"} <= table(found, "steps", 0).keys():
            return Match(80, "numbered steps with a source")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """One run a trajectory."""
        ended: RunEnded | None = None
        for value in values(source, ("steps",), (ANY, "steps")):
            if isinstance(value, Unread):
                yield value
            elif "steps" in table(value.value):
                if ended is not None:
                    yield ended
                # What of it could not be read is told before its end.
                ended = yield from _run(value.value, value.position)
            else:
                yield Unread(
                    position=value.position,
                    code="no_steps",
                    problem="no trajectory",
                    rest=json_text(value.value),
                )
        if ended is None:
            raise BadTranscript(source.name, "$.steps", "no steps")
        yield ended


ATIF = Atif()


def _run(doc: JSON, place: str) -> Generator[Item, None, RunEnded]:
    """The items of one trajectory but the last, which is returned."""
    steps = rows(doc, "steps")
    begin = next((n for n, step in enumerate(steps) if _is_new_answer(step)), len(steps))
    yield RunBegan(
        position=f"{place}.steps[0:{begin}]",
        at=instant(at(steps[0], "timestamp")) if steps else None,
        key=text(doc, "trajectory_id") or text(doc, "session_id") or "trajectory",
        messages=_given(steps[:begin]),
        model=text(doc, "agent", "model_name"),
        agent=text(doc, "agent", "name"),
        tools=tools_of(rows(doc, "agent", "tool_definitions")),
        labels=_labels(doc),
        rest=without(doc, "steps", "final_metrics", "subagent_trajectories"),
    )
    for index in range(begin):
        yield from _remarks(steps[index], f"{place}.steps[{index}]")
    for index in range(begin, len(steps)):
        yield from _step(steps[index], f"{place}.steps[{index}]", text(doc, "agent", "model_name"))
    for index, trajectory in enumerate(rows(doc, "subagent_trajectories")):
        yield Remarked(
            position=f"{place}.subagent_trajectories[{index}]", what="subagent", rest=json_text(trajectory)
        )
    return RunEnded(
        position=f"{place}.final_metrics",
        end="unknown",
        end_source=_end_source(doc),
        tally=tally(doc),
        rest=without(at(doc, "final_metrics")),
    )


def tally(doc: JSON) -> Tally:
    """The counts of a document, by the rules at the top of this file."""
    steps = rows(doc, "steps")
    sources = [text(step, "source") for step in steps]
    results = sum(len(rows(step, "observation", "results")) for step in steps)
    calls = [call for step in steps for call in rows(step, "tool_calls")]
    user, agent = sources.count("user"), sources.count("agent")
    times = sorted(
        (moment, written)
        for step in steps
        if (moment := instant(at(step, "timestamp"))) is not None
        and (written := written_time(text(step, "timestamp")))
    )
    metrics = at(doc, "final_metrics")
    return Tally(
        messages=user + agent + results,
        user_messages=user,
        assistant_messages=agent,
        tool_messages=results,
        tool_calls=len(calls),
        tool_results=results,
        input_tokens=number(metrics, "total_prompt_tokens"),
        cache_read_tokens=number(metrics, "total_cached_tokens"),
        output_tokens=number(metrics, "total_completion_tokens"),
        first_timestamp=times[0][1] if times else None,
        last_timestamp=times[-1][1] if times else None,
    )


def _end_source(doc: JSON) -> str:
    goes_on = "; continued in another file" if text(doc, "continued_trajectory_ref") else ""
    return f"the format records no end{goes_on}"


def _labels(doc: JSON) -> dict[str, str]:
    named = {"version": text(doc, "agent", "version"), "continued in": text(doc, "continued_trajectory_ref")}
    return {name: value for name, value in named.items() if value}


def _is_new_answer(step: JSON) -> bool:
    return text(step, "source") == "agent" and at(step, "is_copied_context") is not True


def _role(step: JSON) -> Role:
    return {"system": Role.SYSTEM, "agent": Role.ASSISTANT}.get(text(step, "source"), Role.USER)


def _given(steps: Sequence[JSON]) -> tuple[Message, ...]:
    """The messages of the steps before the first answer: results stand behind the copied answer that asked for them."""
    made: list[Message] = []
    for step in steps:
        calls = tuple(MessageCall(call.id, call.name, call.arguments) for call in _asked(step))
        said = words(at(step, "message"))
        made.append(
            Message(role=_role(step), text=said, reasoning=text(step, "reasoning_content"), calls=calls)
        )
        made += [
            Message(role=Role.TOOL, text=words(at(result, "content")), call=call.id, name=call.name)
            for result, call in _paired(step)
            if call
        ]
        made += [
            Message(role=Role.USER, text=words(at(result, "content")))
            for result, call in _paired(step)
            if not call and at(result, "content") is not None
        ]
    return tuple(made)


def _asked(step: JSON) -> tuple[Asked, ...]:
    return tuple(
        Asked(
            id=text(call, "tool_call_id"),
            name=text(call, "function_name"),
            arguments=arguments(at(call, "arguments")),
        )
        for call in rows(step, "tool_calls")
    )


def _paired(step: JSON) -> list[tuple[JSON, Asked | None]]:
    """Each result with the call that it answers: by id, else the first call that waits."""
    waiting = list(_asked(step))
    paired: list[tuple[JSON, Asked | None]] = []
    for result in rows(step, "observation", "results"):
        wanted = text(result, "source_call_id")
        call = next((call for call in waiting if call.id == wanted), None)
        if call is None and not wanted and waiting:
            call = waiting[0]
        if call is not None:
            waiting.remove(call)
        paired.append((result, call))
    return paired


def _step(step: JSON, position: str, model: str) -> Iterator[Item]:
    moment = instant(at(step, "timestamp"))
    if text(step, "source") == "agent":
        yield _answered(step, position, moment, model)
        yield from _results(step, position, moment)
    elif text(step, "source") == "user" or (words(at(step, "message")) and not _management(step)):
        yield Said(
            position=position,
            at=moment,
            text=words(at(step, "message")),
            role=_role(step),
            by="user" if text(step, "source") == "user" else "harness",
            rest=without(step, "step_id", "timestamp", "source", "message", "observation"),
        )
        yield from _results(step, position, moment)
    else:
        what = known_or(text(_management(step), "type"), _MANAGED)
        yield Remarked(position=position, at=moment, what=what, rest=json_text(step))
    yield from _remarks(step, position)


def _management(step: JSON) -> JSON:
    """What the agent's harness did to the context here, as Harbor's agents note it."""
    return at(step, "extra", "context_management")


def _remarks(step: JSON, position: str) -> Iterator[Remarked]:
    """Sub-agents that a result refers to: their trajectories lie elsewhere, and are not opened."""
    for index, result in enumerate(rows(step, "observation", "results")):
        if at(result, "subagent_trajectory_ref") is not None:
            yield Remarked(
                position=f"{position}.observation.results[{index}]",
                what="subagent",
                rest=json_text(at(result, "subagent_trajectory_ref")),
            )


def _answered(step: JSON, position: str, moment: int | None, model: str) -> Answered:
    metrics = at(step, "metrics")
    told = (
        "step_id",
        "timestamp",
        "source",
        "message",
        "tool_calls",
        "observation",
        "reasoning_content",
        "model_name",
    )
    return Answered(
        position=position,
        at=moment,
        text=words(at(step, "message")),
        reasoning=text(step, "reasoning_content"),
        calls=_asked(step),
        usage=Usage(
            input=number(metrics, "prompt_tokens") or 0,
            output=number(metrics, "completion_tokens") or 0,
            cache_read=number(metrics, "cached_tokens") or 0,
        ),
        quality="reported" if metrics is not None else "",
        cost_nanousd=nano_usd(at(metrics, "cost_usd")),
        model=text(step, "model_name") or model,
        rest=without(step, *told),
    )


def _results(step: JSON, position: str, moment: int | None) -> Iterator[Item]:
    for index, (result, call) in enumerate(_paired(step)):
        place, content = f"{position}.observation.results[{index}]", at(result, "content")
        rest = without(result, "source_call_id", "content", "subagent_trajectory_ref")
        if call is not None:
            yield Returned(
                position=place, at=moment, id=call.id, name=call.name, output=words(content), rest=rest
            )
        elif text(result, "source_call_id"):
            yield Returned(
                position=place, at=moment, id=text(result, "source_call_id"), output=words(content), rest=rest
            )
        elif content is not None:
            yield Said(position=place, at=moment, text=words(content), by="harness", rest=rest)
            yield Remarked(position=place, at=moment, what=UNCALLED)
