"""A scripted world: it answers what a run asks for from a case's script, and keeps what was asked.

It does what an engine does, without the waiting: facts are composed and fed at the right instants, and
everything else is what `advance` and `next_effects` say.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from refold.reducers import (
    BUILTIN,
    NEW,
    RULES,
    CallModel,
    Effect,
    Event,
    Fact,
    Message,
    MessageCall,
    Policy,
    Registry,
    ReplyCall,
    RunState,
    RunTool,
    Settle,
    Usage,
    WaitUntil,
    advance,
    composition,
    next_effects,
    parse,
    view,
)
from refold.reducers.codec import digest_of
from refold.reducers.events import (
    Answer,
    CancelRequested,
    ClockRead,
    Manifest,
    MessageHead,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    Opening,
    RunStarted,
    ToolReturned,
    ToolsDispatched,
)
from refold.reducers.sizes import measured_message
from refold.reducers.vocabulary import NANO, FailureClass, Role, StopReason, ToolError

START = 1_700_000_000 * NANO
SALT = b"salt"
TOOL = "act"

Row = list[Any]
"""A message as cases write it: role, text, call ids."""
AnyEvent = TypeVar("AnyEvent", bound=Event)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The model answers after `dt` seconds; `calls` are (id, tool, arguments), `usage` tokens in and out."""

    text: str = ""
    calls: Sequence[tuple[str, str, str]] = ()
    stop: StopReason | None = None
    stop_raw: str = ""
    usage: tuple[int, int] = (1, 1)
    cost: int | None = 0
    dt: float = 0


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The request fails after `dt` seconds; `wait` are the seconds that the provider asks for."""

    failure: FailureClass
    text: str = ""
    wait: float | None = None
    dt: float = 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """A call ends `dt` seconds after the one before it."""

    output: str = ""
    error: ToolError | None = None
    dt: float = 0


class World(Protocol):
    """What a script says. None: the script is over, and with it the run."""

    def asked(self, request: CallModel) -> Reply | Failed | None: ...

    def called(self, call: str) -> Result: ...


@dataclass
class Asked:
    """A request: its decision, the state it was made in, and the seconds that it and its tools were given."""

    event: ModelRequested
    state: RunState
    timeout: float | None
    batch_timeout: float | None = None
    dispatched: bool = False


class Replayer:
    """A run under a policy. `overdue`: time was up while it waited to ask again."""

    def __init__(self, policy: Policy, registry: Registry) -> None:
        self.policy, self.registry = policy, registry
        self.state: RunState = NEW
        self.now = START
        self.events: dict[int, Event] = {}
        self.requests: list[Asked] = []
        self.overdue = False
        self._ids: dict[str, str] = {}

    @classmethod
    def begin(
        cls,
        policy: Policy | Mapping[str, Any],
        messages: Sequence[Row | Message],
        *,
        tools: tuple[Manifest, ...] = (Manifest(name=TOOL),),
        task: int | None = None,
        registry: Registry = BUILTIN,
        apart: bool = False,
    ) -> "Replayer":
        """A run with this history.

        `apart`: its messages are no conversation; results may stand without calls.
        """
        run = cls(policy if isinstance(policy, Policy) else parse(policy, registry), registry)
        opening = tuple(said if isinstance(said, Message) else message(said) for said in messages)
        ids = (call.id for said in opening for call in said.calls)
        run._ids.update((f"e{number}", name) for number, name in enumerate(ids, start=1))
        fact = RunStarted(
            format=1, at=run.now, run="r", rules=RULES, policy=run.policy, model="m", tools=tools, task=task
        )
        run.feed(_apart(fact, opening) if apart else composition.started(fact, opening, SALT))
        return run

    def feed(self, fact: Fact) -> tuple[Event, ...]:
        """Advance by a fact; keep what followed."""
        first = self.state.seq + 1
        self.state, events = advance(self.state, fact, self.registry)
        self.events.update(enumerate(events, start=first))
        for event in events:
            if isinstance(event, ModelRequested):
                self.requests.append(Asked(event, self.state, self._left(event.deadline)))
            if isinstance(event, ToolsDispatched) and not self.steps[-1].dispatched:
                self.steps[-1].dispatched = True
                self.steps[-1].batch_timeout = self._left(event.deadline)
        return events

    def run(self, world: World) -> "Replayer":
        """Go on until the run ends, waits for a person, or the script is over."""
        while effects := next_effects(self.state):
            if not self._answer(world, effects):
                break
        return self

    @property
    def steps(self) -> list[Asked]:
        """The first request of each step."""
        return [asked for asked in self.requests if asked.event.attempt == 1]

    def of(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        """The events of one kind."""
        return [event for event in self.events.values() if isinstance(event, kind)]

    def rows(self, asked: Asked | None = None) -> list[Row]:
        """The messages that the model saw in a request, or would see now."""
        return [self._row(said) for said in view(asked.state if asked else self.state, self.events)]

    def id_of(self, call: str) -> str:
        """What the case calls this call."""
        return self._ids[call]

    def reply(self, said: Reply) -> tuple[Event, ...]:
        """The model answers."""
        assert self.state.request is not None
        self._pass(said.dt)
        stop = said.stop or (StopReason.TOOL_USE if said.calls else StopReason.END_TURN)
        fact = ModelResponded(
            at=self.now,
            request=self.state.request.seq,
            stop=stop,
            stop_raw=said.stop_raw,
            usage=Usage(input=said.usage[0], output=said.usage[1]),
            cost_nanousd=said.cost,
        )
        made = [ReplyCall(name=name, arguments=words, provider_id=id_) for id_, name, words in said.calls]
        answer = composition.responded(self.state, fact, Answer(text=said.text), made, SALT)
        self._ids.update((call.id, call.provider_id) for call in answer.calls)
        return self.feed(answer)

    def fail(self, said: Failed) -> tuple[Event, ...]:
        """The request fails."""
        assert self.state.request is not None
        self._pass(said.dt)
        wait = None if said.wait is None else int(said.wait * NANO)
        fact = ModelFailed(
            at=self.now, request=self.state.request.seq, failure=said.failure, retry_after=wait
        )
        return self.feed(composition.failed(fact, said.text, "", SALT, self.policy))

    def result(self, call: str, said: Result) -> tuple[Event, ...]:
        """A call ends."""
        self._pass(said.dt)
        fact = ToolReturned(at=self.now, call=call, error=said.error)
        return self.feed(composition.returned(self.state, fact, said.output, TOOL, "", SALT))

    def returned(self) -> tuple[Event, ...]:
        """Every call that runs ends, one after the other."""
        events: tuple[Event, ...] = ()
        while calls := [effect for effect in next_effects(self.state) if isinstance(effect, RunTool)]:
            events += self.result(calls[0].call, Result())
        return events

    def wait(self) -> None:
        """The clock is read at the first instant for which something waits."""
        instants = [effect.at for effect in next_effects(self.state) if isinstance(effect, WaitUntil)]
        waiting = self.state.backoff is not None
        self.now = max(self.now, min(instants))
        self.feed(ClockRead(at=self.now, due=min(instants)))
        self.overdue = waiting and self.state.ended

    def cancel(self) -> tuple[Event, ...]:
        """A person cancels."""
        return self.feed(composition.cancelled(CancelRequested(at=self.now), ""))

    def _answer(self, world: World, effects: tuple[Effect, ...]) -> bool:
        # A result is fed as a fact even if it comes late; a clock is read only where nothing else goes on.
        for effect in effects:
            match effect:
                case CallModel():
                    said = world.asked(effect)
                    if said is not None:
                        self.reply(said) if isinstance(said, Reply) else self.fail(said)
                    return said is not None
                case RunTool(call=call):
                    self.result(call, world.called(self.id_of(call)))
                    return True
                case Settle(call=None):
                    self.fail(Failed(failure=FailureClass.CANCELLED))
                    return True
                case Settle(call=call) if call is not None:
                    self.result(call, Result(error=ToolError.CANCELLED))
                    return True
                case _:
                    pass
        self.wait()
        return True

    def _pass(self, seconds: float) -> None:
        self.now += round(seconds * NANO)

    def _left(self, deadline: int | None) -> float | None:
        if deadline is None:
            return None
        seconds, rest = divmod(deadline - self.now, NANO)
        return seconds + rest / NANO if rest else seconds

    def _row(self, said: Message) -> Row:
        ids = [call.id for call in said.calls] if said.call is None else [said.call]
        return [str(said.role), said.text, [self._ids[name] for name in ids]]


class Script:
    """A world that says one thing after the other; each call of an answer has its result in `results`."""

    def __init__(self, said: Iterator[Reply | Failed], results: Mapping[str, Result] | None = None) -> None:
        self._said = said
        self._results = results or {}

    def asked(self, request: CallModel) -> Reply | Failed | None:
        return next(self._said, None)

    def called(self, call: str) -> Result:
        return self._results.get(call, Result())


def _apart(fact: RunStarted, messages: tuple[Message, ...]) -> RunStarted:
    heads = tuple(
        MessageHead(
            role=said.role, unit=place, size=measured_message(fact.policy, said, digest_of(SALT, said))
        )
        for place, said in enumerate(messages)
    )
    return replace(fact, messages=heads, content=Opening(messages=messages))


def message(row: Row) -> Message:
    """A message as cases write it. All calls are of one tool; their arguments do not matter."""
    role, text, ids = Role(row[0]), str(row[1]), [str(name) for name in row[2]]
    if role is Role.TOOL:
        return Message(role=role, text=text, call=ids[0])
    return Message(role=role, text=text, calls=tuple(MessageCall(name, TOOL, "") for name in ids))


def numbered(ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Ranges of message numbers (from 1) as indexes of messages (from 0)."""
    return [number - 1 for first, last in ranges for number in range(first, last + 1)]
