"""The law of `whatif`: what it says of a run is what happens when the agent really runs under the other policy.

Agents behave as they are shown, and their policies are any; each runs under one policy, is asked about under another,
and then runs under that one.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from refold.reducers.parsing import parse
from refold.reducers.policy import Policy
from refold.replay.whatif.comparing import Comparison
from refold.replay.whatif.facts import Change
from refold.replay.whatif.only import RULES, only
from refold.replay.whatif.verdict import Verdict, WhatIf, spend_of
from support.any_policy import laid_over, policies, turned
from support.shown_only import Entry, Life, Temper
from support.strategies import Driver, each, runs

_EXTRA: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        *({"type": "step", "value": value} for value in range(9)),
        *({"type": "time", "value": value} for value in (0.5, 4, 10, 30, 60)),
        {"type": "time", "value": 6, "credit": {"person": False, "downtime": False}},
        *({"type": "token", "value": value} for value in (30, 100, 300, 600)),
        *({"type": "token", "measure": "estimate", "value": value} for value in (30, 60, 120)),
        *({"type": "cost", "value": value} for value in (0.00000005, 0.0000002)),
        *({"type": "message", "value": value} for value in (4, 8, 16)),
    ]
)
_TEXTS: st.SearchStrategy[dict[str, str]] = st.sampled_from(
    [
        *(
            {key: f"zqx {key}"}
            for key in ("continue", "raised", "timeout", "trimmed", "aged", "compacted", "digest")
        ),
        {"summary": "zqx {summary}", "summarise": "zqx"},
        {"refused:guard": "zqx", "refused:rejected": "zqx", "refused:limit": "zqx"},
    ]
)
LIVES = 8
"""How many agents each pair of policies is tried on: to draw policies costs more than to run under them."""


class Case(NamedTuple):
    """The policy that agents ran under, the one that is asked about, and a seed for the agents."""

    policy: dict[str, Any]
    other: dict[str, Any]
    seed: int


def tempers(seed: int) -> Iterator[tuple[Temper, int]]:
    """Some agents and their worlds, and how many facts of each are recorded."""
    chance = random.Random(seed)
    for _ in range(LIVES):
        temper = Temper(
            seed=chance.randrange(10**6),
            slowness=chance.choice((0, 1, 2, 6)),
            cancelled_after=chance.choice((None, None, None, 1, 7, 20)),
            down_after=chance.choice((None, None, None, 1, 3, 9)),
            faultless=chance.random() < 0.5,
        )
        yield temper, chance.randrange(3, 70)


def _others(policy: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    limits: list[dict[str, Any]] = [*policy.get("limits", [])]
    limited = _EXTRA.map(lambda extra: laid_over(policy, {"limits": [*limits, {**extra, "name": "extra"}]}))
    worded = _TEXTS.map(lambda texts: laid_over(policy, {"texts": texts}))
    return st.one_of(limited, limited, turned(policy), turned(policy), turned(policy), worded, policies())


_CASES = policies().flatmap(
    lambda policy: st.builds(Case, st.just(policy), _others(policy), st.integers(0, 2**32))
)


def asked_of(other: Policy | Change) -> Callable[[Life], WhatIf]:
    """What another policy would have decided over a life."""

    def asked(life: Life) -> WhatIf:
        comparison = Comparison("r1", other)
        for seq, each_event in enumerate(life.log, 1):
            comparison.take(seq, each_event)
        return comparison.result()

    return asked


def _seen(entries: list[Entry]) -> list[tuple[int, tuple[Any, ...]]]:
    return [(entry.at, entry.what) for entry in entries]


@settings(max_examples=each(60))
@given(case=_CASES)
def test_what_is_said_is_what_happens(case: Case) -> None:
    """AGREE and STOPS are what happens under the other policy; nothing happens otherwise before DIVERGES."""
    policy, other = parse(case.policy), parse(case.other)
    for temper, facts in tempers(case.seed):
        _confirm(Life(policy, temper, facts), Life(other, temper, facts + 60), asked_of(other))


@settings(max_examples=each(60))
@given(case=_CASES, other=policies(), kinds=st.sets(st.sampled_from(sorted(RULES)), min_size=1))
def test_what_is_said_of_rules_alone_is_what_happens(
    case: Case, other: dict[str, Any], kinds: set[str]
) -> None:
    """The same of some rules of another policy, put in place of the run's own."""
    policy, change = parse(case.policy), only(sorted(kinds), parse(other))
    for temper, facts in tempers(case.seed):
        _confirm(Life(policy, temper, facts), Life(change(policy), temper, facts + 60), asked_of(change))


def _confirm(recorded: Life, real: Life, ask: Callable[[Life], WhatIf]) -> None:
    found = ask(recorded)
    event(f"{found.verdict} {found.kind}")
    alike = found.verdict is Verdict.AGREE
    shared = _seen([entry for entry in recorded.trace if alike or entry.seq < found.seq])
    assert shared == _seen(real.trace)[: len(shared)]
    if found.verdict is Verdict.STOPS or (alike and recorded.state.ended):
        assert len(shared) == len(real.trace)
        assert real.state.outcome is not None
        assert (found.agent_state, found.code) == (str(real.state.agent_state), real.state.outcome.code)
    if found.verdict is Verdict.STOPS and found.exact:
        assert found.until == spend_of(real.state)
        assert found.saved == spend_of(recorded.state) - found.until


@given(driver=runs())
def test_a_run_agrees_with_itself(driver: Driver) -> None:
    """Under its own policy, amended and forked as it was, every run agrees, whatever happened in it."""
    comparison = Comparison("r1", lambda policy: policy)
    for seq, each_event in enumerate(driver.log, 1):
        comparison.take(seq, each_event)
    assert Verdict.AGREE is comparison.result().verdict
