"""Rules over arguments during a run, as a guard, and all rules over arguments of a policy.

Source: the permission rules of coding agents (Claude Code's `Bash(git push:*)`), which match the beginning of
one command; here the parsed arguments are searched, or read as a permission rule reads them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal

import msgspec
from msgspec.structs import replace

from refold.reducers.approvals import Approve, Approver, Human, Match, Word
from refold.reducers.errors import Fault
from refold.reducers.events import ApprovalAnswered, Event
from refold.reducers.guards.approvals import Approval, Asked, Said, explain_undecided
from refold.reducers.guards.protocol import Ask, GuardDefaults, Judgement, Place, Reading, Refuse, Stop
from refold.reducers.limits import Amount
from refold.reducers.patterns import problem_of
from refold.reducers.permissions.conditions import ArgumentConditions, Conditions, ToolCall
from refold.reducers.policy import GuardConfig, Policy
from refold.reducers.state import RunState

_NOT_THIS_RULE: Said = ((-1, ""),)
_MATCHED = "arguments"
UNSEARCHABLE = "unsearchable"
"""The code of a decision on a call that could not be searched."""
UNKNOWN_ARGUMENTS = "arguments_unknown"
"""The code of a decision on a call that the rule cannot judge."""
_SENTENCES = {
    _MATCHED: "the arguments of call {call} match the rule {rule}",
    UNSEARCHABLE: "the arguments of call {call} cannot be searched for the rule {rule}",
    UNKNOWN_ARGUMENTS: "the rule {rule} cannot judge call {call}: {why}",
}


class Arguments(
    GuardDefaults,
    Conditions,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="guard",
    tag="arguments",
):
    """Refuses a call for which all conditions hold; or asks a user, or ends the run.

    The conditions hold if they do for any command, path or host of the call. If that is unknown, the guard
    decides as if they held. `say` is the reason that the model gets. `match` and `not_match` are examples.
    `timeout`: seconds that a user has to answer; without an answer the call is rejected. `grammar` is the
    version of the shell grammar that reads commands, filled in when a run starts; with another version the
    guard is blind.
    """

    name: str = ""
    then: Literal["refuse", "ask", "stop"] = "refuse"
    timeout: Amount | None = None
    say: str = ""
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()
    grammar: str = ""

    kind: ClassVar[str] = "arguments"
    places: ClassVar[frozenset[Place]] = Approval.places
    observes: ClassVar[frozenset[type[Event]]] = Approval.observes
    reads_content: ClassVar[bool] = True
    content_unread: ClassVar[frozenset[type[Event]]] = Approval.content_unread
    guards_calls: ClassVar[bool] = True
    reading: ClassVar[Reading] = Reading(manifest=False, tools={"tool": "glob"})
    fresh: ClassVar[Asked] = Asked()
    texts: ClassVar[Mapping[str, str]] = {
        "refused:arguments": "skipped: the arguments match the rule {rule}, so this call was not run.",
        "refused:arguments_said": "skipped: {say}",
        "refused:arguments_unknown": (
            "skipped: the rule {rule} cannot judge this call ({why}). Write it as a plain command."
        ),
        "refused:unsearchable": "skipped: the arguments cannot be searched for {rule}, so this call was not run.",
    }

    @property
    def called(self) -> str:
        """Return its name, which its decisions record as their cause."""
        return self.name or self.kind

    def complete(self) -> "Arguments":
        """Return the same with the version of the grammar, if it reads commands."""
        return replace(self, grammar=self.as_approver.complete().grammar)

    def problems(self) -> Iterator[Fault]:
        """Yield conditions that cannot be evaluated, and examples that contradict them."""
        return self.as_approver.problems()

    @property
    def blind(self) -> str:
        """Return why the guard cannot judge in this process; "" if it can."""
        return self._approval.blind

    def observe(self, own: Asked, event: Event) -> Asked:
        """Find which calls of the latest response match, and apply a user's answers."""
        own = self._approval.observe(own, event)
        edited = event.content.arguments if isinstance(event, ApprovalAnswered) and event.content else {}
        # Arguments edited by a user must satisfy the rule too, unless the rule itself asks a user.
        for call, text in edited.items() if self.then != "ask" else ():
            if own.said.get(call, _NOT_THIS_RULE)[0][0] == 0:
                own = self._judge_edit(own, call, text)
        return own

    def _judge_edit(self, own: Asked, call: str, arguments: str) -> Asked:
        rule = replace(self.as_approver, tools=("*",))
        made = ToolCall(own.tools.get(call, ""), arguments, own.folders, own.run)
        why = explain_undecided(rule, made)
        unknown = {id_: links for id_, links in own.unknown.items() if id_ != call}
        said = {**own.said, call: ((0, rule.word(rule.judge(made))),)}
        return replace(own, said=said, unknown={**unknown, call: {"0": why}} if why else unknown)

    def judge(self, own: Asked, state: RunState, place: Place) -> Iterable[Judgement]:
        """Decide the open calls that have not started: refuse matching ones, ask, or end the run."""
        call = ""
        for said in self._approval.judge(own, state, place):
            match said:
                case Refuse(measured={"link": 0}):
                    call = said.call
                    code, text, values = self._explain(own.unknown.get(call, {}).get("0", ""))
                    yield replace(said, code=code, text=text, values=values, measured={})
                case Stop() if self.then == "stop":
                    code, text, values = self._explain(own.unknown.get(call, {}).get("0", ""))
                    named = {"rule": self.as_approver.rule, **values}
                    reason = f"blocked: {_SENTENCES[code].format(call=call, **named)}"
                    yield replace(said, code=code, reason=reason, text=text, values=values)
                case Ask():
                    yield replace(said, approver=self.called)
                case _:
                    yield said

    def _explain(self, unknown: str) -> tuple[str, str, dict[str, str | int]]:
        """Return the code of a decision, and the text for the model with its values."""
        rule = self.as_approver.rule
        if unknown:
            return UNKNOWN_ARGUMENTS, "refused:arguments_unknown", {"rule": rule, "why": unknown}
        # Only an edited log can have an invalid pattern: no policy is accepted with one.
        patterns = (each for each in (self.matches, self.unless) if each is not None)
        code = UNSEARCHABLE if any(map(problem_of, patterns)) else _MATCHED
        if self.say and code == _MATCHED:
            return code, "refused:arguments_said", {"say": self.say}
        return code, f"refused:{code}", {"rule": rule}

    @property
    def as_approver(self) -> Match:
        """Return the equivalent approver for its tools."""
        word: Word = "reject" if self.then == "refuse" else "escalate" if self.then == "ask" else "terminate"
        same = {key: getattr(self, key) for key in _SHARED}
        return Match(tools=self.tools, then=word, otherwise="approve", **same)

    @property
    def _approval(self) -> Approval:
        """Return the equivalent chain: this rule for its tools, and approval for all others."""
        human: tuple[Approver, ...] = (Human(tools=self.tools, timeout=self.timeout),)
        chain = (self.as_approver, *(human if self.then == "ask" else ()), Approve())
        return Approval(name=self.called, chain=chain)


_SHARED = (*ArgumentConditions.__struct_fields__, "match", "not_match", "grammar")


class ArgumentRule(msgspec.Struct, frozen=True):
    """A rule over arguments at `path` of a policy, of a guard or an approver."""

    path: str
    conditions: Match

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the globs of its tools."""
        return self.conditions.tools


def argument_rules(policy: Policy) -> Iterator[ArgumentRule]:
    """Yield the rules of a policy over arguments: those of guards, then those of approvers."""
    for place, config in enumerate(policy.guards):
        if config.get("guard") == Arguments.kind and (guard := convert_guard(config)):
            yield ArgumentRule(f"guards[{place}]", guard.as_approver)
    for place, link in enumerate(policy.approvals.chain if policy.approvals else ()):
        if isinstance(link, Match):
            yield ArgumentRule(f"approvals.chain[{place}]", link)


def convert_guard(config: GuardConfig) -> Arguments | None:
    """Return the guard of a configuration in a log; None if it is not one of this version."""
    try:
        return msgspec.convert(config, Arguments)
    except msgspec.ValidationError:
        return None  # of an edited log, or of another version: the guard is blind
