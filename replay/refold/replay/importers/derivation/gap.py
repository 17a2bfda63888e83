"""What stands between two answers, told in the order in which the machine asks once, with all of it in the window."""

from collections.abc import Sequence

from refold.reducers.machine import AgentState
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role
from refold.replay.importers.derivation import facts
from refold.replay.importers.derivation.log import Writer
from refold.replay.importers.derivation.pairs import Open, Paired, paired
from refold.replay.importers.derivation.plan import Plan, planned
from refold.replay.importers.derivation.units import key_of
from refold.replay.importers.items import (
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

    @property
    def unasked(self) -> bool:
        """Whether the source ends here, and neither answer, failure nor interruption shows that the model was asked."""
        return self.asked is None and self.cancel is None

    @property
    def wants(self) -> bool:
        """Whether the model was asked, or was going to be when the source ends."""
        return self.asked is not None or any(each.by == "user" for each in self.said)


def bridged(log: Writer, gap: Gap) -> Plan:
    """Tell a gap. Afterwards the request that `gap.asked` answers is open; where the source ends, none is."""
    batch = log.state.batch
    waiting = [
        Open(call.id, call.name, log.provider_ids.get(call.id, ""))
        for call in (batch.calls if batch is not None else ())
    ]
    results = [(place, item) for place, item in enumerate(gap.items) if isinstance(item, Returned)]
    answers = paired(waiting, [item for _, item in results])
    pairs = {place: pair for (place, _), pair in zip(results, answers, strict=True)}
    answered = {pair.call: place for place, pair in pairs.items() if pair.call}
    missing = [call.id for call in waiting if call.id not in answered]
    settles = gap.asked is not None or gap.cancel is not None
    # Of a batch that gets all its results the last is told last: after it the model is asked.
    held = None if batch is None or missing else max(answered.values())
    _tell_beside(log, gap, pairs, held)
    plan = _plan(log, gap, {call: gap.items[place] for call, place in answered.items()})
    if settles:
        for call in missing[:-1]:
            facts.no_result(log, call, gap.asked or gap.cancel)
    _tell_context(log, gap, plan)
    if gap.cancel is not None:
        facts.cancel(log, gap.cancel)
    last = None if held is None else gap.items[held]
    if held is not None and isinstance(last, Returned):
        facts.result(log, last, pairs[held], unasked=gap.unasked)
    if settles and missing:
        facts.no_result(log, missing[-1], gap.asked or gap.cancel)
    if gap.asked is not None:
        facts.waited(log, gap.asked)
    elif gap.cancel is not None and log.state.request is not None:
        facts.cancelled_request(log, gap.cancel)
    return plan


def _tell_beside(log: Writer, gap: Gap, pairs: dict[int, Paired], held: int | None) -> None:
    """The results but the last, and what is beside the conversation, in the source's order."""
    for place, item in enumerate(gap.items):
        match item:
            case Returned():
                pair = pairs[place]
                if not pair.call:
                    log.diagnose(pair.code, pair.problem, item, text=item.output)
                    log.record(item)
                elif place != held:
                    facts.result(log, item, pair)
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
            log.diagnose(item.code, item.problem, item, text=item.rest, unread=True)
        case Cancelled():
            log.record(item, what="cancelled", text=item.reason)
        case _:
            log.record(item, what="out_of_place")


def _plan(log: Writer, gap: Gap, answered: dict[str, Item]) -> Plan:
    state = log.state
    keys = {
        call: key_of(Message(role=Role.TOOL, text=item.output))
        for call, item in answered.items()
        if isinstance(item, Returned)
    }
    empty = key_of(Message(role=Role.TOOL))
    results = {call.id: keys.get(call.id, empty) for call in (state.batch.calls if state.batch else ())}
    return planned(
        log.standing(results) if gap.prompt is not None else (),
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
