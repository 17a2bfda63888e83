"""Which call a verdict is about, and which rule of the policy found it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from refold.reducers.approvals import Match
from refold.reducers.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallRefused,
    Decision,
    Fact,
    ModelResponded,
)
from refold.reducers.guards.approvals import UNSEARCHABLE
from refold.reducers.patterns import rule
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import Cause
from refold.replay.kinds.arguments import ERASED, elided, main_argument
from refold.replay.whatif.shown import Parted

_SHOWN = 160
_LINK = "chain["
_MATCHED = "arguments"
ENDED_BY: Mapping[str, str] = MappingProxyType(
    {
        _MATCHED: "matches",
        UNSEARCHABLE: "cannot be searched for",
        "approval_terminated": "is ended by",
    }
)
"""The codes of a run that ended by one call, and what its rule has to do with that."""


class Subject(msgspec.Struct, frozen=True):
    """The first call that a rule found: its id, the tool, its main argument as `show` shortens it.

    `rule` is the place of the rule in the policy, as `guards[0]` or `approvals.chain[1]`, behind its name if it has one:
    `no-push (guards[0])`. `pattern` and `unless` are its patterns, "" for a rule without one, or where it is not known
    which link of the chain it was.
    """

    call: str
    tool: str
    argument: str
    rule: str
    pattern: str = ""
    unless: str | None = None

    def __str__(self) -> str:
        return f"{self.tool} `{self.argument}`" if self.argument else self.tool

    @property
    def found_by(self) -> str:
        """The rule, as a sentence names it."""
        return f"rule {self.rule} {rule(self.pattern, self.unless)}" if self.pattern else f"rule {self.rule}"


def about(subject: Subject, parted: Parted, code: str) -> Parted:
    """Return in what two runs part, in a sentence that names the call and the rule."""
    if code in ENDED_BY:
        return replace(parted, why=f"blocked: {subject} {ENDED_BY[code]} {subject.found_by}")
    return replace(parted, why=f"{parted.why}: {subject}, by {subject.found_by}")


class Given:
    """The calls of the latest response, as the model or a person wrote them."""

    def __init__(self) -> None:
        self._calls: Mapping[str, tuple[str, str | None]] = MappingProxyType({})

    def take(self, fact: Fact) -> None:
        """Take a fact, before it is judged."""
        match fact:
            case ModelResponded(calls=calls, content=content):
                texts = content.arguments if content is not None else [None] * len(calls)
                self._calls = {call.id: (call.name, text) for call, text in zip(calls, texts, strict=True)}
            case ApprovalAnswered(content=edits) if edits is not None:
                edited = edits.arguments
                self._calls = {
                    id_: (name, edited.get(id_, text)) for id_, (name, text) in self._calls.items()
                }
            case _:
                pass

    def subject(self, policy: Policy, decisions: Sequence[Decision]) -> Subject | None:
        """Return the first call that a guard refused, or asks a person about, in these decisions under this policy."""
        for decision in decisions:
            match decision:
                case CallRefused(cause=Cause.GUARD, call=call, name=name, saw=saw) if decision.code:
                    found = _rule(policy, name, saw.get("link"))
                case ApprovalRequested(guard=name, calls=(call, *_), approver=approver):
                    link = approver.removeprefix(_LINK).removesuffix("]")
                    found = _rule(
                        policy, name, int(link) if approver.startswith(_LINK) and link.isdecimal() else None
                    )
                case _:
                    continue
            if found is not None and call in self._calls:
                tool, text = self._calls[call]
                said = ERASED if text is None else elided(main_argument(text), _SHOWN)
                return Subject(call, elided(tool, 64), said, *found)
        return None


def _rule(policy: Policy, name: str, link: object) -> tuple[str, str, str | None] | None:
    """Return the place and the pattern of the rule that a guard of this name, or this link of the chain, stands for."""
    for place, config in enumerate(policy.guards):
        if (config.get("name") or config["guard"]) == name:
            searches = config["guard"] == _MATCHED
            pattern, unless = (config["matches"], config.get("unless")) if searches else ("", None)
            own = name != config["guard"]  # the parser names a guard without a name by its kind
            return f"{name} (guards[{place}])" if own else f"guards[{place}]", pattern, unless
    if policy.approvals is None or not isinstance(link, int):
        return None
    chain = policy.approvals.chain
    if link >= len(chain):
        return "approvals.chain", "", None
    each = chain[link]
    pattern, unless = (each.matches, each.unless) if isinstance(each, Match) else ("", None)
    return f"approvals.chain[{link}]", pattern, unless
