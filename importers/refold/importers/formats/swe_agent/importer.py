"""SWE-agent trajectories (`.traj`), versions 0.x to 1.1: one JSON document per run.

`trajectory` has the steps: response, action, observation. `history` has the messages as the model received
them; an observation there ends with the prompt of the shell. The two are aligned. The history may lack steps:
often the last one, and responses that could not be parsed, so that the request was repeated. Such a step is
used alone, as is a history without steps. Since 1.0, each step's exact prompt is recorded (`messages`, in 1.1
`query`).

If the model does not use function calls, its action is text. It becomes a call of `bash`, and the observation
its result, although the model received it as a user message. Prompts are converted the same way.

Counts: messages by role without demonstrations; calls = steps; results = steps with an observation; tokens
from `info.model_stats`. There are no times, and the status of commands is not recorded.
"""

from collections.abc import Iterator, Sequence

import msgspec

from refold.importers.content import calls_of
from refold.importers.documents import decode_beginning, document
from refold.importers.fields import (
    JSON,
    at,
    join_rests,
    labels_of,
    nanoseconds,
    number,
    rest,
    rows,
    table,
    take,
    take_if,
    take_rows,
    take_text,
    take_words,
    text,
)
from refold.importers.formats.swe_agent.turns import (
    Turn,
    TurnConversation,
    first_answer,
    prompt_of,
    role_of,
    take_actions,
    take_message,
    turns,
)
from refold.importers.items import UNCOUNTED, UNKNOWN_PART, Counted, Item, Place, RunBegan
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source, decode_json
from refold.importers.tallies import add_counts
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role

LIMITS = {
    "exit_cost": "limit:cost",
    "exit_context": "limit:context",
    "exit_total_execution_time": "limit:time",
    "exit_command_timeout": "limit:time",
}
"""Exit statuses for limits. If there is a patch, the status is `submitted (exit_cost)`."""

_GAVE_UP = "Exit due to "
"""Prefix of the step that SWE-agent itself appends when it stops; it is not a response."""


class SweAgent(msgspec.Struct, frozen=True):
    """The importer for `.traj` files."""

    name: str = "swe_agent"

    def match(self, source: Source) -> FormatMatch | None:
        """Match steps with SWE-agent's keys, or a history whose messages name their agent."""
        found = decode_beginning(source)
        step, first = at(found, "trajectory", 0), at(found, "history", 0)
        if {"action", "response"} <= table(step).keys() or {"action", "observation"} <= table(step).keys():
            return FormatMatch(95, "a trajectory of steps with action and observation")
        if {"role", "agent"} <= table(first).keys():
            return FormatMatch(90, "a history of messages that name their agent")
        if {"trajectory", "history"} <= table(found).keys():
            return FormatMatch(70, "a trajectory and a history")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the items of the file's only run."""
        found = document(source, ("trajectory",), ("history",))
        doc = found.value
        if not {"trajectory", "history"} & table(doc).keys():
            raise BadTranscript(source.name, "$", "neither a trajectory nor a history")
        run = _SweAgentRun(take_rows(doc, "history"), take_rows(doc, "trajectory"))
        info, model, begin = take(doc, "info"), _model(doc), run.begin
        labels = {"environment": text(doc, "environment"), "version": text(info, "swe_agent_version")}
        given = run.list_initial_messages()
        yield RunBegan(
            position=f"$.history[0:{begin}]" if begin else "$",
            key="trajectory",
            messages=given,
            model=model,
            agent="swe-agent",
            labels=labels_of(labels),
            unsaid=("tool_errors",),
            rest=join_rests(rest(doc), run.conversation.take_rest()),
            counts=add_counts(_count_message(row, run.steps) for row in run.history[:begin]) or UNCOUNTED,
        )
        for turn in run.turns:
            yield from run.items(turn)
        yield from found.cut()
        stats = at(info, "model_stats")
        used = (number(stats, "tokens_sent"), None, None, number(stats, "tokens_received"))
        yield Place("$.info").end(
            end_of(at(info, "exit_status")), used=used, asked=run.call_count, rest=rest(info)
        )


SWE_AGENT = SweAgent()


def end_of(status: JSON) -> tuple[str, str]:
    """Return how a run ended by `info.exit_status`, and where that is recorded."""
    if not isinstance(status, str) or not status:
        return "unknown", "info.exit_status missing or null"
    inner = status.removeprefix("submitted (").removesuffix(")")
    end = "finished" if status == "submitted" else LIMITS.get(inner, "error")
    return end, f"info.exit_status={status}"


def _count_message(row: JSON, steps: Sequence[JSON]) -> Counted:
    """Return the counts of a message in the history: none for demonstrations.

    If there are steps, results are counted with them.
    """
    role = "" if at(row, "is_demo") is True else text(row, "role")
    return Counted(
        user=int(role == "user"), tool=int(role == "tool"), results=int(role == "tool" and not steps)
    )


def _model(doc: JSON) -> str:
    """Return the model's name from the configuration: an object in 0.x, JSON text since 1.0."""
    config = at(doc, "replay_config")
    if isinstance(config, str):
        try:
            config = decode_json(config.encode(errors="replace"))
        except ValueError:
            return ""
    return text(config, "agent", "model", "name") or text(config, "agent", "model", "model_name")


class _SweAgentRun:
    """A reader of one run. `turns` aligns history and steps before anything is taken out of them."""

    def __init__(self, history: Sequence[JSON], steps: Sequence[JSON]) -> None:
        self.history, self.steps, self.begin = history, steps, first_answer(history)
        self.turns = [*turns(history, self.begin, steps)]
        self.prompts = [prompt_of(steps, index) for index in range(len(steps))]
        self.call_count = sum(_calls(step) for step in steps if not _is_give_up(step))
        self.conversation = TurnConversation()

    def list_initial_messages(self) -> tuple[Message, ...]:
        """Return the initial messages: those of the history, else the first prompt."""
        if self.begin or not self.steps:
            return self.conversation.read(self.history[: self.begin])
        return self.conversation.read(self.prompts[0])

    def items(self, turn: Turn) -> Iterator[Item]:
        """Yield the items of a turn."""
        step = None if turn.step is None else self.steps[turn.step]
        where = Place(f"$.trajectory[{turn.step}]")
        if turn.step is not None:
            yield from self._read_prompt(turn.step, where)
        seen = int(isinstance(at(step, "observation"), str))
        if turn.answer is None and _is_give_up(step):
            place = where.with_counts(Counted(calls=1, results=seen))
            yield place.remark("gave_up", rest=rest(step))
            return
        accounts = [step, None if turn.answer is None else self.history[turn.answer]]
        if any(account and not {"action", "tool_calls"} & table(account).keys() for account in accounts):
            yield _place(turn).problem(UNKNOWN_PART, "a response without an action")
        message = self._take_answer(turn, step)
        waiting = message.calls[-1].id if message.calls else None
        results = [*self._read_following(turn, step, waiting)]
        counts = Counted(
            assistant=int(turn.answer is not None),
            calls=int(step is not None) if self.steps else len(message.calls),
            results=seen,
        )
        yield _place(turn).with_counts(counts).reply(message, rest=self._encode_rest(turn, step))
        yield from results

    def _read_prompt(self, index: int, where: Place) -> Iterator[Item]:
        step, prompt = self.steps[index], self.prompts[index]
        messages, following = self.conversation.read(prompt), self.prompts[index + 1 : index + 2]
        for listed in (take_rows(step, "query"), take_rows(step, "messages")):
            if not any(listed is told for told in (prompt, *following)):
                self.conversation.keep_others(listed)
        if prompt:
            yield where.prompt(messages, rest=self.conversation.take_rest())

    def _take_answer(self, turn: Turn, step: JSON) -> Message:
        """Take a response out of its step and its message."""
        if turn.answer is None:
            content, calls = take_text(step, "response"), take_actions(step, 0)
            message = Message(role=Role.ASSISTANT, text=content, calls=calls)
        else:
            answer = self.history[turn.answer]
            if not rows(answer, "tool_calls") and text(answer, "action").strip():
                take_if(step, "action", text(answer, "action"))
            message = take_message(answer, turn.answer)
            take_if(step, "response", message.text)
        if text(step, "thought") in message.text:
            take_text(step, "thought")
        return message

    def _encode_rest(self, turn: Turn, step: JSON) -> str:
        """Return JSON text of the remaining fields of a response's step and message.

        For example the state, the agent, or a thought that is not in the text.
        """
        if turn.answer is None:
            return rest(step)
        answer = self.history[turn.answer]
        self.conversation.encode_rest(answer)
        for name, value in table(step).items():
            take_if(answer, name, value)
        return join_rests(rest(step), rest(answer))

    def _read_following(self, turn: Turn, step: JSON, waiting: str | None) -> Iterator[Item]:
        """Yield what follows a response: its result from the history, else from the step; then messages."""
        if not turn.following and waiting is not None and isinstance(at(step, "observation"), str):
            place = Place(f"$.trajectory[{turn.step}]", None, UNCOUNTED)
            yield place.result(waiting, take_text(step, "observation"), duration=_take_duration(step))
        for index in turn.following:
            row, position = self.history[index], f"$.history[{index}]"
            lost = [] if text(row, "role") in {*Role} else [*Place(position).unknown_calls(row)]
            role, counts, content = role_of(row), _count_message(row, self.steps), take_words(row, "content")
            take_if(row, "role", role.value)
            if waiting is not None and role is not Role.SYSTEM:
                position += f", $.trajectory[{turn.step}].observation" if turn.step is not None else ""
                take_if(row, "tool_call_ids", [waiting])
                place, left = Place(position, None, counts), self.conversation.encode_rest(row)
                yield from lost
                yield place.result(waiting, content, duration=_take_duration(step), rest=left)
                waiting = None
            else:
                place, left = Place(position, None, counts), self.conversation.encode_rest(row)
                yield from lost
                yield place.message(
                    content, "harness", role=Role.SYSTEM if role is Role.SYSTEM else Role.USER, rest=left
                )


def _take_duration(step: JSON) -> int:
    if duration := nanoseconds(at(step, "execution_time")):
        take(step, "execution_time")
    return duration


def _calls(step: JSON) -> int:
    return len(calls_of(step)) if rows(step, "tool_calls") else int(bool(text(step, "action").strip()))


def _is_give_up(step: JSON) -> bool:
    return text(step, "response").startswith(_GAVE_UP)


def _place(turn: Turn) -> Place:
    stepped = f"$.trajectory[{turn.step}]" if turn.step is not None else ""
    there = f"$.history[{turn.answer}]" if turn.answer is not None else ""
    return Place(", ".join(filter(None, (stepped, there))))
