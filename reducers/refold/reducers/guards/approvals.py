"""The chain of approvers: each call goes down it until somebody decides, a person if need be.

Source: the approval presets of inspect_agents (IA), by their published rule: a chain of approvers by globs, the
first decision other than `escalate` wins. Here a glob matches the whole name, and a call that nobody decides is
rejected.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import ClassVar

from msgspec.structs import replace

from refold.reducers.approvals import Approve, Approver, Gate, Human, Match, Reject, Rules
from refold.reducers.arguments import searched
from refold.reducers.events import ApprovalAnswered, ApprovalRequested, ClockRead, Event, ModelResponded
from refold.reducers.guards.common import Config
from refold.reducers.guards.protocol import Ask, Judgement, Place, Refuse, Stop
from refold.reducers.known_tools import OF_ITS_LOOP
from refold.reducers.marks import fits
from refold.reducers.numbers import nano
from refold.reducers.patterns import occurs
from refold.reducers.state import RunState
from refold.reducers.values import Value
from refold.reducers.vocabulary import Refusal

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

    `chain` is as in a policy's `approvals`. A call that no link decides is rejected: `no_approval`. A refusal saw the
    `link` that decided, counted from 0 (the chain's length if none did). What a person notes with an answer stays
    there: a refusal is a decision, and holds no text of a person.
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
        """What the chain says of new calls, and what a person says, or by saying nothing in time, of old ones."""
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
                # One put on duty since the question was asked never saw it: the answer is the person's all the same.
                return own if own.others else _decided(own, {one.call: one.decision for one in answers})
            case _:
                return own

    def judge(self, own: Asked, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Of the calls that are open and not begun: end the run, or refuse, and ask about what waits for a person.

        Calls that are incomplete, or of no tool that there is, are let by: they fail by themselves.
        """
        tools = {tool.name for tool in state.setup.tools}
        batch = state.batch.calls if state.batch else ()
        heads = {
            call.id: next(iter(own.said.get(call.id, ())), (len(self.chain), "reject"))
            for call in batch
            if call.result is None and not call.dispatched and call.complete and call.name in tools
        }
        ended = any(word == "terminate" for _, word in heads.values())
        for call, (link, word) in heads.items():
            if word == "terminate" or (word == "reject" and not ended):
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
