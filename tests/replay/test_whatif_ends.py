"""What a record does not say has two ends: a policy is judged by it where it comes to the same at both, and
else not.
"""

from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from refold.reducers.events import Diagnosed, Event, Manifest, ModelResponded, RunStarted, ToolReturned
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.endings import Errors
from refold.reducers.guards.protocol import Reading
from refold.reducers.parser import parse
from refold.reducers.vocabulary import StopReason, Unknown
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict, WhatIf
from refold.testing.strategies.driver import drive
from support.following import shown
from support.scenario import SECOND, TOOLS, Scenario

Plain = dict[str, Any]
HALF: Plain = {"history": [{"do": "drop_oldest", "fraction": 0.5, "when": {"tokens": {"share": 0.5}}}]}
READING: Plain = {"guards": [{"guard": "read_only", "batches": 2}]}
ONE_STEP: Plain = {"limits": [{"type": "step", "value": 1}]}
MANY_STEPS: Plain = {"limits": [{"type": "step", "value": 99}]}
ONE_OF_A_TURN: Plain = {"limits": [{"type": "step", "value": 1, "scope": "turn"}]}
ONE_BATCH: Plain = {"guards": [{"guard": "tool_cap", "tools": ["look"], "max": 1}]}


def judged(log: list[Event], other: Plain) -> WhatIf:
    """What is said of a log under another policy."""
    comparison = Comparison("r1", parse(other))
    return shown(comparison, log)


def calls(tool: str, count: int, used: int) -> list[Event]:
    """A run of so many batches of one call, each answer with so many tokens, and a last word."""
    run = Scenario({})
    for number in range(1, count + 1):
        run.answer("", (tool, f'{{"n": {number}}}'), usage=(used, 5))
        run.result(f"c{number}", "seen " * 20)
    run.answer("done", usage=(used, 5))
    return run.log


def lacking(log: list[Event], unsaid: tuple[Unknown, ...], answers: tuple[Unknown, ...] = ()) -> list[Event]:
    """The log, of a source that does not say this of the run, or of each result, and this of each answer."""
    results = tuple(kind for kind in unsaid if kind is Unknown.ERRORS)
    started = tuple(kind for kind in unsaid if kind not in results)
    (first,) = [event for event in log if isinstance(event, RunStarted)]

    def blotted(event: Event) -> Event:
        match event:
            case RunStarted():
                return replace(event, unknown=started)
            case ModelResponded():
                return replace(event, unknown=answers, model=first.model)
            case ToolReturned():
                return replace(event, unknown=results)
            case _:
                return event

    return [blotted(event) for event in log]


@pytest.mark.parametrize(
    ("used", "answers", "verdict"),
    [
        pytest.param(100_000, (), Verdict.AGREE, id="it has answered to far more than what is shown"),
        pytest.param(10, (), Verdict.INCONCLUSIVE, id="it may have been hardly larger than what is shown"),
        pytest.param(
            100_000, (Unknown.USAGE,), Verdict.INCONCLUSIVE, id="nobody counted what it has answered to"
        ),
    ],
)
def test_a_context_is_as_large_as_what_was_answered(
    used: int, answers: tuple[Unknown, ...], verdict: Verdict
) -> None:
    """A pass at a share of the context is judged as soon as an answer shows that the context is large
    enough.
    """
    log = lacking(calls("look", 3, used), (Unknown.CONTEXT,), answers)
    found = judged(log, HALF)
    assert verdict is found.verdict
    why = "pass drop_oldest: the record does not say how long the model's context was"
    assert (why,) * (verdict is Verdict.INCONCLUSIVE) == found.unknown


def test_a_context_grows_with_what_was_answered() -> None:
    """Each answer that shows a larger context counts: a pass is judged by the largest that is known so far,
    not by the first.
    """
    log = lacking(calls("look", 12, 200), (Unknown.CONTEXT,))
    # What it has answered to is hardly more than what it is shown.
    assert Verdict.INCONCLUSIVE is judged(log, HALF).verdict
    first = next(at for at, event in enumerate(log) if isinstance(event, ModelResponded))
    grown = [
        replace(event, usage=replace(event.usage, input=100_000))
        if at > first and isinstance(event, ModelResponded)
        else event
        for at, event in enumerate(log)
    ]
    assert Verdict.AGREE is judged(grown, HALF).verdict


@pytest.mark.parametrize(
    ("unknown", "count", "verdict"),
    [
        pytest.param((), 3, Verdict.AGREE, id="the tools are known, and this one does not only read"),
        pytest.param((Unknown.TOOLS,), 3, Verdict.INCONCLUSIVE, id="it may only read"),
        pytest.param((Unknown.TOOLS,), 1, Verdict.AGREE, id="too few batches, whatever it is"),
    ],
)
def test_tools_may_only_read(unknown: tuple[Unknown, ...], count: int, verdict: Verdict) -> None:
    """A guard that counts what only reads is judged where it would speak of neither end."""
    found = judged(lacking(calls("act", count, 10), unknown), READING)
    assert verdict is found.verdict
    assert all(
        why.startswith("guard read_only: the record does not say which tools") for why in found.unknown
    )
    assert bool(found.unknown) is (verdict is Verdict.INCONCLUSIVE)


def diagnosed(log: list[Event], code: str, answer: int) -> list[Event]:
    """The log up to what that answer has begun, and with a diagnosis there; "": none."""
    place, answered = [(at, event) for at, event in enumerate(log) if isinstance(event, ModelResponded)][
        answer
    ]
    after = next(
        at for at, event in enumerate(log) if at > place and type(event).__name__ == "ToolsDispatched"
    )
    noted = Diagnosed(at=answered.at, code=code, problem="lost") if code else None
    return log[: after + 1] + ([noted] if noted else [])


STOPS, UNJUDGED = Verdict.STOPS, Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("code", "answer", "other", "verdict", "exact"),
    [
        pytest.param("", 2, ONE_BATCH, STOPS, True, id="nothing was lost"),
        pytest.param("result_without_call", 3, ONE_BATCH, STOPS, False, id="behind the end of the other run"),
        pytest.param("result_without_call", 0, ONE_BATCH, UNJUDGED, True, id="before it"),
        pytest.param(
            "result_without_call", 1, ONE_BATCH, UNJUDGED, True, id="between it and the next answer"
        ),
        pytest.param("not_json", 2, ONE_BATCH, UNJUDGED, True, id="nobody knows where"),
        pytest.param("result_without_call", 1, ONE_STEP, STOPS, False, id="there: no fewer steps"),
        pytest.param("not_json", 2, ONE_STEP, STOPS, False, id="nobody knows where: no fewer steps"),
        pytest.param("not_json", 2, ONE_OF_A_TURN, UNJUDGED, True, id="fewer steps of a turn"),
        pytest.param("not_json", 2, MANY_STEPS, UNJUDGED, True, id="more steps than are there"),
    ],
)
def test_what_was_lost_behind_the_end_is_not_missed(
    code: str, answer: int, other: Plain, verdict: Verdict, exact: bool
) -> None:
    """What stands of a source behind the place where the two part is no part of what is judged; it may have
    cost something.

    Before it only a limit of what adds up is judged: that was reached there, or before.
    """
    log = diagnosed(lacking(calls("look", 4, 10), (Unknown.TOOLS, Unknown.CONTEXT)), code, answer)
    found = judged(log, other)
    assert (verdict, exact) == (found.verdict, found.exact)


def test_a_run_agrees_with_its_own_policy_whatever_it_lacks() -> None:
    """A limit of cost that trips over answers without a price, while something is in flight: the same policy
    says the same.
    """
    limits = [{"type": "cost", "value": 5e-08}]
    retry = {"attempts": 1, "initial": 0}
    driver = drive({"preset": "paperbench-solver", "limits": limits, "retry": retry}, [290, 0, 550, 85])
    comparison = Comparison("r1", lambda policy: policy)
    assert Verdict.AGREE is shown(comparison, driver.log).verdict


def failing(rounds: int, **more: Any) -> Plain:
    return {"guards": [{"guard": "errors", "rounds": rounds}], **more}


class Counting(Errors, frozen=True, kw_only=True, tag="counting"):
    """A guard that nobody here knows: it may speak of a failure between two successes."""

    kind: ClassVar[str] = "counting"


class Declared(Errors, frozen=True, kw_only=True, tag="declared"):
    """A guard of somebody else that declares what it reads."""

    kind: ClassVar[str] = "declared"
    reading: ClassVar[Reading] = Reading(monotone=frozenset({Unknown.ERRORS}))


@pytest.mark.parametrize(
    ("other", "unknown", "verdict"),
    [
        pytest.param(failing(1), (), Verdict.AGREE, id="it is known that none failed"),
        pytest.param(failing(1), (Unknown.ERRORS,), Verdict.INCONCLUSIVE, id="each may have failed"),
        pytest.param(failing(4), (Unknown.ERRORS,), Verdict.AGREE, id="too few, even if all of them failed"),
        pytest.param(
            {"guards": [{"guard": "counting", "rounds": 4}]},
            (Unknown.ERRORS,),
            Verdict.INCONCLUSIVE,
            id="a guard of which nobody knows what it makes of it",
        ),
        pytest.param(
            {"guards": [{"guard": "declared", "rounds": 4}]},
            (Unknown.ERRORS,),
            Verdict.AGREE,
            id="one that declares that more failures only make it trip earlier",
        ),
        pytest.param(
            {"guards": [{"guard": "stall", "same_tool": None}]},
            (Unknown.ERRORS,),
            Verdict.AGREE,
            id="one that counts both",
        ),
        pytest.param(
            {"texts": {"timeout": "Too late."}},
            (Unknown.ERRORS,),
            Verdict.INCONCLUSIVE,
            id="a failure would have had another text",
        ),
    ],
)
def test_calls_may_have_failed(other: Plain, unknown: tuple[Unknown, ...], verdict: Verdict) -> None:
    """Where the record does not say which calls failed, none did, and all did."""
    registry: Registry = {**BUILTIN, Counting.kind: Counting, Declared.kind: Declared}
    comparison = Comparison("r1", parse(other, registry), registry)
    found = shown(comparison, lacking(calls("act", 3, 10), unknown))
    assert verdict is found.verdict
    assert all("which calls failed" in why for why in found.unknown)


@pytest.mark.parametrize(
    ("room", "used", "verdict"),
    [
        pytest.param(100_000, 900, Verdict.AGREE, id="they were part of a request that was small"),
        pytest.param(3_000, 900, Verdict.INCONCLUSIVE, id="there would be little room beside as much"),
    ],
)
@pytest.mark.parametrize("listed", [TOOLS, ()], ids=["some are listed", "none is"])
def test_tools_weigh_no_more_than_the_requests(
    room: int, used: int, verdict: Verdict, listed: tuple[Manifest, ...]
) -> None:
    """Tools beside those that are listed leave the room that the largest request does not fill, once one was
    counted.
    """
    budget = {"context": room, "minus_tools": True}
    other = {"history": [{"do": "token_tail", "budget": budget, "when": {"after_step": 1}}]}
    log = [
        replace(event, tools=listed) if isinstance(event, RunStarted) else event
        for event in lacking(calls("look", 3, used), (Unknown.TOOLS,))
    ]
    assert verdict is judged(log, other).verdict


def test_a_request_that_weighs_less_than_its_tools() -> None:
    """A source that counts less than the tools that it lists does not say how much they weigh at most."""
    other = {"history": [{"do": "token_tail", "budget": {"context": 100_000, "minus_tools": True}}]}
    log = lacking(calls("look", 3, 1), (Unknown.TOOLS,))
    assert Verdict.INCONCLUSIVE is judged(log, other).verdict


PIVOT: Plain = {
    "guards": [{"guard": "pivot", "tool": "act", "to": "other", "failures": 1, "marks": ["seen"]}]
}


@pytest.mark.parametrize(
    ("unknown", "verdict"),
    [
        pytest.param((Unknown.TOOLS,), Verdict.AGREE, id="no call failed"),
        pytest.param((Unknown.ERRORS,), Verdict.AGREE, id="there is no tool to point to"),
        pytest.param(
            (Unknown.TOOLS, Unknown.ERRORS), Verdict.INCONCLUSIVE, id="there may be, and one failed"
        ),
    ],
)
def test_two_things_may_have_been_together(unknown: tuple[Unknown, ...], verdict: Verdict) -> None:
    """A guard that speaks only if two things were so that nobody knows is not judged."""
    assert verdict is judged(lacking(calls("act", 3, 10), unknown), PIVOT).verdict


OBSERVED: Plain = {"preset": "observed"}
CUT: Plain = {"truncation": {"max": 2}}
STOP = (Unknown.STOP,)


@pytest.mark.parametrize(
    ("other", "stop", "unknown", "verdict"),
    [
        pytest.param(CUT, StopReason.END_TURN, (), Verdict.AGREE, id="it is known that none was cut"),
        pytest.param(CUT, StopReason.END_TURN, STOP, Verdict.INCONCLUSIVE, id="one may have been cut"),
        pytest.param(CUT, StopReason.OTHER, STOP, Verdict.INCONCLUSIVE, id="by a word that may mean so"),
        pytest.param({}, StopReason.END_TURN, STOP, Verdict.AGREE, id="nothing asks why it stopped"),
        pytest.param(MANY_STEPS, StopReason.END_TURN, STOP, Verdict.AGREE, id="nor does a limit"),
        pytest.param(
            {**CUT, "limits": [{"type": "token", "value": 59}]},
            StopReason.END_TURN,
            STOP,
            Verdict.STOPS,
            id="a limit ends the run there, whether it was cut or not",
        ),
        pytest.param(
            {"refusal": "fail"}, StopReason.END_TURN, STOP, Verdict.INCONCLUSIVE, id="or a filter did it"
        ),
        pytest.param(
            {"overflow": {"stops": ["full"], "do": []}},
            StopReason.END_TURN,
            STOP,
            Verdict.INCONCLUSIVE,
            id="or the context was full",
        ),
        pytest.param({"premature_end": {}}, StopReason.END_TURN, STOP, Verdict.AGREE, id="it said something"),
    ],
)
def test_answers_may_have_stopped_for_any_reason(
    other: Plain, stop: StopReason, unknown: tuple[Unknown, ...], verdict: Verdict
) -> None:
    """Where the record does not say why a response stopped, a rule is judged that makes no difference of
    it.
    """
    driver = Scenario(OBSERVED)
    for number in range(1, 4):
        driver.answer("", ("act", f'{{"n": {number}}}'), usage=(10, 5))
        driver.result(f"c{number}", "seen")
    driver.answer("done", usage=(10, 5))
    log = [
        replace(event, stop=stop, unknown=unknown)
        if isinstance(event, ModelResponded) and not event.calls
        else event
        for event in driver.log
    ]
    found = judged(log, {**OBSERVED, **other})
    assert verdict is found.verdict
    assert (verdict is Verdict.INCONCLUSIVE) is bool(found.unknown)
    assert all("why a response stopped" in why for why in found.unknown)


PAUSES = "retries: the record does not have the wait before the next attempt"
RETRY: Plain = {"retry": {"attempts": 5, "jitter": {"add": 0}}}


def retried() -> list[Event]:
    """A request that failed and was made again, and then three steps of eleven seconds."""
    run = Scenario(RETRY)
    run.fail(after=2)
    assert run.state.backoff is not None
    run.clock((run.state.backoff.event.until - run.at) / SECOND)
    for number in range(1, 4):
        run.answer("", ("look", f'{{"n": {number}}}'), after=10)
        run.result(f"c{number}", after=1)
    run.answer("done", after=10)
    return run.log


@pytest.mark.parametrize(
    ("imported", "limit", "verdict", "why"),
    [
        pytest.param(
            False, {"credit": {"retry": "on_success"}}, Verdict.STOPS, (), id="our own: the wait is known"
        ),
        pytest.param(True, {}, Verdict.STOPS, (), id="the limit counts waits too"),
        pytest.param(
            True,
            {"credit": {"retry": "on_success"}},
            Verdict.INCONCLUSIVE,
            (PAUSES,),
            id="it leaves them out",
        ),
    ],
)
def test_how_long_a_source_waited_between_attempts(
    imported: bool, limit: Plain, verdict: Verdict, why: tuple[str, ...]
) -> None:
    """An import does not say how long it waited between attempts: a limit that leaves waits out may have come
    later.
    """
    log = lacking(retried(), (Unknown.TOOLS,) if imported else ())
    found = judged(log, {"limits": [{"type": "time", "value": 15, **limit}], **RETRY})
    assert (verdict, why) == (found.verdict, found.unknown)


@pytest.mark.parametrize("imported", [True, False])
def test_another_wait_than_the_source_had(imported: bool) -> None:
    """Where other retries would have come at once, an import does not say whether its own did; a run of ours
    does.
    """
    log = lacking(retried(), (Unknown.TOOLS,) if imported else ())
    found = judged(log, {"retry": {"attempts": 5, "initial": 0, "max": 0, "jitter": {"add": 0}}})
    assert (PAUSES,) * imported == found.unknown
