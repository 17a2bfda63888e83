"""Agents whose behaviour is a function of their prompts alone, to be run under any policy.

A model gets a request, a tool a call, an operator a question. A hash of that input determines the response
and its duration. Cancellations and restarts follow the simulated clock. Results of one instant come in the
order of their calls, before any clock event of that instant.
"""

import hashlib
import random
from typing import Any, NamedTuple

import msgspec

from refold.reducers import composition
from refold.reducers.composition import approved
from refold.reducers.effects import (
    CallModel,
    Effect,
    Reconcile,
    RunTool,
    Settle,
    WaitUntil,
    doubtful,
    next_effects,
)
from refold.reducers.events import (
    Answer,
    ApprovalAnswered,
    CancelRequested,
    ChildEnded,
    ClockRead,
    DoubtResolved,
    Event,
    Fact,
    InputReceived,
    Manifest,
    ModelFailed,
    ModelResponded,
    RunResumed,
    RunStarted,
    SummaryRequested,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.folds import advance
from refold.reducers.machine import AgentState
from refold.reducers.messages import Message, ReplyCall, Usage
from refold.reducers.meters import limit_child_policy
from refold.reducers.pending import asked_of, may_be_said, underway, unseen
from refold.reducers.policy import Policy, text_of
from refold.reducers.rules.order import RULES
from refold.reducers.secrets import Redactor
from refold.reducers.state import NEW
from refold.reducers.text import render
from refold.reducers.views import arguments_of, summary_view, view
from refold.reducers.vocabulary import Doubt, FailureClass, Replay, Role, StopReason, ToolError

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
SALT = b"salt"

TOOLS = (
    Manifest(name="look", replay=Replay.READ_ONLY, schema='{"type":"object"}'),
    Manifest(name="act", description="acts", replay=Replay.AT_MOST_ONCE, timeout=3 * SECOND),
    Manifest(name="set", replay=Replay.IDEMPOTENT),
    Manifest(name="book", replay=Replay.RECONCILABLE),
    Manifest(name="transfer_to_bob", agent="bob"),
)
_NAMES = ("look", "look", "look", "act", "act", "set", "book", "transfer_to_bob", "missing")
_ARGUMENTS = ('{"q":"zqx"}', '{"q":"zqx"}', "{}", "", '{"n":1.0,"q":"zqx"}', "zqx broken", '{"q":')
_TEXTS = (
    "",
    " ",
    "zqx",
    "zqx says a little more",
    "<think>zqx</think>",
    "zqx 漢字\n" * 9,
    "zqx Done",
    "zqx-1234",
)
_OUTPUTS = ("", "zqx", "zqx command not found", "zqx Error: no", "zqx line\n" * 12, "zqx-1234", "zqx 漢字")
_STOPS = (None, None, None, None, StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER, StopReason.OTHER)
_OVERFLOW, _BROKEN = FailureClass.CONTEXT_OVERFLOW, FailureClass.STREAM_BROKEN
_FAILURES = (_OVERFLOW, *[_BROKEN] * 2, *[FailureClass.OVERLOADED] * 4, *FailureClass)
_WORDS = (*["approve"] * 5, "reject", "edit", "escalate", "terminate")


class Entry(NamedTuple):
    """Something that was asked of the world at an instant, after event `seq` of the log."""

    seq: int
    at: int
    what: tuple[Any, ...]


class Temper(NamedTuple):
    """What a world is like: its chance, its speed in seconds, and when somebody cancels, or the machine goes
    down.
    """

    seed: int
    slowness: int = 2
    cancelled_after: int | None = None
    down_after: int | None = None
    down_for: int = 3
    faultless: bool = False
    names: tuple[str, ...] = _NAMES


class Life:
    """A run of such an agent under a policy, for at most so many facts."""

    def __init__(self, policy: Policy, temper: Temper, facts: int) -> None:
        self.temper, self.state = temper, NEW
        self.log: list[Event] = []
        self.trace: list[Entry] = []
        self._contents: dict[int, Event] = {}
        self._said: list[str] = []
        self._flying: dict[tuple[str, Any], tuple[int, int, Any]] = {}  # due, order, effect
        self._known: set[Any] = set()
        self._asked = self._patience = 0
        self._times: dict[bytes, int] = {}
        self.at, self._order = START, 0
        opening = (Message(role=Role.SYSTEM, text="zqx be good"), Message(role=Role.USER, text="zqx do it"))
        start = RunStarted(
            format=1,
            at=START,
            run="r1",
            rules=RULES,
            policy=policy,
            model="m",
            tools=TOOLS,
            seed=7,
            context=200,
        )
        self._feed(composition.started(start, opening, SALT))
        events = [
            (after, kind) for after, kind in ((temper.cancelled_after, "cancel"), (temper.down_after, "down"))
        ]
        self._fates = sorted((START + after * SECOND, kind) for after, kind in events if after is not None)
        self.facts = 1
        while self.facts < facts and not self.state.ended and self._step():
            pass

    def _feed(self, fact: Fact) -> None:
        before = len(self.log)
        self.state, events = advance(self.state, fact)
        self.log += events
        for seq, event in enumerate(events, before + 1):
            self._contents[seq] = event
        self._remark(fact)

    def _tell(self, *what: Any) -> None:
        self.trace.append(Entry(len(self.log), self.at, what))

    def _remark(self, fact: Fact) -> None:
        """Write down what is newly asked of the world, and begin it."""
        if isinstance(fact, ModelResponded | InputReceived) and fact.content is not None:
            self._said.append(fact.content.text)
        effects = next_effects(self.state)
        for effect in effects:
            self._begin(effect)
        keys = {_key(effect) for effect in effects}
        self._flying = {key: value for key, value in self._flying.items() if key in keys}
        backoff = self.state.backoff
        if backoff is not None and backoff.until and ("wait", backoff.until) not in self._known:
            self._known.add(("wait", backoff.until))
            self._tell("wait", backoff.until)
        asked, approval = self.state.asked_at, self.state.approval
        if asked is not None and not self.state.ended and asked != self._asked:
            self._asked = asked
            self._patience = asked + self._lasts(self._chance("person", self._said, approval is None))
            self._tell(
                "ask", approval and (approval.event.calls, approval.event.approver), self.state.batch is None
            )

    def _begin(self, effect: Effect) -> None:
        key = _key(effect)
        if key in self._flying or isinstance(effect, WaitUntil):
            return
        self._order += 1
        due, chance = self.at, self._chance("settled")
        if isinstance(effect, CallModel):
            shown = self._shown(effect)
            self._tell("model", *shown)
            chance = self._chance("model", *shown)
            due += self._lasts(chance)
        elif isinstance(effect, RunTool | Reconcile):
            shown = self._call(effect)
            self._tell(type(effect).__name__, *shown)
            chance = self._chance(type(effect).__name__, *shown)
            due += self._lasts(chance)
        bounds = [getattr(effect, "until", None)]
        if isinstance(effect, RunTool):
            bounds += [self.at + tool.timeout for tool in TOOLS if tool.name == effect.name and tool.timeout]
        bound = min((each for each in bounds if each is not None), default=None)
        self._flying[key] = (
            due if bound is None else min(due, max(bound, self.at)),
            self._order,
            (effect, due, chance),
        )

    def _lasts(self, chance: random.Random) -> int:
        return chance.randrange(0, self.temper.slowness * 1000 + 1) * 1_000_000

    def _chance(self, *shown: Any) -> random.Random:
        """A chance that depends on what is shown, and on how often that was shown before."""
        said = msgspec.json.encode((self.temper.seed, shown), order="deterministic")
        self._times[said] = self._times.get(said, 0) + 1
        return random.Random(hashlib.sha256(said + bytes(self._times[said])).digest())

    def _shown(self, effect: CallModel) -> Any:
        asked = asked_of(self.state, effect.seq).event
        if isinstance(asked, SummaryRequested):
            return summary_view(self.state, self._contents), [], asked.max_output, ""
        offered = [tool.name for tool in TOOLS if asked.tools is None or tool.name in asked.tools]
        return view(self.state, self._contents), offered, asked.max_output, asked.model

    def _call(self, effect: RunTool | Reconcile) -> tuple[Any, ...]:
        arguments = arguments_of(self.state, effect.call, self._contents)
        bounds = (
            limit_child_policy(Policy(limits=()), self.state).limits
            if effect.name == "transfer_to_bob"
            else ()
        )
        return effect.call, effect.name, arguments, bounds

    def _step(self) -> bool:
        """The next thing that happens. False: nothing will."""
        waits = [(e.at, 2, 0, e) for e in next_effects(self.state) if isinstance(e, WaitUntil)]
        ready: list[tuple[int, int, int, Any]] = [
            (due, 1, order, item) for due, order, item in self._flying.values()
        ]
        if self.state.asked_at is not None:
            ready.append((self._patience, 1, 0, "person"))
        ready += [(at, 0, 0, kind) for at, kind in self._fates[:1]]
        if not ready and not waits:
            return False
        at, _, _, what = min([*ready, *waits], key=lambda each: each[:3])
        self.at = max(self.at, at)
        self.facts += 1
        match what:
            case "cancel" | "down":
                self._fates.pop(0)
                self._fated(what)
            case "person":
                self._person()
            case WaitUntil(at=due):
                self._feed(ClockRead(at=self.at, due=due))
            case (effect, natural, chance):
                self._flying.pop(_key(effect), None)
                self._come(effect, chance, cut=natural > self.at)
            case _:
                raise AssertionError(what)
        return True

    def _fated(self, kind: str) -> None:
        if kind == "cancel":
            self._feed(composition.cancelled(CancelRequested(at=self.at, by="ann"), "zqx enough"))
            return
        self._flying.clear()
        self.at += self.temper.down_for * SECOND
        doubted = doubtful(self.state)
        self._feed(RunResumed(at=self.at, worker="w", in_doubt=doubted, downtime=self.at - self.state.at))

    def _come(self, effect: Effect, chance: random.Random, *, cut: bool) -> None:
        match effect:
            case CallModel():
                self._model(effect, chance, cut=cut)
            case RunTool():
                self._tool(effect, chance, cut=cut)
            case Reconcile():
                self._reconcile(effect, chance)
            case Settle(call=None):
                self._fail(effect.seq, FailureClass.CANCELLED, chance)
            case Settle(call=str(call)):
                error, text = unseen(self.state, call)
                doubted = any(each.id == call and each.in_doubt for each in underway(self.state))
                if not doubted:
                    error, text = ToolError.CANCELLED, "cancelled"
                self._return(call, error, render(text_of(self.state.policy, text), {}), "")
            case _:
                raise AssertionError(effect)

    def _model(self, effect: CallModel, chance: random.Random, *, cut: bool) -> None:
        if cut:
            self._fail(effect.seq, FailureClass.TIMEOUT, chance)
        elif not self.temper.faultless and chance.random() < 0.2:
            self._fail(effect.seq, chance.choice(_FAILURES), chance)
        elif self.state.summary is not None:
            text = chance.choice([text for text in _TEXTS if text.strip()])
            fact = SummaryReturned(
                at=self.at, request=effect.seq, usage=_usage(chance), cost_nanousd=_cost(chance)
            )
            self._feed(composition.summarised(self.state, fact, text, SALT))
        else:
            self._answer(effect, chance)

    def _answer(self, effect: CallModel, chance: random.Random) -> None:
        count = chance.choice((0, 1, 1, 1, 2, 3))
        arguments = _ARGUMENTS[:5] if self.temper.faultless else _ARGUMENTS
        calls = [
            ReplyCall(name=chance.choice(self.temper.names), arguments=chance.choice(arguments))
            for _ in range(count)
        ]
        natural = StopReason.TOOL_USE if calls else StopReason.END_TURN
        fact = ModelResponded(
            at=self.at,
            request=effect.seq,
            stop=natural if self.temper.faultless else chance.choice(_STOPS) or natural,
            stop_raw=chance.choice(("", "", "", "model_length")),
            usage=_usage(chance),
            cost_nanousd=_cost(chance),
        )
        said = Answer(
            text=self._redacted(chance.choice(_TEXTS)), reasoning=chance.choice(("", "zqx thinks of it"))
        )
        self._feed(composition.responded(self.state, fact, said, calls, SALT))

    def _fail(self, request: int, failure: FailureClass, chance: random.Random) -> None:
        fact = ModelFailed(
            at=self.at,
            request=request,
            failure=failure,
            retry_after=chance.choice((None, None, 2 * SECOND)),
            partial_calls=chance.choice((0, 0, 1)),
            usage=chance.choice((Usage(), Usage(), Usage(input=30))),
            cost_nanousd=chance.choice((None, 9)),
        )
        message = chance.choice(("zqx broke", "zqx broke", "zqx is much too long: one message"))
        partial = chance.choice(("", " ", "zqx had arri"))
        self._feed(composition.failed(fact, message, partial, SALT, self.state.policy))

    def _tool(self, effect: RunTool, chance: random.Random, *, cut: bool) -> None:
        if cut:
            said = render(text_of(self.state.policy, "timeout"), {})
            self._return(effect.call, ToolError.TIMEOUT, said, effect.name)
            return
        if effect.name == "transfer_to_bob":
            self._feed(
                ChildEnded(
                    at=self.at, call=effect.call, run="child", agent_state=AgentState.COMPLETED, head_seq=9,
                    head_hash="00", usage=_usage(chance), cost_nanousd=_cost(chance),
                )
            )  # fmt: skip
            if not any(call.id == effect.call for call in underway(self.state)):
                return
        error = None if chance.random() < 0.6 else ToolError.RAISED
        output = chance.choice(_OUTPUTS)
        said = output if error is None else composition.said_error(self.state, error, {"problem": output})
        self._return(effect.call, error, said, effect.name)

    def _return(self, call: str, error: ToolError | None, said: str, name: str) -> None:
        fact = ToolReturned(at=self.at, call=call, error=error)
        self._feed(composition.returned(self.state, fact, self._redacted(said), name, "", SALT))

    def _redacted(self, text: str) -> str:
        return Redactor(patterns=self.state.policy.redact, known=False).text(text)

    def _reconcile(self, effect: Reconcile, chance: random.Random) -> None:
        self._resolve(effect.call, chance, by="tool:book", reconciled=True)
        if any(call.id == effect.call and call.doubt is Doubt.HAPPENED for call in underway(self.state)):
            self._return(effect.call, None, chance.choice(_OUTPUTS), effect.name)

    def _resolve(self, call: str, chance: random.Random, *, by: str, reconciled: bool = False) -> None:
        (found,) = (each for each in underway(self.state) if each.id == call)
        doubt = chance.choice([doubt for doubt in Doubt if may_be_said(found, doubt)])
        fact = DoubtResolved(at=self.at, call=call, doubt=doubt, by=by, reconciled=reconciled)
        self._feed(composition.resolved(self.state, fact, "zqx looked"))

    def _person(self) -> None:
        approval = self.state.approval
        chance = self._chance("says", self._said, approval and approval.event.calls)
        if self.state.batch is not None and approval is None:
            self._resolve(next(call.id for call in underway(self.state) if call.in_doubt), chance, by="ann")
            return
        if approval is None:
            message = InputReceived(at=self.at, by="ann")
            self._feed(composition.received(self.state, message, chance.choice(_TEXTS), SALT))
            return
        fact = ApprovalAnswered(at=self.at, by="ann")
        said: Any = {call: chance.choice(_WORDS) for call in approval.event.calls}
        edits = {call: '{"q":"zqx edited"}' for call, word in said.items() if word == "edit"}
        self._feed(approved(self.state, fact, said, edits, "zqx notes", SALT))


def _key(effect: Effect) -> tuple[str, Any]:
    call = getattr(effect, "call", None)
    return type(effect).__name__, call if call is not None else getattr(
        effect, "seq", getattr(effect, "at", None)
    )


def _usage(chance: random.Random) -> Usage:
    return Usage(input=chance.choice((0, 7, 60)), output=chance.choice((0, 5, 40)))


def _cost(chance: random.Random) -> int | None:
    return chance.choice((None, 0, 20, 70))
