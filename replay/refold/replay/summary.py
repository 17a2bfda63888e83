"""How a run stands, without its turns: what was asked, what it used, how it ended and how its source says so."""

import msgspec
from msgspec.structs import replace

from refold.reducers.errors import Damaged
from refold.reducers.events import Parent, RunForked, RunStarted
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.limits import LimitHit
from refold.reducers.messages import Usage
from refold.reducers.state import NEW, RunState
from refold.replay import known
from refold.replay.reading import event_of, folded, stored_events
from refold.replay.source_words import (
    SourceEnd,
    SourceTotals,
    lacks_tokens,
    source_end,
    source_totals,
    told_of,
)
from refold.store.protocol import Store

_LAST = 100
EXCERPT = 400
"""Characters of a text that is kept of it: it is for skimming, and a run may be long."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run without its turns: what was asked, and how it stands.

    `code` and `reason` are None while the run goes on; `limit` is set if one ended it. `task` is the first
    characters of the last message the run began with, None where it was erased, "" where there is none. `started` and `at` are
    nanoseconds since the epoch, 0 where a transcript told none. `cost_nanousd` is None where nothing of it is known, the least
    that it was where `unpriced` answers had no known price; of `uncounted` answers not all tokens are known. `source_end` is how
    its source ended an imported run, `source_says` that as a sentence, `goes_on_in` the run that has the rest; `unanswered` names
    the calls without a result; `source_totals` is what the source counted itself. A fork goes on from event `forked_at` of
    `forked_from`. `damaged` says where the log could not be read any further.
    """

    run: str
    model: str
    task: str | None
    labels: dict[str, str]
    started: int
    at: int
    events: int
    agent_state: str
    code: str | None
    reason: str | None
    limit: LimitHit | None
    steps: int
    usage: Usage
    cost_nanousd: int | None
    unpriced: int
    uncounted: int = 0
    parent: Parent | None = None
    forked_from: str = ""
    forked_at: int = 0
    source_end: str = ""
    source_says: str = ""
    goes_on_in: str = ""
    unanswered: tuple[str, ...] = ()
    source_totals: SourceTotals | None = None
    damaged: str = ""


async def summary(
    store: Store, run: str, upto: int | None = None, registry: Registry = BUILTIN
) -> tuple[Summary, RunState]:
    """What a run is up to event `upto`, and the state there. A damaged log is told as far as it can be read.

    Raises `UnknownRun` and `NewerLog`.
    """
    state, started, forked, began, ended, damaged = NEW, None, None, 0, SourceEnd(), ""
    uncounted, totals = 0, None
    try:
        async for stored in stored_events(store, run, upto):
            event = event_of(stored)
            state = folded(state, stored, event, registry)
            began = began or stored.at
            started = event if isinstance(event, RunStarted) else started
            forked = event if isinstance(event, RunForked) else forked
            ended, totals = source_end(event, ended), source_totals(event, totals)
            uncounted += lacks_tokens(event)
    except Damaged as error:
        damaged = str(error)
    told = _summed_up(run, started, forked, began, state, damaged)
    return replace(told, **told_of(state, ended), source_totals=totals, uncounted=uncounted), state


async def goes_on_in(store: Store, run: str) -> str:
    """The run that has all of an imported one, and the rest, where a grown source was imported later; "" for none.

    Looked for in the last events: an import writes it at the end. Raises `Damaged`.
    """
    head, ended = await store.head(run), SourceEnd()
    for stored in await store.read_some(run, range(max(1, head.seq - _LAST), head.seq + 1)):
        ended = source_end(event_of(stored), ended)
    return ended.run


def _task(started: RunStarted | None) -> str | None:
    if started is None or not started.messages:
        return ""
    return started.content.messages[-1].text[:EXCERPT] if started.content else None


def _summed_up(
    run: str,
    started: RunStarted | None,
    forked: RunForked | None,
    began: int,
    state: RunState,
    damaged: str,
) -> Summary:
    return Summary(
        run=run,
        model=state.setup.model,
        task=_task(started),
        labels={**(started.labels if started else {}), **(forked.labels if forked else {})},
        started=began,
        at=state.at,
        events=state.seq,
        agent_state=str(state.agent_state),
        code=state.outcome.code if state.outcome else None,
        reason=state.outcome.reason if state.outcome else None,
        limit=state.limit if state.ended else None,
        steps=state.spent.steps,
        usage=state.spent.usage,
        cost_nanousd=known.cost(state.spent),
        unpriced=state.spent.unpriced,
        parent=state.setup.parent,
        forked_from=forked.parent if forked else "",
        forked_at=forked.parent_seq if forked else 0,
        damaged=damaged,
    )
