"""Two lists of permission rules over the same recorded calls: what the second one changes.

A change is a widening if the new rules are less strict about a call. Where either list cannot judge a call,
the change is inconclusive, unless both have the same rules for its tool.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum, unique
from types import MappingProxyType

import msgspec

from refold.reducers.permissions.rules import STRICTNESS, PermissionRule
from refold.reducers.permissions.shadowing import covers
from refold.replay.permissions.calls import Judged, JudgedCall, JudgedRun, Outcome, RuleList, relevant_rules

SAMPLES = 3
"""Maximum number of sample calls of a group."""

_STRICTNESS: Mapping[Outcome, int] = MappingProxyType({"refuse": 3, "ask": 2, "no rule": 1, "permit": 0})


@unique
class ChangeKind(StrEnum):
    """How the decision on a call changes."""

    REFUSED = "newly refused"
    ASKED = "newly asked"
    UNRULED = "no rule now"
    PERMITTED = "newly permitted"
    INCONCLUSIVE = "inconclusive"


_KINDS: Mapping[Outcome, ChangeKind] = MappingProxyType(
    {
        "refuse": ChangeKind.REFUSED,
        "ask": ChangeKind.ASKED,
        "no rule": ChangeKind.UNRULED,
        "permit": ChangeKind.PERMITTED,
    }
)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a group: its address, its command or "", and its arguments as JSON text."""

    address: str
    command: str
    arguments: str


class ChangeGroup(msgspec.Struct, kw_only=True):
    """Calls with the same change, tool and deciding rules. `later` ones are not evidence, and not in `calls`.

    `succeeded` is how many of `calls` ran without an error when they were recorded.
    """

    kind: ChangeKind
    is_widening: bool
    old: Outcome
    new: Outcome
    tool: str
    old_rule: str
    new_rule: str
    why: str = ""
    calls: int = 0
    later: int = 0
    runs: int = 0
    succeeded: int = 0
    samples: list[Sample] = []


class RuleEdit(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that only one of the lists has. `may_widen`: it can make a call less restricted."""

    rule: str
    effect: str
    added: bool
    may_widen: bool


_Key = tuple[Outcome, Outcome, str, str, str, str]


class PermissionComparison(msgspec.Struct, kw_only=True):
    """What the second of two lists of rules changes over runs.

    `calls` are all, `later` those after a call that either list refuses: not evidence. `unchanged`, and the
    `calls` of the groups, have no later ones. `edits` are the differences of the lists.
    """

    runs: int = 0
    calls: int = 0
    later: int = 0
    unchanged: int = 0
    erased: int = 0
    groups: dict[_Key, ChangeGroup] = {}
    incomplete: Counter[str] = msgspec.field(default_factory=Counter[str])
    unread: Counter[str] = msgspec.field(default_factory=Counter[str])
    edits: tuple[RuleEdit, ...] = ()

    def add(self, run: JudgedRun) -> None:
        """Compare the two decisions on each call of a run. The run has two lists of rules: old and new."""
        old, new = run.lists
        self.runs += 1
        self.incomplete.update(run.incomplete)
        same = {tool: _are_same(old, new, tool) for tool in {call.tool for call in run.calls}}
        seen: set[_Key] = set()
        for call in run.calls:
            self.calls += 1
            if not call.judged:
                self.erased += 1
                continue
            before, after = call.judged
            is_later = before.is_later or after.is_later
            self.later += is_later
            if same[call.tool] or _is_equal(before, after):
                self.unchanged += not is_later
            else:
                self._add_change(call, before, after, seen, is_later=is_later)

    def _add_change(
        self, call: JudgedCall, before: Judged, after: Judged, seen: set[_Key], *, is_later: bool
    ) -> None:
        key = before.outcome, after.outcome, call.tool, before.rule, after.rule, after.why or before.why
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = _group(call, before, after)
        group.calls += not is_later
        group.later += is_later
        group.succeeded += not is_later and call.result == "succeeded"
        group.runs += key not in seen
        seen.add(key)
        if len(group.samples) < SAMPLES:
            command = after.command or before.command
            group.samples.append(
                Sample(address=call.address, command=command, arguments=call.arguments or "")
            )

    def ordered(self) -> list[ChangeGroup]:
        """Return the groups: widening ones first, then by kind and number of calls."""
        kinds = list(ChangeKind)
        return sorted(
            self.groups.values(),
            key=lambda group: (not group.is_widening, kinds.index(group.kind), -group.calls, group.tool),
        )

    def unproved(self) -> list[RuleEdit]:
        """Return edits that can widen and about which the recorded calls show nothing."""
        used = {
            rule
            for group in self.groups.values()
            if group.is_widening
            for rule in (group.old_rule, group.new_rule)
        }
        return [edit for edit in self.edits if edit.may_widen and not (edit.effect and edit.rule in used)]


def _group(call: JudgedCall, before: Judged, after: Judged) -> ChangeGroup:
    inconclusive = "unknown" in (before.outcome, after.outcome)
    return ChangeGroup(
        kind=ChangeKind.INCONCLUSIVE if inconclusive else _KINDS[after.outcome],
        is_widening=not inconclusive and _STRICTNESS[after.outcome] < _STRICTNESS[before.outcome],
        old=before.outcome,
        new=after.outcome,
        tool=call.tool,
        old_rule=before.rule,
        new_rule=after.rule,
        why=after.why or before.why,
    )


def _is_equal(before: Judged, after: Judged) -> bool:
    return before.outcome == after.outcome != "unknown"


def _are_same(old: RuleList, new: RuleList, tool: str) -> bool:
    """Return whether both lists have the same rules for a tool, with the same meaning."""
    before, after = relevant_rules(old, tool), relevant_rules(new, tool)
    # Under `strictest`, the place of a rule in the list means nothing.
    are_same = set(before) == set(after) if old.guard.order == "strictest" else before == after
    return are_same and (old.guard.order, _default(old)) == (new.guard.order, _default(new))


def list_edits(old: RuleList, new: RuleList) -> Iterator[RuleEdit]:
    """Yield the rules that only one of the lists has, and settings that differ: removed ones first."""
    before, after = _contents(old), _contents(new)
    by_position = "strictest" not in (old.guard.order, new.guard.order)
    for added, rules, others in ((False, old, after), (True, new, before)):
        for content, label in dict(zip(_contents(rules), rules.labels, strict=True)).items():
            if content not in others:
                may_widen = _may_widen(content, added=added, others=others, by_position=by_position)
                # Where no rule applies, calls may be restricted more than by a new one.
                default = _STRICTNESS[_default(old)]
                may_widen = may_widen or (added and _STRICTNESS[content.effect] < default)
                yield RuleEdit(rule=label, effect=content.effect, added=added, may_widen=may_widen)
    common = [
        [each for each in rules if each in others] for rules, others in ((before, after), (after, before))
    ]
    if by_position and common[0] != common[1]:
        yield _edit("the order of the rules", may_widen=True)
    if old.guard.order != new.guard.order:
        yield _edit(f"order: {new.guard.order} (was {old.guard.order})", may_widen=True)
    settings: tuple[tuple[str, Outcome, Outcome], ...] = (
        ("else", _default(old), _default(new)),
        ("unknown", old.guard.unknown, new.guard.unknown),
    )
    for key, was, now in settings:
        if was != now:
            yield _edit(f"{key}: {now} (was {was})", may_widen=_STRICTNESS[now] < _STRICTNESS[was])


def _default(rules: RuleList) -> Outcome:
    return rules.guard.otherwise if rules.has_default else "no rule"


def _may_widen(
    rule: PermissionRule, *, added: bool, others: Iterable[PermissionRule], by_position: bool
) -> bool:
    """Return whether adding or removing a rule can make a call less restricted, if `others` are the rules of
    the other list.
    """
    if by_position:
        return (rule.effect == "permit") is added or (added and rule.effect == "ask")
    if (rule.effect == "permit") is not added:
        return False
    # Not if an old permission, or an equally strict new rule, matches all the same calls.
    alike = (
        other
        for other in others
        if (other.effect == "permit" if added else STRICTNESS[other.effect] >= STRICTNESS[rule.effect])
    )
    return not any(covers(other, rule) for other in alike)


def _edit(text: str, *, may_widen: bool) -> RuleEdit:
    return RuleEdit(rule=text, effect="", added=True, may_widen=may_widen)


def _contents(rules: RuleList) -> list[PermissionRule]:
    """Return the rules without where they are written and what they say."""
    return [msgspec.structs.replace(rule, source="", say="") for rule in rules.guard.rules]
