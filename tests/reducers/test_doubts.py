"""Calls in doubt: who is asked how they ended, what follows from what is said, and what never does."""

from typing import Any

import pytest
from msgspec.structs import replace

from refold.reducers import codec, composition
from refold.reducers.effects import RunTool, doubtful, next_effects
from refold.reducers.errors import UnexpectedEvent, WrongUse
from refold.reducers.events import DoubtResolved, StateDigested
from refold.reducers.evolution import state_digest
from refold.reducers.pending import unseen
from refold.reducers.vocabulary import Doubt, ToolError
from support.doubts import DID_NOT, HAPPENED, UNKNOWN, begun, crashed, pending, says
from support.scenario import SECOND, Scenario

ASK: Any = {"doubt": "ask"}
ASKS = "state_changed from=WAITING_FOR_TOOL to=WAITING_FOR_INPUT trigger=ask code=in_doubt"
ANSWERED = "state_changed from=WAITING_FOR_INPUT to=WAITING_FOR_TOOL trigger=answered code=answered"
BACK = "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done"


@pytest.mark.parametrize(
    ("tools", "doubt", "ways"),
    [
        pytest.param(["look"], "ask", {"c1": "run"}, id="read only: run again"),
        pytest.param(["set"], "ask", {"c1": "run"}, id="idempotent: run again"),
        pytest.param(["missing"], "ask", {"c1": "run"}, id="no such tool: there is nothing to repeat"),
        pytest.param(["act"], "tell", {"c1": "settle"}, id="at most once: the model is told"),
        pytest.param(["act"], "ask", {}, id="at most once: a person is asked"),
        pytest.param(["book"], "tell", {"c1": "reconcile"}, id="reconcilable: its tool is asked"),
        pytest.param(["book"], "ask", {"c1": "reconcile"}, id="reconcilable: and before a person is"),
        pytest.param(
            ["act", "look", "book"],
            "ask",
            {"c2": "run", "c3": "reconcile"},
            id="each by its own class; for a person there is time",
        ),
    ],
)
def test_whom_the_replay_class_asks(tools: list[str], doubt: str, ways: dict[str, str]) -> None:
    """A row a rule: what becomes of a call that a crash left behind."""
    assert ways == pending(crashed(*tools, doubt=doubt))


def test_a_person_is_asked_once_all_else_is_back() -> None:
    """The question comes when nothing else of the batch is under way, and is then the only thing that is
    waited for.
    """
    run = crashed("act", "look", "set", "act", **ASK)
    assert [] == run.last
    assert [] == run.result("c3")
    assert [ASKS] == run.result("c2")
    assert () == next_effects(run.state)
    assert [] == run.resolve("c4", UNKNOWN)
    assert {} == pending(run)
    assert [ANSWERED] == run.resolve("c1", HAPPENED)
    assert {"c1": "settle", "c4": "settle"} == pending(run)
    run.result("c1", error=ToolError.IN_DOUBT)
    assert [BACK, "model_requested"] == [
        *run.result("c4", error=ToolError.IN_DOUBT)[:1],
        run.kinds()[-1],
    ]


def test_in_order_only_what_was_begun_is_asked_about() -> None:
    """The calls behind one in doubt are not begun before it is known how that one ended."""
    run = crashed("act", "act", batch="in_order", **ASK)
    assert [ASKS] == run.last
    run.resolve("c1", UNKNOWN)
    assert ["tools_dispatched calls=[c2]"] == run.result("c1", error=ToolError.IN_DOUBT)
    assert {"c2": "run"} == pending(run)


@pytest.mark.parametrize(
    ("doubt", "way", "error", "text"),
    [
        pytest.param(HAPPENED, "settle", ToolError.IN_DOUBT, "in_doubt:happened", id="it happened: told so"),
        pytest.param(UNKNOWN, "settle", ToolError.IN_DOUBT, "in_doubt", id="nobody knows: told so"),
        pytest.param(DID_NOT, "run", ToolError.CANCELLED, "cancelled", id="it did not: run"),
    ],
)
@pytest.mark.parametrize("policy", ["tell", "ask"])
def test_what_a_person_says_is_final(
    doubt: Doubt, way: str, error: ToolError, text: str, policy: str
) -> None:
    """What follows from each word, whether the person was asked or said so by themselves; and if the run then
    stops.
    """
    run = crashed("act", doubt=policy)
    run.resolve("c1", doubt)
    assert {"c1": way} == pending(run)
    run.cancel()
    assert {"c1": "settle"} == pending(run)
    assert (error, text) == unseen(run.state, "c1")


@pytest.mark.parametrize(
    ("doubt", "tell", "ask"),
    [
        pytest.param(HAPPENED, "reconcile", "reconcile", id="it happened: its output is waited for"),
        pytest.param(DID_NOT, "run", "run", id="it did not: run"),
        pytest.param(UNKNOWN, "settle", None, id="the tool cannot tell: as the policy says"),
    ],
)
def test_what_a_tool_says(doubt: Doubt, tell: str, ask: str | None) -> None:
    """What follows from each word of a reconciler."""
    for policy, way in (("tell", tell), ("ask", ask)):
        run = crashed("book", doubt=policy)
        assert ([] if way else [ASKS]) == says(run, "c1", doubt)
        assert ({"c1": way} if way else {}) == pending(run)


def test_the_question_to_a_tool_stays_the_same_until_the_result_is_there() -> None:
    """After `happened` the effect is an equal value: an engine's handle stays, and after a crash the tool is
    asked again.
    """
    run = crashed("book")
    before = next_effects(run.state)
    says(run, "c1", HAPPENED)
    assert before == next_effects(run.state)
    run.resume(*doubtful(run.state))
    assert before == next_effects(run.state)
    says(run, "c1", HAPPENED)
    assert [BACK] == run.result("c1", "booked")[:1]


def test_a_person_knows_better_than_a_tool() -> None:
    """What a person says of a reconcilable call holds where its tool did not know."""
    run = crashed("book", doubt="ask")
    says(run, "c1", UNKNOWN)
    run.resolve("c1", DID_NOT)
    assert {"c1": "run"} == pending(run)


def test_a_call_that_did_not_happen_runs_as_before() -> None:
    """It is the same effect, under the same idempotency key; the time that a person took is not taken from
    it.
    """
    run = begun("act", doubt="ask", limits=[{"type": "time", "value": 100}])
    (first, *_) = next_effects(run.state)
    run.resume(*doubtful(run.state), downtime=10)
    run.resolve("c1", DID_NOT, after=1000)
    (again, *_) = next_effects(run.state)
    assert isinstance(first, RunTool)
    assert isinstance(again, RunTool)
    assert first.until is not None
    assert replace(first, until=first.until + 1010 * SECOND) == again


def test_a_call_that_did_not_happen_can_be_in_doubt_again() -> None:
    """A second crash puts it in doubt again, and nothing is left of what was known of the first attempt."""
    run = crashed("act", **ASK)
    run.resolve("c1", DID_NOT)
    assert ("c1",) == doubtful(run.state)
    assert [ASKS] == run.resume("c1")
    assert {} == pending(run)
    assert (ToolError.IN_DOUBT, "in_doubt") == unseen(run.state, "c1")


@pytest.mark.parametrize("later", [DID_NOT, UNKNOWN])
def test_that_a_call_happened_is_final(later: Doubt) -> None:
    """What is known to have happened cannot be said not to have: it would run a second time."""
    run = crashed("act", "act", **ASK)
    run.resolve("c1", HAPPENED)
    with pytest.raises(WrongUse, match=r"call 'c1' is not in doubt \(calls in doubt: c2\)"):
        composition.resolved(run.state, DoubtResolved(at=run.at, call="c1", doubt=later, by="ann"), "")
    with pytest.raises(UnexpectedEvent, match="call c1 is known to have run"):
        run.feed(DoubtResolved(at=run.at, call="c1", doubt=later, by="ann"))


def test_while_a_person_is_asked_no_call_is_found_in_doubt() -> None:
    """What is to run once all is known has not begun: an engine that comes and goes meanwhile changes
    nothing.
    """
    run = crashed("act", "act", **ASK)
    run.resolve("c1", DID_NOT)
    assert () == doubtful(run.state)
    assert [] == run.resume(downtime=5)
    assert [ANSWERED] == run.resolve("c2", DID_NOT)
    assert {"c1": "run", "c2": "run"} == pending(run)


def test_they_may_change_their_mind_until_the_model_is_told() -> None:
    """As long as a call has no result and does not run, a later word counts in place of an earlier."""
    run = crashed("act", "act", **ASK)
    run.resolve("c1", UNKNOWN)
    run.resolve("c1", HAPPENED)
    run.resolve("c2", UNKNOWN)
    assert (ToolError.IN_DOUBT, "in_doubt:happened") == unseen(run.state, "c1")


def test_waiting_is_a_persons_time() -> None:
    """The time for which a person is asked is counted as theirs, and a limit that credits it stands still."""
    run = crashed("act", doubt="ask", limits=[{"type": "time", "value": 60}])
    assert [] == run.clock(500)
    assert [ANSWERED] == run.resolve("c1", UNKNOWN, after=500)
    assert 1000 * SECOND == run.state.spent.person_wait
    assert not run.state.ended


@pytest.mark.parametrize("how", ["clock", "word"])
def test_a_limit_that_does_not_credit_a_person_ends_the_run(how: str) -> None:
    """Its deadline settles the call, which is in doubt for good, and the run times out; a word that is late
    runs nothing.
    """
    limit = {"type": "time", "value": 60, "credit": {"person": False}}
    run = crashed("act", doubt="ask", limits=[limit])
    lines = run.clock(61) if how == "clock" else run.resolve("c1", DID_NOT, after=61)
    assert "limit_reached" == lines[-1].split()[0]
    assert {"c1": "settle"} == pending(run)
    run.result("c1", error=ToolError.IN_DOUBT)
    assert "TIMED_OUT" == run.state.agent_state


@pytest.mark.parametrize("asked", [True, False], ids=["while a person is asked", "before"])
def test_cancelling(asked: bool) -> None:
    """A run that is cancelled while in doubt settles the call as in doubt, and is CANCELLED."""
    run = crashed("act", doubt="ask" if asked else "tell")
    assert [] == run.cancel()
    assert {"c1": "settle"} == pending(run)
    (moved,) = run.result("c1", error=ToolError.IN_DOUBT)[-1:]
    assert "to=CANCELLED trigger=cancel code=cancelled" in moved


def test_a_word_after_a_cancellation_runs_nothing() -> None:
    """Though it did not happen, a run that stops does not begin the call again."""
    run = crashed("act", **ASK)
    run.cancel()
    run.resolve("c1", DID_NOT)
    assert {"c1": "settle"} == pending(run)


def test_a_run_that_stops_asks_nobody() -> None:
    """What a crash leaves of a run that was to stop is settled, whatever the policy says of calls in
    doubt.
    """
    run = begun("act", **ASK)
    run.cancel()
    assert [] == run.resume(*doubtful(run.state))
    assert {"c1": "settle"} == pending(run)


def test_a_message_is_no_answer() -> None:
    """A run that asks how calls ended takes no message, and no word about approvals."""
    run = crashed("act", **ASK)
    with pytest.raises(UnexpectedEvent, match="the outcome of calls"):
        run.say("hello")
    with pytest.raises(UnexpectedEvent, match="the outcome of calls"):
        run.approve(c1="approve")


def test_a_result_that_comes_after_all() -> None:
    """What an awaited call returned ends its doubt, and the question, if it was the last."""
    run = crashed("act", **ASK)
    assert [ANSWERED, BACK] == run.result("c1", "done")[:2]
    assert "RUNNING" == run.state.agent_state


@pytest.mark.parametrize("how", ["amend", "fork"])
def test_another_policy_releases_a_run_that_asks(how: str) -> None:
    """Amended, or forked under a policy that tells the model, the run goes on and tells it; the reverse
    asks.
    """
    run = crashed("act", **ASK)
    assert [ANSWERED] == getattr(run, how)({})
    assert {"c1": "settle"} == pending(run)
    assert [ASKS] == getattr(run, how)(ASK)


def test_a_digest_holds_what_was_found_out() -> None:
    """Two states that differ only in what is known of a call differ in their digests."""

    def digest(*known: Doubt) -> StateDigested:
        run = crashed("act", "act", **ASK)
        for doubt in known:
            run.resolve("c1", doubt)
        return state_digest(replace(run.state, seq=1))

    assert 3 == len({digest(*known).state for known in ((), (HAPPENED,), (UNKNOWN,))})


def test_the_fact_of_what_was_said() -> None:
    """Who said it is one clean line in the body, the note is cleaned and stands in the content."""
    run = crashed("act")
    fact = DoubtResolved(at=run.at, call="c1", doubt=HAPPENED, by="ann\n\x1b[1m")
    made = composition.resolved(run.state, fact, "seen \ud800 in the ledger")
    assert made.content is not None
    assert ("\n" not in made.by, "seen \ufffd in the ledger") == (True, made.content.note)
    assert b"ledger" not in codec.encode(made).body


@pytest.mark.parametrize(
    ("run", "call", "named"),
    [
        pytest.param(crashed("act", "book"), "c7", "calls in doubt: c1, c2", id="no such call"),
        pytest.param(crashed("look", "act"), "c1", "calls in doubt: c2", id="one that runs again"),
        pytest.param(begun("act"), "c1", "calls in doubt: none", id="one that runs"),
    ],
)
def test_only_a_doubt_is_resolved(run: Scenario, call: str, named: str) -> None:
    """To resolve what is not in doubt is wrong use, and the error names what is."""
    with pytest.raises(WrongUse, match=rf"'{call}' is not in doubt \({named}"):
        composition.resolved(run.state, DoubtResolved(at=run.at, call=call, doubt=HAPPENED, by="ann"), "")
