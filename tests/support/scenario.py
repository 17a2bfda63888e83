"""Runs that read like transcripts: facts are fed, decisions come out, one line each.

`Scenario` holds a state and the log so far. It knows nothing that `advance` does not say; what a test expects
is written by hand, as lines.
"""

from typing import Any, TypeVar

import msgspec

from refold.reducers import codec, composition
from refold.reducers.events import (
    Answer,
    ApprovalAnswer,
    ApprovalAnswered,
    CancelRequested,
    ClockRead,
    DoubtResolved,
    Event,
    Fact,
    InputReceived,
    LateResult,
    Manifest,
    MessageInjected,
    MessageTrimmed,
    ModelFailed,
    ModelResponded,
    PolicyAmended,
    RunForked,
    RunResumed,
    RunStarted,
    SummaryReturned,
    ToolReturned,
    kind_of,
)
from refold.reducers.folds import advance
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import Message, ReplyCall, Usage
from refold.reducers.parser import parse
from refold.reducers.rules.order import RULES
from refold.reducers.state import NEW, RunState
from refold.reducers.views import view
from refold.reducers.vocabulary import Doubt, FailureClass, Role, StopReason, ToolError
from refold.testing.strategies import driver

SECOND = 1_000_000_000
START = driver.START
SALT = b"salt"

TOOLS = driver.TOOLS[:3]


AnyEvent = TypeVar("AnyEvent", bound=Event)


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
        context: int | None = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        self.state: RunState = NEW
        self.log: list[Event] = []
        self.now = 0.0
        self.registry = registry
        opening = (Message(role=Role.SYSTEM, text="be good"), Message(role=Role.USER, text="do it"))
        fact = RunStarted(
            format=1,
            at=START,
            run="r1",
            rules=RULES,
            policy=parse(policy or {}, registry, strict_guards=False),
            model="m",
            tools=tools,
            seed=seed,
            context=context,
            labels=labels or {},
        )
        self.last = self.feed(composition.started(fact, opening if messages is None else messages, SALT))

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
        stop_raw: str = "",
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
            stop_raw=stop_raw,
            usage=Usage(input=usage[0], output=usage[1]),
            cost_nanousd=cost,
        )
        made = [ReplyCall(name=name, arguments=arguments) for name, arguments in calls]
        return self.feed(composition.responded(self.state, fact, Answer(text=text), made, SALT))

    def fail(
        self,
        failure: FailureClass = FailureClass.OVERLOADED,
        *,
        after: float = 0,
        retry_after: int | None = None,
        message: str = "it broke",
        partial: str = "",
        calls: int = 0,
    ) -> list[str]:
        """The request fails; of its stream `partial` had arrived, and `calls` had begun."""
        self.now += after
        assert self.state.request is not None
        fact = ModelFailed(
            at=self.at,
            request=self.state.request.seq,
            failure=failure,
            retry_after=retry_after,
            partial_calls=calls,
        )
        return self.feed(composition.failed(fact, message, partial, SALT, self.state.policy))

    def summary(
        self, text: str, *, usage: tuple[int, int] = (0, 0), cost: int | None = 0, after: float = 0
    ) -> list[str]:
        """The summary that was asked for comes back."""
        self.now += after
        assert self.state.summary is not None
        fact = SummaryReturned(
            at=self.at,
            request=self.state.summary.seq,
            usage=Usage(input=usage[0], output=usage[1]),
            cost_nanousd=cost,
        )
        return self.feed(composition.summarised(self.state, fact, text, SALT))

    def fail_summary(self, failure: FailureClass = FailureClass.OVERLOADED, *, after: float = 0) -> list[str]:
        """The request for a summary fails."""
        self.now += after
        assert self.state.summary is not None
        fact = ModelFailed(at=self.at, request=self.state.summary.seq, failure=failure)
        return self.feed(composition.failed(fact, "it broke", "", SALT, self.state.policy))

    def result(
        self, call: str, output: str = "ok", *, error: ToolError | None = None, after: float = 0
    ) -> list[str]:
        self.now += after
        fact = ToolReturned(at=self.at, call=call, error=error)
        return self.feed(composition.returned(self.state, fact, output, "look", "", SALT))

    def say(self, text: str, *, after: float = 0) -> list[str]:
        self.now += after
        return self.feed(composition.received(self.state, InputReceived(at=self.at), text, SALT))

    def approve(self, after: float = 0, **decisions: Any) -> list[str]:
        """A person decides about calls: `approve(c1="reject")`."""
        self.now += after
        answers = tuple(ApprovalAnswer(call=call, decision=said) for call, said in decisions.items())
        return self.feed(ApprovalAnswered(at=self.at, by="ann", answers=answers))

    def step(self, *tools: str, text: str = "", output: str = "ok") -> list[str]:
        """An answer with calls of these tools (`look`), all of which return: on to the next request."""
        first = self.state.spent.calls + 1
        self.answer(text, *[(tool, "{}") for tool in tools or ("look",)])
        for place in range(len(tools or ("look",))):
            if self.state.batch is not None:
                self.result(f"c{first + place}", output)
        return self.last

    def seen(self) -> list[tuple[str, str]]:
        """What the model sees of the request under way: role and text of each message."""
        shown = view(self.state, dict(enumerate(self.log, 1)))
        return [(str(message.role), message.text) for message in shown]

    def kinds(self) -> list[str]:
        """The kinds of the decisions that followed from the last fact."""
        return [line.split()[0] for line in self.last]

    def events(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        """Every event of this kind so far."""
        return [event for event in self.log if isinstance(event, kind)]

    def outcome(self) -> tuple[str, str, str]:
        """Code, source and text of how the run ended."""
        end = self.state.outcome
        assert end is not None
        seqs = (*end.parts, *([end.answer] if end.answer is not None else []))
        return end.code, end.source, "".join(_words(self.log[seq - 1]) for seq in seqs)

    def ended(self) -> tuple[str, str]:
        """The state, and the code of the end; no code while the run lives."""
        return str(self.state.agent_state), self.state.outcome.code if self.state.outcome else ""

    def injected(self) -> list[str]:
        """Which texts were put before the model, in order."""
        return [event.text for event in self.events(MessageInjected)]

    def cancel(self, *, by: str = "user", after: float = 0) -> list[str]:
        self.now += after
        return self.feed(composition.cancelled(CancelRequested(at=self.at, by=by), "enough"))

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


def _words(event: Event) -> str:
    assert isinstance(event, ModelResponded | ModelFailed)
    said = event.content
    assert said is not None
    return said.text if isinstance(said, Answer) else said.partial_text


_LEFT_OUT = {
    "kind",
    "view",
    "size",
    "partial",
    "instructions",
    "version",
    "reason",
    "input_tokens",
    "visibility",
}


def line(event: Event) -> str:
    """An event as one line: its kind, and what a person would look for; digests and sizes are left out."""
    body = msgspec.json.decode(codec.encode(event).body)
    if isinstance(event, LateResult):
        return f"late_result at={_flat(event.at)} of {line(event.fact)}"
    if isinstance(event, MessageTrimmed):
        body = {"after" if key == "size" else key: value for key, value in body.items()} | {
            "after": event.size.tokens
        }
    shown = [f"{key}={_flat(value)}" for key, value in body.items() if key not in _LEFT_OUT]
    return " ".join([kind_of(event), *shown])


def _flat(value: Any) -> str:
    if isinstance(value, dict) and "size" in value and isinstance(value["size"], dict):
        value = {"tokens" if key == "size" else key: inner for key, inner in value.items()}
        value["tokens"] = value["tokens"]["tokens"]
    if isinstance(value, dict):
        return "{" + " ".join(f"{key}:{_flat(inner)}" for key, inner in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + " ".join(_flat(inner) for inner in value) + "]"
    if isinstance(value, int) and value >= START:
        return f"+{(value - START) / SECOND:g}s"
    return str(value)
