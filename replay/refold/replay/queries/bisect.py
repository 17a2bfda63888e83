"""`bisect --when`: the first event after which something is true of a run.

The state of a run is folded from its log, so every event before the one that is sought must be read. Of a question
that stays true once it is, most answers are known all the same: it is asked once in a stretch of events, and in the
stretch in which it became true by halving. Of any other, each state is asked.
"""

from bisect import bisect_left
from typing import Literal

import msgspec
from msgspec.structs import replace

from refold.reducers.state import NEW, RunState
from refold.replay.following import Follower, Step, found_by
from refold.replay.queries.blame import look_of
from refold.replay.queries.language import Question
from refold.store.protocol import Store, Stored

STRETCH = 256
"""Events between two questions; so many states are kept, which share most of what they hold."""

How = Literal["halving", "every event"]


class FirstTrue(msgspec.Struct, frozen=True, kw_only=True):
    """Where the question `when` was first answered with yes: after event `seq`, of this kind, recorded at the instant `at`.

    `seq` None: never, up to the log's event `events`. `how` says whether the question was halved, `asked` how often it
    was asked. `fields` are those that it asks for, with their values as JSON before and after the event.
    """

    run: str
    when: str
    events: int
    how: How
    asked: int
    seq: int | None = None
    kind: str = ""
    at: int = 0
    turn: int = 0
    fields: dict[str, tuple[msgspec.Raw, msgspec.Raw]] = {}


async def bisect(store: Store, run: str, question: Question[RunState]) -> FirstTrue:
    """The first event after which the question is answered with yes. Raises `UnknownRun`, `DamagedLog`, `NewerLog`.

    A log is read up to there, or to its end.
    """
    return await found_by(Seeker(run, question), store, run)


class Seeker(Follower[FirstTrue]):
    """Looks for the first event of a run after which a question is answered with yes.

    `halving` false asks every state, whatever is proved of the question.
    """

    folds = True

    def __init__(self, run: str, question: Question[RunState], *, halving: bool = True) -> None:
        self._run, self._question, self._holds = run, question, question.matches
        self._stretch = STRETCH if halving and question.lasts else 1
        self._halves = halving and question.lasts
        self._last = NEW
        self._states: list[tuple[RunState, Stored]] = []
        self._asked = 0
        self._found: tuple[RunState, RunState, Stored] | None = None

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.after`."""
        self._states.append((step.after, step.stored))
        if len(self._states) == self._stretch:
            self._look()

    def end(self) -> None:
        """Ask what was not asked yet."""
        if self._states:
            self._look()

    def result(self) -> FirstTrue:
        """What was found."""
        how: How = "halving" if self._halves else "every event"
        found = FirstTrue(
            run=self._run, when=self._question.text, events=self._last.seq, how=how, asked=self._asked
        )
        if self._found is None:
            return found
        before, after, stored = self._found
        looks = {field: look_of(field) for field in self._question.names}
        fields = {field: (_raw(look(before)), _raw(look(after))) for field, look in looks.items()}
        turn, seq = after.spent.steps, stored.seq
        return replace(found, events=seq, seq=seq, kind=stored.kind, at=stored.at, turn=turn, fields=fields)

    def _look(self) -> None:
        states = self._states
        if self._is_so(states[-1][0]):
            place = bisect_left(states, x=True, hi=len(states) - 1, key=lambda each: self._is_so(each[0]))
            before = states[place - 1][0] if place else self._last
            self._found = before, *states[place]
            self.over = True
        self._last = states[-1][0]
        self._states = []

    def _is_so(self, state: RunState) -> bool:
        self._asked += 1
        return self._holds(state)


def _raw(value: str) -> msgspec.Raw:
    return msgspec.Raw(value.encode() or b"null")
