"""What a run waits for, and what to type about it."""

from enum import StrEnum
from typing import Any

from refold.engine import RunResult
from refold.reducers.pending import unknown_calls
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt


class Ending(StrEnum):
    """How a call ended whose end was not recorded, as it is typed; the log's own word is understood too."""

    HAPPENED = "happened"
    DID_NOT = "did-not"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "Ending | None":
        return cls.DID_NOT if value == Doubt.DID_NOT else None

    @property
    def doubt(self) -> Doubt:
        """As the log has it."""
        return Doubt[self.name]


# In braces: typed just so, a shell makes three words of it, and the command refuses them. A `|` would begin another command.
ENDINGS = f"{{{','.join(Ending)}}}"
"""The words in a command that is shown, of which one is to be typed."""


def standing_of(result: RunResult) -> dict[str, Any]:
    """How a run stands, as every line of JSON about one says it: `run`, `state`, `code` and `reason`."""
    ended = result.outcome
    return {"run": result.run, "state": str(result.state), "code": ended.code, "reason": ended.reason}


def waits_for(state: RunState) -> str:
    """What a run in this state waits for that no engine drives: a person, and what of them, or a worker."""
    if state.approval is not None:
        return f"approval of {', '.join(state.approval.event.calls)}"
    if calls := asked_about(state):
        return f"a person to say how {', '.join(calls)} ended"
    if state.agent_state.awaits_operator:
        return "a message"
    return "a worker"


def asked_about(state: RunState) -> tuple[str, ...]:
    """The calls of which a person is asked how they ended."""
    return unknown_calls(state) if state.asked_at is not None and state.approval is None else ()


def next_words(state: RunState, means: str = "") -> list[str]:
    """What to type next, after `refold`, for a run that no engine drives; `means` are the options by which it was driven."""
    run = state.setup.run
    if state.ended:
        return [f"show {run}", f"audit {run}"]
    if state.approval is not None:
        asked = " ".join(state.approval.event.calls)
        return [f"approve {run} {asked}{means}", f"reject {run} {asked}{means}", f"approvals {run}"]
    if calls := asked_about(state):
        return [f"resolve {run} {call} {ENDINGS}" for call in calls]
    if state.agent_state.awaits_operator:
        return [f"resume {run} --message TEXT{means}", f"show {run}"]
    return [f"worker{means}", f"resume {run}{means}", f"show {run}"]
