"""The law of `whatif`: what it says of a run is what happens when the agent really runs under the other
policy.

Agents behave as they are shown, and their policies are any; each runs under one policy, is asked about under
another, and then runs under that one.
"""

from itertools import islice
from typing import Any

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from refold.reducers.events import Fact
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.rule_subset import RULES, replace_rules
from refold.replay.whatif.tables import Contexts
from refold.replay.whatif.verdict import Verdict, spend_of
from refold.testing.strategies.driver import Driver
from refold.testing.strategies.logs import runs
from refold.testing.strategies.policies import policies, policies_with_rule
from support.blotting import Blots, Blotted
from support.following import shown
from support.shown_only import Life
from support.soundness import CASES, Case, asked_of, confirm, others, seen, tempers, told
from support.strategies import scaled


@settings(max_examples=scaled(60))
@given(case=CASES)
def test_what_is_said_is_what_happens(case: Case) -> None:
    """AGREE and STOPS are what happens under the other policy; nothing happens otherwise before DIVERGES."""
    policy, other = parse(case.policy), parse(case.other)
    for temper, facts in tempers(case.seed):
        recorded = Life(policy, temper, facts)
        found = asked_of(recorded, other)
        confirm(found, recorded, Life(other, temper, facts + 60))
        if found.verdict is Verdict.STOPS and found.exact:
            assert found.saved == spend_of(recorded.state) - found.until


@settings(max_examples=scaled(60))
@given(case=CASES, other=policies(), kinds=st.sets(st.sampled_from(sorted(RULES)), min_size=1))
def test_what_is_said_of_rules_alone_is_what_happens(
    case: Case, other: dict[str, Any], kinds: set[str]
) -> None:
    """The same of some rules of another policy, put in place of the run's own."""
    policy, change = parse(case.policy), replace_rules(sorted(kinds), parse(other))
    for temper, facts in tempers(case.seed):
        recorded = Life(policy, temper, facts)
        confirm(asked_of(recorded, change), recorded, Life(change(policy), temper, facts + 60))


@given(driver=runs())
def test_a_run_agrees_with_itself(driver: Driver) -> None:
    """Under its own policy, amended and forked as it was, every run agrees, whatever happened in it."""
    comparison = Comparison("r1", lambda policy: policy)
    assert Verdict.AGREE is shown(comparison, driver.log).verdict


OBSERVED: dict[str, Any] = {"preset": "observed"}
_SHARE = st.sampled_from([0.0, 0.0, 0.2, 1.0])
_BLOTS = st.builds(
    Blots,
    st.integers(0, 2**32),
    tools=_SHARE,
    tokens=_SHARE,
    prices=_SHARE,
    times=_SHARE,
    context=st.sampled_from([0.0, 1.0]),
    errors=_SHARE,
    results=_SHARE,
    stops=_SHARE,
)
CONTEXTS = Contexts("the world's own", lambda model, address: 200)
_TOOLS = (
    "look",
    "look",
    "act",
    "act",
    "set",
    "book",
)  # a transcript calls what there was, and starts no runs of ours


@settings(max_examples=scaled(100))
@given(
    other=st.one_of(others(OBSERVED), policies_with_rule({**OBSERVED, "history": [{"do": "observed"}]})),
    blots=_BLOTS,
    seed=st.integers(0, 2**32),
    contexts=st.sampled_from([None, CONTEXTS]),
)
@example(
    other={**OBSERVED, "limits": [{"type": "time", "value": 4}]},
    blots=Blots(67, times=0.2),
    seed=325,
    contexts=None,
)  # what was begun at no known instant has its least from then on
@example(
    other={
        **OBSERVED,
        "limits": [{"type": "time", "value": 4, "scope": "turn", "credit": {"retry": "planned"}}],
    },
    blots=Blots(0),
    seed=0,
    contexts=None,
)  # how long the provider had it wait before another attempt
@example(
    other={
        **OBSERVED,
        "guards": [
            {"guard": "stall", "stop": True, "same_tool": [1, 2], "pollers": ["look"], "identical": [1, 1]}
        ],
    },
    blots=Blots(0, errors=1.0),
    seed=0,
    contexts=None,
)  # of one failure a guard warns where of all of them it stops
@example(
    other={
        **OBSERVED,
        "history": [{"do": "token_tail", "budget": {"context": 80, "minus_output": 10, "minus_tools": True}}],
    },
    blots=Blots(18, tools=0.2),
    seed=0,
    contexts=None,
)  # a list of tools may lack one that is not called before it has made a difference
def test_what_a_blotted_record_says_is_what_happens(
    other: dict[str, Any], blots: Blots, seed: int, contexts: Contexts | None
) -> None:
    """What is said of a record that lacks tools, tokens, prices, times, results or reasons of ends is so,
    whatever it was that it lacks.

    It is so, too, if who asks says truly how long the context was.
    """
    policies_of = parse(OBSERVED), parse(other)
    for drawn, facts in islice(tempers(seed), 3):
        temper = drawn._replace(down_after=None, names=_TOOLS)
        recorded, real = Life(policies_of[0], temper, facts), Life(policies_of[1], temper, facts + 60)
        _confirm_blotted(recorded, real, Blotted(recorded.log, blots), policies_of[1], contexts)


def _confirm_blotted(
    recorded: Life, real: Life, blotted: Blotted, other: Policy, contexts: Contexts | None
) -> None:
    found = told(blotted.log, other, contexts=contexts)
    event(f"{found.verdict} {found.kind} {bool(found.unknown)}")
    place = len(blotted.facts) if found.verdict is Verdict.AGREE else blotted.place(found.seq)
    ends = [seq for seq, each_event in enumerate(recorded.log) if isinstance(each_event, Fact)] + [
        len(recorded.log)
    ]
    shared = seen([entry for entry in recorded.trace if entry.seq <= ends[place]])
    happened = seen(real.trace)
    if found.verdict is Verdict.STOPS:
        assert real.state.ended
        assert happened == shared[: len(happened)]
        assert not found.exact or len(happened) == len(shared)
        assert found.unknown or (found.agent_state, found.code) == _end_of(real)
        assert found.until.steps >= real.state.spent.steps
    else:
        assert shared == happened[: len(shared)]
    if found.verdict is Verdict.AGREE and recorded.state.ended:
        assert (len(shared), (found.agent_state, found.code)) == (len(happened), _end_of(real))


def _end_of(life: Life) -> tuple[str, str]:
    return str(life.state.agent_state), life.state.outcome.code if life.state.outcome else ""
