"""What the law of `whatif` is tried on: pairs of policies, agents and their worlds, and what must hold of a
verdict.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import event
from hypothesis import strategies as st

from refold.reducers.events import Event
from refold.reducers.policy import Policy
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.facts import Change
from refold.replay.whatif.tables import Contexts, Prices
from refold.replay.whatif.verdict import Verdict, WhatIf, spend_of
from refold.testing.strategies.policies import policies, policy_variants, policy_with
from support.following import shown
from support.shown_only import Entry, Life, Temper

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


def others(policy: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Policies that may be asked about where this one was in force."""
    limits: list[dict[str, Any]] = [*policy.get("limits", [])]
    limited = _EXTRA.map(lambda extra: policy_with(policy, {"limits": [*limits, {**extra, "name": "extra"}]}))
    worded = _TEXTS.map(lambda texts: policy_with(policy, {"texts": texts}))
    return st.one_of(
        limited,
        limited,
        policy_variants(policy),
        policy_variants(policy),
        policy_variants(policy),
        worded,
        policies(),
    )


CASES = policies().flatmap(
    lambda policy: st.builds(Case, st.just(policy), others(policy), st.integers(0, 2**32))
)


def asked_of(life: Life, other: Policy | Change, prices: Prices | None = None) -> WhatIf:
    """What another policy would have decided over a life."""
    return told(life.log, other, prices)


def told(
    log: Sequence[Event],
    other: Policy | Change,
    prices: Prices | None = None,
    contexts: Contexts | None = None,
) -> WhatIf:
    """What another policy would have decided over a log."""
    comparison = Comparison("r1", other, prices=prices, contexts=contexts)
    return shown(comparison, log)


def seen(entries: list[Entry]) -> list[tuple[int, tuple[Any, ...]]]:
    """What the world was asked, and when."""
    return [(entry.at, entry.what) for entry in entries]


def confirm(found: WhatIf, recorded: Life, real: Life) -> None:
    """Hold a verdict over the recorded life against the one that was really lived under the other policy."""
    event(f"{found.verdict} {found.kind}")
    alike = found.verdict is Verdict.AGREE
    shared = seen([entry for entry in recorded.trace if alike or entry.seq < found.seq])
    assert shared == seen(real.trace)[: len(shared)]
    if found.verdict is Verdict.STOPS or (alike and recorded.state.ended):
        assert len(shared) == len(real.trace)
        assert real.state.outcome is not None
        assert (found.agent_state, found.code) == (str(real.state.agent_state), real.state.outcome.code)
    if found.verdict is Verdict.STOPS and found.exact:
        assert found.until == spend_of(real.state)


def early(found: WhatIf, recorded: Life, real: Life) -> bool:
    """Whether the two lives went on alike behind the place at which they are said to diverge.

    They did if the world was asked the same at a later event, or if both ended there, at one instant, the
    same way, with the same last words.
    """
    one, other = seen(recorded.trace), seen(real.trace)
    alike = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    alike = min(len(one), len(other)) if alike is None else alike
    there = next((entry.seq for entry in recorded.trace if entry.seq >= found.seq), found.seq)
    if alike > sum(entry.seq <= there for entry in recorded.trace):
        return True
    same = alike == len(one) == len(other) and recorded.state.ended and real.state.ended
    return same and _end(recorded) == _end(real)


def _end(life: Life) -> tuple[Any, ...]:
    outcome = life.state.outcome
    assert outcome is not None
    words = [seq for seq in (*outcome.parts, outcome.answer) if seq is not None]
    said = [getattr(life.log[seq - 1], "content", None) for seq in words]
    return life.state.agent_state, outcome.code, outcome.source, said, spend_of(life.state)
