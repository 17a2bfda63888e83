"""tau-bench runs: `{task_id, trial, reward, info, traj}`, one or a list, and the few-shot files' display text.

Call ids are not unique, not even within a run, so results find their calls by adjacency. The end is what the simulated
person says (`###STOP###`), a transfer to a human, or 30 answers, which is the benchmark's limit.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from refold.reducers.vocabulary import Role
from refold.replay.importers.documents import ANY
from refold.replay.importers.fields import JSON, json_text, number, rows, table, text, without
from refold.replay.importers.items import Asked, Item, Remarked, RunBegan, RunEnded, Unread
from refold.replay.importers.openai_messages import Row, began, read_rows, tallied, told
from refold.replay.importers.pieces import Piece
from refold.replay.importers.protocol import Match
from refold.replay.importers.source import BadTranscript, Source
from refold.replay.importers.values import Value, values

MOST_ANSWERS = 30
"""Answers of a run, `max_num_steps` in the benchmark's agents."""

UNNAMED = "unknown"
"""The name of a call that is known only by its result."""

NOT_RECORDED = "not_recorded"
"""The only argument of such a call: its number in the run, from 1. Nobody knows that two of them are the same call, so no two are."""

_STOP = "###STOP###"
_TRANSFER = "transfer_to_human_agents"
_DISPLAYED = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)


class TauBench:
    """Runs of tau-bench, and its few-shot files."""

    name = "tau_bench"

    def match(self, source: Source) -> Match | None:
        """By a run's keys, or the few-shot files' only one."""
        head = source.head()
        if b'"messages_display"' in head:
            return Match(95, "messages_display")
        if b'"traj"' in head and (b'"task_id"' in head or b'"reward"' in head):
            return Match(95, "task_id, reward and traj")
        # A task's description may be longer than the head.
        return Match(60, "task_id and reward") if b'"task_id"' in head and b'"reward"' in head else None

    def items(self, source: Source) -> Iterator[Item]:
        """One run after the other."""
        keys: set[str] = set()
        for value in values(source, (), ("traj",), (ANY, "traj")):
            if isinstance(value, Unread):
                yield value
            elif isinstance(display := table(value.value).get("messages_display"), str):
                keys.add(key := str(len(keys)))
                yield from _displayed(value, display, key)
            elif "traj" in table(value.value):
                keys.add(key := _key(value.value, keys))
                yield from _run(value, key)
            else:
                yield Unread(
                    position=value.position,
                    code="no_run",
                    problem="no traj in it",
                    rest=json_text(value.value),
                )
        if not keys:
            raise BadTranscript(source.name, "", "no run of tau-bench in it")


TAU_BENCH = TauBench()


def _key(value: JSON, taken: set[str]) -> str:
    task, trial = number(value, "task_id"), number(value, "trial")
    named = f"task-{task}" + (f"-trial-{trial}" if trial is not None else "") if task is not None else "run"
    return named if named not in taken else f"{named}#{len(taken) + 1}"


def _run(value: Value, key: str) -> Iterator[Item]:
    listed = read_rows(rows(value.value, "traj"), f"{value.position}.traj")
    labels = {
        name: str(given) for name in ("task_id", "trial") if (given := number(value.value, name)) is not None
    }
    yield began(listed, RunBegan(position=value.position, key=key, agent="tau-bench", labels=labels))
    yield from told(listed)
    reward = json_text({"reward": table(value.value).get("reward")})
    yield Remarked(position=f"{value.position}.reward", what="score:reward", rest=reward)
    # The task holds the simulated person's instructions: no message, but what the run is judged by.
    yield Remarked(position=value.position, what="unmapped", rest=without(value.value, "traj", "reward"))
    end, why = _end(listed, table(value.value, "info"))
    last = listed[-1].position if listed else value.position
    yield RunEnded(position=last, end=end, end_source=why, tally=tallied(listed))


def _end(listed: Sequence[Row], info: dict[str, JSON]) -> tuple[str, str]:
    pieces = [piece for row in listed for piece in row.pieces]
    last = pieces[-1] if pieces else None
    if last is not None and last.role is Role.USER and _STOP in last.text:
        return "finished", "last message ###STOP###"
    if last is not None and last.role is Role.TOOL and _named(pieces) == _TRANSFER:
        return "finished", f"last message is the result of {_TRANSFER}"
    if sum(piece.role is Role.ASSISTANT for piece in pieces) >= MOST_ANSWERS:
        return "limit:steps", f"{MOST_ANSWERS} assistant messages"
    if text(info, "error"):
        return "error", "info.error"
    return "open", "the last message is no end"


def _named(pieces: Sequence[Piece]) -> str:
    """The tool whose result comes last: by its own name, else by the call before it."""
    asked = next((piece.calls for piece in reversed(pieces) if piece.calls), ())
    return pieces[-1].name or (asked[-1].name if asked else "")


def _displayed(value: Value, display: str, key: str) -> Iterator[Item]:
    """Display text: a line that begins with `role: ` begins a message. Calls are known by their results only."""
    parts = _DISPLAYED.split(display)
    pieces = [
        _shown(role, said.removesuffix("\n")) for role, said in zip(parts[1::2], parts[2::2], strict=True)
    ]
    inferred = 0
    for at, piece in enumerate(pieces):
        if piece.role is Role.TOOL:
            answer = next((back for back in range(at, -1, -1) if pieces[back].role is not Role.TOOL), at)
            if pieces[answer].role is Role.ASSISTANT:
                inferred += 1
                call = Asked(id="", name=UNNAMED, arguments=json_text({NOT_RECORDED: inferred}))
                pieces[answer] = replace(pieces[answer], calls=(*pieces[answer].calls, call))
    place = f"{value.position}.messages_display"
    listed = [Row(f"{place}[{index}]", (piece,)) for index, piece in enumerate(pieces)]
    yield began(
        listed,
        RunBegan(position=place, key=key, agent="tau-bench", rest=without(value.value, "messages_display")),
    )
    if parts[0].strip():
        yield Unread(
            position=place, code="no_role", problem="text before the first role", rest=json_text(parts[0])
        )
    if inferred:
        problem = f"{inferred} calls have neither name, id nor arguments: known by their results only"
        yield Unread(position=place, code="calls_inferred", problem=problem)
    yield from told(listed)
    tally = replace(
        tallied(listed), tool_calls=None, tool_results=sum(piece.role is Role.TOOL for piece in pieces)
    )
    yield RunEnded(position=place, end="unknown", end_source="few-shot text: no outcome", tally=tally)


def _shown(role: str, said: str) -> Piece:
    # Python's `None` is how a message without text was displayed.
    return Piece(role=Role(role), text="" if role == "assistant" and said == "None" else said)
