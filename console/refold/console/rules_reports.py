"""Reports of `refold rules`, as JSON and for its other formats."""

from collections.abc import Iterable, Mapping

import msgspec

from refold.console.rule_lists import NOT_COMPARED
from refold.reducers.permissions.rules import PermissionRule
from refold.reducers.permissions.shadowing import find_shadowed
from refold.replay.permissions.calls import RuleList
from refold.replay.permissions.comparison import ChangeGroup, PermissionComparison, RuleEdit
from refold.replay.permissions.hits import AskedGroup, PermissionHits, RuleHits
from refold.replay.permissions.proposals import Proposal


class ListedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule and what it decides. `shadowed_by`: a rule that decides each of its calls instead, or "".
    `opaque`: why it decides none, as it cannot be evaluated, or "".
    """

    rule: str
    effect: str
    hits: RuleHits
    shadowed_by: str = ""
    opaque: str = ""


class RecordedCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of calls that the rules decide in one way and that had one result when recorded."""

    decision: str
    result: str
    calls: int


class ProposedRules(msgspec.Struct, frozen=True, kw_only=True):
    """Proposed permissions, in refold's language; the calls they let run, and those left out, by reason."""

    rules: list[PermissionRule]
    permitted: int
    left_out: dict[str, int]


class RulesReport(msgspec.Struct, frozen=True, kw_only=True):
    """What rules decide over runs. Numbers as in `PermissionHits`: without `later` calls."""

    policy: str
    runs: int
    calls: int
    later: int
    refused_runs: int
    rules: list[ListedRule]
    asked: list[AskedGroup]
    recorded: list[RecordedCount]
    unruled: int
    unknown: dict[str, int]
    incomplete: dict[str, int]
    erased: int
    unread: dict[str, int]
    notes: list[str]
    proposed: ProposedRules | None = None

    def count(self, effect: str) -> int:
        """Return the number of calls with this decision of a rule."""
        return sum(each.hits.calls for each in self.rules if each.effect == effect)

    @property
    def is_unsure(self) -> bool:
        """Whether calls could not be judged or may be missing, or no rule is about a tool of any call."""
        unfit = not any(each.hits.seen for each in self.rules)
        return bool(self.unknown or self.incomplete or self.erased or self.unread or unfit)


def report_hits(
    name: str, lists: Iterable[RuleList], found: PermissionHits, proposal: Proposal | None
) -> RulesReport:
    """Return the report of counted hits. `lists` are all lists of rules that applied to a run."""
    listed: dict[str, ListedRule] = {}
    notes: dict[str, None] = {}
    for rules in lists:
        notes.update(dict.fromkeys(rules.notes))
        shadowed = dict(find_shadowed(rules.guard.rules, rules.guard.order))
        for place, (label, rule) in enumerate(zip(rules.labels, rules.guard.rules, strict=True)):
            listed[label] = ListedRule(
                rule=label,
                effect=rule.effect,
                hits=found.rules.get(label, RuleHits()),
                opaque=rule.opaque,
                shadowed_by=rules.labels[shadowed[place]] if place in shadowed else "",
            )
    recorded = sorted(found.recorded.items(), key=lambda item: (-item[1], item[0]))
    return RulesReport(
        policy=name,
        runs=found.runs,
        calls=found.calls,
        later=found.later,
        refused_runs=found.refused_runs,
        rules=list(listed.values()),
        asked=sorted(found.asked.values(), key=lambda group: (-group.calls, group.rule, group.subject)),
        recorded=[RecordedCount(decision=key[0], result=key[1], calls=number) for key, number in recorded],
        unruled=found.unruled,
        unknown=_ordered(found.unknown),
        incomplete=_ordered(found.incomplete),
        erased=found.erased,
        unread=_ordered(found.unread),
        notes=list(notes),
        proposed=None if proposal is None else _report_proposal(proposal),
    )


def _report_proposal(found: Proposal) -> ProposedRules:
    return ProposedRules(rules=found.rules, permitted=found.permitted, left_out=_ordered(found.left_out))


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


class ComparisonReport(msgspec.Struct, frozen=True, kw_only=True):
    """What new rules change over runs, compared with old ones.

    `unchanged` and the calls of `groups` are without `later` ones, which follow a call that the old or the
    new rules refuse. `edits` are the rules that only one side has; about those in `unproved`, which may
    widen what is permitted, the recorded calls show nothing. `allowed`: why widening is accepted, or "".
    """

    old: str
    new: str
    runs: int
    calls: int
    later: int
    unchanged: int
    groups: list[ChangeGroup]
    edits: list[RuleEdit]
    unproved: list[RuleEdit]
    incomplete: dict[str, int]
    erased: int
    unread: dict[str, int]
    notes: list[str]
    allowed: str = ""

    @property
    def is_widening(self) -> bool:
        """Whether a recorded call is less restricted under the new rules."""
        return any(group.is_widening for group in self.groups)

    @property
    def is_inconclusive(self) -> bool:
        """Whether a call cannot be compared, calls may be missing, or a widening edit was not tried.

        Equal rules change nothing, whatever is missing.
        """
        if not self.edits:
            return False
        unsure = any("unknown" in (group.old, group.new) for group in self.groups)
        untried = self.unproved and not self.allowed
        return bool(unsure or untried or self.incomplete or self.erased or self.unread)


def report_comparison(
    old: RuleList, new: RuleList, found: PermissionComparison, allowed: str
) -> ComparisonReport:
    """Return the report of a comparison."""
    return ComparisonReport(
        old=old.name,
        new=new.name,
        runs=found.runs,
        calls=found.calls,
        later=found.later,
        unchanged=found.unchanged,
        groups=found.ordered(),
        edits=list(found.edits),
        unproved=found.unproved(),
        incomplete=_ordered(found.incomplete),
        erased=found.erased,
        unread=_ordered(found.unread),
        notes=_join_notes(old, new),
        allowed=allowed,
    )


def _join_notes(old: RuleList, new: RuleList) -> list[str]:
    partial = [each for each in (*old.notes, *new.notes) if each.endswith(NOT_COMPARED)]
    return list(dict.fromkeys([*(each for each in new.notes if each not in old.notes), *partial]))
