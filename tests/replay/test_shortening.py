"""Facts that say less: words are cut, whatever kind of fact holds them, and sizes and digests fit what is
left.
"""

import msgspec

from refold.reducers import composition
from refold.reducers.composition import approved, forked, observed
from refold.reducers.events import (
    FACTS,
    ApprovalAnswered,
    ContextObserved,
    DoubtResolved,
    Fact,
    Input,
    ModelFailed,
    PolicyAmended,
    Reason,
    RunForked,
    RunStarted,
    SummaryReturned,
)
from refold.reducers.messages import Message, MessageCall
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Doubt, FailureClass, Role
from refold.replay.shrink.search import shorten_fact
from support import golden
from support.scenario import SALT, START, Scenario

LONG = "so long a text that nobody wants it in a test"
SUMMARISING = {"texts": {"summary": "What was before, in short: {summary}"}}


def test_what_says_nothing_is_not_cut() -> None:
    """A fact without content, and one that is as short as can be, stay as they are."""
    for name in golden.names():
        log = [event for event in golden.events(name) if isinstance(event, Fact)]
        assert isinstance(log[0], RunStarted)
        for fact in log:
            once = shorten_fact(log[0].policy, fact, SALT)
            assert once is None or shorten_fact(log[0].policy, once, SALT) is None


def _said_of_context() -> ContextObserved:
    scenario = Scenario({"preset": "observed"})
    scenario.answer("done")
    called = Message(role=Role.ASSISTANT, text=LONG, calls=(MessageCall("x", "look", "{}"),))
    joining = [called, Message(role=Role.TOOL, text=LONG, call="x"), Message(role=Role.USER, text=LONG)]
    fact = ContextObserved(at=scenario.at, after=(0, 0, 2), kept=((1, 2),), why="compaction", continues=True)
    return observed(scenario.state, fact, joining, SALT)


def _said_of_a_summary() -> SummaryReturned:
    scenario = Scenario(SUMMARISING)
    return composition.summarised(scenario.state, SummaryReturned(at=START, request=2), LONG, SALT)


def _said_of_a_call() -> ApprovalAnswered:
    scenario = Scenario({"approvals": {"chain": [{"approver": "human", "tools": ["*"]}]}})
    scenario.answer("", ("act", "{}"))
    return approved(scenario.state, ApprovalAnswered(at=START), {"c1": "approve"}, {}, LONG, SALT)


def _said_to_a_fork() -> RunForked:
    scenario = Scenario({"end_of_turn": "wait"})
    fact = RunForked(at=START, run="r2", rules=1, parent="r1", parent_seq=2, parent_hash="00")
    return forked(scenario.state, fact, LONG, SALT)


def _every_fact_that_says_something() -> list[Fact]:
    scenario = Scenario({"end_of_turn": "wait"}, messages=(Message(role=Role.USER, text=LONG),))
    scenario.answer(LONG, ("act", "{}"))
    scenario.resume("c1")
    doubt = DoubtResolved(at=scenario.at, call="c1", doubt=Doubt.HAPPENED, by="ann")
    resolved = composition.resolved(scenario.state, doubt, LONG)
    scenario.feed(resolved)
    scenario.result("c1", LONG)
    failed = composition.failed(
        ModelFailed(at=scenario.at, request=1, failure=FailureClass.AUTH), LONG, "", SALT
    )
    scenario.answer("done")
    scenario.say(LONG)
    scenario.cancel()
    amended = PolicyAmended(at=START, policy=Policy(), content=Reason(reason=LONG))
    others = [_said_of_context(), _said_of_a_call(), _said_of_a_summary(), _said_to_a_fork(), failed, amended]
    return [*others, *(each for each in scenario.log if isinstance(each, Fact))]


def test_every_kind_of_fact_can_say_less() -> None:
    """Each kind that holds words is cut, and keeps its kind, its calls and how many its messages are."""
    words = [each for each in _every_fact_that_says_something() if getattr(each, "content", None) is not None]
    assert {kind for kind in FACTS if "content" in kind.__struct_fields__} == set(map(type, words))
    for fact in words:
        less = shorten_fact(Policy(), fact, SALT)
        assert less is not None, fact
        assert type(fact) is type(less)
        assert LONG not in str(less)
        assert shorten_fact(Policy(), less, SALT) is None


def test_a_summary_that_says_less_has_the_sizes_of_its_message() -> None:
    """They are those that the same summary has where it is composed."""
    scenario, fact = Scenario(SUMMARISING), _said_of_a_summary()
    less = shorten_fact(scenario.state.policy, fact, SALT)
    assert composition.summarised(scenario.state, fact, LONG[0], SALT) == less


def test_a_message_of_a_fork_that_says_less_is_still_one() -> None:
    """Of white space alone one character stays: a fork without a message would be another one."""
    for text in (LONG, "   "):
        fact = msgspec.structs.replace(_said_to_a_fork(), content=Input(text=text))
        less = shorten_fact(Policy(), fact, SALT)
        assert isinstance(less, RunForked)
        assert less.size is not None
        assert 1 == less.size.chars
