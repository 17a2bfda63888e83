"""Results of `whatif`: verdicts, the calls that they are about, and totals."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.approvals import Match
from refold.reducers.errors import Complaint
from refold.reducers.guards.arguments import UNKNOWN_ARGUMENTS, UNSEARCHABLE, Arguments, convert_guard
from refold.reducers.guards.permissions import Permissions
from refold.reducers.machine import SUCCESSFUL
from refold.reducers.patterns import list_search_texts, occurs, rule
from refold.reducers.permissions.rules import PermissionRule
from refold.reducers.policy import GuardConfig, Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause
from refold.replay.kinds.arguments import ERASED, elide, main_argument
from refold.replay.whatif.mismatches import Mismatch, MismatchKind
from refold.store.protocol import Origin

_SHOWN = 160
_LINK = re.compile(r"(?:chain|rules)\[(\d{1,9})\]", re.ASCII)
_MATCHED = "arguments"
ENDED_BY: Mapping[str, str] = MappingProxyType(
    {
        _MATCHED: "matches",
        UNSEARCHABLE: "cannot be searched for",
        UNKNOWN_ARGUMENTS: "cannot be judged by",
        "approval_terminated": "is terminated by",
    }
)
"""Codes of runs that one call ended, with the verb that relates the call to its rule."""


class Subject(msgspec.Struct, frozen=True):
    """The first call that a rule matched: its id, its tool and its main argument as `show` shortens it.

    `rule` is the place of the rule in the policy, such as `guards[0]` or `approvals.chain[1]`, after its name
    if it has one: `no-push (guards[0])`. `pattern` and `unless` are its patterns, "" for a rule without one,
    or if it is unknown which entry of the chain it was.
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
        """Rule as named in a sentence."""
        return f"rule {self.rule} {rule(self.pattern, self.unless)}" if self.pattern else f"rule {self.rule}"


def name_subject(subject: Subject, found: Mismatch) -> Mismatch:
    """Return the mismatch with a sentence that names the call and the rule."""
    if found.code in ENDED_BY:
        return replace(found, why=f"blocked: {subject} {ENDED_BY[found.code]} {subject.found_by}")
    return replace(found, why=f"{found.why}: {subject}, by {subject.found_by}")


class LatestCalls:
    """Calls of the latest response, as the model or an approver wrote them."""

    def __init__(self) -> None:
        self._calls: Mapping[str, tuple[str, str | None]] = MappingProxyType({})

    def take(self, fact: ev.Fact) -> None:
        """Take a fact before its decisions are compared."""
        match fact:
            case ev.ModelResponded(calls=calls, content=content):
                texts = content.arguments if content is not None else [None] * len(calls)
                self._calls = {call.id: (call.name, text) for call, text in zip(calls, texts, strict=True)}
            case ev.ApprovalAnswered(content=edits) if edits is not None:
                edited = edits.arguments
                self._calls = {
                    id_: (name, edited.get(id_, text)) for id_, (name, text) in self._calls.items()
                }
            case _:
                pass

    def subject(self, policy: Policy, decisions: Sequence[ev.Decision]) -> Subject | None:
        """Return the first call that a guard refused, or sent to approval, in these decisions."""
        for decision in decisions:
            match decision:
                case ev.CallRefused(cause=Cause.GUARD, call=call, name=name, measured=measured) if (
                    decision.code
                ):
                    found = _rule(policy, name, measured.get("link", measured.get("rule")))
                case ev.ApprovalRequested(guard=name, calls=(call, *_), approver=approver):
                    link = _LINK.fullmatch(approver)
                    found = _rule(policy, name, int(link[1]) if link else None)
                case _:
                    continue
            if found is not None and call in self._calls:
                tool, text = self._calls[call]
                return Subject(call, elide(tool, 64), _show_argument(text, found[1]), *found)
        return None


def _show_argument(text: str | None, pattern: str) -> str:
    """Return the main argument of a call, or all arguments if the pattern is found only in another."""
    if text is None:
        return ERASED
    shown = main_argument(text)
    elsewhere = pattern and occurs(pattern, [shown]) is False and occurs(pattern, list_search_texts(text))
    return elide(text if elsewhere else shown, _SHOWN)


def _rule(policy: Policy, name: str, link: object) -> tuple[str, str, str | None] | None:
    """Return place and patterns of the rule with this guard name, or of this entry of the approval chain."""
    for place, config in enumerate(policy.guards):
        if (config.get("name") or config["guard"]) == name:
            if config["guard"] == Permissions.kind:
                return _permission_rule(config, f"guards[{place}]", link), "", None
            own = name != config["guard"]  # the parser names a guard without a name by its kind
            named = f"{name} (guards[{place}])" if own else f"guards[{place}]"
            searches = config["guard"] == _MATCHED
            return _searching_rule(named, convert_guard(config) if searches else None)
    if policy.approvals is None or not isinstance(link, int):
        return None
    chain = policy.approvals.chain
    if link >= len(chain):
        return "approvals.chain", "", None
    each = chain[link]
    return _searching_rule(f"approvals.chain[{link}]", each if isinstance(each, Match) else None)


def _searching_rule(place: str, rule: Arguments | Match | None) -> tuple[str, str, str | None]:
    """Return how messages name a rule, and its patterns."""
    if rule is None or rule.is_plain:
        return place, (rule.matches or "") if rule else "", rule.unless if rule else None
    approver = rule.as_approver if isinstance(rule, Arguments) else rule
    return f"{approver.rule} ({place})", "", None


def _permission_rule(config: GuardConfig, path: str, index: object) -> str:
    """Return a permission rule as its author wrote it, where it is, and its effect."""
    rules: Sequence[Any] = config.get("rules", ())
    if not isinstance(index, int) or index >= len(rules):
        return path
    rule = msgspec.convert(rules[index], PermissionRule)
    return f"{rule.source or f'{rule.label} ({path}.rules[{index}])'} [{rule.effect}]"


MOST = 100
"""Maximum number of guard and limit decisions kept per run; further ones are counted."""


@unique
class Verdict(StrEnum):
    """Result of a run under another policy."""

    AGREE = "agree"
    STOPS = "stops"
    DIVERGES = "diverges"
    INCONCLUSIVE = "inconclusive"


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """Usage: steps, tokens as the provider counted them, nano-dollars, nanoseconds.

    `unpriced` counts responses without a known price; if there are any, the cost is a lower bound. `waited`
    is the part of `duration` spent waiting for an operator.
    """

    steps: int = 0
    input: int = 0
    output: int = 0
    cost_nanousd: int = 0
    unpriced: int = 0
    duration: int = 0
    waited: int = 0

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    def __sub__(self, other: "Spend") -> "Spend":
        left = {name: max(0, getattr(self, name) - getattr(other, name)) for name in self.__struct_fields__}
        return Spend(**left)


class Intervention(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict other than allow by a guard or a limit of the other policy, after the fact `fact`."""

    fact: int
    who: str
    said: str
    code: str


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A run under another policy, as far as its record is evidence.

    `began` is the start of the run in nanoseconds since the epoch (0: unknown), `task` the beginning of its
    task, None if erased.

    Divergence: `fact` is the last event that both runs share, `seq` the event of the recorded log at which
    they diverge (0: none), in `turn`. `kind` and `why` name the cause; `subject` is the call that a rule of
    either policy matched there. `recorded` and `derived` are the diverging decisions as JSON text, None if
    that side has none. `agent_state` and `code` are the other run's status there, `recorded_state` and
    `recorded_code` the final status of the recorded run. `state` is the other run's state as JSON text, "" if
    the verdict is agree.

    Usage: `until` was used before the divergence. `saved` was used after it: for a run that stops, what the
    other policy would not have used. `exact` means exact to the token; otherwise something was in progress at
    the stop and counts as used. `shared` is the last event that is counted with another run, of which this
    one is a fork (0: none), `again` the part of `saved` before it: see `Totals`.

    `fired` are the first verdicts of guards and limits, `more` counts the others. `unknown` names what is
    inconclusive. `prices` is the name of the table used where the record has no price, `priced` counts the
    responses that it priced; `contexts` is the name of the table of context lengths, `context` its value
    where the record has none. `unseen` lists facts of a run that agrees which the other policy would have
    recorded with another text that nothing read: event and sentence. `tools` counts the known tools of the
    run. `unfit` are tool names in the other policy that the run lacks, and fields that neither its tools nor
    its calls have: such a rule has no effect. `defaults` are settings that the other policy's file leaves out
    and that cause this verdict, such as `end_of_turn: complete`; only `refold whatif` fills it.
    """

    run: str
    verdict: Verdict
    began: int = 0
    task: str | None = ""
    events: int
    fact: int
    seq: int = 0
    turn: int = 0
    kind: MismatchKind | str = ""
    why: str = ""
    subject: Subject | None = None
    recorded: str | None = None
    derived: str | None = None
    agent_state: str
    code: str = ""
    recorded_state: str
    recorded_code: str = ""
    until: Spend
    saved: Spend = Spend()
    shared: int = 0
    again: Spend = Spend()
    exact: bool = True
    fired: tuple[Intervention, ...] = ()
    more: int = 0
    unknown: tuple[str, ...] = ()
    prices: str = ""
    priced: int = 0
    contexts: str = ""
    context: int | None = None
    unseen: tuple[tuple[int, str], ...] = ()
    tools: int = 0
    unfit: tuple[Complaint, ...] = ()
    defaults: tuple[str, ...] = ()
    state: str = ""

    @property
    def saves(self) -> bool:
        """Whether the other policy would have cut the run short, rather than completed it earlier."""
        return self.verdict is Verdict.STOPS and self.agent_state not in SUCCESSFUL and self.saved != Spend()


def spend_of(state: RunState) -> Spend:
    """Return the total usage of a run."""
    # Without a start time, the duration is unknown.
    spent, duration = state.spent, state.fact_at - state.lineage.at if state.lineage.at else 0
    waiting = 0 if state.asked_at is None else state.fact_at - state.asked_at
    return Spend(
        steps=spent.steps,
        input=spent.usage.input,
        output=spent.usage.output,
        cost_nanousd=spent.cost_nanousd,
        unpriced=spent.unpriced,
        duration=duration,
        waited=max(0, min(duration, spent.person_wait + waiting)),
    )


Counts = Mapping[str, int]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over runs under one policy. `Totals()` is the sum of no runs.

    `unfit` counts runs that agree and in which some rule matches no tool or argument. `cut_short` counts runs
    that were cut short, by the code that ends them. `done` counts runs that would have completed where the
    record continues; these save nothing, because the user had more to ask. `saved` is the sum over runs cut
    short exactly, `at_least` over the `inexact` ones, in which something was in progress. Runs that diverge
    save nothing. `fired` counts verdicts of guards and limits up to the divergence, `in_runs` the runs with
    such verdicts. `parted` counts runs by kind of divergence, `in_turn` by turn. `unknown` counts
    inconclusive runs, and runs that are inconclusive in part.

    Events that a fork shares with another run are counted once: see `Prefixes`. `before` counts forks that
    diverge in the shared part. Such a fork counts in `runs` and `verdicts`, and its own usage in `saved`;
    nothing else of it counts.
    """

    runs: int = 0
    unfit: int = 0
    verdicts: Counts = {}
    cut_short: Counts = {}
    done: int = 0
    saved: Spend = Spend()
    at_least: Spend = Spend()
    inexact: int = 0
    fired: Counts = {}
    in_runs: Counts = {}
    parted: Counts = {}
    in_turn: Counts = {}
    before: int = 0
    unknown: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            **{name: _add(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__}
        )


class Prefixes:
    """Tracks which events of forks are already counted with another run, so that each event counts once.

    A fork's log includes the events of the runs that it continues, up to each fork point (`Store.lineage`).
    The order of the runs does not matter.
    """

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}  # last counted event of each run's own log

    def shared(self, run: str, lineage: Sequence[Origin]) -> int:
        """Return the last event of the run's log that is already counted; 0: none."""
        counted = 0
        for origin in lineage:
            counted = max(counted, min(self._counted.get(origin.run, 0), origin.seq))
            if counted < origin.seq:
                return counted
        return max(counted, self._counted.get(run, 0))

    def count(self, run: str, lineage: Sequence[Origin], last: int) -> None:
        """Record that the run is counted, with its log up to event `last`."""
        for owner, seq in [*((origin.run, origin.seq) for origin in lineage), (run, last)]:
            self._counted[owner] = max(seq, self._counted.get(owner, 0))


def totals_of(found: WhatIf) -> Totals:
    """Return the totals of one run. Verdicts beyond `MOST` are not counted."""
    agrees, stops = found.verdict is Verdict.AGREE, found.verdict is Verdict.STOPS
    both = Totals(
        runs=1,
        unfit=int(agrees and bool(found.unfit)),
        verdicts={str(found.verdict): 1},
        unknown=int(bool(found.unknown)),
    )
    fired = list(_interventions([fired for fired in found.fired if fired.fact > found.shared]))
    both = replace(both, fired=Counter(fired), in_runs=dict.fromkeys(fired, 1))
    if found.saves:
        saved = found.saved - found.again
        both = replace(both, saved=saved) if found.exact else replace(both, at_least=saved)
    if 0 < found.seq <= found.shared:
        return replace(both, before=1)
    if found.verdict is Verdict.DIVERGES:
        return replace(both, parted={str(found.kind): 1}, in_turn={str(found.turn): 1})
    if found.saves:
        return replace(both, cut_short={found.code: 1}, inexact=int(not found.exact))
    return replace(both, done=int(stops and found.saved != Spend()))


def _interventions(fired: Sequence[Intervention]) -> Iterator[str]:
    """Yield the guard or limit of each intervention. A stop and the calls that it skips count as one."""
    stops = {(each.who, each.fact) for each in fired if each.said == "stop"}
    yield from (who for who, _ in sorted(stops))
    yield from (each.who for each in fired if (each.who, each.fact) not in stops)


def _add(one: Any, other: Any) -> Any:
    if not isinstance(one, Mapping):
        return one + other
    counts, more = cast("Counts", one), cast("Counts", other)
    return {key: counts.get(key, 0) + more.get(key, 0) for key in sorted({*counts, *more})}
