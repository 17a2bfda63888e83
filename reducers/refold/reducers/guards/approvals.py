"""Approvals during a run: the chain of approvers, and rules over arguments.

Source: the approval presets of inspect_agents (IA), by their published rule: a chain of approvers by globs;
the first decision other than `escalate` applies. Here a glob matches the whole name, and a call without a
decision is rejected.

Source: the permission rules of coding agents (Claude Code's `Bash(git push:*)`), which match the beginning of
one command; here the parsed arguments are searched.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

import msgspec
from msgspec.structs import replace

from refold.reducers.approvals import (
    OF_ITS_LOOP,
    Approve,
    Approver,
    Gate,
    Human,
    Match,
    Reject,
    Rules,
    Word,
    fits,
)
from refold.reducers.errors import Fault
from refold.reducers.events import ApprovalAnswered, ApprovalRequested, ClockRead, Event, ModelResponded
from refold.reducers.guards.protocol import Ask, Config, Judgement, Place, Reading, Refuse, Stop
from refold.reducers.limits import Amount
from refold.reducers.patterns import list_search_texts, occurs
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Refusal, Value, nano

Said = tuple[tuple[int, str], ...]
"""The decisions of a chain on a call: (index of the link, decision), without those that escalate."""

_ASK = "ask"


class Asked(Value, frozen=True):
    """The decisions on each call of the last response, by id, and the calls a user is asked about, with the
    deadline.

    `others`: the open question is another guard's; its answer does not count here.
    """

    said: dict[str, Said] = {}
    calls: tuple[str, ...] = ()
    deadline: int | None = None
    others: bool = False


class Approval(Config, frozen=True, kw_only=True, tag="approvals"):
    """Refuses calls that the chain rejects, asks a user where it says `human`, ends the run where it
    terminates.

    `chain` is as in a policy's `approvals`. A call without a decision is rejected (`no_approval`). A refusal
    records the deciding `link`, counted from 0 (the chain's length if none did). A user's note stays in the
    answer's event: a refusal is a decision and holds no text of a user.
    """

    chain: tuple[Approver, ...] = ()

    kind: ClassVar[str] = "approvals"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_APPROVAL})
    observes: ClassVar[frozenset[type[Event]]] = frozenset(
        {ModelResponded, ApprovalAnswered, ApprovalRequested, ClockRead}
    )
    reads_content: ClassVar[bool] = True
    guards_calls: ClassVar[bool] = True
    fresh: ClassVar[Asked] = Asked()

    def observe(self, own: Asked, event: Event) -> Asked:
        """Apply the chain to new calls, and a user's answer, or its timeout, to open ones."""
        match event:
            case ModelResponded(calls=calls, content=content) if content is not None and (calls or own.said):
                made = zip(calls, content.arguments, strict=True)
                return Asked({call.id: self._decide(call.name, text) for call, text in made})
            case ApprovalRequested(guard=guard, calls=asked, deadline=deadline):
                if guard != self.called:
                    return replace(own, calls=(), deadline=None, others=True)
                return replace(own, calls=asked, deadline=deadline, others=False)
            case ApprovalAnswered(at=at) | ClockRead(at=at) if (
                own.deadline is not None and at >= own.deadline
            ):
                # A late answer does not count, whether or not an engine read the clock at the deadline.
                return _apply_answers(
                    own, {call: self._on_timeout(own.said.get(call, ())) for call in own.calls}
                )
            case ApprovalAnswered(answers=answers):
                # A guard enabled after the question did not see it, but the answer counts for it.
                return own if own.others else _apply_answers(own, {one.call: one.decision for one in answers})
            case _:
                return own

    def judge(self, own: Asked, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Decide the open calls that have not started: end the run, refuse, or ask a user.

        Incomplete calls and calls of unknown tools are ignored: they fail on their own.
        """
        heads = {
            call: next(iter(own.said.get(call, ())), (len(self.chain), "reject"))
            for call in _startable(state)
        }
        ended = any(word == "terminate" for _, word in heads.values())
        refused = "terminate" if ended else "reject"
        for call, (link, word) in heads.items():
            if word == refused:
                yield self._refuse(call, link, word)
        waiting = [(link, call) for call, (link, word) in heads.items() if word == _ASK]
        if ended:
            reason = "an approver ended the run at a call of this batch"
            yield Stop(code="approval_terminated", reason=reason, text="refused:terminated")
        elif waiting:
            yield self._ask(waiting)

    def _refuse(self, call: str, link: int, word: str) -> Refuse:
        code = "rejected" if link < len(self.chain) else "no_approval"
        code = "terminated" if word == "terminate" else code
        return Refuse(
            code=code, call=call, why=Refusal.REJECTED, text="refused:rejected", measured={"link": link}
        )

    def _decide(self, name: str, arguments: str) -> Said:
        links = enumerate(self.chain)
        words = (
            (place, word_of(link, name, arguments))
            for place, link in links
            if any(fnmatchcase(name, glob) for glob in link.tools)
        )
        return tuple((place, word) for place, word in words if word != "escalate")

    def _ask(self, waiting: list[tuple[int, str]]) -> Ask:
        # One question at a time: a later link is asked after the first has answered.
        first = min(link for link, _ in waiting)
        approver = self.chain[first]
        timeout = approver.timeout if isinstance(approver, Human) else None
        return Ask(
            code="approval",
            calls=tuple(call for link, call in waiting if link == first),
            approver=f"chain[{first}]",
            timeout=None if timeout is None else nano(timeout),
        )

    def _on_timeout(self, said: Said) -> str:
        approver = self.chain[said[0][0]] if said else None
        return approver.on_timeout if isinstance(approver, Human) else "reject"


def _apply_answers(own: Asked, words: dict[str, str]) -> Asked:
    """Apply a user's answers; `escalate` leaves a call to the later links."""
    after = {call: _apply_answer(own.said.get(call, ()), word) for call, word in words.items()}
    return Asked({**own.said, **after})


def _apply_answer(said: Said, word: str) -> Said:
    if word == "escalate":
        return said[1:]
    link = said[0][0] if said else 0
    return ((link, word),)


def _startable(state: RunState) -> Iterator[str]:
    tools = {tool.name for tool in state.setup.tools}
    for call in state.batch.calls if state.batch else ():
        if call.result is None and not call.dispatched and call.complete and call.name in tools:
            yield call.id


def word_of(approver: Approver, name: str, arguments: str) -> str:
    """Return the decision of one link on a call that its globs match."""
    match approver:
        case Approve():
            return "approve"
        case Reject():
            return "reject"
        case Gate(sensitive=marks, then=then, otherwise=otherwise):
            return then if fits(OF_ITS_LOOP if marks is None else marks, name, arguments) else otherwise
        case Rules(rules=rules):
            return next((rule.decision for rule in rules if fnmatchcase(name, rule.tool)), "escalate")
        case Match():
            texts = list_search_texts(arguments, approver.field)
            return approver.word(occurs(approver.matches, texts, approver.unless))
        case Human():
            return _ASK


_NOT_THIS_RULE: Said = ((-1, ""),)
_MATCHED = "arguments"
UNSEARCHABLE = "unsearchable"
"""The code of a decision on a call that could not be searched."""
_SENTENCES = {_MATCHED: "match", UNSEARCHABLE: "cannot be searched for"}


class Arguments(Config, frozen=True, kw_only=True, tag="arguments"):
    """Refuses a call with an argument text that matches `matches` but not `unless`; or asks a user, or ends
    the run.

    `tool` is a glob for its whole name. Both patterns apply to the same text: each text of the arguments, or
    only those in `field`. `timeout`: seconds that a user has to answer; without an answer the call is
    rejected.
    """

    tool: str = "*"
    matches: str
    unless: str | None = None
    field: str | None = None
    then: Literal["refuse", "ask", "stop"] = "refuse"
    timeout: Amount | None = None

    kind: ClassVar[str] = "arguments"
    places: ClassVar[frozenset[Place]] = Approval.places
    observes: ClassVar[frozenset[type[Event]]] = Approval.observes
    reads_content: ClassVar[bool] = True
    guards_calls: ClassVar[bool] = True
    reading: ClassVar[Reading] = Reading(manifest=False, tools={"tool": "glob"})
    fresh: ClassVar[Asked] = Asked()
    texts: ClassVar[Mapping[str, str]] = {
        "refused:arguments": "skipped: the arguments match the rule {rule}, so this call was not run.",
        "refused:unsearchable": "skipped: the arguments cannot be searched for {rule}, so this call was not run.",
    }

    def problems(self) -> Iterator[Fault]:
        """Yield problems of the two patterns."""
        return self._match.problems()

    def observe(self, own: Asked, event: Event) -> Asked:
        """Find which calls of the latest response match, and apply a user's answers."""
        own = self._approval.observe(own, event)
        edited = event.content.arguments if isinstance(event, ApprovalAnswered) and event.content else {}
        # Arguments edited by a user must satisfy the rule too, unless the rule itself asks a user.
        for call, text in edited.items() if self.then != "ask" else ():
            if own.said.get(call, _NOT_THIS_RULE)[0][0] == 0:
                own = replace(own, said={**own.said, call: ((0, word_of(self._match, "", text)),)})
        return own

    def judge(self, own: Asked, state: RunState, place: Place) -> Iterable[Judgement]:
        """Decide the open calls that have not started: refuse matching ones, ask, or end the run."""
        call = ""
        for said in self._approval.judge(own, state, place):
            match said:
                case Refuse(measured={"link": 0}):
                    code, call = self._code, said.call
                    rule = self._match.rule
                    yield replace(said, code=code, text=f"refused:{code}", values={"rule": rule}, measured={})
                case Stop() if self.then == "stop":
                    code = self._code
                    rule, found = self._match.rule, _SENTENCES[code]
                    reason = f"blocked: the arguments of call {call} {found} the rule {rule}"
                    values: dict[str, str | int] = {"rule": rule}
                    yield replace(said, code=code, reason=reason, text=f"refused:{code}", values=values)
                case Ask():
                    yield replace(said, approver=self.called)
                case _:
                    yield said

    @property
    def _code(self) -> str:
        # Only an edited log can have an invalid pattern: no policy is accepted with one.
        return UNSEARCHABLE if any(self.problems()) else _MATCHED

    @property
    def _match(self) -> Match:
        word: Word = "reject" if self.then == "refuse" else "escalate" if self.then == "ask" else "terminate"
        return Match(
            tools=(self.tool,),
            matches=self.matches,
            unless=self.unless,
            field=self.field,
            then=word,
            otherwise="approve",
        )

    @property
    def _approval(self) -> Approval:
        """Return the equivalent chain: this rule for its tools, and approval for all others."""
        human: tuple[Approver, ...] = (Human(tools=(self.tool,), timeout=self.timeout),)
        chain = (self._match, *(human if self.then == "ask" else ()), Approve())
        return Approval(name=self.called, chain=chain)


class ArgumentRule(msgspec.Struct, frozen=True):
    """A rule over arguments at `path` of a policy, of a guard or an approver: the globs of its tools, and its
    patterns.
    """

    path: str
    tools: Sequence[str]
    matches: str
    unless: str | None
    field: str | None


def argument_rules(policy: Policy) -> Iterator[ArgumentRule]:
    """Yield the rules of a policy that search arguments: those of guards, then those of approvers."""
    for place, config in enumerate(policy.guards):
        if config.get("guard") == Arguments.kind:
            yield ArgumentRule(
                path=f"guards[{place}]",
                tools=(config.get("tool", "*"),),
                matches=config.get("matches", ""),
                unless=config.get("unless"),
                field=config.get("field"),
            )
    for place, link in enumerate(policy.approvals.chain if policy.approvals else ()):
        if isinstance(link, Match):
            path = f"approvals.chain[{place}]"
            yield ArgumentRule(path, link.tools, link.matches, link.unless, link.field)
