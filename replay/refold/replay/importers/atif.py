"""ATIF trajectories (Agent Trajectory Interchange Format), versions 1.0 to 1.8: one JSON document a run.

Collections of them are lists, or JSON lines.

`steps` are the system's, the user's, or the agent's; an agent's step has the answer, its calls, and what came back
(`observation.results`). Copied steps (`is_copied_context`) are what a continuation was given to begin with, no new work.
An observation of a step without calls is not tied to any: then the model was told it, and so it stands here. The format
has no mark of an error, and no end.

Counted: messages by the steps' source, copied ones too; results = observation results; tokens as `final_metrics` has
them, which need not be the sum of the steps (sub-agents are in them, copied steps are not).
"""

from collections.abc import Generator, Iterator

import msgspec

from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role
from refold.replay.importers.content import calls_of, manifests, words
from refold.replay.importers.documents import ANY, beginning
from refold.replay.importers.fields import (
    JSON,
    at,
    instant,
    left,
    nano_usd,
    number,
    rows,
    table,
    text,
    without,
)
from refold.replay.importers.items import Counted, Item, Place, RunBegan, RunEnded, Unread, together
from refold.replay.importers.protocol import Match
from refold.replay.importers.remarks import known_or
from refold.replay.importers.source import BadTranscript, Source
from refold.replay.importers.times import Times
from refold.replay.importers.usages import UsageNames
from refold.replay.importers.values import values
from refold.replay.source_words import UNCALLED

_TOKENS = UsageNames(input=("prompt_tokens",), output=("completion_tokens",), cache_read=("cached_tokens",))
_TOLD = ("step_id", "timestamp", "source", "message", "observation")
_RESULT = ("source_call_id", "content", "subagent_trajectory_ref")
_UNCALLED = Counted(tool=1, results=1)
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
                yield value.place.unread("no_steps", "no trajectory", value.value)
        if ended is None:
            raise BadTranscript(source.name, "$.steps", "no steps")
        yield ended


ATIF = Atif()


def _run(doc: JSON, place: str) -> Generator[Item, None, RunEnded]:
    """The items of one trajectory but the last, which is returned."""
    steps = rows(doc, "steps")
    begin = next((n for n, step in enumerate(steps) if _is_new_answer(step)), len(steps))
    labels = {"version": text(doc, "agent", "version"), "continued in": text(doc, "continued_trajectory_ref")}
    yield RunBegan(
        position=f"{place}.steps[0:{begin}]",
        at=instant(at(doc, "steps", 0, "timestamp")),
        key=text(doc, "trajectory_id") or text(doc, "session_id") or "trajectory",
        messages=tuple(message for step in steps[:begin] for message in _given(step)),
        model=text(doc, "agent", "model_name"),
        agent=text(doc, "agent", "name"),
        tools=manifests(at(doc, "agent", "tool_definitions")),
        labels={name: label for name, label in labels.items() if label},
        rest=without(doc, "steps", "final_metrics", "subagent_trajectories"),
        counts=together(_counted(step) for step in steps[:begin]),
        marks_errors=False,
    )
    for index, step in enumerate(steps):
        where = Place(f"{place}.steps[{index}]", instant(at(step, "timestamp")))
        if index >= begin:
            yield from _step(step, where, text(doc, "agent", "model_name"))
        elif rest := _beside(step):
            yield where.remarked("unmapped", rest)
        yield from _subagents(step, where)
    for index, trajectory in enumerate(rows(doc, "subagent_trajectories")):
        yield Place(f"{place}.subagent_trajectories[{index}]").remarked("subagent", trajectory)
    goes_on = "; continued in another file" if text(doc, "continued_trajectory_ref") else ""
    end, metrics = ("unknown", f"the format records no end{goes_on}"), at(doc, "final_metrics")
    sent, read, got = (number(metrics, f"total_{name}_tokens") for name in ("prompt", "cached", "completion"))
    times = Times(at(step, "timestamp") for step in steps).edges()
    return Place(f"{place}.final_metrics").ended(end, times, (sent, read, None, got), rest=without(metrics))


def _beside(step: JSON) -> dict[str, JSON]:
    """What a step that the run begins with holds beside its messages."""
    rest = left(step, *_TOLD, "tool_calls", "reasoning_content")
    seen: list[JSON] = [
        {**own} for result in rows(step, "observation", "results") if (own := left(result, *_RESULT))
    ]
    if seen:
        rest["observation"] = seen
    return rest


def _counted(step: JSON) -> Counted:
    """As what a step counts that a run begins with: an observation is a result, tied to a call or not."""
    source, seen = text(step, "source"), len(rows(step, "observation", "results"))
    calls = len(rows(step, "tool_calls"))
    return Counted(
        user=int(source == "user"), assistant=int(source == "agent"), tool=seen, calls=calls, results=seen
    )


def _is_new_answer(step: JSON) -> bool:
    return text(step, "source") == "agent" and at(step, "is_copied_context") is not True


def _said(step: JSON) -> Message:
    role = {"system": Role.SYSTEM, "agent": Role.ASSISTANT}.get(text(step, "source"), Role.USER)
    said, thought = words(at(step, "message")), text(step, "reasoning_content")
    return Message(role=role, text=said, reasoning=thought, calls=calls_of(step))


def _given(step: JSON) -> tuple[Message, ...]:
    """The messages of a step before the first answer: results stand behind the copied answer that asked for them."""
    paired = [(words(at(result, "content")), result, call) for result, call in _paired(step)]
    results = (Message(role=Role.TOOL, text=t, call=c.id, name=c.name) for t, _, c in paired if c)
    others = (Message(role=Role.USER, text=t) for t, r, c in paired if not c and at(r, "content") is not None)
    return (_said(step), *results, *others)


def _paired(step: JSON) -> list[tuple[JSON, MessageCall | None]]:
    """Each result with the call that it answers: by id, else the first call that waits."""
    waiting = list(calls_of(step))
    paired: list[tuple[JSON, MessageCall | None]] = []
    for result in rows(step, "observation", "results"):
        wanted = text(result, "source_call_id")
        call = next((call for call in waiting if call.id == wanted or not wanted), None)
        if call is not None:
            waiting.remove(call)
        paired.append((result, call))
    return paired


def _step(step: JSON, place: Place, model: str) -> Iterator[Item]:
    said, user = _said(step), text(step, "source") == "user"
    # What the agent's harness did to the context here, as Harbor's agents note it.
    management = at(step, "extra", "context_management")
    if said.role is Role.ASSISTANT:
        metrics = at(step, "metrics")
        yield place.answered(
            said,
            _TOKENS.of(metrics),
            cost=nano_usd(at(metrics, "cost_usd")),
            model=text(step, "model_name") or model,
            rest=without(step, *_TOLD, "tool_calls", "reasoning_content", "model_name"),
        )
        yield from place.hosted(at(step, "message"))
    elif user or (said.text and not management):
        by = "user" if user else "harness"
        yield place.said(said.text, by, role=said.role, rest=without(step, *_TOLD))
    else:
        place = place.counting(together(_UNCALLED for _ in rows(step, "observation", "results")))
        yield place.remarked(known_or(text(management, "type"), _MANAGED), step)
        return
    yield from _results(step, place)


def _subagents(step: JSON, place: Place) -> Iterator[Item]:
    """Sub-agents that a result refers to: their trajectories lie elsewhere, and are not opened."""
    for index, result in enumerate(rows(step, "observation", "results")):
        if (ref := at(result, "subagent_trajectory_ref")) is not None:
            yield Place(f"{place.position}.observation.results[{index}]").remarked("subagent", ref)


def _results(step: JSON, place: Place) -> Iterator[Item]:
    for index, (result, call) in enumerate(_paired(step)):
        where = Place(f"{place.position}.observation.results[{index}]", place.at)
        content, named = at(result, "content"), text(result, "source_call_id")
        rest = without(result, *_RESULT)
        if call is not None or named:
            known, name = (call.id, call.name) if call else (named, "")
            yield where.returned(known, words(content), name=name, rest=rest)
        elif content is not None:
            yield where.counting(_UNCALLED).said(words(content), "harness", rest=rest)
            yield where.remarked(UNCALLED)
