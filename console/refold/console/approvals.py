"""`refold approvals`, `approve`, `reject` and `edit`: what waits for a person, and what they say."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Annotated

import msgspec

from refold.console import hostile
from refold.console.detachment import say_and_leave
from refold.console.next_steps import next_words
from refold.console.options import By, MeansOrWorker, Note, WholeRun, argument, option, words
from refold.console.places import StorePlace, reads
from refold.console.questions import Question, question_of, tell_questions
from refold.console.run import look, overdue, stay, taken_up
from refold.console.screen import Screen, note
from refold.console.toolbox import means_needed
from refold.engine import NotWaiting, Run
from refold.engine.arguments import Answers, Edit, words_of
from refold.reducers.composition import Answer, approved
from refold.reducers.errors import WrongUse
from refold.reducers.events import ApprovalAnswered
from refold.reducers.guards.approvals import Approval
from refold.reducers.state import RunState
from refold.replay import figures

Calls = Annotated[list[str], words("Calls, as `refold approvals RUN` lists them.")]
EveryCall = Annotated[bool, option("--all", "All calls that wait.")]


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Who says so, and why."""

    note: Note = ""
    by: By


@reads
async def approvals_command(
    screen: Screen,
    place: StorePlace,
    run: Annotated[str | None, argument("RUN or @last; without: all that waits for a person.")] = None,
) -> int:
    """Show which calls of a run wait for approval, or all in the store that waits for a person.

    With -o json: one document; of a run of which no call waits, null.
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
    remark: Remark,
    means: MeansOrWorker,
    *,
    everything: EveryCall = False,
) -> int:
    """Let calls that wait for approval run, and go on with the run. Output as `run`."""
    return await _answer(screen, place, run, "approve", calls, remark, means, everything=everything)


async def reject_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    calls: Calls,
    remark: Remark,
    means: MeansOrWorker,
    *,
    everything: EveryCall = False,
    escalate: Annotated[bool, option("--escalate", "Leave it to the next in the chain instead.")] = False,
    terminate: Annotated[bool, option("--terminate", "And end the run.")] = False,
) -> int:
    """Refuse calls that wait for approval, and go on with the run. Output as `run`."""
    if escalate and terminate:
        raise WrongUse("--escalate and --terminate: expected one of them")
    answer: Answer = "escalate" if escalate else "terminate" if terminate else "reject"
    return await _answer(screen, place, run, answer, calls, remark, means, everything=everything)


async def edit_command(
    screen: Screen,
    place: StorePlace,
    run: WholeRun,
    call: Annotated[str, argument("The call that is to run otherwise.")],
    arguments: Annotated[str, option("--arguments", "What it runs with: one JSON object.")],
    remark: Remark,
    means: MeansOrWorker,
) -> int:
    """Let a call that waits for approval run with other arguments, and go on with the run. Output as `run`."""
    return await _answer(screen, place, run, ("edit", arguments), [call], remark, means)


async def _answer(
    screen: Screen,
    place: StorePlace,
    typed: str,
    answer: Answer | Edit,
    calls: Sequence[str],
    remark: Remark,
    means: MeansOrWorker,
    *,
    everything: bool = False,
) -> int:
    """Record the answer, and go on with the run or leave it to a worker. What cannot be is refused before anything is written."""
    state, _ = await look(place, typed, decides=True)
    answers: Answers = dict.fromkeys(_meant(state, calls, everything=everything), answer)
    approved(state, ApprovalAnswered(at=state.at), *words_of(answers), remark.note, b"")

    def say(run: Run) -> None:
        run.answer(answers, by=remark.by, note=remark.note)

    if means.detach:
        return await say_and_leave(screen, place, state.setup.run, say, means.typed)
    async with AsyncExitStack() as stack:
        run = await taken_up(stack, place, state, means)
        say(run)
        return await stay(screen, place, run, means.typed)


def _meant(state: RunState, calls: Sequence[str], *, everything: bool) -> Sequence[str]:
    run, asked = state.setup.run, state.approval
    if asked is None:
        raise NotWaiting(run, state.agent_state, "an answer about calls")
    if overdue(state):
        raise WrongUse(
            f"run {run}: too late, an answer was due by {figures.clock(asked.until or 0)}; "
            f"`refold resume {run}` goes on with what its policy says of that"
        )
    if bool(calls) == everything:
        raise WrongUse(
            f"expected one CALL or more, or --all; {', '.join(asked.event.calls)} wait for approval"
        )
    return asked.event.calls if everything else calls


def _tell(screen: Screen, place: StorePlace, state: RunState, question: Question | None) -> None:
    if question is None:
        note(f"run {hostile.line(state.setup.run)} is {state.agent_state}: no call waits for approval")
        return
    until = "" if question.until is None else f", until {figures.clock(question.until)}"
    screen.heading(f"run {question.run} waits for approval since {figures.clock(question.since)}{until}")
    chain = question.guard == Approval.kind
    asks = (
        f"{question.approver} of its policy's approvals" if chain else f"its policy's guard {question.guard}"
    )
    screen.say(hostile.line(f"asked by {asks}"))
    for call in question.calls:
        screen.say(hostile.line(f"{call.call}  {call.tool}  {call.arguments}"))
    for typed in next_words(state, means_needed(state))[:2]:
        note(hostile.line(f"next    refold {typed}{place.option}"))
