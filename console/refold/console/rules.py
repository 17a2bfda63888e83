"""`refold rules`: permission rules over recorded calls."""

from collections.abc import Callable, Sequence
from enum import StrEnum, unique
from pathlib import Path
from typing import Annotated

import msgspec

from refold.console import locations
from refold.console.addresses import Problems, choose_runs, is_path, without_grown
from refold.console.locations import StorePlace
from refold.console.options import Everything, option, words
from refold.console.processes import progress
from refold.console.rule_lists import AUTO, SessionSettings, UnknownSettings, load_rules
from refold.console.rules_formats import render_markdown, render_sarif
from refold.console.rules_reports import ComparisonReport, RulesReport, report_comparison, report_hits
from refold.console.rules_text import tell_comparison, tell_rules
from refold.console.screen import Screen, worst
from refold.reducers.errors import ExternalFailure, Inconclusive, RefoldError, WrongUse
from refold.replay.permissions.calls import CallJudge, Choice, JudgedRun, RuleList
from refold.replay.permissions.comparison import PermissionComparison, list_edits
from refold.replay.permissions.hits import PermissionHits
from refold.replay.permissions.proposals import propose_rules
from refold.replay.reader import run_follower
from refold.store.sequential import at_once


@unique
class RulesFormat(StrEnum):
    """The format of a report: for a terminal, a pull request, or a code scanner."""

    TEXT = "text"
    MARKDOWN = "markdown"
    SARIF = "sarif"


@unique
class FailOn(StrEnum):
    """Which changes make a comparison fail with exit code 1."""

    WIDENING = "widening"
    ANY = "any"
    INCONCLUSIVE = "inconclusive"
    NONE = "none"


class RulesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared, and the form of the report."""

    against: Annotated[
        Path | None, option("--against", "The rules so far: report what --policy changes for recorded calls.")
    ] = None
    base: Annotated[
        str | None, option("--base", "A git revision: compare --policy with the file as it is there.")
    ] = None
    fail_on: Annotated[
        FailOn, option("--fail-on", "Which changes end with exit code 1, in a comparison.")
    ] = FailOn.WIDENING
    allow_widening: Annotated[
        str, option("--allow-widening", "The reason why widening is accepted; the report records it.")
    ] = ""
    propose: Annotated[
        bool, option("--propose", "Propose the smallest list of permissions for the calls that succeeded.")
    ] = False
    format: Annotated[RulesFormat, option("--format", "The format of the report.")] = RulesFormat.TEXT
    show_args: Annotated[
        bool, option("--show-args", "Show values of arguments also in markdown and sarif.")
    ] = False


def rules_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], words("RUN or @last (ids may be prefixes), or a PATH of transcripts.")],
    *,
    policy: Annotated[
        Path,
        option(
            "--policy",
            "Policy file with a guard 'permissions', rules of an agent as claude:PATH, or claude:auto.",
        ),
    ],
    options: RulesOptions,
    everything: Everything = False,
) -> int:
    """Count which permission rule decides each recorded call, in the runs that are named or in all; or report
    what a change of the rules changes for these calls.

    A call after the first refused one of its run is not evidence: with the refusal, the agent might have done
    something else. `refold whatif --policy` runs a policy over whole runs.

    Example: refold rules ~/.claude/projects --policy claude:$HOME/.claude/settings.json

    Exit code 1 if a recorded call would have been refused; with --against or --base, if a call is less
    restricted than before (see --fail-on). 125 if neither is so, but some calls cannot be judged, calls may
    be missing from the record, or no rule is about a tool of these runs; 3 if a log is damaged, 4 if some
    could not be read. With -o json: one document.
    """
    _check_options(policy, options)
    lists = _load_lists(policy, options)
    trouble = Problems()
    imported = 0
    if any(map(is_path, runs)):
        from refold.console.imports import import_runs

        runs, imported = import_runs(place, runs)
    choose: Choice = (lambda _: lists) if lists else SessionSettings()
    counts = _Comparison(lists, options) if len(lists) == 2 else _Hits(str(policy), lists, options)
    at_once(_judge(place, runs, choose, counts, trouble, everything=everything))
    code = counts.show(screen)
    return worst((trouble.code, ExternalFailure.exit_code if imported > 1 else code))


def _check_options(policy: Path, options: RulesOptions) -> None:
    compares = options.against is not None or options.base is not None
    if options.against is not None and options.base is not None:
        raise WrongUse("--against and --base exclude each other: both name the rules so far")
    if compares and str(policy) == AUTO:
        raise WrongUse(f"{AUTO} reads other files for each session: name a file to compare")
    if compares and options.propose:
        raise WrongUse("--propose is not for comparisons: leave out --against and --base")
    if not compares and (options.fail_on is not FailOn.WIDENING or options.allow_widening):
        raise WrongUse("--fail-on and --allow-widening need --against or --base")


def _load_lists(policy: Path, options: RulesOptions) -> tuple[RuleList, ...]:
    """Return the rules so far, if any, and the rules; nothing if they depend on the session."""
    if str(policy) == AUTO:
        return ()
    new = load_rules(policy)
    if options.base is not None:
        return load_rules(policy, options.base), new
    return (new,) if options.against is None else (load_rules(options.against), new)


class _Hits:
    """Counts what one list of rules decides, and reports it."""

    def __init__(self, name: str, lists: Sequence[RuleList], options: RulesOptions) -> None:
        self._name, self._options = name, options
        self._lists = dict.fromkeys(lists)
        self._runs: list[JudgedRun] = []
        self.found = PermissionHits()

    def add(self, run: JudgedRun) -> None:
        """Count the calls of a run."""
        self._lists.update(dict.fromkeys(run.lists))
        self.found.add(run)
        if self._options.propose:
            self._runs.append(run)

    def show(self, screen: Screen) -> int:
        """Write the report and return the exit code."""
        lists = list(self._lists)
        proposal = propose_rules(self._runs) if self._options.propose else None
        report = report_hits(self._name, lists, self.found, proposal)
        _write(screen, report, self._options, lambda: tell_rules(screen, report))
        return 1 if report.refused_runs else Inconclusive.exit_code if report.is_unsure else 0


class _Comparison:
    """Compares the decisions of two lists of rules, and reports the changes."""

    def __init__(self, lists: Sequence[RuleList], options: RulesOptions) -> None:
        self._old, self._new = lists
        self._options = options
        self.found = PermissionComparison(edits=tuple(list_edits(self._old, self._new)))

    def add(self, run: JudgedRun) -> None:
        """Compare the decisions on the calls of a run."""
        self.found.add(run)

    def show(self, screen: Screen) -> int:
        """Write the report and return the exit code."""
        options = self._options
        report = report_comparison(self._old, self._new, self.found, options.allow_widening)
        _write(screen, report, options, lambda: tell_comparison(screen, report))
        if options.fail_on is FailOn.NONE:
            return 0
        widens = report.is_widening and not options.allow_widening
        fails = {
            FailOn.WIDENING: widens,
            FailOn.ANY: widens or any(not group.is_widening for group in report.groups),
            FailOn.INCONCLUSIVE: widens or report.is_inconclusive,
        }
        return 1 if fails[options.fail_on] else Inconclusive.exit_code if report.is_inconclusive else 0


def _write(
    screen: Screen, report: RulesReport | ComparisonReport, options: RulesOptions, tell: Callable[[], None]
) -> None:
    if screen.json:
        screen.document(report)
    elif options.format is RulesFormat.MARKDOWN:
        screen.text(render_markdown(report, show_args=options.show_args))
    elif options.format is RulesFormat.SARIF:
        screen.document(render_sarif(report, show_args=options.show_args))
    else:
        tell()


async def _judge(
    place: StorePlace,
    runs: Sequence[str],
    choose: Choice,
    counts: _Hits | _Comparison,
    trouble: Problems,
    *,
    everything: bool,
) -> None:
    async with locations.reading(place) as store:
        sizes = await choose_runs(store, runs, trouble, everything=everything)
        sizes = sizes if runs else await without_grown(store, sizes)
        with progress("judging", sum(size for _, size in sizes)) as step:
            for run, size in sizes:
                try:
                    counts.add(await run_follower(CallJudge(choose), store, run))
                except UnknownSettings as error:
                    counts.found.unread[str(error)] += 1
                except (RefoldError, Inconclusive) as error:
                    trouble.add(run, error)
                    counts.found.unread["the log is damaged or from a newer refold"] += 1
                step(size)
