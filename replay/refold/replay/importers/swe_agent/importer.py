"""SWE-agent trajectories (`.traj`), versions 0.x to 1.1: one JSON document a run.

`trajectory` has the steps: what the model answered, what was run, what came back. `history` has the messages, and is the
better witness of what the model saw: an observation there ends with the prompt of the shell. The two are laid side by
side; a step that the history lacks (the last one, often; a request that was repeated because it could not be parsed)
speaks for itself, and so does a history without steps. From 1.0 on each step's exact prompt can be had (`messages`, in
1.1 `query`).

Where the model calls no functions, its action is text: it becomes a call of `bash`, and the observation its result, though
the model was shown it as a user's message. In prompts the same is done, so both sides say the same.

Counted: messages by role without demonstrations; calls = steps; results = steps with an observation; tokens as
`info.model_stats` has them. There is no time, and no mark of a failed command.
"""

from collections.abc import Iterator, Sequence

import msgspec

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role
from refold.replay.importers.content import worded, words
from refold.replay.importers.documents import beginning, document
from refold.replay.importers.fields import (
    JSON,
    at,
    json_text,
    left,
    nanoseconds,
    number,
    rows,
    table,
    text,
    without,
)
from refold.replay.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan, together
from refold.replay.importers.protocol import Match
from refold.replay.importers.source import BadTranscript, Source, decoded
from refold.replay.importers.swe_agent.turns import (
    Turn,
    asked,
    conversation,
    first_answer,
    prompt_of,
    role_of,
    turns,
)

LIMITS = {
    "exit_cost": "limit:cost",
    "exit_context": "limit:context",
    "exit_total_execution_time": "limit:time",
    "exit_command_timeout": "limit:time",
}
"""Exit statuses that name a limit. With a patch to show, the status is `submitted (exit_cost)`."""

_GAVE_UP = "Exit due to "
"""How SWE-agent words the step that it appends itself when it stops; no model said that."""


class SweAgent(msgspec.Struct, frozen=True):
    """The importer of `.traj` files."""

    name: str = "swe_agent"

    def match(self, source: Source) -> Match | None:
        """A document with steps of SWE-agent's keys, or a history whose messages name their agent."""
        found = beginning(source)
        step, first = at(found, "trajectory", 0), at(found, "history", 0)
        if {"action", "response"} <= table(step).keys() or {"action", "observation"} <= table(step).keys():
            return Match(95, "a trajectory of steps with action and observation")
        if {"role", "agent"} <= table(first).keys():
            return Match(90, "a history of messages that name their agent")
        if {"trajectory", "history"} <= table(found).keys():
            return Match(70, "a trajectory and a history")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        found = document(source, ("trajectory",), ("history",))
        doc = found.value
        if not {"trajectory", "history"} & table(doc).keys():
            raise BadTranscript(source.name, "$", "neither a trajectory nor a history")
        history, steps = rows(doc, "history"), rows(doc, "trajectory")
        begin = first_answer(history)
        labels = {"environment": text(doc, "environment"), "version": text(doc, "info", "swe_agent_version")}
        given = conversation(history[:begin]) if begin or not steps else prompt_of(steps, 0)
        yield RunBegan(
            position=f"$.history[0:{begin}]" if begin else "$",
            key="trajectory",
            messages=given or (),
            model=_model(doc),
            agent="swe-agent",
            labels={name: label for name, label in labels.items() if label},
            rest=without(doc, "trajectory", "history", "info"),
            counts=together(_counted(row, steps) for row in history[:begin]) or UNCOUNTED,
            marks_errors=False,
        )
        for turn in turns(history, begin, steps):
            yield from _turn_items(turn, history, steps)
        yield from found.cut()
        info, stats = at(doc, "info"), at(doc, "info", "model_stats")
        used = (number(stats, "tokens_sent"), None, None, number(stats, "tokens_received"))
        calls = sum(len(asked(step, 0)) for step in steps if not _gave_up(step))
        end = end_of(at(info, "exit_status"))
        yield Place("$.info").ended(end, used=used, asked=calls, rest=without(info))


SWE_AGENT = SweAgent()


def end_of(status: JSON) -> tuple[str, str]:
    """How a run ended, and where that stands, from `info.exit_status`."""
    if not isinstance(status, str) or not status:
        return "unknown", "info.exit_status missing or null"
    inner = status.removeprefix("submitted (").removesuffix(")")
    end = "finished" if status == "submitted" else LIMITS.get(inner, "error")
    return end, f"info.exit_status={status}"


def _counted(row: JSON, steps: Sequence[JSON]) -> Counted:
    """As what a message of the history counts: no demonstration; results count with the steps, where there are any."""
    role = "" if at(row, "is_demo") is True else text(row, "role")
    return Counted(
        user=int(role == "user"), tool=int(role == "tool"), results=int(role == "tool" and not steps)
    )


def _model(doc: JSON) -> str:
    """The model's name, from the configuration: an object in 0.x, JSON text since."""
    config = at(doc, "replay_config")
    if isinstance(config, str):
        try:
            config = decoded(config.encode(errors="replace"))
        except ValueError:
            return ""
    return text(config, "agent", "model", "name") or text(config, "agent", "model", "model_name")


def _turn_items(turn: Turn, history: Sequence[JSON], steps: Sequence[JSON]) -> Iterator[Item]:
    step = None if turn.step is None else steps[turn.step]
    prompt = prompt_of(steps, turn.step) if turn.step is not None else None
    where = Place(f"$.trajectory[{turn.step}]")
    if prompt is not None:
        yield where.prompted(prompt)
    seen = int(isinstance(at(step, "observation"), str))
    if turn.answer is None and _gave_up(step):
        place = where.counting(Counted(calls=1, results=seen))
        yield place.remarked("gave_up", rest=without(step, "messages", "query"))
        return
    answer = step if turn.answer is None else history[turn.answer]
    calls = asked(answer, turn.answer or 0)
    said = text(step, "response") if turn.answer is None else words(at(answer, "content"))
    rest = _rest(step, answer, said, shown=bool(calls) and not turn.following)
    counts = Counted(
        assistant=int(turn.answer is not None),
        calls=int(step is not None) if steps else len(calls),
        results=seen,
    )
    message = Message(role=Role.ASSISTANT, text=said, calls=calls)
    yield _place(turn).counting(counts).answered(message, rest=rest)
    yield from _following(turn, history, steps, waiting=calls[-1].id if calls else None)


def _gave_up(step: JSON) -> bool:
    return text(step, "response").startswith(_GAVE_UP)


def _following(
    turn: Turn, history: Sequence[JSON], steps: Sequence[JSON], waiting: str | None
) -> Iterator[Item]:
    """What came behind an answer: its result as the model was shown it, else as the step has it; then what was said."""
    step = None if turn.step is None else steps[turn.step]
    duration, observation = nanoseconds(at(step, "execution_time")), at(step, "observation")
    if not turn.following and waiting is not None and isinstance(observation, str):
        place = Place(f"$.trajectory[{turn.step}]", None, UNCOUNTED)
        yield place.returned(waiting, observation, duration=duration)
    for index in turn.following:
        row, position = history[index], f"$.history[{index}]"
        said, rest = words(at(row, "content")), without(row, "role", *worded(row), "tool_call_ids")
        system, counts = role_of(row) is Role.SYSTEM, _counted(row, steps)
        if waiting is not None and not system:
            position += f", $.trajectory[{turn.step}].observation" if turn.step is not None else ""
            yield Place(position, None, counts).returned(waiting, said, duration=duration, rest=rest)
            waiting = None
        else:
            role = Role.SYSTEM if system else Role.USER
            yield Place(position, None, counts).said(said, "harness", role=role, rest=rest)


def _place(turn: Turn) -> Place:
    stepped = f"$.trajectory[{turn.step}]" if turn.step is not None else ""
    there = f"$.history[{turn.answer}]" if turn.answer is not None else ""
    return Place(", ".join(filter(None, (stepped, there))))


def _rest(step: JSON, answer: JSON, said: str, *, shown: bool) -> str:
    """What an answer's step and message say beyond the items: state, whose it was, a thought that is not in the text.

    `shown`: the step's observation is the result that follows.
    """
    told = {"response", "messages", "query", "execution_time", "role", "tool_calls", *worded(answer)}
    told |= {"observation"} if shown else set()
    told |= set() if rows(answer, "tool_calls") else {"action"}
    told |= {key for key in ("thought",) if text(answer, key) in said and text(step, key) in said}
    kept = left(answer if step is None else step, *told)
    if step is not None and step is not answer:
        beside = {key: value for key, value in left(answer, *told).items() if kept.get(key) != value}
        kept |= {"history": beside} if beside else {}
    return json_text(kept) if kept else ""
