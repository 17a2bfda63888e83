"""Valid runs without an engine: facts are picked by integers, decisions follow from them."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from refold.reducers import composition
from refold.reducers.composition import approved, observed
from refold.reducers.effects import CallModel, Reconcile, RunTool, Settle, WaitUntil, doubtful, next_effects
from refold.reducers.events import (
    Answer,
    ApprovalAnswered,
    CancelRequested,
    ClockRead,
    ContextObserved,
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
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.folds import advance
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import Message, ReplyCall, Usage
from refold.reducers.parser import parse
from refold.reducers.pending import left_open, may_be_said, underway
from refold.reducers.rules.order import RULES
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import SOURCE_LABEL, Doubt, FailureClass, Replay, Role, StopReason, ToolError
from refold.reducers.window import ranges_of, refs
from refold.testing.tool_arguments import arguments_of

START = 1_700_000_000 * 1_000_000_000
"""When every driven run starts, in nanoseconds since 1970."""

TOOLS = (
    Manifest(name="look", replay=Replay.READ_ONLY),
    Manifest(name="act", replay=Replay.AT_MOST_ONCE),
    Manifest(name="set", replay=Replay.IDEMPOTENT),
    Manifest(name="book", replay=Replay.RECONCILABLE),
)
"""The tools of a driven run, one of each replay class."""
UNKNOWN_TOOL = "missing"

MARKER = "qzv"
"""A word in every text of a model, a tool or a user, and in nothing else."""

_ARGUMENTS = ("{}", '{"q":"qzv"}', '{"n":1}', "qzv broken", "")
_TEXTS = ("", " ", "qzv", "qzv says a little more than that", "qzv " * 12, "<think>qzv</think>", "qzv done")
_COMPLAINTS = ("qzv", "qzv much too long", "qzv one message")
_WORDS = ("approve", "reject", "escalate", "terminate", "edit")


class Driver:
    """A run that is driven by integers, without an engine.

    Each integer picks the next fact by the state alone: a plausible or a hostile one. So a run can be
    repeated in another process, and shrinks well. Attributes: `log`, all events; `facts`; `state`;
    `states`, the state after each fact and its decisions.

    Args:
        policy: the policy, as plain data.
        salt: blinds the digests of texts.
        tools: the tools that the run has. A model calls these and one that is unknown.
        guards: the guards that the policy may name.
        imported: label the run as one from a transcript, whose context may be observed now and then.
    """

    def __init__(
        self,
        policy: dict[str, Any],
        salt: bytes = b"salt",
        *,
        tools: Sequence[Manifest] = TOOLS,
        guards: Registry = BUILTIN,
        imported: bool = True,
    ) -> None:
        self.guards = guards
        self.state: RunState = NEW
        self.log: list[Event] = []
        self.facts: list[Fact] = []
        self.states: list[RunState] = []
        self.salt = salt
        known = list(tools)
        self._reconcilable = next((tool.name for tool in known if tool.replay is Replay.RECONCILABLE), "")
        # The unknown tool stands at its usual place, so that the integers mean the same for every tool.
        self._offered = [*known[:3], Manifest(name=UNKNOWN_TOOL), *known[3:]]
        self.at = START
        opening = (Message(role=Role.SYSTEM, text=MARKER), Message(role=Role.USER, text=f"do {MARKER}"))
        fact = RunStarted(
            format=1,
            at=self.at,
            run="r1",
            rules=RULES,
            policy=parse(policy, guards),
            model="m",
            tools=tuple(tools),
            labels={SOURCE_LABEL: "made"} if imported else {},
        )
        self.feed(composition.started(fact, opening, salt))

    def feed(self, fact: Fact) -> tuple[Event, ...]:
        """Append a fact and the decisions that follow from it; return these events."""
        self.state, events = advance(self.state, fact, self.guards)
        self.facts.append(fact)
        self.log += events
        self.states.append(self.state)
        return events

    def step(self, choice: int) -> None:
        """Let time pass, and append the next fact, both picked by `choice` (0 or more)."""
        self.at += (choice % 5) * 500_000_000
        choice //= 5
        if choice % 10 == 9 or self.state.ended:
            self._aside(choice // 10)
            return
        effects = next_effects(self.state)
        if not effects or self.state.asked_at is not None:
            settles = self.state.batch is not None and self.state.approval is None
            self.feed(self._settled(choice) if settles else self._input(choice // 10))
            return
        self._carry_out(effects[choice % len(effects)], choice // 10)

    def stop(self) -> None:
        """Cancel the run, and complete the effects that are in progress."""
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
                self.feed(self._settled(choice, tool=self._reconcilable))
            case Reconcile(call=str(call)) | RunTool(call=str(call)) | Settle(call=str(call)):
                self.feed(self._result(call, choice))
            case WaitUntil(at=instant):
                self.at = max(self.at, instant)
                self.feed(ClockRead(at=self.at, due=instant))
            case _:
                raise AssertionError(effect)

    def _aside(self, choice: int) -> None:
        """Append a fact that no effect leads to, such as a cancellation; after the end only a late result."""
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
                    self.feed(self._settled(choice))
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
                self.feed(msgspec.structs.replace(fact, in_doubt=left_open(self.state, fact)))
            case _:
                cancelled = CancelRequested(at=self.at, by="ann")
                self.feed(composition.cancelled(cancelled, f"{MARKER} enough"))

    def _observed(self, choice: int) -> ContextObserved:
        """Return the context as another harness changed it: up to two messages more, and some dropped."""
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
        calls = [self._call(choice, place) for place in range(choice % 4)]
        fact = ModelResponded(
            at=self.at,
            request=seq,
            stop=list(StopReason)[choice % 6] if choice % 3 == 0 else StopReason.END_TURN,
            stop_raw="model_length" if choice % 11 == 0 else "",
            usage=Usage(input=choice % 50, output=choice % 7) if choice % 5 else Usage(),
            cost_nanousd=None if choice % 4 == 3 else choice % 40,
        )
        return composition.responded(self.state, fact, Answer(text=_TEXTS[choice % 7]), calls, self.salt)

    def _call(self, choice: int, place: int) -> ReplyCall:
        """Return one call of a response. Tools with a schema get valid arguments four times in five."""
        tool = self._offered[(choice + place) % len(self._offered)]
        arguments = _ARGUMENTS[choice % 5]
        if tool.schema != "{}" and choice % 5 < 4:
            chance = random.Random(f"{choice} {place}")  # noqa: S311 - no secret
            arguments = msgspec.json.encode(arguments_of(tool.schema, chance)).decode()
        return ReplyCall(name=tool.name, arguments=arguments, provider_id="call_0")

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
        return composition.returned(
            self.state, fact, _TEXTS[choice % 5], self._offered[0].name, "", self.salt
        )

    def _settled(self, choice: int, tool: str = "") -> DoubtResolved:
        doubted = [call for call in underway(self.state) if call.in_doubt]
        call = doubted[choice % len(doubted)]
        answers = [doubt for doubt in Doubt if may_be_said(call, doubt)]
        fact = DoubtResolved(
            at=self.at,
            call=call.id,
            doubt=answers[choice // 3 % len(answers)],
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


def drive(policy: dict[str, Any], picked: Iterable[int], salt: bytes = b"salt", **more: Any) -> Driver:
    """Return a run under this policy after the facts that `picked` gives. `more` is as for `Driver`."""
    driver = Driver(policy, salt, **more)
    for choice in picked:
        driver.step(choice)
    return driver
