"""Each item as the fact that it is, and each result with its call."""

from collections import defaultdict
from collections.abc import Collection, Sequence

import msgspec

from refold.importers.content import UnreadCall, is_known
from refold.importers.derivation.log import Writer
from refold.importers.derivation.units import WindowChange, said_message
from refold.importers.fields import json_text
from refold.importers.items import (
    UNKNOWN_PART,
    Answered,
    Cancelled,
    Item,
    RequestFailed,
    Returned,
    Said,
    message_of,
)
from refold.reducers import composition
from refold.reducers import events as ev
from refold.reducers.composition import observed
from refold.reducers.messages import Message, MessageCall, ReplyCall, Usage
from refold.reducers.pending import MOST_CALLS
from refold.reducers.source_marks import BEGAN
from refold.reducers.state import RunState
from refold.reducers.vocabulary import FailureClass, Role, StopReason, ToolError, Unknown


class Open(msgspec.Struct, frozen=True, gc=False):
    """A call that waits for its result: our id, the tool's name, the id that its provider gave it."""

    id: str
    name: str
    provider_id: str


class Paired(msgspec.Struct, frozen=True, gc=False):
    """What became of a result.

    `call` is ours, "" where it answers none; `code` and `problem` say what is odd.
    """

    call: str = ""
    name: str = ""
    code: str = ""
    problem: str = ""


def paired(calls: Sequence[Open], results: Sequence[Returned]) -> list[Paired]:
    """For each result the call that it answers. Each call has one result at most.

    First go the results whose id a call has; repeated ids in the order of the calls. What is left is the next
    open call's, of its tool if it names one: said as odd, unless the source names no ids at all.
    """
    free = _Free(calls)
    found = [free.of_id(result.id) for result in results]
    return [
        _next(free, result) if call is None else _pair(call, result)
        for call, result in zip(found, results, strict=True)
    ]


def refused_calls(calls: Sequence[MessageCall], items: Sequence[Item]) -> frozenset[int]:
    """The places of the calls that the results among these items say were refused."""
    results = [item for item in items if isinstance(item, Returned)]
    if not any(result.refused_by for result in results):
        return frozenset()
    waiting = [Open(f"{place}", call.name, call.id) for place, call in enumerate(calls)]
    pairs = zip(paired(waiting, results), results, strict=True)
    return frozenset(int(pair.call) for pair, result in pairs if pair.call and result.refused_by)


class _Free:
    """The calls that wait, in their order: all of them, by their providers' ids, by their tools.

    Each is given once.
    """

    def __init__(self, calls: Sequence[Open]) -> None:
        self._taken: set[str] = set()
        self._all = list(reversed(calls))  # the next one is the last of each list
        self._by_id: defaultdict[str, list[Open]] = defaultdict(list)
        self._by_name: defaultdict[str, list[Open]] = defaultdict(list)
        for call in self._all:
            self._by_id[call.provider_id].append(call)
            self._by_name[call.name].append(call)

    def has_id(self, id: str) -> bool:  # noqa: A002
        """Whether a call has this id, whether it waits or not."""
        return bool(id) and id in self._by_id

    def of_id(self, id: str) -> Open | None:  # noqa: A002
        """Take the next call of this id."""
        return self._next(self._by_id[id]) if self.has_id(id) else None

    def of_name(self, name: str) -> Open | None:
        """Take the next call of this tool, else the next of any."""
        same = self._next(self._by_name[name]) if name and name in self._by_name else None
        return same or self._next(self._all)

    def _next(self, calls: list[Open]) -> Open | None:
        # What one of the three gave stands in the others yet: each is passed over once.
        while calls:
            call = calls.pop()
            if call.id not in self._taken:
                self._taken.add(call.id)
                return call
        return None


def without_call(result: Returned) -> str:
    """What is said of a result that no call waits for."""
    tool = f", of the tool {result.name!r}" if result.name else ""
    return f"no call waits for the result of {result.id!r}{tool}"


def _next(free: _Free, result: Returned) -> Paired:
    if free.has_id(result.id):
        return Paired(code="result_repeated", problem=f"call {result.id!r} has its result already")
    call = free.of_name(result.name)
    if call is None:
        return Paired(code="result_without_call", problem=without_call(result))
    if not result.id:
        return _pair(call, result)
    problem = f"no call has the id {result.id!r}: taken for the result of the next call that waits"
    if other := _pair(call, result).problem:
        problem = f"{problem}; {other}"
    return Paired(call=call.id, name=call.name, code="paired_by_order", problem=problem)


def _pair(call: Open, result: Returned) -> Paired:
    if result.name in ("", call.name):
        return Paired(call=call.id, name=call.name)
    problem = f"the result names the tool {result.name!r}, its call {call.name!r}"
    return Paired(call=call.id, name=call.name, code="other_tool", problem=problem)


ADAPTER = "import"
"""What stands as adapter in an answer that was imported."""

_UNCOUNTED = (Unknown.USAGE, Unknown.COST)  # no source counts what a request took that failed


def answer(
    log: Writer, item: Answered, *, stopped: bool = False, refused: Collection[int] = frozenset()
) -> None:
    """The model answered; `stopped`: by the source a person stopped it there, and so it is no turn that it
    ended.

    `refused` are the places of the calls that its own harness refused.
    """
    calls = [
        ReplyCall(provider_id=call.id, name=call.name, arguments=call.arguments)
        for call in item.calls[:MOST_CALLS]
    ]
    ended = StopReason.OTHER if stopped else StopReason.END_TURN
    stop = item.stop or (StopReason.TOOL_USE if calls else ended)
    for call in item.calls[:MOST_CALLS]:
        if isinstance(call, UnreadCall):
            problem = (
                f"the arguments of a call of {call.name!r}" if call.name else "a call, which has no name"
            )
            log.diagnose(UNKNOWN_PART, f"could not read {problem}", item, unread=True)
    seq = log.tell(
        lambda state, at, salt: _with_refused(
            composition.responded(
                state,
                ev.ModelResponded(
                    at=at,
                    request=_request(state),
                    stop=stop,
                    adapter=ADAPTER,
                    stop_raw=item.stop_raw,
                    usage=item.usage,
                    cost_nanousd=item.cost_nanousd,
                    model=item.model,
                    response_id=item.response_id,
                    duration=item.duration,
                    unknown=_unsaid(item, stopped=stopped),
                ),
                ev.Answer(text=item.text, reasoning=item.reasoning),
                calls,
                salt,
            ),
            refused,
        ),
        item,
        message_of(item),
    )
    log.record(item, seq, text=f"usage {item.quality}" if item.quality else "")
    if more := item.calls[MOST_CALLS:]:
        problem = f"it has {len(item.calls)} calls, of which {MOST_CALLS} are read"
        text = json_text(msgspec.to_builtins(more))
        log.diagnose("too_many_calls", problem, item, seq=seq, text=text, unread=True)


def _with_refused(fact: ev.ModelResponded, refused: Collection[int]) -> ev.ModelResponded:
    if not refused:
        return fact
    calls = [msgspec.structs.replace(call, refused=place in refused) for place, call in enumerate(fact.calls)]
    return msgspec.structs.replace(fact, calls=tuple(calls))


def _unsaid(item: Answered, *, stopped: bool) -> tuple[Unknown, ...]:
    counted = item.quality == "reported" and item.usage != Usage()
    # An answer with calls stopped for them; of another nobody knows by itself whether it ended its turn, or
    # was cut.
    told = stopped or bool(item.calls) if item.stop is None else item.stop is not StopReason.OTHER
    known = told or is_known(item.stop_raw)
    return (() if counted else (Unknown.USAGE,)) + (() if known else (Unknown.STOP,))


def failure(log: Writer, item: RequestFailed) -> None:
    """A request to the model failed."""
    seq = log.tell(
        lambda state, at, salt: composition.failed(
            ev.ModelFailed(
                at=at,
                request=_request(state),
                failure=item.failure,
                status=item.status,
                unknown=_UNCOUNTED,
            ),
            item.message,
            item.partial_text,
            salt,
            state.policy,
        ),
        item,
    )
    log.record(item, seq)


def result(log: Writer, item: Returned, pair: Paired, *, unasked: bool = False) -> None:
    """A call ended; `unasked`: nothing shows that the model was asked then, as where a person comes next."""
    unknown = () if item.marked else (Unknown.ERRORS,)
    seq = log.tell(
        lambda state, at, salt: composition.returned(
            state,
            ev.ToolReturned(
                at=at,
                call=pair.call,
                unasked=unasked,
                unknown=unknown,
                error=item.error,
                refused_by=item.refused_by,
                duration=item.duration,
            ),
            item.output,
            pair.name,
            None,
            salt,
        ),
        item,
        message_of(item),
    )
    log.record(item, seq, f"{BEGAN}{item.began}" if item.began else "")
    if pair.code:
        log.diagnose(pair.code, pair.problem, item, seq=seq)


def no_result(log: Writer, call: str, item: Item, *, unasked: bool = False) -> None:
    """A call was never answered, though the conversation went on: at the instant of `item`, what came next.

    A person's stop tells how it ended; of others nobody knows. `unasked` as in `result`.
    """
    stopped = isinstance(item, Cancelled)
    error, unknown = (ToolError.CANCELLED, ()) if stopped else (None, (Unknown.RESULT,))
    seq = log.tell(
        lambda state, at, salt: composition.returned(
            state,
            ev.ToolReturned(at=at, call=call, error=error, unasked=unasked, unknown=unknown),
            "",
            "",
            None,
            salt,
        ),
        item,
        Message(role=Role.TOOL),
    )
    if stopped:
        log.record(_place(item), seq, "implied")
        return
    problem = f"call {call} has no result in the source, and the conversation went on"
    log.diagnose("result_missing", problem, item, seq=seq)


def said(log: Writer, items: Sequence[Said], *, goes_on: bool, unasked: bool) -> None:
    """Messages joined the conversation; `goes_on`: and the model was asked, or, `unasked`, was going to
    be.
    """
    messages = [said_message(item) for item in items]
    why = " ".join(dict.fromkeys(item.by for item in items))
    seq = log.tell(
        lambda state, at, salt: observed(
            state,
            ev.ContextObserved(at=at, why=why, goes_on=goes_on, unasked=goes_on and unasked),
            messages,
            salt,
        ),
        items[-1],
        *messages,
    )
    for item in items:
        log.record(item, seq)


def change(log: Writer, made: WindowChange, item: Item, why: str, *, goes_on: bool, unasked: bool) -> None:
    """The source's harness changed what the model is shown; `goes_on` and `unasked` as in `said`."""
    seq = log.tell(
        lambda state, at, salt: observed(
            state,
            ev.ContextObserved(
                at=at,
                after=made.after,
                kept=made.kept,
                why=why,
                goes_on=goes_on,
                unasked=goes_on and unasked,
            ),
            made.messages,
            salt,
        ),
        item,
        *made.messages,
    )
    log.record(item, seq)


def went_on(log: Writer, item: Item) -> None:
    """The model was asked again though nobody had said anything."""
    seq = log.tell(
        lambda state, at, salt: observed(state, ev.ContextObserved(at=at, goes_on=True), (), salt), item
    )
    log.record(_place(item), seq, "implied")


def waited(log: Writer, item: Item) -> None:
    """The model was asked again after a failure."""
    backoff = log.state.backoff
    if backoff is not None:
        until = backoff.event.until
        seq = log.tell(lambda _, at, __: ev.ClockRead(at=max(at, until), due=until), item)
        log.record(_place(item), seq, "implied")


def asked(log: Writer, item: Said, *, unasked: bool) -> None:
    """Somebody said something and waits for an answer; `unasked`: nothing shows that the model was asked for
    one.
    """
    seq = log.tell(
        lambda state, at, salt: composition.received(
            state, ev.InputReceived(at=at, unasked=unasked, by=item.by), item.text, salt
        ),
        item,
        message_of(msgspec.structs.replace(item, role=Role.USER)),
    )
    log.record(item, seq)


def cancel(log: Writer, item: Cancelled) -> None:
    """A person stopped what was going on."""
    seq = log.tell(
        lambda _, at, salt: composition.cancelled(ev.CancelRequested(at=at, by=item.by), item.reason),  # noqa: ARG005
        item,
    )
    log.record(item, seq)


def cancelled_request(log: Writer, item: Cancelled) -> None:
    """The request that was under way when a person stopped it had no answer."""
    seq = log.tell(
        lambda state, at, salt: composition.failed(
            ev.ModelFailed(
                at=at, request=_request(state), failure=FailureClass.CANCELLED, unknown=_UNCOUNTED
            ),
            "",
            "",
            salt,
            state.policy,
        ),
        item,
    )
    log.record(_place(item), seq, "implied")


def _request(state: RunState) -> int:
    return state.request.seq if state.request else 0


def _place(item: Item) -> Item:
    """Where it stood and no more: what else it holds is kept with its own fact."""
    return Item(item.position, item.at)
