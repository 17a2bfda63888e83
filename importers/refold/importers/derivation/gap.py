"""What stands between two answers, told in the order in which the machine asks once, with all of it in the window."""

from collections.abc import Sequence

import msgspec

from refold.importers.derivation import facts
from refold.importers.derivation.log import Writer
from refold.importers.derivation.pairs import Open, Paired, paired
from refold.importers.derivation.plan import Plan, planned
from refold.importers.derivation.units import key_of
from refold.importers.items import (
    Answered,
    Cancelled,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    Said,
    Unread,
)
from refold.reducers.machine import AgentState
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role

Reply = Answered | RequestFailed


class Gap:
    """The items between two answers. `asked` is what answers the request that comes next, None: the source ends here.

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
        """The place at which a person came in, behind the item at this place: by a stop, or with something that they said.

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
        """Whether the source ends here, and neither answer, failure nor interruption shows that the model was asked."""
        return self.asked is None and self.cancel is None

    @property
    def wants(self) -> bool:
        """Whether the model was asked, or was going to be when the source ends."""
        return self.asked is not None or any(map(is_persons, self.said))


class Results(msgspec.Struct, frozen=True):
    """What became of the open batch: for each result, by its place, the call that it answers; `missing` calls have none.

    After the last result of a batch the model is asked: so that of `held` is told last, behind what joined meanwhile. But
    where a person stopped it, or said something, the results that stood before are told before that, and nothing is
    asked: `parted` is the place, by which the others are missed.
    """

    pairs: dict[int, Paired]
    missing: tuple[str, ...] = ()
    last: int | None = None
    held: int | None = None
    parted: int | None = None


def bridged(log: Writer, gap: Gap) -> Plan:
    """Tell a gap. Afterwards the request that `gap.asked` answers is open; where the source ends, none is."""
    results = _results(log, gap)
    _tell_beside(log, gap, results)
    plan = _plan(log, gap, results)
    by = gap.cancel or gap.asked
    missing = () if by is None or results.parted is not None else results.missing
    # What was under way when a person stopped the run for good is cut off by that.
    before = 0 if gap.cancel is not None else max(0, len(missing) - 1)
    if by is not None:
        for call in missing[:before]:
            facts.no_result(log, call, by)
    _tell_context(log, gap, plan)
    if gap.cancel is not None:
        facts.cancel(log, gap.cancel)
    held = None if results.held is None else gap.items[results.held]
    if results.held is not None and isinstance(held, Returned):
        facts.result(log, held, results.pairs[results.held], unasked=gap.unasked)
    if by is not None:
        for call in missing[before:]:
            facts.no_result(log, call, by)
    if gap.asked is not None:
        facts.waited(log, gap.asked)
    elif gap.cancel is not None and log.state.request is not None:
        facts.cancelled_request(log, gap.cancel)
    return plan


def _results(log: Writer, gap: Gap) -> Results:
    batch = log.state.batch
    waiting = [
        Open(call.id, call.name, log.provider_ids.get(call.id, ""))
        for call in (batch.calls if batch is not None else ())
    ]
    places = [place for place, item in enumerate(gap.items) if isinstance(item, Returned)]
    returned = [item for item in gap.items if isinstance(item, Returned)]
    pairs = dict(zip(places, paired(waiting, returned), strict=True))
    if batch is None:
        return Results(pairs)
    answered = {pair.call: place for place, pair in pairs.items() if pair.call}
    missing = tuple(call.id for call in waiting if call.id not in answered)
    last = max(answered.values(), default=-1)
    ends = gap.unasked and bool(missing)
    parted = None if ends else gap.parted(last, missing=bool(missing))
    early = bool(missing) or parted is not None or gap.cancel is not None
    return Results(pairs, missing, None if missing else last, None if early else last, parted)


def _tell_beside(log: Writer, gap: Gap, results: Results) -> None:
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
    """What is no fact: the source's own decisions, what could not be read, what a person stopped before going on."""
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


def _plan(log: Writer, gap: Gap, results: Results) -> Plan:
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
        wanted=state.agent_state is AgentState.WAITING_FOR_INPUT and gap.wants,
        under_way=gap.under_way,
    )


def _tell_context(log: Writer, gap: Gap, plan: Plan) -> None:
    waits = log.state.agent_state is AgentState.WAITING_FOR_INPUT
    goes_on = waits and gap.wants and plan.asker is None
    if plan.said:
        facts.said(log, plan.said, goes_on=goes_on and plan.change is None, unasked=gap.unasked)
    if plan.change is not None and gap.prompt is not None:
        facts.change(log, plan.change, gap.prompt, gap.prompt.why, goes_on=goes_on, unasked=gap.unasked)
    elif goes_on and not plan.said and gap.asked is not None:
        facts.went_on(log, gap.asked)
    if plan.asker is not None:
        facts.asked(log, plan.asker, unasked=gap.unasked)
