"""What rules over arguments say of transcripts, held against a naive search of the recorded calls with
Python's `re`.

`python tests/support/pattern_figures.py FOLDER...` prints the table for all transcripts in folders, by
default those of the tests.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers.errors import RefoldError
from refold.reducers.events import Event, ModelResponded
from refold.reducers.parser import parse
from refold.reducers.source_marks import UNNAMED
from refold.replay.reader import follow_all
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict, WhatIf
from support.following import unchained
from support.transcripts import FOLDER, salts

PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "rm -rf": r"\brm\s+-(\w*r\w*f|\w*f\w*r)",
        "git push": r"git\s+push",
        "curl | sh": r"(curl|wget)\b.*\|\s*(ba)?sh",
        ".env": r"\.env\b",
    }
)
FIELDS = (None, "command", "cmd")


class Rule(NamedTuple):
    """A pattern by its name, and the field in which it is looked for; None: in all texts."""

    name: str
    field: str | None


RULES = tuple(Rule(name, field) for field in FIELDS for name in PATTERNS)


class Row(NamedTuple):
    """What a rule says of a run, and the first event with a call that holds the pattern; 0: there is none."""

    rule: Rule
    found: WhatIf
    truth: int

    @property
    def outcome(self) -> str:
        """The verdict, and whether it is right."""
        match self.found.verdict:
            case Verdict.STOPS:
                return "STOPS right" if self.found.fact == self.truth else "STOPS false"
            case Verdict.AGREE:
                return "AGREES false" if self.truth else "AGREES right"
            case Verdict.DIVERGES:
                return "DIVERGES"
            case Verdict.INCONCLUSIVE:
                # Before a call that holds the pattern there may be one of which nobody knows it.
                return (
                    "inconclusive" if not self.truth or self.found.fact <= self.truth else "inconclusive late"
                )


def judged(source: Source, rules: Sequence[Rule] = RULES) -> Iterator[Row]:
    """What each rule says of each run of a source."""
    policies = [_policy(rule) for rule in rules]
    for run in Transcript(source, importer(detect_format(source).format)).runs():
        events = [each.event for group in run.derive(salts) for each in group]
        comparisons = [Comparison(run.run, policy) for policy in policies]
        follow_all(unchained(events), *comparisons)
        for rule, comparison in zip(rules, comparisons, strict=True):
            yield Row(rule, comparison.result(), first_call(events, rule))


def _policy(rule: Rule) -> Any:
    guard = {"guard": "arguments", "matches": PATTERNS[rule.name], "field": rule.field, "then": "stop"}
    return parse({"preset": "observed", "guards": [guard]})


def first_call(events: Sequence[Event], rule: Rule) -> int:
    """The number of the first event with a call whose arguments hold the pattern; 0: there is none."""
    pattern = re.compile(PATTERNS[rule.name])
    for seq, event in enumerate(events, 1):
        if isinstance(event, ModelResponded) and event.content is not None:
            for call, arguments in zip(event.calls, event.content.arguments, strict=True):
                known = call.complete and call.name and call.name != UNNAMED
                if known and any(pattern.search(text) for text in _texts(arguments, rule.field)):
                    return seq
    return 0


def _texts(arguments: str, field: str | None) -> Iterator[str]:
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        yield arguments
    elif field is None:
        for each in value.values():
            yield from _strings(each)
    elif field in value:
        yield from _strings(value[field])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        with suppress(ValueError):
            inner = json.loads(value)
            yield from _strings(inner) if isinstance(inner, dict | list) else ()
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
        if all(isinstance(each, str) for each in value):
            yield " ".join(value)


def _main(folders: Sequence[str]) -> None:
    counts: dict[Rule, Counter[str]] = {rule: Counter() for rule in RULES}
    why = Counter[str]()
    files = [file for folder in folders for file in sorted(Path(folder).rglob("*")) if file.is_file()]
    read = 0
    for file in files:
        try:
            with file.open("rb") as opened:
                for row in judged(Source.opened(file.name, opened)):
                    counts[row.rule][row.outcome] += 1
                    if "false" in row.outcome or "late" in row.outcome:
                        print(file, row.rule, row.outcome, row.found.fact, row.truth, row.found.why)
                    if row.found.verdict is Verdict.INCONCLUSIVE and row.rule == RULES[0]:
                        why[row.found.why] += 1
            read += 1
        except RefoldError:  # a manifest, or no transcript
            continue
    heads = (
        "STOPS right",
        "STOPS false",
        "AGREES right",
        "AGREES false",
        "inconclusive",
        "inconclusive late",
    )
    print(f"{read} transcripts of {len(files)} files")
    print(f"| field | pattern | {' | '.join(heads)} |")
    for rule, counted in counts.items():
        print(f"| {rule.field or 'any'} | {rule.name} | {' | '.join(str(counted[head]) for head in heads)} |")
    print(*why.most_common(), sep="\n")


if __name__ == "__main__":
    _main(sys.argv[1:] or [str(FOLDER)])
