"""Which calls may run, told from the log alone: what may not be repeated runs again only if somebody said it
did not happen.
"""

from refold.reducers.effects import RunTool, next_effects
from refold.reducers.events import DoubtResolved, Event, RunResumed
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, Replay

_REPEATABLE = (Replay.READ_ONLY, Replay.IDEMPOTENT)


class Once:
    """Takes a log event by event, each with the states before and after it.

    When an engine takes a run up, whatever had been started may have happened. Of the tools that may not be
    repeated no such call is to run again, unless a `doubt_resolved` says `did_not`.
    """

    def __init__(self) -> None:
        self.barred: set[str] = set()

    def take(self, event: Event, before: RunState, after: RunState) -> None:
        """One more event. Fails where a call is to run that must not."""
        if isinstance(event, RunResumed):
            once = {tool.name for tool in before.setup.tools if tool.replay not in _REPEATABLE}
            self.barred |= {each.call for each in _running(before) if each.name in once}
        if isinstance(event, DoubtResolved) and event.doubt is Doubt.DID_NOT:
            self.barred.discard(event.call)
        running = {each.call for each in _running(after)}
        assert not self.barred & running, (event, self.barred & running)


def _running(state: RunState) -> list[RunTool]:
    return [effect for effect in next_effects(state) if isinstance(effect, RunTool)]
