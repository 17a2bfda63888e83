"""What joins and leaves the window between two answers, as the machine can be told it."""

from collections.abc import Sequence

import msgspec

from refold.importers.derivation.units import Keys, Unit, aligned, key_of, units_of
from refold.importers.items import Prompted, Said
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role
from refold.reducers.window import ranges_of

Ranges = tuple[tuple[int, int], ...]


class Standing(msgspec.Struct, frozen=True, gc=False):
    """A unit that the window holds, or will once the open calls have their results: its messages' numbers."""

    numbers: tuple[int, ...]
    keys: Keys


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What the harness did besides: `messages` joined, each behind the one that `after` names; `kept` stayed."""

    messages: tuple[Message, ...] = ()
    after: tuple[int, ...] = ()
    kept: Ranges | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """In order: `said` joins at the end, `change` is made, `asker` is said by somebody who waits for an answer.

    `keys` is what the request must show then, None where nothing recorded it; `halves` are pairs that it had half of.
    """

    said: tuple[Said, ...] = ()
    change: Change | None = None
    asker: Said | None = None
    keys: Keys | None = None
    halves: tuple[Unit, ...] = ()


def planned(
    window: Sequence[Standing],
    messages: int,
    said: Sequence[Said],
    prompt: Prompted | None,
    after: int,
    *,
    wanted: bool,
    under_way: bool = False,
) -> Plan:
    """How to get from the window to what the next request showed.

    `messages` is the number of the run's last message, reserved ones included. `said` is what was said meanwhile,
    the first `after` of it before `prompt` was recorded. `wanted`: a person's message is waited for. `under_way`: the
    prompt was recorded while calls were: it has their reply without results, and means the whole of it.
    """
    if prompt is None:
        asker = said[-1] if wanted and said and said[-1].role is Role.USER else None
        return Plan(said=tuple(said if asker is None else said[:-1]), asker=asker)
    later = [Unit((said_message(each),), (key_of(said_message(each)),)) for each in said[after:]]
    units = units_of(prompt.messages)
    target = [*(_settled(units, window) if under_way else units), *later]
    pending = [Standing((0,), (key_of(said_message(each)),)) for each in said]
    found = aligned([unit.keys for unit in (*window, *pending)], [unit.keys for unit in target])
    asker, its = _asker(target, found, said, len(window), prompt) if wanted else (None, None)
    plain = [each for place, each in enumerate(said) if place != its]
    last = found[:-1] if asker is not None else found
    numbered = _numbered(window, messages, said, its)
    change = _change(numbered, messages + len(plain), target[: len(last)], last)
    return Plan(
        said=tuple(plain),
        change=change,
        asker=asker,
        keys=tuple(key for unit in target for key in unit.keys),
        halves=tuple(unit for unit in target if not unit.whole),
    )


def said_message(said: Said) -> Message:
    """What was said, as a message. One that calls itself a result is what somebody said: no call waits for it."""
    return Message(role=Role.USER if said.role is Role.TOOL else said.role, text=said.text)


def _settled(target: list[Unit], window: Sequence[Standing]) -> list[Unit]:
    last = window[-1].keys if window else ()
    return [
        Unit(unit.messages, last) if not unit.whole and unit.keys == last[:1] else unit for unit in target
    ]


def _asker(
    target: Sequence[Unit],
    found: Sequence[int | None],
    said: Sequence[Said],
    standing: int,
    prompt: Prompted,
) -> tuple[Said | None, int | None]:
    """The last message, if somebody says it only now, and its place in `said`, None where only the prompt has it."""
    if not target or len(target[-1].messages) != 1 or target[-1].messages[0].role is not Role.USER:
        return None, None
    place = found[-1]
    if place is None:
        text = target[-1].messages[0].text
        return Said(prompt.position, prompt.at, text=text), None
    return (said[place - standing], place - standing) if place >= standing else (None, None)


def _numbered(
    window: Sequence[Standing], messages: int, said: Sequence[Said], its: int | None
) -> list[tuple[int, ...]]:
    """The numbers of all units that stand, or are said before the change; none for the asker's message."""
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
) -> Change | None:
    stays = {place for place in found if place is not None}
    kept = [number for place, numbers in enumerate(numbered) if place in stays for number in numbers]
    leaves = any(numbers for place, numbers in enumerate(numbered) if place not in stays)
    joined: list[Message] = []
    after: list[int] = []
    last = 0
    for unit, place in zip(target, found, strict=True):
        if place is not None:
            last = numbered[place][-1]
            continue
        for message in unit.lawful():
            joined.append(message)
            after.append(last)
            last = messages + len(joined)
    if not joined and not leaves:
        return None
    return Change(messages=tuple(joined), after=tuple(after), kept=ranges_of(kept) if leaves else None)
