"""The `guardrails` preset against the loop of aar."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from conformance.drivers.passes import Step
from conformance.replayer import Failed, Replayer, Reply, Result, Row, Script, numbered
from conformance.suite import Case, Compared, Driver
from refold.reducers import CallModel
from refold.reducers.events import (
    HistoryPruned,
    LimitNeared,
    Manifest,
    MessageInjected,
    ModelRequested,
    StateChanged,
    ToolReturned,
)
from refold.reducers.vocabulary import NANO, FailureClass, StopReason, ToolError

PRESET = "guardrails"
TASK: Row = ["user", "x", []]
ENDS = {
    "end_turn": "answer",
    "truncated": "answer",
    "empty": "answer",
    "step_limit": "steps",
    "time_limit": "time",
    "token_budget": "tokens",
    "repetition": "repetition",
    "cancelled": "cancel",
}


class _Provider(Script):
    """The script, and how often it was asked. The tool `missing` does not exist, any other works."""

    def __init__(self, said: list[Mapping[str, Any]]) -> None:
        super().__init__(_step(entry) for entry in said)
        self.asked_for = 0
        self._tools = {name: tool for entry in said for name, tool, _ in entry.get("calls", ())}

    def asked(self, request: CallModel) -> Reply | Failed | None:
        self.asked_for += 1
        return super().asked(request)

    def called(self, call: str) -> Result:
        missing = self._tools[call] == "missing"
        return Result(error=ToolError.UNKNOWN_TOOL if missing else None)


def _step(entry: Mapping[str, Any]) -> Reply | Failed:
    if "fail" in entry:
        return Failed(failure=FailureClass(entry["fail"]), dt=entry["dt"])
    read, written = entry["usage"] or (0, 0)
    calls = [(name, tool, json.dumps(said)) for name, tool, said in entry.get("calls", ())]
    stop = StopReason(entry["stop"])
    return Reply(text=entry["text"], calls=calls, stop=stop, usage=(read, written), dt=entry["dt"])


def run_of(case: Case) -> Compared:
    """A whole run. Where two ends are due at once ours looks at cancellation, time and steps, in this
    order.
    """
    world = _Provider(case.given["script"])
    run = Replayer.begin(_policy(case.given["config"]), [TASK], tools=(Manifest(name="echo"),))
    if case.given["cancelled"] and not run.state.ended:
        run.cancel()
    run.run(world)
    injected = [event for event in run.of(MessageInjected) if event.text == "truncated"]
    got = {
        "state": str(run.state.agent_state),
        "ended_by": _ended_by(run),
        "steps": _steps(run, world),
        "provider_calls": world.asked_for,
        "tool_calls": len(run.of(ToolReturned)),
        "continuations": len(injected),
        "near_budget_step": near_step(run),
        "tokens": run.state.spent.usage.input + run.state.spent.usage.output,
    }
    return _adapted(case, got)


def _adapted(case: Case, got: dict[str, Any]) -> Compared:
    expected = dict(case.expect)
    otherwise: tuple[str, ...] = tuple(
        tag for tag in ("steps before time", "steps before cancel") if tag in case.tags
    )
    if otherwise:
        got, expected = (
            {key: value for key, value in side.items() if key not in ("state", "ended_by")}
            for side in (got, expected)
        )
    if "continuation after the last step" in case.tags:
        otherwise = (*otherwise, "continuation after the last step")
        expected["continuations"] -= 1
    return Compared(expected, got, otherwise)


def _policy(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "preset": PRESET,
        "limits": [
            {"type": "step", "value": config["max_steps"]},
            {"type": "time", "value": config["timeout"] or None},
            {"type": "token", "value": config["token_budget"] or None},
        ],
        "near": {"reserve_tokens": config["reserve_tokens"]},
        "retry": {"attempts": config["max_retries"], "initial": 0},
        "truncation": {"max": config["max_tokens_recoveries"]},
        "guards": [{"guard": "repetition", "repeats": config["max_repeated_tool_steps"]}],
    }


def _steps(run: Replayer, world: _Provider) -> int:
    # A run that was cancelled before the start has a request in its log, which was settled and never made.
    return run.state.spent.steps if world.asked_for else 0


def _ended_by(run: Replayer) -> str:
    moved = run.of(StateChanged)
    code = moved[-1].code if moved and run.state.ended else "nothing"
    return "provider" if code.startswith("provider:") else ENDS.get(code, code)


def near_step(run: Replayer) -> int | None:
    """The step whose answer brought the warning that a budget is near."""
    step = 0
    for event in run.events.values():
        if isinstance(event, ModelRequested):
            step = event.step
        if isinstance(event, LimitNeared):
            return step
    return None


def signature(case: Case) -> Compared:
    """Whether a batch is a repetition of the one before it."""
    policy = {"preset": PRESET, "guards": [{"guard": "repetition", "repeats": 1}]}
    names = {name for batch in (case.given["first"], case.given["second"]) for name, _ in batch}
    tools = tuple(Manifest(name=name) for name in sorted(names))
    run = Replayer.begin(policy, [TASK], tools=tools)
    batches = [case.given["first"], case.given["second"]]
    said = (
        Reply(calls=[(f"{place}.{at}", name, json.dumps(words)) for at, (name, words) in enumerate(batch)])
        for place, batch in enumerate(batches)
    )
    run.run(Script(said))
    return Compared(case.expect, {"same": any(moved.code == "repetition" for moved in run.of(StateChanged))})


def near_budget(case: Case) -> Compared:
    """Whether a run is near its budget; the budgets themselves are looked at later, so that they do not end
    it.
    """
    given = case.given
    policy = {
        "preset": PRESET,
        "limits": [
            {"type": "token", "value": given["token_budget"] or None, "check": "preflight"},
            {"type": "cost", "value": given["cost_limit"] or None, "check": "preflight"},
        ],
        "near": {
            "reserve_tokens": given["reserve_tokens"],
            "reserve_cost_fraction": given["reserve_cost_percent"] / 100,
        },
    }
    run = Replayer.begin(policy, [TASK])
    run.reply(
        Reply(text="x", usage=(given["input_tokens"], given["output_tokens"]), cost=given["cost"] * NANO)
    )
    return Compared(case.expect, {"near": near_step(run) is not None})


def trim(case: Case) -> Compared:
    """The newest messages within a budget. Our first one is pinned: the cases say what stays then."""
    budget, sizes = case.given["budget"], case.given["characters"]
    when = {"tokens": budget, "measure": "whole"}
    run = _pruned(
        sizes, {"name": "fit", "when": when, "do": "token_tail", "budget": budget} if budget else None
    )
    kept = numbered(run.requests[0].event.messages)
    pruned = run.of(HistoryPruned)
    before = pruned[0].tokens_before if pruned else run.requests[0].event.input_tokens
    got: dict[str, Any] = {"kept": kept, "dropped": len(sizes) - len(kept), "tokens_before": before}
    expected = {key: case.expect[key] for key in ("kept", "dropped", "tokens_before")}
    if "task not pinned" not in case.tags:
        return Compared(expected, got)
    pinned = case.expect["pinned"]
    if pinned is None:  # nothing of the budget would be left for the others
        return Compared(expected["tokens_before"], before, ("task not pinned",))
    return Compared(
        expected | {"kept": pinned, "dropped": len(sizes) - len(pinned)}, got, ("task not pinned",)
    )


def compact(case: Case) -> Compared:
    """The first message and the newest ones, and a note that tells of the gap."""
    budget, sizes = case.given["budget"], case.given["characters"]
    when = {"tokens": budget, "measure": "whole"}
    step = {"name": "fit", "when": when, "do": "compact", "budget": budget, "tail_fraction": 0.75}
    run = _pruned(sizes, step if budget else None)
    kept = [index for index in numbered(run.requests[0].event.messages) if index < len(sizes)]
    notes = run.of(MessageInjected)
    got = {
        "kept": kept,
        "dropped": len(sizes) - len(kept),
        "note": bool(notes),
        "dropped_tokens": sum(note.gap.tokens for note in notes if note.gap),
    }
    return Compared(case.expect, got)


def _pruned(sizes: list[int], step: Step | None) -> Replayer:
    roles = ("user", "assistant")
    messages: list[Row] = [[roles[place % 2], "x" * size, []] for place, size in enumerate(sizes)]
    return Replayer.begin({"preset": PRESET, "history": [step] if step else []}, messages)


DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        "guardrails_compact": compact,
        "guardrails_near_budget": near_budget,
        "guardrails_run": run_of,
        "guardrails_signature": signature,
        "guardrails_trim": trim,
    }
)
