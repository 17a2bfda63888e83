"""Calls in doubt: who is asked how they ended, what follows from what is said, and what never does."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from refold.reducers import codec, composition
from refold.reducers.checkpoint import encoded, state_digest
from refold.reducers.doubts import underway, unseen
from refold.reducers.effects import Reconcile, RunTool, Settle, doubtful, next_effects
from refold.reducers.errors import UnexpectedEvent, WrongUse
from refold.reducers.events import DoubtResolved, Manifest, StateChanged, StateDigested
from refold.reducers.folds import fold
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, Replay, ToolError
from support.once import Once
from support.scenario import SECOND, TOOLS, Scenario
from support.strategies import scaled

HAPPENED, DID_NOT, UNKNOWN = Doubt.HAPPENED, Doubt.DID_NOT, Doubt.UNKNOWN
ALL = (*TOOLS, Manifest(name="book", replay=Replay.RECONCILABLE))
ASK: Any = {"doubt": "ask"}
ASKS = "state_changed from=WAITING_FOR_TOOL to=WAITING_FOR_INPUT trigger=ask code=in_doubt"
ANSWERED = "state_changed from=WAITING_FOR_INPUT to=WAITING_FOR_TOOL trigger=answered code=answered"
BACK = "state_changed from=WAITING_FOR_TOOL to=RUNNING trigger=tools_done code=tools_done"


def begun(*tools: str, **policy: Any) -> Scenario:
    """A run whose first answer called these tools, c1 and so on, and which has begun them."""
    run = Scenario(policy, tools=ALL)
    run.answer("", *[(tool, "{}") for tool in tools])
    return run


def crashed(*tools: str, **policy: Any) -> Scenario:
    """The same, taken up again by another engine, which finds in doubt what is."""
    run = begun(*tools, **policy)
    run.resume(*doubtful(run.state))
    return run


def pending(run: Scenario) -> dict[str, str]:
    """What is to happen to each call: `run`, `reconcile` or `settle`."""
    words = {RunTool: "run", Reconcile: "reconcile", Settle: "settle"}
    return {
        str(getattr(effect, "call", "")): words[type(effect)]
        for effect in next_effects(run.state)
        if isinstance(effect, RunTool | Reconcile | Settle)
    }


def says(run: Scenario, call: str, doubt: Doubt, *, after: float = 0) -> list[str]:
    """The call's own tool says what became of it."""
    run.now += after
    fact = DoubtResolved(at=run.at, call=call, doubt=doubt, by="tool:book", reconciled=True)
    return run.feed(fact)


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
    """The question comes when nothing else of the batch is under way, and is then the only thing that is waited for."""
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
    """What follows from each word, whether the person was asked or said so by themselves; and if the run then stops."""
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
    """After `happened` the effect is an equal value: an engine's handle stays, and after a crash the tool is asked again."""
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
    """It is the same effect, under the same idempotency key; the time that a person took is not taken from it."""
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
    with pytest.raises(UnexpectedEvent, match="call c1 is known to have happened"):
        run.feed(DoubtResolved(at=run.at, call="c1", doubt=later, by="ann"))


def test_while_a_person_is_asked_no_call_is_found_in_doubt() -> None:
    """What is to run once all is known has not begun: an engine that comes and goes meanwhile changes nothing."""
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
    """Its deadline settles the call, which is in doubt for good, and the run times out; a word that is late runs nothing."""
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
    """What a crash leaves of a run that was to stop is settled, whatever the policy says of calls in doubt."""
    run = begun("act", **ASK)
    run.cancel()
    assert [] == run.resume(*doubtful(run.state))
    assert {"c1": "settle"} == pending(run)


def test_a_message_is_no_answer() -> None:
    """A run that asks how calls ended takes no message, and no word about approvals."""
    run = crashed("act", **ASK)
    with pytest.raises(UnexpectedEvent, match="how calls ended"):
        run.say("hello")
    with pytest.raises(UnexpectedEvent, match="how calls ended"):
        run.approve(c1="approve")


def test_a_result_that_comes_after_all() -> None:
    """What an awaited call returned ends its doubt, and the question, if it was the last."""
    run = crashed("act", **ASK)
    assert [ANSWERED, BACK] == run.result("c1", "done")[:2]
    assert "RUNNING" == run.state.agent_state


@pytest.mark.parametrize("how", ["amend", "fork"])
def test_another_policy_releases_a_run_that_asks(how: str) -> None:
    """Amended, or forked under a policy that tells the model, the run goes on and tells it; the reverse asks."""
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


CLASSES = {"look": "run", "set": "run", "act": "at most once", "book": "reconcilable"}


class DoubtRun(RuleBasedStateMachine):
    """Engines that die, tools and people that say what they know, in any order: a few lines of plain Python foretell it.

    `open` has for each call under way what is to come of it: `run`, `tool`, `person` or `tell`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, str] = {}
        self.later: list[str] = []  # with `in_order`: calls that wait for the one before
        self.names: dict[str, str] = {}
        self.asked = False
        self.calls = Once()
        self.folded = RunState()

    @initialize(
        doubt=st.sampled_from(["ask", "ask", "tell"]), batch=st.sampled_from(["parallel", "in_order"])
    )
    def begins(self, doubt: str, batch: str) -> None:
        self.doubt = doubt
        self.in_order = batch == "in_order"
        policy: dict[str, Any] = {"doubt": doubt, "batch": batch, "limits": [], "tool_output": {"max": 400}}
        self.run = Scenario(policy, tools=ALL)

    @precondition(lambda self: self.run.state.request is not None)
    @rule(tools=st.lists(st.sampled_from(sorted(CLASSES)), min_size=1, max_size=4))
    def the_model_calls(self, tools: list[str]) -> None:
        first = self.run.state.spent.calls + 1
        self.run.answer("", *[(tool, "{}") for tool in tools])
        made = {f"c{first + place}": tool for place, tool in enumerate(tools)}
        self.names |= made
        now = list(made)[: 1 if self.in_order else None]
        self.open, self.later = dict.fromkeys(now, "run"), list(made)[len(now) :]

    @precondition(lambda self: bool(self.open))
    @rule(down=st.sampled_from([0, 1, 1000]))
    def the_engine_dies(self, down: int) -> None:
        self.run.state = fold(self.run.log)
        found = [] if self.asked else [call for call, way in self.open.items() if way == "run"]
        doubted = [call for call in found if CLASSES[self.names[call]] != "run"]
        self.run.resume(*doubtful(self.run.state), downtime=down)
        for call in doubted:
            self.open[call] = "tool" if self.names[call] == "book" else self._unknown()
        self._settle()

    @precondition(lambda self: not self.asked and not {"run", "tell"}.isdisjoint(self.open.values()))
    @rule(data=st.data(), after=st.sampled_from([0, 1]))
    def a_call_ends(self, data: Any, after: int) -> None:
        call = data.draw(st.sampled_from([c for c, way in self.open.items() if way in ("run", "tell")]))
        self.run.result(call, after=after)
        self._ended(call)

    @precondition(lambda self: not self.asked and "tool" in self.open.values())
    @rule(data=st.data(), crashes=st.booleans())
    def a_tool_says(self, data: Any, crashes: bool) -> None:
        call = data.draw(st.sampled_from([c for c, way in self.open.items() if way == "tool"]))
        doubt = data.draw(st.sampled_from(self._may_say(call)))
        says(self.run, call, doubt)
        if doubt is DID_NOT:
            self.open[call] = "run"
        elif doubt is UNKNOWN:
            self.open[call] = self._unknown()
        elif not crashes:
            self.run.result(call)
            self._ended(call)
        self._settle()

    @precondition(lambda self: not {"tool", "tell", "person"}.isdisjoint(self.open.values()))
    @rule(data=st.data(), after=st.sampled_from([0, 1000]))
    def a_person_says(self, data: Any, after: int) -> None:
        call = data.draw(st.sampled_from([c for c, way in self.open.items() if way != "run"]))
        doubt = data.draw(st.sampled_from(self._may_say(call)))
        self.run.resolve(call, doubt, after=after)
        self.open[call] = "run" if doubt is DID_NOT else "tell"
        self._settle()

    @precondition(lambda self: bool(self.open))
    @rule()
    def time_passes(self) -> None:
        self.run.clock(1)

    def _may_say(self, call: str) -> list[Doubt]:
        (found,) = (each for each in underway(self.run.state) if each.id == call)
        return [HAPPENED] if found.doubt is HAPPENED else list(Doubt)

    def _unknown(self) -> str:
        return "person" if self.doubt == "ask" else "tell"

    def _ended(self, call: str) -> None:
        del self.open[call]
        if not self.open and self.later:
            self.open[self.later.pop(0)] = "run"
        self._settle()

    def _settle(self) -> None:
        ways = {*self.open.values()}
        self.asked = "person" in ways and (self.asked or ways == {"person"})

    @invariant()
    def it_is_as_foretold(self) -> None:
        if not hasattr(self, "run"):
            return
        ways = {"run": "run", "tool": "reconcile", "tell": "settle"}
        expected = (
            {} if self.asked else {call: ways[way] for call, way in self.open.items() if way != "person"}
        )
        assert expected == pending(self.run)
        state = "WAITING_FOR_INPUT" if self.asked else "WAITING_FOR_TOOL" if self.open else "RUNNING"
        assert state == self.run.state.agent_state
        for event in self.run.log[self.folded.seq :]:
            before, self.folded = self.folded, fold([event], self.folded)
            self.calls.take(event, before, self.folded)
        assert encoded(self.folded) == encoded(self.run.state)

    def teardown(self) -> None:
        """However it stands, it can be stopped: every call is settled once, and the run ends."""
        if not hasattr(self, "run"):
            return
        self.run.cancel()
        while settles := [call for call, way in pending(self.run).items() if way == "settle"]:
            if self.run.state.request is not None:
                self.run.fail()
                continue
            self.run.result(settles[0], error=ToolError.IN_DOUBT)
        assert "CANCELLED" == self.run.state.agent_state
        moves = [event for event in self.run.log if isinstance(event, StateChanged)]
        assert [move.target for move in moves[:-1]] == [move.source for move in moves[1:]]


TestDoubtRun = DoubtRun.TestCase
TestDoubtRun.settings = settings(max_examples=scaled(60), stateful_step_count=20, deadline=None)
