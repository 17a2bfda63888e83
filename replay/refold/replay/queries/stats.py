"""`stats`: counts, outcomes, durations and costs over any number of runs.

Counts of disjoint runs add up: `merge` is associative and commutative, and merged parts equal one count over
everything. Latencies are kept as counts in buckets of about 3 % width, so that quantiles can be merged as
well (similar to DDSketch, Masson et al. 2019, in integers): a quantile is never below the true one, and at
most 3 % above it.

A fork begins with events of its parent's log. If both are counted, each event counts once: see `Counter`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from refold.reducers import events as ev
from refold.reducers.errors import Inconclusive, RefoldError
from refold.reducers.messages import Usage
from refold.reducers.source_marks import lacks_tokens
from refold.replay import known
from refold.replay.kinds.table import kind_for
from refold.replay.queries.grep import Sieve
from refold.replay.queries.language import Question
from refold.replay.queries.rows import FlatEvent, event_question
from refold.replay.reader import Follower, Step, follow_all, run_follower
from refold.replay.shards import Shard
from refold.replay.source_words import SourceEnd, source_end
from refold.store.protocol import Store, Stored, UnknownRun
from refold.store.scans import whole_logs

OPEN = "open"
"""Outcome of a run that has not ended."""

_FINE = 5  # bits after the highest one that distinguish buckets: 2**-5 is 3 %

_NOTED = "source_recorded"
"""Kind whose payload is read: it says whether an import's counts are complete."""

Counts = dict[str, int]


class Latency(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Durations as counts per bucket. `total` and `longest` are exact, nanoseconds."""

    buckets: Counts = {}  # JSON keys are strings
    total: int = 0
    longest: int = 0

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.buckets.values())

    def add(self, duration: int) -> None:
        """Add a duration in nanoseconds."""
        bucket = str(_bucket(duration))
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.total += duration
        self.longest = max(self.longest, duration)

    def quantile(self, share: int, of: int = 100) -> int | None:
        """Return the duration that `share` of `of` do not exceed, in nanoseconds; None without durations.

        It is at most 3 % too long.
        """
        rank, seen = -(-self.count * share // of), 0
        for bucket in sorted(map(int, self.buckets)):
            seen += self.buckets[str(bucket)]
            if seen >= rank:
                return min(_highest(bucket), self.longest)
        return None


class ToolStats(msgspec.Struct, kw_only=True):
    """Counts of one tool: results, errors by class, refused calls, and bytes before the cap.

    `unmarked` results have no recorded status. `not_recorded` calls have no result in their source and do not
    count as results.
    """

    returned: int = 0
    errors: Counts = {}
    unmarked: int = 0
    not_recorded: int = 0
    refused: int = 0
    bytes: int = 0
    latency: Latency = msgspec.field(default_factory=Latency)


class ModelStats(msgspec.Struct, kw_only=True):
    """Counts of one model by its own name: responses by stop reason, and their latency."""

    answers: int = 0
    stops: Counts = {}
    latency: Latency = msgspec.field(default_factory=Latency)


class Stats(msgspec.Struct, kw_only=True):
    """Counts over any number of runs. Merging does not modify its inputs.

    `ends` counts runs by state and code, `source_ends` imported runs by how their source ended them, `kinds`
    events, `failures` failed requests by class, `trips` verdicts as `guard: verdict`, `refusals` refused
    calls by guard, `prunes` compaction by step. Tokens and cost are None if nothing was counted; `unpriced`
    counts responses without a known price, `uncounted` those with incomplete token counts. `damaged` and
    `newer` map runs that could not be read to the end to the reason; what was read counts. `elapsed` has the
    durations of runs, each from its own first event.
    """

    runs: int = 0
    events: int = 0
    bytes: int = 0
    ends: Counts = {}
    source_ends: Counts = {}
    kinds: Counts = {}
    started_with: Counts = {}
    requests: int = 0
    failures: Counts = {}
    retries: int = 0
    asked: int = 0
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost_nanousd: int | None = None
    unpriced: int = 0
    uncounted: int = 0
    tools: dict[str, ToolStats] = {}
    models: dict[str, ModelStats] = {}
    trips: Counts = {}
    refusals: Counts = {}
    prunes: Counts = {}
    damaged: dict[str, str] = {}
    newer: dict[str, str] = {}
    latency: Latency = msgspec.field(default_factory=Latency)
    elapsed: Latency = msgspec.field(default_factory=Latency)


async def stats(store: Store, run: str) -> Stats:
    """Count one run. A fork includes its prefix, so it and its parent are not disjoint.

    Raises `UnknownRun`, `DamagedLog` and `NewerLog`; `Counter` keeps what was read before the error.
    """
    return await run_follower(Counter(), store, run)


def count_all(shard: Shard, typed: str = "") -> Iterator[Stats | tuple[str, RefoldError]]:
    """Yield the problem of each run of a shard that could not be read to its end, then the counts of all.

    Each event counts once, although forks share events, and only if the query `typed` matches it.
    """
    asked, shared = event_question(typed), dict[str, int]()
    total = Stats()
    for run, records in whole_logs(shard.address, shard.runs):
        counter = Counter(shared, asked)
        problem: RefoldError | None = None
        try:
            follow_all(records, counter)
            problem = counter.problem
        except UnknownRun as error:  # listed, but without any event
            problem = error
        found = counter.result()
        if problem is not None:
            (found.newer if isinstance(problem, Inconclusive) else found.damaged)[run] = str(problem)
            yield run, problem
        total = merge((total, found))
    yield total


def merge(all_: Iterable[Stats]) -> Stats:
    """Merge counts. Events counted twice count twice."""
    total = Stats()
    for each in all_:
        _add(total, each)
    return total


class Counter(Follower[Stats]):
    """Follower that counts one run. It knows the names of the last response's calls only.

    Counters with the same `shared` count each event once, although forks share events: it maps runs to the
    last counted event of their own log, and counters update it. With a query `asked`, only matching events
    count; outcomes and durations are always those of the whole run.
    """

    def __init__(
        self, shared: dict[str, int] | None = None, asked: Question[FlatEvent] | None = None
    ) -> None:
        self._stats = Stats(runs=1)
        self._sieve = Sieve(asked) if asked and asked.names else None
        self._shared: dict[str, int] = {} if shared is None else shared
        self._run = ""
        self._names: Mapping[str, str] = {}
        self._end = OPEN
        self._source_end = SourceEnd()
        self._began = self._at = 0

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.event`; then the event is not counted."""
        stored, event = step.stored, step.event if step.stored.kind == _NOTED else step.bare
        meant = self._sieve is None or self._sieve.match(step) is not None
        self._learn(stored, event)
        if stored.seq <= self._shared.get(stored.run, 0):
            return
        self._shared[stored.run] = stored.seq
        if not meant:
            return
        counts = self._stats
        counts.events += 1
        counts.bytes += len(stored.body) + len(stored.content or b"")
        _count(counts.kinds, stored.kind)
        self._take(event)

    def result(self) -> Stats:
        """Return the counts."""
        self._stats.ends = {self._end: 1}
        self._stats.source_ends = {self._source_end.end: 1} if self._source_end.end else {}
        self._stats.elapsed = Latency()
        if self._at > self._began > 0:  # otherwise the duration is unknown
            self._stats.elapsed.add(self._at - self._began)
        return self._stats

    def _learn(self, stored: Stored, event: ev.Event) -> None:
        self._source_end = source_end(stored, event, self._source_end)
        if isinstance(event, ev.ModelResponded):
            self._names = {call.id: call.name for call in event.calls}
        if stored.run != self._run:  # start of the log, or of the fork's own part
            self._run, self._began = stored.run, stored.at
        if not isinstance(event, ev.Annotation):
            self._at = stored.at
        if isinstance(event, ev.StateChanged) and event.target.terminal:
            self._end = f"{event.target} ({event.code})"

    def _take(self, event: ev.Event) -> None:
        counts, own = self._stats, kind_for(event).counts
        if own is not None and (word := own[1](event)) is not None:
            _count(getattr(counts, own[0]), word)
        match event:
            case ev.ModelRequested():
                counts.requests += 1
            case ev.ModelResponded():
                self._count_response(event)
            case ev.ModelFailed() if event.usage == Usage() and event.cost_nanousd is None:
                pass
            case ev.ModelFailed() | ev.SummaryReturned():
                self._count_usage(event.usage, event.cost_nanousd)
            case ev.ToolReturned():
                self._count_result(event)
            case ev.CallRefused():
                self._tool(event.call).refused += 1
            case ev.RetryScheduled():
                counts.retries += 1
            case ev.ApprovalRequested():
                counts.asked += 1
            case ev.SourceRecorded():
                counts.uncounted += lacks_tokens(event)
            case _:
                pass

    def _count_response(self, event: ev.ModelResponded) -> None:
        model = self._stats.models.setdefault(event.model, ModelStats())
        model.answers += 1
        _count(model.stops, event.stop)
        if known.took(event.duration) is not None:
            model.latency.add(event.duration)
            self._stats.latency.add(event.duration)
        self._count_usage(event.usage, event.cost_nanousd)

    def _count_usage(self, usage: Usage, cost: int | None) -> None:
        counts = self._stats
        counts.cost_nanousd = _sum(counts.cost_nanousd, cost)
        counts.unpriced += cost is None
        if not known.counted(usage):
            counts.uncounted += 1
            return
        counts.input = _sum(counts.input, known.sent(usage))
        counts.output = _sum(counts.output, known.got(usage))
        # Providers omit these or report more than 0.
        for name in ("cache_read", "cache_write", "reasoning"):
            setattr(counts, name, _sum(getattr(counts, name), getattr(usage, name) or None))

    def _count_result(self, event: ev.ToolReturned) -> None:
        tool = self._tool(event.call)
        if not known.recorded(event):
            tool.not_recorded += 1
            return
        if event.refused_by is not None:
            tool.refused += 1
            return
        tool.returned += 1
        tool.bytes += event.output_bytes
        if known.took(event.duration) is not None:
            tool.latency.add(event.duration)
        if event.error is not None:
            _count(tool.errors, event.error)
        tool.unmarked += known.failed(event) is None

    def _tool(self, call: str) -> ToolStats:
        return self._stats.tools.setdefault(self._names.get(call, ""), ToolStats())


def _count(counts: Counts, what: str) -> None:
    name = str(what)
    counts[name] = counts.get(name, 0) + 1


def _add(total: msgspec.Struct, other: msgspec.Struct) -> None:
    """Add the numbers of one structure to those of another, recursively."""
    for name in other.__struct_fields__:
        mine, theirs = getattr(total, name), getattr(other, name)
        setattr(total, name, max(mine, theirs) if name == "longest" else _sum(mine, theirs))


def _sum(mine: Any, theirs: Any) -> Any:
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    if isinstance(theirs, str):  # reason why a run could not be read, equal on both sides
        return mine
    if hasattr(theirs, "items"):
        for key, value in theirs.items():
            mine[key] = _sum(mine[key], value) if key in mine else _copy(value)
        return mine
    if isinstance(mine, msgspec.Struct):
        _add(mine, theirs)
        return mine
    return mine + theirs


def _copy(value: Any) -> Any:
    if not isinstance(value, msgspec.Struct):
        return value
    fresh = type(value)()
    _add(fresh, value)
    return fresh


def _bucket(duration: int) -> int:
    """Return the bucket of a duration: exact up to 63, then by its highest bit and the five below."""
    above = max(0, duration.bit_length() - _FINE - 1)
    return (above << (_FINE + 1)) + (duration >> above)


def _highest(bucket: int) -> int:
    """Return the longest duration in a bucket."""
    above, head = bucket >> (_FINE + 1), bucket & (2 ** (_FINE + 1) - 1)
    longest: int = ((head + 1) << above) - 1
    return longest
