"""The conversation of each run as its next answer is shown it, kept for what cuts it and for what forks from it.

No reader keeps it: a `Cut` says what stays, and here it becomes what the next answer was shown, as if the source had recorded
that. Texts are held only while a cut or a fork may still ask for them.
"""

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from refold.importers.cuts import BEGINNING, Cut, Forked
from refold.importers.derivation.gap import is_persons
from refold.importers.items import (
    Answered,
    Item,
    Prompted,
    Returned,
    RunBegan,
    Said,
    Unread,
    message_of,
)
from refold.importers.open_calls import answering
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Ranges, Role

_UNTOLD = (
    "a cut that was not there when the file was looked through: what later answers were shown is not known"
)


class Spoken(msgspec.Struct, frozen=True, gc=False):
    """A message, the row in which it stood, and whether a turn of the person begins with it."""

    row: int
    message: Message
    turn: bool = False


def conversations(items: Iterable[Item]) -> Iterator[Item]:
    """The items of a file, each cut told as a prompt; a run that forks from another begins with what was said there."""
    talk, forks = _Conversation(0), dict[str, tuple[Sequence[Spoken], int]]()
    for item in items:
        match item:
            case RunBegan():
                said, upto = forks.pop(item.key, ((), 0))
                began = msgspec.structs.replace(item, messages=_messages(said[:upto])) if upto else item
                talk = _Conversation(
                    item.cuts, said[:upto] or [Spoken(BEGINNING, message) for message in item.messages]
                )
                yield began
            case Said() | Answered() | Returned():
                talk.add(item)
                yield item
            case Prompted():
                talk.replace(item)
                yield item
            case Cut():
                yield from talk.cut(item)
            case Forked():
                forks[item.key] = talk.fork()
            case _:
                yield item


class _Conversation:
    """Messages in order. `cuts` are to come, forks among them, None if nobody knows how many: without any, nothing is held."""

    def __init__(self, cuts: int | None, said: Sequence[Spoken] = ()) -> None:
        self._cuts = cuts
        self._said = [*said] if cuts != 0 else []

    def add(self, item: Said | Answered | Returned) -> None:
        """One message more."""
        if self._cuts != 0:
            self._said.append(_spoken(item))

    def replace(self, prompt: Prompted) -> None:
        """What was recorded as shown is what the next cut begins with."""
        if self._cuts != 0:
            self._said = [
                Spoken(prompt.row, message, message.role is Role.USER) for message in prompt.messages
            ]

    def fork(self) -> tuple[Sequence[Spoken], int]:
        """What was said up to here: the first so many, to which more may be added."""
        fork = self._said, len(self._said)
        self._counted(self._said)
        return fork

    def cut(self, cut: Cut) -> Iterator[Item]:
        """What the next answer is shown; nothing where no result of it was cleared."""
        if self._cuts == 0:  # the file grew since it was looked through: nothing is held that could be cut
            yield Unread(cut.position, cut.at, cut.rest, code="changed", problem=_UNTOLD)
            return
        said = self._before(cut.turns)
        parts = [_within(said, cut.head), _within(said, cut.tail, between=cut.between)]
        gone = _results(self._said) - _results(chain(*parts))
        head, tail = ([_left(each, gone, cut.cleared) for each in part] for part in parts)
        kept = [*head, *map(_spoken, cut.joins), *tail]
        if not cut.cleared or kept != self._said:
            yield Prompted(cut.position, cut.at, cut.rest, cut.counts, messages=_messages(kept), why=cut.why)
        self._counted(kept)

    def _before(self, turns: int) -> Sequence[Spoken]:
        """What was said before the last `turns` of the person, and what the run begins with."""
        begins = [place for place, each in enumerate(self._said) if each.turn]
        upto = len(self._said) if not turns else begins[-turns] if turns <= len(begins) else 0
        return [each for place, each in enumerate(self._said) if place < upto or each.row == BEGINNING]

    def _counted(self, said: list[Spoken]) -> None:
        """One of what is to come less. What forks stay what they were: another list is begun."""
        self._cuts = self._cuts - 1 if self._cuts else self._cuts
        self._said = said if self._cuts != 0 else []


def _spoken(item: Said | Answered | Returned) -> Spoken:
    return Spoken(item.row, message_of(item), is_persons(item))


def _within(said: Sequence[Spoken], ranges: Ranges, *, between: bool = False) -> Sequence[Spoken]:
    """Those in these ranges of rows, or all from the first of them to the last."""
    firsts = [first for first, _ in ranges]
    found = ((place, each.row, bisect(firsts, each.row)) for place, each in enumerate(said))
    places = [place for place, row, index in found if index and row <= ranges[index - 1][1]]
    return said[places[0] : places[-1] + 1] if between and places else [said[place] for place in places]


def _results(said: Iterable[Spoken]) -> set[str | None]:
    """The calls of which there is a result."""
    return {each.message.call for each in said if each.message.role is Role.TOOL}


def _left(spoken: Spoken, gone: Collection[str | None], cleared: Mapping[str, str]) -> Spoken:
    """What a cut leaves of a message: no call whose result left with it, and of a result that was cleared other words."""
    message = spoken.message
    if (words := cleared.get(message.call or "")) is not None:
        message = msgspec.structs.replace(message, text=words)
    elif any(call.id in gone for call in message.calls):
        calls = tuple(call for call in message.calls if call.id not in gone)
        message = msgspec.structs.replace(message, calls=calls)
    return spoken if message is spoken.message else msgspec.structs.replace(spoken, message=message)


def _messages(said: Iterable[Spoken]) -> tuple[Message, ...]:
    return answering(each.message for each in said)
