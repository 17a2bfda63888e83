"""Comparison of a recorded prompt with the window, in units.

A unit is a response with its results, or another single message; it is kept or dropped as a whole. Two units
are equal if their messages have equal roles, texts, and names and arguments of calls. Ids are not compared,
because ours differ from the source's. Results are in the order of their calls, as in our prompts.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from refold.importers.fields import JSON, as_written
from refold.importers.items import Prompted, Said
from refold.reducers.messages import Message, MessageCall
from refold.reducers.text import clean
from refold.reducers.vocabulary import Role
from refold.reducers.window import ranges_of

Key = bytes
Keys = tuple[Key, ...]

_ENCODER = msgspec.json.Encoder(order="deterministic")


class Unit(msgspec.Struct, frozen=True, gc=False):
    """Messages that belong together. `whole`: every call has its result, and every result its call.

    `rest`: JSON text of the part of half a pair that `valid_messages` leaves out.
    """

    messages: tuple[Message, ...]
    keys: Keys
    whole: bool = True
    rest: str = ""

    def valid_messages(self) -> tuple[Message, ...]:
        """Return the messages that a window may hold: only the valid part of half a pair.

        A result without its call becomes a user message.
        """
        first = self.messages[0]
        if first.role is not Role.ASSISTANT:
            role = Role.USER if first.role is Role.TOOL else first.role
            return (msgspec.structs.replace(first, role=role, calls=(), call=None, name=None),)
        answered = {message.call for message in self.messages[1:]}
        calls = tuple(call for call in first.calls if call.id in answered)
        return (msgspec.structs.replace(first, calls=calls, call=None), *self.messages[1:])


def words_of(unit: Unit) -> str:
    """Return the complete text of a unit, a line each: reasoning, texts, and calls as JSON text."""
    lines: list[str] = []
    for message in unit.messages:
        lines += [message.reasoning, message.text, *(as_written(_plain(call)) for call in message.calls)]
    lines += [unit.rest] if unit.messages[0].role is Role.TOOL else []
    return "\n".join(filter(None, lines))


def key_of(message: Message) -> Key:
    """Return a 16-byte digest of the compared parts of a message."""
    calls = [(call.name, _arguments(call.arguments)) for call in message.calls]
    said = (message.role, clean(message.text), calls) if calls else (message.role, clean(message.text))
    return hashlib.blake2b(_ENCODER.encode(said), digest_size=16).digest()


def units_of(messages: Sequence[Message]) -> list[Unit]:
    """Split messages into units.

    Calls are numbered within each response, so that ids repeated by a source do not matter.
    """
    return list(_units(messages))


def align(old: Sequence[Keys], new: Sequence[Keys]) -> list[int | None]:
    """Return for each unit of `new` the index of the equal unit in `old`, or None. Indices ascend.

    The common prefix is matched first. The rest is matched once from the front and once from the end, and the
    match with more messages wins: harnesses mostly drop messages in between, or repeat them at the end.
    """
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    places: dict[Keys, list[int]] = {}
    for place in range(head, len(old)):
        places.setdefault(old[place], []).append(place)
    front, back = _align_forwards(places, new, head), _align_backwards(places, new, head, len(old))
    weights = [
        sum(len(keys) for keys, at in zip(new[head:], way, strict=True) if at is not None)
        for way in (front, back)
    ]
    return [*range(head), *(front if weights[0] > weights[1] else back)]


def _align_forwards(places: Mapping[Keys, Sequence[int]], new: Sequence[Keys], head: int) -> list[int | None]:
    found: list[int | None] = []
    following = head
    for keys in new[head:]:
        candidates = places.get(keys, ())
        index = bisect_left(candidates, following)
        found.append(candidates[index] if index < len(candidates) else None)
        following = following if found[-1] is None else found[-1] + 1
    return found


def _align_backwards(
    places: Mapping[Keys, Sequence[int]], new: Sequence[Keys], head: int, upto: int
) -> list[int | None]:
    found: list[int | None] = []
    for keys in reversed(new[head:]):
        candidates = places.get(keys, ())
        before = bisect_left(candidates, upto)
        found.append(candidates[before - 1] if before else None)
        upto = upto if found[-1] is None else found[-1]
    return found[::-1]


def _units(messages: Sequence[Message]) -> Iterator[Unit]:
    place, tools = 0, dict[str | None, str]()
    while place < len(messages):
        first = messages[place]
        tools |= {call.id: call.name for call in first.calls}
        results, place = _results(messages, place + 1, first)
        yield _make_single(first, tools) if results is None else _make_unit(first, results)


def _make_single(message: Message, tools: Mapping[str | None, str]) -> Unit:
    result = message.role is Role.TOOL
    named: JSON = {"call": message.call, "name": message.name or tools.get(message.call)}
    return Unit((message,), (key_of(message),), whole=not result, rest=as_written(named) if result else "")


def _make_unit(reply: Message, results: Sequence[Message | None]) -> Unit:
    named = tuple(
        MessageCall(f"{index}", call.name, call.arguments) for index, call in enumerate(reply.calls)
    )
    shown = tuple(
        msgspec.structs.replace(result, call=f"{index}", name=reply.calls[index].name or None)
        for index, result in enumerate(results)
        if result is not None
    )
    unit = (msgspec.structs.replace(reply, calls=named), *shown)
    open_calls = [_plain(call) for call, result in zip(reply.calls, results, strict=True) if result is None]
    rest = as_written(list(open_calls)) if open_calls else ""
    return Unit(unit, tuple(map(key_of, unit)), whole=not open_calls, rest=rest)


def _plain(call: MessageCall) -> dict[str, JSON]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def _results(
    messages: Sequence[Message], place: int, first: Message
) -> tuple[list[Message | None] | None, int]:
    """Return the results directly after a reply, in call order (None if missing), and the next index."""
    if first.role is not Role.ASSISTANT or not first.calls:
        return None, place
    found: list[Message | None] = [None] * len(first.calls)
    while place < len(messages) and messages[place].role is Role.TOOL and None in found:
        free = [index for index, there in enumerate(found) if there is None]
        found[_find_call(first.calls, free, messages[place])] = messages[place]
        place += 1
    return found, place


def _find_call(calls: Sequence[MessageCall], free: Sequence[int], result: Message) -> int:
    """Return the index of a result's call: by id, else by tool, else the first that waits."""
    named = [index for index in free if calls[index].id == result.call]
    named = named or [index for index in free if calls[index].name == result.name]
    return (named or free)[0]


def _arguments(text: str) -> object:
    """Return decoded arguments, so that different JSON texts of one value are equal."""
    try:
        return msgspec.Raw(_ENCODER.encode(msgspec.json.decode(text or "{}")))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return clean(text)


Ranges = tuple[tuple[int, int], ...]


class Standing(msgspec.Struct, frozen=True, gc=False):
    """A unit in the window, as if open calls had results: its messages' numbers and keys."""

    numbers: tuple[int, ...]
    keys: Keys


class WindowChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the window by the harness: `messages` joined after the numbers `after`; `kept` stayed."""

    messages: tuple[Message, ...] = ()
    after: tuple[int, ...] = ()
    kept: Ranges | None = None


class WindowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Steps to the next prompt: `said` joins at the end, `change` is made, and `asker` is new user input.

    `keys` is what the request must contain, None if not recorded; `halves` are incomplete pairs in it.
    """

    said: tuple[Said, ...] = ()
    change: WindowChange | None = None
    asker: Said | None = None
    keys: Keys | None = None
    halves: tuple[Unit, ...] = ()


def plan_window(
    window: Sequence[Standing],
    messages: int,
    said: Sequence[Said],
    prompt: Prompted | None,
    after: int,
    *,
    wanted: bool,
    under_way: bool = False,
) -> WindowPlan:
    """Plan how to get from the window to the next recorded prompt.

    `messages` is the number of the run's last message, including reserved ones. `said` are the messages since
    the last response, the first `after` of them before `prompt` was recorded. `wanted`: the run awaits a user
    message. `under_way`: the prompt was recorded while calls were running, so its last response without
    results stands for the complete unit.
    """
    if prompt is None:
        return _plan_unrecorded(said, wanted=wanted)
    spoken = [Unit((message,), (key_of(message),)) for message in map(build_message, said)]
    units = units_of(prompt.messages)
    target = [*(_complete_last(units, window) if under_way else units), *spoken[after:]]
    found = align(_keys((*window, *spoken)), _keys(target))
    asker, its = _find_asker(target, found, said, len(window), prompt) if wanted else (None, None)
    plain = [each for place, each in enumerate(said) if place != its]
    last = found[:-1] if asker is not None else found
    numbered = _number_units(window, messages, said, its)
    change = _change(numbered, messages + len(plain), target[: len(last)], last)
    return WindowPlan(
        said=tuple(plain),
        change=change,
        asker=asker,
        keys=tuple(chain.from_iterable(_keys(target))),
        halves=tuple(unit for unit in target if not unit.whole),
    )


def _plan_unrecorded(said: Sequence[Said], *, wanted: bool) -> WindowPlan:
    """Plan the same without a recorded prompt: messages join, and the last may be the new user input."""
    asker = said[-1] if wanted and said and said[-1].role is Role.USER else None
    return WindowPlan(said=tuple(said if asker is None else said[:-1]), asker=asker)


def _keys(units: Iterable[Unit | Standing]) -> list[Keys]:
    return [unit.keys for unit in units]


def build_message(said: Said) -> Message:
    """Return the item as a message.

    If its role is that of a result, it becomes a user message, because no call waits for it.
    """
    return Message(role=Role.USER if said.role is Role.TOOL else said.role, text=said.text)


def _complete_last(target: list[Unit], window: Sequence[Standing]) -> list[Unit]:
    last = window[-1].keys if window else ()
    return [
        Unit(unit.messages, last) if not unit.whole and unit.keys == last[:1] else unit for unit in target
    ]


def _find_asker(
    target: Sequence[Unit],
    found: Sequence[int | None],
    said: Sequence[Said],
    standing: int,
    prompt: Prompted,
) -> tuple[Said | None, int | None]:
    """Return the last message if it is new user input, and its index in `said` (None: only in the prompt)."""
    if not target or len(target[-1].messages) != 1 or target[-1].messages[0].role is not Role.USER:
        return None, None
    place = found[-1]
    if place is None:
        text = target[-1].messages[0].text
        return Said(prompt.position, prompt.at, text=text), None
    return (said[place - standing], place - standing) if place >= standing else (None, None)


def _number_units(
    window: Sequence[Standing], messages: int, said: Sequence[Said], its: int | None
) -> list[tuple[int, ...]]:
    """Return the message numbers of all units before the change; () for the new user input."""
    numbers = [unit.numbers for unit in window]
    following = messages
    for place in range(len(said)):
        following += place != its
        numbers.append(() if place == its else (following,))
    return numbers


def _change(
    numbered: list[tuple[int, ...]],
    messages: int,
    target: Sequence[Unit],
    found: Sequence[int | None],
) -> WindowChange | None:
    stays = {*found}
    kept = [number for place, numbers in enumerate(numbered) if place in stays for number in numbers]
    leaves = any(numbers for place, numbers in enumerate(numbered) if place not in stays)
    joined, last = list[tuple[Message, int]](), 0
    for unit, place in zip(target, found, strict=True):
        if place is not None:
            last = numbered[place][-1]
            continue
        for message in unit.valid_messages():
            joined.append((message, last))
            last = messages + len(joined)
    return _make_change(joined, ranges_of(kept) if leaves else None)


def _make_change(joined: Sequence[tuple[Message, int]], kept: Ranges | None) -> WindowChange | None:
    if not joined and kept is None:
        return None
    return WindowChange(
        messages=tuple(message for message, _ in joined), after=tuple(after for _, after in joined), kept=kept
    )
