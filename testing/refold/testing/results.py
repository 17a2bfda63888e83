"""Observed runs: what a run did, in the words that a test asserts."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, overload

import msgspec

from refold.engine.conversation import Conversation
from refold.engine.models.protocol import ModelRequest
from refold.reducers import events as ev
from refold.reducers.errors import WrongUse
from refold.reducers.events import Event
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.machine import AgentState
from refold.reducers.messages import Message
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Unknown

_SHOWN = 200
_NEVER_RAN = ("bad_arguments", "unknown_tool", "cancelled", "in_doubt")


class ObservedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a run.

    `arguments` are the parsed arguments with which it ran, after an approver's edit; None if they are no JSON
    object or erased. `turn` and `seq` are those of the response that requested it. `output` is the text that
    the model got, None if there is none yet. `error` is the error's code, "" for none. `approved` names the
    operator or approver who approved the call, or edited it; "" without an approval. `refused` says who
    refused the call and why, "" if it was not refused.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None
    turn: int
    seq: int
    output: str | None = None
    error: str = ""
    approved: str = ""
    refused: str = ""

    @property
    def ran(self) -> bool:
        """Whether the tool ran to an end: the call was neither refused, pending, invalid nor cut off."""
        return self.output is not None and not self.refused and self.error not in _NEVER_RAN

    def __str__(self) -> str:
        """Return one line: `c1 pay {"cents": 30}, turn 1`."""
        arguments = "?" if self.arguments is None else json.dumps(self.arguments, ensure_ascii=False)
        shown = arguments if len(arguments) <= _SHOWN else f"{arguments[:_SHOWN]}..."
        refused = f", refused: {self.refused}" if self.refused else ""
        return f"{self.id} {self.name} {shown}, turn {self.turn}{refused}"


class Calls(Sequence[ObservedCall]):
    """Calls in the order of the responses. `calls("pay")` are those of one tool."""

    def __init__(self, calls: Sequence[ObservedCall]) -> None:
        self._calls = tuple(calls)

    @overload
    def __getitem__(self, index: int) -> ObservedCall: ...
    @overload
    def __getitem__(self, index: slice) -> "Calls": ...
    def __getitem__(self, index: int | slice) -> "ObservedCall | Calls":
        return Calls(self._calls[index]) if isinstance(index, slice) else self._calls[index]

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[ObservedCall]:
        return iter(self._calls)

    def __eq__(self, other: object) -> bool:
        return self._calls == (other._calls if isinstance(other, Calls) else other)

    def __hash__(self) -> int:
        return hash(tuple(call.id for call in self._calls))

    def __call__(self, name: str) -> "Calls":
        """Return the calls of one tool."""
        return Calls([call for call in self._calls if call.name == name])

    @property
    def names(self) -> list[str]:
        """The tools, in the order of the calls."""
        return [call.name for call in self._calls]

    @property
    def one(self) -> ObservedCall:
        """The only call. Raises `AssertionError` for no call or several."""
        if len(self._calls) != 1:
            raise AssertionError(f"expected one call, got {_listing(self._calls)}")
        return self._calls[0]

    def __repr__(self) -> str:
        return f"<{_listing(self._calls)}>"


def _listing(calls: Sequence[ObservedCall]) -> str:
    if not calls:
        return "no calls"
    lines = "".join(f"\n  {call}" for call in calls)
    return f"{len(calls)} call{'s' * (len(calls) > 1)}:{lines}"


class ExpectedCall:
    """The calls of a tool with the expected arguments: at least one, or `expect_call` fails."""

    def __init__(self, wanted: str, found: Calls, every: Calls) -> None:
        self._wanted, self.calls, self._every = wanted, found, every

    def once(self) -> ObservedCall:
        """Return the only such call. Raises `AssertionError` if there are several."""
        __tracebackhide__ = True
        return self.times(1)[0]

    def times(self, count: int) -> Calls:
        """Return the calls. Raises `AssertionError` if there are not `count` of them."""
        __tracebackhide__ = True
        if len(self.calls) != count:
            raise AssertionError(f"expected {self._wanted} {_times(count)}, got {_listing(self.calls)}")
        return self.calls

    def before(self, name: str) -> "ExpectedCall":
        """Check that the model requested such a call before any call of another tool.

        Raises:
            AssertionError: A call of the other tool came first, or that tool was never called.
        """
        __tracebackhide__ = True
        others = self._every(name)
        if not others:
            raise AssertionError(f"expected {self._wanted} before a call of {name}, which was never called")
        if self._every.index(self.calls[0]) > self._every.index(others[0]):
            raise AssertionError(f"expected {self._wanted} before {name}, got {_listing(self._every)}")
        return self


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


class ObservedRun:
    """What a run did, read from its log.

    `events` are its events from the first. Create one with `ObservedRun(events)`, or get it from the fixtures
    `refold_run` and `refold_recording`.
    """

    def __init__(self, events: Sequence[Event], registry: Registry = BUILTIN) -> None:
        self.events = list(events)
        self._registry = registry
        state: RunState = NEW
        for event in self.events:
            state = evolve(state, event, registry)
        self._state = state
        self.calls = Calls(list(_read_calls(self.events)))

    @property
    def id(self) -> str:
        """The run's id."""
        return self._state.setup.run

    @property
    def state(self) -> AgentState:
        """The state of the run: `COMPLETED`, `WAITING_FOR_INPUT`, ..."""
        return self._state.agent_state

    @property
    def code(self) -> str:
        """The code of the last change of state, such as `end_turn` or `max_steps`."""
        changes = (event for event in reversed(self.events) if isinstance(event, ev.StateChanged))
        return next((change.code for change in changes), "")

    @property
    def reason(self) -> str:
        """Why the state changed last, with the error of the provider if a request failed."""
        changes = (event for event in reversed(self.events) if isinstance(event, ev.StateChanged))
        why = next((change.reason for change in changes), "")
        failed = [event for event in self.events if isinstance(event, ev.ModelFailed) and event.content]
        error = failed[-1].content.message if self.state.failed and failed and failed[-1].content else ""
        return f"{why}: {error}" if error else why

    @property
    def text(self) -> str:
        """The text of the last response, or ""."""
        for event in reversed(self.events):
            if isinstance(event, ev.ModelResponded):
                return event.content.text if event.content else ""
        return ""

    @property
    def turns(self) -> int:
        """The number of model steps."""
        return self._state.spent.steps

    @property
    def refused(self) -> Calls:
        """The calls that a guard, a permission rule, an approver or the harness refused."""
        return Calls([call for call in self.calls if call.refused])

    def prompt(self, turn: int) -> Sequence[Message]:
        """Return the messages that the model got in a turn, counted from 1; of several attempts, the last.

        Raises:
            WrongUse: The run has no such turn.
        """
        return self.request(turn).messages

    def request(self, turn: int) -> ModelRequest:
        """Return the whole request of a turn: messages, tools and settings. Raises as `prompt`."""
        found = None
        for event, request in self._requests():
            if event.step == turn:
                found = request
        if found is None:
            raise WrongUse(f"run {self.id}: turn {turn}: expected a turn from 1 to {self.turns}")
        return found

    def expect_call(self, name: str, /, **arguments: Any) -> ExpectedCall:
        """Check that the model called a tool with these arguments, and perhaps others, and that it ran.

        An expected value is compared by `==`; a compiled pattern must be found in the argument's text, and a
        function must return true for it. Refused calls do not count.

        Raises:
            AssertionError: There is no such call. The message names the argument that differs.
        """
        __tracebackhide__ = True
        wanted = f"{name}({', '.join(f'{key}={_shown(value)}' for key, value in arguments.items())})"
        self._check_name(name, arguments)
        named = Calls([call for call in self.calls(name) if call.ran])
        found = Calls([call for call in named if not list(_mismatches(call, arguments))])
        if not found:
            raise AssertionError(f"expected a call of {wanted}, got {self._explain(name, named, arguments)}")
        return ExpectedCall(wanted, found, self.calls)

    def expect_no_call(self, name: str, /, **arguments: Any) -> None:
        """Check that no call of a tool with these arguments ran. Raises `AssertionError`."""
        __tracebackhide__ = True
        self._check_name(name, arguments)
        named = [call for call in self.calls(name) if not call.refused]
        found = [call for call in named if not list(_mismatches(call, arguments))]
        if found:
            raise AssertionError(f"expected no call of {name}, got {_listing(found)}")

    def _check_name(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Raise `WrongUse` for a tool or argument that the run never offered: such a test could not fail."""
        offered = {tool.name: tool for tool in self._state.setup.tools}
        if not offered or name in self.calls.names:
            known = offered.get(name)
        elif name not in offered:
            near = difflib.get_close_matches(name, offered, 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise WrongUse(f"no tool {name!r} was offered{meant}; offered: {', '.join(offered)}")
        else:
            known = offered[name]
        schema: dict[str, Any] = msgspec.json.decode(known.schema) if known else {}
        properties: dict[str, Any] = schema.get("properties", {})
        if not properties:
            return
        for key in arguments:
            if key not in properties:
                near = difflib.get_close_matches(key, properties, 1)
                meant = f" (did you mean {near[0]!r}?)" if near else ""
                raise WrongUse(f"tool {name}: no argument {key!r}{meant}; it takes {', '.join(properties)}")

    def __repr__(self) -> str:
        """Return one line: `<ObservedRun refund COMPLETED (end_turn), 2 turns, calls: refund>`."""
        names = ", ".join(self.calls.names) or "none"
        return f"<ObservedRun {self.id} {self.state} ({self.code}), {self.turns} turns, calls: {names}>"

    def _explain(self, name: str, named: Calls, arguments: Mapping[str, Any]) -> str:
        refused = [call for call in self.calls(name) if call.refused]
        if named:
            closest = min(named, key=lambda call: len(list(_mismatches(call, arguments))))
            return f"{closest}: {', '.join(_mismatches(closest, arguments))}"
        return _listing(refused or self.calls)

    def _requests(self) -> Iterator[tuple[ev.ModelRequested, ModelRequest]]:
        state: RunState = NEW
        conversation, seen = Conversation(), dict[int, Event]()
        for seq, event in enumerate(self.events, start=1):
            seen[seq] = event
            state = evolve(state, event, self._registry)
            if isinstance(event, ev.ModelRequested):
                yield event, conversation.request(event, state, seen)


def _shown(value: object) -> str:
    return getattr(value, "pattern", None) or getattr(value, "__name__", None) or repr(value)


def _mismatches(call: ObservedCall, wanted: Mapping[str, Any]) -> Iterator[str]:
    if call.arguments is None:
        if wanted:
            yield "its arguments are unknown"
        return
    for key, value in wanted.items():
        if key not in call.arguments:
            yield f"{key} is missing, expected {_shown(value)}"
        elif not _fits(call.arguments[key], value):
            yield f"{key} is {call.arguments[key]!r}, expected {_shown(value)}"


def _fits(actual: object, wanted: object) -> bool:
    if isinstance(wanted, re.Pattern):
        text = actual if isinstance(actual, str) else json.dumps(actual, ensure_ascii=False)
        return cast("re.Pattern[str]", wanted).search(text) is not None
    if callable(wanted) and not isinstance(wanted, type):
        return bool(wanted(actual))
    return bool(actual == wanted)


def _read_calls(events: Sequence[Event]) -> Iterator[ObservedCall]:
    calls: dict[str, dict[str, Any]] = {}
    turn = 0
    for seq, event in enumerate(events, start=1):
        match event:
            case ev.ModelRequested(step=step):
                turn = step
            case ev.ModelResponded(calls=made, content=content):
                texts = content.arguments if content else [None] * len(made)
                for call, text in zip(made, texts, strict=False):
                    calls[call.id] = {
                        "id": call.id, "name": call.name, "arguments": _parsed(text), "turn": turn, "seq": seq,
                    }  # fmt: skip
            case ev.ApprovalAnswered():
                _apply_answers(event, calls)
            case ev.CallRefused(call=call) if call in calls:
                calls[call]["refused"] = calls[call].get("refused") or _refusal(event)
            case ev.ToolReturned(call=call) if call in calls and Unknown.RESULT not in event.unknown:
                calls[call]["output"] = event.content.output if event.content else None
                calls[call]["error"] = str(event.error or "")
                if event.refused_by is not None:
                    calls[call]["refused"] = f"refused by {event.refused_by}"
            case _:
                pass
    return (ObservedCall(**fields) for fields in calls.values())


def _apply_answers(event: ev.ApprovalAnswered, calls: Mapping[str, dict[str, Any]]) -> None:
    for call, text in (event.content.arguments if event.content else {}).items():
        calls[call]["arguments"] = _parsed(text)
    for answer in event.answers:
        if answer.decision in ("reject", "terminate"):
            calls[answer.call]["refused"] = f"rejected by {event.by}"
        elif answer.decision != "escalate":
            calls[answer.call]["approved"] = f"{_APPROVED[answer.decision]} by {event.by}"


_APPROVED = {"approve": "approved", "edit": "edited"}


def _refusal(event: ev.CallRefused) -> str:
    named = f"{event.cause} {event.name}" if event.name else str(event.why)
    rule = event.measured.get("rule", event.measured.get("link"))
    return f"{named}{f', rule {rule}' if rule is not None else ''}{f' ({event.code})' if event.code else ''}"


def _parsed(text: str | None) -> dict[str, Any] | None:
    try:
        value: Any = json.loads(text or "{}") if text is not None else None
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
