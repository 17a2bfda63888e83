"""What a run of OpenHands, V0 or V1, says of itself as a whole: its tokens, its times, and how it ended."""

from collections.abc import Iterable, Sequence

from refold.importers.fields import JSON, at, number, table, text
from refold.importers.items import Tokens
from refold.importers.openhands import v0, v1
from refold.importers.openhands.state import is_state
from refold.importers.times import Times

STATES = {
    "finished": "finished",
    "awaiting_user_input": "finished",
    "idle": "finished",
    "stopped": "cancelled",
    "paused": "cancelled",
    "error": "error",
    "rejected": "error",
    "stuck": "guardrail",
}
"""How a run in this state of the agent (V0) or of the execution (V1) ended; in any other it is still on its way."""

_LIMITS = (
    ("maximum iteration", "limit:steps"),
    ("maximum budget", "limit:cost"),
    ("budget", "limit:cost"),
    ("stuck in a loop", "guardrail"),
    ("AgentStuckInLoop", "guardrail"),
)
"""V0 names a limit only in the words of its error."""

_TOKENS = ("prompt_tokens", "cache_read_tokens", "cache_write_tokens", "completion_tokens")


def v0_used(metrics: JSON) -> Tokens:
    """The tokens of a run of V0, by its metrics."""
    sent, read, written, got = (number(metrics, "accumulated_token_usage", key) for key in _TOKENS)
    return sent, read, written, got


def times_of(events: Sequence[JSON]) -> tuple[str, str] | None:
    """The first and the last time, without the zeros that end their fraction."""
    times = Times(at(event, "timestamp") for event in events).edges()
    return times and (_plain(times[0]), _plain(times[1]))


def v0_end(events: Sequence[JSON], error: JSON) -> tuple[str, str]:
    """How a run of V0 ended: its error, else its last action, else the agent's last state."""
    if isinstance(error, str) and error:
        limit = next((limit for words, limit in _LIMITS if words in error), "error")
        return limit, f"error: {error[:60]}"
    turns = [event for event in events if text(event, "action") not in v0.NO_TURNS]
    if turns and text(turns[-1], "action") == "finish":
        return "finished", "action finish"
    states = [
        state
        for event in events
        if text(event, "observation") == "agent_state_changed"
        and (state := text(event, "extras", "agent_state"))
    ]
    if states:
        return STATES.get(states[-1], "open"), f"agent_state {states[-1]}"
    last = next((event for event in reversed(events) if not _silent(event)), None)
    said = text(last, "action") == "message" and not v0.is_user(last)
    return ("finished", "last action message") if said else ("open", "no finish")


def v1_end(events: Sequence[JSON]) -> tuple[str, str]:
    """How a run of V1 ended: the last state of its execution, else its last turn."""
    states = [state for event in events if (state := _execution(event))]
    if states:
        return STATES.get(states[-1], "open"), f"last execution_status={states[-1]}"
    turns = [event for event in events if v1.is_answer(event) or text(event, "kind") in v1.RESULTS]
    last = turns[-1] if turns else None
    if text(last, "kind") == "MessageEvent" or text(last, "tool_name") == "finish":
        return "finished", f"last {text(last, 'kind')}"
    return "open", f"last {text(last, 'kind') or 'event'}"


def _silent(event: JSON) -> bool:
    return text(event, "observation") in ("null", "agent_state_changed") or text(
        event, "action"
    ) in v0.NO_TURNS - {""}


def _execution(event: JSON) -> str:
    key, value = text(event, "key"), at(event, "value")
    if is_state(event):
        return text(event, "execution_status")
    if key in ("execution_status", "agent_status"):
        return value if isinstance(value, str) else ""
    return text(value, "execution_status") if key == "full_state" else ""


def v1_used(events: Iterable[JSON]) -> Tokens:
    """The tokens of the last update of `stats`."""
    found: Tokens = (None, None, None, None)
    for event in events:
        value = at(event, "value")
        stats = value if text(event, "key") == "stats" else at(value, "stats") or at(event, "stats")
        if uses := table(stats, "usage_to_metrics") or table(stats, "service_to_metrics"):
            sums = [at(use, "accumulated_token_usage") for use in uses.values()]
            sent, read, written, got = (sum(number(use, key) or 0 for use in sums) for key in _TOKENS)
            found = (sent, read, written, got)
    return found


def _plain(written: str) -> str:
    whole, dot, fraction = written.partition(".")
    kept = fraction.rstrip("0") if fraction.isdecimal() else fraction
    return f"{whole}.{kept}" if dot and kept else whole
