"""The environment variables that set something, by what they say, and what they change of a policy."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from refold.reducers.overlay import apply_environment

Plain = dict[str, Any]

POLICY: Plain = {
    "limits": [
        {"type": "time", "value": None},
        {"type": "step", "value": 9},
        {"type": "token", "measure": "estimate", "value": 1000},
        {"type": "time", "name": "wall", "value": 90},
    ],
    "history": [
        {"name": "trim", "when": {"messages": 120}, "do": "trim_messages", "cap": None, "last": 200},
        {"name": "threshold", "when": {"messages": 120}, "do": "tail", "last": 40},
        {"when": {"always": True}, "do": "tail", "last": 100},
    ],
    "retry": {"attempts": 6, "jitter": {"full": 1}},
    "tool_output": {"max": 50000, "unit": "chars", "keep": "head"},
    "guards": [{"guard": "repetition"}],
    "near": None,
}


def named(entry: Plain) -> str:
    kind = "token_estimate" if entry.get("measure") == "estimate" else entry.get("type")
    return str(entry.get("name") or kind or entry.get("guard") or entry["do"])


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every value by its place, entries of lists by their names."""
    if isinstance(value, list | tuple):
        value = {named(each): each for each in value}
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {
        place: said for key, inner in value.items() for place, said in flat(inner, f"{path}.{key}").items()
    }


def changes(
    environment: Mapping[str, str], given: Plain | None = None, agent: str = "", policy: Plain = POLICY
) -> dict[str, Any]:
    """What the environment changed of the policy, place by place; `gone` for a value that is no longer
    there.
    """
    before = deepcopy(policy)
    after, notes = apply_environment(environment, policy, given or {}, agent)
    assert before == policy
    assert bool(notes) or policy == after
    old, new = flat(policy), flat(after)
    places = {
        place.removeprefix(".") for place in old.keys() | new.keys() if old.get(place) != new.get(place)
    }
    return {place: new.get(f".{place}", "gone") for place in sorted(places)}


POSITIVE = [
    "REFOLD_TIME_LIMIT", "REFOLD_MAX_STEPS", "REFOLD_MESSAGE_LIMIT", "REFOLD_TOKEN_BUDGET", "REFOLD_COST_LIMIT",
    "REFOLD_MESSAGE_TOKEN_CAP", "REFOLD_TRIM_LAST", "REFOLD_RETRY_MAX_ATTEMPTS", "REFOLD_RETRY_MAX_SECONDS",
]  # fmt: skip
WAITS = ["REFOLD_RETRY_INITIAL_SECONDS", "REFOLD_RETRY_JITTER"]
SIZES = ["REFOLD_PRUNE_AFTER_MESSAGES", "REFOLD_PRUNE_KEEP_LAST", "REFOLD_MAX_TOOL_OUTPUT"]
WORDS = ["REFOLD_RETRY_CREDIT", "REFOLD_APPROVALS", "REFOLD_ONE_CALL"]
ALL = [*POSITIVE, *WAITS, *SIZES, *WORDS, "REFOLD_NEAR_LIMIT"]

GARBAGE = ["x", "1e3", "0x10", "1_000", "1,5", "- 5", "--5", "nan", "inf", ".", "+", "½", "٣", "true", "1 2"]
