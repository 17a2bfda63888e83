"""Which runs the calls of a run began, as far as its own log says so."""

from collections.abc import Mapping, Sequence

from refold.reducers.events import SourceRecorded, ToolReturned, ToolsDispatched, kind_of
from refold.reducers.meters import open_children
from refold.replay.following import Follower, Step
from refold.replay.source_words import BEGAN

_DISPATCHED = kind_of(ToolsDispatched)
_RETURNED, _RECORDED = kind_of(ToolReturned), kind_of(SourceRecorded)


class Begun(Follower[Sequence[str]]):
    """The ids of the runs that its calls of other agents begin, in their order: one that never came to begin is no run."""

    folds = True

    def __init__(self) -> None:
        self._runs: dict[str, None] = {}

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.after`."""
        if step.stored.kind == _DISPATCHED:
            self._runs.update(dict.fromkeys(open_children(step.after)))

    def result(self) -> Sequence[str]:
        """The ids, of forks those with their parents' too."""
        return tuple(self._runs)


class Named(Follower[Mapping[str, str]]):
    """The calls of an imported run that began others, by the keys of those in the source: where several calls name a
    run, the first began it, and the others went on with it.
    """

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._returned = 0, ""

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.bare`."""
        if step.stored.kind not in (_RETURNED, _RECORDED):
            return
        match step.bare:
            case ToolReturned(call=call):
                self._returned = step.stored.seq, call
            case SourceRecorded(what=what, seq=seq) if what.startswith(BEGAN) and seq == self._returned[0]:
                self._calls.setdefault(what.removeprefix(BEGAN), self._returned[1])
            case _:
                pass

    def result(self) -> Mapping[str, str]:
        """The calls by the keys."""
        return self._calls
