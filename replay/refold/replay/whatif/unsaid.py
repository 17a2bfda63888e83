"""What else a record does not say, and where the other policy would have needed it.

How much of something there was has two ends (`ends`). Here stands what has none: what of the source is in no fact, when
things happened, which calls failed, how long was waited. So late it was, or later: a limit of time that the least of it
reaches already was reached, here at the latest.
"""

from collections.abc import Iterator

import msgspec

from refold.reducers.events import (
    ApprovalAnswered,
    Diagnosed,
    Event,
    Fact,
    InputReceived,
    ModelFailed,
    ModelResponded,
    RunForked,
    SourceRecorded,
    ToolReturned,
)
from refold.reducers.guards.premature_end import PrematureEnd
from refold.reducers.limits import Limit, TimeLimit, TokenLimit, measure_of
from refold.reducers.state import RunState
from refold.reducers.usage import deadline
from refold.reducers.vocabulary import Unknown
from refold.replay.source_words import HOSTED, UNCALLED
from refold.replay.whatif.ends import Effect
from refold.replay.whatif.shown import Side
from refold.replay.whatif.verdict import UNCOUNTED, UNTIMED

_SAID_ALL_THE_SAME = frozenset(
    {
        "result_missing",
        "calls_inferred",
        "half_pair",
        "not_shown",
        "paired_by_order",
        "repeated",
        "result_repeated",
    }
)
"""Diagnoses after which all that the source says is in a fact all the same."""
_PAUSES = "retries: the record does not say how long was waited before the next"
_BESIDE = {
    UNCALLED: "the record has results of calls that it does not have",
    HOSTED: "the source has calls that are in no fact: the provider ran them, or nobody knows",
}
_IN_PLACE = frozenset({"no_place", "result_without_call", "too_many_calls", "unknown_part"})
"""Diagnoses that stand where in a run something is missing. Of others, as of a line that is no JSON, nobody knows where."""


class Doubt(msgspec.Struct, frozen=True):
    """Something that a rule needed after the fact at event `seq`, and that the record does not say."""

    seq: int
    why: str
    effect: Effect
    after: RunState | None  # the other run behind that fact


class Unsaid:
    """Follows a recorded run and the other one, and remembers what was in doubt.

    `still`: the first fact since time last moved that may have been later than it says, 0: none. `more`: what of the
    source is in no fact stands behind the place where the two parted.
    """

    def __init__(self, recorded: Side, derived: Side) -> None:
        self._recorded, self._derived = recorded, derived
        self._doubts: dict[tuple[str, Effect], int] = {}  # each once, by the first fact that left it
        self._first: RunState | None = None  # the other run behind the first of them
        self._stood: RunState | None = None  # and behind the fact `still`
        self._lost = ""  # what of the source is in no fact
        self._failed = self._behind = self.more = False
        self._seq = self._still = 0

    @property
    def _imported(self) -> bool:
        return bool(self._recorded.state.setup.unknown)

    def doubt(self, why: str, effect: Effect, seq: int = 0) -> None:
        """Something is in doubt behind the fact at hand, or fact `seq`."""
        self._doubts.setdefault((why, effect), seq or self._seq)

    def hear(self, event: Event) -> None:
        """What of the source is in no fact: said where it stood, or of all of it."""
        lost, in_place = "", True
        if isinstance(event, Diagnosed) and event.code not in _SAID_ALL_THE_SAME:
            lost = f"the source was not wholly read, or has more than is told of it: {event.code}"
            in_place = event.code in _IN_PLACE
        elif isinstance(event, SourceRecorded):
            lost = _BESIDE.get(event.what, "")
        if lost and in_place and self._behind:
            self.more = True
        else:
            self._lost = self._lost or lost

    def pass_time(self, until: int) -> None:
        """Time is about to pass. What was begun at no known instant is promised its least from no known instant on."""
        state = self._derived.state
        trips = deadline(state) if self._still and self._times() else None
        if trips is not None and trips <= until and state.policy.call_timeout.nanoseconds:
            self._first = self._first or self._stood
            self.doubt(UNTIMED, "rests", self._still)

    def take(self, seq: int, fact: Fact) -> None:
        """A fact that both runs are about to see."""
        self._seq = seq
        if isinstance(fact, ModelResponded) and self._minds_stop_of(fact):
            why = f"the record does not say what it means that an answer stopped by {fact.stop_raw[:40]!r}"
            self.doubt(why, "rests")
        self._failed = isinstance(fact, ModelFailed) and self._imported
        if isinstance(fact, ToolReturned) and fact.error is None:
            self._returned()
        self._follow_time(seq, fact)

    def _minds_stop_of(self, fact: ModelResponded) -> bool:
        """Whether nobody knows why an answer stopped, and the other policy asks."""
        if Unknown.STOP not in fact.unknown:
            return False
        one, other = self._recorded.state.policy, self._derived.state.policy
        ends = any(isinstance(watch.guard, PrematureEnd) for watch in self._derived.state.guards)
        return ends or one.truncation != other.truncation

    def _returned(self) -> None:
        """A call that did not fail, or did: a guard that is shown results may count either."""
        if Unknown.ERRORS not in self._recorded.state.setup.unknown:
            return
        for watch in self._derived.state.guards:
            if watch.guard is not None and ToolReturned in watch.guard.observes:
                self.doubt(f"guard {watch.name}: the record does not say which calls failed", "rests")

    def _follow_time(self, seq: int, fact: Fact) -> None:
        """Whether this has a time of its own. What has none stands at the instant of what came before it."""
        before, timed = self._recorded.state, Unknown.TIME not in fact.unknown
        if not self._imported or isinstance(fact, RunForked):
            self._still = 0
            return
        if isinstance(fact, ModelResponded | ModelFailed) and fact.at == before.lineage.at:
            self._untimed("rests" if self._by_first_response() else "stops")
        if isinstance(fact, InputReceived | ApprovalAnswered) and before.asked_at is not None:
            # A wait that seems too short makes the agent's own time too long, one that seems too long makes it a least.
            if fact.at == before.asked_at and not timed:
                self._untimed("rests")
            elif self._still:
                self._untimed("stops")
        self._still = 0 if fact.at > before.at or timed else self._still or seq

    def _by_first_response(self) -> bool:
        return any(limit.clock == "first_response" for limit in self._times())

    def _times(self) -> list[TimeLimit]:
        return [
            limit
            for limit in self._derived.state.policy.limits
            if isinstance(limit, TimeLimit) and limit.value is not None and not self._in_force(limit)
        ]

    def _in_force(self, limit: Limit) -> bool:
        """Whether the recorded run had this very limit: of that the record tells."""
        return limit in self._recorded.state.policy.limits

    def _untimed(self, effect: Effect) -> None:
        if self._times():
            self.doubt(UNTIMED, effect)

    def done(self, fact: Fact, *, parted: bool) -> None:
        """Both runs have taken the fact; `parted`: they had parted before it."""
        # What stands between two answers is told in another order than it stood in.
        self._behind = self._behind or (parted and isinstance(fact, ModelResponded | ModelFailed))
        if self._lost and self._differs():
            self.doubt(self._lost, "rests")
        if self._failed and self._hurries():
            self.doubt(_PAUSES, "asks")
        self._first = self._first or (self._derived.state if self._doubts else None)
        self._stood = (self._stood or self._derived.state) if self._still else None

    def doubts(self, *, parted: bool) -> list[Doubt]:
        """What is in doubt of all that was taken, in its order; `parted`: the two runs have."""
        found = [Doubt(seq, why, effect, self._first) for (why, effect), seq in self._doubts.items()]
        if self._still and self._times():
            found.append(Doubt(self._still, UNTIMED, "stops", self._stood))
        if not parted:
            found += [Doubt(1, why, "stops", None) for why in self._never()]
            found += [Doubt(self._seq, why, "rests", None) for why in self._at_the_end()]
        return sorted(found, key=lambda doubt: doubt.seq)

    def _differs(self) -> bool:
        """Whether the other policy is another: what was not read makes no difference to the same one."""
        return self._recorded.state.policy != self._derived.state.policy

    def _at_the_end(self) -> Iterator[str]:
        """What is known only once the record ends."""
        if self._imported and self._differs():
            if self._lost:
                yield self._lost
            if not self._recorded.state.spent.steps:
                yield "the record has no request to the model that any policy could have judged"

    def _never(self) -> Iterator[str]:
        """What was not counted once: what agrees by that agrees by nothing."""
        state = self._recorded.state
        if state.lineage.first_response is None:
            return
        limits = self._derived.state.policy.limits
        usage = state.spent.usage
        if not (usage.input or usage.output) and any(self._counts_usage(limit) for limit in limits):
            yield UNCOUNTED
        if state.at == state.lineage.at and self._times():
            yield UNTIMED

    def _hurries(self) -> bool:
        """Whether other retries seem to come as soon as those that were recorded: how soon that was no source says."""
        one, other = self._recorded.state, self._derived.state
        at_once = other.backoff is not None and other.backoff.until == other.at
        return at_once and one.policy.retry != other.policy.retry

    def _counts_usage(self, limit: Limit) -> bool:
        counts = isinstance(limit, TokenLimit) and measure_of(limit) == "usage"
        return counts and limit.value is not None and not self._in_force(limit)
