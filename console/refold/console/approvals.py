"""`refold approvals`, `approve`, `reject`, `escalate` and `edit`: what waits for a person, and what they say."""

import getpass
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import msgspec

from refold.console import figures, hostile
from refold.console.detachment import say_and_leave
from refold.console.places import Place
from refold.console.runs import ResumeRequest, look, overdue, stay, taken_up
from refold.console.screen import Screen, note
from refold.engine import NotWaiting, Run
from refold.engine.answers import Answers, Edit, words_of
from refold.reducers.composing_approvals import Answer, approved
from refold.reducers.errors import WrongUse
from refold.reducers.events import Event, InputReceived, ModelResponded
from refold.reducers.redaction import redacted
from refold.reducers.state import RunState

_ERASED = "(erased)"


class WaitingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for approval. Secrets in its `arguments` (JSON text) are hidden."""

    call: str
    tool: str
    arguments: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks a person, as JSON. `since` and `until` are nanoseconds since the epoch."""

    run: str
    approver: str
    since: int
    until: int | None
    calls: tuple[WaitingCall, ...]


class AnswerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person typed after `refold approve` and the like: one answer for these calls, or for all that wait."""

    taking_up: ResumeRequest
    answer: Answer | Edit
    calls: Sequence[str] = ()
    everything: bool = False
    note: str = ""
    by: str | None = None


async def approvals_command(screen: Screen, place: Place, typed: str) -> int:
    """Show which calls of a run wait for a person. The exit code."""
    state, contents = await look(place, typed)
    waiting = waiting_of(state, contents)
    if screen.json:
        screen.document(waiting)
    elif waiting is None:
        note(f"run {hostile.line(state.setup.run)} is {state.agent_state}: no call waits for approval")
    else:
        _tell(screen, place, waiting)
    return 0


async def answer_command(screen: Screen, place: Place, request: AnswerRequest) -> int:
    """Record what a person says of calls that wait, and go on with the run or leave it to a worker. The exit code.

    Raises `NotWaiting`, and `WrongUse` for a call that nobody is asked about, an answer that comes too late, and
    new arguments that are no JSON object: before anything is written.
    """
    state, _ = await look(place, request.taking_up.run, decides=True)
    answers: Answers = dict.fromkeys(_meant(state, request), request.answer)
    approved(state, InputReceived(at=state.at), *words_of(answers), request.note, b"")

    def say(run: Run) -> None:
        run.answer(answers, by=request.by or login(), note=request.note)

    if request.taking_up.detach:
        return await say_and_leave(screen, place, state.setup.run, say)
    async with AsyncExitStack() as stack:
        run = await taken_up(stack, place, state, request.taking_up)
        say(run)
        return await stay(screen, place, run)


def waiting_of(state: RunState, contents: Mapping[int, Event]) -> Waiting | None:
    """What a run in this state asks a person; None if nothing. `contents` has the answer with the calls."""
    asked, batch = state.approval, state.batch
    if asked is None or batch is None:
        return None
    answer = contents.get(batch.seq)
    texts = answer.content.arguments if isinstance(answer, ModelResponded) and answer.content else ()
    calls = tuple(
        WaitingCall(
            call=call.id, tool=call.name, arguments=redacted(texts[call.position]) if texts else _ERASED
        )
        for call in batch.calls
        if call.id in asked.calls
    )
    since = state.at if state.asked_at is None else state.asked_at
    return Waiting(
        run=state.setup.run, approver=asked.approver, since=since, until=asked.deadline, calls=calls
    )


def _meant(state: RunState, request: AnswerRequest) -> Sequence[str]:
    run, asked = state.setup.run, state.approval
    if asked is None:
        raise NotWaiting(run, state.agent_state, "an answer about calls")
    if overdue(state):
        raise WrongUse(
            f"run {run}: too late, an answer was due by {figures.clock(asked.deadline or 0)}; "
            f"`refold resume {run}` goes on with what its policy says of that"
        )
    if bool(request.calls) == request.everything:
        raise WrongUse(f"expected one CALL or more, or --all; {', '.join(asked.calls)} wait for approval")
    return asked.calls if request.everything else request.calls


def _tell(screen: Screen, place: Place, waiting: Waiting) -> None:
    until = "" if waiting.until is None else f", until {figures.clock(waiting.until)}"
    screen.heading(f"run {waiting.run} waits for approval since {figures.clock(waiting.since)}{until}")
    screen.say(hostile.line(f"asked by {waiting.approver} of its policy's approvals"))
    for call in waiting.calls:
        screen.say(hostile.line(f"{call.call}  {call.tool}  {call.arguments}"))
    calls = " ".join(call.call for call in waiting.calls)
    for word in ("approve", "reject"):
        note(hostile.line(f"next    refold {word} {waiting.run} {calls}{place.option}"))


def login() -> str:
    """Who types here, as far as the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a process without a name
        return "user"
