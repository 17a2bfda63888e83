"""A state machine for Hypothesis that drives an agent's rules step by step, without an engine.

Rules append facts: responses, results, time, input, crashes. Decisions follow as in a run. The invariants are
checked after each step. Nothing waits, and no model or tool is called.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from refold.engine.tools.protocol import Tool
from refold.reducers import codec, composition
from refold.reducers.composition import ANSWERS, approved
from refold.reducers.effects import CallModel, Reconcile, RunTool, Settle, WaitUntil, doubtful, next_effects
from refold.reducers.events import (
    Answer,
    ApprovalAnswered,
    CancelRequested,
    ClockRead,
    DoubtResolved,
    Event,
    Fact,
    InputReceived,
    LateResult,
    Manifest,
    ModelFailed,
    ModelResponded,
    RunResumed,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.folds import fold
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import ReplyCall, Usage
from refold.reducers.pending import may_be_said, underway, unknown_calls
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, FailureClass, Replay, StopReason, ToolError
from refold.testing.audits import audit_events
from refold.testing.strategies.driver import TOOLS, Driver
from refold.testing.strategies.logs import manifest_of
from refold.testing.tool_arguments import arguments

_SECOND = 1_000_000_000
_TEXTS = st.sampled_from(["", "done", "no", "more than that, and more", "x" * 60])


class AgentMachine(RuleBasedStateMachine):
    """The rules and invariants of any run. Inherit, and name the agent; add rules and invariants of your own.

    To run it with pytest: `TestShop = ShopMachine.TestCase`. `state` is the run's state, `log` its events.
    `started` counts how often each call was begun, by its id. `feed(fact)` appends a fact with its decisions.
    """

    tools: ClassVar[Sequence[Tool | Manifest]] = TOOLS
    """The agent's tools. They are not run: their results are drawn."""
    policy: ClassVar[Mapping[str, Any]] = {}
    """The agent's policy, as plain data."""
    guards: ClassVar[Mapping[str, type[Any]]] = {}
    """Guards of other packages that the policy names, by kind."""

    def __init__(self) -> None:
        super().__init__()
        self.manifests = [manifest_of(tool, f"tools[{place}]") for place, tool in enumerate(self.tools)]
        self.installed: Registry = {**BUILTIN, **self.guards}
        self._run = Driver(dict(self.policy), tools=self.manifests, guards=self.installed, imported=False)
        self.started: Counter[str] = Counter()
        self.running: list[str] = []
        self._end: tuple[RunState, int] | None = None
        self._begin_calls()

    @property
    def state(self) -> RunState:
        """Return the state after the last event."""
        return self._run.state

    @property
    def log(self) -> list[Event]:
        """Return the events of the run."""
        return self._run.log

    def feed(self, fact: Fact) -> tuple[Event, ...]:
        """Append a fact and its decisions, and begin the calls that they start. Returns these events."""
        events = self._run.feed(fact)
        self._begin_calls()
        return events

    def _begin_calls(self) -> None:
        for effect in next_effects(self.state):
            if isinstance(effect, RunTool) and effect.call not in self.running:
                self.running.append(effect.call)
                self.started[effect.call] += 1
        if self.state.ended and self._end is None:
            self._end = self.state, len(self.log)

    def _effect(self, *kinds: type[Any]) -> Any:
        """Return the first effect of these kinds that waits to be completed, or None."""
        return next((each for each in next_effects(self.state) if isinstance(each, kinds)), None)

    @property
    def _waits_for_response(self) -> bool:
        return self._effect(CallModel) is not None and self.state.summary is None

    @precondition(lambda self: self._waits_for_response)
    @rule(text=_TEXTS, tokens=st.integers(0, 200))
    def respond(self, text: str, tokens: int) -> None:
        """Let the model respond without calls."""
        self._respond(text, [], tokens)

    @precondition(lambda self: self._waits_for_response)
    @rule(data=st.data(), count=st.integers(1, 3))
    def call_tools(self, data: st.DataObject, count: int) -> None:
        """Let the model call up to three tools, with valid or with broken arguments."""
        self._respond("", [data.draw(self._calls()) for _ in range(count)], 10)

    def _calls(self) -> st.SearchStrategy[ReplyCall]:
        known = [st.builds(_call, st.just(tool.name), arguments(tool.schema)) for tool in self.manifests]
        names = st.sampled_from([*[tool.name for tool in self.manifests], "unheard_of"])
        return st.one_of(*known, names.map(lambda name: ReplyCall(name=name, arguments="{")))

    def _respond(self, text: str, calls: Sequence[ReplyCall], tokens: int) -> None:
        fact = ModelResponded(
            at=self._run.at,
            request=self._effect(CallModel).seq,
            stop=StopReason.TOOL_USE if calls else StopReason.END_TURN,
            usage=Usage(input=tokens, output=5),
            cost_nanousd=tokens,
        )
        self.feed(composition.responded(self.state, fact, Answer(text=text), list(calls), self._run.salt))

    @precondition(lambda self: self._effect(CallModel) is not None)
    @rule(failure=st.sampled_from(FailureClass))
    def fail_request(self, failure: FailureClass) -> None:
        """Let a request fail."""
        fact = ModelFailed(at=self._run.at, request=self._effect(CallModel).seq, failure=failure)
        self.feed(composition.failed(fact, "it failed", "", self._run.salt, self.state.policy))

    @precondition(lambda self: self._effect(CallModel) is not None and self.state.summary is not None)
    @rule(text=_TEXTS)
    def summarise(self, text: str) -> None:
        """Let the model return the summary that a compaction step requested."""
        fact = SummaryReturned(
            at=self._run.at, request=self._effect(CallModel).seq, usage=Usage(), cost_nanousd=0
        )
        self.feed(composition.summarised(self.state, fact, text, self._run.salt))

    @precondition(lambda self: self.running and not self.state.ended)
    @rule(place=st.integers(0, 9), output=_TEXTS, error=st.sampled_from([None, None, *ToolError]))
    def return_result(self, place: int, output: str, error: ToolError | None) -> None:
        """Let one of the running calls return, or fail."""
        self._return(self.running.pop(place % len(self.running)), output, error)

    @precondition(lambda self: self._effect(Settle) is not None)
    @rule()
    def interrupt(self) -> None:
        """Report a request or a call that the engine interrupted, after a cancellation or a time-out."""
        effect = self._effect(Settle)
        if effect.call is not None:
            self.running = [call for call in self.running if call != effect.call]
            self._return(effect.call, "", ToolError.CANCELLED)
            return
        fact = ModelFailed(at=self._run.at, request=effect.seq, failure=FailureClass.CANCELLED)
        self.feed(composition.failed(fact, "interrupted", "", self._run.salt, self.state.policy))

    def _return(self, call: str, output: str, error: ToolError | None) -> None:
        fact = ToolReturned(at=self._run.at, call=call, error=error)
        self.feed(composition.returned(self.state, fact, output, "", "", self._run.salt))

    @rule(seconds=st.sampled_from([0.5, 3, 60, 4000]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass. A deadline that is reached is reported by a clock."""
        self._run.at += int(seconds * _SECOND)
        wait = self._effect(WaitUntil)
        if wait is not None and wait.at <= self._run.at:
            self.feed(ClockRead(at=self._run.at, due=wait.at))

    @property
    def _asks_for_input(self) -> bool:
        state = self.state
        waits = state.asked_at is not None and not state.ended
        return waits and state.approval is None and not unknown_calls(state)

    @precondition(lambda self: self._asks_for_input)
    @rule(text=st.sampled_from(["go on", "stop that", "do something else"]))
    def send_input(self, text: str) -> None:
        """Let the user send a message, if the run waits for one."""
        fact = InputReceived(at=self._run.at)
        self.feed(composition.received(self.state, fact, text, self._run.salt))

    @precondition(lambda self: self.state.approval is not None and not self.state.ended)
    @rule(word=st.sampled_from([each for each in ANSWERS if each != "edit"]))
    def answer_approval(self, word: Any) -> None:
        """Let an approver decide about all calls that wait for it."""
        asked = self.state.approval
        answers: Any = dict.fromkeys(asked.event.calls if asked else (), word)
        self.feed(
            approved(self.state, ApprovalAnswered(at=self._run.at, by="ann"), answers, {}, "", self._run.salt)
        )

    @precondition(lambda self: not self.state.ended and any(call.in_doubt for call in underway(self.state)))
    @rule(place=st.integers(0, 9))
    def settle_outcome(self, place: int) -> None:
        """Let the tool, or an operator, report whether an interrupted call had its effect."""
        call = next(each for each in underway(self.state) if each.in_doubt)
        answers = [doubt for doubt in Doubt if may_be_said(call, doubt)]
        answer = answers[place % len(answers)]
        if answer is Doubt.DID_NOT:
            self.started[call.id] = 0  # so it may begin again
        fact = DoubtResolved(
            at=self._run.at,
            call=call.id,
            doubt=answer,
            by="ann",
            reconciled=self._effect(Reconcile) is not None and self._effect(Reconcile).call == call.id,
        )
        self.feed(composition.resolved(self.state, fact, ""))

    @precondition(lambda self: not self.state.ended)
    @rule()
    def cancel(self) -> None:
        """Let the user cancel the run."""
        self.feed(composition.cancelled(CancelRequested(at=self._run.at, by="ann"), "enough"))

    @precondition(lambda self: not self.state.ended)
    @rule(seconds=st.sampled_from([0, 1, 600]))
    def crash_and_resume(self, seconds: float) -> None:
        """Lose everything but the log, and continue from its bytes after some time."""
        stored = [codec.encode(event) for event in self.log]
        log = [codec.decode(each.kind, each.body, each.content) for each in stored]
        self._run.state = fold(log, registry=self.installed)
        self._run.log = log
        self.running = []
        before = self._run.at
        self._run.at += int(seconds * _SECOND)
        fact = RunResumed(at=self._run.at, in_doubt=doubtful(self.state), downtime=self._run.at - before)
        self.feed(fact)

    @precondition(lambda self: self.running and self.state.ended)
    @rule()
    def return_late(self) -> None:
        """Let a call return after the end of the run."""
        self._return(self.running.pop(), "late", None)

    @invariant()
    def state_equals_the_fold(self) -> None:
        """The state is what folding the log gives."""
        assert fold(self.log, registry=self.installed) == self.state, (
            "the state is not what folding the log gives: a guard or a rule depends on more than the log"
        )

    @invariant()
    def no_call_runs_twice(self) -> None:
        """No call of a tool that must run at most once was begun twice."""
        batch = self.state.batch
        once = {tool.name for tool in self.manifests if tool.replay is Replay.AT_MOST_ONCE}
        again = [
            call.id
            for call in (batch.calls if batch else ())
            if call.name in once and self.started[call.id] > 1
        ]
        assert not again, f"calls that must run at most once were begun again: {', '.join(again)}"

    @invariant()
    def ended_runs_stay_ended(self) -> None:
        """After the end, only late results are appended, and the outcome stays."""
        if self._end is None:
            return
        ended, length = self._end
        assert self.state.agent_state is ended.agent_state, "an ended run moved again"
        assert self.state.outcome == ended.outcome, "the outcome of an ended run changed"
        more = [event for event in self.log[length:] if not isinstance(event, LateResult)]
        assert not more, f"an ended run got another event: {more[0]}"

    def teardown(self) -> None:
        """Audit the log. As it only grows, one audit at the end covers every step."""
        found = audit_events(self.log, self.installed)
        assert found.clean, f"the audit found {found.differences} differences: {found.findings[:3]}"
        assert not found.blind, f"a guard failed: {found.blind}"


def _call(name: str, made: dict[str, Any]) -> ReplyCall:
    return ReplyCall(name=name, arguments=msgspec.json.encode(made).decode())
