"""`refold approvals` without a run: everything in the store that waits for a person, the oldest first."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from refold.console import descriptions, figures, places
from refold.console.next_steps import asked_about
from refold.console.places import Place
from refold.console.screen import Column, Screen, note
from refold.console.sweeps import Oldest, sweep
from refold.engine.guards import installed_guards
from refold.engine.imported_runs import source_of
from refold.engine.result import result_of
from refold.reducers.events import Event
from refold.reducers.machine import AgentState
from refold.reducers.state import RunState
from refold.replay import state_at

_MOST = 1000
_TEXT = 200  # characters of what the model said last


class AskedCall(msgspec.Struct, frozen=True):
    """A call about which a person is asked."""

    call: str
    tool: str


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks a person, as JSON. `since` and `until` are nanoseconds since the epoch.

    `text` are the first words of the answer with which the run came to wait, None where they were erased.
    """

    run: str
    waits_for: Literal["approval", "message", "doubt"]
    since: int
    until: int | None = None
    calls: tuple[AskedCall, ...] = ()
    text: str = ""


class AllAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that waits for a person, as JSON: how many runs, and the oldest of them."""

    count: int
    waiting: list[Asked]


async def asked_command(screen: Screen, place: Place) -> int:
    """List what waits for a person. Exit code 0; a log that cannot be read is raised after the others are told."""
    found = Oldest[Asked](_MOST)
    async with places.reading(place) as store:

        async def look(run: str) -> None:
            if await source_of(store, run):  # what its agent's people said, they said elsewhere
                return
            asked = asked_of(*await state_at(store, run, registry=installed_guards()))
            if asked is not None:
                found.add(asked.since, asked)

        problem = await sweep(store, look)
    if screen.json:
        screen.document(AllAsked(count=found.count, waiting=found.rows))
    else:
        _tell(screen, place, found)
    if problem is not None:
        raise problem
    return 0


def asked_of(state: RunState, contents: Mapping[int, Event]) -> Asked | None:
    """What a run in this state asks a person; None if nothing."""
    if state.agent_state is not AgentState.WAITING_FOR_INPUT:
        return None
    doubts, approval = asked_about(state), state.approval
    names = approval.calls if approval is not None else doubts
    return Asked(
        run=state.setup.run,
        waits_for="approval" if approval is not None else "doubt" if doubts else "message",
        since=state.at if state.asked_at is None else state.asked_at,
        until=None if approval is None else approval.deadline,
        calls=tuple(
            AskedCall(call.id, call.name)
            for call in (state.batch.calls if state.batch else ())
            if call.id in names
        ),
        text=descriptions.short(result_of(state, dict(contents)).outcome.text, _TEXT),
    )


def _tell(screen: Screen, place: Place, found: Oldest[Asked]) -> None:
    if not found.count:
        note(f"nothing in {place.path} waits for a person")
        return
    columns = [
        Column("run"),
        Column("since"),
        Column("until"),
        Column("waits for"),
        Column("what", elastic=True),
    ]
    screen.table([*columns, Column("to answer")], [_cells(asked) for asked in found.rows])
    if found.count > len(found.rows):
        note(f"and {figures.count(found.count - len(found.rows))} newer ones")


def _cells(asked: Asked) -> list[str]:
    until = "" if asked.until is None else figures.clock(asked.until)
    what = ", ".join(f"{call.call} {call.tool}" for call in asked.calls) or asked.text
    return [
        asked.run,
        figures.clock(asked.since),
        until,
        _WHAT[asked.waits_for],
        what,
        f"refold {_answer(asked)}",
    ]


_WHAT = {"approval": "approval", "message": "a message", "doubt": "how calls ended"}


def _answer(asked: Asked) -> str:
    match asked.waits_for:
        case "approval":
            return f"approvals {asked.run}"
        case "doubt":
            return f"doubts {asked.run}"
        case "message":
            return f"resume {asked.run} --message TEXT"
