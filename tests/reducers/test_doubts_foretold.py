"""Calls in doubt in any order of crashes and answers, against what a few lines of plain Python foretell."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from refold.reducers.effects import doubtful
from refold.reducers.events import StateChanged
from refold.reducers.evolution import encode_value
from refold.reducers.folds import fold
from refold.reducers.pending import underway
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, ToolError
from support.doubts import ALL, DID_NOT, HAPPENED, UNKNOWN, pending, says
from support.once import Once
from support.scenario import Scenario
from support.strategies import scaled

CLASSES = {"look": "run", "set": "run", "act": "at most once", "book": "reconcilable"}


class DoubtRun(RuleBasedStateMachine):
    """Engines that die, tools and people that say what they know, in any order: a few lines of plain Python
    foretell it.

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
        assert encode_value(self.folded) == encode_value(self.run.state)

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
