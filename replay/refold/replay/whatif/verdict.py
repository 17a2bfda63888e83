"""What is said of runs under another policy: verdicts, the calls they are about, and totals."""

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
from refold.reducers.guards.approvals import UNSEARCHABLE
from refold.reducers.guards.permissions import Permissions
from refold.reducers.machine import SUCCESSFUL
from refold.reducers.patterns import rule
from refold.reducers.permissions.rules import PermissionRule
from refold.reducers.policy import GuardConfig, Policy
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause
from refold.replay.kinds.arguments import ERASED, elided, main_argument
from refold.replay.whatif.mismatches import Mismatch, MismatchKind
from refold.store.protocol import Origin

_SHOWN = 160
_LINK = re.compile(r"(?:chain|rules)\[(\d{1,9})\]", re.ASCII)
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

    `rule` is the place of the rule in the policy, as `guards[0]` or `approvals.chain[1]`, behind its name if
    it has one: `no-push (guards[0])`. `pattern` and `unless` are its patterns, "" for a rule without one, or
    where it is not known which link of the chain it was.
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


def name_subject(subject: Subject, found: Mismatch) -> Mismatch:
    """Return the mismatch with a sentence that names the call and the rule."""
    if found.code in ENDED_BY:
        return replace(found, why=f"blocked: {subject} {ENDED_BY[found.code]} {subject.found_by}")
    return replace(found, why=f"{found.why}: {subject}, by {subject.found_by}")


class LatestCalls:
    """The calls of the latest response, as the model or a person wrote them."""

    def __init__(self) -> None:
        self._calls: Mapping[str, tuple[str, str | None]] = MappingProxyType({})

    def take(self, fact: ev.Fact) -> None:
        """Take a fact, before it is judged."""
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
        """Return the first call that a guard refused, or asks a person about, in these decisions under this
        policy.
        """
        for decision in decisions:
            match decision:
                case ev.CallRefused(cause=Cause.GUARD, call=call, name=name, saw=saw) if decision.code:
                    found = _rule(policy, name, saw.get("link", saw.get("rule")))
                case ev.ApprovalRequested(guard=name, calls=(call, *_), approver=approver):
                    link = _LINK.fullmatch(approver)
                    found = _rule(policy, name, int(link[1]) if link else None)
                case _:
                    continue
            if found is not None and call in self._calls:
                tool, text = self._calls[call]
                said = ERASED if text is None else elided(main_argument(text), _SHOWN)
                return Subject(call, elided(tool, 64), said, *found)
        return None


def _rule(policy: Policy, name: str, link: object) -> tuple[str, str, str | None] | None:
    """Return the place and the pattern of the rule that a guard of this name, or this link of the chain,
    stands for.
    """
    for place, config in enumerate(policy.guards):
        if (config.get("name") or config["guard"]) == name:
            if config["guard"] == Permissions.kind:
                return _permission_rule(config, f"guards[{place}]", link), "", None
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


def _permission_rule(config: GuardConfig, path: str, index: object) -> str:
    """Return a permission rule as its author wrote it, and where it is."""
    rules: Sequence[Any] = config.get("rules", ())
    if not isinstance(index, int) or index >= len(rules):
        return path
    rule = msgspec.convert(rules[index], PermissionRule)
    return rule.source or f"{rule.label} ({path}.rules[{index}])"


MOST = 100
"""How many decisions of guards and limits are kept of a run; further ones are counted."""


@unique
class Verdict(StrEnum):
    """What may be said of a run under another policy."""

    AGREE = "agree"
    STOPS = "stops"
    DIVERGES = "diverges"
    INCONCLUSIVE = "inconclusive"


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """What was used up: steps, tokens as the provider counted them, nano-dollars, nanoseconds.

    `unpriced` counts answers without a known price: where there are any, the cost is only the least that it
    was. `waited` is the part of `duration` in which a person was waited for: nobody's machine was busy.
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
    """A guard or a limit that did not simply allow, under the other policy, after the fact at event
    `fact`.
    """

    fact: int
    who: str
    said: str
    code: str


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A run under another policy, as far as its record is evidence.

    `began` is when the run did, in nanoseconds since the epoch (0: unknown), and `task` the beginning of its
    task, None where it was erased. `fact` is the last event that both runs share, `seq` where they part (of
    the recorded log, 0: nowhere), in `turn`. `kind` says in what, `why` in a sentence; `subject` is the call
    that a rule of either policy found there. `recorded` and `derived` are the decisions that part, JSON text,
    None where that side has none. `agent_state` and `code` are how the other run stands then,
    `recorded_state` and `recorded_code` how the recorded one ends; `state` is the other run's state there,
    JSON text, "" where both agree. `until` was spent by then and `saved` after it: of a run that stops, what
    the other policy would not have spent. `exact`: that is so to the token; else something was under way when
    it stopped, and counts as spent. `fired` are the first guards and limits that spoke, `more` counts the
    others. `unknown` names what could not be judged. `shared` is the last event that is counted with another
    run, of which this one is a fork (0: none), and `again` the part of `saved` that lies before it: see
    `Totals`. `prices` names the table that was used where the record has no price, and `priced` counts the
    answers that it had one for; `contexts` names that of context lengths, and `context` is what it says where
    the record does not. `unseen` are facts of a run that agrees, by their event and in a sentence, that the
    other policy would have had recorded in other words: nobody was shown them to the record's end. `tools` is
    how many tools the run is known to have, `unfit` are names in the other policy of tools that the run
    lacks, and of fields that neither its tools nor its calls have: such a rule says nothing. `defaults` are
    settings that the other policy's file does not name and that cause this verdict, as `end_of_turn:
    complete`; only `refold whatif` knows the file, elsewhere there are none.
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
        """Whether the other policy would have cut the run short: a task that is done sooner is another
        thing.
        """
        return self.verdict is Verdict.STOPS and self.agent_state not in SUCCESSFUL and self.saved != Spend()


def spend_of(state: RunState) -> Spend:
    """What a run has used up, all in all."""
    # Of a run that began at no known instant nobody knows how long it took.
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
    """Sums over runs under one policy. `Totals()` is that of none.

    `unfit` counts runs that agree and have a rule that fits nothing in them.
    `cut_short` counts runs that were cut short, by the code that ends them; `done` those that would have been
    over with an answer where the record goes on, which saves nothing: whoever asked had more to ask. `saved`
    is of those cut short exactly, `at_least` of the `inexact` ones, where something was under way. Of runs
    that diverge nothing is saved. `fired` counts what guards and limits said as long as the runs were one, of
    runs that diverge too, `in_runs` in how many runs they did; `parted` in what runs diverge first, `in_turn`
    in which turn. `unknown` counts runs of which something could not be judged.

    What a fork has of another run is counted there and not again: see `Prefixes`. `before` counts forks that
    part in what they share. Such a one is in `runs` and `verdicts`, and what it spent on its own is saved;
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
    """Which events of forks another run already counts. Take the runs in any order: each event is then
    counted once.

    A fork's log has the events of the runs behind it, up to where each was left (`Store.lineage`).
    """

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}  # up to which event of a run's own log all is counted

    def shared(self, run: str, lineage: Sequence[Origin]) -> int:
        """Up to which event what the run's log has is counted already; 0: nothing of it."""
        counted = 0
        for origin in lineage:
            counted = max(counted, min(self._counted.get(origin.run, 0), origin.seq))
            if counted < origin.seq:
                return counted
        return max(counted, self._counted.get(run, 0))

    def count(self, run: str, lineage: Sequence[Origin], last: int) -> None:
        """The run is counted, with all of its log, up to event `last`."""
        for owner, seq in [*((origin.run, origin.seq) for origin in lineage), (run, last)]:
            self._counted[owner] = max(seq, self._counted.get(owner, 0))


def totals_of(found: WhatIf) -> Totals:
    """The totals of one run. Of guards that spoke very often only what was kept is counted."""
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
    """Yield the guard or limit of each intervention: a stop and the calls that it skips are one."""
    stops = {(each.who, each.fact) for each in fired if each.said == "stop"}
    yield from (who for who, _ in sorted(stops))
    yield from (each.who for each in fired if (each.who, each.fact) not in stops)


def _add(one: Any, other: Any) -> Any:
    if not isinstance(one, Mapping):
        return one + other
    counts, more = cast("Counts", one), cast("Counts", other)
    return {key: counts.get(key, 0) + more.get(key, 0) for key in sorted({*counts, *more})}
