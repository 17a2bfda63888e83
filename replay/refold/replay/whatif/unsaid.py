"""What a record does not say, and where a rule of the other policy would have needed it: unknown is never zero.

An engine counts what it uses, and offers what it has. A transcript of another agent may lack the tools, the tokens, the
prices, the times, or have them of some answers only. What is folded of it is a least: so many tokens were used, or more;
so late it was, or later. Each rule that looks at such a thing leaves a doubt, and what is said of the run goes no
further than that, but for one thing: a limit that the least of it reaches already was reached, here at the latest.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from refold.reducers.events import (
    ApprovalAnswered,
    Diagnosed,
    Event,
    Fact,
    InputReceived,
    Manifest,
    ModelFailed,
    ModelResponded,
    RunForked,
    RunStarted,
    SourceRecorded,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.guards.common import begins
from refold.reducers.guards.duty import judged
from refold.reducers.guards.pivot import Pivot
from refold.reducers.guards.premature_end import PrematureEnd
from refold.reducers.guards.protocol import Place, Stop
from refold.reducers.history import Pass, planned
from refold.reducers.history.token_tail import Room, TokenTail
from refold.reducers.history.when import Share
from refold.reducers.limits import (
    CostLimit,
    Limit,
    Scope,
    TimeLimit,
    TokenLimit,
    check_of,
    measure_of,
    name_of,
)
from refold.reducers.messages import Usage
from refold.reducers.rules.flow import Check, FirstOf, WithoutCalls
from refold.reducers.rules.guarding import Guards
from refold.reducers.rules.limiting import Limits
from refold.reducers.rules.pruning import history, scene_of
from refold.reducers.rules.recovering import silent_stream
from refold.reducers.rules.requesting import request
from refold.reducers.state import RunState, Watch
from refold.reducers.usage import deadline
from refold.reducers.vocabulary import SOURCE_LABEL, Replay, StopReason
from refold.replay.importers.stops import is_known
from refold.replay.source_words import HOSTED, UNCALLED
from refold.replay.whatif.shown import Side
from refold.replay.whatif.verdict import UNCOUNTED, UNPRICED, UNTIMED

Effect = Literal["stops", "asks", "rests"]
"""What may be otherwise: the run may have ended by then; or something else have been asked of the world; or else what was
derived rests on it, and is no proof of anything."""

_SCOPES: tuple[Scope, ...] = ("turn", "run", "lineage")
_MARK_NO_FAILURES = frozenset(
    {"atif", "swe_agent", "tau_bench"}
)  # formats whose results do not say that they failed
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
_OWN_TIME = re.compile(r'^\{"at":\d+\}\Z', re.MULTILINE)
_HEAVY = 2**53  # tokens: more than any tools weigh, and any context holds


class Doubt(msgspec.Struct, frozen=True):
    """Something that a rule needed after the fact at event `seq`, and that the record does not say."""

    seq: int
    why: str
    effect: Effect
    after: RunState | None  # the other run behind that fact


class Unsaid:
    """Follows a recorded run and the other one, and remembers what was in doubt.

    `reported` is the last answer of which the source says that its tokens are the provider's own count, `still` the first
    fact since time last moved that may have been later than it says, 0: none.
    """

    def __init__(self, recorded: Side, derived: Side) -> None:
        self._recorded, self._derived = recorded, derived
        self._doubts: dict[tuple[str, Effect], int] = {}  # each once, by the first fact that left it
        self._first: RunState | None = None  # the other run behind the first of them
        self._stood: RunState | None = None  # and behind the fact `still`
        self._imported = self._listed = self._failed = False
        self._lost = ""  # what of the source is in no fact
        self._marks_failures = True
        self._tools: tuple[Manifest, ...] = ()
        self._uncounted: set[Scope] = set()
        self._unpriced: set[Scope] = set()
        self._seq = self._reported = self._timed = self._still = 0

    def hear(self, event: Event) -> None:
        """What its source says of a fact, right behind it: how good its numbers are, and whether it says when it was."""
        if isinstance(event, Diagnosed) and event.code not in _SAID_ALL_THE_SAME:
            self._lost = (
                self._lost or f"the source was not wholly read, or has more than is told of it: {event.code}"
            )
        if isinstance(event, SourceRecorded) and event.what == UNCALLED:
            self._lost = self._lost or "the record has results of calls that it does not have"
        if isinstance(event, SourceRecorded) and event.what == HOSTED:
            self._lost = (
                self._lost
                or "the source has calls that are in no fact: the provider ran them, or nobody knows"
            )
        if isinstance(event, SourceRecorded) and event.seq:
            said = event.content.text if event.content else ""
            self._reported = event.seq if said.startswith("usage reported") else self._reported
            self._timed = event.seq if _OWN_TIME.search(said) else self._timed

    def pass_time(self, until: int) -> None:
        """Time is about to pass. What was begun at no known instant is promised its least from no known instant on."""
        state = self._derived.state
        trips = deadline(state) if self._still and self._times() else None
        if trips is not None and trips <= until and state.policy.call_timeout.nanoseconds:
            self._first = self._first or self._stood
            self._doubts.setdefault((UNTIMED, "rests"), self._still)

    def take(self, seq: int, fact: Fact) -> None:
        """A fact that both runs are about to see."""
        self._seq = seq
        if isinstance(fact, RunStarted):
            self._imported, self._tools = SOURCE_LABEL in fact.labels, fact.tools
            self._listed = bool(fact.tools)
            self._marks_failures = fact.labels.get(SOURCE_LABEL) not in _MARK_NO_FAILURES
        elif isinstance(fact, RunForked):
            self._forked()
        begun = {scope for scope in _SCOPES if begins(scope, fact)}
        self._uncounted -= begun
        self._unpriced -= begun
        if isinstance(fact, ModelResponded | SummaryReturned) and not self._counted(fact):
            self._uncounted.update(_SCOPES)
            if fact.cost_nanousd is None:  # a price of part of its tokens is a least
                self._unpriced.update(_SCOPES)
        if isinstance(fact, ModelResponded) and self._minds_stop_of(fact):
            why = f"the record does not say what it means that an answer stopped by {fact.stop_raw[:40]!r}"
            self._doubts.setdefault((why, "rests"), seq)
        self._failed = isinstance(fact, ModelFailed) and self._imported
        if self._failed:  # no source counts what a request took that failed
            self._uncounted.update(_SCOPES)
            self._unpriced.update(_SCOPES)
        if isinstance(fact, ModelResponded) and self._imported:
            self._called(fact)
        if (
            isinstance(fact, ToolReturned)
            and fact.error is None
            and self._imported
            and not self._marks_failures
        ):
            self._returned()
        self._follow_time(seq, fact)

    def _minds_stop_of(self, fact: ModelResponded) -> bool:
        """Whether nobody knows why an answer stopped, and the other policy asks. What our engine was told it knows."""
        if not self._imported or fact.stop is not StopReason.OTHER or is_known(fact.stop_raw):
            return False
        one, other = self._recorded.state.policy, self._derived.state.policy
        ends = any(isinstance(watch.guard, PrematureEnd) for watch in self._derived.state.guards)
        return ends or one.truncation != other.truncation

    def _forked(self) -> None:
        """What follows is of an engine of ours: it says what it does, and what it offers."""
        if self._imported:
            self._imported = False
            self._offer(self._tools)

    def _offer(self, tools: tuple[Manifest, ...]) -> None:
        for side in (self._recorded, self._derived):
            side.state = replace(side.state, setup=replace(side.state.setup, tools=tools))

    def _counted(self, fact: ModelResponded | SummaryReturned) -> bool:
        """What our engine was told is what its limits count. A source has to say that it is the provider's own count."""
        return not self._imported or (self._seq == self._reported and fact.usage != Usage())

    def _called(self, fact: ModelResponded) -> None:
        """A tool that was called existed, whether or not the source lists it: it is judged as one that was offered."""
        tools = self._derived.state.setup.tools
        names = {tool.name for tool in tools}
        new = dict.fromkeys(call.name for call in fact.calls if call.name not in names)
        if new:
            self._listed = False
            self._offer((*tools, *(Manifest(name=name) for name in new)))

    def _returned(self) -> None:
        """A call that did not fail, or did: a guard that is shown results may count either."""
        for watch in self._derived.state.guards:
            if watch.guard is not None and ToolReturned in watch.guard.observes:
                why = f"guard {watch.name}: the record does not say which calls failed"
                self._doubts.setdefault((why, "rests"), self._seq)

    def _follow_time(self, seq: int, fact: Fact) -> None:
        """Whether this has a time of its own. What has none stands at the instant of what came before it."""
        before = self._recorded.state
        if not self._imported or seq == 1:
            self._still = 0
            return
        if isinstance(fact, ModelResponded | ModelFailed) and fact.at == before.lineage.at:
            self._untimed("rests" if self._by_first_response() else "stops")
        if isinstance(fact, InputReceived | ApprovalAnswered) and before.asked_at is not None:
            # A wait that seems too short makes the agent's own time too long, one that seems too long makes it a least.
            if fact.at == before.asked_at and seq != self._timed:
                self._untimed("rests")
            elif self._still:
                self._untimed("stops")
        self._still = 0 if fact.at > before.at or seq == self._timed else self._still or seq

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
            self._doubts.setdefault((UNTIMED, effect), self._seq)

    def done(self) -> None:
        """Both runs have taken the fact."""
        if self._lost and self._differs():
            self._doubts.setdefault((self._lost, "rests"), self._seq)
        if self._failed and self._hurries():
            self._doubts.setdefault((_PAUSES, "asks"), self._seq)
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

    def look(self, check: Check, state: RunState) -> None:
        """A check that is made of the other run, before it is made."""
        for doubt in self._looked(check, state):
            self._doubts.setdefault(doubt, self._seq)

    def _looked(self, check: Check, state: RunState) -> Iterator[tuple[str, Effect]]:
        if isinstance(check, FirstOf | WithoutCalls):
            for inner in check.checks:
                yield from self._looked(inner, state)
        elif isinstance(check, Limits):
            for limit in check.among(state):
                yield from self._limited(limit, state)
        elif check is request:
            yield from self._pressed(state)
        if not self._imported:
            return
        if isinstance(check, Guards):
            yield from _guarded(check.place, state)
        elif check is history:
            for step in state.policy.history:
                yield from self._pruned(step, state)
        elif check is silent_stream and state.policy.stream and state.answer and state.answer.silent:
            yield "an answer of nothing: the record does not say whether its stream broke", "rests"

    def _limited(self, limit: Limit, state: RunState) -> Iterator[tuple[str, Effect]]:
        why = self._missing(limit, state)
        if why:
            grace = state.policy.grace
            granted = grace is not None and name_of(limit) in grace.on and check_of(limit) == "preflight"
            yield why, "asks" if granted else "stops"

    def _missing(self, limit: Limit, state: RunState) -> str:
        """What of what the limit counts is not known."""
        if limit.value is None or self._in_force(limit):
            return ""
        if self._counts_usage(limit):
            return UNCOUNTED if limit.scope in self._uncounted else ""
        if isinstance(limit, CostLimit) and limit.unpriced == "refuse":
            unpriced = state.spent.unpriced > state.mark(limit.scope).spent.unpriced
            return UNPRICED if unpriced or limit.scope in self._unpriced else ""
        return ""

    def _counts_usage(self, limit: Limit) -> bool:
        counts = isinstance(limit, TokenLimit) and measure_of(limit) == "usage"
        return counts and limit.value is not None and not self._in_force(limit)

    def _pressed(self, state: RunState) -> Iterator[tuple[str, Effect]]:
        """The model is told how near a limit is."""
        knob = state.policy.pressure
        limit = next((each for each in state.policy.limits if knob and name_of(each) == knob.of), None)
        if limit is None:
            return
        why = UNTIMED if isinstance(limit, TimeLimit) and self._still else self._missing(limit, state)
        if why:
            yield why, "asks"

    def _pruned(self, step: Pass, state: RunState) -> Iterator[tuple[str, Effect]]:
        """Whether a pass would leave out, or shorten, something else if what it asks after were not as it seems."""
        scene = scene_of(state, forced=False)
        other, missing = scene, list[str]()
        if isinstance(step.when.tokens, Share) and scene.context is None:
            other, missing = replace(other, context=1), [*missing, "how large the model's context was"]
        if step.when.model and not scene.model:
            other, missing = replace(other, model=step.when.model[0]), [*missing, "which model was asked"]
        if isinstance(step, TokenTail) and _minus_tools(step) and not self._listed:
            other, missing = replace(other, tools=_HEAVY), [*missing, "what the tools weighed"]
        if missing and planned(scene, step) != planned(other, step):
            yield f"pass {step.name}: the record does not say {' or '.join(missing)}", "asks"


def _minus_tools(step: TokenTail) -> bool:
    return isinstance(step.budget, Room) and step.budget.minus_tools


def _guarded(place: Place, state: RunState) -> Iterator[tuple[str, Effect]]:
    """Whether a guard would say something else of tools that only read, or of one more of them: no source lists classes."""
    for watch in state.guards:
        if watch.guard is None or watch.blind or place not in watch.guard.places:
            continue
        said = judged(watch, state, place)
        more = [each for each in judged(watch, _with_other_tools(state, watch), place) if each not in said]
        if more:
            why = f"guard {watch.name}: the record does not say which tools there were, or which of them only read"
            yield why, "stops" if all(isinstance(each, Stop) for each in more) else "asks"


def _with_other_tools(state: RunState, watch: Watch) -> RunState:
    tools = [replace(tool, replay=Replay.READ_ONLY) for tool in state.setup.tools]
    if isinstance(watch.guard, Pivot):
        tools.append(Manifest(name=watch.guard.to))
    return replace(state, setup=replace(state.setup, tools=tuple(tools)))
