"""Hypothesis strategies: any event by its type, and whole runs driven fact by fact.

A run is driven by a list of integers, `choices`: what the driver does next depends on them and on the state
alone, so a run can be told again in another process, and shrinks well.
"""

from functools import cache
from typing import Any, Protocol

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from refold.reducers import codec, composition
from refold.reducers.composition import approved, observed
from refold.reducers.effects import CallModel, Reconcile, RunTool, Settle, WaitUntil, doubtful, next_effects
from refold.reducers.events import (
    KINDS,
    Answer,
    ApprovalAnswered,
    CallRefused,
    CancelRequested,
    ClockRead,
    ContextObserved,
    DoubtResolved,
    Event,
    Fact,
    InputReceived,
    LateResult,
    Manifest,
    MessageInjected,
    MessageTrimmed,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    PolicyAmended,
    Result,
    RunForked,
    RunResumed,
    RunStarted,
    Said,
    SummaryRequested,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.folds import advance
from refold.reducers.messages import Message, ReplyCall, Usage
from refold.reducers.parser import parse
from refold.reducers.pending import bare, may_be_said, underway
from refold.reducers.policy import Policy
from refold.reducers.rules.order import RULES
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import SOURCE_LABEL, Doubt, FailureClass, Replay, Role, StopReason, ToolError
from refold.reducers.window import ranges_of, refs
from support import scenario
from support.any_policy import policies

START = 1_700_000_000 * 1_000_000_000

MANIFEST = (*scenario.TOOLS, Manifest(name="book", replay=Replay.RECONCILABLE))

# Stands in everything that a model, a tool or a person says here, and nowhere else.
MARKER = "qzv"


class Data(Protocol):
    """What `st.data()` gives a test."""

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any: ...


data = st.data
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_POLICIES = st.deferred(lambda: st.builds(parse, policies()))


def scaled(examples: int) -> int:
    """So many examples of a test by default, fewer or more as the profile has fewer or more than its 25."""
    return max(1, examples * settings().max_examples // 25)


@cache
def events(kind: str) -> st.SearchStrategy[Event]:
    """Any event of this kind, with values that a decoder takes."""
    return _struct(KINDS[kind]).map(_fitting)


def _fitting(event: Event) -> Event:
    """The event with a content that speaks of as many things as its body does."""
    match event:
        case ModelResponded(calls=calls, content=Answer() as said):
            arguments = (*said.arguments, *["{}"] * len(calls))[: len(calls)]
            return msgspec.structs.replace(event, content=msgspec.structs.replace(said, arguments=arguments))
        case ApprovalAnswered(content=said) if said is not None:
            edited = {each.call: "{}" for each in event.answers if each.decision == "edit"}
            return msgspec.structs.replace(event, content=msgspec.structs.replace(said, arguments=edited))
        case LateResult(fact=fact):
            late = _fitting(fact)
            assert isinstance(late, Result)
            return LateResult(at=event.at, fact=bare(late), content=late.content)
        case RunStarted(messages=sizes, content=opening) if opening is not None:
            count = min(len(sizes), len(opening.messages))
            content = msgspec.structs.replace(opening, messages=opening.messages[:count])
            return msgspec.structs.replace(event, messages=sizes[:count], content=content)
        case CallRefused() | MessageInjected() | SummaryRequested() if event.content is not None:
            return _saying(event, event.content, 1)
        case MessageTrimmed(cuts=parts) | ModelRequested(request_only=parts) if event.content is not None:
            return _saying(event, event.content, len(parts))
        case _:
            return event


def _saying(event: Event, said: Said, count: int) -> Event:
    texts = (*said.texts, *[""] * count)[:count]
    return msgspec.structs.replace(event, content=Said(texts=texts))


def _struct(type_: type[Any]) -> st.SearchStrategy[Any]:
    info = msgspec.inspect.type_info(type_)
    return _of(info)


def _of(info: Any) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.StructType(cls=cls) if cls is Policy:
            return _POLICIES
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            required = {field.name: _of(field.type) for field in fields if field.required}
            optional = {field.name: _of(field.type) for field in fields if not field.required}
            return st.fixed_dictionaries(required, optional=optional).map(lambda values: cls(**values))
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([_of(one) for one in types])
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(_of(item), max_size=3).map(tuple)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*[_of(item) for item in items])
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=3)
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case msgspec.inspect.LiteralType(values=values):
            return st.sampled_from(list(values))
        case _:
            return _plain(info)


def _plain(info: Any) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.IntType(ge=least, le=most):
            return st.integers(least or 0, most or 2**53)
        case msgspec.inspect.FloatType():
            return st.floats(0, 1e6)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.StrType():
            return _TEXT
        case msgspec.inspect.BytesType():
            return st.binary(max_size=8)
        case msgspec.inspect.NoneType():
            return st.none()
        case _:
            raise AssertionError(f"no strategy for {info}")


choices = st.lists(st.integers(0, 999), min_size=1, max_size=40)

TOOLS = ("look", "act", "set", "missing", "book")
_ARGUMENTS = ("{}", '{"q":"qzv"}', '{"n":1}', "qzv broken", "")
_TEXTS = ("", " ", "qzv", "qzv says a little more than that", "qzv " * 12, "<think>qzv</think>", "qzv done")
_COMPLAINTS = ("qzv", "qzv much too long", "qzv one message")
_WORDS = ("approve", "reject", "escalate", "terminate", "edit")


class Driver:
    """A run told by integers. Each picks, by the state alone, a plausible or a hostile next fact."""

    def __init__(self, policy: dict[str, Any], salt: bytes = b"salt") -> None:
        self.state: RunState = NEW
        self.log: list[Event] = []
        self.facts: list[Fact] = []
        self.states: list[RunState] = []  # after each fact with its decisions
        self.salt = salt
        self.at = START
        opening = (Message(role=Role.SYSTEM, text=MARKER), Message(role=Role.USER, text=f"do {MARKER}"))
        fact = RunStarted(
            format=1,
            at=self.at,
            run="r1",
            rules=RULES,
            policy=parse(policy),
            model="m",
            tools=MANIFEST,
            labels={SOURCE_LABEL: "made"},  # its context is observed now and then
        )
        self.feed(composition.started(fact, opening, salt))

    def feed(self, fact: Fact) -> tuple[Event, ...]:
        self.state, events = advance(self.state, fact)
        self.facts.append(fact)
        self.log += events
        self.states.append(self.state)
        return events

    def step(self, choice: int) -> None:
        self.at += (choice % 5) * 500_000_000
        choice //= 5
        if choice % 10 == 9 or self.state.ended:
            self._aside(choice // 10)
            return
        effects = next_effects(self.state)
        if not effects or self.state.asked_at is not None:
            asks_of_doubts = self.state.batch is not None and self.state.approval is None
            self.feed(self._found_out(choice) if asks_of_doubts else self._input(choice // 10))
            return
        self._carry_out(effects[choice % len(effects)], choice // 10)

    def stop(self) -> None:
        """Cancel the run, and settle what is in flight."""
        if not self.state.ended:
            self.feed(CancelRequested(at=self.at, by="ann"))
        while effects := next_effects(self.state):
            self._carry_out(effects[0], 0)

    def _carry_out(self, effect: Any, choice: int) -> None:
        match effect:
            case CallModel() if self.state.summary is not None and choice % 5 < 4:
                self.feed(self._summary(effect.seq, choice))
            case CallModel() | Settle(call=None):
                failed = isinstance(effect, Settle) or choice % 5 == 4
                self.feed(self._failure(effect.seq, choice) if failed else self._answer(effect.seq, choice))
            case Reconcile() if choice % 4:
                self.feed(self._found_out(choice, tool="book"))
            case Reconcile(call=str(call)) | RunTool(call=str(call)) | Settle(call=str(call)):
                self.feed(self._result(call, choice))
            case WaitUntil(at=instant):
                self.at = max(self.at, instant)
                self.feed(ClockRead(at=self.at, due=instant))
            case _:
                raise AssertionError(effect)

    def _aside(self, choice: int) -> None:
        """A clock, a cancellation, a resumption, another policy, a fork; after the end a result only."""
        kinds = ["late"] if self.state.ended else ["late", "clock", "resume", "amend", "fork", "cancel"]
        state = self.state
        if not (state.ended or state.request or state.summary or state.approval):
            kinds.append("observed")
        match kinds[choice % len(kinds)]:
            case "late" if choice % 2:
                self.feed(self._result("c999", choice))
            case "late":
                self.feed(self._failure(10**6, choice))
            case "clock":
                self.feed(ClockRead(at=self.at, due=self.at))
            case "resume":
                doubted = doubtful(self.state)
                self.feed(RunResumed(at=self.at, in_doubt=doubted, downtime=0))
                if doubted and choice % 3 == 0:
                    self.feed(self._found_out(choice))
            case "observed":
                self.feed(self._observed(choice // 7))
            case "amend":
                amended = msgspec.structs.replace(
                    self.state.policy, end_of_turn=("complete", "wait")[choice % 2]
                )
                self.feed(PolicyAmended(at=self.at, policy=amended, by="ann"))
            case "fork":
                seq = self.state.seq
                fact = RunForked(
                    at=self.at, run="r2", rules=RULES, parent="r1", parent_seq=seq, parent_hash="00"
                )
                self.feed(fact)
            case _:
                cancelled = CancelRequested(at=self.at, by="ann")
                self.feed(composition.cancelled(cancelled, f"{MARKER} enough"))

    def _observed(self, choice: int) -> ContextObserved:
        """Another harness adds up to two messages, and keeps some of the others."""
        state = self.state
        said = [Message(role=(Role.USER, Role.SYSTEM)[choice % 2], text=_TEXTS[choice % 7])] * (choice % 3)
        batch = state.batch
        numbers = [ref.number for ref in refs(state.window)]
        numbers += [batch.number + 1 + call.position for call in batch.calls] if batch else []
        units = {ref.unit for ref in refs(state.window)}
        dropped = {unit for unit in units if unit % 3 == choice % 4}
        gone = {ref.number for ref in refs(state.window) if ref.unit in dropped}
        if batch is not None:
            gone -= {batch.number}
        pending = state.observed is not None and state.observed.kept is not None
        fact = ContextObserved(
            at=self.at,
            after=tuple(numbers[place % len(numbers)] if numbers else 0 for place in range(len(said)))
            if choice % 5 == 0
            else (),
            kept=None if pending or choice % 2 else ranges_of(n for n in numbers if n not in gone),
            why="compaction",
            continues=state.asked_at is not None and state.batch is None and choice % 3 != 1,
        )
        return observed(state, fact, said, self.salt)

    def _answer(self, seq: int, choice: int) -> ModelResponded:
        calls = [
            ReplyCall(
                name=TOOLS[(choice + place) % 5], arguments=_ARGUMENTS[choice % 5], provider_id="call_0"
            )
            for place in range(choice % 4)
        ]
        fact = ModelResponded(
            at=self.at,
            request=seq,
            stop=list(StopReason)[choice % 6] if choice % 3 == 0 else StopReason.END_TURN,
            stop_raw="model_length" if choice % 11 == 0 else "",
            usage=Usage(input=choice % 50, output=choice % 7) if choice % 5 else Usage(),
            cost_nanousd=None if choice % 4 == 3 else choice % 40,
        )
        return composition.responded(self.state, fact, Answer(text=_TEXTS[choice % 7]), calls, self.salt)

    def _failure(self, seq: int, choice: int) -> ModelFailed:
        fact = ModelFailed(
            at=self.at,
            request=seq,
            failure=list(FailureClass)[choice % 10],
            retry_after=None if choice % 2 else 2_000_000_000,
            partial_calls=int(choice % 4 == 3),
        )
        said, arrived = _COMPLAINTS[choice % 3], _TEXTS[choice % 7]
        return composition.failed(fact, said, arrived, self.salt, self.state.policy)

    def _summary(self, seq: int, choice: int) -> SummaryReturned:
        usage = Usage(input=choice % 50, output=choice % 7)
        fact = SummaryReturned(at=self.at, request=seq, usage=usage, cost_nanousd=choice % 40)
        return composition.summarised(self.state, fact, _TEXTS[choice % 7], self.salt)

    def _result(self, call: str, choice: int) -> ToolReturned:
        fact = ToolReturned(at=self.at, call=call, error=(None, *ToolError)[choice % 7])
        return composition.returned(self.state, fact, _TEXTS[choice % 5], "look", "", self.salt)

    def _found_out(self, choice: int, tool: str = "") -> DoubtResolved:
        doubted = [call for call in underway(self.state) if call.in_doubt]
        call = doubted[choice % len(doubted)]
        sayable = [doubt for doubt in Doubt if may_be_said(call, doubt)]
        fact = DoubtResolved(
            at=self.at,
            call=call.id,
            doubt=sayable[choice // 3 % len(sayable)],
            by=tool or "ann",
            reconciled=bool(tool),
        )
        return composition.resolved(self.state, fact, MARKER)

    def _input(self, choice: int) -> InputReceived | ApprovalAnswered:
        asked = self.state.approval
        if asked is None:
            return composition.received(self.state, InputReceived(at=self.at), _TEXTS[choice % 7], self.salt)
        answers: Any = {call: _WORDS[(choice + place) % 5] for place, call in enumerate(asked.event.calls)}
        edited = {call: '{"q":"qzv"}' for call, word in answers.items() if word == "edit"}
        fact = ApprovalAnswered(at=self.at, by="ann")
        return approved(self.state, fact, answers, edited, MARKER, self.salt)


def drive(policy: dict[str, Any], picked: list[int], salt: bytes = b"salt") -> Driver:
    """A run under this policy that goes as `picked` says."""
    driver = Driver(policy, salt)
    for choice in picked:
        driver.step(choice)
    return driver


def runs() -> st.SearchStrategy[Driver]:
    """Whole runs, ended or not, under any policy."""
    return st.builds(drive, policies(), choices)


def stored(log: list[Event]) -> list[codec.Encoded]:
    """The log as it would lie on disk."""
    return [codec.encode(event) for event in log]
