"""The `utah` preset against the loop of Utah."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from conformance.drivers.passes import step_of
from conformance.drivers.pressure import left, pressure, tier
from conformance.replayer import TOOL, Asked, Failed, Replayer, Reply, Result, Row, Script, numbered
from conformance.suite import Case, Compared, Driver, LeftOut
from refold.reducers import AgentState
from refold.reducers.events import ModelResponded, ToolReturned
from refold.reducers.vocabulary import FailureClass

PRESET = "utah"
TEXTS = {"aged": "<aged {removed}>", "cleared": "<cleared>", "digest": "<digest>{digest}"}
_AGED = re.compile(r"(?P<head>x*)<(?:aged (?P<removed>\d+)|cleared)>(?P<tail>x*)")
_OUTCOMES = {
    AgentState.COMPLETED: "answer",
    AgentState.MAX_STEPS: "exhausted",
    AgentState.ERROR: "error",
}


def near_the_end(case: Case) -> Compared:
    """The tier before call n."""
    run = pressure(PRESET, case.given["n"] - 1, case.given["max"])
    return Compared(case.expect, {"tier": tier(run), "remaining": left(run) - 1})


def aging(case: Case) -> Compared:
    """What is shown of each result."""
    messages: list[Row] = [[role, "x" * size, ids] for role, size, ids in case.given["messages"]]
    age = step_of(PRESET, "age", when={"always": True, "after_step": None})
    run = Replayer.begin({"preset": PRESET, "history": [age], "texts": TEXTS, "pressure": None}, messages)
    shown = enumerate(run.rows())
    return Compared(
        case.expect, {"results": [[place, _outcome(row[1])] for place, row in shown if row[0] == "tool"]}
    )


def loop(case: Case) -> Compared | LeftOut:
    """A whole run. Our task is pinned: it is sent besides, where the original has lost it."""
    if "overflow without progress" in case.tags:
        return LeftOut("overflow without progress")
    given = case.given
    task = len(given["history"])
    messages: list[Row] = [*([role, text, []] for role, text in given["history"]), ["user", "task", []]]
    policy = {"preset": PRESET, "limits": [{"type": "step", "value": given["max"]}], "texts": TEXTS}
    run = Replayer.begin(policy, messages, task=task).run(_script(given["script"]))
    numbers = _numbers(run, len(messages))
    outcome = _OUTCOMES.get(run.state.agent_state, "nothing")
    ended = outcome != "error"
    got = {
        "calls": [_call(run, asked, numbers, len(messages)) for asked in run.requests],
        "model_calls": len(run.requests),
        "outcome": outcome,
        "iterations": run.state.spent.steps if ended else None,
        "tool_calls": len(run.of(ToolReturned)) if ended else None,
    }
    if "task not pinned" not in case.tags:
        return Compared(case.expect, got)
    return Compared(_pinned(case.expect, task), got, ("task not pinned",))


def _pinned(expect: dict[str, Any], task: int) -> dict[str, Any]:
    """The answer with the task besides.

    Where nothing else would go there is no summary to make: that is the end.
    """
    calls = expect["calls"]
    first = next((place for place, call in enumerate(calls) if call["summary"]), 0)
    if first and set(calls[first - 1]["sent"]) - {task} == set(calls[first]["sent"]):
        ended = {"outcome": "error", "iterations": None, "tool_calls": None}
        return {"calls": calls[:first], "model_calls": first, **ended}
    return {**expect, "calls": [{**call, "sent": sorted({task, *call["sent"]})} for call in calls]}


def _script(said: list[Mapping[str, Any]]) -> Script:
    results = {name: Result(output="x" * size) for entry in said for name, size in entry.get("calls", ())}
    return Script(map(_step, said), results)


def _step(entry: Mapping[str, Any]) -> Reply | Failed:
    if "fail" in entry:
        overflow = entry["fail"] == "overflow"
        return Failed(failure=FailureClass.CONTEXT_OVERFLOW if overflow else FailureClass.OTHER)
    return Reply(text=entry["text"], calls=[(name, TOOL, "{}") for name, _ in entry.get("calls", ())])


def _numbers(run: Replayer, opening: int) -> dict[tuple[str, str], int]:
    """How the cases number what comes after the task: each answer with calls, and its results, by role and
    call.
    """
    keys: list[tuple[str, str]] = []
    for answer in run.of(ModelResponded):
        names = [call.provider_id for call in answer.calls]
        keys += [("assistant", name) for name in names[:1]] + [("tool", name) for name in names]
    return {key: number for number, key in enumerate(keys, start=opening)}


def _call(
    run: Replayer, asked: Asked, numbers: Mapping[tuple[str, str], int], opening: int
) -> dict[str, Any]:
    ours = numbered(asked.event.messages)
    sent: list[int] = []
    aged: list[Any] = []
    summary = False
    for index, (role, text, ids) in zip(ours, run.rows(asked), strict=False):  # pressure comes after them
        if role == "user" and text.startswith("<digest>"):
            summary = True
            continue
        sent.append(index if index < opening else numbers[role, ids[0]])
        if role == "tool" and _outcome(text) != "kept":
            aged.append([sent[-1], _outcome(text)])
    shown = [text.tier for text in asked.event.request_only if text.tier]
    return {"sent": sent, "summary": summary, "aged": aged, "tier": shown[0] if shown else "none"}


def _outcome(text: str) -> Any:
    found = _AGED.fullmatch(text)
    if found is None:
        return "kept"
    head, tail = len(found["head"]), len(found["tail"])
    return {"head": head, "tail": tail, "trimmed": int(found["removed"])} if head or tail else "cleared"


DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        "utah_aging": aging,
        "utah_overflow": loop,
        "utah_pressure": near_the_end,
        "utah_run": loop,
    }
)
