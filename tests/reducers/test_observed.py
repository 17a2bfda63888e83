"""Imported runs: what another harness did to the context, as a fact."""

import pytest

from refold.reducers.composition import observed
from refold.reducers.errors import UnexpectedEvent, WrongUse
from refold.reducers.events import ContextObserved, MessageHead
from refold.reducers.messages import Message, MessageCall, Size
from refold.reducers.vocabulary import FailureClass, Role, StopReason
from support.scenario import SALT, Scenario

OBSERVED = {"preset": "observed"}
OPENING = [("system", "be good"), ("user", "do it")]


def user(text: str) -> Message:
    return Message(role=Role.USER, text=text)


def observe(
    scenario: Scenario,
    *messages: Message,
    kept: tuple[tuple[int, int], ...] | None = None,
    after: tuple[int, ...] = (),
    continues: bool = False,
) -> list[str]:
    fact = ContextObserved(at=scenario.at, kept=kept, after=after, why="compaction", continues=continues)
    return scenario.feed(observed(scenario.state, fact, messages, SALT))


def test_a_message_beside_calls_in_flight_stands_behind_their_results() -> None:
    """What joins while calls run never parts an answer from its results."""
    scenario = Scenario(OBSERVED)
    scenario.answer("I look", ("look", "{}"), ("look", '{"a":1}'))
    assert [] == observe(scenario, user("hurry"))
    scenario.result("c1", "one")
    scenario.result("c2", "two")
    assert [
        *OPENING,
        ("assistant", "I look"),
        ("tool", "one"),
        ("tool", "two"),
        ("user", "hurry"),
    ] == scenario.seen()


def test_what_was_dropped_leaves_before_the_next_request_and_not_sooner() -> None:
    """`kept` is carried out by the pass, once, though it takes what is pinned."""
    scenario = Scenario(OBSERVED)
    scenario.answer("I look", ("look", "{}"))
    assert [] == observe(scenario, user("so far: nothing"), kept=((3, 4),), after=(0,))
    decisions = scenario.result("c1", "one")
    assert (
        "history_pruned name=observed before=5 after=3 tokens_before=12 tokens_after=8 kept=[[5 5] [3 4]]"
        in decisions
    )
    assert [("user", "so far: nothing"), ("assistant", "I look"), ("tool", "one")] == scenario.seen()
    assert scenario.state.observed is None
    scenario.step()
    assert 1 == len([line for line in map(str, scenario.log) if line.startswith("HistoryPruned")])


def test_a_policy_without_the_pass_keeps_what_the_source_dropped() -> None:
    """Another policy does not do what the source's harness did: its model would have seen more."""
    scenario = Scenario({"end_of_turn": "wait"})
    scenario.answer("done")
    observe(scenario, kept=((1, 1),))
    scenario.say("go on")
    assert [*OPENING, ("assistant", "done"), ("user", "go on")] == scenario.seen()


def test_what_joins_later_is_kept() -> None:
    """Messages that join behind a cut are no part of what was cut."""
    scenario = Scenario(OBSERVED)
    scenario.answer("done")
    observe(scenario, kept=((1, 1),))
    observe(scenario, user("the summary"))
    scenario.say("go on")
    assert [("system", "be good"), ("user", "the summary"), ("user", "go on")] == scenario.seen()


def test_the_model_may_be_asked_again_without_a_message() -> None:
    """A harness that goes on by itself leaves the wait for a person, and its time counts as theirs no
    longer.
    """
    scenario = Scenario(OBSERVED)
    scenario.answer("thinking")
    decisions = observe(scenario, continues=True)
    assert "state_changed from=WAITING_FOR_INPUT to=RUNNING trigger=answered code=went_on" in decisions
    assert [*OPENING, ("assistant", "thinking")] == scenario.seen()


def test_a_failure_that_was_tried_again_may_change_the_context_too() -> None:
    """Between two attempts, too, the window is what the source's harness made of it."""
    scenario = Scenario(OBSERVED)
    scenario.fail(FailureClass.AUTH)
    observe(scenario, user("a summary"), kept=((1, 1),))
    scenario.clock(0)
    assert [("system", "be good"), ("user", "a summary")] == scenario.seen()


def test_calls_in_what_joined_have_ids_of_their_own() -> None:
    """Messages of a recorded prompt keep their pairs, under ids that no call of the run has."""
    asked = Message(role=Role.ASSISTANT, calls=(MessageCall("c1", "look", "{}"),))
    scenario = Scenario(OBSERVED)
    scenario.answer("done")
    observe(scenario, asked, Message(role=Role.TOOL, text="short", call="c1"))
    scenario.say("go on")
    fact = next(event for event in scenario.log if isinstance(event, ContextObserved))
    assert fact.content is not None
    assert ["o5.1", None] == [
        *[call.id for call in fact.content.messages[0].calls],
        fact.content.messages[1].name,
    ]
    assert ["o5.1"] == [message.call for message in fact.content.messages if message.call]


def test_what_a_filter_stopped_is_a_finished_turn() -> None:
    """Nothing ends an imported run that did not end it at its source."""
    scenario = Scenario(OBSERVED)
    scenario.answer("no", stop=StopReason.CONTENT_FILTER)
    assert "WAITING_FOR_INPUT" == scenario.state.agent_state


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        pytest.param(ContextObserved(at=0, continues=True), "waits for no message", id="nothing waits"),
        pytest.param(ContextObserved(at=0, after=(1,)), "differ in number", id="places without messages"),
    ],
)
def test_what_cannot_have_been(fact: ContextObserved, why: str) -> None:
    """An observed change that has no place where it stands is refused, and says why."""
    scenario = Scenario(OBSERVED)
    scenario.answer("", ("look", "{}"))
    with pytest.raises(UnexpectedEvent, match=why):
        scenario.feed(
            observed(
                scenario.state,
                ContextObserved(at=scenario.at, continues=fact.continues, after=fact.after),
                (),
                SALT,
            )
        )


def test_nothing_joins_while_the_model_is_asked() -> None:
    """A request that is under way shows what it shows."""
    scenario = Scenario(OBSERVED)
    with pytest.raises(UnexpectedEvent, match="already open"):
        observe(scenario, user("late"))


def test_a_message_stands_behind_one_that_is_there() -> None:
    """A place behind a message that comes later is refused."""
    scenario = Scenario(OBSERVED)
    scenario.answer("done")
    with pytest.raises(UnexpectedEvent, match="does not exist yet"):
        observe(scenario, user("x"), after=(9,))


def test_results_need_their_calls() -> None:
    """A result without its call cannot join: no provider takes it."""
    scenario = Scenario(OBSERVED)
    scenario.answer("done")
    with pytest.raises(WrongUse, match="no message before it made"):
        observe(scenario, Message(role=Role.TOOL, text="x", call="c1"))


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        pytest.param(((2, 1),), "does not exist", id="backwards"),
        pytest.param(((1, 2), (2, 3)), "overlaps", id="overlapping"),
        pytest.param(((1, 900),), "does not exist", id="beyond the last message"),
    ],
)
def test_what_cannot_have_stayed(kept: tuple[tuple[int, int], ...], why: str) -> None:
    """Ranges that no messages have are refused, before anything is made of them."""
    scenario = Scenario(OBSERVED)
    scenario.answer("done")
    with pytest.raises(UnexpectedEvent, match=why):
        observe(scenario, kept=kept)


def test_a_forged_result_needs_its_answer() -> None:
    """A result that says it belongs to no answer is refused by the fold itself."""
    scenario = Scenario(OBSERVED)
    scenario.answer("done")
    lone = MessageHead(role=Role.TOOL, unit=0, call="o9.1", size=Size(chars=1, tokens=1))
    with pytest.raises(UnexpectedEvent, match="has no response"):
        scenario.feed(ContextObserved(at=scenario.at, messages=(lone,)))


def test_many_places_in_one_change() -> None:
    """Each message stands behind the one that it names, those that came with it among them, in turn."""
    scenario = Scenario(OBSERVED)
    scenario.answer("done")
    observe(scenario, user("a"), user("b"), user("c"), user("d"), after=(1, 4, 1, 0))
    scenario.say("go on")
    said = [text for _, text in scenario.seen()]
    assert ["d", "be good", "c", "a", "b", "do it", "done", "go on"] == said
