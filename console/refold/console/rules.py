"""`refold rules`: permission rules over recorded calls."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from refold.console import locations
from refold.console.addresses import Problems, choose_runs, is_path, without_grown
from refold.console.locations import StorePlace, at_once
from refold.console.options import Everything, option, words
from refold.console.processes import progress
from refold.console.screen import Column, Screen
from refold.engine.compatibility import installed_guards
from refold.engine.permission_files import dialect_of, read_permissions
from refold.engine.policy_files import load_policy
from refold.reducers.errors import ExternalFailure, Inconclusive, RefoldError, WrongUse
from refold.reducers.guards.permissions import Permissions
from refold.reducers.permissions.dialect import Note
from refold.reducers.permissions.rules import PermissionRule
from refold.replay import figures
from refold.replay.permission_hits import HitCounter, PermissionHits, RuleHits, merge_hits
from refold.replay.reader import run_follower


class ListedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, and what it decides, as JSON."""

    rule: str
    effect: str
    hits: RuleHits


class RulesReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules decide over runs, as JSON."""

    policy: str
    runs: int
    calls: int
    rules: list[ListedRule]
    unruled: int
    unknown: dict[str, int]
    incomplete: dict[str, int]
    erased: int
    unread: int
    stopped: int
    notes: list[str]


def rules_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], words("RUN or @last (ids may be prefixes), or a PATH of transcripts.")],
    *,
    policy: Annotated[
        Path,
        option("--policy", "Policy file with a guard 'permissions', or rules of an agent, as claude:PATH."),
    ],
    everything: Everything = False,
) -> int:
    """Count which permission rule decides each recorded call, in the runs that are named or in all.

    A call after the first refused one of its run is not evidence: with the refusal, the agent might have done
    something else. `refold whatif --policy` runs a policy over whole runs.

    Example: refold rules ~/.claude/projects --policy claude:$HOME/.claude/settings.json

    Exit code 1 if a recorded call would have been refused; 125 if none would, but some cannot be judged,
    calls may be missing from the record, or no rule is about a tool of these runs; 3 if a log is damaged, 4
    if some could not be read. With -o json: one document.
    """
    guard, notes = _load(policy)
    trouble = Problems()
    imported = 0
    if any(map(is_path, runs)):
        from refold.console.imports import import_runs

        runs, imported = import_runs(place, runs)
    found = at_once(_count(place, runs, guard, trouble, everything=everything))
    report = _report(str(policy), guard, found, notes)
    screen.result(report, lambda: _tell(screen, report))
    unfit = found.calls > 0 and not any(hits.seen for hits in found.rules.values())
    unsure = found.unknown or found.incomplete or found.erased or unfit
    judged = 1 if found.stopped else Inconclusive.exit_code if unsure else 0
    return trouble.code or (ExternalFailure.exit_code if imported > 1 else judged)


def _load(path: Path) -> tuple[Permissions, tuple[Note, ...]]:
    registry = installed_guards()
    policy, _ = load_policy(path, registry, {})
    configs = [config for config in policy.guards if config["guard"] == Permissions.kind]
    if len(configs) != 1:
        raise WrongUse(f"{path}: expected one guard 'permissions', got {len(configs)}")
    notes = read_permissions(path)[1] if dialect_of(path) else ()
    return msgspec.convert(configs[0], Permissions), notes


async def _count(
    place: StorePlace, runs: Sequence[str], guard: Permissions, trouble: Problems, *, everything: bool
) -> PermissionHits:
    parts: list[PermissionHits] = []
    async with locations.reading(place) as store:
        sizes = await choose_runs(store, runs, trouble, everything=everything)
        sizes = sizes if runs else await without_grown(store, sizes)
        with progress("judging", sum(size for _, size in sizes)) as step:
            for run, size in sizes:
                try:
                    parts.append(await run_follower(HitCounter(guard), store, run))
                except (RefoldError, Inconclusive) as error:
                    trouble.add(run, error)
                    parts.append(PermissionHits(unread=1))
                step(size)
    return merge_hits(parts)


def _report(policy: str, guard: Permissions, found: PermissionHits, notes: tuple[Note, ...]) -> RulesReport:
    return RulesReport(
        policy=policy,
        runs=found.runs,
        calls=found.calls,
        rules=[_listed(rule, found.rules.get(place, RuleHits())) for place, rule in enumerate(guard.rules)],
        unruled=found.unruled,
        unknown=found.unknown,
        incomplete=found.incomplete,
        erased=found.erased,
        unread=found.unread,
        stopped=found.stopped,
        notes=[f"{note.place}: {note.problem}" for note in notes],
    )


def _listed(rule: PermissionRule, hits: RuleHits) -> ListedRule:
    return ListedRule(rule=rule.label, effect=rule.effect, hits=hits)


_COLUMNS = (
    Column("RULE", elastic=True),
    Column("EFFECT"),
    Column("CALLS", right=True),
    Column("RUNS", right=True),
    Column("SUCCEEDED", right=True),
    Column("FAILED", right=True),
    Column("REFUSED", right=True),
    Column("FIRST"),
    Column("LAST"),
    Column("SAMPLE"),
)


def _tell(screen: Screen, report: RulesReport) -> None:
    rows = [_row(each) for each in report.rules if each.hits.calls]
    if rows:
        screen.table(_COLUMNS, rows)
        screen.say()
    screen.heading(
        f"{report.policy}: {figures.quantity(report.runs, 'run')}, {figures.quantity(report.calls, 'call')}"
    )
    screen.pairs([(name, text) for name, text in _summary(report) if text])


def _row(each: ListedRule) -> tuple[str, ...]:
    hits = each.hits
    numbers = (hits.calls, hits.runs, hits.succeeded, hits.failed, hits.refused)
    days = (figures.clock(at or 0)[:10] for at in (hits.first, hits.last))
    return (each.rule, each.effect, *(f"{number:,}" for number in numbers), *days, hits.sample)


def _summary(report: RulesReport) -> Iterator[tuple[str, str]]:
    later = sum(each.hits.later for each in report.rules if each.effect == "refuse")
    refused = sum(each.hits.calls for each in report.rules if each.effect == "refuse")
    asked = sum(each.hits.calls for each in report.rules if each.effect == "ask")
    where = f"{figures.quantity(refused, 'call')} in {figures.quantity(report.stopped, 'run')}"
    yield "refused", where if refused else "none"
    if later:
        yield "", f"{later:,} after a refused call of the same run: not evidence"
    yield "asked", figures.quantity(asked, "call") if asked else ""
    yield "no rule", figures.quantity(report.unruled, "call") if report.unruled else ""
    for why, count in sorted(report.unknown.items(), key=lambda item: (-item[1], item[0])):
        yield "unknown", f"{figures.quantity(count, 'call')}: {why}"
    for why, count in sorted(report.incomplete.items(), key=lambda item: (-item[1], item[0])):
        yield "incomplete", f"{figures.quantity(count, 'run')}: {why}"
    yield "erased", figures.quantity(report.erased, "call") if report.erased else ""
    yield "not read", f"{figures.quantity(report.unread, 'run')}: not counted above" if report.unread else ""
    for each in report.rules:
        if not each.hits.calls:
            beside = (
                f"; it matches {figures.quantity(each.hits.beside, 'call')} that another rule decides"
                if each.hits.beside
                else ""
            )
            unfit = "" if each.hits.seen or not report.calls else "; no call is of its tools"
            yield "never hit", f"{each.rule}{beside}{unfit}"
    for note in report.notes:
        yield "note", note
