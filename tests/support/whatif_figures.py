"""What other policies would have done with the transcripts of the repository: each run under the six presets.

`python tests/support/whatif_figures.py` prints the tables of docs/explanation/what-if.md. They are never
written by themselves.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.replay.reader import follow_all
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.facts import Change
from refold.replay.whatif.rule_subset import RULES, replace_rules
from refold.replay.whatif.verdict import Totals, Verdict, totals_of
from support.following import unchained
from support.transcripts import FILES, path_of, salts

PRESETS = ("inspect-iterative", "paperbench", "guardrails", "hermes", "utah", "tirea")
CHANGES: Mapping[str, dict[str, Any]] = {
    "as they are": {},
    "with a person who goes on": {"end_of_turn": "wait"},
    "and without what they tell the model at once": {
        "end_of_turn": "wait",
        "nudge": False,
        "batch": "parallel",
    },
}
HEAD = (
    "preset",
    "AGREES",
    "STOPS",
    "cut short",
    "done sooner",
    "DIVERGES",
    "first in",
    "inconclusive",
    "saved tokens",
)
RULES_ALONE = "only their limits, guards and approvals"
TABLES = (*CHANGES, RULES_ALONE)
_ALL = tuple((name, change) for change in TABLES for name in PRESETS)


@cache
def totals() -> Mapping[tuple[str, str], Totals]:
    """The totals of all runs, by preset and change."""
    policies = {key: _asked(*key) for key in _ALL}
    found = dict.fromkeys(policies, Totals())
    for file in FILES:
        with path_of(file).open("rb") as opened:
            source = Source.opened(file, opened)
            for run in Transcript(source, importer(detect_format(source).format)).runs():
                comparisons = {key: Comparison(run.run, policy) for key, policy in policies.items()}
                derived = (each.event for group in run.derive(salts) for each in group)
                follow_all(unchained(derived), *comparisons.values())
                for key, comparison in comparisons.items():
                    found[key] += totals_of(comparison.result())
    return found


def _asked(preset: str, change: str) -> Policy | Change:
    if change == RULES_ALONE:
        return replace_rules(RULES, parse({"preset": preset}))
    return parse({"preset": preset, **CHANGES[change]})


def table(change: str) -> str:
    """The figures under one change, as a table in Markdown."""
    rows: list[Sequence[str]] = [HEAD, ("---", "--:", "--:", "---", "--:", "--:", "---", "--:", "--:")]
    rows += [_row(name, totals()[name, change]) for name in PRESETS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(name: str, found: Totals) -> Sequence[str]:
    counts = {word: str(found.verdicts.get(word, 0)) for word in Verdict}
    return (
        f"`{name}`",
        counts[Verdict.AGREE],
        counts[Verdict.STOPS],
        _listed(found.cut_short),
        str(found.done),
        counts[Verdict.DIVERGES],
        _listed(found.parted),
        counts[Verdict.INCONCLUSIVE],
        f"{found.saved.input + found.saved.output:,}",
    )


def _listed(counts: Mapping[str, int]) -> str:
    most_first = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count} `{what}`" for what, count in most_first) or "-"


if __name__ == "__main__":
    print("\n\n".join(f"### {change}\n\n{table(change)}" for change in TABLES))
