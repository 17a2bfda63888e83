"""Approval presets: which calls of one message may run."""

import json
from typing import Any

from conformance.replayer import Replayer, Reply
from conformance.suite import Case, Compared
from refold.reducers.events import CallRefused, Manifest, StateChanged, ToolsDispatched
from refold.reducers.vocabulary import Refusal

_NEIGHBOUR = ("neighbour", "ls", "{}")
_Call = tuple[str, str, str]


def handoff(case: Case) -> Compared:
    """Exclusivity is judged of the whole message, the gate of each call by itself, in a message of its own.

    A neighbour is added that is no handoff: what is said of it tells which call goes on, where only one was
    made.
    """
    preset = case.given["preset"]
    calls = [(call["id"], call["name"], json.dumps(call["arguments"])) for call in case.given["calls"]]
    winners = _skipped(preset, [*calls, _NEIGHBOUR])
    decisions = [
        {"id": call[0], "decision": "skip" if call[0] in winners else _gate(preset, call)} for call in calls
    ]
    got = {"handoff": winners.get(_NEIGHBOUR[0]), "calls": decisions}
    return Compared(case.expect, got, ("composed",) if "composed" in case.tags else ())


def _skipped(preset: str, calls: list[_Call]) -> dict[str, str]:
    """The calls that are skipped for a handoff, each with the call that goes on instead."""
    run = _answered(preset, calls)
    said = [
        event for event in run.of(CallRefused) if event.metadata.get("source") == "policy/handoff_exclusive"
    ]
    return {run.id_of(event.call): run.id_of(str(event.metadata["selected_handoff_id"])) for event in said}


def _gate(preset: str, call: _Call) -> str:
    run = _answered(preset, [call])
    if any(moved.code == "approval_terminated" for moved in run.of(StateChanged)):
        return "terminate"
    if any(refused.why is Refusal.REJECTED for refused in run.of(CallRefused)):
        return "reject"
    return "approve" if run.of(ToolsDispatched) else "nothing"


def _answered(preset: str, calls: list[_Call]) -> Replayer:
    policy: dict[str, Any] = {
        "preset": "inspect-iterative",
        "approvals": {"preset": preset},
        "guards": [{"guard": "handoff"}],
        "batch": "parallel",
    }
    names = sorted({name for _, name, _ in calls})
    tools = tuple(Manifest(name=name) for name in names)
    run = Replayer.begin(policy, [["user", "x", []]], tools=tools)
    run.reply(Reply(calls=calls))
    return run
