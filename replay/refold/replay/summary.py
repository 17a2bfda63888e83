"""Summary of a run without its turns: task, usage, outcome, and how its source ended."""

from typing import Any

import msgspec

from refold.reducers import events as ev
from refold.reducers.errors import Inconclusive
from refold.reducers.failures import provider_error
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.limits import LimitHit
from refold.reducers.messages import Usage
from refold.reducers.source_marks import lacks_tokens
from refold.reducers.state import NEW, RunState
from refold.replay import known
from refold.replay.environment import Environment, EnvironmentReader
from refold.replay.reader import Follower, Step, event_of, follow, stored_events
from refold.replay.source_words import (
    SourceEnd,
    SourceTotals,
    is_lost,
    list_end_fields,
    source_end,
    source_totals,
)
from refold.store.protocol import Store

_LAST = 100
_TELL_OF_A_SOURCE = frozenset({ev.kind_of(ev.RunForked), ev.kind_of(ev.SourceRecorded)})
EXCERPT = 400
"""Maximum number of characters of a text in a summary."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run without its turns: its task, usage and outcome.

    `agent` is the agent's name, "" if it has none. `code` and `reason` are None while the run is active;
    `provider_error` is the provider's message for the request that ended it; `limit` is the limit that ended
    it. `task` is the start of the last message in the opening, None if it was erased, "" if there is none.
    `started` and `at` are nanoseconds since the epoch, 0 if a transcript has no time. `cost_nanousd` is None
    if the cost is unknown, a lower bound if `unpriced` responses have no known price. `uncounted` responses
    lack token counts; `unmarked` results have no recorded status; `lost` records of the source may be missing
    from the log. `source_end` is how the source ended an imported run, `source_says` the same as a sentence,
    `continued_in` the run that continues it. `unanswered` lists the calls without a result, `source_totals`
    the source's own counts, and `environment` who ran it and when. A fork continues from event `forked_at` of
    `forked_from`. `damaged` is the error at which reading the log stopped.
    """

    run: str
    agent: str = ""
    model: str = ""
    task: str | None = None
    labels: dict[str, str] = {}
    started: int = 0
    at: int = 0
    events: int = 0
    agent_state: str = ""
    code: str | None = None
    reason: str | None = None
    provider_error: str = ""
    limit: LimitHit | None = None
    steps: int = 0
    usage: Usage = Usage()
    cost_nanousd: int | None = None
    unpriced: int = 0
    uncounted: int = 0
    unmarked: int = 0
    lost: int = 0
    parent: ev.Parent | None = None
    forked_from: str = ""
    forked_at: int = 0
    source_end: str = ""
    source_says: str = ""
    continued_in: str = ""
    unanswered: tuple[str, ...] = ()
    source_totals: SourceTotals | None = None
    environment: Environment = Environment()
    damaged: str = ""


async def summary(
    store: Store,
    run: str,
    upto: int | None = None,
    registry: Registry = BUILTIN,
    *others: Follower[Any],
) -> tuple[RunSummary, RunState]:
    """Summarize a run up to event `upto`, and return the state there.

    A damaged log is summarized up to the damage. `others` take each step as well. Raises `UnknownRun` and
    `NewerLog`.
    """
    summing = Summing(run, *others)
    await follow(stored_events(store, run, upto), summing, registry=registry)
    if isinstance(summing.problem, Inconclusive):
        raise summing.problem
    return summing.result(), summing.state


class Summing(Follower[RunSummary]):
    """Follower that summarizes a run and passes each step to other followers.

    `excerpt` is the maximum number of characters of the task; None keeps all of it.
    """

    folds = True

    def __init__(self, run: str, *others: Follower[Any], excerpt: int | None = EXCERPT) -> None:
        self._run, self._others, self._excerpt = run, others, excerpt
        self.state: RunState = NEW
        self._told: dict[str, Any] = {
            "task": "",
            "labels": {},
            "started": 0,
            "uncounted": 0,
            "unmarked": 0,
            "lost": 0,
        }
        self._ended = SourceEnd()
        self._totals: SourceTotals | None = None
        self._failed = ""
        self._environment = EnvironmentReader()

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.after`."""
        # Payloads are needed for the start of a run and for records of an import's source.
        stored, event = step.stored, step.event
        self.state, told = step.after, self._told
        told["started"] = told["started"] or stored.at
        if isinstance(event, ev.RunStarted):
            told |= {"task": task_of(event, self._excerpt), "labels": event.labels}
        elif isinstance(event, ev.RunForked):
            told["labels"] = {**told["labels"], **event.labels}
            told |= {"forked_from": event.parent, "forked_at": event.parent_seq}
        self._ended = source_end(stored, event, self._ended)
        self._totals = source_totals(event, self._totals)
        if isinstance(event, ev.ModelFailed):
            self._failed = event.content.message if event.content else ""
        self._environment.take(step)
        told["uncounted"] += lacks_tokens(event)
        told["lost"] += is_lost(event)
        told["unmarked"] += isinstance(event, ev.ToolReturned) and known.outcome(event) == known.UNMARKED
        for other in self._others:
            other.take(step)

    def result(self) -> RunSummary:
        """Return the summary after the last event taken; `damaged` is set if reading stopped early."""
        state = self.state
        spent, outcome = state.spent, state.outcome
        return RunSummary(
            run=self._run,
            agent=state.setup.agent,
            model=state.setup.model,
            at=state.at,
            events=state.seq,
            agent_state=str(state.agent_state),
            code=outcome.code if outcome else None,
            reason=outcome.reason if outcome else None,
            provider_error=provider_error(outcome.code, self._failed) if outcome else "",
            limit=state.limit if state.ended else None,
            steps=spent.steps,
            usage=spent.usage,
            cost_nanousd=known.cost(spent),
            unpriced=spent.unpriced,
            parent=state.setup.parent,
            source_totals=self._totals,
            environment=self._environment.result(),
            damaged=str(self.problem) if self.problem else "",
            **self._told,
            **list_end_fields(state, self._ended),
        )


def task_of(started: ev.RunStarted, excerpt: int | None = EXCERPT) -> str | None:
    """Return the start of a run's task; None if it was erased, "" if there is none."""
    if not started.messages:
        return ""
    return started.content.messages[-1].text[:excerpt] if started.content else None


async def continued_in(store: Store, run: str) -> str:
    """Return the run that continues an imported one after its source grew; "" for none.

    Only the last events are searched, because an import writes it at the end. Raises `Damaged`.
    """
    head, ended = await store.head(run), SourceEnd()
    for stored in await store.read_some(run, range(max(1, head.seq - _LAST), head.seq + 1)):
        if stored.kind in _TELL_OF_A_SOURCE:
            ended = source_end(stored, event_of(stored), ended)
    return ended.run
