"""The `paperbench` preset against the basic agent of PaperBench, as it was on inspect."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.drivers.cutting import Cut, Knife
from conformance.drivers.inspecting import TEXTS, late, run_answer, script, without_answer, without_the_end
from conformance.replayer import Failed, Replayer, Reply, Script, numbered
from conformance.suite import Case, Compared, Driver, LeftOut
from refold.reducers.events import ModelRequested
from refold.reducers.vocabulary import NANO, FailureClass

PRESET = "paperbench"
_HALF_OF_ONE = "cap 1 keeps the whole text after the marker"
# The waits are the script's: what the provider asks for is a lower bound of ours.
_RETRY = {"initial": 0, "max": 0, "jitter": {"add": 0}}


def loop(case: Case) -> Compared | LeftOut:
    """A whole run."""
    if "invalid json" in case.tags:
        return LeftOut("invalid json")
    policy = _policy(case.given["config"]["time_limit"]) | {"texts": TEXTS} | late(case)
    run = Replayer.begin(policy, case.given["messages"]).run(script(case.given["script"]))
    left_out = without_answer(case, run)
    if left_out is not None:
        return left_out
    expected = dict(case.expect)
    expected["calls"] = [_given_time(call) for call in expected["calls"]]
    otherwise = ("call without time left",) if expected["calls"] != case.expect["calls"] else ()
    return without_the_end(case, run, Compared(expected, run_answer(run), otherwise))


def time(case: Case) -> Compared:
    """The time check of a run in which the model only talks."""
    said = (step for dt, waits in case.given["calls"] for step in _talk(dt, waits))
    run = Replayer.begin(_policy(case.given["limit"]), [["user", "x", []]]).run(Script(said))
    got = {
        "made": len(run.steps),
        "timeouts": [asked.timeout for asked in run.steps],
        "productive_at_end": _productive(run),
    }
    timeouts = [_at_least_one(seconds) for seconds in case.expect["timeouts"]]
    otherwise = ("call without time left",) if timeouts != case.expect["timeouts"] else ()
    return Compared({**case.expect, "timeouts": timeouts}, got, otherwise)


def _policy(limit: float) -> dict[str, Any]:
    return {"preset": PRESET, "limits": [{"type": "time", "value": limit}], "retry": _RETRY}


def _talk(dt: float, waits: list[float]) -> Iterator[Reply | Failed]:
    for wait in waits:
        yield Failed(failure=FailureClass.RATE_LIMIT, wait=wait)
    yield Reply(text="x", dt=dt)


def _productive(run: Replayer) -> float | None:
    hit = run.state.limit
    return None if hit is None else hit.used / NANO


def _at_least_one(seconds: float) -> float:
    return max(1, seconds)


def _given_time(call: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: _at_least_one(call[key]) for key in ("timeout", "batch_timeout") if key in call}
    return {**call, **given}


def prune(case: Case) -> Compared | LeftOut:
    """What is left after overflows in a row."""
    if "prompt too long" in case.tags:
        return LeftOut("prompt too long")
    run = Replayer.begin({"preset": PRESET, "progress": None}, case.given["messages"])
    for _ in range(case.given["times"]):
        if run.state.request is not None:
            run.fail(Failed(failure=FailureClass.CONTEXT_OVERFLOW))
    # A prune that changes nothing ends the run: what was sent last is what is left.
    return Compared(case.expect, {"kept": numbered(run.of(ModelRequested)[-1].messages)})


def individual(case: Case) -> Compared | LeftOut:
    """One message cut to a number of tokens."""
    if _HALF_OF_ONE in case.tags:
        return LeftOut(_HALF_OF_ONE)
    roles = ("user", "assistant", "tool")
    knife = Knife(PRESET, case.given["cap"], "{removed}", roles, place="beside")
    if "chunks" in case.given:
        return Compared(case.expect, {"cuts": [*map(_ends, knife.parts("assistant", case.given["chunks"]))]})
    return Compared(case.expect, {"cut": _ends(knife.texts([("user", case.given["tokens"])])[0])})


def _ends(cut: Cut) -> Cut:
    """The tokens that stay at each end: the original's marker names no number."""
    return {"head": cut["head"], "tail": cut["tail"]} if cut else None


DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        "paperbench_individual": individual,
        "paperbench_loop": loop,
        "paperbench_prune": prune,
        "paperbench_time": time,
    }
)
