"""Runs that read like transcripts: facts are fed, decisions come out, one line each.

`Scenario` holds a state and the log so far. It knows nothing that `advance` does not say; what a test expects
is written by hand, as lines.
"""

from typing import Any

import msgspec

from refold.reducers import codec, composing
from refold.reducers.events import (
    Answer,
    CancelRequested,
    ClockRead,
    DoubtResolved,
    Event,
    Fact,
    InputReceived,
    Manifest,
    ModelFailed,
    ModelResponded,
    PolicyAmended,
    RunForked,
    RunResumed,
    RunStarted,
    ToolReturned,
    kind_of,
)
from refold.reducers.folding import advance
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import Message, Usage
from refold.reducers.parsing import parse
from refold.reducers.rules.order import RULES
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Doubt, FailureClass, Replay, Role, StopReason, ToolError

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
SALT = b"salt"

TOOLS = (
    Manifest(name="look", replay=Replay.READ_ONLY),
    Manifest(name="act", replay=Replay.AT_MOST_ONCE),
    Manifest(name="set", replay=Replay.IDEMPOTENT),
)


class Scenario:
    """A run under a policy, fed by hand. Times are seconds since the start."""

    def __init__(
        self,
        policy: dict[str, Any] | None = None,
        *,
        messages: tuple[Message, ...] | None = None,
        tools: tuple[Manifest, ...] = TOOLS,
        seed: int = 0,
        registry: Registry = BUILTIN,
    ) -> None:
        self.state: RunState = NEW
        self.log: list[Event] = []
        self.now = 0.0
        self.registry = registry
        opening = (Message(role=Role.SYSTEM, text="be good"), Message(role=Role.USER, text="do it"))
        fact = RunStarted(
            at=START,
            run="r1",
            rules=RULES,
            policy=parse(policy or {}, registry, strict_guards=False),
            model="m",
            tools=tools,
            seed=seed,
        )
        self.last = self.feed(composing.started(fact, opening if messages is None else messages, SALT))

    @property
    def at(self) -> int:
        return START + int(self.now * SECOND)

    def feed(self, fact: Fact) -> list[str]:
        """Advance by a fact; the lines of what followed from it."""
        self.state, events = advance(self.state, fact, self.registry)
        self.log += events
        self.last = [line(event) for event in events[1:]] if events[0] is fact else [line(e) for e in events]
        return self.last

    def answer(
        self,
        text: str = "",
        *calls: tuple[str, str],
        stop: StopReason | None = None,
        usage: tuple[int, int] = (10, 5),
        cost: int | None = 0,
        after: float = 0,
    ) -> list[str]:
        """The model answers after so many seconds; calls are (tool, arguments)."""
        self.now += after
        assert self.state.request is not None
        fact = ModelResponded(
            at=self.at,
            request=self.state.request.seq,
            stop=stop or (StopReason.TOOL_USE if calls else StopReason.END_TURN),
            usage=Usage(input=usage[0], output=usage[1]),
            cost_nanousd=cost,
        )
        made = [composing.CallMade(name=name, arguments=arguments) for name, arguments in calls]
        return self.feed(composing.responded(self.state, fact, Answer(text=text), made, SALT))

    def fail(
        self,
        failure: FailureClass = FailureClass.OVERLOADED,
        *,
        after: float = 0,
        retry_after: int | None = None,
    ) -> list[str]:
        self.now += after
        assert self.state.request is not None
        fact = ModelFailed(
            at=self.at, request=self.state.request.seq, failure=failure, retry_after=retry_after
        )
        return self.feed(composing.failed(fact, "it broke", "", SALT))

    def result(
        self, call: str, output: str = "ok", *, error: ToolError | None = None, after: float = 0
    ) -> list[str]:
        self.now += after
        fact = ToolReturned(at=self.at, call=call, error=error)
        return self.feed(composing.returned(self.state, fact, output, "look", "", SALT))

    def say(self, text: str, *, after: float = 0) -> list[str]:
        self.now += after
        return self.feed(composing.received(self.state, InputReceived(at=self.at), text, SALT))

    def cancel(self, *, by: str = "user", after: float = 0) -> list[str]:
        self.now += after
        return self.feed(composing.cancelled(CancelRequested(at=self.at, by=by), "enough", SALT))

    def clock(self, after: float) -> list[str]:
        self.now += after
        return self.feed(ClockRead(at=self.at, due=self.at))

    def resume(self, *in_doubt: str, downtime: float = 0) -> list[str]:
        self.now += downtime
        return self.feed(RunResumed(at=self.at, in_doubt=in_doubt, downtime=int(downtime * SECOND)))

    def resolve(self, call: str, doubt: Doubt, *, after: float = 0) -> list[str]:
        self.now += after
        return self.feed(DoubtResolved(at=self.at, call=call, doubt=doubt, by="ann"))

    def amend(self, policy: dict[str, Any], *, after: float = 0) -> list[str]:
        self.now += after
        amended = parse(policy, self.registry, strict_guards=False)
        return self.feed(PolicyAmended(at=self.at, policy=amended, by="ann"))

    def fork(
        self, policy: dict[str, Any] | None = None, *, seed: int | None = None, after: float = 0
    ) -> list[str]:
        """Go on as another run from here, perhaps under another policy."""
        self.now += after
        fact = RunForked(
            at=self.at,
            run="r2",
            rules=RULES,
            parent="r1",
            parent_seq=self.state.seq,
            parent_hash="00",
            policy=None if policy is None else parse(policy, self.registry),
            seed=seed,
        )
        return self.feed(fact)


_LEFT_OUT = {"kind", "view", "digest", "chars", "tokens", "version", "reason", "input_tokens", "visibility"}


def line(event: Event) -> str:
    """An event as one line: its kind, and what a person would look for; digests and sizes are left out."""
    body = msgspec.json.decode(codec.encode(event).body)
    shown = [f"{key}={_flat(value)}" for key, value in body.items() if key not in _LEFT_OUT]
    return " ".join([kind_of(event), *shown])


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + " ".join(f"{key}:{_flat(inner)}" for key, inner in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + " ".join(_flat(inner) for inner in value) + "]"
    if isinstance(value, int) and value >= START:
        return f"+{(value - START) / SECOND:g}s"
    return str(value)
