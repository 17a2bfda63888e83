"""Compaction of the history: steps that keep the window small, one file per strategy.

A step (`Pass`) is plain data with one pure method, `plan(scene)`, which returns what it wants to change.
`plan_step` applies the invariants: pinned messages stay; a unit (a reply with its calls and their results) is
kept or dropped whole; order is kept; a second run changes nothing; without a change there is no plan.
"""

from refold.reducers.history.passes import Pass, plan_step
from refold.reducers.history.results import previewed
from refold.reducers.history.strategy import Covering, Plan, Scene, Share, Shortening, When, cut_values
from refold.reducers.history.windows import Tail, TokenTail

__all__ = [
    "Covering",
    "Pass",
    "Plan",
    "Scene",
    "Share",
    "Shortening",
    "Tail",
    "TokenTail",
    "When",
    "cut_values",
    "plan_step",
    "previewed",
]
