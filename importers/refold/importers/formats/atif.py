"""ATIF trajectories (Agent Trajectory Interchange Format), versions 1.0 to 1.8: one JSON document per run.

Collections of them are lists, or JSON lines.

`steps` are by the system, the user, or the agent. An agent step has the response, its calls, and their
results (`observation.results`). Copied steps (`is_copied_context`) are the initial context of a continuation.
An observation of a step without calls has no call; it becomes a message to the model. The format records
neither errors of calls nor the end of a run.

Counts: messages by the steps' source, including copied ones; results = observation results; tokens from
`final_metrics`, which may differ from the sum of the steps (they include subagents, but not copied steps).
"""

from collections.abc import Generator, Iterator, Sequence

import msgspec

from refold.importers.content import take_calls, take_tools, words
from refold.importers.documents import ANY, decode_beginning, values
from refold.importers.fields import (
    JSON,
    Times,
    at,
    instant,
    known_or,
    labels_of,
    number,
    rest,
    rows,
    table,
    take,
    take_cost,
    take_each,
    take_if,
    take_rows,
    take_text,
    take_time,
    take_words,
    text,
)
from refold.importers.items import Counted, Item, Place, RunBegan, RunEnded, Tokens, Unread
from refold.importers.registry import FormatMatch
from refold.importers.session_rows import diagnose_apart
from refold.importers.source import BadTranscript, Source
from refold.importers.tallies import add_counts
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message, MessageCall
from refold.reducers.source_marks import UNCALLED
from refold.reducers.vocabulary import Role

_TOKENS = UsageNames(input=("prompt_tokens",), output=("completion_tokens",), cache_read=("cached_tokens",))
_UNCALLED = Counted(tool=1, results=1)
_MANAGED = frozenset({"compaction", "condensation", "summarization", "trim", "truncation"})


class Atif(msgspec.Struct, frozen=True):
    """The importer for ATIF trajectories."""

    name: str = "atif"

    def match(self, source: Source) -> FormatMatch | None:
        """Match ATIF's name in `schema_version`, or numbered steps with a source."""
        head = decode_beginning(source)
        found = at(head, 0) if isinstance(head, list) else head
        version = text(found, "schema_version")
        if version.upper().startswith("ATIF"):
            return FormatMatch(98, f"schema_version {version[:20]}")
        if {"step_id", "source"} <= table(found, "steps", 0).keys():
            return FormatMatch(80, "numbered steps with a source")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield one run per trajectory."""
        ended: RunEnded | None = None
        for value in values(source, ("steps",), (ANY, "steps")):
            if isinstance(value, Unread):
                yield value
            elif "steps" in table(value.value):
                if ended is not None:
                    yield ended
                # Yielded later, so that problems of the trajectory come before its end.
                ended = yield from _run(value.value, value.position)
            else:
                yield value.place.problem("no_steps", "not a trajectory", value.value)
        if ended is None:
            raise BadTranscript(source.name, "$.steps", "no steps")
        yield ended


ATIF = Atif()


def _run(doc: JSON, place: str) -> Generator[Item, None, RunEnded]:
    """Yield the items of one trajectory except its end, which is returned."""
    steps, metrics = take_rows(doc, "steps"), take(doc, "final_metrics")
    begin = [*map(_is_new_answer, steps), True].index(True)
    continuation, model = text(doc, "continued_trajectory_ref"), text(doc, "agent", "model_name")
    labels = {"version": text(doc, "agent", "version"), "continued in": continuation}
    times = Times(at(step, "timestamp") for step in steps).edges()
    subagents, counts = take_rows(doc, "subagent_trajectories"), add_counts(map(_count_step, steps[:begin]))
    lost = [
        [] if _is_known(step) else [*Place(f"{place}.steps[{n}]").unknown_calls(step)]
        for n, step in enumerate(steps)
    ]
    yield RunBegan(
        position=f"{place}.steps[0:{begin}]",
        at=take_time(steps[0], "timestamp") if steps else None,
        key=text(doc, "trajectory_id") or text(doc, "session_id") or "trajectory",
        messages=tuple(message for step in steps[:begin] for message in _read_initial_step(step)),
        model=model,
        agent=text(doc, "agent", "name"),
        tools=take_tools(doc, "agent", "tool_definitions"),
        labels=labels_of(labels),
        unsaid=("tool_errors",),
        rest=rest(doc),
        counts=counts,
    )
    for index, step in enumerate(steps):
        where = Place(f"{place}.steps[{index}]", instant(at(step, "timestamp")))
        take_if(step, "step_id", index + 1)
        results = [*rows(step, "observation", "results")]
        delegated = [*_subagents(step, where)]
        if index >= begin:
            yield from _step(step, results, where, model)
        elif remaining := rest(step):
            yield where.remark("unmapped", rest=remaining)
        yield from lost[index]
        yield from delegated
    for index, trajectory in enumerate(subagents):
        yield from _read_subagent(trajectory, Place(f"{place}.subagent_trajectories[{index}]"))
    end = "the format records no end" + ("; continued in another file" if continuation else "")
    return Place(f"{place}.final_metrics").end(
        ("unknown", end), times, _read_tokens(metrics), rest=rest(metrics)
    )


def _read_subagent(trajectory: JSON, where: Place) -> Iterator[Item]:
    """Yield the unchanged trajectory of a subagent as a remark, with a warning if it has calls."""
    yield where.remark("subagent", trajectory)
    calls = sum(len(rows(step, "tool_calls")) for step in rows(trajectory, "steps"))
    yield from diagnose_apart(where, "subagent", Counted(calls=calls))


def _read_tokens(metrics: JSON) -> Tokens:
    sent, read, got = (number(metrics, f"total_{name}_tokens") for name in ("prompt", "cached", "completion"))
    return sent, read, None, got


def _count_step(step: JSON) -> Counted:
    """Return the counts of an initial step; each observation counts as a result, with or without a call."""
    source, seen = text(step, "source"), len(rows(step, "observation", "results"))
    calls = len(rows(step, "tool_calls"))
    return Counted(
        user=int(source == "user"), assistant=int(source == "agent"), tool=seen, calls=calls, results=seen
    )


def _is_known(step: JSON) -> bool:
    return text(step, "source") in ("system", "user", "agent")


def _is_new_answer(step: JSON) -> bool:
    return text(step, "source") == "agent" and at(step, "is_copied_context") is not True


def _take_message(step: JSON) -> Message:
    role = {"system": Role.SYSTEM, "agent": Role.ASSISTANT}.get(text(step, "source"), Role.USER)
    content, thought = take_words(step, "message"), take_text(step, "reasoning_content")
    take_if(step, "source", "system", "agent", "user")
    return Message(role=role, text=content, reasoning=thought, calls=take_calls(step))


def _read_initial_step(step: JSON) -> Iterator[Message]:
    """Yield the messages of an initial step; results follow the copied response with their calls."""
    message, others = _take_message(step), list[Message]()
    yield message
    for result, call in _pair_results(rows(step, "observation", "results"), message):
        if call is not None:
            take_if(result, "source_call_id", call.id)
            yield Message(role=Role.TOOL, text=take_words(result, "content"), call=call.id, name=call.name)
        elif at(result, "content") is not None:
            others.append(Message(role=Role.USER, text=take_words(result, "content")))
    yield from others


def _pair_results(results: Sequence[JSON], answer: Message) -> Iterator[tuple[JSON, MessageCall | None]]:
    """Yield each result with its call: by id, else the first call without a result."""
    waiting = list(answer.calls)
    for result in results:
        wanted = text(result, "source_call_id")
        call = next((call for call in waiting if call.id == wanted or not wanted), None)
        if call is not None:
            waiting.remove(call)
        yield result, call


def _step(step: JSON, results: Sequence[JSON], place: Place, model: str) -> Iterator[Item]:
    written, source = at(step, "message"), text(step, "source")
    # A change of the context by the harness, as recorded by Harbor's agents.
    management = at(step, "extra", "context_management")
    if source not in ("agent", "user") and (management or not words(written)):
        place = place.with_counts(add_counts(_UNCALLED for _ in results))
        yield place.remark(known_or(text(management, "type"), _MANAGED), step)
        return
    take_time(step, "timestamp")
    take_rows(step, "observation", "results")
    message = _take_message(step)
    if message.role is Role.ASSISTANT:
        cost, used = take_cost(step, "metrics", "cost_usd"), _TOKENS.take(step, "metrics")
        model = take_text(step, "model_name") or model
        yield place.reply(message, used, cost=cost, model=model, rest=rest(step))
        yield from place.hosted_calls(written)
    else:
        by = "user" if source == "user" else "harness"
        yield place.message(message.text, by, role=message.role, rest=rest(step))
    yield from _results(results, message, place)


def _subagents(step: JSON, place: Place) -> Iterator[Item]:
    """Yield remarks for subagents that results refer to. Their trajectories are other files, not opened."""
    for index, result in enumerate(take_each(step, "observation", "results")):
        if (ref := take(result, "subagent_trajectory_ref")) is not None:
            yield Place(f"{place.position}.observation.results[{index}]").remark("subagent", ref)


def _results(results: Sequence[JSON], answer: Message, place: Place) -> Iterator[Item]:
    for index, (result, call) in enumerate(_pair_results(results, answer)):
        where = Place(f"{place.position}.observation.results[{index}]", place.at)
        content, named = at(result, "content"), take_text(result, "source_call_id")
        said = take_words(result, "content")
        if call is not None or named:
            known, name = (call.id, call.name) if call else (named, "")
            yield where.result(known, said, name=name, rest=rest(result))
        elif content is not None:
            yield where.with_counts(_UNCALLED).message(said, "harness", rest=rest(result))
            yield where.remark(UNCALLED)
        elif remaining := rest(result):
            yield where.remark("unmapped", rest=remaining)
