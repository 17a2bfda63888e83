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
    """Hex SHA-256 of an offer."""
    return hashlib.sha256(_ENCODER.encode((model, settings, tools))).hexdigest()


def weight(estimator: str, tools: Sequence[ev.Manifest]) -> int:
    """The estimated tokens of what is said of the tools in each request."""
    weigh = ESTIMATORS[estimator].tool
    return sum(weigh(tool.name, tool.description, tool.schema) for tool in tools)


_NO_USAGE = Usage()


class Setup(ev.RunStarted, frozen=True, kw_only=True, tag="run_started", dict=True, gc=True):
    """What a run goes by: its `run_started`, without the messages, as forks and amendments have changed
    it.
    """

    @cached_property
    def offer(self) -> str:
        """A digest of what stands beside the messages of every request: the model, its settings, the
        tools.
        """
        return offer_digest(self.model, self.settings, self.tools)

    @cached_property
    def tools_tokens(self) -> int:
        """The estimate of what the tools weigh in a request."""
        return weight(self.policy.estimator, self.tools)

    @cached_property
    def timed(self) -> tuple[TimeLimit, ...]:
        """The time limits that are not unlimited, in the policy's order."""
        return tuple(
            [
                limit
                for limit in self.policy.limits
                if isinstance(limit, TimeLimit) and limit.value is not None
            ]
        )

    @cached_property
    def checks(self) -> dict[Any, Any]:
        """Where the rules keep what they bound to this policy: see `rules.order`. No part of the value."""
        return {}


class Spent(Value, frozen=True, kw_only=True):
    """What was used up. `unpriced` counts answers without a known cost; times are nanoseconds.

    `tally` counts what recurs, by its cause and then by whose it is: each text of the harness, each reaction
    to a failure, each warning. So "at most twice a turn" is a difference of two tallies. Of the waits for
    another try: `planned`, `succeeded` (of requests that succeeded in the end), `settled` (all until the last
    success).
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
        """How often `cause` was tallied, of `name`."""
        named = self.tally.get(cause)
        return named.get(name, 0) if named else 0


class Mark(Value, frozen=True, kw_only=True):
    """Where a scope begins: the instant, and what had been spent until then; when its first response came."""

    at: int = 0
    spent: Spent = Spent()
    first_response: int | None = None


DecisionT = TypeVar("DecisionT", bound=ev.Decision)
EventT = TypeVar("EventT", bound=ev.Fact | ev.Decision)


class Remembered(Value, Generic[EventT], frozen=True, kw_only=True):
    """What a later decision goes by: event `seq`, without its content."""

    seq: int
    event: EventT


class Pending(Remembered[DecisionT], Generic[DecisionT], frozen=True, kw_only=True):
    """A decision that waits for its fact: decided at the instant `at`.

    `until` is the instant at which its time is over, None where there is none, or it is over: it is moved by
    the time that no engine had the run.
    """

    at: int
    until: int | None


class CallState(ev.Call, frozen=True, kw_only=True):
    """A call of the open batch, at its `position` (from 0), and the reference of its result once it has one.

    `dispatched` is the event that started it, 0 before. `in_doubt`: a crash hid how it ended; `doubt` is what
    is known of that since, `reconciled` that its own tool said so. `edited` is the event whose content has
    the arguments that a person put in place of the model's; `rejected`: a person said no. `begun_in` is the
    run that began it, "" for this one: in a fork the calls that were under way at the cut are the parent's.
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
    """The calls of the answer at event `seq`, message `number`, in call order, until each has its result.

    `until` as in `Pending`.
    """

    seq: int
    number: int
    calls: tuple[CallState, ...]
    until: int | None = None

    def open_call(self, call: str) -> CallState | None:
        """The call of this id, if it has no result yet."""
        for each in self.calls:
            if each.id == call and each.result is None:
                return each
        return None


class Observed(Value, frozen=True, kw_only=True):
    """What an imported run's harness did to the window since the last request.

    Of the first `upto` messages of the run the ranges `kept` stayed, None: all. `joining` wait for the
    batch's end: each joins the window right behind the message that is named (0: in front), None: at the end.
    """

    upto: int = 0
    kept: Ranges | None = None
    joining: tuple[tuple[MessageRef, int | None], ...] = ()


class Stopping(Value, frozen=True, kw_only=True):
    """The run is to end this way as soon as everything in flight has reported."""

    trigger: Trigger
    code: str
    reason: str
    where: str


class LastAnswer(Remembered[ev.ModelResponded], frozen=True, kw_only=True):
    """The model's latest answer, to the request `asked`, which is without its content, too.

    `ran`: one of its calls was dispatched. `empties` is how often in a row an empty answer was asked for
    again, `graces` how many answers to a grace request came in a row, this one included. `ignored`: the last
    answer to a tier of pressure had calls and no text.
    """

    asked: ev.ModelRequested
    ran: bool = False
    empties: int = 0
    graces: int = 0
    ignored: bool = False

    @property
    def blank(self) -> bool:
        """Whether nothing of its text is shown: a last word of nothing but thoughts is none."""
        return self.event.blank or (self.asked.purpose == "grace" and self.event.hollow)

    @property
    def silent(self) -> bool:
        """Whether it had neither text, calls nor usage."""
        return self.blank and not self.event.calls and self.event.usage == _NO_USAGE


class LastFailure(Remembered[ev.ModelFailed], frozen=True, kw_only=True):
    """A request that failed, and what it had asked: the step is not answered yet."""

    asked: Pending[ev.ModelRequested]


class Outcome(Remembered[ev.StateChanged], frozen=True, kw_only=True):
    """How the run ended, in step `step`; `source` is where its text is from.

    The text, if there is one, is in the content of event `answer`, after those of `parts`.
    """

    step: int
    source: str
    answer: int | None = None
    parts: tuple[int, ...] = ()

    @property
    def code(self) -> str:
        """The stable name of why it ended."""
        return self.event.code

    @property
    def reason(self) -> str:
        """Why it ended, as a sentence."""
        return self.event.reason


class Watch(Value, frozen=True, kw_only=True):
    """A guard on duty: its configuration, its own state, and whether it can do its work.

    `guard` is None if nothing by that name is installed. `blind`: it needed content that is not there, or
    its own code failed; from then on nothing is known of what it would have said.
    """

    name: str
    kind: str
    version: int = 0
    guard: Any = None
    own: Any = None
    blind: str = ""


_UNSTARTED = Setup(format=ev.FORMAT, at=0, run="", rules=0, policy=Policy(), model="")


class RunState(Value, frozen=True, kw_only=True):
    """All that the log says, folded. `seq` and `at` are the last event's, `digested` the last state digest's
    seq; `fact_at` is the last fact's instant: what is noted later takes no time of the run.

    `model` is asked instead of the run's, "" if it is that one; `parts` are the events of partial answers
    that the next one goes on from; `failed_at` is when the step first failed. `overflowed`: the context was
    too long, and the request that follows is not made yet, `eased` that its window was cut since;
    `pruned_by`: the pass whose summary came back since the last request. `summed_up`: what came of the
    summary that was asked for. `deferred`: a limit that ends the run once the batch is done. `unattended`:
    who wrote last began nothing of it. `unasked`: the source of an imported run ends here, with a request
    that it does not show.
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
    unasked: bool = False

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.setup.policy

    @property
    def ended(self) -> bool:
        """Whether the agent is in a terminal state."""
        return self.agent_state.terminal

    def mark(self, scope: Scope) -> Mark:
        """Where `scope` begins: the latest turn, this run (in a fork since the fork), or the whole log."""
        if scope == "run":
            return self.origin
        return self.turn if scope == "turn" else self.lineage

    def count(self, cause: Cause, scope: Scope, name: str = "") -> int:
        """How often `cause` was tallied, of `name`, since `scope` began."""
        return self.spent.count(cause, name) - self.mark(scope).spent.count(cause, name)


NEW = RunState()
