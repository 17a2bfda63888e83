"""`refold state`, `view`, `why` and `graph`: a run's state at an event, and its prompts."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from refold.console import addresses, descriptions, locations
from refold.console.call_reasons import print_call_reasons
from refold.console.locations import StorePlace, without_event_loop
from refold.console.options import Address, PolicyFile, Settings
from refold.console.screen import Column, Screen
from refold.engine.compatibility import installed_guards
from refold.engine.conversation import hash_request, request_for
from refold.engine.models.protocol import ModelRequest, SentHash
from refold.importers.derivation.facts import ADAPTER
from refold.reducers.effects import CallModel, next_effects
from refold.reducers.errors import DamagedLog
from refold.reducers.events import ModelRequested, ModelResponded, RunStarted, SourceRecorded, StateChanged
from refold.reducers.limits import LimitUnit
from refold.reducers.messages import Message
from refold.reducers.source_marks import ASKED_FOR_SUMMARY, LACKS, NO_SUMMARY, SYSTEM_LABEL
from refold.reducers.state import NEW, CallState, RunState, Watch
from refold.reducers.vocabulary import SOURCE_LABEL, Role
from refold.replay import events, figures, state_at
from refold.replay.cuts import NoSuchTurn
from refold.replay.reader import NO_GUARDS, event_of, fold_event, stored_events, words_of
from refold.replay.why import Opinion, Reasons, why
from refold.store.protocol import Store, Stored

_FEW = 200
"""Tokens to allow for what a provider adds, before a count above twice the estimate means that something
is missing.
"""

Sent = Literal["agrees", "differs", "unknown"]

_UNASKED: tuple[Sent, str] = "unknown", "the source shows no request after this"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """`view` as JSON: the request of a turn, made at event `seq`; if it was not `asked`, what it would have
    contained.

    `sent` compares it with the digest recorded when it was sent. It is `unknown`, for the reason in
    `unknown_why`, if no response came, if the response's payload was erased and its salt with it, or if no
    digest was recorded.

    For imported runs: `tools_known` and `settings_known` are false if the source records none, `system_known`
    if it records a template of the system prompt. `lacks` are sentences on what else the source does not
    record of the request. `counted` are the request's tokens by the source's count, None without one;
    `estimated` are those of the known messages.
    """

    run: str
    seq: int
    step: int
    attempt: int
    model: str
    request: ModelRequest
    sent: Sent
    unknown_why: str = ""
    asked: bool = True
    tools_known: bool = True
    settings_known: bool = True
    system_known: bool = True
    lacks: tuple[str, ...] = ()
    estimated: int = 0
    counted: int | None = None


@without_event_loop
async def state_command(screen: Screen, place: StorePlace, run: Address) -> int:
    """Show the state after an event, by default the last. With -o json: all of the state.

    Example: refold state RUN@e41
    """
    async with locations.reading(place) as store:
        run, upto = await addresses.place_of(store, run)
        state, _ = await state_at(store, run, upto, installed_guards())
    screen.result(state, lambda: _tell_state(screen, state))
    return 0


@without_event_loop
async def view_command(
    screen: Screen,
    place: StorePlace,
    run: Address,
    *,
    policy: PolicyFile = None,
    settings: Settings,
) -> int:
    """Show the prompt of a turn, by default the last, and check that it is what was sent.

    With --policy or --set, show the difference to the prompt under that policy.

    Example: refold view @last@t7 --set 'history=[]'

    Exit code 1 if the prompt differs from what was sent, or from the recorded one.
    """
    if policy is not None or settings:
        from refold.console.whatif import tell_view
        from refold.console.whatif_question import OtherPolicies

        others = OtherPolicies(policy=[policy] if policy else [], settings=settings)
        return await tell_view(screen, place, [run], others)
    async with locations.reading(place) as store:
        run, upto = await addresses.place_of(store, run)
        found = await _view(store, run, upto)
    screen.result(found, lambda: _tell_view(screen, found))
    return 1 if found.sent == "differs" else 0


def graph_command(screen: Screen) -> int:
    """Print the state machine of agents as a Mermaid diagram. With -o json: {"mermaid": ...}."""
    from refold.engine.updates import mermaid

    screen.result({"mermaid": mermaid()}, lambda: screen.styled(mermaid()))
    return 0


async def _view(store: Store, run: str, upto: int | None) -> View:
    state, lacks = await _last_request(store, run, upto)
    asked = _request(state)
    if asked is None:
        raise DamagedLog(run, state.seq, "a request was made here, but the state before it requires none")
    request = request_for(asked, state, await words_of(store, run, state))
    imported = await _is_imported(store, run)
    answer, later = await _answer(store, run, state.seq)
    whole = hash_request(asked, state, request)
    sent, unknown = _UNASKED if state.no_request else _compare_digest(answer, whole)
    return View(
        run=run,
        seq=state.seq,
        step=asked.step,
        attempt=asked.attempt,
        model=state.setup.model,
        request=request,
        sent=sent,
        unknown_why=unknown,
        asked=not state.no_request,
        tools_known=bool(state.setup.tools) or not imported,
        settings_known=bool(request.settings) or not imported,
        system_known=SYSTEM_LABEL not in state.setup.labels,
        lacks=(*lacks, *later),
        estimated=state.window.tokens,
        counted=answer[1].usage.input or None if answer and answer[1].adapter == ADAPTER else None,
    )


def _request(state: RunState) -> ModelRequested | None:
    """Return the request made after this event; for an imported run without one in its source, the one it
    would be.
    """
    if state.no_request:
        return ModelRequested(step=state.spent.steps + 1, attempt=1, view="", messages=(), input_tokens=0)
    asks = any(isinstance(each, CallModel) for each in next_effects(state))
    return state.request.event if asks and state.request else None


async def _last_request(store: Store, run: str, upto: int | None) -> tuple[RunState, Sequence[str]]:
    """Return the state after the last request at or before event `upto`, and what its source lacks of the
    request.

    It may be the end of an imported run whose source shows no request. Guards do not affect prompts, so none
    is loaded.
    """
    state, asked = NEW, None
    noted, lacks = dict[str, None](), list[str]()
    async for stored, event in events(store, run, upto):
        state = fold_event(state, stored, event, NO_GUARDS)
        ends = isinstance(event, StateChanged) and state.no_request
        if isinstance(event, SourceRecorded) and event.what == NO_SUMMARY:
            noted[LACKS[event.what]] = None
        if isinstance(event, ModelRequested) or ends:
            asked, lacks = state, list(noted)
    if asked is not None:
        return asked, lacks
    if upto is None:
        raise NoSuchTurn(run, None, 0)
    raise addresses.BadAddress(f"{run}@e{upto}", "no request was made up to that event; use a later one")


async def _is_imported(store: Store, run: str) -> bool:
    """Return whether the run was imported from a transcript."""
    first = event_of(await anext(stored_events(store, run, 1)))
    return isinstance(first, RunStarted) and SOURCE_LABEL in first.labels


async def _answer(
    store: Store, run: str, seq: int
) -> tuple[tuple[Stored, ModelResponded] | None, Sequence[str]]:
    """Return the response to the request of event `seq`, and what its source lacks of that request
    according to later events.
    """
    found: tuple[Stored, ModelResponded] | None = None
    async for chunk in store.read(run, after=seq):
        for stored in chunk:
            event = event_of(stored)
            if isinstance(event, ModelResponded) and event.request == seq:
                found = stored, event
            elif isinstance(event, SourceRecorded) and event.what == ASKED_FOR_SUMMARY:
                return found, (LACKS[event.what],)
            elif found is not None and isinstance(event, ModelRequested):
                return found, ()
    return found, ()


def _compare_digest(answer: tuple[Stored, ModelResponded] | None, whole: SentHash) -> tuple[Sent, str]:
    """Return how the digests compare, and why they cannot be compared."""
    if answer is None:
        return "unknown", "no response came"
    stored, event = answer
    if not event.sent:
        return "unknown", "none was recorded with the response"
    if stored.content is None:
        return "unknown", "the response's payload was erased"
    return "agrees" if whole.digest(stored.salt) == event.sent else "differs", ""


def _tell_view(screen: Screen, found: View) -> None:
    tries = f", attempt {found.attempt}" if found.attempt > 1 else ""
    asked, verb = ("asked", "saw") if found.asked else ("not asked", "would have seen")
    screen.heading(
        f"run {found.run}, turn {found.step}{tries}, {asked} at event {found.seq}: what {found.model} {verb}"
    )
    for number, message in enumerate(found.request.messages, 1):
        screen.say()
        name = f" (result of {message.call})" if message.call else ""
        if number == 1 and message.role is Role.SYSTEM and not found.system_known:
            name = " (the source records a template: parts of it may not have been sent)"
        screen.heading(f"--- {number}. {message.role}{name}")
        _tell_message(screen, message)
    screen.say()
    _tell_settings(screen, found)


def _tell_settings(screen: Screen, found: View) -> None:
    request, unknown = found.request, "not recorded by the source"
    settings = ", ".join(f"{name}={text}" for name, text in request.settings.items())

    tools = ", ".join(tool.name for tool in request.tools)
    screen.facts(
        {
            "tools": tools or ("none" if found.tools_known else unknown),
            "settings": settings or ("the model's own" if found.settings_known else unknown),
            "output": None if request.max_output is None else f"at most {request.max_output} tokens",
            "missing": [*found.lacks, *_missing_tokens(found)],
            "sent": _SENT[found.sent] + found.unknown_why,
        },
        indent="",
    )


def _missing_tokens(found: View) -> list[str]:
    if found.counted is None or found.counted <= 2 * found.estimated + _FEW:
        return []
    counted, estimated = figures.count(found.counted), figures.count(found.estimated)
    return [f"the source counted {counted} tokens, about {estimated} are known"]


_SENT: dict[Sent, str] = {
    "agrees": "identical to what was sent, by the recorded digest",
    "differs": "NOT what was sent: the recorded digest differs",
    "unknown": "no digest to compare with: ",
}


def _tell_message(screen: Screen, message: Message) -> None:
    # Indented, so that a message cannot imitate the heading of the next one.
    if message.reasoning:
        screen.styled(_indent(f"[thought] {message.reasoning}"), "dim")
    if message.text:
        screen.styled(_indent(message.text))
    for call in message.calls:
        screen.styled(_indent(f"[call {call.id}] {descriptions.line(call.name)} {call.arguments}"))
    if not (message.reasoning or message.text or message.calls):
        screen.styled(_indent("(empty)"), "dim")


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _tell_state(screen: Screen, state: RunState) -> None:
    window, batch, stopping, outcome = state.window, state.batch, state.stopping, state.outcome
    asked, backoff = state.request, state.backoff.event if state.backoff else None
    tokens = f"about {figures.quantity(window.tokens, 'token')}"
    screen.heading(f"run {state.setup.run} after event {state.seq}, {figures.clock(state.at)}")
    screen.facts(
        {
            "state": str(state.agent_state),
            "spent": ", ".join(figures.spent(state)),
            "model": state.setup.model,
            "window": f"{figures.quantity(window.count, 'message')}, {tokens}: {_ranges(window.ranges)}",
            "asked": f"turn {asked.event.step}, attempt {asked.event.attempt}, at event {asked.seq}"
            if asked
            else None,
            "call": [f"{call.id} {call.name}: {_ending(call)}" for call in (batch.calls if batch else ())],
            "waits": f"until {figures.clock(backoff.until)}, for attempt {backoff.attempt}"
            if backoff
            else None,
            "stopping": f"{stopping.code}: {stopping.reason}" if stopping else None,
            "guard": [f"{watch.name} v{watch.version} {_memory(watch)}" for watch in state.guards],
            "outcome": f"{outcome.code}: {outcome.reason}" if outcome else None,
            "limit": figures.hit(state.limit) if state.limit else None,
        },
        indent="",
    )


def _ending(call: CallState) -> str:
    return call.error or ("ended" if call.result else "open")


def _memory(watch: Watch) -> str:
    """Render a guard's memory, or why it is blind."""
    if watch.blind:
        return watch.blind
    return "" if watch.own is None else msgspec.json.encode(watch.own).decode()


def _ranges(ranges: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or "none"


_COLUMNS = (Column("before"), Column("place"), Column("who"), Column("verdict"), Column("measured"))


@without_event_loop
async def why_command(screen: Screen, place: StorePlace, run: Address) -> int:
    """Show what every limit and guard evaluated at an event, by default the last, and what they returned.

    RUN@c3 shows call c3: the rule that refused, asked about or permitted it, with file and line; for an
    imported run, what its source records about a refusal.

    Example: refold why RUN@c3
    """
    async with locations.reading(place) as store:
        call = addresses.parse(run).call
        run, seq = await addresses.place_of(store, run)
        found = await why(store, run, seq, installed_guards(), f"c{call}" if call else "")
    screen.result(found, lambda: _tell(screen, found, named=call is not None))
    return 0


def _tell(screen: Screen, found: Reasons, *, named: bool) -> None:
    of = "" if found.seq == found.fact else f", which followed from event {found.fact} ({found.fact_kind})"
    screen.heading(f"run {found.run}, event {found.seq}: {found.kind}{of}")
    screen.pairs([("summary", found.says)])
    print_call_reasons(screen, found.calls, named=named)
    if found.opinions:
        screen.table(_COLUMNS, [_row(opinion, found) for opinion in found.opinions])
    else:
        screen.say("no limit or guard was evaluated")
    then = enumerate(zip(found.decisions, found.told, strict=True), found.fact + 1)
    rows = [f"e{seq} {kind}: {said}" for seq, (kind, said) in then]
    screen.facts({"then": tuple(rows or ["no decision"])}, indent="")


def _row(opinion: Opinion, found: Reasons) -> list[str]:
    # Evaluations before the n-th decision are listed beside the event of that decision.
    before = f"e{found.fact + 1 + opinion.before}"
    return [before, opinion.place, opinion.who, ", ".join(opinion.said), _render_measured(opinion.measured)]


def _render_measured(measured: Mapping[str, str | int]) -> str:
    """Render `3 of 12 steps` as the report does; for a guard, its own numbers."""
    used, unit, value = measured.get("used"), measured.get("unit"), measured.get("value")
    if not isinstance(used, int) or unit not in set(LimitUnit):
        return " ".join(f"{key}={value}" for key, value in measured.items())
    of = LimitUnit(unit)
    amount = figures.amount(used, of)
    if not isinstance(value, int):
        return f"{amount}, unlimited"
    told = figures.at_least(amount.removesuffix(f" {of}"), bool(measured.get("unknown")))
    return f"{told} of {figures.amount(value, of)}"
