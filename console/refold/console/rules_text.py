"""Reports of `refold rules` as text."""

from collections.abc import Iterator, Mapping, Sequence

from refold.console.policy_import import write_rule
from refold.console.rules_reports import (
    ComparisonReport,
    ListedRule,
    ProposedRules,
    RulesReport,
)
from refold.console.screen import Column, Screen
from refold.replay import figures
from refold.replay.permissions.calls import CallResult
from refold.replay.permissions.comparison import ChangeGroup, ChangeKind

GROUPS = 12
"""Number of groups that are shown; JSON has all."""

_RULES = (
    Column("RULE", elastic=True),
    Column("EFFECT"),
    Column("CALLS", right=True),
    Column("RUNS", right=True),
    Column("SUCCEEDED", right=True),
    Column("FAILED", right=True),
    Column("REFUSED", right=True),
    Column("LATER", right=True),
    Column("FIRST"),
    Column("LAST"),
    Column("SAMPLE"),
)
_ASKED = (
    Column("ASKED BY", elastic=True),
    Column("ABOUT", elastic=True),
    Column("CALLS", right=True),
    Column("RUNS", right=True),
    Column("SAMPLE"),
)
_DECISIONS = ("refuse", "ask", "no rule", "permit", "unknown")


def tell_rules(screen: Screen, report: RulesReport) -> None:
    """Write what each rule decides, and what the record has beside it."""
    rows = [_rule_row(each) for each in report.rules if each.hits.calls or each.hits.later]
    if rows:
        screen.table(_RULES, rows)
        screen.say()
    if report.asked:
        asked = [
            (each.rule or "(no rule)", each.subject, f"{each.calls:,}", f"{each.runs:,}", each.sample)
            for each in report.asked[:GROUPS]
        ]
        screen.table(_ASKED, asked)
        _tell_more(screen, len(report.asked))
        screen.say()
    if any(CallResult(each.result).is_refusal for each in report.recorded):
        _tell_recorded(screen, report)
    screen.heading(f"{report.policy}: {_runs(report.runs)}, {_calls(report.calls)}")
    screen.pairs([(name, text) for name, text in _summarize_rules(report) if text])
    if report.proposed is not None:
        _tell_proposal(screen, report.proposed)


def _rule_row(each: ListedRule) -> tuple[str, ...]:
    hits = each.hits
    numbers = (hits.calls, hits.runs, hits.succeeded, hits.failed, hits.refused, hits.later)
    days = ("" if at is None else figures.clock(at)[:10] for at in (hits.first, hits.last))
    return (each.rule, each.effect, *(f"{number:,}" for number in numbers), *days, hits.sample)


def _tell_recorded(screen: Screen, report: RulesReport) -> None:
    """Write a table of agreement: what the rules decide, by what was recorded."""
    counts = {(each.decision, each.result): each.calls for each in report.recorded}
    used = [decision for decision in _DECISIONS if any(key[0] == decision for key in counts)]
    columns = (Column("RECORDED"), *(Column(each.upper(), right=True) for each in used))
    results = [result for result in CallResult if any(key[1] == result for key in counts)]
    rows = [
        (str(result), *(f"{counts.get((decision, result), 0):,}" for decision in used)) for result in results
    ]
    screen.table(columns, rows)
    screen.say()


def _summarize_rules(report: RulesReport) -> Iterator[tuple[str, str]]:
    refused, asked = report.count("refuse"), sum(each.calls for each in report.asked)
    yield "refused", f"{_calls(refused)} in {_runs(report.refused_runs)}" if refused else "none"
    yield "not evidence", f"{_calls(report.later)} after a refused call of the run" if report.later else ""
    yield "asked", _calls(asked) if asked else ""
    yield "no rule", _calls(report.unruled) if report.unruled else ""
    yield from _list_doubts(report)
    for each in report.rules:
        if not (each.hits.calls or each.hits.later or each.opaque):
            yield "never hit", f"{each.rule}{_explain_no_hit(each, report.calls)}"
    for note in report.notes:
        yield "note", note


def _list_doubts(report: RulesReport | ComparisonReport) -> Iterator[tuple[str, str]]:
    unknown = report.unknown if isinstance(report, RulesReport) else {}
    yield from (("unknown", f"{_calls(count)}: {why}") for why, count in unknown.items())
    yield from (("incomplete", f"{_runs(count)}: {why}") for why, count in report.incomplete.items())
    yield "erased", _calls(report.erased) if report.erased else ""
    yield from (("not judged", f"{_runs(count)}: {why}") for why, count in report.unread.items())


def _explain_no_hit(each: ListedRule, calls: int) -> str:
    if each.shadowed_by:
        return f"; shadowed by {each.shadowed_by}"
    decided = each.hits.decided_by
    if by := next((by for by, _ in decided.most_common() if by), ""):
        return f"; {by} decides {_calls(decided[by])} that it matches"
    if decided:
        return f"; it matches {_calls(decided[''])}, but only a part, or its 'after' did not hold"
    if each.hits.seen:
        return f"; it matches none of {_calls(each.hits.seen)} of its tools"
    return "; no call is of its tools" if calls else ""


def _tell_proposal(screen: Screen, proposed: ProposedRules) -> None:
    screen.say()
    screen.heading(f"proposed: {figures.quantity(len(proposed.rules), 'rule')}, under which"
                   f" {_calls(proposed.permitted)} would have run without a question")  # fmt: skip
    for rule in proposed.rules:
        screen.say(f"  - {write_rule(rule)}")
    rows = [("left out", f"{_calls(count)}: {why}") for why, count in proposed.left_out.items()]
    screen.pairs(rows)


_CHANGES = (
    Column("CHANGE"),
    Column("TOOL"),
    Column("OLD", elastic=True),
    Column("NEW", elastic=True),
    Column("CALLS", right=True),
    Column("RUNS", right=True),
    Column("SUCCEEDED", right=True),
    Column("LATER", right=True),
    Column("SAMPLE"),
    Column("COMMAND", elastic=True),
)


def tell_comparison(screen: Screen, report: ComparisonReport) -> None:
    """Write what new rules change for recorded calls."""
    if report.groups:
        screen.table(_CHANGES, [_change_row(group) for group in report.groups[:GROUPS]])
        _tell_more(screen, len(report.groups))
        screen.say()
    screen.heading(f"from {report.old} to {report.new}: {_runs(report.runs)}, {_calls(report.calls)}")
    screen.pairs([(name, text) for name, text in _summarize_changes(report) if text])


def _change_row(group: ChangeGroup) -> tuple[str, ...]:
    first = group.samples[0]
    numbers = (group.calls, group.runs, group.succeeded, group.later)
    change = f"{group.kind} (widening)" if group.is_widening else str(group.kind)
    old, new = (
        f"{outcome}: {rule}" if rule else outcome
        for outcome, rule in ((group.old, group.old_rule), (group.new, group.new_rule))
    )
    listed = (f"{number:,}" for number in numbers)
    return (change, group.tool, old, new, *listed, first.address, figures.shorten(first.command, 80))


def count_kinds(groups: Sequence[ChangeGroup]) -> Mapping[ChangeKind, tuple[int, int]]:
    """Return the number of calls of each kind of change, and how many of them are widenings."""
    return {
        kind: (
            sum(group.calls for group in groups if group.kind is kind),
            sum(group.calls for group in groups if group.kind is kind and group.is_widening),
        )
        for kind in ChangeKind
    }


def _summarize_changes(report: ComparisonReport) -> Iterator[tuple[str, str]]:
    for kind, (calls, widening) in count_kinds(report.groups).items():
        is_main = kind is not ChangeKind.UNRULED
        marked = f" ({widening:,} widening)" if widening else ""
        yield str(kind), f"{_calls(calls)}{marked}" if calls or is_main else ""
    yield "unchanged", _calls(report.unchanged)
    yield "not evidence", f"{_calls(report.later)} after a refused call of the run" if report.later else ""
    for edit in report.edits:
        doubt = "; may widen, and no recorded call shows how" if edit in report.unproved else ""
        yield ("added" if edit.added else "removed"), f"{edit.effect} {edit.rule}".strip() + doubt
    yield from _list_doubts(report)
    yield "allowed", f"widening, because: {report.allowed}" if report.allowed else ""
    for note in report.notes:
        yield "note", note


def _tell_more(screen: Screen, number: int) -> None:
    if number > GROUPS:
        screen.say(f"… and {number - GROUPS:,} more; -o json lists all")


def _runs(number: int) -> str:
    return figures.quantity(number, "run")


def _calls(number: int) -> str:
    return figures.quantity(number, "call")
