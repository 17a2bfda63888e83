"""`refold show`: the turns or events of a run."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from typing import Annotated

import msgspec
from msgspec.structs import replace

from refold.console import addresses, descriptions, locations
from refold.console.conversations import ChildRun, Kin, tell_children
from refold.console.locations import StorePlace, without_event_loop
from refold.console.options import Address, option
from refold.console.screen import Column, Screen, note
from refold.reducers.errors import Damaged, Inconclusive, WrongUse
from refold.reducers.events import ModelRequested, StateChanged
from refold.reducers.state import RunState
from refold.reducers.vocabulary import NANO, SOURCE_LABEL
from refold.replay import figures, known
from refold.replay.environment import LABELS
from refold.replay.kinds.arguments import ERASED, elide
from refold.replay.kinds.table import sentence
from refold.replay.reader import NO_GUARDS, Step, event_of
from refold.replay.source_words import SourceTotals
from refold.replay.summary import RunSummary, summary
from refold.replay.timeline import WAITING, CallRow, EffectCounter, Teller, Timeline, TurnRow, timeline, turns
from refold.store.chain import START, find_damage
from refold.store.protocol import Head, Store, Stored

_POLL = 0.2  # seconds between two reads of a growing log
_TEXT = 70
_SAID = 300
_MOVED = "state_changed"
_TURNS = 1000  # of one table
_ENCODER = msgspec.json.Encoder(order="deterministic")


@without_event_loop
async def show_command(
    screen: Screen,
    place: StorePlace,
    run: Address,
    *,
    every: Annotated[bool, option("--all", "List every event, one per line.")] = False,
    raw: Annotated[bool, option("--raw", "Print every event as stored, as JSON lines.")] = False,
    follow: Annotated[bool, option("--follow", "Keep printing new events until the run ends.")] = False,
    asked: Annotated[str, option("--filter", "List only events that match, as type:tool error:true.")] = "",
) -> int:
    """Show a run: a row per turn, then how it ended.

    RUN@e41 shows one event in full: arguments, result, what requested it and what it caused. RUN@t7 shows
    each event of that turn.

    Example: refold show @last

    With -o json: one document, for a run with `turns`; with --all, --raw, --follow or --filter, JSON lines as
    with --raw. Exit code 3 if the log is damaged.
    """
    if every or raw or follow or asked:
        return await _show_events(screen, place, run, raw=raw, follow=follow, asked=asked)
    if addresses.is_place(run):
        from refold.console.show_event import show_place

        return await show_place(screen, place, run)
    async with locations.reading(place) as store:
        run = await addresses.run_of(store, run)
        told, state, last = await _show(screen, store, run)
        step = "" if screen.json else await _next_step(store, told, state, place.option)
    if step:
        note(descriptions.line(f"next    refold {step}"))
    if screen.live:
        _name_views(run, last, place.option)
    return Damaged.exit_code if told.damaged else 0


def _name_views(run: str, last: TurnRow | None, option: str) -> None:
    if last is not None:
        note(f"next    refold view {run}@t{last.step}{option}   what the model saw")
    note(f"next    refold audit {run}{option}")


async def _next_step(store: Store, told: RunSummary, state: RunState, option: str) -> str:
    """Return what to type to continue the run, with the reason; "" if it has ended, is driven, or was
    imported.
    """
    if told.code or told.damaged or SOURCE_LABEL in told.labels:
        return ""
    from refold.console.descriptions import find_claim, next_words, waits_for

    engine = await find_claim(store, told.run, state)
    if engine is not None and engine.standing in ("abandoned", "lost"):
        return f"resume {told.run}{option}   {engine}"
    if engine is not None:
        return ""
    words = f"approvals {told.run}" if state.approval is not None else next_words(state)[0]
    return f"{words}{option}   waits for {waits_for(state)}"


async def print_timeline(screen: Screen, place: StorePlace, run: str) -> Timeline:
    """Print the timeline of a run, and return it."""
    async with locations.reading(place) as store:
        await _show(screen, store, run)
        return (await timeline(store, run))[0]


async def _show(screen: Screen, store: Store, run: str) -> tuple[RunSummary, RunState, TurnRow | None]:
    """Print a run. Return its summary, its state and its last turn.

    A run with more turns than fit in one table is read a second time for them.
    """
    first: list[TurnRow] = []
    teller = Teller(lambda turn: first.append(turn) if len(first) < _TURNS else None)
    kin = Kin()
    told, state = await summary(store, run, None, NO_GUARDS, teller, *kin.followers)
    parent, children = await kin.of(store, told)
    told = replace(told, parent=parent)
    rows = _each(first, teller.result()) if len(first) < _TURNS else turns(store, run, told.events)
    counter = EffectCounter()
    if screen.json:
        return told, state, await _document(screen, told, _count_turns(rows, counter), counter, children)
    spent = ", ".join(figures.spent(state, uncounted=told.uncounted))
    last = await _text(screen, told, _count_turns(rows, counter), counter, spent)
    tell_children(screen, children)
    return told, state, last


async def _count_turns(rows: AsyncIterator[TurnRow], counter: EffectCounter) -> AsyncIterator[TurnRow]:
    async for row in rows:
        counter.take(row)
        yield row


async def _each(*rows: Sequence[TurnRow]) -> AsyncIterator[TurnRow]:
    for row in chain(*rows):
        yield row


async def _show_events(
    screen: Screen, place: StorePlace, typed: str, *, raw: bool, follow: bool, asked: str
) -> int:
    """Print events, a line each; `raw` as stored, `follow` also those to come.

    `asked` is a filter: other events are left out.
    """
    from refold.replay.queries.grep import Sieve
    from refold.replay.queries.rows import event_question

    sieve = Sieve(event_question(asked)) if asked else None
    async with locations.reading(place) as store:
        run, since, upto = await addresses.events_of(store, typed)
        if follow and upto is not None:
            raise WrongUse(f"{typed!r}: --follow reads to the end of a run: remove the event or turn")
        turn, ended, first = 0, False, 0
        head: Head = START
        problem: Damaged | None = None
        while True:
            async for chunk in store.read(run, head.seq, upto, checked=False):
                for stored in chunk:
                    problem = problem or find_damage(stored, head)
                    head, first = stored, first or stored.at
                    means = (sieve is None or sieve.means(Step(stored))) and stored.seq >= since
                    turn, over = _event(screen, stored, turn, first, raw=raw or screen.json, visible=means)
                    ended = ended or over
            if problem is not None:
                raise problem
            if not follow or ended:
                return 0
            time.sleep(_POLL)  # noqa: ASYNC251 - nothing else runs here


async def _document(
    screen: Screen,
    told: RunSummary,
    rows: AsyncIterator[TurnRow],
    counter: EffectCounter,
    children: Sequence[ChildRun],
) -> TurnRow | None:
    """Write one JSON document, line by line while reading turns: a long run has a hundred thousand."""
    last, between = None, b" "
    screen.document(msgspec.Raw(_ENCODER.encode(told)[:-1] + b',"turns":['))
    async for last in rows:
        screen.document(msgspec.Raw(between + _ENCODER.encode(last)))
        between = b","
    rest = {"changes": counter.result(), "children": children}
    screen.document(msgspec.Raw(b"]," + _ENCODER.encode(rest)[1:]))
    return last


async def _text(
    screen: Screen, told: RunSummary, rows: AsyncIterator[TurnRow], counter: EffectCounter, spent: str
) -> TurnRow | None:
    """Print the task, the turns and the end. Return the last turn."""
    labels = ", ".join(f"{name}={value}" for name, value in told.labels.items() if name not in LABELS)
    fork = f"from event {told.forked_at} of run {told.forked_from}" if told.forked_from else None
    head = {
        "damaged": told.damaged or None,
        "run": told.run,
        "model": told.model,
        "task": descriptions.task(told.task),
        "labels": labels or None,
        "parent": f"run {told.parent.run}, call {told.parent.call}" if told.parent else None,
        "forked": fork,
    }
    screen.facts({**head, **dict(told.environment.pairs())}, indent="")
    screen.say()
    last = await _table(screen, rows)
    screen.facts(_end(screen, told, counter, spent), indent="")
    return last


def _end(screen: Screen, told: RunSummary, counter: EffectCounter, spent: str) -> dict[str, str | None]:
    """Print how the run ended, and return the rows below it."""
    ending = f"{told.agent_state}: {told.reason} ({told.code})" if told.code else told.agent_state
    screen.heading(descriptions.line(told.source_says, _SAID) or ending)
    changes = counter.result()
    return {
        "derived": ending if told.source_says else None,
        "provider": told.provider_error or None,
        "limit": figures.hit(told.limit) if told.limit else None,
        "changed": str(changes) if changes.calls else None,
        "spent": spent,
        "errors": figures.unmarked(told.unmarked) if told.unmarked else None,
        "lost": _lost(told) if told.lost else None,
        "source": _totals(told.source_totals) if told.source_totals else None,
        "events": f"1 to {told.events}",
    }


def _lost(told: RunSummary) -> str:
    """Describe how much of the source is in no fact, and how to list it."""
    lost = figures.quantity(told.lost, "place")
    return f"{lost} of the source may be missing in the facts: refold show {told.run} --filter kind:diagnosed"


def _totals(totals: SourceTotals) -> str:
    """Render the source's own totals: `its own totals: 122,612 in, 1,369 out, $1.27, 12 answers`."""
    counts = {"in": totals.input, "out": totals.output, "answers": totals.answers}
    told = [f"{figures.count(number)} {of}" for of, number in counts.items() if number is not None]
    told += [figures.dollars(round(totals.cost * NANO))] if totals.cost is not None else []
    return f"its own totals: {', '.join(told)}"


async def _table(screen: Screen, rows: AsyncIterator[TurnRow]) -> TurnRow | None:
    """Print the turns as tables of at most `_TURNS` turns, because rows of a table stay in memory.

    Return the last turn.
    """
    last, waiting = None, list[TurnRow]()
    async for last in rows:
        waiting.append(last)
        if len(waiting) == _TURNS:
            screen.table(_COLUMNS, [row for turn in waiting for row in _rows(turn)])
            waiting.clear()
    if waiting:
        screen.table(_COLUMNS, [row for turn in waiting for row in _rows(turn)])
    if last is not None:
        screen.say()
    return last


_COLUMNS = (
    Column("turn", right=True),
    Column("what the model did", elastic=True, middle=True, main=50),
    Column("result", elastic=True),
    Column("in", right=True, optional=1),
    Column("out", right=True, optional=2),
    Column("cost", right=True, optional=3),
    Column("time", right=True),
    Column("also", elastic=True),
)


def _rows(turn: TurnRow) -> list[list[str]]:
    """Return a turn's row, and a row for each further call."""
    texts = [descriptions.short(turn.text, _TEXT)] if turn.text is None or turn.text.strip() else []
    if not turn.stop:
        texts = ["(no response)"]
    did = [(text, "") for text in texts] + [(_call(call), _result(call)) for call in turn.calls]
    did = did or [("(nothing)", "")]
    counts = [figures.count(known.sent(turn.usage)), figures.count(known.got(turn.usage))]
    figures_ = [
        *counts,
        figures.dollars(turn.cost_nanousd) if turn.stop else "-",
        figures.seconds(turn.duration),
        "; ".join([*_oddities(turn), *turn.marks]),
    ]
    (what, result), *more = did
    return [
        [turn.purpose if turn.purpose != "step" else str(turn.step), what, result, *figures_],
        *(["", *each, "", "", "", "", ""] for each in more),
    ]


def _oddities(turn: TurnRow) -> Iterator[str]:
    if turn.stop == "max_tokens":
        yield "response cut at the output limit"
    if turn.stop in ("content_filter", "stop_sequence", "other"):
        yield f"stop: {turn.stop}"
    if turn.attempts > 1:
        yield f"{turn.attempts} attempts"


def _call(call: CallRow) -> str:
    said = ERASED if call.argument is None else elide(call.argument, _TEXT)
    return f"{descriptions.line(call.name, 64)}  {said}".rstrip()


def _result(call: CallRow) -> str:
    if call.result in ("open", "refused", "doubted", "happened", "unknown", known.NOT_RECORDED):
        return call.result
    if call.result == WAITING:
        return "waits for approval"
    return f"{call.result} {figures.size(call.size)}{' cut' if call.cut else ''}"


def _event(
    screen: Screen, stored: Stored, turn: int, first: int, *, raw: bool, visible: bool
) -> tuple[int, bool]:
    """Print an event if `visible`. Return the turn after it, and whether it ends the run."""
    from refold.replay.exports.table import line_of
    from refold.replay.queries.rows import side_of

    problem, event = "", None
    if not raw or stored.kind == _MOVED:  # raw events need not be decoded
        try:
            event = event_of(stored)
        except (Damaged, Inconclusive) as error:
            problem = str(error)
    if isinstance(event, ModelRequested):
        turn = event.step
    if raw and visible:
        screen.text(descriptions.json_text(line_of(stored)))
    elif visible:
        side, said = (side_of(event), sentence(event)) if event else ("?", problem)
        past = figures.seconds(max(0, stored.at - first) if stored.at else None)
        head = f"{f'e{stored.seq}':<6}{f't{turn}':<5}{past:>10}  {side:<9}{descriptions.line(stored.kind, 40):<19}"
        screen.say(f"{head}{said}".rstrip())
    return turn, isinstance(event, StateChanged) and event.target.terminal
