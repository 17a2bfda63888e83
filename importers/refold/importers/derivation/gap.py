"""What stands between two answers, and the conversation as the next answer is shown it.

No reader keeps it: a `Cut` says what stays, and here it becomes what the next answer was shown, as if the
source had recorded that. Texts are held only while a cut or a fork may still ask for them.
"""

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from refold.importers.derivation import facts
from refold.importers.derivation.facts import Open, Paired, paired
from refold.importers.derivation.log import Writer
from refold.importers.derivation.units import WindowPlan, key_of, planned
from refold.importers.items import (
    Answered,
    Cancelled,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    Said,
    Unread,
    message_of,
)
from refold.importers.session_rows import BEGINNING, Cut, Forked, answering
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Ranges, Role

Reply = Answered | RequestFailed


class PromptGap:
    """The items between two answers. `asked` is what answers the request that comes next, None: the source
    ends here.

    `cancel`: a person stopped the run at the end. The first `before` of `said` came before the last `prompt`;
    `under_way`: results came after it.
    """

    def __init__(self, items: Sequence[Item], asked: Reply | None, cancel: Cancelled | None) -> None:
        self.items, self.asked, self.cancel = items, asked, cancel
        prompts = [(place, item) for place, item in enumerate(items) if isinstance(item, Prompted)]
        self.prompt: Prompted | None
        last, self.prompt = prompts[-1] if prompts else (0, None)
        self.said = [item for item in items if isinstance(item, Said)]
        self.before = sum(isinstance(item, Said) for item in items[:last])
        self.under_way = any(isinstance(item, Returned) for item in items[last:])

    def parted(self, behind: int, *, missing: bool) -> int | None:
        """The place at which a person came in, behind the item at this place: by a stop, or with something
        that they said.

        Where results are `missing`, a stop is what tells of them, whenever it came.
        """
        behind += 1
        stops = [
            place for place, item in enumerate(self.items[behind:], behind) if isinstance(item, Cancelled)
        ]
        said = [place for place, item in enumerate(self.items[behind:], behind) if is_persons(item)]
        return min(stops if missing and stops else [*stops, *said], default=None)

    @property
    def unasked(self) -> bool:
        """Whether the source ends here, and neither answer, failure nor interruption shows that the model was
        asked.
        """
        return self.asked is None and self.cancel is None

    @property
    def wants(self) -> bool:
        """Whether the model was asked, or was going to be when the source ends."""
        return self.asked is not None or any(map(is_persons, self.said))


class Results(msgspec.Struct, frozen=True):
    """What became of the open batch: for each result, by its place, the call that it answers; `missing` calls
    have none.

    After the last result of a batch the model is asked: so that of `held` is told last, behind what joined
    meanwhile. But where a person stopped it, or said something, the results that stood before are told before
    that, and nothing is asked: `parted` is the place, by which the others are missed.
    """

    pairs: dict[int, Paired]
    missing: tuple[str, ...] = ()
    last: int | None = None
    held: int | None = None
    parted: int | None = None


def bridged(log: Writer, gap: PromptGap) -> WindowPlan:
    """Tell a gap. Afterwards the request that `gap.asked` answers is open; where the source ends, none is."""
    results = _results(log, gap)
    _tell_beside(log, gap, results)
    plan = _plan(log, gap, results)
    missing = results.missing if results.parted is None else ()
    # What was under way when a person stopped the run for good is cut off by that.
    before = 0 if gap.cancel is not None else max(0, len(missing) - 1)
    _miss(log, gap, missing[:before])
    _tell_context(log, gap, plan)
    if gap.cancel is not None:
        facts.cancel(log, gap.cancel)
    held = None if results.held is None else gap.items[results.held]
    if results.held is not None and isinstance(held, Returned):
        facts.result(log, held, results.pairs[results.held], unasked=gap.unasked)
    _miss(log, gap, missing[before:])
    if gap.asked is not None:
        facts.waited(log, gap.asked)
    elif gap.cancel is not None and log.state.request is not None:
        facts.cancelled_request(log, gap.cancel)
    return plan


def _miss(log: Writer, gap: PromptGap, calls: Iterable[str]) -> None:
    """Say that these calls have no result, at what came next: a person's stop, or the next answer."""
    by = gap.cancel or gap.asked
    if by is not None:
        for call in calls:
            facts.no_result(log, call, by)


def _results(log: Writer, gap: PromptGap) -> Results:
    calls = log.state.batch.calls if log.state.batch is not None else ()
    waiting = [Open(call.id, call.name, log.provider_ids.get(call.id, "")) for call in calls]
    returned = {place: item for place, item in enumerate(gap.items) if isinstance(item, Returned)}
    pairs = dict(zip(returned, paired(waiting, [*returned.values()]), strict=True))
    return _of_batch(gap, pairs, waiting) if log.state.batch is not None else Results(pairs)


def _of_batch(gap: PromptGap, pairs: dict[int, Paired], waiting: Sequence[Open]) -> Results:
    answered = {pair.call: place for place, pair in pairs.items() if pair.call}
    missing = tuple(call.id for call in waiting if call.id not in answered)
    last = max(answered.values(), default=-1)
    if missing:
        return Results(pairs, missing, parted=None if gap.unasked else gap.parted(last, missing=True))
    parted = gap.parted(last, missing=False)
    early = parted is not None or gap.cancel is not None
    return Results(pairs, last=last, held=None if early else last, parted=parted)


def _tell_beside(log: Writer, gap: PromptGap, results: Results) -> None:
    """The results but the one that is held, and what is beside the conversation, in the source's order."""
    for place, item in enumerate(gap.items):
        if place == results.parted:
            for call in results.missing:
                facts.no_result(log, call, item, unasked=call == results.missing[-1])
        match item:
            case Returned():
                pair = results.pairs[place]
                if not pair.call:
                    log.diagnose(pair.code, pair.problem, item, text=item.output)
                    log.record(item)
                elif place != results.held:
                    facts.result(log, item, pair, unasked=place == results.last)
            case Said():
                pass
            case Prompted():
                if item is not gap.prompt:
                    log.record(item, what=f"{item.why}:superseded")
            case _:
                beside(log, item)


def beside(log: Writer, item: Item) -> None:
    """What is no fact: the source's own decisions, what could not be read, what a person stopped before going
    on.
    """
    match item:
        case Remarked():
            log.record(item, what=item.what)
        case Unread():
            log.diagnose(item.code, item.problem, item, text=item.rest, unread=not item.read)
        case Cancelled():
            log.record(item, what="cancelled", text=item.reason)
        case _:
            log.record(item, what="out_of_place")


def is_persons(item: Item) -> bool:
    """Whether somebody said it who is a person."""
    return isinstance(item, Said) and item.by == "user"


def _plan(log: Writer, gap: PromptGap, results: Results) -> WindowPlan:
    state = log.state
    keys = {
        pair.call: key_of(Message(role=Role.TOOL, text=item.output))
        for place, pair in results.pairs.items()
        if isinstance(item := gap.items[place], Returned)
    }
    empty = key_of(Message(role=Role.TOOL))
    open_calls = state.batch.calls if state.batch is not None else ()
    shown = {call.id: keys.get(call.id, empty) for call in open_calls}
    return planned(
        log.standing(shown) if gap.prompt is not None else (),
        state.messages,
        gap.said,
        gap.prompt,
        gap.before,
        wanted=_is_awaited(log, gap),
        under_way=gap.under_way,
    )


def _is_awaited(log: Writer, gap: PromptGap) -> bool:
    """Whether the run waits for a person, and the model was asked or was going to be."""
    return log.state.agent_state.awaits_operator and gap.wants


def _tell_context(log: Writer, gap: PromptGap, plan: WindowPlan) -> None:
    goes_on = _is_awaited(log, gap) and plan.asker is None
    if plan.said:
        facts.said(log, plan.said, goes_on=goes_on and plan.change is None, unasked=gap.unasked)
    if plan.change is not None and gap.prompt is not None:
        facts.change(log, plan.change, gap.prompt, gap.prompt.why, goes_on=goes_on, unasked=gap.unasked)
    elif goes_on and not plan.said and gap.asked is not None:
        facts.went_on(log, gap.asked)
    if plan.asker is not None:
        facts.asked(log, plan.asker, unasked=gap.unasked)


_UNTOLD = (
    "a cut that was not there when the file was looked through: what later answers were shown is not known"
)


class SpokenMessage(msgspec.Struct, frozen=True, gc=False):
    """A message, the row in which it stood, and whether a turn of the person begins with it."""

    row: int
    message: Message
    turn: bool = False


def conversations(items: Iterable[Item]) -> Iterator[Item]:
    """The items of a file, each cut told as a prompt; a run that forks from another begins with what was said
    there.
    """
    talk, forks = _MatchedConversation(0), dict[str, tuple[Sequence[SpokenMessage], int]]()
    for item in items:
        match item:
            case RunBegan():
                said, upto = forks.pop(item.key, ((), 0))
                began = msgspec.structs.replace(item, messages=_messages(said[:upto])) if upto else item
                talk = _MatchedConversation(
                    item.cuts, said[:upto] or [SpokenMessage(BEGINNING, message) for message in item.messages]
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


class _MatchedConversation:
    """Messages in order.

    `cuts` are to come, forks among them, None if nobody knows how many: without any, nothing is held.
    """

    def __init__(self, cuts: int | None, said: Sequence[SpokenMessage] = ()) -> None:
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
                SpokenMessage(prompt.row, message, message.role is Role.USER) for message in prompt.messages
            ]

    def fork(self) -> tuple[Sequence[SpokenMessage], int]:
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
        gone = _result_ids(self._said) - _result_ids(chain(*parts))
        head, tail = ([_left(each, gone, cut.cleared) for each in part] for part in parts)
        kept = [*head, *map(_spoken, cut.joins), *tail]
        if not cut.cleared or kept != self._said:
            yield Prompted(cut.position, cut.at, cut.rest, cut.counts, messages=_messages(kept), why=cut.why)
        self._counted(kept)

    def _before(self, turns: int) -> Sequence[SpokenMessage]:
        """What was said before the last `turns` of the person, and what the run begins with."""
        begins = [place for place, each in enumerate(self._said) if each.turn]
        upto = len(self._said) if not turns else begins[-turns] if turns <= len(begins) else 0
        return [each for place, each in enumerate(self._said) if place < upto or each.row == BEGINNING]

    def _counted(self, said: list[SpokenMessage]) -> None:
        """One of what is to come less. What forks stay what they were: another list is begun."""
        self._cuts = self._cuts - 1 if self._cuts else self._cuts
        self._said = said if self._cuts != 0 else []


def _spoken(item: Said | Answered | Returned) -> SpokenMessage:
    return SpokenMessage(item.row, message_of(item), is_persons(item))


def _within(
    said: Sequence[SpokenMessage], ranges: Ranges, *, between: bool = False
) -> Sequence[SpokenMessage]:
    """Those in these ranges of rows, or all from the first of them to the last."""
    firsts = [first for first, _ in ranges]
    found = ((place, each.row, bisect(firsts, each.row)) for place, each in enumerate(said))
    places = [place for place, row, index in found if index and row <= ranges[index - 1][1]]
    return said[places[0] : places[-1] + 1] if between and places else [said[place] for place in places]


def _result_ids(said: Iterable[SpokenMessage]) -> set[str | None]:
    """The calls of which there is a result."""
    return {each.message.call for each in said if each.message.role is Role.TOOL}


def _left(spoken: SpokenMessage, gone: Collection[str | None], cleared: Mapping[str, str]) -> SpokenMessage:
    """What a cut leaves of a message: no call whose result left with it, and of a result that was cleared
    other words.
    """
    message = spoken.message
    if (words := cleared.get(message.call or "")) is not None:
        message = msgspec.structs.replace(message, text=words)
    elif any(call.id in gone for call in message.calls):
        calls = tuple(call for call in message.calls if call.id not in gone)
        message = msgspec.structs.replace(message, calls=calls)
    return spoken if message is spoken.message else msgspec.structs.replace(spoken, message=message)


def _messages(said: Iterable[SpokenMessage]) -> tuple[Message, ...]:
    return answering(each.message for each in said)
