"""What a caller gets of a run: how it ended, why, what was said and spent. Nothing is raised by default."""

import msgspec

from refold.reducers.errors import RefoldError
from refold.reducers.events import Event, ModelResponded
from refold.reducers.limits import LimitHit
from refold.reducers.machine import AgentState
from refold.reducers.messages import Message
from refold.reducers.state import RunState, Spent
from refold.reducers.views import view


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, or that it waits for a person.

    `code` is stable, `reason` a sentence, `text` the last thing the model said, "" if it said nothing.
    `source` says what the text is: `answer`, `partial` or `none`. `seq` is the event that ended it.
    """

    code: str
    reason: str
    text: str
    source: str
    step: int
    seq: int


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it stands when nothing more is to be done now.

    `usage` is all that was spent (tokens, nano-dollars, nanoseconds), `messages` what the model would see
    next, `limit` the limit that ended the run, if one did.
    """

    run: str
    state: AgentState
    outcome: RunOutcome
    usage: Spent
    messages: tuple[Message, ...]
    limit: LimitHit | None = None

    def raise_for_limit(self) -> None:
        """Raise `LimitReached` if a limit ended the run."""
        if self.limit is not None:
            raise LimitReached(self.run, self.limit)


class LimitReached(RefoldError):
    """A limit ended the run. Raised by `RunResult.raise_for_limit`, never on its own."""

    def __init__(self, run: str, limit: LimitHit) -> None:
        super().__init__(run, limit)
        self.run, self.limit = run, limit

    def __str__(self) -> str:
        hit = self.limit
        return f"run {self.run}: limit {hit.name!r} reached: {hit.used} of {hit.value} {hit.unit} at step {hit.step}"


def result_of(state: RunState, contents: dict[int, Event]) -> RunResult:
    """The result that a state stands for; `contents` has the words of its window and its last answer."""
    return RunResult(
        run=state.setup.run,
        state=state.agent_state,
        outcome=_outcome(state, contents),
        usage=state.spent,
        messages=view(state, contents),
        limit=state.limit if state.ended else None,
    )


def _outcome(state: RunState, contents: dict[int, Event]) -> RunOutcome:
    ended, answer = state.outcome, state.answer
    seq = ended.answer if ended is not None else (answer.seq if answer is not None else None)
    event = contents.get(seq) if seq is not None else None
    text = event.content.text if isinstance(event, ModelResponded) and event.content is not None else ""
    if ended is not None:
        return RunOutcome(
            code=ended.code,
            reason=ended.reason,
            text=text,
            source=ended.source,
            step=ended.step,
            seq=ended.seq,
        )
    return RunOutcome(
        code="waiting",
        reason="the run waits for a person",
        text=text,
        source="partial" if text else "none",
        step=state.spent.steps,
        seq=state.seq,
    )
