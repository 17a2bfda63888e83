"""What runs ask a person: of one run, and of all in a store."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from refold.console import descriptions, places
from refold.console.next_steps import asked_about
from refold.console.places import StorePlace
from refold.console.screen import Column, Screen, note
from refold.console.sweeps import Oldest, not_read, sweep
from refold.engine.compatibility import installed_guards
from refold.engine.journal import source_of
from refold.engine.result import result_of
from refold.reducers.events import Event, ModelResponded
from refold.reducers.machine import AgentState
from refold.reducers.secrets import redacted
from refold.reducers.state import RunState
from refold.replay import figures, state_at
from refold.replay.kinds.arguments import called_with

_MOST = 1000
_TEXT = 200  # characters of what the model said last
_ARGUMENT = 60  # and of each argument of a call: what it runs with stands whole where it is decided
_WHAT = {"approval": "approval", "message": "a message", "doubt": "how calls ended"}
_ANSWER = {"approval": "approvals {}", "message": "resume {} --message TEXT", "doubt": "doubts {}"}


class AskedCall(msgspec.Struct, frozen=True):
    """A call about which a person is asked. Secrets in its `arguments` (JSON text) are hidden; "(erased)" where they are gone."""

    call: str
    tool: str
    arguments: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks a person, as JSON. `since` and `until` are nanoseconds since the epoch.

    `text` are the first words of the answer with which the run came to wait, None where they were erased. `guard` asks:
    `approvals` for its approver `approver`, or a guard of that name.
    """

    run: str
    waits_for: Literal["approval", "message", "doubt"]
    since: int
    until: int | None = None
    calls: tuple[AskedCall, ...] = ()
    text: str = ""
    guard: str = ""
    approver: str = ""


class Questions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that waits for a person, as JSON: how many runs, the oldest of them, and the runs that could not be read."""

    count: int
    waiting: list[Question]
    unread: list[str] = []


async def tell_questions(screen: Screen, place: StorePlace) -> int:
    """List what waits for a person. Exit code 0; a log that cannot be read is raised after the others are told."""
    found = Oldest[Question](_MOST)
    async with places.reading(place) as store:

        async def look(run: str) -> None:
            if await source_of(store, run):  # what its agent's people said, they said elsewhere
                return
            question = question_of(*await state_at(store, run, registry=installed_guards()))
            if question is not None:
                found.add(question.since, question)

        unread = await sweep(store, look, waiting=True)
    told = Questions(count=found.count, waiting=found.rows, unread=unread.runs)
    screen.result(told, lambda: _tell(screen, place, found, unread.runs))
    if unread.problem is not None:
        raise unread.problem
    return 0


def question_of(state: RunState, contents: Mapping[int, Event]) -> Question | None:
    """What a run in this state asks a person; None if nothing. `contents` has the answer with the calls."""
    if state.agent_state is not AgentState.WAITING_FOR_INPUT:
        return None
    doubts, approval, batch = asked_about(state), state.approval, state.batch
    answer = contents.get(batch.seq) if batch else None
    said = answer.content.arguments if isinstance(answer, ModelResponded) and answer.content else ()
    names = approval.event.calls if approval is not None else doubts
    return Question(
        run=state.setup.run,
        waits_for="approval" if approval is not None else "doubt" if doubts else "message",
        since=state.at if state.asked_at is None else state.asked_at,
        until=approval.until if approval else None,
        calls=tuple(
            AskedCall(call.id, call.name, redacted(said[call.position]) if said else "(erased)")
            for call in (batch.calls if batch else ())
            if call.id in names
        ),
        text=descriptions.short(result_of(state, contents).outcome.text, _TEXT),
        guard=approval.event.guard if approval else "",
        approver=approval.event.approver if approval else "",
    )


def _tell(screen: Screen, place: StorePlace, found: Oldest[Question], unread: Sequence[str]) -> None:
    if not found.count:
        note(
            f"nothing{' that was read' if unread else ''} in {place.path} waits for a person{not_read(unread)}"
        )
        return
    columns = [Column("run"), Column("since (UTC)"), Column("until (UTC)"), Column("waits for")]
    columns += [Column("what", elastic=True), Column("to answer")]
    screen.table(columns, [_cells(question) for question in found.rows])
    if found.count > len(found.rows):
        note(f"and {figures.count(found.count - len(found.rows))} newer ones")


def _cells(question: Question) -> list[str]:
    until = "" if question.until is None else figures.clock(question.until).removesuffix(" UTC")
    calls = (f"{call.call} {called_with(call.tool, call.arguments, _ARGUMENT)}" for call in question.calls)
    what = ", ".join(calls) or question.text
    answer = f"refold {_ANSWER[question.waits_for].format(question.run)}"
    return [
        question.run,
        figures.clock(question.since).removesuffix(" UTC"),
        until,
        _WHAT[question.waits_for],
        what,
        answer,
    ]
