"""`refold show RUN@e103` and `RUN@t7`: one event, or the events of a turn, in full, with what requested
and caused them.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec

from refold.console import addresses, locations
from refold.console.locations import StorePlace
from refold.console.screen import Screen, note
from refold.reducers.errors import Damaged, Inconclusive
from refold.reducers.events import ModelResponded, SourceRecorded
from refold.replay import figures
from refold.replay.exports.table import line_of
from refold.replay.kinds.arguments import ERASED
from refold.replay.kinds.table import kind_for
from refold.replay.reader import Problem
from refold.replay.surroundings import AskedCall, EventInContext, How, Related, read_surroundings
from refold.store.protocol import Store

if TYPE_CHECKING:
    from refold.replay.call_reasons import CallReason

    Reasons = Mapping[int, tuple[CallReason, ...]]

_DEEPEST = 6
"""Nesting depth down to which values have a name per line; deeper values are JSON."""
_WIDE = 100
_ENCODER = msgspec.json.Encoder(order="deterministic")


async def show_place(screen: Screen, place: StorePlace, typed: str) -> int:
    """Print the event or turn of an address in full. Exit code 3 if the log is damaged."""
    async with locations.reading(place) as store:
        run, first, last = await addresses.events_of(store, typed)
        told, problem = await read_surroundings(store, run, first, last or first)
        head = (await store.head(run)).seq
        address = addresses.parse(typed)
        reasons = await _read_reasons(store, run, told, address.call)
    turn = address.turn
    if turn is None:
        document: Any = msgspec.Raw(_document(told[0], problem, reasons))
        screen.result(document, lambda: _tell_event(screen, told[0], run, head, problem, reasons))
    else:
        events = [msgspec.Raw(_document(each, problem, reasons)) for each in told]
        document = {"run": run, "turn": turn, "first": first, "last": last, "events": events}
        screen.result(document, lambda: _tell_turn(screen, told, f"run {run}, turn {turn}", problem, reasons))
    if screen.live:
        note(f"next    refold why {run}@e{first}{place.option}   what limits and guards saw")
    return problem.exit_code if problem else 0


async def _read_reasons(
    store: Store, run: str, told: Sequence[EventInContext], call: int | None
) -> "Reasons":
    """Return why the calls of responses ran or did not, by event; nothing if the log cannot be followed."""
    found: dict[int, tuple[CallReason, ...]] = {}
    for each in told:
        made = each.event.calls if isinstance(each.event, ModelResponded) else ()
        calls = [f"c{call}"] if call else [one.id for one in made]
        if not made:
            continue
        from refold.replay.call_reasons import read_call_reasons

        with suppress(Damaged, Inconclusive):  # reported with the event
            found[each.stored.seq] = await read_call_reasons(store, run, calls)
    return found


def _document(told: EventInContext, problem: Problem | None, reasons: "Reasons") -> bytes:
    """Return the line that `--raw` prints, extended by the event's relations."""
    more = {"reasons": reasons[told.stored.seq]} if told.stored.seq in reasons else {}
    around = _ENCODER.encode(
        {**msgspec.structs.asdict(told.around), "damaged": _render_problem(problem), **more}
    )
    return line_of(told.stored).rstrip().encode()[:-1] + b"," + around[1:]


def _render_problem(problem: Problem | None) -> str:
    return str(problem) if problem else ""


def _tell_event(
    screen: Screen,
    told: EventInContext,
    run: str,
    last: int,
    problem: Problem | None,
    reasons: "Reasons",
) -> None:
    stored, around = told.stored, told.around
    turn = f", turn {around.turn}" if around.turn else ""
    screen.heading(f"run {run}, event {stored.seq} of {figures.count(last)}{turn}: {stored.kind}")
    since = f", {figures.seconds(around.since)} after the run began" if around.since is not None else ""
    screen.facts(
        {
            "at": f"{figures.clock(stored.at)}{since}" if stored.at else None,
            "summary": kind_for(told.event).says(told.event),
            "damaged": _render_problem(problem) or None,
        },
        indent="",
    )
    earlier = [each for each in around.related if each.seq < stored.seq]
    later = [each for each in around.related if each.seq > stored.seq]
    _list(screen, "caused by", earlier, {"fact"})
    _list(screen, "about", earlier, {"about"})
    _list(screen, "requested by", earlier, {"request", "call"})
    _tell_words(screen, told, indent="")
    _tell_reasons(screen, told, reasons)
    _list(screen, "caused", later, {*get_args(How)} - {"note"})
    _list(screen, "notes", later, {"note"})
    _tell_fields(screen, "recorded", _body(told))


def _tell_reasons(screen: Screen, told: EventInContext, reasons: "Reasons") -> None:
    if found := reasons.get(told.stored.seq):
        from refold.console.call_reasons import print_call_reasons

        print_call_reasons(screen, found, named=False, title="why")


def _tell_turn(
    screen: Screen, told: Sequence[EventInContext], head: str, problem: Problem | None, reasons: "Reasons"
) -> None:
    screen.heading(f"{head}: events {told[0].stored.seq} to {told[-1].stored.seq}")
    if problem:
        screen.facts({"damaged": _render_problem(problem)}, indent="")
    for each in told:
        screen.say()
        says = kind_for(each.event).says(each.event)
        screen.heading(f"e{each.stored.seq} {each.stored.kind}: {says}")
        if not isinstance(each.event, SourceRecorded):  # a source record needs its own address
            _tell_words(screen, each, indent="  ")
            _tell_reasons(screen, each, reasons)


def _list(screen: Screen, title: str, related: Sequence[Related], hows: Set[How]) -> None:
    rows = [f"  e{each.seq} {each.kind}: {each.says}" for each in related if each.how in hows]
    if rows:
        screen.block(title, *rows)


def _tell_words(screen: Screen, told: EventInContext, *, indent: str) -> None:
    """Print calls with their arguments, then the other payload."""
    words = _decode_object(told.stored.content)
    erased = told.stored.erased
    if isinstance(told.event, ModelResponded):
        words.pop("arguments", None)
        _tell_said(screen, words, erased=erased, indent=indent)
        for call in told.around.calls:
            _tell_call(screen, call, indent)
        return
    if indent == "":  # within a turn, the response above shows the call
        for call in told.around.calls:
            _tell_call(screen, call, indent)
    _tell_said(screen, words, erased=erased, indent=indent)


def _tell_said(screen: Screen, words: Mapping[str, Any], *, erased: bool, indent: str) -> None:
    if erased:
        screen.say(f"{indent}payload  {ERASED}")
    for name, value in words.items():
        _field(screen, name, value, indent)


def _tell_call(screen: Screen, call: AskedCall, indent: str) -> None:
    screen.heading(f"{indent}call {call.id} {call.name}")
    _tell_arguments(screen, call.arguments, indent)
    if call.ran is not None:
        screen.heading(f"{indent}approved by an operator with other arguments")
        _tell_arguments(screen, call.ran, indent)


def _tell_arguments(screen: Screen, arguments: str | None, indent: str) -> None:
    if arguments is None:
        screen.say(f"{indent}  {ERASED}")
        return
    given = _decode_object(arguments)
    if not given:
        screen.styled(_indent(arguments or "{}", f"{indent}  "))
    for name, value in given.items():
        _field(screen, name, value, f"{indent}  ")


def _tell_fields(screen: Screen, title: str, fields: Mapping[str, Any]) -> None:
    screen.heading(title)
    for name, value in fields.items():
        _field(screen, name, value, "  ")


def _body(told: EventInContext) -> dict[str, Any]:
    return {
        name: value
        for name, value in _decode_object(told.stored.body).items()
        if name != "kind" and not (name == "calls" and told.around.calls)
    }


def _field(screen: Screen, name: str, value: Any, indent: str, depth: int = 1) -> None:
    """Print a name with its value.

    Lines of a long text are indented, so that they cannot imitate refold's own.
    """
    inner = f"{indent}  "
    if isinstance(value, str) and ("\n" in value or len(value) > _WIDE):
        screen.say(f"{indent}{name}")
        screen.styled(_indent(value, inner))
    elif isinstance(value, str):
        screen.say(f"{indent}{name}  {value}".rstrip())
    elif isinstance(value, dict | list) and value and depth < _DEEPEST and len(_json(value)) > _WIDE:
        screen.say(f"{indent}{name}")
        for key, each in _parts(value):
            _field(screen, key, each, inner, depth + 1)
    else:
        screen.say(f"{indent}{name}  {_json(value)}")


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).items()
    return ((str(number), each) for number, each in enumerate(value, 1))


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _decode_object(text: bytes | str | None) -> dict[str, Any]:
    """Decode a JSON object; anything else gives an empty one."""
    try:
        value: Any = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _indent(text: str, indent: str) -> str:
    return "\n".join(f"{indent}{line}" for line in text.split("\n"))
