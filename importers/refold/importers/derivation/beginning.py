"""The start of a run, from all items before its first response: initial messages and time."""

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from refold.importers.derivation.gap import is_from_user
from refold.importers.derivation.units import Unit, align, build_message, key_of, units_of
from refold.importers.items import Item, Prompted, Remarked, Returned, RunBegan, Said, Unread, message_of
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role


class FirstWindow(msgspec.Struct, frozen=True):
    """The messages of the first request. `task` is the index of the first user message, None if unknown.

    `hidden` are earlier messages that the first recorded prompt does not have. `halves` are calls without a
    result or results without a call; `orphans` are results that no call waited for.
    """

    messages: tuple[Message, ...]
    task: int | None
    hidden: tuple[Unit, ...]
    halves: tuple[Unit, ...]
    orphans: tuple[Returned, ...]


def derive_window(items: Sequence[Item]) -> FirstWindow:
    """Derive the start of a run from the items before the first response.

    A recorded prompt takes precedence.
    """
    said: list[Message] = []
    shown: list[Message] = []
    orphans: list[Returned] = []
    for item in items:
        match item:
            case RunBegan(messages=messages):
                said += messages
                shown += messages
            case Prompted(messages=messages):
                shown = list(messages)
            case Returned() if not _awaits_result(shown):
                orphans.append(item)
            case Said() | Returned():
                said.append(_message(item))
                shown.append(said[-1])
            case _:
                pass
    units = units_of(shown)
    messages = tuple(chain.from_iterable(unit.valid_messages() for unit in units))
    return FirstWindow(
        messages=messages,
        task=_place_of_task(items, messages),
        hidden=tuple(_find_hidden(units_of(said), units)),
        halves=tuple(unit for unit in units if not unit.whole),
        orphans=tuple(orphans),
    )


def find_start_time(items: Sequence[Item], asked: Item | None) -> int:
    """Return when the run began in nanoseconds since the epoch, 0 if unknown.

    This is the time of the first user message, because earlier entries of the harness may be minutes older
    than the first request. Without one, it is the time of the first message; without messages, of the first
    remark. The earliest candidate counts, because the header of a file may be written later than other rows.
    """
    answer = [asked] if asked else []
    prompts = [item for item in items if _is_task(item)]
    given = any(map(_gives_task, items))
    said = [item for item in items if not isinstance(item, Remarked | Unread)]
    for these in ([] if given else prompts, [*said, *answer], items):
        if found := _list_times(these):
            return min([*found, *_list_times(answer)])
    return 0


def _is_task(item: Item) -> bool:
    return isinstance(item, Said) and is_from_user(item) and item.role is Role.USER


def _gives_task(item: Item) -> bool:
    return isinstance(item, RunBegan) and any(message.role is Role.USER for message in item.messages)


def _list_times(items: Iterable[Item]) -> list[int]:
    return [item.at for item in items if item.at is not None]


def _awaits_result(shown: Sequence[Message]) -> bool:
    """Return whether the last response still has a call without a result."""
    reply = next((message for message in reversed(shown) if message.role is not Role.TOOL), None)
    if reply is None or reply.role is not Role.ASSISTANT:
        return False
    results = next(place for place, message in enumerate(reversed(shown)) if message is reply)
    return len(reply.calls) > results


def _message(item: Said | Returned) -> Message:
    if isinstance(item, Said):
        return build_message(item)
    return msgspec.structs.replace(message_of(item), name=item.name or None)


def _place_of_task(items: Sequence[Item], messages: Sequence[Message]) -> int | None:
    task = next((item for item in items if isinstance(item, Said) and _is_task(item)), None)
    wanted = None if task is None else key_of(build_message(task))
    return next((place for place, message in enumerate(messages) if key_of(message) == wanted), None)


def _find_hidden(said: list[Unit], shown: list[Unit]) -> Iterable[Unit]:
    matched = set(align([unit.keys for unit in said], [unit.keys for unit in shown]))
    return (unit for place, unit in enumerate(said) if place not in matched)
