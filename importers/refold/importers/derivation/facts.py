"""Conversion of items to facts, and pairing of results with calls."""

from collections import defaultdict
from collections.abc import Collection, Sequence

import msgspec

from refold.importers.content import UnreadCall, is_known
from refold.importers.derivation.log import Writer
from refold.importers.derivation.units import WindowChange, build_message
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
    """A call that waits for its result: our id, the tool's name, and the provider's id."""

    id: str
    name: str
    provider_id: str


class Paired(msgspec.Struct, frozen=True, gc=False):
    """The pairing of one result.

    `call` is our id, "" if it belongs to no call; `code` and `problem` describe an anomaly.
    """

    call: str = ""
    name: str = ""
    code: str = ""
    problem: str = ""


def pair_results(calls: Sequence[Open], results: Sequence[Returned]) -> list[Paired]:
    """Return the call of each result. Each call has at most one result.

    Results with a call's id come first, repeated ids in the order of the calls. Any other result goes to the
    next open call, preferably of its tool. That is reported, unless the source has no ids at all.
    """
    free = _Free(calls)
    found = [free.of_id(result.id) for result in results]
    return [
        _next(free, result) if call is None else _pair(call, result)
        for call, result in zip(found, results, strict=True)
    ]


def refused_calls(calls: Sequence[MessageCall], items: Sequence[Item]) -> frozenset[int]:
    """Return the indices of calls that were refused according to the results among these items."""
    results = [item for item in items if isinstance(item, Returned)]
    if not any(result.refused_by for result in results):
        return frozenset()
    waiting = [Open(f"{place}", call.name, call.id) for place, call in enumerate(calls)]
    pairs = zip(pair_results(waiting, results), results, strict=True)
    return frozenset(int(pair.call) for pair, result in pairs if pair.call and result.refused_by)


class _Free:
    """Waiting calls in order, by provider id, and by tool. Each is taken once."""

    def __init__(self, calls: Sequence[Open]) -> None:
        self._taken: set[str] = set()
        self._all = list(reversed(calls))  # reversed: the next one is at the end of each list
        self._by_id: defaultdict[str, list[Open]] = defaultdict(list)
        self._by_name: defaultdict[str, list[Open]] = defaultdict(list)
        for call in self._all:
            self._by_id[call.provider_id].append(call)
            self._by_name[call.name].append(call)

    def has_id(self, id: str) -> bool:  # noqa: A002
        """Return whether any call has this id, waiting or not."""
        return bool(id) and id in self._by_id

    def of_id(self, id: str) -> Open | None:  # noqa: A002
        """Take the next call with this id."""
        return self._next(self._by_id[id]) if self.has_id(id) else None

    def of_name(self, name: str) -> Open | None:
        """Take the next call of this tool, else the next of any."""
        same = self._next(self._by_name[name]) if name and name in self._by_name else None
        return same or self._next(self._all)

    def _next(self, calls: list[Open]) -> Open | None:
        # A call taken from one list remains in the others, and is skipped there once.
        while calls:
            call = calls.pop()
            if call.id not in self._taken:
                self._taken.add(call.id)
                return call
        return None


def describe_orphan(result: Returned) -> str:
    """Return the problem text for a result that no call waits for."""
    tool = f", of the tool {result.name!r}" if result.name else ""
    return f"no call waits for the result of {result.id!r}{tool}"


def _next(free: _Free, result: Returned) -> Paired:
    if free.has_id(result.id):
        return Paired(code="result_repeated", problem=f"call {result.id!r} already has a result")
    call = free.of_name(result.name)
    if call is None:
        return Paired(code="result_without_call", problem=describe_orphan(result))
    if not result.id:
        return _pair(call, result)
    problem = f"no call has the id {result.id!r}; assigned to the next waiting call"
    if other := _pair(call, result).problem:
        problem = f"{problem}; {other}"
    return Paired(call=call.id, name=call.name, code="paired_by_order", problem=problem)


def _pair(call: Open, result: Returned) -> Paired:
    if result.name in ("", call.name):
        return Paired(call=call.id, name=call.name)
    problem = f"the result is of tool {result.name!r}, its call of {call.name!r}"
    return Paired(call=call.id, name=call.name, code="other_tool", problem=problem)


ADAPTER = "import"
"""The `adapter` field of an imported response."""

_UNCOUNTED = (Unknown.USAGE, Unknown.COST)  # no source counts the tokens of a failed request


def write_response(
    log: Writer, item: Answered, *, stopped: bool = False, refused: Collection[int] = frozenset()
) -> None:
    """Write a response; `stopped`: the user interrupted it, so it did not end its turn.

    `refused` are the indices of calls that the source's harness refused.
    """
    calls = [
        ReplyCall(name=call.name, arguments=call.arguments, provider_id=call.id)
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
    seq = log.write_fact(
        lambda state, at, salt: _mark_refused(
            composition.responded(
                state,
                ev.ModelResponded(
                    at=at,
                    request=_request(state),
                    stop=stop,
                    stop_raw=item.stop_raw,
                    usage=item.usage,
                    cost_nanousd=item.cost_nanousd,
                    model=item.model,
                    adapter=ADAPTER,
                    response_id=item.response_id,
                    duration=item.duration,
                    unknown=_list_unknowns(item, stopped=stopped),
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
        problem = f"the response has {len(item.calls)} calls; only the first {MOST_CALLS} are read"
        text = json_text(msgspec.to_builtins(more))
        log.diagnose("too_many_calls", problem, item, seq=seq, text=text, unread=True)


def _mark_refused(fact: ev.ModelResponded, refused: Collection[int]) -> ev.ModelResponded:
    if not refused:
        return fact
    calls = [msgspec.structs.replace(call, refused=place in refused) for place, call in enumerate(fact.calls)]
    return msgspec.structs.replace(fact, calls=tuple(calls))


def _list_unknowns(item: Answered, *, stopped: bool) -> tuple[Unknown, ...]:
    counted = item.quality == "reported" and item.usage != Usage()
    # A response with calls stopped for them. Without calls, it may have ended its turn or been cut.
    told = stopped or bool(item.calls) if item.stop is None else item.stop is not StopReason.OTHER
    known = told or is_known(item.stop_raw)
    return (() if counted else (Unknown.USAGE,)) + (() if known else (Unknown.STOP,))


def write_failure(log: Writer, item: RequestFailed) -> None:
    """Write a failed request."""
    seq = log.write_fact(
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


def write_result(log: Writer, item: Returned, pair: Paired, *, no_request: bool = False) -> None:
    """Write a result; `no_request`: no later request is recorded, as when a user message follows."""
    unknown = () if item.marked else (Unknown.ERRORS,)
    seq = log.write_fact(
        lambda state, at, salt: composition.returned(
            state,
            ev.ToolReturned(
                at=at,
                call=pair.call,
                error=item.error,
                duration=item.duration,
                no_request=no_request,
                refused_by=item.refused_by,
                unknown=unknown,
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


def write_missing_result(log: Writer, call: str, item: Item, *, no_request: bool = False) -> None:
    """Write that a call has no result although the conversation continued, at the time of `item`.

    After an interruption by the user, the call was cancelled; otherwise its outcome is unknown. `no_request`
    is as in `write_result`.
    """
    stopped = isinstance(item, Cancelled)
    error, unknown = (ToolError.CANCELLED, ()) if stopped else (None, (Unknown.RESULT,))
    seq = log.write_fact(
        lambda state, at, salt: composition.returned(
            state,
            ev.ToolReturned(at=at, call=call, error=error, no_request=no_request, unknown=unknown),
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
    problem = f"call {call} has no result in the source, although the conversation continued"
    log.diagnose("result_missing", problem, item, seq=seq)


def write_messages(log: Writer, items: Sequence[Said], *, continues: bool, no_request: bool) -> None:
    """Write messages that joined the conversation.

    `continues`: a request followed them, or, if `no_request`, was about to follow.
    """
    messages = [build_message(item) for item in items]
    why = " ".join(dict.fromkeys(item.by for item in items))
    seq = log.write_fact(
        lambda state, at, salt: observed(
            state,
            ev.ContextObserved(at=at, why=why, continues=continues, no_request=continues and no_request),
            messages,
            salt,
        ),
        items[-1],
        *messages,
    )
    for item in items:
        log.record(item, seq)


def write_change(
    log: Writer, made: WindowChange, item: Item, why: str, *, continues: bool, no_request: bool
) -> None:
    """Write a change of the prompt by the harness; for `continues` and `no_request` see `write_messages`."""
    seq = log.write_fact(
        lambda state, at, salt: observed(
            state,
            ev.ContextObserved(
                at=at,
                after=made.after,
                kept=made.kept,
                why=why,
                continues=continues,
                no_request=continues and no_request,
            ),
            made.messages,
            salt,
        ),
        item,
        *made.messages,
    )
    log.record(item, seq)


def write_retry(log: Writer, item: Item) -> None:
    """Write a repeated request without a new message."""
    seq = log.write_fact(
        lambda state, at, salt: observed(state, ev.ContextObserved(at=at, continues=True), (), salt), item
    )
    log.record(_place(item), seq, "implied")


def write_backoff(log: Writer, item: Item) -> None:
    """Write the end of the backoff before the request that follows a failure."""
    backoff = log.state.backoff
    if backoff is not None:
        until = backoff.event.until
        seq = log.write_fact(lambda _, at, __: ev.ClockRead(at=max(at, until), due=until), item)
        log.record(_place(item), seq, "implied")


def write_input(log: Writer, item: Said, *, no_request: bool) -> None:
    """Write user input that awaits a response; `no_request`: no request for it is recorded."""
    seq = log.write_fact(
        lambda state, at, salt: composition.received(
            state, ev.InputReceived(at=at, no_request=no_request, by=item.by), item.text, salt
        ),
        item,
        message_of(msgspec.structs.replace(item, role=Role.USER)),
    )
    log.record(item, seq)


def write_cancellation(log: Writer, item: Cancelled) -> None:
    """Write an interruption by the user."""
    seq = log.write_fact(
        lambda _, at, salt: composition.cancelled(ev.CancelRequested(at=at, by=item.by), item.reason),  # noqa: ARG005
        item,
    )
    log.record(item, seq)


def write_cancelled_request(log: Writer, item: Cancelled) -> None:
    """Write that the request in progress at an interruption has no response."""
    seq = log.write_fact(
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
    """Return only position and time; the rest is recorded with the item's own fact."""
    return Item(item.position, item.at)
