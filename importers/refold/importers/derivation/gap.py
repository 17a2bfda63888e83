"""Items between two responses, and the prompt of the next response after cuts.

A `Cut` states which messages stay; this module turns it into the prompt of the next response, as if the
source had recorded it. Texts are kept only while a cut or a fork may still need them.
"""

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from refold.importers.derivation import facts
from refold.importers.derivation.facts import Open, Paired, pair_results
from refold.importers.derivation.log import Writer
from refold.importers.derivation.units import WindowPlan, key_of, plan_window
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
from refold.importers.session_rows import BEGINNING, Cut, Forked, drop_orphan_results
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Ranges, Role

Reply = Answered | RequestFailed


class PromptGap:
    """The items between two responses. `asked` is the reply to the next request; None at the source's end.

    `cancel`: the user interrupted the run at the end. The first `before` of `said` precede the last `prompt`.
    `under_way`: results follow it.
    """

    def __init__(self, items: Sequence[Item], asked: Reply | None, cancel: Cancelled | None) -> None:
        self.items, self.asked, self.cancel = items, asked, cancel
        prompts = [(place, item) for place, item in enumerate(items) if isinstance(item, Prompted)]
        self.prompt: Prompted | None
        last, self.prompt = prompts[-1] if prompts else (0, None)
        self.said = [item for item in items if isinstance(item, Said)]
        self.before = sum(isinstance(item, Said) for item in items[:last])
        self.under_way = any(isinstance(item, Returned) for item in items[last:])

    def find_user_entry(self, behind: int, *, missing: bool) -> int | None:
        """Return the index of an interruption or a message by the user after this index, or None.

        If results are `missing`, an interruption explains them, so it takes precedence over messages.
        """
        behind += 1
        stops = [
            place for place, item in enumerate(self.items[behind:], behind) if isinstance(item, Cancelled)
        ]
        said = [place for place, item in enumerate(self.items[behind:], behind) if is_from_user(item)]
        return min(stops if missing and stops else [*stops, *said], default=None)

    @property
    def no_request(self) -> bool:
        """Return whether the source ends here without evidence of a request to the model.

        Evidence is a response, a failure or an interruption.
        """
        return self.asked is None and self.cancel is None

    @property
    def awaits_reply(self) -> bool:
        """Return whether a request to the model follows, or was due when the source ends."""
        return self.asked is not None or any(map(is_from_user, self.said))


class Results(msgspec.Struct, frozen=True):
    """Results of the open batch: the call of each result by its index; `missing` calls have none.

    The last result of a batch triggers a request. So that result, at index `held`, is written last, after
    messages that joined meanwhile. If the user interrupted the batch or wrote a message, at index `parted`,
    earlier results are written before that and no request follows; other results are missing.
    """

    pairs: dict[int, Paired]
    missing: tuple[str, ...] = ()
    last: int | None = None
    held: int | None = None
    parted: int | None = None


def write_gap(log: Writer, gap: PromptGap) -> WindowPlan:
    """Write a gap. Afterwards, the request that `gap.asked` replies to is open (not at the source's end)."""
    results = _pair_results(log, gap)
    _write_beside(log, gap, results)
    plan = _plan_prompt(log, gap, results)
    missing = results.missing if results.parted is None else ()
    # An interruption that ends the run also cancels calls in progress.
    before = 0 if gap.cancel is not None else max(0, len(missing) - 1)
    _write_missing(log, gap, missing[:before])
    _write_context(log, gap, plan)
    if gap.cancel is not None:
        facts.write_cancellation(log, gap.cancel)
    held = None if results.held is None else gap.items[results.held]
    if results.held is not None and isinstance(held, Returned):
        facts.write_result(log, held, results.pairs[results.held], no_request=gap.no_request)
    _write_missing(log, gap, missing[before:])
    if gap.asked is not None:
        facts.write_backoff(log, gap.asked)
    elif gap.cancel is not None and log.state.request is not None:
        facts.write_cancelled_request(log, gap.cancel)
    return plan


def _write_missing(log: Writer, gap: PromptGap, calls: Iterable[str]) -> None:
    """Write that these calls have no result, at the interruption or response that follows."""
    by = gap.cancel or gap.asked
    if by is not None:
        for call in calls:
            facts.write_missing_result(log, call, by)


def _pair_results(log: Writer, gap: PromptGap) -> Results:
    calls = log.state.batch.calls if log.state.batch is not None else ()
    waiting = [Open(call.id, call.name, log.provider_ids.get(call.id, "")) for call in calls]
    returned = {place: item for place, item in enumerate(gap.items) if isinstance(item, Returned)}
    pairs = dict(zip(returned, pair_results(waiting, [*returned.values()]), strict=True))
    return _pair_batch(gap, pairs, waiting) if log.state.batch is not None else Results(pairs)


def _pair_batch(gap: PromptGap, pairs: dict[int, Paired], waiting: Sequence[Open]) -> Results:
    answered = {pair.call: place for place, pair in pairs.items() if pair.call}
    missing = tuple(call.id for call in waiting if call.id not in answered)
    last = max(answered.values(), default=-1)
    if missing:
        return Results(
            pairs, missing, parted=None if gap.no_request else gap.find_user_entry(last, missing=True)
        )
    parted = gap.find_user_entry(last, missing=False)
    early = parted is not None or gap.cancel is not None
    return Results(pairs, last=last, held=None if early else last, parted=parted)


def _write_beside(log: Writer, gap: PromptGap, results: Results) -> None:
    """Write all results except the held one, and items beside the conversation, in the source's order."""
    for place, item in enumerate(gap.items):
        if place == results.parted:
            for call in results.missing:
                facts.write_missing_result(log, call, item, no_request=call == results.missing[-1])
        match item:
            case Returned():
                pair = results.pairs[place]
                if not pair.call:
                    log.diagnose(pair.code, pair.problem, item, text=item.output)
                    log.record(item)
                elif place != results.held:
                    facts.write_result(log, item, pair, no_request=place == results.last)
            case Said():
                pass
            case Prompted():
                if item is not gap.prompt:
                    log.record(item, what=f"{item.why}:superseded")
            case _:
                record_beside(log, item)


def record_beside(log: Writer, item: Item) -> None:
    """Record an item that is not a fact: a decision of the source, unread data, or a passing interruption."""
    match item:
        case Remarked():
            log.record(item, what=item.what)
        case Unread():
            log.diagnose(item.code, item.problem, item, text=item.rest, unread=not item.read)
        case Cancelled():
            log.record(item, what="cancelled", text=item.reason)
        case _:
            log.record(item, what="out_of_place")


def is_from_user(item: Item) -> bool:
    """Return whether the item is a message by a user."""
    return isinstance(item, Said) and item.by == "user"


def _plan_prompt(log: Writer, gap: PromptGap, results: Results) -> WindowPlan:
    state = log.state
    keys = {
        pair.call: key_of(Message(role=Role.TOOL, text=item.output))
        for place, pair in results.pairs.items()
        if isinstance(item := gap.items[place], Returned)
    }
    empty = key_of(Message(role=Role.TOOL))
    open_calls = state.batch.calls if state.batch is not None else ()
    shown = {call.id: keys.get(call.id, empty) for call in open_calls}
    return plan_window(
        log.list_standing(shown) if gap.prompt is not None else (),
        state.messages,
        gap.said,
        gap.prompt,
        gap.before,
        wanted=_is_awaited(log, gap),
        under_way=gap.under_way,
    )


def _is_awaited(log: Writer, gap: PromptGap) -> bool:
    """Return whether the run awaits a user, and a request to the model follows or was due."""
    return log.state.agent_state.awaits_operator and gap.awaits_reply


def _write_context(log: Writer, gap: PromptGap, plan: WindowPlan) -> None:
    continues = _is_awaited(log, gap) and plan.asker is None
    if plan.said:
        facts.write_messages(
            log, plan.said, continues=continues and plan.change is None, no_request=gap.no_request
        )
    if plan.change is not None and gap.prompt is not None:
        facts.write_change(
            log, plan.change, gap.prompt, gap.prompt.why, continues=continues, no_request=gap.no_request
        )
    elif continues and not plan.said and gap.asked is not None:
        facts.write_retry(log, gap.asked)
    if plan.asker is not None:
        facts.write_input(log, plan.asker, no_request=gap.no_request)


_UNKNOWN_CUT = "the file has a cut that was not there when the import started; later prompts are unknown"


class SpokenMessage(msgspec.Struct, frozen=True, gc=False):
    """A message, its row, and whether a turn of the user begins with it."""

    row: int
    message: Message
    turn: bool = False


def conversations(items: Iterable[Item]) -> Iterator[Item]:
    """Replace each cut among the items of a file by a prompt, and start each fork with the messages before
    it.
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
    """Messages in order, kept while cuts or forks may follow.

    `cuts` is the number of cuts and forks to come, None if unknown.
    """

    def __init__(self, cuts: int | None, said: Sequence[SpokenMessage] = ()) -> None:
        self._cuts = cuts
        self._said = [*said] if cuts != 0 else []

    def add(self, item: Said | Answered | Returned) -> None:
        """Add a message."""
        if self._cuts != 0:
            self._said.append(_make_window_message(item))

    def replace(self, prompt: Prompted) -> None:
        """Replace the messages by a recorded prompt, which the next cut starts from."""
        if self._cuts != 0:
            self._said = [
                SpokenMessage(prompt.row, message, message.role is Role.USER) for message in prompt.messages
            ]

    def fork(self) -> tuple[Sequence[SpokenMessage], int]:
        """Return the messages up to here, as a list and its current length; the list may grow later."""
        fork = self._said, len(self._said)
        self._count_cut(self._said)
        return fork

    def cut(self, cut: Cut) -> Iterator[Item]:
        """Yield the prompt after a cut; nothing if it only clears results that are no longer there."""
        if self._cuts == 0:  # the file grew since it was surveyed, so messages were not kept
            yield Unread(cut.position, cut.at, cut.rest, code="changed", problem=_UNKNOWN_CUT)
            return
        said = self._drop_turns(cut.turns)
        parts = [_select(said, cut.head), _select(said, cut.tail, between=cut.between)]
        gone = _result_ids(self._said) - _result_ids(chain(*parts))
        head, tail = ([_apply_cut(each, gone, cut.cleared) for each in part] for part in parts)
        kept = [*head, *map(_make_window_message, cut.joins), *tail]
        if not cut.cleared or kept != self._said:
            yield Prompted(cut.position, cut.at, cut.rest, cut.counts, messages=_messages(kept), why=cut.why)
        self._count_cut(kept)

    def _drop_turns(self, turns: int) -> Sequence[SpokenMessage]:
        """Return the messages before the last `turns` user turns, and the run's initial messages."""
        begins = [place for place, each in enumerate(self._said) if each.turn]
        upto = len(self._said) if not turns else begins[-turns] if turns <= len(begins) else 0
        return [each for place, each in enumerate(self._said) if place < upto or each.row == BEGINNING]

    def _count_cut(self, said: list[SpokenMessage]) -> None:
        """Count one cut or fork. Lists of forks stay unchanged, because a new list is used."""
        self._cuts = self._cuts - 1 if self._cuts else self._cuts
        self._said = said if self._cuts != 0 else []


def _make_window_message(item: Said | Answered | Returned) -> SpokenMessage:
    return SpokenMessage(item.row, message_of(item), is_from_user(item))


def _select(
    said: Sequence[SpokenMessage], ranges: Ranges, *, between: bool = False
) -> Sequence[SpokenMessage]:
    """Return the messages in these ranges of rows, or all from the first of them to the last."""
    firsts = [first for first, _ in ranges]
    found = ((place, each.row, bisect(firsts, each.row)) for place, each in enumerate(said))
    places = [place for place, row, index in found if index and row <= ranges[index - 1][1]]
    return said[places[0] : places[-1] + 1] if between and places else [said[place] for place in places]


def _result_ids(said: Iterable[SpokenMessage]) -> set[str | None]:
    """Return the calls that have a result."""
    return {each.message.call for each in said if each.message.role is Role.TOOL}


def _apply_cut(
    spoken: SpokenMessage, gone: Collection[str | None], cleared: Mapping[str, str]
) -> SpokenMessage:
    """Return a message after a cut: without calls whose results are gone, or with a cleared result's new
    text.
    """
    message = spoken.message
    if (words := cleared.get(message.call or "")) is not None:
        message = msgspec.structs.replace(message, text=words)
    elif any(call.id in gone for call in message.calls):
        calls = tuple(call for call in message.calls if call.id not in gone)
        message = msgspec.structs.replace(message, calls=calls)
    return spoken if message is spoken.message else msgspec.structs.replace(spoken, message=message)


def _messages(said: Iterable[SpokenMessage]) -> tuple[Message, ...]:
    return drop_orphan_results(each.message for each in said)
