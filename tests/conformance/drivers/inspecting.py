"""The `inspect-iterative` preset against the loop of inspect_agents, and the tool output cap of
inspect_ai.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.drivers.cutting import Knife
from conformance.drivers.handoff import handoff
from conformance.drivers.passes import Step, patched, step_of
from conformance.drivers.resolving import compared, environment, refused, retry_policy
from conformance.replayer import TOOL, Failed, Replayer, Reply, Result, Row, Script, numbered
from conformance.suite import Case, Compared, Driver, LeftOut
from refold.reducers import AgentState, Fact, PolicyError
from refold.reducers.events import ModelFailed, RetryScheduled, StateChanged, ToolReturned
from refold.reducers.vocabulary import FailureClass, StopReason

PRESET = "inspect-iterative"
HINT = "<overflow hint>"
TEXTS = {
    "nudge": "<nudge>",
    "continue": "<continue>",
    "progress": "<progress {elapsed}>",
    "overflow": HINT,
}
ENDS = {
    "time_limit": "time",
    "step_limit": "steps",
    "message_limit": "message_limit",
    "token_estimate": "token_limit",
}
SYSTEM: Row = ["system", "<system>", []]


def pruned(step: Step | None, messages: list[Row]) -> list[int]:
    """The indexes of the messages that the first request shows, after one pass."""
    policy = {"preset": PRESET, "history": [step] if step else [], "overflow": None}
    return numbered(Replayer.begin(policy, messages).requests[0].event.messages)


def prune(case: Case) -> Compared | LeftOut:
    """What a threshold prune keeps.

    Our hint is for one request and in no history: the cases' go from both sides.
    """
    said = [(index, row) for index, row in enumerate(case.given["messages"]) if row[1] != HINT]
    step = step_of(PRESET, "threshold", when={"always": True, "messages": None}, last=case.given["keep_last"])
    try:
        kept = [said[place][0] for place in pruned(step, [row for _, row in said])]
    except PolicyError:
        return LeftOut("keep_last below 1")
    otherwise = ("overflow hint",) if len(said) < len(case.given["messages"]) else ()
    return Compared(case.expect, {"kept": kept}, otherwise)


def window(case: Case) -> Compared:
    """What the prune before each step keeps."""
    width = _width(case.given)
    step = step_of(PRESET, "window", last=width) if width else None
    return Compared(case.expect, {"kept": pruned(step, case.given["messages"])})


def _width(said: Mapping[str, Any]) -> int:
    """Messages in the window, 0 for no window: what is below 1 is not set."""
    return next(
        (n for n in (said["max_messages"], 2 * (said["max_turns"] or 0)) if n is not None and n > 0), 0
    )


def loop(case: Case) -> Compared | LeftOut:
    """A whole run."""
    config, given = case.given["config"], case.given["messages"]
    messages = given if given[:1] and given[0][0] == "system" else [SYSTEM, *given]
    run = Replayer.begin(_loop_policy(config) | late(case), messages).run(script(case.given["script"]))
    left_out = without_answer(case, run)
    if left_out is not None:
        return left_out
    expected, otherwise = dict(case.expect), _unread(case)
    if otherwise:
        expected["messages"] = expected["messages"][:-1]
    if any(text.text == "overflow" for asked in run.requests for text in asked.event.request_only):
        otherwise.append("overflow")
    return without_the_end(case, run, Compared(expected, run_answer(run), tuple(otherwise)))


def _unread(case: Case) -> list[str]:
    """The tags of a last message that is not in our history: a notice, or a `<continue>` after the last
    answer.
    """
    made = case.expect["model_calls"]
    lost = made > 0 and "overflow" in case.given["script"][made - 1]  # the last request had read that one
    tags = ("limit notice", *(() if lost else ("continue after the last step",)))
    return [tag for tag in tags if tag in case.tags]


def _loop_policy(config: Mapping[str, Any]) -> dict[str, Any]:
    width = _width(config)
    every = config["progress_every"]
    credit = {"retry": "on_success" if config["productive_time"] else "none"}
    when = {"messages": config["prune_after"]}
    passes = {
        "window": {"last": width or 1},
        "trim": {"when": when, "cap": config["per_message_token_cap"]},
        "threshold": {"when": when, "last": max(0, config["prune_keep_last"])},
    }
    history = [step for step in patched(PRESET, passes) if width or step["name"] != "window"]
    return {
        "preset": PRESET,
        "limits": [
            {"type": "time", "value": config["time_limit"], "credit": credit},
            {"type": "step", "value": config["max_steps"]},
            {"type": "message", "value": config["message_limit"]},
            {"type": "token", "measure": "estimate", "value": config["token_limit"]},
        ],
        "history": history,
        "progress": {"every": every} if every else None,
        "retry": config["retry"],
        "texts": TEXTS,
    }


def script(said: list[Mapping[str, Any]]) -> Script:
    """A script of replies, and what their calls return. The last call of a batch takes the batch's time."""
    results: dict[str, Result] = {}
    for entry in said:
        for place, (name, output) in enumerate(entry.get("calls", ()), start=1):
            last = place == len(entry["calls"])
            results[name] = Result(output=output, dt=entry.get("tools_dt", 0) if last else 0)
    return Script((step for entry in said for step in _reply(entry)), results)


def _reply(entry: Mapping[str, Any]) -> Iterator[Reply | Failed]:
    for _ in range(entry.get("failures", 0)):
        yield Failed(failure=FailureClass.RATE_LIMIT)
    for wait in entry.get("waits", ()):
        yield Failed(failure=FailureClass.RATE_LIMIT, wait=wait)
    if entry.get("overflow") == "raised":
        yield Failed(failure=FailureClass.CONTEXT_OVERFLOW, dt=entry["dt"])
        return
    reported = entry.get("overflow") == "reported"
    yield Reply(
        text=entry["text"],
        calls=[(name, TOOL, "{}") for name, _ in entry.get("calls", ())],
        stop=StopReason.OTHER if reported else None,
        stop_raw="model_length" if reported else "",
        dt=entry["dt"],
    )


def late(case: Case) -> dict[str, Any]:
    """A reply that comes late is a fact like any other, and so is what its calls return: all are under way by
    then.
    """
    return {"batch": "parallel"} if "late reply" in case.tags else {}


def without_answer(case: Case, run: Replayer) -> LeftOut | None:
    """Runs in which ours rightly does something else: it had no time to ask again, or pruning changed
    nothing.
    """
    if run.overdue and "late reply" in case.tags:
        return LeftOut("late reply")
    if "overflow without progress" in case.tags:
        return LeftOut("overflow without progress")
    return None


def without_the_end(case: Case, run: Replayer, compared: Compared) -> Compared:
    """Time was up when a request failed: no room is made in a history for a request that does not come."""
    last = next((event for event in reversed(run.events.values()) if isinstance(event, Fact)), None)
    if "late reply" not in case.tags or not isinstance(last, ModelFailed):
        return compared
    expected, got = ({**side, "messages": None} for side in (compared.expected, compared.got))
    return Compared(expected, got, (*compared.otherwise, "late reply"))


def run_answer(run: Replayer) -> dict[str, Any]:
    """A run as the cases tell it."""
    calls: list[dict[str, Any]] = []
    for request in run.steps:
        sent = [row for row in run.rows(request) if row[1] != HINT]
        batch = {} if request.batch_timeout is None else {"batch_timeout": request.batch_timeout}
        calls.append({"sent": sent, "timeout": request.timeout, **batch})
    return {"calls": calls, "model_calls": len(calls), "ended_by": ended_by(run), "messages": run.rows()}


def ended_by(run: Replayer) -> str:
    """How the run ended, in the words of the cases."""
    moved = run.of(StateChanged)
    return ENDS.get(moved[-1].code, moved[-1].code) if moved and run.state.ended else "nothing"


def retry(case: Case) -> Compared | LeftOut:
    """One request under retry: its waits, and what a time limit credits of them."""
    limit = 1_000_000
    try:
        more = {
            "limits": [{"type": "time", "value": limit, "credit": {"retry": "on_success"}}],
            "call_timeout": {"whole_seconds": False},
        }
        policy = retry_policy(case, more)
        begun = Replayer.begin(policy, [["user", "x", []]])
    except PolicyError:
        return refused(case)
    said: list[Reply | Failed] = [
        *([Failed(failure=FailureClass.RATE_LIMIT)] * case.given["failures"]),
        Reply(),
    ]
    run = begun.run(Script(iter(said)))
    tries = [asked.event for asked in run.requests if asked.event.step == 1]
    waits = [wait.delay // 10**6 for wait in run.of(RetryScheduled)]
    credited = None
    if run.state.agent_state is not AgentState.ERROR:
        # The next request is given what is left of the limit: what was waited and is not missing was
        # credited.
        left = run.requests[-1].timeout
        assert left is not None
        credited = round((left - limit) * 1000) + sum(waits)
    return compared(case, case.expect, {"tries": len(tries), "waits_ms": waits, "credited_ms": credited})


def tool_output(case: Case) -> Compared | LeftOut:
    """The cap on a tool's output. We cut between characters."""
    if "replacement characters" in case.tags:
        return LeftOut("replacement characters")
    text, mark = long_text(case.given["text"]), "\ue000"
    cap = case.given["cap"] if case.given["cap"] > 0 else None
    policy = {"preset": PRESET, "tool_output": {"max": cap}, "texts": {"output_cut": mark}}
    run = Replayer.begin(policy, [["user", "x", []]])
    run.reply(Reply(calls=[("c1", TOOL, "{}")]))
    run.result("c1", Result(output=text))
    returned = run.of(ToolReturned)[0]
    assert returned.content is not None
    got = (
        {"body": returned.content.output.replace(mark, ""), "bytes": returned.output_bytes}
        if returned.cut
        else None
    )
    expected = case.expect["cut"] and {**case.expect["cut"], "body": long_text(case.expect["cut"]["body"])}
    if expected and got and cap and _chimera(text.encode(), cap):
        return Compared(expected["bytes"], got["bytes"], ("replacement characters",))
    return Compared({"cut": expected}, {"cut": got})


def _chimera(data: bytes, cap: int) -> bool:
    """Whether a cut inside two characters happens to join their halves to a third, which nobody wrote.

    No half is replaced then, and so there is no tag.
    """
    head, tail = cap // 2, len(data) - (cap - cap // 2)
    half = data[_begin(data, head) : head]
    end = next((place for place in range(tail, len(data)) if data[place] & 0xC0 != 0x80), len(data))
    return bool(half) and end > tail and half + data[tail:end] != data[_begin(data, tail) : end]


def _begin(data: bytes, place: int) -> int:
    """Where the character begins that the byte at `place` belongs to."""
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def long_text(said: str | list[tuple[str, int]]) -> str:
    """A text, or the units repeated and joined that stand for it."""
    return said if isinstance(said, str) else "".join(unit * times for unit, times in said)


def truncate(case: Case) -> Compared | LeftOut:
    """Messages cut to a number of tokens. Ours never exceed the cap, and the marker says what is really
    gone.
    """
    if "other sizes under a strict cap" in case.tags:
        return LeftOut("other sizes under a strict cap")
    given = case.given
    cap = given["cap"] if given["cap"] > 0 else None
    last = given.get("last_k", 0)
    # 0 is none of them here, all of them there.
    knife = Knife(PRESET, cap, "x" * 26 + "{removed}", ("user", "assistant"), last if last >= 1 else None)
    if "chunks" in given:
        cuts = knife.parts(given["role"], given["chunks"])
        sizes = [size for _, size in given["chunks"]]
    else:
        messages = given.get("messages", [(given.get("role"), given.get("tokens"))])
        cuts = knife.texts(messages)
        sizes = [size for _, size in messages]
    said = case.expect["cuts"] if "cuts" in case.expect else [case.expect["cut"]]
    expected = [
        cut and {**cut, "trimmed": size - cut["head"] - cut["tail"]}
        for cut, size in zip(said, sizes, strict=True)
    ]
    otherwise = ("true count",) if any(expected) else ()
    return Compared(expected, cuts, otherwise)


DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        "handoff": handoff,
        "inspect_env": environment,
        "inspect_loop": loop,
        "inspect_prune": prune,
        "inspect_retry": retry,
        "inspect_tool_output": tool_output,
        "inspect_truncate": truncate,
        "inspect_window": window,
    }
)
