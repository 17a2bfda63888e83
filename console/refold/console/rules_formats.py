"""Reports of `refold rules` as markdown for a pull request, and as SARIF for a code scanner.

Values of arguments are replaced by their types and lengths unless they are asked for: a report may be public,
and arguments may be secret.
"""

import json
import re
from collections.abc import Iterator, Sized
from typing import Any, cast

from refold.console.rules_reports import ComparisonReport, RulesReport
from refold.console.rules_text import GROUPS, count_kinds
from refold.replay import figures
from refold.replay.permissions.comparison import ChangeGroup, Sample

_MARK = "<!-- refold rules -->"
"""First line of a markdown report, by which a workflow finds its earlier comment."""


def render_markdown(report: RulesReport | ComparisonReport, *, show_args: bool) -> str:
    """Return a report as markdown."""
    if isinstance(report, RulesReport):
        lines = _render_hits(report)
    else:
        lines = _render_comparison(report, show_args=show_args)
    return "\n".join([_MARK, *lines, ""])


def _render_hits(report: RulesReport) -> Iterator[str]:
    yield f"## refold rules: {_code(report.policy)}"
    yield ""
    yield f"**{figures.quantity(report.runs, 'run')}, {figures.quantity(report.calls, 'call')}**"
    yield ""
    yield "| Rule | Effect | Calls | Runs | Succeeded | Failed | Refused | Not evidence |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for each in report.rules:
        hits = each.hits
        numbers = (hits.calls, hits.runs, hits.succeeded, hits.failed, hits.refused, hits.later)
        yield f"| {_code(each.rule)} | {each.effect} | {' | '.join(map(str, numbers))} |"
    yield ""
    yield from _render_doubts(report)
    yield from (f"- note: {_code(note)}" for note in report.notes)


def _render_comparison(report: ComparisonReport, *, show_args: bool) -> Iterator[str]:
    yield f"## refold rules: {_code(report.old)} → {_code(report.new)}"
    yield ""
    yield f"**{figures.quantity(report.runs, 'run')}, {figures.quantity(report.calls, 'call')}**"
    yield ""
    yield "| Change | Calls | Widening |"
    yield "|---|---:|---:|"
    for kind, (calls, widening) in count_kinds(report.groups).items():
        yield f"| {kind} | {calls} | {f'⚠ {widening}' if widening else ''} |"
    yield f"| unchanged | {report.unchanged} | |"
    yield f"| not evidence (after a refused call) | {report.later} | |"
    yield ""
    for group in report.groups[:GROUPS]:
        yield from _render_group(group, show_args=show_args)
    if len(report.groups) > GROUPS:
        yield f"{len(report.groups) - GROUPS} more groups are in the JSON report."
        yield ""
    for edit in report.edits:
        doubt = " ⚠ may widen, and no recorded call shows how" if edit in report.unproved else ""
        verb = "added" if edit.added else "removed"
        yield f"- {verb}: {edit.effect} {_code(edit.rule)}{doubt}"
    yield from _render_doubts(report)
    if report.allowed:
        yield f"- widening is allowed, because: {_code(report.allowed)}"
    yield from (f"- note: {_code(note)}" for note in report.notes)


def _render_group(group: ChangeGroup, *, show_args: bool) -> Iterator[str]:
    mark = "⚠ widening · " if group.is_widening else ""
    calls = figures.quantity(group.calls, "call")
    yield "<details>"
    yield f"<summary>{mark}{group.kind} · {_escape(group.tool)} · {calls}, {group.later} not evidence</summary>"
    yield ""
    yield f"{group.old} {_code(group.old_rule or '-')} → {group.new} {_code(group.new_rule or '-')}"
    if group.why:
        yield ""
        yield f"Reason: {_code(group.why)}"
    yield ""
    yield "| Call | Arguments |"
    yield "|---|---|"
    for sample in group.samples:
        yield f"| {_code(sample.address)} | {_code(describe_arguments(sample, show_args=show_args))} |"
    yield ""
    yield "</details>"
    yield ""


def _render_doubts(report: RulesReport | ComparisonReport) -> Iterator[str]:
    unknown = report.unknown if isinstance(report, RulesReport) else {}
    for name, counts, noun in (
        ("unknown", unknown, "call"),
        ("incomplete", report.incomplete, "run"),
        ("not judged", report.unread, "run"),
    ):
        for why, count in counts.items():
            yield f"- {name}: {figures.quantity(count, noun)}: {_code(why)}"
    if report.erased:
        yield f"- erased: {figures.quantity(report.erased, 'call')}"


def describe_arguments(sample: Sample, *, show_args: bool) -> str:
    """Return the arguments of a call, with types and lengths in place of values unless they are shown."""
    if show_args:
        return figures.shorten(sample.arguments, 300)
    try:
        arguments = json.loads(sample.arguments)
    except (ValueError, RecursionError):
        return f"<text:{len(sample.arguments)}>"
    if not isinstance(arguments, dict):
        return _describe(arguments)
    named = cast("dict[str, object]", arguments).items()
    listed = [f"{figures.shorten(key, 40)}: {_describe(value)}" for key, value in named]
    return f"{{{', '.join(listed[:12])}{', …' if len(listed) > 12 else ''}}}"


def _describe(value: object) -> str:
    length = f":{len(value)}" if isinstance(value, Sized) else ""
    return f"<{type(value).__name__}{length}>"


def _code(text: str) -> str:
    """Return a text as inline code in a table cell: it is not read as markdown or HTML."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    escaped = plain.replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", escaped)), default=0) + 1)
    space = " " if "`" in escaped else ""
    return f"{fence}{space}{escaped}{space}{fence}" if escaped else ""


def _escape(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PLACE = re.compile(r"\((?P<file>[^()]+):(?P<line>[1-9][0-9]{0,8})\)(?: \[\d+\])?$")


def render_sarif(report: RulesReport | ComparisonReport, *, show_args: bool) -> dict[str, Any]:
    """Return a report as a SARIF 2.1.0 log with one run. Source: the OASIS standard SARIF 2.1.0."""
    if isinstance(report, RulesReport):
        results = _hit_results(report)
    else:
        results = _change_results(report, show_args=show_args)
    listed = list(results)
    driver = {
        "name": "refold",
        "informationUri": "https://pypi.org/project/refold/",
        "rules": [
            {"id": name, "shortDescription": {"text": text}}
            for name, text in _SARIF_RULES.items()
            if any(result["ruleId"] == name for result in listed)
        ],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": listed}]}


_SARIF_RULES = {
    "widening": "New rules restrict a recorded call less.",
    "changed-decision": "New rules decide a recorded call differently.",
    "inconclusive": "What rules decide on a recorded call is unknown.",
    "refused-success": "A rule refuses recorded calls that succeeded.",
    "never-hit": "A rule decides no recorded call.",
    "shadowed": "Another rule always decides first.",
}


def _change_results(report: ComparisonReport, *, show_args: bool) -> Iterator[dict[str, Any]]:
    for group in report.groups:
        unsure = "unknown" in (group.old, group.new)
        name = "inconclusive" if unsure else "widening" if group.is_widening else "changed-decision"
        samples = "; ".join(
            f"{sample.address} {describe_arguments(sample, show_args=show_args)}" for sample in group.samples
        )
        text = (
            f"{group.kind}: {figures.quantity(group.calls, 'call')} of {group.tool}, {group.old} → {group.new}"
            f" ({samples})"
        )
        level = "note" if name == "changed-decision" else "warning"
        yield _sarif_result(name, level, text, group.new_rule or group.old_rule)
    for edit in report.unproved:
        text = f"{edit.effect} {edit.rule} may widen, and no recorded call shows how".strip()
        yield _sarif_result("inconclusive", "warning", text, edit.rule)


def _hit_results(report: RulesReport) -> Iterator[dict[str, Any]]:
    for each in report.rules:
        if each.shadowed_by:
            text = f"{each.rule} never decides: {each.shadowed_by} decides first"
            yield _sarif_result("shadowed", "warning", text, each.rule)
        elif not (each.hits.calls or each.hits.later or each.opaque):
            yield _sarif_result("never-hit", "note", f"{each.rule} decides no recorded call", each.rule)
        elif each.effect == "refuse" and each.hits.succeeded:
            calls = figures.quantity(each.hits.succeeded, "call")
            text = f"{each.rule} refuses {calls} that succeeded, first {each.hits.sample}"
            yield _sarif_result("refused-success", "warning", text, each.rule)
    for why, count in report.unknown.items():
        text = f"{figures.quantity(count, 'call')} cannot be judged: {why}"
        yield _sarif_result("inconclusive", "warning", text, "")


def _sarif_result(name: str, level: str, text: str, rule: str) -> dict[str, Any]:
    result: dict[str, Any] = {"ruleId": name, "level": level, "message": {"text": text}}
    if place := _PLACE.search(rule):
        region = {"startLine": int(place["line"])}
        artifact = {"uri": _uri(place["file"])}
        result["locations"] = [{"physicalLocation": {"artifactLocation": artifact, "region": region}}]
    return result


def _uri(file: str) -> str:
    from urllib.parse import quote

    path = file.replace("\\", "/")
    return f"file://{quote(path)}" if path.startswith("/") else quote(path)
