"""What a run has used of each limit, as plain sums over its log, and by how much a limit may be overshot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from refold.reducers.events import (
    ChildEnded,
    ContextOverflowed,
    Event,
    Fact,
    HistoryPruned,
    InputReceived,
    MessageInjected,
    MessageTrimmed,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PolicyAmended,
    RetryScheduled,
    RunForked,
    RunResumed,
    RunStarted,
    StateChanged,
    SummaryRequested,
    SummaryReturned,
)
from refold.reducers.limits import (
    CostLimit,
    Limit,
    MessageLimit,
    Scope,
    StepLimit,
    TimeLimit,
    TokenLimit,
    check_of,
    measure_of,
    threshold,
)
from refold.reducers.machine import AgentState
from refold.reducers.state import RunState

_SCOPES: tuple[Scope, ...] = ("turn", "run", "lineage")
_WAITING = AgentState.WAITING_FOR_INPUT


@dataclass
class Sums:
    """Since a scope began at the instant `start`; times in nanoseconds."""

    start: int = 0
    first_response: int | None = None
    tokens: int = 0
    cost: int = 0
    steps: int = 0
    free: int = 0
    person: int = 0
    down: int = 0
    planned: int = 0
    succeeded: int = 0
    settled: int = 0


class Ledger:
    """Takes a log event by event. `fresh` says whether the latest request began a step."""

    def __init__(self, free_tools: frozenset[str] = frozenset()) -> None:
        self.sums: dict[Scope, Sums] = {scope: Sums() for scope in _SCOPES}
        self.at = 0
        self.free_tools = free_tools
        self.fresh = self.again = False
        self.asked: int | None = None  # since when a person is
        self.retried: int | None = None  # since when another try is waited for
        self.step_waits = self.open_waits = 0

    def take(self, event: Event) -> None:
        """One more event."""
        self.at = event.at if isinstance(event, Fact) else self.at
        for scope in _SCOPES:
            if isinstance(event, RunStarted) or _begins(scope, event):
                self.sums[scope] = Sums(start=self.at)
        self._spent(event)
        self._stepped(event)
        self._waited(event)

    def _add(self, name: str, amount: int) -> None:
        for sums in self.sums.values():
            setattr(sums, name, getattr(sums, name) + amount)

    def _spent(self, event: Event) -> None:
        if isinstance(event, ModelResponded | ModelFailed | SummaryReturned | ChildEnded):
            self._add("tokens", event.usage.input + event.usage.output)
            self._add("cost", event.cost_nanousd or 0)

    def _stepped(self, event: Event) -> None:
        match event:
            case ModelRequested():
                self.fresh = event.purpose == "step" and not self.again
                self.again = False
                self._add("steps", self.fresh)
            case RetryScheduled(cause=cause):
                self.again = cause != "stream"
            case ContextOverflowed(uncounted_steps=steps):
                self._add("steps", -steps)
            case ModelResponded(calls=calls) if calls and {call.name for call in calls} <= self.free_tools:
                self._add("free", 1)
            case _:
                pass

    def _waited(self, event: Event) -> None:
        match event:
            case RetryScheduled(delay=delay):
                self._add("planned", delay)
                self.retried = self.at
            case ModelResponded():
                self._add("succeeded", self.step_waits)
                self._add("settled", self.open_waits)
                self.step_waits = self.open_waits = 0
                for sums in self.sums.values():
                    sums.first_response = self.at if sums.first_response is None else sums.first_response
            case StateChanged(source=source, target=target) if _WAITING in (source, target):
                self._add("person", 0 if self.asked is None else self.at - self.asked)
                self.asked = self.at if target is _WAITING else None
            case RunResumed(downtime=downtime) if self.asked is None:
                self._add("down", downtime)
            case _:
                pass
        if isinstance(event, ModelRequested):
            waited = 0 if self.retried is None else self.at - self.retried
            self.retried, self.open_waits = None, self.open_waits + waited
            self.step_waits = 0 if self.fresh else self.step_waits + waited

    def used(self, limit: Limit, state: RunState) -> int:
        """What the limit counts; the window is the state's."""
        sums = self.sums[limit.scope]
        match limit:
            case StepLimit():
                return sums.steps - (sums.free if limit.free_tools else 0)
            case TimeLimit():
                return self._elapsed(limit, sums)
            case MessageLimit():
                return state.window.count
            case CostLimit():
                return sums.cost
            case TokenLimit():
                return state.window.tokens if measure_of(limit) == "estimate" else sums.tokens

    def _elapsed(self, limit: TimeLimit, sums: Sums) -> int:
        start = sums.start if limit.clock == "start" else sums.first_response
        if start is None:
            return 0
        credit = limit.credit
        waits = {
            "none": 0,
            "planned": sums.planned,
            "on_success": sums.succeeded,
            "on_next_success": sums.settled,
        }
        away = (sums.person if credit.person else 0) + (sums.down if credit.downtime else 0)
        return self.at - start - away - waits[credit.retry]


def _begins(scope: Scope, event: Event) -> bool:
    return (scope == "turn" and isinstance(event, InputReceived)) or (
        scope != "lineage" and isinstance(event, RunForked)
    )


def overshot(log: Sequence[Event], states: Sequence[RunState]) -> Iterator[str]:
    """Where a limit was overshot by more than its own bound, under a policy that never changed.

    - `preflight`: no step and, but for a `time` limit, no summary begins once it trips. Tokens and money are
      then overshot by no more than one step, all its attempts together, or one summary; steps by none (with
      `>` by one, which is what it says); messages and estimated tokens by what one step brings, time by what
      is in flight.
    - `response`, of tokens and money: nothing more is charged once it trips. It is overshot by no more than
      the one event that crossed it: an answer, a failure, a summary.
    - `response`, else: no step follows an answer at which it trips. So steps and messages are overshot by
      none but those that failed since.
    - `response_deferred`: no answer follows the one after which it trips.
    - Either way what child runs spend counts when they have ended: those of the open batch come on top.

    `states[i]` is the state after `log[i]`.
    """
    start = next(event for event in log if isinstance(event, RunStarted))
    if any(isinstance(event, PolicyAmended) or getattr(event, "policy", None) for event in log[1:]):
        return
    for limit in start.policy.limits:
        if threshold(limit) is not None:
            yield from _overshot(log, states, limit)


def _overshot(log: Sequence[Event], states: Sequence[RunState], limit: Limit) -> Iterator[str]:
    ledger, check = Ledger(frozenset(getattr(limit, "free_tools", ()))), check_of(limit)
    most = (threshold(limit) or 0) + (limit.op == ">")
    charges = isinstance(limit, CostLimit) or (isinstance(limit, TokenLimit) and measure_of(limit) == "usage")
    looked, prepared, over = 0, False, False
    for seq, event in enumerate(log, 1):
        before = ledger.used(limit, states[max(0, seq - 2)])
        ledger.take(event)
        begins = isinstance(event, SummaryRequested) or (isinstance(event, ModelRequested) and ledger.fresh)
        answers = isinstance(event, ModelResponded)
        late = {
            "preflight": begins and looked >= most,
            "response": over and begins and not isinstance(event, SummaryRequested),
            "response_deferred": over and answers,
        }[check]
        now = ledger.used(limit, states[seq - 1])
        if charges and check == "response":
            # At 0 nobody looks before the first answer.
            late = now > before >= max(1, most) and not isinstance(
                event, ChildEnded | InputReceived | RunForked
            )
        if late:
            yield f"{limit.name} ({check} {limit.op} {limit.value}): {looked} used before event {seq}, {event}"
        over = over or (answers and now >= most)
        prepared = _prepares(event) or (prepared and not isinstance(event, Fact))
        looked = looked if prepared or begins else now


def _prepares(event: Event) -> bool:
    """Whether it belongs to what is done for a request after its limits were looked at: P6 and later."""
    match event:
        case MessageInjected(cause="progress") | MessageTrimmed():
            return True
        case MessageInjected(gap=gap):
            return gap is not None and not gap.source
        case HistoryPruned(reason=reason):
            return reason != "summary"
        case _:
            return False
