"""What a run waits for, and what to type about it."""

from typing import Any

from refold.console.endings import ENDINGS
from refold.engine import RunResult
from refold.reducers.machine import AgentState
from refold.reducers.pending import unknown_calls
from refold.reducers.state import RunState


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
    if state.agent_state is AgentState.WAITING_FOR_INPUT:
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
    if state.agent_state is AgentState.WAITING_FOR_INPUT:
        return [f"resume {run} --message TEXT{means}", f"show {run}"]
    return [f"worker{means}", f"resume {run}{means}", f"show {run}"]
