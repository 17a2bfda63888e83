"""Permission rules during a run: refuses calls, or asks a user about them, as a list of rules decides.

Source: the permission rules of coding agents, which refuse, ask about or permit calls by tool, command, path
and host. Here the decisions are recorded, and can be derived again from the log.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.approvals import Human, Reject
from refold.reducers.errors import Fault
from refold.reducers.guards.approvals import RUN_EVENTS, Approval, Asked, Said, take_folders
from refold.reducers.guards.protocol import Ask, Config, Judgement, Own, Place, Reading, Refuse
from refold.reducers.limits import Amount
from refold.reducers.permissions.conditions import ToolCall, holds
from refold.reducers.permissions.paths import Folders
from refold.reducers.permissions.rule_checks import find_grammar_problem
from refold.reducers.permissions.rules import (
    Effect,
    Order,
    PermissionRule,
    PermissionVerdict,
    RuleIndex,
    decide,
)
from refold.reducers.permissions.run_facts import RunFacts
from refold.reducers.permissions.shell import installed_grammar
from refold.reducers.run_records import take_calls, take_event
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Unknown

_NOT_USERS = frozenset({"hook", "harness"})
"""Senders of messages in imported runs that are no user."""
UNKNOWN_PERMISSION = "permission_unknown"
"""The code of a decision on a call that the rules cannot judge."""


class Permitted(Own, frozen=True):
    """The calls of the last response by id, with their tools and decisions; a user's answers; the folders.

    `active` are the rules with `after` that apply, by index as text (None: unknown); `starting` those that
    will apply once a call has returned.
    """

    tools: dict[str, str] = {}
    decisions: dict[str, PermissionVerdict] = {}
    asked: Asked = Asked()
    folders: Folders = Folders()
    run: RunFacts = RunFacts()
    starting: dict[str, dict[str, bool | None]] = {}
    active: dict[str, bool | None] = {}


class Permissions(Config, frozen=True, kw_only=True, tag="permissions", dict=True):
    """Refuses calls, or asks a user about them, by permission rules; the others run.

    `order` is which of several rules applies to a call, or to a command of its script: `strictest` (refuse
    before ask before permit), `first` or `last`. `else` applies to calls without a rule, and `unknown` to
    calls that the rules cannot judge, such as `eval` of an unknown text (`permit` is not safe there).
    `timeout`: seconds that a user has to answer; without an answer the call is refused. `grammar` is the
    version of the shell grammar that reads commands, filled in when a run starts; with another version the
    guard is blind.
    """

    rules: Annotated[tuple[PermissionRule, ...], Meta(min_length=1)]
    order: Order = "strictest"
    otherwise: Effect = msgspec.field(default="permit", name="else")
    unknown: Effect = "ask"
    timeout: Amount | None = None
    grammar: str = ""

    kind: ClassVar[str] = "permissions"
    places: ClassVar[frozenset[Place]] = Approval.places
    observes: ClassVar[frozenset[type[ev.Event]]] = Approval.observes | {ev.ToolReturned, ev.InputReceived}
    reads_content: ClassVar[bool] = True
    content_unread: ClassVar[frozenset[type[ev.Event]]] = RUN_EVENTS | {ev.ToolReturned, ev.InputReceived}
    guards_calls: ClassVar[bool] = True
    # A rule with `after` reads that a call returned, not whether it failed.
    reading: ClassVar[Reading] = Reading(manifest=False, monotone=frozenset({Unknown.ERRORS}), warns=False)
    fresh: ClassVar[Permitted] = Permitted()
    texts: ClassVar[Mapping[str, str]] = {
        "refused:permission": "skipped: the permission rule {rule} does not allow this call.",
        "refused:permission_said": "skipped: {say}",
        "refused:permission_unruled": "skipped: no permission rule allows this call.",
        "refused:permission_unknown": (
            "skipped: the permission rules cannot judge this call ({why}). Write it as a plain command."
        ),
    }

    def complete(self) -> "Permissions":
        """Return the same with the version of the grammar, if rules need it."""
        fill = self._reads_commands and not self.grammar
        return replace(self, grammar=installed_grammar()) if fill else self

    def problems(self) -> Iterator[Fault]:
        """Yield what makes the rules unusable here."""
        if self._reads_commands and (problem := find_grammar_problem(self.grammar)):
            yield "grammar", problem

    @property
    def blind(self) -> str:
        """Return why the guard cannot judge in this process; "" if it can."""
        return next((problem for _, problem in self.problems()), "")

    @property
    def _reads_commands(self) -> bool:
        return any(rule.command is not None for rule in self.rules)

    @cached_property
    def _index(self) -> RuleIndex:
        return RuleIndex(self.rules)

    def decide(self, own: Permitted, tool: str, arguments: str) -> PermissionVerdict:
        """Return the decision on a call, which may be `unknown`."""
        active = {int(place): held for place, held in own.active.items()}
        return decide(self._index, self.order, self.otherwise, self.describe(own, tool, arguments), active)

    def describe(self, own: Permitted, tool: str, arguments: str) -> ToolCall:
        """Return a call with what is recorded about its run."""
        return ToolCall(tool, arguments, own.folders, own.run)

    def observe(self, own: Permitted, event: ev.Event) -> Permitted:
        """Judge new calls, and apply a user's answer, or its timeout, to open ones."""
        match event:
            case ev.RunStarted() | ev.RunForked() | ev.SourceRecorded():
                folders, run = take_folders(own.folders, event), take_event(own.run, event)
                same = folders is own.folders and run is own.run
                return own if same else replace(own, folders=folders, run=run)
            case ev.ModelResponded(calls=calls, content=ev.Answer(arguments=texts)) if calls or own.decisions:
                made = zip(calls, texts, strict=True)
                decisions = {call.id: self.decide(own, call.name, text) for call, text in made}
                links: dict[str, Said] = {call: (self._link(one),) for call, one in decisions.items()}
                tools = {call.id: call.name for call in calls}
                run = take_calls(own.run, calls)
                own = replace(own, tools=tools, decisions=decisions, asked=Asked(links), run=run)
                return self._start(own, dict(zip(tools, texts, strict=True)))
            case ev.ToolReturned(call=call) if call in own.starting:
                return replace(own, active={**own.active, **own.starting[call]})
            case ev.InputReceived(by=by) if own.active and by not in _NOT_USERS:
                active = {at: held for at, held in own.active.items() if self.rules[int(at)].until == "end"}
                return own if active == own.active else replace(own, active=active)
            case ev.ToolReturned() | ev.InputReceived():
                return own
            case _:
                asked = self._approval.observe(own.asked, event)
                own = own if asked is own.asked else replace(own, asked=asked)
                return self._check_edits(own, event) if isinstance(event, ev.ApprovalAnswered) else own

    def _start(self, own: Permitted, made: Mapping[str, str]) -> Permitted:
        """Note which rules with `after` will apply once each of these calls has returned."""
        after = [(str(place), rule.after) for place, rule in enumerate(self.rules) if rule.after is not None]
        if not after:
            return own
        starting: dict[str, dict[str, bool | None]] = {}
        for id_, arguments in made.items():
            call = self.describe(own, own.tools[id_], arguments)
            found = {place: held for place, trigger in after if (held := holds(trigger, call)) is not False}
            if found:
                starting[id_] = {place: held or own.active.get(place) for place, held in found.items()}
        return replace(own, starting=starting)

    def _check_edits(self, own: Permitted, event: ev.ApprovalAnswered) -> Permitted:
        """Judge arguments that a user edited: a rule that refuses them applies to the user, too."""
        edited = event.content.arguments if event.content else {}
        decided = {call: self.decide(own, own.tools.get(call, ""), text) for call, text in edited.items()}
        refused = {call: one for call, one in decided.items() if self._link(one)[1] == "reject"}
        if not refused:
            return own
        said = {**own.asked.said, **{call: (self._link(one),) for call, one in refused.items()}}
        decisions = {**own.decisions, **refused}
        return replace(own, decisions=decisions, asked=replace(own.asked, said=said))

    def _link(self, decision: PermissionVerdict) -> tuple[int, str]:
        if decision.effect == "unknown":
            return max(_LINKS[self.unknown], _LINKS[decision.least], key=_STRICTNESS.index)
        return _LINKS[decision.effect]

    def judge(self, own: Permitted, state: RunState, place: Place) -> Iterable[Judgement]:
        """Decide the open calls that have not started: refuse, or ask a user."""
        for verdict in self._approval.judge(own.asked, state, place):
            match verdict:
                case Refuse(measured={"link": 0}):
                    yield self._refusal(verdict, own.decisions[verdict.call])
                case Ask(calls=(call, *_)):
                    yield replace(verdict, approver=_approver(own.decisions[call]))
                case _:
                    yield verdict

    def _refusal(self, verdict: Refuse, decision: PermissionVerdict) -> Refuse:
        if decision.effect == "unknown":
            why = {"why": decision.why}
            return replace(
                verdict, code=UNKNOWN_PERMISSION, text="refused:permission_unknown", values=why, measured={}
            )
        if decision.rule is None:
            return replace(verdict, code="permission", text="refused:permission_unruled", measured={})
        rule, text = self.rules[decision.rule], "refused:permission"
        values = {"rule": rule.label}
        if rule.say:
            text, values = "refused:permission_said", {"say": rule.say}
        measured = {"rule": decision.rule}
        return replace(verdict, code="permission", text=text, values=values, measured=measured)

    @property
    def _approval(self) -> Approval:
        """Return the chain for the calls that a user is asked about: link 0 is the rules, link 1 the user."""
        return _chain(self.called, self.timeout)


@lru_cache(maxsize=64)
def _chain(name: str, timeout: Amount | None) -> Approval:
    return Approval(name=name, chain=(Reject(), Human(timeout=timeout)))


def _approver(decision: PermissionVerdict) -> str:
    """Return what asks: a rule by its index, `unknown`, or `else`."""
    if decision.effect == "unknown":
        return "unknown"
    return "else" if decision.rule is None else f"rules[{decision.rule}]"


_LINKS: Mapping[Effect, tuple[int, str]] = {
    "refuse": (0, "reject"),
    "ask": (1, "ask"),
    "permit": (0, "approve"),
}
_STRICTNESS = (_LINKS["permit"], _LINKS["ask"], _LINKS["refuse"])
