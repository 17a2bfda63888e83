"""A hostile world for runs in tests: models, tools, people and clocks that answer as Hypothesis draws.

Everything that somebody says holds `MARKER`, and nothing else does.
"""

from typing import Any

from hypothesis import strategies as st

from refold.reducers import codec, composition
from refold.reducers.composition import approved, forked
from refold.reducers.effects import Reconcile, RunTool, Settle, WaitUntil, doubtful, next_effects
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
    PolicyAmended,
    RunForked,
    RunResumed,
    RunStarted,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.folds import advance
from refold.reducers.machine import AgentState
from refold.reducers.messages import Message, MessageCall, ReplyCall, Usage
from refold.reducers.parser import parse
from refold.reducers.pending import may_be_said, underway
from refold.reducers.rules.order import RULES
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Doubt, FailureClass, Replay, Role, StopReason, ToolError
from refold.testing.strategies.policies import policies

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
SALT = b"salt"
MARKER = "zqx"

TOOLS = (
    Manifest(name="look", replay=Replay.READ_ONLY, schema='{"type":"object"}'),
    Manifest(name="act", description="acts", replay=Replay.AT_MOST_ONCE),
    Manifest(name="set", replay=Replay.IDEMPOTENT),
    Manifest(name="book", replay=Replay.RECONCILABLE),
    Manifest(name="transfer_to_bob", agent="bob"),
)
_NAMES = st.sampled_from(["look", "look", "look", "act", "act", "set", "book", "transfer_to_bob", "missing"])
_ARGUMENTS = st.sampled_from(
    ['{"q":"zqx"}', '{"q":"zqx"}', "{}", "", '{"n":1.0,"q":"zqx"}', "zqx broken", '{"q":']
)
_TEXT = st.sampled_from(
    ["", " ", "zqx", "zqx says a little more", "<think>zqx</think>", "zqx 漢字\n" * 9, "zqx Done"]
)
_OUTPUT = st.sampled_from(["", "zqx", "zqx command not found", "zqx Error: no", "zqx line\n" * 12])
_CALLS = st.lists(st.tuples(_NAMES, _ARGUMENTS), max_size=4)
_GOOD_CALLS = st.lists(
    st.tuples(_NAMES, st.sampled_from(['{"q":"zqx"}', "{}", '{"n":1}'])), min_size=1, max_size=3
)
_USAGE = st.builds(Usage, input=st.sampled_from([0, 7, 60]), output=st.sampled_from([0, 5, 40]))
_COST = st.sampled_from([None, 0, 20, 70])
_STOP = st.sampled_from(
    [None, None, None, StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER, StopReason.OTHER]
)


def _opening(*, earlier: bool) -> tuple[Message, ...]:
    before = (
        Message(role=Role.USER, text="zqx before"),
        Message(
            role=Role.ASSISTANT,
            text="zqx",
            calls=(MessageCall("x", "look", "{}"), MessageCall("y", "act", "{}")),
        ),
        Message(role=Role.TOOL, text="zqx one", call="x"),
        Message(role=Role.TOOL, text="zqx two", call="y"),
        Message(role=Role.SYSTEM, text="zqx another system message"),
    )
    system = Message(role=Role.SYSTEM, text="zqx be good")
    return (system, *(before if earlier else ()), Message(role=Role.USER, text="zqx do it"))


class World:
    """A run and all that happens to it. `states` are those after each event of `log`."""

    def __init__(self, policy: dict[str, Any], *, earlier: bool, context: int | None, seed: int) -> None:
        self.state: RunState = NEW
        self.log: list[Event] = []
        self.groups: list[tuple[Fact, int]] = []  # each fact with the length of the log before it
        self.at = START
        fact = RunStarted(
            format=1,
            at=self.at,
            run="r1",
            rules=RULES,
            policy=parse(policy),
            model="m",
            tools=TOOLS,
            seed=seed,
            context=context,
        )
        self.feed(composition.started(fact, _opening(earlier=earlier), SALT))

    def feed(self, fact: Fact) -> None:
        """Advance by a fact."""
        self.groups.append((fact, len(self.log)))
        self.state, events = advance(self.state, fact)
        self.log += events

    def stored(self) -> list[Event]:
        """The log as somebody else reads it."""
        return [codec.decode(one.kind, one.body, one.content) for one in map(codec.encode, self.log)]

    def _effects(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in next_effects(self.state) if isinstance(effect, kind)]

    @property
    def asks_model(self) -> int:
        """The event of the request that is under way, 0 if none is."""
        return self.state.request.seq if self.state.request else 0

    @property
    def asks_summary(self) -> int:
        """The event of the summary that was asked for, 0 if none was."""
        pending = self.state.summary
        return pending.seq if pending and not self.state.ended else 0

    @property
    def running(self) -> list[str]:
        """The calls that were begun and have no result."""
        settled = [effect.call for effect in self._effects(Settle) if effect.call]
        return [effect.call for effect in self._effects(RunTool)] + settled

    @property
    def reconciled(self) -> list[str]:
        """The calls in doubt whose tools are asked."""
        return [effect.call for effect in self._effects(Reconcile)]

    @property
    def doubted(self) -> list[str]:
        """The calls in doubt."""
        return [call.id for call in underway(self.state) if call.in_doubt]

    def may_say(self, call: str) -> list[Doubt]:
        """What may still be said of a call in doubt."""
        (found,) = (each for each in underway(self.state) if each.id == call)
        return [doubt for doubt in Doubt if may_be_said(found, doubt)]

    @property
    def waits(self) -> bool:
        """Whether a clock is to be read at some instant."""
        return bool(self._effects(WaitUntil))

    @property
    def asked(self) -> bool:
        """Whether a person is asked for something."""
        return self.state.asked_at is not None and not self.state.ended

    def go_on(self, data: Any, after: int) -> None:
        """What is under way, or waited for, comes to an end: one thing of it, as is drawn."""
        ways = [self.answer, self.answer, self.failure] if self.asks_model else []
        ways += [self.summary] if self.asks_summary else []
        ways += [self.result, self.results] if self.running else []
        ways += [self.reconcile] if self.reconciled else []
        ways += [self.person] if self.asked else []
        if self.waits and (not ways or data.draw(st.integers(0, 9)) == 0):
            self.wait()
        else:
            data.draw(st.sampled_from(ways))(data, after)

    def go_well(self, data: Any) -> None:
        """Until the next answer with calls has all its results, or there is nothing that can go well."""
        if self.asks_model:
            self.answer(data, 0, well=True)
        while self.running or self.reconciled:
            (self.reconcile if self.reconciled else self.result)(data, 0, well=True)
        if self.asks_summary and not self._effects(Settle):
            self.summary(data, 0, well=True)
        elif self.asked:
            self.person(data, 0)
        elif self.waits and not self.asks_model and not self.running and not self.state.ended:
            self.wait()

    def results(self, data: Any, after: int) -> None:
        """All the calls under way have their results."""
        while self.running:
            self.result(data, after)
            after = 0

    def answer(self, data: Any, after: int, *, well: bool = False) -> None:
        """The model answers, whatever comes to its mind; or `well`, with calls."""
        self.at += after * SECOND
        made = data.draw(_GOOD_CALLS if well else _CALLS)
        calls = [ReplyCall(name=name, arguments=said) for name, said in made]
        natural = StopReason.TOOL_USE if calls else StopReason.END_TURN
        stop = natural if well else data.draw(_STOP) or natural
        fact = ModelResponded(
            at=self.at,
            request=self.asks_model,
            stop=stop,
            stop_raw="" if well else data.draw(st.sampled_from(["", "", "", "model_length"])),
            usage=data.draw(_USAGE),
            cost_nanousd=data.draw(_COST),
        )
        said = Answer(text=data.draw(_TEXT), reasoning=data.draw(st.sampled_from(["", "zqx thinks of it"])))
        self.feed(composition.responded(self.state, fact, said, calls, SALT))

    def failure(self, data: Any, after: int) -> None:
        """The request fails: of the model, or for a summary."""
        self.at += after * SECOND
        overflow, broken = FailureClass.CONTEXT_OVERFLOW, FailureClass.STREAM_BROKEN
        fact = ModelFailed(
            at=self.at,
            request=self.asks_model or self.asks_summary,
            failure=data.draw(
                st.sampled_from(
                    [overflow, overflow, *[broken] * 3, *[FailureClass.OVERLOADED] * 5, *FailureClass]
                )
            ),
            retry_after=data.draw(st.sampled_from([None, None, 2 * SECOND])),
            partial_calls=data.draw(st.sampled_from([0, 0, 1])),
            usage=data.draw(st.sampled_from([Usage(), Usage(), Usage(input=30)])),
            cost_nanousd=data.draw(st.sampled_from([None, 9])),
        )
        message = data.draw(st.sampled_from(["zqx broke", "zqx is much too long: one message"]))
        partial = data.draw(st.sampled_from(["", " ", "zqx had arri"]))
        self.feed(composition.failed(fact, message, partial, SALT, self.state.policy))

    def summary(self, data: Any, after: int, *, well: bool = False) -> None:
        """A summary comes back, or fails to."""
        if not well and (self._effects(Settle) or data.draw(st.integers(0, 3)) == 0):
            self.failure(data, after)
            return
        self.at += after * SECOND
        cost, usage = data.draw(_COST), data.draw(_USAGE)
        fact = SummaryReturned(at=self.at, request=self.asks_summary, usage=usage, cost_nanousd=cost)
        self.feed(composition.summarised(self.state, fact, data.draw(_TEXT), SALT))

    def result(self, data: Any, after: int, *, well: bool = False) -> None:
        """One of the calls under way has its result."""
        self.at += after * SECOND
        call = data.draw(st.sampled_from(self.running))
        if self._name(call) == "transfer_to_bob":
            fact = ChildEnded(
                at=self.at,
                call=call,
                run="child",
                agent_state=AgentState.COMPLETED,
                head_seq=9,
                head_hash="00",
                usage=data.draw(_USAGE),
                cost_nanousd=data.draw(_COST),
            )
            self.feed(fact)
        error = None if well else data.draw(st.sampled_from([None, None, *ToolError]))
        returned = ToolReturned(at=self.at, call=call, error=error)
        self.feed(composition.returned(self.state, returned, data.draw(_OUTPUT), self._name(call), "", SALT))

    def reconcile(self, data: Any, after: int, *, well: bool = False) -> None:
        """A tool says what became of a call in doubt and, if it happened, with which result."""
        self.at += after * SECOND
        call = data.draw(st.sampled_from(self.reconciled))
        doubt = Doubt.HAPPENED if well else data.draw(st.sampled_from(self.may_say(call)))
        self._resolve(call, doubt, by="tool:book", reconciled=True)
        crashes = not well and data.draw(st.integers(0, 3)) == 0
        if doubt is Doubt.HAPPENED and not crashes and call in self.doubted:
            returned = ToolReturned(at=self.at, call=call)
            self.feed(composition.returned(self.state, returned, data.draw(_OUTPUT), "book", "", SALT))

    def _resolve(self, call: str, doubt: Doubt, *, by: str, reconciled: bool = False) -> None:
        fact = DoubtResolved(at=self.at, call=call, doubt=doubt, by=by, reconciled=reconciled)
        self.feed(composition.resolved(self.state, fact, "zqx looked"))

    def _name(self, call: str) -> str:
        calls = self.state.batch.calls if self.state.batch else ()
        return next(each.name for each in calls if each.id == call)

    def wait(self) -> None:
        """The clock passes the first instant that something waits for."""
        instant = min(effect.at for effect in self._effects(WaitUntil))
        self.at = max(self.at, instant)
        self.feed(ClockRead(at=self.at, due=instant))

    def person(self, data: Any, after: int) -> None:
        """A person says something, or decides about some of the calls that they are asked about."""
        self.at += after * SECOND
        if self.state.batch is not None and self.state.approval is None:
            call = data.draw(st.sampled_from(self.doubted))
            self._resolve(call, data.draw(st.sampled_from(self.may_say(call))), by="ann")
            return
        if self.state.approval is None:
            message = InputReceived(at=self.at, by="ann")
            self.feed(composition.received(self.state, message, data.draw(_TEXT), SALT))
            return
        fact = ApprovalAnswered(at=self.at, by="ann")
        asked = self.state.approval.event.calls
        about = data.draw(st.lists(st.sampled_from(asked), unique=True, min_size=1))
        words = st.sampled_from([*["approve"] * 5, "reject", "edit", "escalate", "terminate"])
        said = {call: data.draw(words) for call in about}
        edits = {call: '{"q":"zqx edited"}' for call, word in said.items() if word == "edit"}
        self.feed(approved(self.state, fact, said, edits, "zqx notes", SALT))

    def aside(self, data: Any, after: int) -> None:
        """What nobody asked for: late results, clocks, another engine, another policy, a fork, a
        cancellation.
        """
        self.at += after * SECOND
        kinds = ["late", "late_failure"]
        if not self.state.ended:
            kinds += ["clock", "clock", "clock", "resume", "resume", "resume", "amend", "fork", "cancel"]
        getattr(self, f"_{data.draw(st.sampled_from(kinds))}")(data)

    def _late(self, data: Any) -> None:
        fact = ToolReturned(at=self.at, call="c999")
        self.feed(composition.returned(self.state, fact, data.draw(_OUTPUT), "look", "", SALT))

    def _late_failure(self, data: Any) -> None:
        fact = ModelFailed(at=self.at, request=10**6, failure=FailureClass.OTHER)
        self.feed(composition.failed(fact, "zqx", "zqx", SALT, self.state.policy))

    def _clock(self, data: Any) -> None:
        self.feed(ClockRead(at=self.at, due=self.at))

    def _resume(self, data: Any) -> None:
        doubted = doubtful(self.state)
        down = data.draw(st.sampled_from([0, 0, 3])) * SECOND
        self.at += down
        self.feed(RunResumed(at=self.at, worker="w", in_doubt=doubted, downtime=down))
        if self.doubted and data.draw(st.booleans()):
            call = data.draw(st.sampled_from(self.doubted))
            self._resolve(call, data.draw(st.sampled_from(self.may_say(call))), by="ann")

    def _amend(self, data: Any) -> None:
        policy = parse(data.draw(policies()))
        self.feed(PolicyAmended(at=self.at, policy=policy, by="ann"))

    def _fork(self, data: Any) -> None:
        policy = data.draw(st.none() | policies().map(parse))
        seq = self.state.seq
        fact = RunForked(
            at=self.at, run="r2", rules=RULES, parent="r1", parent_seq=seq, parent_hash="00", policy=policy
        )
        self.feed(forked(self.state, fact, "", SALT))

    def _cancel(self, data: Any) -> None:
        fact = CancelRequested(at=self.at, by="ann")
        self.feed(composition.cancelled(fact, "zqx enough"))
