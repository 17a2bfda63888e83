"""tau-bench runs (`{task_id, trial, reward, info, traj}`, one or a list), and display text of few-shot files.

Call ids may repeat even within a run, so a result belongs to the preceding call. A run ends when the
simulated user writes `###STOP###`, with a transfer to a human, or after 30 responses, the limit of the
benchmark.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from refold.importers.documents import ANY, JsonValue, values
from refold.importers.fields import JSON, at, json_text, number, rest, table, take, take_rows, take_text, text
from refold.importers.formats.openai_messages import ChatMessage, conversation, read_rows
from refold.importers.items import Item, Place, RunBegan, Unread
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source
from refold.reducers.messages import Message, MessageCall
from refold.reducers.source_marks import INFERRED, UNNAMED
from refold.reducers.vocabulary import Role

MOST_ANSWERS = 30
"""Maximum number of responses in a run, `max_num_steps` in the benchmark's agents."""

NOT_RECORDED = "not_recorded"
"""The only argument of a call without recorded arguments: its number in the run, from 1.

The number makes such calls distinct, because they are not known to be the same.
"""

_STOP = "###STOP###"
_TRANSFER = "transfer_to_human_agents"
_DISPLAYED = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)


class TauBench:
    """The importer for runs of tau-bench, and its few-shot files."""

    name = "tau_bench"

    def match(self, source: Source) -> FormatMatch | None:
        """Match the keys of a run, or the only key of few-shot files."""
        head = source.head()
        if b'"messages_display"' in head:
            return FormatMatch(95, "messages_display")
        if b'"traj"' in head and (b'"task_id"' in head or b'"reward"' in head):
            return FormatMatch(95, "task_id, reward and traj")
        # `traj` may be after the searched bytes, because a task's description can be long.
        return FormatMatch(60, "task_id and reward") if b'"task_id"' in head and b'"reward"' in head else None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield one run after the other."""
        keys: set[str] = set()
        for value in values(source, (), ("traj",), (ANY, "traj")):
            if isinstance(value, Unread):
                yield value
            elif isinstance(at(value.value, "messages_display"), str):
                keys.add(key := str(len(keys)))
                yield from _read_display(value, key)
            elif "traj" in table(value.value):
                keys.add(key := _key(value.value, keys))
                yield from _run(value, key)
            else:
                yield value.place.problem("no_run", "no traj", value.value)
        if not keys:
            raise BadTranscript(source.name, "", "no run of tau-bench")


TAU_BENCH = TauBench()


def _key(value: JSON, taken: set[str]) -> str:
    task, trial = number(value, "task_id"), number(value, "trial")
    named = f"task-{task}" + (f"-trial-{trial}" if trial is not None else "") if task is not None else "run"
    return named if named not in taken else f"{named}#{len(taken) + 1}"


def _run(value: JsonValue, key: str) -> Iterator[Item]:
    listed = read_rows(take_rows(value.value, "traj"), f"{value.position}.traj")
    numbers = {name: number(value.value, name) for name in ("task_id", "trial")}
    labels = {name: str(given) for name, given in numbers.items() if given is not None}
    unsaid = ("tool_errors",)
    head = RunBegan(value.position, key=key, agent="tau-bench", labels=labels, unsaid=unsaid)
    yield from conversation(listed, head)
    reward = {"reward": take(value.value, "reward")}
    yield Place(f"{value.position}.reward").remark("score:reward", reward)
    # The task has the instructions of the simulated user: not a message, but needed to judge the run.
    yield value.place.remark("unmapped", rest=rest(value.value))
    last = listed[-1].place if listed else value.place
    yield last.end(_end([each for row in listed for each in row.messages], value.value))


def _end(messages: Sequence[Message], run: JSON) -> tuple[str, str]:
    last = messages[-1] if messages else None
    if last is not None and last.role is Role.USER and _STOP in last.text:
        return "finished", "last message ###STOP###"
    if last is not None and last.role is Role.TOOL and _find_last_tool(messages) == _TRANSFER:
        return "finished", f"last message is the result of {_TRANSFER}"
    if sum(message.role is Role.ASSISTANT for message in messages) >= MOST_ANSWERS:
        return "limit:steps", f"{MOST_ANSWERS} assistant messages"
    if text(run, "info", "error"):
        return "error", "info.error"
    return "open", "the last message does not end the run"


def _find_last_tool(messages: Sequence[Message]) -> str:
    """Return the tool of the last result: by its own name, else by the call before it."""
    calls = next((message.calls for message in reversed(messages) if message.calls), ())
    return messages[-1].name or (calls[-1].name if calls else "")


def _read_display(value: JsonValue, key: str) -> Iterator[Item]:
    """Yield the items of display text, in which each message begins with a line `role: …`.

    Calls are inferred from their results.
    """
    parts = _DISPLAYED.split(take_text(value.value, "messages_display"))
    messages = [
        _make_message(role, words.removesuffix("\n"))
        for role, words in zip(parts[1::2], parts[2::2], strict=True)
    ]
    inferred = 0
    for index, message in enumerate(messages):
        if message.role is Role.TOOL:
            answer = next(
                (back for back in range(index, -1, -1) if messages[back].role is not Role.TOOL), index
            )
            if messages[answer].role is Role.ASSISTANT:
                inferred += 1
                call = MessageCall("", UNNAMED, json_text({NOT_RECORDED: inferred}))
                messages[answer] = replace(messages[answer], calls=(*messages[answer].calls, call))
    place = Place(f"{value.position}.messages_display")
    listed = [
        ChatMessage(Place(f"{place.position}[{index}]"), (message,)) for index, message in enumerate(messages)
    ]
    odd = [place.problem("no_role", "text before the first role", parts[0])] if parts[0].strip() else []
    if inferred:
        problem = f"{inferred} calls have no name, id or arguments: they are inferred from their results"
        odd.append(place.problem(INFERRED, problem))
    head = RunBegan(
        place.position,
        rest=rest(value.value),
        key=key,
        agent="tau-bench",
        unsaid=("tool_calls", "tool_errors"),
    )
    yield from conversation(listed, head, odd)
    yield place.end(("unknown", "few-shot text: no outcome"))


def _make_message(role: str, content: str) -> Message:
    # A message without text was displayed as Python's `None`.
    return Message(role=Role(role), text="" if role == "assistant" and content == "None" else content)
