"""The state against a naive model: whole message lists in plain Python, no chunks, no ranges, no digests."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from refold.reducers.messages import Message
from refold.reducers.views import view
from refold.reducers.vocabulary import Role
from refold.reducers.window import refs
from support.scenario import Scenario

WORDS = st.sampled_from(["yes", "a longer answer", "hm."])


class NaiveRun(RuleBasedStateMachine):
    """A run under a tail of five, whose turns wait for a person: what a few lists say it must look like."""

    LAST = 5

    def __init__(self) -> None:
        super().__init__()
        policy: dict[str, Any] = {
            "limits": [],
            "end_of_turn": "wait",
            "history": [{"do": "tail", "last": self.LAST}],
            "retry": {"attempts": 1000},
        }
        self.run = Scenario(policy)
        # A unit is a list of (role, text); the first two messages are pinned.
        self.units: list[list[tuple[str, str]]] = [[("system", "be good")], [("user", "do it")]]
        self.results: dict[str, str] = {}
        self.open: list[str] = []
        self.calls = self.steps = self.tokens = 0
        self.asked = False
        self._request()

    def _request(self) -> None:
        """Cut to the last five others, and drop every unit that the cut went through."""
        others = [(unit, message) for unit in self.units[2:] for message in unit]
        cut = {id(unit) for unit, _ in others[: -self.LAST]}
        self.units = [unit for unit in self.units if id(unit) not in cut]
        self.steps += 1

    @precondition(lambda self: self.run.state.request is not None)
    @rule(text=WORDS, count=st.integers(1, 4), used=st.integers(0, 50))
    def answers_with_calls(self, text: str, count: int, used: int) -> None:
        self.run.answer(text, *[("look", "{}")] * count, usage=(used, 1))
        self.open = [f"c{self.calls + number + 1}" for number in range(count)]
        self.calls += count
        self.tokens += used + 1
        self.units.append([("assistant", text)])

    @precondition(lambda self: self.run.state.request is not None)
    @rule(text=WORDS)
    def answers(self, text: str) -> None:
        self.run.answer(text, usage=(3, 4))
        self.tokens += 7
        self.units.append([("assistant", text)])
        self.asked = True

    @precondition(lambda self: self.run.state.request is not None)
    @rule()
    def fails_and_is_tried_again(self) -> None:
        self.run.fail()
        self.run.clock(100)

    @precondition(lambda self: bool(self.open))
    @rule(pick=st.integers(0, 3), output=WORDS)
    def a_tool_returns(self, pick: int, output: str) -> None:
        waiting = [call for call in self.open if call not in self.results]
        call = waiting[pick % len(waiting)]
        self.run.result(call, output)
        self.results[call] = output
        if len(waiting) == 1:
            self.units[-1] += [("tool", self.results[call]) for call in self.open]
            self.open = []
            self._request()

    @precondition(lambda self: self.asked)
    @rule(text=WORDS)
    def a_person_speaks(self, text: str) -> None:
        self.run.say(text)
        self.units.append([("user", text)])
        self.asked = False
        self._request()

    @rule()
    def something_comes_late(self) -> None:
        self.run.result("c0", "too late")

    @invariant()
    def the_messages_are_those_of_the_lists(self) -> None:
        messages = [message for unit in self.units for message in unit]
        seen: tuple[Message, ...] = view(self.run.state, dict(enumerate(self.run.log, 1)))
        assert messages == [(str(message.role), message.text) for message in seen]
        assert [Role.SYSTEM, Role.USER] == [ref.role for ref in refs(self.run.state.window) if ref.pinned]

    @invariant()
    def the_numbers_are_those_that_were_counted(self) -> None:
        spent = self.run.state.spent
        assert (self.steps, self.calls, self.tokens) == (
            spent.steps,
            spent.calls,
            spent.usage.input + spent.usage.output,
        )
        assert sum(map(len, self.units)) == self.run.state.window.count


TestNaiveRun = NaiveRun.TestCase
TestNaiveRun.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
