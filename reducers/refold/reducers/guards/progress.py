"""Guards against calls that make no progress.

Source: the tool guardrails of Hermes Agent, with their numbers; there too, warnings last one request.

Source: the stop condition `loop_detection` of tirea 0.5, which compares names only.

Source: the `guardrails` loop (aar, "Agent Loop & Guardrails"), by its published rule: batches are equal if
their calls have the same names and arguments, in any order.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.events import CallRefused, Event, InputReceived, ModelResponded, RunForked, ToolReturned
from refold.reducers.guards.protocol import (
    Config,
    Judgement,
    Own,
    Place,
    Reading,
    Remind,
    Shorten,
    Stop,
    begins,
    digest,
    known,
    read_only,
    same_if_equal,
)
from refold.reducers.limits import Scope
from refold.reducers.patterns import batch_signature, canonical
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Unknown
from refold.reducers.window import refs

_MAX_REMEMBERED = 64
_BLOCKS = (2, 3, 4)
_POLLERS = ("_poll", "_get_result")

Number = Annotated[int, Meta(ge=1)]
Numbers = tuple[Number, Number]
"""The counts at which the model is warned and the run is stopped."""


class Made(Own, frozen=True):
    """A call of the open batch. `mark` is the digest of name and arguments, `said` of the result ("" before
    it).

    `done`: it returned normally. A refused call is removed.
    """

    id: str
    name: str
    mark: str
    said: str = ""
    done: bool = False
    chars: int = 0


class Tally(Own, frozen=True):
    """A count of a call, or of failures of a call or (`tool:NAME`) of a tool."""

    key: str
    count: int
    said: str = ""


class Seen(Own, frozen=True):
    """What happened in the scope: the last 64 failures, results and calls.

    `run` counts equal calls with equal results in a row, beginning with `first`. `warn` has the highest count
    for each `PART TOOL` of the last batch; `stubs` its calls that repeat `first`, by id, with their tool.
    """

    calls: tuple[Made, ...] = ()
    failures: tuple[Tally, ...] = ()
    results: tuple[Tally, ...] = ()
    recent: tuple[str, ...] = ()
    run: Tally = Tally("", 0)
    first: str = ""
    warn: dict[str, int] = {}
    stubs: tuple[tuple[str, str, str], ...] = ()


class Stall(Config, frozen=True, kw_only=True, tag="stall"):
    """Warns, in the next request, of calls without progress; with `stop`, ends the run at the second number.

    Calls are equal by name and arguments, as JSON with sorted keys. Refused calls do not count. Null switches
    a part off.

    - `exact_failure`: failures of the same call, cleared by its success; `same_tool`: of one tool, cleared by
      its success. A success of one of `progress_tools` clears both; `same_tool` never stops for
      `tolerant_tools`.
    - `no_progress`: the same call of a read-only tool with the same result; a failure is another result.
    - `identical`: the same call of any tool, with the same result, in a row. This and `no_progress` ignore
      `pollers`, and tools whose names end in `_poll` or `_get_result`, which may repeat.
    - `cycle`: the last calls repeat a block of 2 to 4, not all the same, this many times. Only warns.
    - `stub`: from the second equal call in a row that did not fail, a result of at least this many characters
      is replaced by a reference to the first, while that is in the window. Also for pollers.

    At the second number of `exact_failure` and `no_progress`, the next such call is refused and the run ends;
    of `same_tool` and `identical`, the run ends on the result.
    """

    scope: Scope = "turn"
    stop: bool = False
    pollers: tuple[str, ...] = ()
    progress_tools: tuple[str, ...] = ()
    tolerant_tools: tuple[str, ...] = ()
    exact_failure: Numbers | None = (2, 5)
    same_tool: Numbers | None = (3, 8)
    no_progress: Numbers | None = (2, 5)
    identical: Numbers | None = (3, 5)
    cycle: Annotated[int, Meta(ge=2, le=_MAX_REMEMBERED // 2)] | None = 3
    stub: Number | None = 512

    kind: ClassVar[str] = "stall"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_CALLS, Place.ON_RESULTS, Place.BEFORE_REQUEST})
    observes: ClassVar[frozenset[type[Event]]] = frozenset(
        {ModelResponded, ToolReturned, CallRefused, InputReceived, RunForked}
    )
    reads_content: ClassVar[bool] = True
    reading: ClassVar[Reading] = Reading(monotone=frozenset({Unknown.ERRORS}))
    fresh: ClassVar[Seen] = Seen()
    texts: ClassVar[Mapping[str, str]] = {
        "stall:exact_failure": (
            "[harness] {tool} has failed {count} times with the same arguments. Change something before you "
            "call it again."
        ),
        "stall:same_tool": (
            "[harness] {tool} has failed {count} times in a row, whatever its arguments. Look at what it says, "
            "or reach your aim without it."
        ),
        "stall:no_progress": (
            "[harness] {tool} has given the same result {count} times for the same arguments. It will not "
            "change by asking: use what you have, or change something."
        ),
        "stall:identical": (
            "[harness] The last {count} calls were the same call of {tool} with the same result. Do something else."
        ),
        "stall:cycle": (
            "[harness] Your last calls, up to this one of {tool}, repeat the same few steps {count} times. Break "
            "the circle: change something."
        ),
        "refused:stalled": (
            "skipped: this call led nowhere too often before, so it was not run, and the run ends here."
        ),
    }

    def __post_init__(self) -> None:
        """Raise ValueError, which msgspec reports, for a part that would stop before it warns."""
        for part in ("exact_failure", "same_tool", "no_progress", "identical"):
            warn, stop = getattr(self, part) or (1, 1)
            if stop < warn:
                raise ValueError(f"`{part}` stops at {stop}, before it warns at {warn}")

    def observe(self, own: Seen, event: Event) -> Seen:
        """Count the calls of a batch, in order, when its last result has arrived."""
        return same_if_equal(own, self._after(own, event))

    def _after(self, own: Seen, event: Event) -> Seen:
        match event:
            case ModelResponded():
                return replace(own, calls=_list_calls(event), warn={}, stubs=())
            case ToolReturned() | CallRefused() if any(call.id == event.call for call in own.calls):
                calls = _settle(own.calls, event)
                if any(not call.said for call in calls):
                    return replace(own, calls=calls)
                own = replace(own, calls=())
                for call in calls:
                    own = self._count(own, call)
                return own
            case _:
                return Seen(calls=own.calls) if begins(self.scope, event) else own

    def _count(self, own: Seen, call: Made) -> Seen:
        tool = f"tool:{call.name}"
        failures = () if call.done and call.name in self.progress_tools else own.failures
        exact, same_tool = (
            (0, 0) if call.done else (_find(failures, call.mark).count + 1, _find(failures, tool).count + 1)
        )
        before = _find(own.results, call.mark)
        same = (before.count + 1 if before.said == call.said else 1) if call.done else 0
        run = own.run.count + 1 if (own.run.key, own.run.said) == (call.mark, call.said) else 1
        first = own.first if run > 1 else call.id
        recent = (*own.recent, call.mark)[-_MAX_REMEMBERED:]
        counts = {"exact_failure": exact, "same_tool": same_tool, "cycle": _count_cycles(recent)}
        if not self._is_poller(call.name):
            counts |= {"no_progress": same, "identical": run}
        stubbed = self.stub is not None and run > 1 and call.done and call.chars >= self.stub
        return Seen(
            failures=_store(failures, Tally(call.mark, exact), Tally(tool, same_tool)),
            results=_store(own.results, Tally(call.mark, same, call.said)),
            recent=recent,
            run=Tally(call.mark, run, call.said),
            first=first,
            warn=self._add_warnings(own.warn, call.name, counts),
            stubs=(*own.stubs, (call.id, first, call.name)) if stubbed else own.stubs,
        )

    def _add_warnings(self, warn: dict[str, int], tool: str, counts: dict[str, int]) -> dict[str, int]:
        due = {f"{part} {tool}": count for part, count in counts.items() if self._reaches(part, 0, count)}
        return {**warn, **{key: max(count, warn.get(key, 0)) for key, count in due.items()}} if due else warn

    def _reaches(self, part: str, which: int, count: int) -> bool:
        numbers: Numbers | int | None = getattr(self, part)
        if isinstance(numbers, int):
            return which == 0 and count >= numbers
        return numbers is not None and count >= numbers[which]

    def _is_poller(self, name: str) -> bool:
        return name in self.pollers or name.endswith(_POLLERS)

    def judge(self, own: Seen, state: RunState, place: Place) -> Iterable[Judgement]:
        """Stop before a call or on a result, shorten a repeated result, or warn, each at its place."""
        if place == Place.BEFORE_REQUEST:
            yield from _reminders(own, state)
            return
        for part, tool, count in self._find_stalls(own, state, place) if self.stop else ():
            measured: dict[str, str | int] = {"part": part, "tool": known(tool, state), "count": count}
            reason = f"{part} was seen {count} times, and the run may not go on like that"
            yield Stop(code="stalled", reason=reason, measured=measured, text="refused:stalled")
            return
        if place == Place.ON_RESULTS:
            yield from _stubs(own, state)

    def _find_stalls_on_results(self, own: Seen) -> Iterator[tuple[str, str, int]]:
        for part, tool, count in _list_warnings(own):
            ends = part == "identical" or (part == "same_tool" and tool not in self.tolerant_tools)
            if ends and self._reaches(part, 1, count):
                yield part, tool, count

    def _find_stalls(self, own: Seen, state: RunState, place: Place) -> Iterator[tuple[str, str, int]]:
        if place == Place.ON_RESULTS:
            yield from self._find_stalls_on_results(own)
            return
        quiet = read_only(state)
        for call in own.calls:
            failed, same = _find(own.failures, call.mark).count, _find(own.results, call.mark).count
            if self._reaches("exact_failure", 1, failed):
                yield "exact_failure", call.name, failed
            if (
                call.name in quiet
                and not self._is_poller(call.name)
                and self._reaches("no_progress", 1, same)
            ):
                yield "no_progress", call.name, same


def _list_calls(event: ModelResponded) -> tuple[Made, ...]:
    written = event.content.arguments if event.content else ("",) * len(event.calls)
    calls = zip(event.calls, written, strict=True)
    return tuple(Made(call.id, call.name, digest(call.name, canonical(text))) for call, text in calls)


def _settle(calls: tuple[Made, ...], event: ToolReturned | CallRefused) -> tuple[Made, ...]:
    if isinstance(event, CallRefused):
        return tuple(call for call in calls if call.id != event.call)
    said = digest(event.error or "", event.content.output if event.content else "")
    return tuple(
        replace(call, said=said, done=event.error is None, chars=event.size.chars)
        if call.id == event.call
        else call
        for call in calls
    )


def _find(tallies: tuple[Tally, ...], key: str) -> Tally:
    return next((tally for tally in tallies if tally.key == key), Tally(key, 0))


def _store(tallies: tuple[Tally, ...], *new: Tally) -> tuple[Tally, ...]:
    keys = [tally.key for tally in new]
    kept = [tally for tally in tallies if tally.key not in keys]
    return (*kept, *(tally for tally in new if tally.count))[-_MAX_REMEMBERED:]


def _count_cycles(recent: tuple[str, ...]) -> int:
    """Return how often the newest calls repeat a block of 2 to 4 that are not all the same."""
    highest = 0
    for size in _BLOCKS:
        block, turns = recent[-size:], 1
        while len(set(block)) > 1 and recent[-size * (turns + 1) : -size * turns] == block:
            turns += 1
        highest = max(highest, turns)
    return highest


def _list_warnings(own: Seen) -> list[tuple[str, str, int]]:
    named = ((key.partition(" "), count) for key, count in sorted(own.warn.items()))
    return [(part, tool, count) for (part, _, tool), count in named]


def _reminders(own: Seen, state: RunState) -> Iterator[Remind]:
    for part, tool, count in _list_warnings(own):
        if part != "no_progress" or tool in read_only(state):
            measured: dict[str, str | int] = {"tool": known(tool, state), "count": count}
            yield Remind(code=f"stall:{part}", text=f"stall:{part}", measured=measured, values=measured)


def _stubs(own: Seen, state: RunState) -> Iterator[Shorten]:
    whole = {ref.call for ref in refs(state.window) if ref.shown is None} if own.stubs else ()
    for call, first, tool in own.stubs:
        if first in whole:
            yield Shorten(
                code="stub", call=call, text="stub", values={"call": first, "tool": known(tool, state)}
            )


_MAX_BATCHES = 20


class Pair(Own, frozen=True):
    """The digest of the last batch's names, and how many batches back the newest equal pair is, or 0."""

    mark: str = ""
    back: int = 0


class Loop(Config, frozen=True, kw_only=True, tag="loop"):
    """Stops after the tools if two adjacent batches among the last max(2, `window`) called the same tools.

    Names are compared in any order, arguments ignored. At most 20 batches are remembered.
    """

    window: Annotated[int, Meta(ge=0)]

    kind: ClassVar[str] = "loop"
    places: ClassVar[frozenset[Place]] = frozenset({Place.AFTER_TOOLS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded})
    fresh: ClassVar[Pair] = Pair()

    def observe(self, own: Pair, event: Event) -> Pair:
        """Compare a batch with the previous one; ignore responses without calls."""
        if not isinstance(event, ModelResponded) or not event.calls:
            return own
        mark = digest(*sorted(call.name for call in event.calls))
        if mark == own.mark:
            return Pair(mark, 2)
        return Pair(mark, own.back + 1 if own.back else 0)

    def judge(self, own: Pair, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop while a pair is within the window."""
        window = min(max(2, self.window), _MAX_BATCHES)
        if own.back and own.back <= window:
            reason = "two batches in a row called the same tools"
            yield Stop(code="loop_detected", reason=reason, measured={"batches": own.back, "window": window})


class Repeats(Own, frozen=True):
    """The digest of the last batch, and how often it was repeated in a row."""

    mark: str = ""
    count: int = 0


class Repetition(Config, frozen=True, kw_only=True, tag="repetition"):
    """Stops before the (`repeats` + 1)-th identical batch in a row; with 0, before the first.

    Argument values are compared up to `clip` characters. Responses without calls neither count nor reset.
    The count restarts with each user message (`scope: turn`), with a fork (`run`), or never (`lineage`).
    """

    repeats: Annotated[int, Meta(ge=0)] = 3
    clip: Annotated[int, Meta(ge=1)] = 200
    scope: Scope = "lineage"

    kind: ClassVar[str] = "repetition"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_REPETITION})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, InputReceived, RunForked})
    reads_content: ClassVar[bool] = True
    fresh: ClassVar[Repeats] = Repeats()

    def observe(self, own: Repeats, event: Event) -> Repeats:
        """Count a batch that equals the previous one; restart where the scope does."""
        match event:
            case ModelResponded(calls=calls, content=content) if calls and content is not None:
                names = [call.name for call in calls]
                signature = batch_signature(list(zip(names, content.arguments, strict=True)), self.clip)
                mark = hashlib.sha256(signature.encode()).hexdigest()
                return Repeats(mark, own.count + 1 if mark == own.mark else 0)
            case _:
                return Repeats() if begins(self.scope, event) else own

    def judge(self, own: Repeats, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop at `repeats`, before the batch runs."""
        if state.answer is None or not state.answer.event.calls or own.count < self.repeats:
            return
        yield Stop(
            code="repetition",
            reason=f"the same batch of calls came {own.count + 1} times in a row",
            measured={"repeats": own.count, "allowed": self.repeats},
            text="refused:repetition",
        )
