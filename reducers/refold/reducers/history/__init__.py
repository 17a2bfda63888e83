"""History passes: how the window is kept small. One file a strategy; `Pass` is the registry of them.

A pass is plain data with one pure method, `plan(scene) -> what it wants`. `planned` makes that lawful: what
is pinned stays; a unit (a reply with its calls and their results) is kept or dropped whole; order is kept;
twice is once; no change is no plan.
"""

from refold.reducers.history.passes import Pass, planned
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
    "planned",
    "previewed",
]
