"""The state of a run.

Numbers are integers: nanoseconds, nano-dollars, tokens.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from refold.reducers import events as ev
from refold.reducers.estimate import ESTIMATORS
from refold.reducers.limits import LimitHit, Scope, TimeLimit
from refold.reducers.machine import INITIAL, AgentState, Trigger
from refold.reducers.messages import Usage
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Cause, Doubt, Ranges, ToolError, Value
from refold.reducers.window import MessageRef, Window

_ENCODER = msgspec.json.Encoder(order="deterministic")


def offer_digest(model: str, settings: dict[str, str], tools: Sequence[ev.Manifest]) -> str:
    """Return hex SHA-256 of the model, its settings and the tools."""
    return hashlib.sha256(_ENCODER.encode((model, settings, tools))).hexdigest()


def estimate_tools(estimator: str, tools: Sequence[ev.Manifest]) -> int:
    """Estimate the tokens that the tools take in each request."""
    weigh = ESTIMATORS[estimator].tool
    return sum(weigh(tool.name, tool.description, tool.schema) for tool in tools)


_NO_USAGE = Usage()


class Setup(ev.RunStarted, frozen=True, kw_only=True, tag="run_started", dict=True, gc=True):
    """The configuration of a run: `run_started` without messages, as changed by forks and amendments."""

    @cached_property
    def offer(self) -> str:
        """The digest of what each request has besides messages: model, settings, tools."""
        return offer_digest(self.model, self.settings, self.tools)

    @cached_property
    def tools_tokens(self) -> int:
        """The estimated tokens of the tools in a request."""
        return estimate_tools(self.policy.estimator, self.tools)

    @cached_property
    def timed(self) -> tuple[TimeLimit, ...]:
        """The time limits that have a value, in the policy's order."""
        return tuple(
            [
                limit
                for limit in self.policy.limits
                if isinstance(limit, TimeLimit) and limit.value is not None
            ]
        )

    @cached_property
    def checks(self) -> dict[Any, Any]:
        """The checks that rules bound to this policy, see `rules.order`. Not part of the value."""
        return {}


class Spent(Value, frozen=True, kw_only=True):
    """What the run has used. `unpriced` counts responses without a known cost; times are nanoseconds.

    `tally` counts recurring events by cause and name: each text of the harness, each reaction to a failure,
    each warning. So "at most twice a turn" compares two tallies. Waits for another attempt: `planned`,
    `succeeded` (of requests that succeeded in the end), `settled` (all waits until the last success).
    """

    steps: int = 0
    requests: int = 0
    calls: int = 0
    usage: Usage = Usage()
    cost_nanousd: int = 0
    unpriced: int = 0
    retry_wait: int = 0
    person_wait: int = 0
    downtime: int = 0
    tally: dict[Cause, dict[str, int]] = {}
    planned_wait: int = 0
    succeeded_wait: int = 0
    settled_wait: int = 0

    def count(self, cause: Cause, name: str = "") -> int:
        """Return how often `cause` was counted for `name`."""
        named = self.tally.get(cause)
        return named.get(name, 0) if named else 0


class Mark(Value, frozen=True, kw_only=True):
    """The start of a scope: the instant, the spending until then, and the instant of its first response."""

    at: int = 0
    spent: Spent = Spent()
    first_response: int | None = None


DecisionT = TypeVar("DecisionT", bound=ev.Decision)
EventT = TypeVar("EventT", bound=ev.Fact | ev.Decision)


class Remembered(Value, Generic[EventT], frozen=True, kw_only=True):
    """An event that later decisions depend on: event `seq`, without its content."""

    seq: int
    event: EventT


class Pending(Remembered[DecisionT], Generic[DecisionT], frozen=True, kw_only=True):
    """A decision that waits for its fact, made at the instant `at`.

    `until` is its deadline as an instant, None if it has none or the deadline has passed. Time in which no
    engine had the run moves it.
    """

    at: int
    until: int | None


class CallState(ev.Call, frozen=True, kw_only=True):
    """A call of the open batch, at its `position` (from 0), with a reference to its result once it has one.

    `dispatched` is the event that started it, 0 before. `in_doubt`: a crash hid its outcome; `doubt` is what
    was found out since, `reconciled`: by its own tool. `edited` is the event whose content has arguments that
    an approver set in place of the model's; `rejected`: an approver refused it. `begun_in` is the run that
    started it, "" for this run; in a fork, calls in progress at the cut belong to the parent.
    """

    position: int
    dispatched: int = 0
    in_doubt: bool = False
    doubt: Doubt | None = None
    reconciled: bool = False
    error: ToolError | None = None
    hidden: bool = False
    rejected: bool = False
    edited: int = 0
    result: MessageRef | None = None
    begun_in: str = ""


class Batch(Value, frozen=True, kw_only=True):
    """The calls of the response at event `seq`, message `number`, in order, until each has its result.

    `until` as in `Pending`.
    """

    seq: int
    number: int
    calls: tuple[CallState, ...]
    until: int | None = None

    def open_call(self, call: str) -> CallState | None:
        """Return the call with this id, if it has no result yet."""
        for each in self.calls:
            if each.id == call and each.result is None:
                return each
        return None


class Observed(Value, frozen=True, kw_only=True):
    """Changes that an imported run's harness made to the window since the last request.

    Of the first `upto` messages, the ranges `kept` stayed, None for all. `joining` are messages to add when
    the batch ends: each right after the message with the given number (0: at the front), None: at the end.
    """

    upto: int = 0
    kept: Ranges | None = None
    joining: tuple[tuple[MessageRef, int | None], ...] = ()


class Stopping(Value, frozen=True, kw_only=True):
    """The end of a run that follows once everything in flight has reported."""

    trigger: Trigger
    code: str
    reason: str
    where: str


class LastAnswer(Remembered[ev.ModelResponded], frozen=True, kw_only=True):
    """The model's latest response, to the request `asked`, which has no content either.

    `ran`: one of its calls was dispatched. `empties` is the number of empty responses in a row that were
    asked for again, `graces` the number of responses to grace requests in a row, including this one.
    `ignored`: the last response to a pressure tier had calls and no text.
    """

    asked: ev.ModelRequested
    ran: bool = False
    empties: int = 0
    graces: int = 0
    ignored: bool = False

    @property
    def blank(self) -> bool:
        """Whether it has no visible text. For a grace request, text of only reasoning tags counts as none."""
        return self.event.blank or (self.asked.purpose == "grace" and self.event.blank_outside_think)

    @property
    def silent(self) -> bool:
        """Whether it had no text, no calls and no usage."""
        return self.blank and not self.event.calls and self.event.usage == _NO_USAGE


class LastFailure(Remembered[ev.ModelFailed], frozen=True, kw_only=True):
    """A failed request, with what it asked. Its step has no response yet."""

    asked: Pending[ev.ModelRequested]


class Outcome(Remembered[ev.StateChanged], frozen=True, kw_only=True):
    """How the run ended, in step `step`; `source` is the origin of its text.

    The text is the content of event `answer`, if there is one, after those of `parts`.
    """

    step: int
    source: str
    answer: int | None = None
    parts: tuple[int, ...] = ()

    @property
    def code(self) -> str:
        """The stable name of the reason."""
        return self.event.code

    @property
    def reason(self) -> str:
        """The reason as a sentence."""
        return self.event.reason


class Watch(Value, frozen=True, kw_only=True):
    """An active guard: its configuration, its own state, and whether it works.

    `guard` is None if no guard of this name is installed. `blind`: it needed content that is missing, or its
    code failed; from then on its verdicts are unknown.
    """

    name: str
    kind: str
    version: int = 0
    guard: Any = None
    own: Any = None
    blind: str = ""


_UNSTARTED = Setup(format=ev.FORMAT, at=0, run="", rules=0, policy=Policy(), model="")


class RunState(Value, frozen=True, kw_only=True):
    """The state computed from the log. `seq` and `at` are the last event's.

    `digested` is the seq of the last state digest. `fact_at` is the instant of the last fact: annotations
    after it take no time of the run. `model` is asked in place of the run's model, "" for the run's own.
    `parts` are the events of partial responses that the next response continues. `failed_at` is when the step
    first failed. `overflowed`: the context was too long and the next request is not made yet; `eased`: the
    window was cut since. `pruned_by`: the compaction step whose summary arrived since the last request.
    `summed_up`: the result of the requested summary. `deferred`: a limit that ends the run after the batch.
    `unattended`: the last writer started no effects. `no_request`: the source of an imported run ends here,
    before a request that it does not record.
    """

    setup: Setup = _UNSTARTED
    seq: int = 0
    at: int = 0
    fact_at: int = 0
    agent_state: AgentState = INITIAL
    came_from: AgentState | None = None
    window: Window = Window()
    messages: int = 0
    digested: int = 0
    spent: Spent = Spent()
    lineage: Mark = Mark()
    origin: Mark = Mark()
    turn: Mark = Mark()
    step: Mark = Mark()
    model: str = ""
    parts: tuple[int, ...] = ()
    failed_at: int | None = None
    overflowed: bool = False
    eased: bool = False
    pruned_by: str = ""
    deferred: LimitHit | None = None
    summary: Pending[ev.SummaryRequested] | None = None
    summed_up: Remembered[ev.SummaryReturned | ev.ModelFailed] | None = None
    approval: Pending[ev.ApprovalRequested] | None = None
    observed: Observed | None = None
    request: Pending[ev.ModelRequested] | None = None
    batch: Batch | None = None
    backoff: Pending[ev.RetryScheduled] | None = None
    asked_at: int | None = None
    stopping: Stopping | None = None
    answer: LastAnswer | None = None
    failure: LastFailure | None = None
    limit: LimitHit | None = None
    outcome: Outcome | None = None
    guards: tuple[Watch, ...] = ()
    unattended: bool = False
    no_request: bool = False

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.setup.policy

    @property
    def ended(self) -> bool:
        """Whether the agent is in a terminal state."""
        return self.agent_state.terminal

    def mark(self, scope: Scope) -> Mark:
        """Return the start of `scope`: the latest turn, this run (in a fork, its start), or the log."""
        if scope == "run":
            return self.origin
        return self.turn if scope == "turn" else self.lineage

    def count(self, cause: Cause, scope: Scope, name: str = "") -> int:
        """Return how often `cause` was counted for `name` since `scope` began."""
        return self.spent.count(cause, name) - self.mark(scope).spent.count(cause, name)


NEW = RunState()
