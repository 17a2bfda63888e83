"""Approvals at work: the chain of approvers, and rules over arguments.

Source: the approval presets of inspect_agents (IA), by their published rule: a chain of approvers by globs,
the first decision other than `escalate` wins. Here a glob matches the whole name, and a call that nobody
decides is rejected.

Source: the permission rules of coding agents (Claude Code's `Bash(git push:*)`), which look at the beginning
of one command; here the parsed arguments are searched.
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
from refold.reducers.patterns import occurs, searched
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Refusal, Value, nano

Said = tuple[tuple[int, str], ...]
"""What the links of a chain say of a call: (index of the link, its word), those that escalate left out."""

_ASK = "ask"


class Asked(Value, frozen=True):
    """What is said of each call of the last answer, by its id, and what a person is asked about until when.

    `others`: what a person is asked is another guard's question, and an answer to it none to this one.
    """

    said: dict[str, Said] = {}
    calls: tuple[str, ...] = ()
    deadline: int | None = None
    others: bool = False


class Approval(Config, frozen=True, kw_only=True, tag="approvals"):
    """Refuse what the chain rejects, ask a person where it says so, end the run where it terminates.

    `chain` is as in a policy's `approvals`. A call that no link decides is rejected: `no_approval`. A refusal
    saw the `link` that decided, counted from 0 (the chain's length if none did). What a person notes with an
    answer stays there: a refusal is a decision, and holds no text of a person.
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
        """What the chain says of new calls, and what a person says, or by saying nothing in time, of old
        ones.
        """
        match event:
            case ModelResponded(calls=calls, content=content) if content is not None and (calls or own.said):
                made = zip(calls, content.arguments, strict=True)
                return Asked({call.id: self._said(call.name, text) for call, text in made})
            case ApprovalRequested(guard=guard, calls=asked, deadline=deadline):
                if guard != self.called:
                    return replace(own, calls=(), deadline=None, others=True)
                return replace(own, calls=asked, deadline=deadline, others=False)
            case ApprovalAnswered(at=at) | ClockRead(at=at) if (
                own.deadline is not None and at >= own.deadline
            ):
                # An answer that comes too late is none, whether or not an engine was there to read the clock.
                return _decided(own, {call: self._silence(own.said.get(call, ())) for call in own.calls})
            case ApprovalAnswered(answers=answers):
                # One put on duty since the question was asked never saw it: the answer is the person's all
                # the same.
                return own if own.others else _decided(own, {one.call: one.decision for one in answers})
            case _:
                return own

    def judge(self, own: Asked, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Of the calls that are open and not begun: end the run, or refuse, and ask about what waits for a
        person.

        Calls that are incomplete, or of no tool that there is, are let by: they fail by themselves.
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
        return Refuse(code=code, call=call, why=Refusal.REJECTED, text="refused:rejected", saw={"link": link})

    def _said(self, name: str, arguments: str) -> Said:
        links = enumerate(self.chain)
        words = (
            (place, word_of(link, name, arguments))
            for place, link in links
            if any(fnmatchcase(name, glob) for glob in link.tools)
        )
        return tuple((place, word) for place, word in words if word != "escalate")

    def _ask(self, waiting: list[tuple[int, str]]) -> Ask:
        # One question at a time: who stands later in the chain is asked when the first has answered.
        first = min(link for link, _ in waiting)
        person = self.chain[first]
        timeout = person.timeout if isinstance(person, Human) else None
        return Ask(
            code="approval",
            calls=tuple(call for link, call in waiting if link == first),
            approver=f"chain[{first}]",
            timeout=None if timeout is None else nano(timeout),
        )

    def _silence(self, said: Said) -> str:
        person = self.chain[said[0][0]] if said else None
        return person.on_timeout if isinstance(person, Human) else "reject"


def _decided(own: Asked, words: dict[str, str]) -> Asked:
    """The calls after these words of a person; who escalates leaves a call to the links after theirs."""
    after = {call: _after(own.said.get(call, ()), word) for call, word in words.items()}
    return Asked({**own.said, **after})


def _after(said: Said, word: str) -> Said:
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
    """What one link of a chain says of a call that is its to decide."""
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
            texts = searched(arguments, approver.field)
            return approver.word(occurs(approver.matches, texts, approver.unless))
        case Human():
            return _ASK


_NOT_OURS: Said = ((-1, ""),)
_MATCHED = "arguments"
UNSEARCHABLE = "unsearchable"
"""The code of a decision about a call that could not be searched."""
_SENTENCES = {_MATCHED: "match", UNSEARCHABLE: "cannot be searched for"}


class Arguments(Config, frozen=True, kw_only=True, tag="arguments"):
    """Refuse a call if a text of its arguments matches `matches` and not `unless`; or ask a person, or end
    the run.

    `tool` is a glob for its whole name. Every text of the arguments is searched, or the texts in `field`
    alone; both patterns are held against the same text. `timeout`, in seconds, is the person's: no answer
    rejects.
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
    reading: ClassVar[Reading] = Reading(tools={"tool": "glob"})
    fresh: ClassVar[Asked] = Asked()
    texts: ClassVar[Mapping[str, str]] = {
        "refused:arguments": "skipped: the arguments match the rule {rule}, so this call was not run.",
        "refused:unsearchable": "skipped: the arguments cannot be searched for {rule}, so this call was not run.",
    }

    def problems(self) -> Iterator[Fault]:
        """Yield what is wrong with the two patterns."""
        return self._found.problems()

    def observe(self, own: Asked, event: Event) -> Asked:
        """Which calls of the latest answer hold the pattern, and what a person said of them."""
        own = self._approval.observe(own, event)
        edited = event.content.arguments if isinstance(event, ApprovalAnswered) and event.content else {}
        # What a person puts in place of the model's arguments is held to the rule as well, but where a person
        # is who decides.
        for call, text in edited.items() if self.then != "ask" else ():
            if own.said.get(call, _NOT_OURS)[0][0] == 0:
                own = replace(own, said={**own.said, call: ((0, word_of(self._found, "", text)),)})
        return own

    def judge(self, own: Asked, state: RunState, place: Place) -> Iterable[Judgement]:
        """Of the calls that are open and not begun: refuse those that hold it, ask, or end the run."""
        call = ""
        for said in self._approval.judge(own, state, place):
            match said:
                case Refuse(saw={"link": 0}):
                    code, call = self._code, said.call
                    rule = self._found.rule
                    yield replace(said, code=code, text=f"refused:{code}", values={"rule": rule}, saw={})
                case Stop() if self.then == "stop":
                    code = self._code
                    rule, found = self._found.rule, _SENTENCES[code]
                    reason = f"blocked: the arguments of call {call} {found} the rule {rule}"
                    values: dict[str, str | int] = {"rule": rule}
                    yield replace(said, code=code, reason=reason, text=f"refused:{code}", values=values)
                case Ask():
                    yield replace(said, approver=self.called)
                case _:
                    yield said

    @property
    def _code(self) -> str:
        # A pattern is unfit in a log that somebody edited: no policy is accepted with it.
        return UNSEARCHABLE if any(self.problems()) else _MATCHED

    @property
    def _found(self) -> Match:
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
        """The chain of approvers that says the same: this rule of its tools, and of others that they may
        run.
        """
        person: tuple[Approver, ...] = (Human(tools=(self.tool,), timeout=self.timeout),)
        chain = (self._found, *(person if self.then == "ask" else ()), Approve())
        return Approval(name=self.called, chain=chain)


class ArgumentRule(msgspec.Struct, frozen=True):
    """A rule over arguments at `path` of a policy, a guard's or an approver's: the globs of its tools, and
    its patterns.
    """

    path: str
    tools: Sequence[str]
    matches: str
    unless: str | None
    field: str | None


def argument_rules(policy: Policy) -> Iterator[ArgumentRule]:
    """The rules of a policy that search arguments: those of its guards, then those of its chain of
    approvers.
    """
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
