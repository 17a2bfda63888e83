"""Approvals: which calls may run, who says so, and in which order they are asked. Plain data."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers.errors import PolicyError
from refold.reducers.known_tools import HARMLESS, OF_ITS_LOOP, SENSITIVE
from refold.reducers.limits import Amount
from refold.reducers.patterns import UNLESS, occurs, pattern_faults, rule
from refold.reducers.refusals import Fault, shown
from refold.reducers.values import Knob

Word = Literal["approve", "reject", "escalate", "terminate"]
PresetName = Literal["ci", "dev", "prod", "dev_any", "prod_any"]
Globs = Annotated[tuple[str, ...], Meta(min_length=1)]
_ANY = ("", "\0", "a b")
"""Texts that have nothing in common: a pattern that matches each of them matches any text."""
_STRICTEST: tuple[Word, ...] = ("terminate", "reject", "escalate", "approve")


class _Approver(Knob, frozen=True, kw_only=True, tag_field="approver"):
    """Base of the approvers: `tools` are globs that must match a call's whole name."""

    tools: Globs = ("*",)


class Approve(_Approver, frozen=True, kw_only=True, tag="approve"):
    """Lets every call run."""


class Reject(_Approver, frozen=True, kw_only=True, tag="reject"):
    """Rejects every call."""


class Gate(_Approver, frozen=True, kw_only=True, tag="gate", rename={"otherwise": "else"}):
    """Says `then` of a sensitive call, `else` of any other.

    `sensitive` are globs of whole names, compared without case (to the letter behind a `=`), or `tool:command` for one
    command of a tool; None is `OF_ITS_LOOP`. `harmless` says in the same way which are not; None: all others, or where `sensitive` is None, too, those
    that are known to be. Of a call that neither names `else` is said without knowing, and people are told so.
    """

    sensitive: tuple[str, ...] | None = None
    harmless: tuple[str, ...] | None = None
    then: Word
    otherwise: Word = "approve"


class Match(_Approver, frozen=True, kw_only=True, tag="arguments", rename={"otherwise": "else"}):
    """Says `then` of a call if a text of its arguments matches `matches` and does not match `unless`; `else` of any other.

    `matches` and `unless` are patterns (`refold.reducers.patterns`). Every text of the arguments is searched, or the texts
    in `field` alone; both patterns are held against the same text. If a pattern is unfit, as in a log that somebody
    edited, the stricter of `then` and `else` is said.
    """

    matches: str
    unless: str | None = None
    field: str | None = None
    then: Word
    otherwise: Word = "escalate"

    def problems(self) -> Iterator[Fault]:
        """Yield what is wrong with the two patterns."""
        yield from pattern_faults("matches", self.matches, UNLESS)
        if self.unless is not None:
            faults = [*pattern_faults("unless", self.unless)]
            yield from faults
            if not faults and all(occurs(self.unless, [text]) for text in _ANY):
                yield "unless", f"it matches any text, so the rule would never hold; got {shown(self.unless)}"

    @property
    def rule(self) -> str:
        """The rule as a sentence quotes it."""
        return rule(self.matches, self.unless)

    def word(self, held: bool | None) -> Word:  # noqa: FBT001
        """What is said of a call that holds the pattern, or does not; None: nobody knows."""
        if held is None:
            return next(word for word in _STRICTEST if word in (self.then, self.otherwise))
        return self.then if held else self.otherwise


class Rule(Knob, frozen=True, kw_only=True):
    """What is said of calls to the tools that a glob matches."""

    tool: str
    decision: Word


class Rules(_Approver, frozen=True, kw_only=True, tag="rules"):
    """The first rule whose glob matches the whole name decides; none escalates."""

    rules: tuple[Rule, ...]


class Human(_Approver, frozen=True, kw_only=True, tag="human"):
    """A person decides, days later if need be; after `timeout` seconds `on_timeout` is their answer."""

    timeout: Amount | None = None
    on_timeout: Word = "reject"


Approver = Approve | Reject | Gate | Match | Rules | Human


class Approvals(Knob, frozen=True, kw_only=True):
    """A chain of approvers, or the preset that stands for one. The first decision other than `escalate` wins."""

    preset: PresetName | None = None
    chain: tuple[Approver, ...] = ()


PRESETS: Mapping[PresetName, tuple[Approver, ...]] = MappingProxyType(
    {
        "ci": (Approve(),),
        "dev": (Gate(then="escalate"), Reject()),
        "prod": (Gate(then="terminate"),),
        "dev_any": (Gate(sensitive=SENSITIVE, harmless=HARMLESS, then="escalate"), Reject()),
        "prod_any": (Gate(sensitive=SENSITIVE, harmless=HARMLESS, then="terminate"),),
    }
)
WITH_HANDOFF: frozenset[str | None] = frozenset({"dev", "prod", "dev_any", "prod_any"})
"""The presets that bring the guard `handoff` along."""


def resolved(approvals: Approvals) -> Approvals:
    """The same as an explicit chain, with all that is sensitive spelt out. Resolving twice is resolving once.

    Raises `PolicyError` where both a preset and a chain are given, or neither.
    """
    if bool(approvals.preset) == bool(approvals.chain):
        given = "both are given" if approvals.preset else "there is neither"
        raise PolicyError(
            "approvals", f"expected 'preset' ({', '.join(PRESETS)}) or a 'chain' of approvers, {given}"
        )
    chain = PRESETS[approvals.preset] if approvals.preset else approvals.chain
    return Approvals(chain=tuple(map(_spelt_out, chain)))


def _spelt_out(approver: Approver) -> Approver:
    if isinstance(approver, Gate) and approver.sensitive is None:
        return replace(approver, sensitive=OF_ITS_LOOP, harmless=(*(approver.harmless or ()), *HARMLESS))
    return approver
