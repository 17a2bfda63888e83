"""Runs against naive models: whole message lists in plain Python, sums over the log, and what a provider
takes.

`AnyRun` drives `advance` with any facts under any policy, `TailRun` knows one policy well enough to foretell
it.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers.effects import next_effects
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import (
    Annotation,
    ClockRead,
    Decision,
    Event,
    HistoryPruned,
    ModelFailed,
    ModelRequested,
    StateChanged,
    StateDigested,
    ToolReturned,
)
from refold.reducers.evolution import encode_value, evolve
from refold.reducers.folds import advance, fold
from refold.reducers.machine import TERMINAL
from refold.reducers.messages import Message, Usage
from refold.reducers.rules.history import scene_of
from refold.reducers.state import NEW, RunState
from refold.reducers.views import view
from refold.reducers.vocabulary import FailureClass, Role
from refold.reducers.window import refs
from refold.testing.strategies.policies import policies
from support.audits import audited
from support.ledger import overshot
from support.naive import Transcript, refused_by_a_provider, rendered
from support.once import Once
from support.scenario import Scenario
from support.strategies import scaled
from support.world import MARKER, World

_SECONDS = st.sampled_from([*[0] * 9, 1, 5, 90])


def arrived_otherwise(world: World) -> list[Event]:
    """The log of the same facts, the results of each parallel batch in reverse order, at the same
    instants.
    """
    facts = [fact for fact, _ in world.groups]
    place = 0
    while place < len(facts):
        end = place
        while end < len(facts) and _parallel(world, place, end):
            end += 1
        if end > place:
            instants = [fact.at for fact in facts[place:end]]
            facts[place:end] = [
                replace(fact, at=at) for fact, at in zip(reversed(facts[place:end]), instants, strict=True)
            ]
        place = max(end, place + 1)
    state, log = NEW, list[Event]()
    for fact in facts:
        state, events = advance(state, fact)
        log += events
    return log


def _parallel(world: World, first: int, place: int) -> bool:
    fact, before = world.groups[place]
    awaited = isinstance(fact, ToolReturned) and before < len(world.log) and world.log[before] is fact
    return awaited and (place == first or before == world.groups[place - 1][1] + 1)


class AnyRun(RuleBasedStateMachine):
    """A run that a hostile world drives, under a policy of any knobs; what it logs goes into lists of whole
    messages.

    After each step the views are those of the lists, no decision says what somebody said, and no call is to
    run that may have run already and must not twice. In the end the log audits clean, its bodies are enough,
    no limit was overshot by more than its bound, and it would be the same if parallel results had come in
    another order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.naive = Transcript()
        self.folded = NEW
        self.quiet = True  # nothing has happened since something unasked did
        self.once: set[str] = set()  # texts of one request
        self.states: list[RunState] = []
        self.calls = Once()

    @initialize(
        policy=policies(), earlier=st.booleans(), context=st.sampled_from([None, 100]), seed=st.integers(0, 3)
    )
    def begins(self, policy: dict[str, Any], earlier: bool, context: int | None, seed: int) -> None:
        self.world = World(policy, earlier=earlier, context=context, seed=seed)

    @precondition(lambda self: not self.world.state.ended)
    @rule(data=st.data(), after=_SECONDS)
    def the_world_goes_on(self, data: Any, after: int) -> None:
        """Whatever is under way, or waited for, comes to an end, well or badly."""
        self.quiet = False
        self.world.go_on(data, after)

    @precondition(lambda self: not self.world.state.ended)
    @rule(data=st.data(), steps=st.integers(2, 5))
    def all_goes_well(self, data: Any, steps: int) -> None:
        """Answers with calls, all of which return: so that runs get long enough to be cut."""
        self.quiet = False
        for _ in range(steps):
            self.world.go_well(data)

    @precondition(lambda self: self.world.state.ended or not self.quiet)
    @rule(data=st.data(), after=_SECONDS)
    def something_else_happens(self, data: Any, after: int) -> None:
        """What nobody asked for; or the engine dies, and all that it had in memory is lost."""
        self.quiet = True
        if data.draw(st.booleans()):
            self.world.aside(data, after)
            return
        before = self.world.state
        self.world.state = fold(self.world.stored())
        assert encode_value(before) == encode_value(self.world.state)

    @invariant()
    def the_lists_agree(self) -> None:
        """View by view the window is the list, what stays of it in order; no decision says what others
        said.
        """
        world = self.world
        for event in world.log[self.folded.seq :]:
            assert not self.folded.ended or isinstance(event, Annotation)
            before, self.folded = self.folded, evolve(self.folded, event)
            self.calls.take(event, before, self.folded)
            self.states.append(self.folded)
            self.naive.take(self.folded.seq, event, self.folded.policy.texts)
            if isinstance(event, Decision):
                one = codec.encode(event)
                assert MARKER.encode() not in one.body + (one.content or b"")
            if isinstance(event, ModelRequested):
                self._as_shown(event)
            if isinstance(event, HistoryPruned):
                self._as_it_fits(event)
        assert self.folded.agent_state == world.state.agent_state
        if world.state.request is not None:
            # An engine that takes it up asks again, whatever the policy has become.
            assert [] == list(refused_by_a_provider(list(view(world.state, dict(enumerate(world.log, 1))))))

    def _as_it_fits(self, event: HistoryPruned) -> None:
        state = self.folded
        steps = {step.name: step for step in state.policy.history}
        if event.name in steps:  # of an overflow there may be another
            scene = scene_of(state, forced=event.reason == "overflow")
            assert event.over_budget == (not steps[event.name].fits(scene))

    def _as_shown(self, event: ModelRequested) -> None:
        state, kept, words = self.folded, self.naive.messages, self.folded.policy.texts
        seen = list(view(state, dict(enumerate(self.world.log, 1))))
        texts = [(text.role, rendered(words, text.text, text.values)) for text in event.request_only]
        assert kept == seen[: len(kept)]
        assert texts == [(message.role, message.text) for message in seen[len(kept) :]]
        assert [] == list(refused_by_a_provider(seen))
        assert [line.number for line in self.naive.lines] == [ref.number for ref in refs(state.window)]
        assert self.naive.pinned <= {line.number for line in self.naive.lines}
        said = [line.number for line in self.naive.lines if not line.stands_for_others]
        assert sorted(said) == said
        assert kept[0].role is Role.SYSTEM
        assert not self.once & {message.text for message in kept}
        # Progress is for one request or kept, as the policy in force says.
        self.once |= {
            text for (_, text), one in zip(texts, event.request_only, strict=True) if one.text != "progress"
        }

    def teardown(self) -> None:
        """Whatever came, the log holds."""
        if not hasattr(self, "world"):
            return
        self.the_lists_agree()
        world, stored = self.world, self.world.stored()
        found = audited(stored)
        assert found.clean, found
        assert encode_value(fold(stored)) == encode_value(world.state)
        bare = fold([codec.decode(one.kind, one.body) for one in map(codec.encode, world.log)])
        assert encode_value(without_words(bare)) == encode_value(without_words(world.state))
        assert decided(world.log) == decided(arrived_otherwise(world))
        assert [] == list(overshot(world.log, self.states))
        self._ends_once()

    def _ends_once(self) -> None:
        world = self.world
        ends = [event for event in world.log if isinstance(event, StateChanged) and event.target in TERMINAL]
        assert int(world.state.ended) == len(ends)
        if world.state.ended:
            assert () == next_effects(world.state)
            with pytest.raises(UnexpectedEvent):
                advance(world.state, ClockRead(at=world.at, due=world.at))


def without_words(state: RunState) -> RunState:
    """The state but for what guards know that read what was said."""
    blind = tuple(watch for watch in state.guards if watch.guard is None or not watch.guard.reads_content)
    return replace(state, guards=blind)


def decided(log: list[Event]) -> list[Event]:
    """The decisions of a log. A digest of a batch that is half done tells which half."""
    return [event for event in log if isinstance(event, Decision) and not isinstance(event, StateDigested)]


TestAnyRun = AnyRun.TestCase
TestAnyRun.settings = settings(max_examples=scaled(60), stateful_step_count=14, deadline=None)


WORDS = st.sampled_from(["yes", "a longer answer", "hm."])


class TailRun(RuleBasedStateMachine):
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


TestTailRun = TailRun.TestCase
TestTailRun.settings = settings(max_examples=scaled(30), stateful_step_count=40, deadline=None)


# What these machines have found.


def test_a_digest_of_a_digest_quotes_what_that_one_quoted() -> None:
    """A second digest still begins with what the first one quoted, which has left the window."""
    run = Scenario(
        {
            "end_of_turn": "continue",
            "history": [{"do": "digest", "keep_last": 2, "per_message": 5, "total": 99}],
            "texts": {"continue": "on", "digest": "<{digest}>"},
        }
    )
    for text in ("one", "two", "three"):
        run.answer(text)
    quoted = "<ASSISTANT: one\nASSISTANT: two\nUSER: on>"  # of the first digest one line's worth
    shown = [
        ("system", "be good"),
        ("user", "do it"),
        ("user", quoted),
        ("assistant", "three"),
        ("user", "on"),
    ]
    assert shown == run.seen()


TOKENS = {"type": "token", "value": 100}


def test_a_budget_may_be_crossed_by_a_failure() -> None:
    """What a failed request cost is looked at as soon as it is known: there is no other attempt."""
    run = Scenario({"limits": [TOKENS]})
    request = run.state.request
    assert request is not None
    failed = ModelFailed(
        at=run.at, request=request.seq, failure=FailureClass.OVERLOADED, usage=Usage(input=99, output=1)
    )
    run.feed(failed)
    assert "BUDGET_EXCEEDED" == run.state.agent_state
    assert ["limit_reached", "state_changed"] == run.kinds()


@pytest.mark.parametrize(
    ("used", "state"),
    [
        pytest.param(99, None, id="below it: asked again"),
        pytest.param(100, "MAX_STEPS", id="at it: not again"),
    ],
)
def test_a_last_word_is_not_asked_for_again_beyond_a_budget(used: int, state: str | None) -> None:
    """An empty answer to the request that a limit granted is not asked for again once a budget is crossed."""
    run = Scenario(
        {"limits": [{"type": "step", "value": 0}, TOKENS], "grace": {"on": ["step"], "again_if_empty": 1}}
    )
    run.answer("<think>hm</think>", usage=(used, 0))
    assert state == (str(run.state.agent_state) if run.state.ended else None)


@pytest.mark.parametrize("becomes", [pytest.param("amend", id="amended"), pytest.param("fork", id="forked")])
def test_a_request_under_way_keeps_its_words(becomes: str) -> None:
    """A request can be shown, and so asked again, after its policy gave way to one without the words for
    it.
    """
    tiers = [{"name": "late", "at": {"remaining": 9}}]
    limits = [{"type": "step", "value": 9}]
    run = Scenario({"limits": limits, "pressure": {"tiers": tiers}, "texts": {"pressure:late": "hurry"}})
    shown = run.seen()
    getattr(run, becomes)({})
    assert ("user", "hurry") == shown[-1]
    assert shown == run.seen()
