"""`whatif`, rule by rule: what counts as the same for the world, what stops a run, and what nobody knows."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.reducers.errors import DamagedLog
from refold.reducers.events import ClockRead, Event, Manifest, ModelRequested, RunForked
from refold.reducers.machine import AgentState
from refold.reducers.parser import parse
from refold.reducers.vocabulary import FailureClass, ToolError
from refold.replay import events, whatif
from refold.replay.whatif.comparison import Comparison, side_by_side
from refold.replay.whatif.totals import Prefixes, Totals, totals_of
from refold.replay.whatif.verdict import UNTIMED, Spend, Verdict, WhatIf
from refold.replay.whatif.view import Hypothesis, NoEvidence, hypothesis
from refold.store import MemoryStore
from refold.store.protocol import Origin
from support.following import looked_at, shown, unchained
from support.queried import holding
from support.scenario import SECOND, Scenario

Plain = dict[str, Any]
Story = Callable[[Scenario], object]


ASK: Plain = {"approvals": {"chain": [{"approver": "human"}]}}
ASK_OF_ACTS: Plain = {
    "approvals": {"chain": [{"approver": "human", "tools": ["act"]}, {"approver": "approve"}]}
}
ASK_FURTHER_DOWN: Plain = {
    "approvals": {"chain": [{"approver": "approve", "tools": ["nothing"]}, {"approver": "human"}]}
}
PREVIEWS: Plain = {"history": [{"do": "preview_results", "tokens": 1, "chars": 4, "lines": 2}]}
IN_TIME: Plain = {"approvals": {"chain": [{"approver": "human", "timeout": 5}]}}
STEPS: Plain = {"limits": [{"type": "step", "value": 9}]}
OVERFLOW = {"do": [{"do": "drop_oldest", "fraction": 0.5}], "patterns": ["broke"]}
ONCE = {"attempts": 3, "initial": 1, "jitter": {"add": 0}}


def asked(log: list[Event], other: Plain | None) -> WhatIf:
    """What another policy would have decided over a log; None: its own."""
    comparison = Comparison("r1", (lambda policy: policy) if other is None else parse(other))
    return shown(comparison, log)


def told(policy: Plain, story: Story, other: Plain) -> WhatIf:
    """A story under one policy, asked about under another."""
    scenario = Scenario(policy)
    story(scenario)
    return asked(scenario.log, other)


def steps(*outputs: str, after: float = 0) -> Story:
    """A step for each output, so many seconds each, then an answer."""

    def story(run: Scenario) -> None:
        for output in outputs:
            run.answer("", ("look", "{}"), after=after)
            run.result(f"c{run.state.spent.calls}", output)
        run.answer("done", after=after)

    return story


def failed_once(run: Scenario) -> None:
    run.fail()
    if run.state.backoff is not None:
        run.clock(2)
        run.answer("done")


def waited(seconds: float) -> Story:
    """A person is asked about a call, and says so after so many seconds."""

    def story(run: Scenario) -> None:
        run.answer("", ("act", "{}"))
        run.approve(after=seconds, c1="approve")

    return story


def turned_down(run: Scenario) -> None:
    """A person says no to a call, after seven seconds: the next request follows at once."""
    run.answer("", ("act", "{}"))
    run.approve(after=7, c1="reject")


def cut_off(run: Scenario) -> None:
    run.answer("", ("look", "{}"))
    run.result("c1", "it took too long", error=ToolError.TIMEOUT, after=5)


def in_order(run: Scenario) -> None:
    run.answer("", ("look", "{}"), ("look", "{}"))
    run.result("c1")
    run.result("c2")


def two_tools(run: Scenario) -> None:
    run.answer("", ("look", "{}"), ("act", "{}"))


def erased(run: Scenario) -> None:
    steps("ok", "ok")(run)
    run.log[:] = [replace(event, content=None) if hasattr(event, "content") else event for event in run.log]


def out_of_time(run: Scenario) -> None:
    """The recorded policy stops the run while a call is under way."""
    run.answer("", ("look", "{}"))
    run.clock(5)
    run.result("c1", "cut off", error=ToolError.CANCELLED)


def taken_for_an_overflow(run: Scenario) -> None:
    run.fail(FailureClass.TIMEOUT, message="it took too long", after=5)


def cancelled_and_down(run: Scenario) -> None:
    """A person cancels, the machine goes down before the call is settled, and whoever takes it up settles it."""
    run.answer("", ("look", "{}"))
    run.cancel(after=1)
    run.resume(downtime=5)
    run.result("c1", "cut off", error=ToolError.CANCELLED)


def summed_up(run: Scenario) -> None:
    for _ in range(3):
        run.step()
    run.summary("much")


def fell_back(run: Scenario) -> None:
    run.fail()
    run.clock(2)


def pressed(tools: Any) -> Plain:
    """A tier of pressure from the first step on, that offers these tools."""
    tier = {"name": "late", "at": {"fraction": 0.1}, "tools": tools}
    return {**STEPS, "pressure": {"tiers": [tier]}}


def shortened(text: str) -> Plain:
    """Results that are shown shorter, with these words where something was cut."""
    aged = {"do": "age_results", "keep_last": 0, "soft": {"over": 9, "head": 2, "tail": 2}}
    return {"history": [aged], "texts": {"aged": text}}


def fallback(model: str) -> Plain:
    """Another model is asked at the second attempt."""
    return {"retry": {**ONCE, "fallback": {"models": [model], "when": [{"attempt": 2}]}}}


def summing(keep: int) -> Plain:
    """All but the newest messages are summed up, after three steps."""
    return {"history": [{"do": "summarise", "when": {"messages": 7}, "keep_first": 1, "keep_last": keep}]}


def reminded(seconds: int) -> Plain:
    """The model is told of the time limit, in a message of which four characters are left."""
    return {
        "limits": [{"type": "time", "value": seconds}],
        "progress": {"every": 1, "show_limit": True, "before_history": True},
        "history": [{"do": "trim_messages", "cap": 1}],
    }


AGREES = [
    pytest.param(
        {}, steps("ok"), {"limits": [{"type": "step", "value": 7}]}, id="a limit that is not reached"
    ),
    pytest.param({}, steps("ok"), {"near": {"fraction": 0.5}}, id="a warning that nobody but people gets"),
    pytest.param({}, steps("ok"), {"estimator": "bytes4"}, id="another estimate that nothing depends on"),
    pytest.param(
        {}, steps("ok"), {"limits": [{"type": "step", "value": 50, "name": "all"}]}, id="another name"
    ),
    pytest.param(
        {}, steps("ok", after=2), {"limits": [{"type": "time", "value": 9}]}, id="a deadline after the end"
    ),
    pytest.param(STEPS, steps("ok"), {**STEPS, "tool_output": {"max": 2}}, id="a cap that cuts nothing"),
    pytest.param({}, steps("ok"), {"texts": {"continue": "On."}}, id="other words that were not said"),
    pytest.param(ASK, waited(4), IN_TIME, id="a deadline for a person who was in time"),
    pytest.param(
        {}, cut_off, {"limits": [{"type": "time", "value": 9}]}, id="a tool's own timeout, before ours"
    ),
    pytest.param(
        {"retry": ONCE}, failed_once, {"retry": {**ONCE, "attempts": 2}}, id="an attempt that was enough"
    ),
    pytest.param(
        reminded(300),
        steps("ok", after=1),
        reminded(200),
        id="other words of the harness, of which no more is shown than what is alike",
    ),
    pytest.param(
        {},
        cancelled_and_down,
        {"limits": [{"type": "time", "value": 4}]},
        id="a deadline while what was under way is brought to an end",
    ),
    pytest.param(
        {"guards": [{"guard": "tool_cap", "tools": ["look"], "max": 1}]},
        steps("ok"),
        {"guards": [{"guard": "tool_cap", "tools": ["look"], "max": 2}]},
        id="a guard that allows more than was done",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other"), AGREES)
def test_what_makes_no_difference(policy: Plain, story: Story, other: Plain) -> None:
    """Nothing that the world does not see parts two runs."""
    found = told(policy, story, other)
    assert (Verdict.AGREE, "", 0, "") == (found.verdict, found.kind, found.seq, found.why)
    assert found.events >= found.fact > 0
    assert (found.agent_state, found.code) == (found.recorded_state, found.recorded_code)


STOPS = [
    pytest.param({}, steps("ok", "ok"), {"limits": [{"type": "step", "value": 1}]}, "step_limit", id="steps"),
    pytest.param(
        {}, steps("ok", "ok"), {"limits": [{"type": "token", "value": 16}]}, "token_budget", id="tokens"
    ),
    pytest.param(
        {},
        steps("ok", "ok"),
        {"guards": [{"guard": "repetition", "repeats": 1}]},
        "repetition",
        id="a guard at the second call",
    ),
    pytest.param(
        {"retry": ONCE}, failed_once, {"retry": {"attempts": 1}}, "provider:overloaded", id="no retry"
    ),
    pytest.param({"end_of_turn": "wait"}, steps(), {}, "end_turn", id="an answer that ends the run"),
    pytest.param(
        {"limits": [{"type": "step", "value": 1}]},
        steps("ok"),
        {"limits": [{"type": "message", "value": 4}]},
        "message_limit",
        id="another limit where the recorded one stopped it",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other", "code"), STOPS)
def test_where_it_stops(policy: Plain, story: Story, other: Plain, code: str) -> None:
    """A policy that ends the run at a fact ends it there, and what was spent later is saved to the token."""

    def until_it_ends(run: Scenario) -> None:
        try:
            story(run)
        except AssertionError:  # the recorded policy has ended it, too
            assert run.state.ended

    found = told(policy, until_it_ends, other)
    assert (Verdict.STOPS, code, True, "end") == (found.verdict, found.code, found.exact, found.kind)
    assert 0 < found.fact <= found.seq <= found.events
    scenario = Scenario(policy)
    until_it_ends(scenario)
    spent = scenario.state.spent
    assert spent.usage.input == found.until.input + found.saved.input
    assert spent.steps == found.until.steps + found.saved.steps


def test_a_deadline_between_two_facts_stops_the_run_there() -> None:
    """A clock of the other policy rings before the fact; what was under way counts as spent, and that is said."""
    found = told({}, steps("ok", "ok", after=4), {"limits": [{"type": "time", "value": 6}]})
    assert (Verdict.STOPS, "TIMED_OUT", "time_limit") == (found.verdict, found.agent_state, found.code)
    assert not found.exact
    assert 6 * SECOND == found.until.duration
    # The second answer came at 8 seconds: it was asked for at 4, and would have been cut off.
    assert Spend(steps=1, input=10, output=5, duration=6 * SECOND) == found.saved


DIVERGES = [
    pytest.param(
        {}, steps("ok"), {"history": [{"do": "tail", "last": 1}]}, "view", 2, id="a message left out"
    ),
    pytest.param(
        {"history": [{"do": "tail", "last": 1}]},
        steps("ok"),
        {},
        "view",
        2,
        id="a message that had been left out",
    ),
    pytest.param({}, steps("ok"), {"nudge": True}, "texts", 1, id="a text in each request"),
    pytest.param(
        {"nudge": True},
        steps("ok"),
        {"nudge": True, "texts": {"nudge": "Go on."}},
        "texts",
        1,
        id="the same text in other words",
    ),
    pytest.param(
        {},
        steps("ok"),
        {"limits": [{"type": "step", "value": 1}], "grace": {"on": ["step"]}},
        "texts",
        2,
        id="one last request",
    ),
    pytest.param({}, in_order, {"batch": "in_order"}, "calls", 1, id="one call at a time"),
    pytest.param({}, steps("ok"), ASK, "calls", 1, id="a person is asked first"),
    pytest.param(ASK, waited(1), {}, "calls", 1, id="a person is not asked"),
    pytest.param(ASK, waited(7), IN_TIME, "clock", 1, id="a person who would have been too late"),
    pytest.param(
        {"retry": ONCE}, failed_once, {"retry": {**ONCE, "initial": 2}}, "wait", 1, id="a longer pause"
    ),
    pytest.param(
        {"end_of_turn": "continue"}, steps(), {"end_of_turn": "wait"}, "request", 2, id="a person's turn"
    ),
    pytest.param(
        {}, steps("ok"), {"end_of_turn": "continue"}, "end", 2, id="the record ends, the run goes on"
    ),
    pytest.param(
        {}, steps("12345"), {"tool_output": {"max": 4}}, "output", 2, id="an output that would be cut"
    ),
    pytest.param({"tool_output": {"max": 4}}, steps("12345"), {}, "output", 1, id="an output that was cut"),
    pytest.param({}, steps("zqx-1234"), {"redact": [r"zqx-\d+"]}, "redaction", 2, id="a secret to hide"),
    pytest.param(
        {"redact": [r"zqx-\d+"]}, steps("[REDACTED]"), {}, "redaction", 1, id="a secret that was hidden"
    ),
    pytest.param(
        {}, cut_off, {"texts": {"timeout": "Too slow."}}, "wording", 1, id="an error in other words"
    ),
    pytest.param({"overflow": OVERFLOW}, failed_once, {}, "overflow", 1, id="an overflow that only one sees"),
    pytest.param(
        {"limits": [{"type": "time", "value": 5}]},
        cut_off,
        {"limits": []},
        "cut_off",
        1,
        id="more time for a call",
    ),
    pytest.param(
        {"limits": [{"type": "time", "value": 5}], "overflow": {"patterns": ["took too long"]}},
        taken_for_an_overflow,
        {"limits": [], "overflow": {"patterns": ["took too long"]}},
        "cut_off",
        1,
        id="more time for a request whose timeout was taken for an overflow",
    ),
    pytest.param(
        {"limits": [{"type": "time", "value": 5}]},
        out_of_time,
        {},
        "end",
        1,
        id="the recorded one is brought to an end",
    ),
    pytest.param(ASK, two_tools, ASK_OF_ACTS, "question", 1, id="a question about fewer calls"),
    pytest.param(
        ASK, two_tools, ASK_FURTHER_DOWN, "question", 1, id="the same question, by another link of the chain"
    ),
    pytest.param({}, steps("a long result" * 20), PREVIEWS, "view", 2, id="a preview of a result"),
    pytest.param(fallback("a"), fell_back, fallback("b"), "model", 1, id="another model"),
    pytest.param(pressed("all"), steps("ok"), pressed("none"), "tools", 1, id="other tools"),
    pytest.param(
        shortened("gone"),
        steps("a long result"),
        shortened("missing"),
        "view",
        2,
        id="other words in a message",
    ),
    pytest.param(summing(1), summed_up, summing(3), "summary", 3, id="a summary of other messages"),
    pytest.param(
        {},
        cut_off,
        {"limits": [{"type": "time", "value": 4.5}], "call_timeout": {"whole_seconds": True}},
        "cut_off",
        1,
        id="a call's own bound before the deadline",
    ),
]


@pytest.mark.parametrize(("policy", "story", "other", "kind", "turn"), DIVERGES)
def test_where_evidence_ends(policy: Plain, story: Story, other: Plain, kind: str, turn: int) -> None:
    """What the world would be asked otherwise is the end of the evidence, by its kind and in its turn."""
    found = told(policy, story, other)
    assert (Verdict.DIVERGES, kind, turn) == (found.verdict, found.kind, found.turn)
    assert Spend() == found.saved
    assert found.why
    assert found.state


UNJUDGED = [
    pytest.param(
        {}, {"guards": [{"guard": "keywords", "words": ["DONE"]}]}, "keywords", id="a guard that reads"
    ),
    pytest.param({}, {"estimator": "bytes4"}, "erased", id="an estimate of words"),
    pytest.param({}, {"redact": ["x"]}, "erased", id="a pattern to look for"),
]


@pytest.mark.parametrize(("policy", "other", "why"), UNJUDGED)
def test_erased_words_that_are_needed(policy: Plain, other: Plain, why: str) -> None:
    """Where the other policy needs words that were erased, nothing is made up: it cannot be judged from there."""
    found = told(policy, erased, other)
    assert Verdict.UNJUDGED is found.verdict
    assert why in found.why
    assert (found.why,) == found.unknown


def test_erased_words_that_are_not_needed() -> None:
    """A limit that counts needs no words: what was erased does not stand in the way of a verdict."""
    assert Verdict.STOPS is told({}, erased, {"limits": [{"type": "step", "value": 1}]}).verdict


def test_a_guard_that_is_not_installed() -> None:
    """A guard that is not there may have said anything, from the first event on."""
    scenario = Scenario({"guards": [{"guard": "repetition"}]})
    steps("ok")(scenario)
    comparison = Comparison("r1", lambda policy: policy, registry={})
    found = shown(comparison, scenario.log)
    assert (Verdict.UNJUDGED, "guard repetition: not installed") == (found.verdict, found.why)


def test_a_deadline_while_nobody_may_have_been_there() -> None:
    """A deadline in a time for which nobody knows whether an engine had the run is not judged."""

    def story(run: Scenario) -> None:
        run.resume(downtime=20)
        run.answer("done", after=1)

    found = told({}, story, {"limits": [{"type": "time", "value": 10}]})
    assert (Verdict.UNJUDGED, "unknown") == (found.verdict, found.kind)


def test_a_record_without_times() -> None:
    """Where nothing has a time, nobody can say whether a limit of time would have been reached."""
    found = told({}, steps("ok"), {"limits": [{"type": "time", "value": 10}]})
    assert (Verdict.UNJUDGED, (UNTIMED,)) == (found.verdict, found.unknown)


def test_what_fired_is_told() -> None:
    """Guards and limits of the other policy are named with the fact at which they spoke, warnings too."""
    other = {
        "limits": [{"type": "step", "value": 2}, {"type": "token", "value": 40}],
        "near": {"reserve_tokens": 30},
    }
    found = told({}, steps("ok", "ok", "ok"), other)
    assert [("limit:token", "warn", "near_limit"), ("limit:step", "stop", "step_limit")] == [
        (each.who, each.said, each.code) for each in found.fired
    ]
    assert all(0 < each.fact <= found.fact for each in found.fired)


def test_the_decisions_that_part() -> None:
    """Both sides are shown: what was recorded, and what follows under the other policy."""
    found = told({}, steps("ok"), {"limits": [{"type": "step", "value": 1}]})
    assert found.recorded is not None
    assert found.derived is not None
    assert '"kind":"model_requested"' in found.recorded
    assert '"kind":"limit_reached"' in found.derived


def test_an_amendment_is_the_other_policys_too() -> None:
    """A policy stands in the place of whatever was in force; a change changes each of them."""
    scenario = Scenario({})
    scenario.answer("", ("look", "{}"))
    scenario.amend({"limits": [{"type": "step", "value": 1}]})
    scenario.result("c1")
    assert AgentState.MAX_STEPS is scenario.state.agent_state
    assert Verdict.DIVERGES is asked(scenario.log, {}).verdict
    assert Verdict.AGREE is asked(scenario.log, None).verdict
    assert Verdict.AGREE is asked(scenario.log, {"limits": [{"type": "step", "value": 1}]}).verdict


def test_a_fork_stands_where_it_stood() -> None:
    """A fork is followed though the other run's log is longer by then; no time passes between its parent and it."""
    scenario = Scenario({})
    scenario.step()
    scenario.now += 100
    fork = RunForked(
        at=scenario.at, run="r2", rules=1, parent="r1", parent_seq=scenario.state.seq, parent_hash="00",
        downtime=100 * SECOND,
    )  # fmt: skip
    scenario.feed(fork)
    scenario.answer("done", after=1)
    noted: Plain = {
        "limits": [{"type": "token", "value": 40}, {"type": "time", "value": 50}],
        "near": {"reserve_tokens": 30},
    }
    assert Verdict.AGREE is asked(scenario.log, noted).verdict


def test_a_run_that_is_stopped_ends_the_evidence_at_once() -> None:
    """Where only the recorded run is told to stop, the two part there, and not when it has settled."""
    scenario = Scenario({"limits": [{"type": "time", "value": 5}]})
    out_of_time(scenario)
    clock = next(seq for seq, event in enumerate(scenario.log, 1) if isinstance(event, ClockRead))
    found = asked(scenario.log, {})
    assert ("end", clock) == (found.kind, found.fact)


def test_a_run_of_its_own_under_other_limits() -> None:
    """A call that starts a run hands on what is left: other limits there end the evidence where it begins."""
    scenario = Scenario({}, tools=(Manifest(name="ask_bob", agent="bob"),))
    scenario.answer("", ("ask_bob", "{}"))
    budget = {"limits": [{"type": "token", "value": 900}]}
    assert "child" == asked(scenario.log, budget).kind
    assert Verdict.AGREE is asked(scenario.log, {"limits": [{"type": "step", "value": 9}]}).verdict


def test_a_log_with_a_hole_is_damaged() -> None:
    """An event that is missing is said to be, by the number of the one after it."""
    scenario = Scenario({})
    comparison = Comparison("r1", parse({}))
    first, second = unchained(scenario.log[:2])
    with pytest.raises(DamagedLog, match="event 3"):
        looked_at(comparison, [first, replace(second, seq=3)])


def test_a_failure_of_another_class_by_the_other_policys_patterns() -> None:
    """What only the other policy takes for an overflow is one there."""
    found = told({"retry": ONCE}, failed_once, {"retry": ONCE, "overflow": {**OVERFLOW, "do": None}})
    assert ("context_overflow", FailureClass.CONTEXT_OVERFLOW) == (found.code, "context_overflow")


_FOUND = st.builds(
    WhatIf,
    run=st.just("r"),
    verdict=st.sampled_from(Verdict),
    events=st.just(9),
    fact=st.just(3),
    turn=st.integers(0, 3),
    kind=st.sampled_from(["view", "calls"]),
    agent_state=st.sampled_from(["COMPLETED", "MAX_STEPS"]),
    code=st.sampled_from(["end_turn", "step_limit"]),
    recorded_state=st.just("COMPLETED"),
    until=st.just(Spend()),
    saved=st.builds(Spend, steps=st.integers(0, 3), input=st.integers(0, 9)),
    exact=st.booleans(),
    fired=st.just(()),
    unknown=st.sampled_from([(), ("x",)]),
)


@given(found=st.lists(_FOUND, max_size=8), cut=st.integers(0, 8), seed=st.randoms())
def test_totals_merge_in_any_order(found: list[WhatIf], cut: int, seed: Any) -> None:
    """The totals of many runs are the same however they are cut into pieces, and whatever comes first."""
    whole = sum(map(totals_of, found), Totals())
    pieces = sum(map(totals_of, found[:cut]), Totals()) + sum(map(totals_of, found[cut:]), Totals())
    shuffled = [*found]
    seed.shuffle(shuffled)
    assert whole == pieces == sum(map(totals_of, shuffled), Totals())
    assert len(found) == whole.runs == sum(whole.verdicts.values())


def test_only_what_was_cut_short_saves() -> None:
    """A run that would have been done sooner saves nothing, and one that diverges says nothing of money."""
    short = WhatIf(
        run="r", verdict=Verdict.STOPS, events=9, fact=3, agent_state="MAX_STEPS", code="step_limit",
        recorded_state="COMPLETED", until=Spend(), saved=Spend(input=5),
    )  # fmt: skip
    totals = sum(
        map(
            totals_of,
            [
                short,
                replace(short, agent_state="COMPLETED", code="end_turn"),
                replace(short, verdict=Verdict.DIVERGES),
                replace(short, exact=False),
            ],
        ),
        Totals(),
    )
    assert Spend(input=5) == totals.saved == totals.at_least
    assert ({"step_limit": 2}, 1, 1) == (totals.earlier, totals.done, totals.inexact)


def test_answers_without_a_price_are_counted() -> None:
    """What was spent says how many answers have no known price: their cost is in no sum."""
    scenario = Scenario({})
    for cost in (7, None, None):
        scenario.answer("", ("look", "{}"), cost=cost)
        scenario.result(f"c{scenario.state.spent.calls}")
    scenario.answer("done", cost=None)
    found = asked(scenario.log, {"limits": [{"type": "step", "value": 2}]})
    assert [(7, 1), (0, 2)] == [(each.cost_nanousd, each.unpriced) for each in (found.until, found.saved)]
    assert 4 == (totals_of(found) + totals_of(found)).saved.unpriced


SHARED = [
    pytest.param(["p", "f"], [0, 5], id="a run, then its fork"),
    pytest.param(["f", "p"], [0, 5], id="a fork, then what it is of"),
    pytest.param(["g", "f"], [0, 7], id="a fork of a fork, then the one between"),
    pytest.param(["p", "g"], [0, 5], id="a run, then the fork of its fork"),
    pytest.param(["f", "h"], [0, 3], id="two forks of a run that is not asked about"),
    pytest.param(["p", "f", "h", "g"], [0, 5, 3, 7], id="all of them"),
    pytest.param(["p", "p"], [0, 9], id="a run twice"),
]


@pytest.mark.parametrize(("order", "shared"), SHARED)
def test_what_a_fork_shares_is_counted_once(order: list[str], shared: list[int]) -> None:
    """Whatever comes first, each event counts with one run: a fork knows up to where another has counted."""
    p, f, h = (Origin(run=run, seq=seq, hash=b"") for run, seq in (("p", 5), ("f", 7), ("p", 3)))
    behind = {"p": [], "f": [p], "g": [p, f], "h": [h]}
    prefixes, found = Prefixes(), list[int]()
    for run in order:
        found.append(prefixes.shared(run, behind[run]))
        prefixes.count(run, behind[run], 9)
    assert shared == found


def test_a_stop_before_the_fork_is_counted_once() -> None:
    """Of a fork that would have stopped in what it shares only its own spending is saved, and nothing else counts."""
    scenario = Scenario({})
    scenario.step()
    scenario.step()
    at = scenario.state.seq
    parent = scenario.log[:]
    fork = RunForked(
        at=scenario.at, run="r2", rules=1, parent="r1", parent_seq=at, parent_hash="00", downtime=0
    )  # fmt: skip
    scenario.feed(fork)
    scenario.step()
    scenario.answer("done")

    def of(log: list[Event], shared: int, limit: int) -> WhatIf:
        policy = parse({"limits": [{"type": "step", "value": limit, "scope": "lineage"}]})
        comparison = Comparison("r", policy, shared=shared)
        return shown(comparison, log)

    early = of(scenario.log, at, 1)
    assert (4, 1) == (early.until.steps + early.saved.steps, early.until.steps)
    totals = totals_of(of(parent, 0, 1)) + totals_of(early)
    assert ({"stops": 2}, {"step_limit": 1}, {"limit:step": 1}, 1) == (
        totals.verdicts,
        totals.earlier,
        totals.in_runs,
        totals.before,
    )
    # All that the two spent after the first step, once: the request at which it was forked is the parent's.
    assert (early.saved.steps, early.saved.input) == (totals.saved.steps, totals.saved.input)
    late = totals_of(of(scenario.log, at, 3))
    assert ({"step_limit": 1}, 1, 0) == (late.earlier, late.saved.steps, late.before)


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at a file."""
    return f"{path} is long " * 40


async def recorded() -> MemoryStore:
    """A run of four requests in a store."""
    store = MemoryStore()
    script = [*(call("look", path=path) for path in "abc"), say("Done.")]
    await Agent(model=ScriptedModel(script), tools=[look], store=store).start("Look.", run_id="r1").result()
    return store


@pytest.mark.anyio
async def test_several_policies_side_by_side() -> None:
    """The log is read once, and each policy has its verdict as if it were asked alone."""
    store = await recorded()
    policies = [parse({}), parse({"limits": [{"type": "step", "value": 2}]}), parse({"nudge": True})]
    found = await side_by_side(store, "r1", policies)
    assert [Verdict.AGREE, Verdict.STOPS, Verdict.DIVERGES] == [each.verdict for each in found]
    assert found == tuple([await whatif(store, "r1", policy) for policy in policies])


@pytest.mark.anyio
async def test_what_the_model_would_have_seen() -> None:
    """The first other view is told message by message: kept, left out and by whom, shown shorter, added."""
    store = await recorded()
    requests = [stored.seq async for stored, _ in events(store, "r1") if stored.kind == "model_requested"]
    policy = parse({"history": [{"do": "tail", "last": 2}], "nudge": True})
    with pytest.raises(NoEvidence, match=f"ends at event {requests[0]}"):
        await hypothesis(store, "r1", requests[1], policy)
    found = await hypothesis(store, "r1", requests[2], parse({"history": [{"do": "tail", "last": 2}]}))
    said = [(row.number, row.where, row.why) for row in found.rows]
    assert [
        (1, "both", ""),
        (2, "recorded", "left out by tail (window)"),
        (3, "recorded", "left out by tail (window)"),
        (4, "both", ""),
        (5, "both", ""),
    ] == said
    assert found.asked
    assert found.tokens[1] < found.tokens[0]
    trims = parse({"history": [{"do": "trim_messages", "cap": 20, "roles": ["tool"]}]})
    trimmed = await hypothesis(store, "r1", requests[1], trims)
    assert ["both", "both", "changed"] == [row.where for row in trimmed.rows]
    assert "shortened by trim_messages" == trimmed.rows[2].why
    assert trimmed.rows[2].message is not None
    assert len(trimmed.rows[2].message.text) < 200
    nudged = await hypothesis(store, "r1", requests[0], parse({"nudge": True}))
    assert [("both", ""), ("derived", "in this request only")] == [
        (row.where, row.why) for row in nudged.rows
    ]
    stopped = await hypothesis(store, "r1", requests[2], parse({"limits": [{"type": "step", "value": 2}]}))
    assert not stopped.asked


async def viewed(scenario: Scenario, step: int, other: Plain) -> Hypothesis:
    """The request of a step of a story, as another policy would have made it."""
    made = [seq for seq, event in enumerate(scenario.log, 1) if isinstance(event, ModelRequested)]
    return await hypothesis(await holding(r1=scenario.log), "r1", made[step - 1], parse(other))


@pytest.mark.anyio
async def test_equal_words_of_the_harness_are_told_apart() -> None:
    """A nudge that is said again is another message: each stands in its place, and what is left out is the first."""
    going: Plain = {"end_of_turn": "continue"}
    scenario = Scenario(going)
    for word in ("a", "b", "c"):
        scenario.answer(word)
    alike = await viewed(scenario, 4, {**going, **STEPS})
    assert [(number, "both") for number in range(1, 9)] == [(row.number, row.where) for row in alike.rows]
    tail = {**going, "history": [{"do": "tail", "when": {"messages": 7}, "last": 3}]}
    rows = [(row.number, row.where) for row in (await viewed(scenario, 4, tail)).rows]
    kept = [(number, "recorded" if number in (3, 4, 5) else "both") for number in range(1, 9)]
    assert kept == rows


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("policy", "story", "other", "step", "advice"),
    [
        pytest.param(
            STEPS, steps("x" * 500), {"tool_output": {"max": 100}}, 2, "Look at r1@t1", id="an output cut"
        ),
        pytest.param(ASK, turned_down, IN_TIME, 2, "Look at r1@t1", id="a deadline for a person"),
        pytest.param({}, erased, {"estimator": "bytes4"}, 1, "nobody knows$", id="words that were erased"),
    ],
)
async def test_no_view_after_a_fact_that_would_have_been_another(
    policy: Plain, story: Story, other: Plain, step: int, advice: str
) -> None:
    """Where the fact itself would have been another, nothing is shown of the request that followed from it."""
    scenario = Scenario(policy)
    story(scenario)
    with pytest.raises(NoEvidence, match=advice):
        await viewed(scenario, step, other)
