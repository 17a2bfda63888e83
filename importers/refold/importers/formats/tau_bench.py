"""tau-bench runs: `{task_id, trial, reward, info, traj}`, one or a list, and the few-shot files' display
text.

Call ids are not unique, not even within a run, so results find their calls by adjacency. The end is what the
simulated person says (`###STOP###`), a transfer to a human, or 30 answers, which is the benchmark's limit.
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
"""Answers of a run, `max_num_steps` in the benchmark's agents."""

NOT_RECORDED = "not_recorded"
"""The only argument of such a call: its number in the run, from 1.

Nobody knows that two of them are the same call, so no two are.
"""

_STOP = "###STOP###"
_TRANSFER = "transfer_to_human_agents"
_DISPLAYED = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)


class TauBench:
    """Runs of tau-bench, and its few-shot files."""

    name = "tau_bench"

    def match(self, source: Source) -> FormatMatch | None:
        """By a run's keys, or the few-shot files' only one."""
        head = source.head()
        if b'"messages_display"' in head:
            return FormatMatch(95, "messages_display")
        if b'"traj"' in head and (b'"task_id"' in head or b'"reward"' in head):
            return FormatMatch(95, "task_id, reward and traj")
        # A task's description may be longer than the head.
        return FormatMatch(60, "task_id and reward") if b'"task_id"' in head and b'"reward"' in head else None

    def items(self, source: Source) -> Iterator[Item]:
        """One run after the other."""
        keys: set[str] = set()
        for value in values(source, (), ("traj",), (ANY, "traj")):
            if isinstance(value, Unread):
                yield value
            elif isinstance(at(value.value, "messages_display"), str):
                keys.add(key := str(len(keys)))
                yield from _displayed(value, key)
            elif "traj" in table(value.value):
                keys.add(key := _key(value.value, keys))
                yield from _run(value, key)
            else:
                yield value.place.problem("no_run", "no traj in it", value.value)
        if not keys:
            raise BadTranscript(source.name, "", "no run of tau-bench in it")


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
    # The task holds the simulated person's instructions: no message, but what the run is judged by.
    yield value.place.remark("unmapped", rest=rest(value.value))
    last = listed[-1].place if listed else value.place
    yield last.end(_end([each for row in listed for each in row.said], value.value))


def _end(said: Sequence[Message], run: JSON) -> tuple[str, str]:
    last = said[-1] if said else None
    if last is not None and last.role is Role.USER and _STOP in last.text:
        return "finished", "last message ###STOP###"
    if last is not None and last.role is Role.TOOL and _named(said) == _TRANSFER:
        return "finished", f"last message is the result of {_TRANSFER}"
    if sum(message.role is Role.ASSISTANT for message in said) >= MOST_ANSWERS:
        return "limit:steps", f"{MOST_ANSWERS} assistant messages"
    if text(run, "info", "error"):
        return "error", "info.error"
    return "open", "the last message is no end"


def _named(said: Sequence[Message]) -> str:
    """The tool whose result comes last: by its own name, else by the call before it."""
    asked = next((message.calls for message in reversed(said) if message.calls), ())
    return said[-1].name or (asked[-1].name if asked else "")


def _displayed(value: JsonValue, key: str) -> Iterator[Item]:
    """Display text: a line that begins with `role: ` begins a message. Calls are known by their results
    only.
    """
    parts = _DISPLAYED.split(take_text(value.value, "messages_display"))
    said = [
        _shown(role, words.removesuffix("\n")) for role, words in zip(parts[1::2], parts[2::2], strict=True)
    ]
    inferred = 0
    for index, message in enumerate(said):
        if message.role is Role.TOOL:
            answer = next((back for back in range(index, -1, -1) if said[back].role is not Role.TOOL), index)
            if said[answer].role is Role.ASSISTANT:
                inferred += 1
                call = MessageCall("", UNNAMED, json_text({NOT_RECORDED: inferred}))
                said[answer] = replace(said[answer], calls=(*said[answer].calls, call))
    place = Place(f"{value.position}.messages_display")
    listed = [
        ChatMessage(Place(f"{place.position}[{index}]"), (message,)) for index, message in enumerate(said)
    ]
    odd = [place.problem("no_role", "text before the first role", parts[0])] if parts[0].strip() else []
    if inferred:
        problem = f"{inferred} calls have neither name, id nor arguments: known by their results only"
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


def _shown(role: str, said: str) -> Message:
    # Python's `None` is how a message without text was displayed.
    return Message(role=Role(role), text="" if role == "assistant" and said == "None" else said)
