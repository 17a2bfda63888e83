"""A rule over what the model wrote into its calls: a pattern, and what is said of a call that holds it.

Source: the permission rules of coding agents (Claude Code's `Bash(git push:*)`), which look at the beginning of one command;
here a pattern is looked for in the parsed arguments.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal

from msgspec.structs import replace

from refold.reducers.approvals import Approve, Approver, Human, Match, Word
from refold.reducers.events import ApprovalAnswered, Event
from refold.reducers.guards.approvals import Approval, Asked, Said, word_of
from refold.reducers.guards.common import Config
from refold.reducers.guards.protocol import Ask, Judgement, Place, Refuse, Stop
from refold.reducers.limits import Amount
from refold.reducers.refusals import Fault
from refold.reducers.state import RunState

_NOT_OURS: Said = ((-1, ""),)


class Arguments(Config, frozen=True, kw_only=True, tag="arguments"):
    """Refuse a call whose arguments hold `matches`, ask a person about it, or end the run.

    `tool` is a glob for its whole name. The pattern is looked for in every text of the arguments, or in `field` alone; a text
    that is too long for it counts as one that holds it. `timeout`, in seconds, is the person's: who says nothing rejects.
    """

    tool: str = "*"
    matches: str
    field: str | None = None
    then: Literal["refuse", "ask", "stop"] = "refuse"
    timeout: Amount | None = None

    kind: ClassVar[str] = "arguments"
    places: ClassVar[frozenset[Place]] = Approval.places
    observes: ClassVar[frozenset[type[Event]]] = Approval.observes
    reads_content: ClassVar[bool] = True
    guards_calls: ClassVar[bool] = True
    fresh: ClassVar[Asked] = Asked()
    texts: ClassVar[Mapping[str, str]] = {
        "refused:arguments": "skipped: a call with such arguments is not allowed here, so it was not run."
    }

    def problems(self) -> Iterator[Fault]:
        """A pattern whose search would not come to an end."""
        return self._found.problems()

    def observe(self, own: Asked, event: Event) -> Asked:
        """Which calls of the latest answer hold the pattern, and what a person said of them."""
        own = self._approval.observe(own, event)
        edited = event.content.arguments if isinstance(event, ApprovalAnswered) and event.content else {}
        # What a person puts in place of the model's arguments is held to the rule as well, but where a person is who decides.
        for call, text in edited.items() if self.then != "ask" else ():
            if own.said.get(call, _NOT_OURS)[0][0] == 0:
                own = replace(own, said={**own.said, call: ((0, word_of(self._found, "", text)),)})
        return own

    def judge(self, own: Asked, state: RunState, place: Place) -> Iterable[Judgement]:
        """Of the calls that are open and not begun: refuse those that hold it, ask, or end the run."""
        for said in self._approval.judge(own, state, place):
            match said:
                case Refuse(saw={"link": 0}):
                    yield replace(said, code="arguments", text="refused:arguments", saw={})
                case Stop() if self.then == "stop":
                    reason = "a call's arguments hold a pattern that ends the run"
                    yield replace(said, code="arguments", reason=reason, text="refused:arguments")
                case Ask():
                    yield replace(said, approver=self.called)
                case _:
                    yield said

    @property
    def _found(self) -> Match:
        word: Word = "reject" if self.then == "refuse" else "escalate" if self.then == "ask" else "terminate"
        return Match(
            tools=(self.tool,), matches=self.matches, field=self.field, then=word, otherwise="approve"
        )

    @property
    def _approval(self) -> Approval:
        """The chain of approvers that says the same: this rule of its tools, and of others that they may run."""
        person: tuple[Approver, ...] = (Human(tools=(self.tool,), timeout=self.timeout),)
        chain = (self._found, *(person if self.then == "ask" else ()), Approve())
        return Approval(name=self.called, chain=chain)
