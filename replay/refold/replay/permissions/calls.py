"""Recorded calls as permission rules decide them, each with what became of it.

Each call is judged on its own. That it was made is evidence only up to the first call of its run that the
rules would have refused: with the refusal, the agent might have done something else.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum, unique
from typing import Literal

import msgspec

from refold.reducers import events as ev
from refold.reducers.guards.permissions import Permissions, Permitted
from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.rules import PermissionRule, PermissionVerdict, RuleIndex, matching_rules
from refold.replay import known
from refold.replay.reader import Follower, Step
from refold.replay.source_words import describe_loss, is_lost


@unique
class CallResult(StrEnum):
    """What became of a call. `refused by`: who refused it, as its log or source records."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNMARKED = "status not recorded"
    NOT_RECORDED = "no result recorded"
    USER = "refused by user"
    RULE = "refused by rule"
    HOOK = "refused by hook"
    CLASSIFIER = "refused by classifier"
    HARNESS = "refused"

    @property
    def is_refusal(self) -> bool:
        """Whether the call was refused and did not run."""
        return self in _REFUSALS


_REFUSALS = frozenset(
    {CallResult.USER, CallResult.RULE, CallResult.HOOK, CallResult.CLASSIFIER, CallResult.HARNESS}
)

Outcome = Literal["refuse", "ask", "no rule", "permit", "unknown"]
"""What rules decide. `no rule`: no rule applies, and the files do not determine what happens then."""


class RuleList(msgspec.Struct, frozen=True):
    """Rules to judge calls by. `has_default`: their files also determine what happens without a rule."""

    name: str
    guard: Permissions
    has_default: bool = True
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the name of each rule, different for each."""
        return label_rules(self.guard.rules)


def label_rules(rules: Sequence[PermissionRule]) -> tuple[str, ...]:
    """Return the name of each rule, different for each."""
    labels = [rule.label for rule in rules]
    return tuple(
        label if labels.count(label) == 1 else f"{label} [{place}]" for place, label in enumerate(labels)
    )


class Judged(msgspec.Struct, frozen=True):
    """What one list of rules decides on a call.

    `rule` is the deciding rule's label, "" for none; `why` is what makes it unknown; `command` is what it is
    about. `matching` are the labels of other rules that match the call. `is_later`: it follows a call of its
    run that the rules refuse.
    """

    outcome: Outcome
    rule: str = ""
    why: str = ""
    command: str = ""
    matching: tuple[str, ...] = ()
    is_later: bool = False


class JudgedCall(msgspec.Struct, kw_only=True):
    """A recorded call, and what each list of rules decides on it.

    `seq` is the event that requests it. Without `arguments`, which may have been erased, nothing is decided.
    `made` is the call as the rules read it.
    """

    run: str
    seq: int
    at: int
    id: str
    tool: str
    arguments: str | None
    made: ToolCall | None = None
    judged: tuple[Judged, ...] = ()
    result: CallResult = CallResult.NOT_RECORDED

    @property
    def address(self) -> str:
        """Return the address of the event that requests the call."""
        return f"{self.run}@e{self.seq}"


class JudgedRun(msgspec.Struct, kw_only=True):
    """The calls of a run in their order. `incomplete`: why its source may have more calls."""

    lists: tuple[RuleList, ...] = ()
    calls: list[JudgedCall] = []
    incomplete: tuple[str, ...] = ()


Choice = Callable[[ev.RunStarted], Sequence[RuleList]]
"""Which rules apply to a run. Raises `Inconclusive` if that cannot be known."""


class CallJudge(Follower[JudgedRun]):
    """Judges the calls of one run by the rules that apply to it."""

    def __init__(self, choose: Choice) -> None:
        self._choose, self._found = choose, JudgedRun()
        self._owns: list[Permitted] = []
        self._labels: list[tuple[str, ...]] = []
        self._indices: list[RuleIndex] = []
        self._refused: list[bool] = []
        self._open: dict[str, JudgedCall] = {}
        self._rejected: set[str] = set()  # by a user

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.event`."""
        event = step.event
        if isinstance(event, ev.RunStarted):
            self._start(event)
        for place, rules in enumerate(self._found.lists):
            if type(event) in rules.guard.observes and not _lacks_payload(event):
                self._owns[place] = rules.guard.observe(self._owns[place], event)
        match event:
            case ev.ModelResponded(calls=calls, content=content):
                texts = content.arguments if content is not None else [None] * len(calls)
                for call, arguments in zip(calls, texts, strict=True):
                    self._judge(step, call, arguments, event.at)
            case ev.ToolReturned(call=id_) if id_ in self._open:
                self._open.pop(id_).result = _result(event)
            case ev.ApprovalAnswered(answers=answers):
                self._rejected |= {each.call for each in answers if each.decision in ("reject", "terminate")}
            case ev.CallRefused(call=id_) if id_ in self._open:
                result = CallResult.USER if id_ in self._rejected else CallResult.RULE
                self._open.pop(id_).result = result
            case ev.Diagnosed(code=code) if is_lost(event):
                loss = describe_loss(code)
                if loss not in self._found.incomplete:
                    self._found.incomplete += (loss,)
            case _:
                pass

    def _start(self, event: ev.RunStarted) -> None:
        self._found.lists = tuple(self._choose(event))
        self._labels = [rules.labels for rules in self._found.lists]
        self._indices = [RuleIndex(rules.guard.rules) for rules in self._found.lists]
        self._owns = [rules.guard.start() for rules in self._found.lists]
        self._refused = [False] * len(self._owns)

    def _judge(self, step: Step, call: ev.Call, arguments: str | None, at: int) -> None:
        made = JudgedCall(
            run=step.stored.run, seq=step.stored.seq, at=at, id=call.id, tool=call.name, arguments=arguments
        )
        if arguments is not None:
            made.made = self._describe(0, call, arguments) if self._owns else None
            made.judged = tuple(self._decide(place, call, arguments) for place in range(len(self._owns)))
        self._found.calls.append(made)
        self._open[call.id] = made

    def _describe(self, place: int, call: ev.Call, arguments: str) -> ToolCall:
        return self._found.lists[place].guard.describe(self._owns[place], call.name, arguments)

    def _decide(self, place: int, call: ev.Call, arguments: str) -> Judged:
        rules, own = self._found.lists[place], self._owns[place]
        verdict, labels = own.decisions[call.id], self._labels[place]
        others = matching_rules(self._indices[place], self._describe(place, call, arguments))
        judged = Judged(
            _outcome(rules, verdict),
            "" if verdict.rule is None else labels[verdict.rule],
            verdict.why,
            verdict.command,
            tuple(labels[other] for other in sorted(others - {verdict.rule})),
            self._refused[place],
        )
        self._refused[place] |= verdict.effect == "refuse"
        return judged

    def result(self) -> JudgedRun:
        """Return the calls."""
        return self._found


def _lacks_payload(event: ev.Event) -> bool:
    return isinstance(event, ev.ModelResponded) and event.content is None


def _outcome(rules: RuleList, verdict: PermissionVerdict) -> Outcome:
    is_unruled = verdict.rule is None and verdict.effect != "unknown"
    return "no rule" if is_unruled and not rules.has_default else verdict.effect


def _result(event: ev.ToolReturned) -> CallResult:
    if event.refused_by is not None:
        return CallResult[event.refused_by.name]
    if not known.recorded(event):
        return CallResult.NOT_RECORDED
    failed = known.failed(event)
    return CallResult.UNMARKED if failed is None else CallResult.FAILED if failed else CallResult.SUCCEEDED


def relevant_rules(rules: RuleList, tool: str) -> list[PermissionRule]:
    """Return the rules that are about a tool, without where they are written and what they say."""
    return [
        msgspec.structs.replace(rule, source="", say="") for rule in rules.guard.rules if rule.is_for(tool)
    ]
