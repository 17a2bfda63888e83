"""A rule over what the model wrote into its calls: a pattern, and what is done about a call that matches it.

Source: the permission rules of coding agents (Claude Code's `Bash(git push:*)`), which look at the beginning of one command;
here the parsed arguments are searched.
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
_MATCHED = "arguments"
UNSEARCHABLE = "unsearchable"
"""The code of a decision about a call that could not be searched."""
_SENTENCES = {_MATCHED: "match", UNSEARCHABLE: "cannot be searched for"}


class Arguments(Config, frozen=True, kw_only=True, tag="arguments"):
    """Refuse a call if a text of its arguments matches `matches` and not `unless`; or ask a person, or end the run.

    `tool` is a glob for its whole name. Every text of the arguments is searched, or the texts in `field` alone; both
    patterns are held against the same text. `timeout`, in seconds, is the person's: no answer rejects.
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
        # What a person puts in place of the model's arguments is held to the rule as well, but where a person is who decides.
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
        """The chain of approvers that says the same: this rule of its tools, and of others that they may run."""
        person: tuple[Approver, ...] = (Human(tools=(self.tool,), timeout=self.timeout),)
        chain = (self._found, *(person if self.then == "ask" else ()), Approve())
        return Approval(name=self.called, chain=chain)
