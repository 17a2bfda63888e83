"""`refold approvals`, `approve`, `reject` and `edit`: runs that wait for an operator, and the answers."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Literal

import msgspec

from refold.console import descriptions, locations
from refold.console.addresses import Oldest, sweep, unread_note
from refold.console.agents import means_needed, say_and_leave
from refold.console.descriptions import doubtful_calls, next_words
from refold.console.locations import StorePlace, without_event_loop
from refold.console.options import By, MeansOrWorker, Note, WholeRun, argument, option, words
from refold.console.run import is_overdue, look, stay, take_up
from refold.console.screen import Column, Screen, note
from refold.engine import NotWaiting, Run
from refold.engine.arguments import Answers, Edit, split_answers
from refold.engine.compatibility import installed_guards
from refold.engine.journal import source_of
from refold.engine.result import result_of
from refold.reducers.composition import Answer, approved
from refold.reducers.errors import WrongUse
from refold.reducers.events import ApprovalAnswered, Event, ModelResponded
from refold.reducers.guards.approvals import Approval
from refold.reducers.secrets import redacted
from refold.reducers.state import Batch, RunState
from refold.replay import figures, state_at
from refold.replay.kinds.arguments import format_full_call

_MOST = 1000
_TEXT = 200  # characters of the model's last text
_ARGUMENT = 60  # characters of each argument in the list; `approvals RUN` shows all of it
_WHAT = {"approval": "approval", "message": "a message", "doubt": "outcome of calls"}
_ANSWER = {"approval": "approvals {}", "message": "resume {} --message TEXT", "doubt": "doubts {}"}


class QueuedCall(msgspec.Struct, frozen=True):
    """A call that waits for an operator. Its `arguments` are JSON text with secrets hidden, or "(erased)"."""

    call: str
    tool: str
    arguments: str


class WaitingRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for, as JSON. `since` and `until` are in nanoseconds since the epoch.

    `text`: the first words of the response before the wait, None if erased. `guard` asks: `approvals` for its
    approver `approver`, or a guard of that name.
    """

    run: str
    waits_for: Literal["approval", "message", "doubt"]
    since: int
    until: int | None = None
    calls: tuple[QueuedCall, ...] = ()
    text: str = ""
    guard: str = ""
    approver: str = ""


class WaitingRuns(msgspec.Struct, frozen=True, kw_only=True):
    """All runs that wait for an operator, as JSON: their number, the oldest of them, and the unreadable
    runs.
    """

    count: int
    waiting: list[WaitingRun]
    unread: list[str] = []


async def tell_questions(screen: Screen, place: StorePlace) -> int:
    """List the runs that wait for an operator.

    Exit code 0; an unreadable log is raised after the list is printed.
    """
    found = Oldest[WaitingRun](_MOST)
    async with locations.reading(place) as store:

        async def look(run: str) -> None:
            if await source_of(store, run):  # imported: nothing can be answered here
                return
            question = question_of(*await state_at(store, run, registry=installed_guards()))
            if question is not None:
                found.add(question.since, question)

        unread = await sweep(store, look, waiting=True)
    told = WaitingRuns(count=found.count, waiting=found.rows, unread=unread.runs)
    screen.result(told, lambda: _tell_question(screen, place, found, unread.runs))
    if unread.problem is not None:
        raise unread.problem
    return 0


def _list_calls(batch: Batch, answer: Event | None, names: Container[str]) -> Iterator[QueuedCall]:
    """Yield the calls of a batch that wait for an operator, with the arguments from the response."""
    said = answer.content.arguments if isinstance(answer, ModelResponded) and answer.content else ()
    for call in batch.calls:
        if call.id in names:
            yield QueuedCall(call.id, call.name, redacted(said[call.position]) if said else "(erased)")


def question_of(state: RunState, contents: Mapping[int, Event]) -> WaitingRun | None:
    """Return what a run in this state asks an operator, None if nothing.

    `contents` has the response with the calls.
    """
    if not state.agent_state.awaits_operator:
        return None
    doubts, approval, batch = doubtful_calls(state), state.approval, state.batch
    names = approval.event.calls if approval is not None else doubts
    return WaitingRun(
        run=state.setup.run,
        waits_for="approval" if approval is not None else "doubt" if doubts else "message",
        since=state.at if state.asked_at is None else state.asked_at,
        until=approval.until if approval else None,
        calls=tuple(_list_calls(batch, contents.get(batch.seq), names)) if batch else (),
        text=descriptions.short(result_of(state, contents).outcome.text, _TEXT),
        guard=approval.event.guard if approval else "",
        approver=approval.event.approver if approval else "",
    )


def _tell_question(
    screen: Screen, place: StorePlace, found: Oldest[WaitingRun], unread: Sequence[str]
) -> None:
    if not found.count:
        note(
            f"nothing{' that was read' if unread else ''} in {place.shown} waits for an operator{unread_note(unread)}"
        )
        return
    columns = [Column("run"), Column("since (UTC)"), Column("until (UTC)"), Column("waits for")]
    columns += [Column("what", elastic=True), Column("to answer")]
    screen.table(columns, [_cells(question) for question in found.rows])
    if found.count > len(found.rows):
        note(f"and {figures.count(found.count - len(found.rows))} newer ones")


def _cells(question: WaitingRun) -> list[str]:
    until = "" if question.until is None else figures.clock(question.until).removesuffix(" UTC")
    calls = (
        f"{call.call} {format_full_call(call.tool, call.arguments, _ARGUMENT)}" for call in question.calls
    )
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


Calls = Annotated[list[str], words("Calls, as `refold approvals RUN` lists them.")]
EveryCall = Annotated[bool, option("--all", "All waiting calls.")]


class OperatorRemark(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers, and why."""

    note: Note = ""
    by: By


@without_event_loop
async def approvals_command(
    screen: Screen,
    place: StorePlace,
    run: Annotated[
        str | None, argument("RUN or @last; by default all runs that wait for an operator.")
    ] = None,
) -> int:
    """List the calls of a run that wait for approval; without RUN, all runs that wait for an operator.

    Example: refold approvals

    With -o json: one document; for a run without waiting calls, null.
    """
    if run is None:
        return await tell_questions(screen, place)
    state, contents = await look(place, run)
    question = question_of(state, contents) if state.approval else None
    screen.result(question, lambda: _tell(screen, place, state, question))
    return 0


async def approve_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    calls: Calls,
    remark: OperatorRemark,
    means: MeansOrWorker,
    *,
    everything: EveryCall = False,
) -> int:
    """Approve waiting calls, and continue the run. Output as `run`.

    Example: refold approve @last --all --why "checked the paths"
    """
    return await _answer(screen, place, run, "approve", calls, remark, means, everything=everything)


async def reject_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    calls: Calls,
    remark: OperatorRemark,
    means: MeansOrWorker,
    *,
    everything: EveryCall = False,
    escalate: Annotated[
        bool, option("--escalate", "Let the next approver of the chain decide instead.")
    ] = False,
    terminate: Annotated[bool, option("--terminate", "End the run, too.")] = False,
) -> int:
    """Reject waiting calls, and continue the run. Output as `run`.

    Example: refold reject @last c3 --why "wrong branch"
    """
    if escalate and terminate:
        raise WrongUse("--escalate and --terminate: expected one of them")
    answer: Answer = "escalate" if escalate else "terminate" if terminate else "reject"
    return await _answer(screen, place, run, answer, calls, remark, means, everything=everything)


async def edit_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    call: Annotated[str, argument("The call to change.")],
    arguments: Annotated[str, option("--arguments", "The arguments to run it with: one JSON object.")],
    remark: OperatorRemark,
    means: MeansOrWorker,
) -> int:
    """Approve a waiting call with other arguments, and continue the run. Output as `run`.

    Example: refold edit @last c3 --arguments '{"path": "notes.md"}'
    """
    return await _answer(screen, place, run, ("edit", arguments), [call], remark, means)


async def _answer(
    screen: Screen,
    place: StorePlace,
    typed: str,
    answer: Answer | Edit,
    calls: Sequence[str],
    remark: OperatorRemark,
    means: MeansOrWorker,
    *,
    everything: bool = False,
) -> int:
    """Record the answer, and continue the run or leave it to a worker.

    Invalid answers are refused before anything is written.
    """
    state, _ = await look(place, typed, decides=True)
    answers: Answers = dict.fromkeys(_select_calls(state, calls, everything=everything), answer)
    approved(state, ApprovalAnswered(at=state.at), *split_answers(answers), remark.note, b"")

    def say(run: Run) -> None:
        run.answer(answers, by=remark.by, note=remark.note)

    if means.detach:
        return await say_and_leave(screen, place, state.setup.run, say, means.typed)
    async with AsyncExitStack() as stack:
        run = await take_up(stack, place, state, means)
        say(run)
        return await stay(screen, place, run, means.typed)


def _select_calls(state: RunState, calls: Sequence[str], *, everything: bool) -> Sequence[str]:
    run, asked = state.setup.run, state.approval
    if asked is None:
        raise NotWaiting(run, state.agent_state, "an answer about calls")
    if is_overdue(state):
        raise WrongUse(
            f"run {run}: too late, the answer was due by {figures.clock(asked.until or 0)}; "
            f"`refold resume {run}` applies the approver's on_timeout"
        )
    if bool(calls) == everything:
        raise WrongUse(
            f"expected one CALL or more, or --all; waiting for approval: {', '.join(asked.event.calls)}"
        )
    return asked.event.calls if everything else calls


def _tell(screen: Screen, place: StorePlace, state: RunState, question: WaitingRun | None) -> None:
    if question is None:
        note(f"run {descriptions.line(state.setup.run)} is {state.agent_state}: no call waits for approval")
        return
    until = "" if question.until is None else f", until {figures.clock(question.until)}"
    screen.heading(f"run {question.run} waits for approval since {figures.clock(question.since)}{until}")
    chain = question.guard == Approval.kind
    asks = (
        f"{question.approver} of its policy's approvals" if chain else f"its policy's guard {question.guard}"
    )
    screen.say(descriptions.line(f"requested by {asks}"))
    for call in question.calls:
        screen.say(descriptions.line(f"{call.call}  {call.tool}  {call.arguments}"))
    for typed in next_words(state, means_needed(state))[:2]:
        note(descriptions.line(f"next    refold {typed}{place.option}"))
