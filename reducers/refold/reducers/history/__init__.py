"""History passes: how the window is kept small. One file a strategy; `Pass` is the registry of them.

A pass is plain data with one pure method, `keep(window) -> kept references`. `prune` runs it under the laws
that hold for every strategy: what is pinned stays; a unit (a reply with its calls and their results) is kept
or dropped whole; order is kept; twice is once; no change is no event.
"""

from refold.reducers.history.passes import Pruning, prune
from refold.reducers.history.registry import Pass
from refold.reducers.history.tail import Tail
from refold.reducers.history.token_tail import TokenTail
from refold.reducers.history.when import When

__all__ = ["Pass", "Pruning", "Tail", "TokenTail", "When", "prune"]
