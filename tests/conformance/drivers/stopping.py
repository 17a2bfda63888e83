"""Conditions that stop a run, each judged by itself once a last round is over.

A condition that held earlier is not asked then: the cases judge runs as they stand. A guard is kept silent
until the last round by one of our own, which any caller may put into the registry; limits hold on once they
held.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from conformance.replayer import Replayer, Reply, Result
from conformance.suite import Case, Compared
from refold.reducers import BUILTIN, Event, Guard, Registry, RunState
from refold.reducers.events import GuardTripped, Manifest, StateChanged
from refold.reducers.guards.protocol import Judgement, Place
from refold.reducers.vocabulary import ToolError

PRESET = "tirea"
_BEFORE = 3600  # seconds until the first answer, which the time limit does not count
_Knobs = Mapping[str, Any]
_CODES = {
    "step_limit": "max_rounds_reached",
    "time_limit": "timeout_reached",
    "token_budget": "token_budget_exceeded",
    "consecutive_errors": "consecutive_errors_exceeded",
    "stop_tool": "tool_called",
    "keyword": "content_matched",
    "loop_detected": "loop_detected",
}


class AtLast(msgspec.Struct, frozen=True, kw_only=True, tag_field="guard", tag="at_last"):
    """Another guard, `inner` as JSON, that says nothing before step `step`."""

    step: int
    inner: str
    name: str = ""

    kind: ClassVar[str] = "at_last"
    version: ClassVar[int] = 1
    places: ClassVar[frozenset[Place]] = frozenset(Place)
    observes: ClassVar[frozenset[type[Event]]] = frozenset[type[Event]]().union(
        *(guard.observes for guard in BUILTIN.values())
    )
    reads_content: ClassVar[bool] = True

    def start(self) -> Any:
        return _guard(self.inner).start()

    def observe(self, own: Any, event: Event) -> Any:
        inner = _guard(self.inner)
        return inner.observe(own, event) if type(event) in inner.observes else own

    def judge(self, own: Any, state: RunState, place: Place) -> Iterable[Judgement]:
        inner = _guard(self.inner)
        silent = state.spent.steps < self.step or place not in inner.places
        return () if silent else inner.judge(own, state, place)


@cache
def _guard(said: str) -> Guard:
    plain = json.loads(said)
    guard: Guard = msgspec.convert(plain, BUILTIN[plain["guard"]])
    return guard


_REGISTRY: Registry = {**BUILTIN, AtLast.kind: AtLast}


def stop_conditions(case: Case) -> Compared:
    """What each condition says after the last round, and the counts that they go by."""
    limits = case.given["policies"]
    exact = {"case": "exact", "when": "after_tools"}
    conditions: Mapping[str, dict[str, Any] | None] = {
        # 0 rounds, like 1, ends a run after its first.
        "max_rounds": _limit("step", max(1, limits["max_rounds"])),
        "timeout_ms": _limit("time", limits["timeout_ms"] / 1000, **_clock(case)),
        "token_budget": _limit("token", limits["token_budget"]) if limits["token_budget"] else None,
        "consecutive_errors": _silent(case, "errors", {"rounds": limits["consecutive_errors"]}),
        "stop_on_tool": _silent(case, "stop_on_tool", {"tools": limits["stop_on_tool"]}),
        "content_match": _silent(case, "keywords", {"words": limits["content_match"]}, exact),
        # No window is one of 2.
        "loop_detection": _silent(case, "loop", {"window": limits["loop_detection"] or 2}),
    }
    counted = _run(case, {})
    got = {
        "rounds": counted.state.spent.steps - (counted.state.request is not None),
        "tool_calls": counted.state.spent.calls,
        "consecutive_errors": _streak(case),
        "stops": {name: _stop(case, said) for name, said in conditions.items()},
    }
    return Compared(case.expect, got)


def _limit(kind: str, value: float, **more: Any) -> dict[str, Any]:
    return {"limits": [{"type": kind, "value": value, **more}]}


def _clock(case: Case) -> dict[str, str]:
    # The time begins with the first answer. If a round is over with it nothing has elapsed: the start stands
    # for it.
    return {"clock": "start"} if _over_at_once(case) else {}


def _over_at_once(case: Case) -> bool:
    rounds = case.given["rounds"]
    return len(rounds) == 1 and not rounds[0]["calls"]


def _silent(
    case: Case, kind: str, knob: _Knobs, more: _Knobs = MappingProxyType({})
) -> dict[str, Any] | None:
    """A guard that is silent until the last round; None where 0 or the empty word switches it off."""
    if not any(knob.values()):
        return None
    said = {name: [value] if isinstance(value, str) else value for name, value in knob.items()}
    inner = json.dumps({"guard": kind, **said, **more})
    return {"guards": [{"guard": AtLast.kind, "step": len(case.given["rounds"]), "inner": inner}]}


def _stop(case: Case, said: dict[str, Any] | None) -> str | None:
    if said is None:
        return None
    run = _run(case, said)
    code = run.of(StateChanged)[-1].code if run.state.ended else None
    return None if code is None else _CODES.get(code, code)


def _streak(case: Case) -> int:
    tripped = _run(case, _silent(case, "errors", {"rounds": 1}) or {}).of(GuardTripped)
    return int(tripped[-1].measured["batches"]) if tripped else 0


def _run(case: Case, said: Mapping[str, Any]) -> Replayer:
    """The rounds under one condition. Nothing else ends a turn, or asks again for an answer of nothing; the
    last round takes the time and the tokens.
    """
    rounds = case.given["rounds"]
    tools = tuple(Manifest(name=name) for name in sorted({name for one in rounds for name in one["calls"]}))
    policy = {"preset": PRESET, "end_of_turn": "continue", "stream": None, **said}
    run = Replayer.begin(policy, [["user", "x", []]], tools=tools, registry=_REGISTRY)
    for number, one in enumerate(rounds, start=1):
        last = number == len(rounds)
        seconds = case.given["elapsed_ms"] / 1000 if last else 0
        usage = (case.given["input_tokens"], case.given["output_tokens"]) if last else (0, 0)
        calls = [(f"{number}.{place}", name, "{}") for place, name in enumerate(one["calls"])]
        waited = _BEFORE if number == 1 and not _over_at_once(case) else 0
        run.reply(Reply(text=one["text"], calls=calls, usage=usage, dt=waited + (0 if calls else seconds)))
        for place, failed in enumerate(one["errors"]):
            error = ToolError.RAISED if failed else None
            run.result(f"c{run.state.spent.calls - len(calls) + place + 1}", Result(error=error, dt=seconds))
            seconds = 0
        if run.state.ended:
            break
    return run
