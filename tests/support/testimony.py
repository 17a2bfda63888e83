"""What a log alone says of the world: whoever writes another word there, and the chain anew, tells another
story that holds together.

`TESTIMONY` is the promise turned round: nothing else in a log can be edited without `verify` or `audit`
saying so. Against an edit of what is in it a seal helps, or a line kept elsewhere.

    python tests/support/testimony.py 2000      edit logs in 2,000 places; count what is missed
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from msgspec.structs import replace

from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers.errors import RefoldError
from refold.reducers.events import DECISIONS, kind_of
from refold.store.protocol import Record
from refold.testing.strategies.driver import drive
from support import edits, golden
from support.edits import Edit, Edited, Editor
from support.forging import recorded
from support.transcripts import path_of, salts

_RESULT = frozenset({"usage", "cost_nanousd", "duration", "unknown"})
_ANSWER = {
    "stop",
    "stop_raw",
    "model",
    "adapter",
    "adapter_version",
    "response_id",
    "sent",
    "retry_wait",
    "replaces_partial",
}
_FAILURE = {"failure", "status", "retry_after", "partial_calls", "replaces_partial"}
_SETUP = {
    "policy",
    "model",
    "address",
    "settings",
    "tools",
    "seed",
    "labels",
    "versions",
    "guards",
    "context",
    "worker",
}

BODY: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "run_started": frozenset(
            {*_SETUP, "unknown", "agent", "parent", "environment", "task", "no_request", "rules"}
        ),
        "run_forked": frozenset({*_SETUP, "run", "by", "results", "downtime", "unknown"}),
        "model_responded": frozenset({*_RESULT, *_ANSWER, "calls.provider_id", "calls.refused"}),
        "model_failed": frozenset({*_RESULT, *_FAILURE}),
        "tool_returned": frozenset(
            {"error", "cut", "output_bytes", "duration", "unknown", "no_request", "refused_by"}
        ),
        "doubt_resolved": frozenset({"by", "doubt", "reconciled", "unknown"}),
        "input_received": frozenset({"by", "no_request", "unknown"}),
        "approval_answered": frozenset({"by", "answers", "unknown"}),
        "context_observed": frozenset({"after", "kept", "why", "continues", "no_request", "unknown"}),
        "summary_returned": frozenset({*_RESULT, "model"}),
        "child_ended": frozenset({"run", "agent_state", "head_seq", "head_hash", "usage", "cost_nanousd"}),
        "cancel_requested": frozenset({"by", "unknown"}),
        "clock_read": frozenset({"due", "unknown"}),
        "run_resumed": frozenset({"worker", "changed", "downtime", "versions", "unattended", "unknown"}),
        "policy_amended": frozenset({"policy", "by", "guards", "unknown"}),
        "late_result": frozenset({"fact"}),
        "note_added": frozenset({"by", "seq"}),
        "diagnosed": frozenset({"code", "problem", "seq"}),
        "source_recorded": frozenset({"format", "source", "position", "seq", "what"}),
    }
)
"""By kind of fact or annotation: what of its body nothing else in the log has to agree with."""

WORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "model_failed": frozenset({"message", "partial_text"}),  # of what had arrived: white space alone
        "doubt_resolved": frozenset({"note"}),
        "cancel_requested": frozenset({"reason"}),
        "policy_amended": frozenset({"reason"}),
        "late_result": frozenset({"message", "partial_text"}),
        "note_added": frozenset({"text"}),
        "diagnosed": frozenset({"text"}),
        "source_recorded": frozenset({"text"}),
    }
)
"""By kind: words that no model is shown, no tool is given and no rule reads.

Their digest stands in the chain alone.
"""

DECIDED = frozenset(map(kind_of, DECISIONS))


def testimony(edit: Edit) -> bool:
    """Whether only the event itself says what was edited, so that another word there contradicts nothing in
    the log.
    """
    if edit.kind in DECIDED:
        return False
    within = {"body": BODY, "content": WORDS}.get(edit.part)
    if (
        within is None
    ):  # the order: what the world said, and when, is the world's to tell; a decision follows its fact
        return edit.part in ("drop", "double", "swap", "move")
    known = within.get(edit.kind, frozenset())
    return edit.path in known or edit.path.split(".")[0] in known


@cache
def logs() -> Mapping[str, tuple[Record, ...]]:
    """Whole logs: those that were recorded for ever, some that were imported, and runs driven by numbers."""
    found = {name: tuple(edits.log_of(golden.events(name))) for name in golden.names()}
    found |= {file: _imported(file) for file in _TRANSCRIPTS}
    random = Random(7)
    for number in range(60):
        picked = [random.randrange(1000) for _ in range(25)]
        log = drive(_POLICIES[number % len(_POLICIES)], picked).log
        found[f"driven {number}"] = tuple(edits.log_of(log))
    return {name: log for name, log in found.items() if not edits.told(edits.chained(log))}


_POLICIES = (
    {"schema": "refold/v1", "end_of_turn": "wait", "doubt": "ask"},
    {"schema": "refold/v1", "approvals": {"chain": [{"approver": "human", "tools": ["set", "act"]}]}},
    {"schema": "refold/v1", "history": [{"do": "summarise", "when": {"messages": 4}, "keep_last": 1}]},
    {"schema": "refold/v1", "history": [{"do": "tail", "last": 4}], "guards": [{"guard": "repetition"}]},
)
_TRANSCRIPTS = (
    "claude_code/edge-cases.jsonl",
    "codex/schema-drift.jsonl",
    "gemini_cli/two-prompts.json",
    "inspect/generated-approval-reject.eval",
)


def _imported(file: str) -> tuple[Record, ...]:
    with path_of(file).open("rb") as opened:
        source = Source.opened(file, opened)
        run = next(iter(Transcript(source, importer(detect_format(source).format)).runs()))
        log = [recorded(each.event, each.at, each.salt) for group in run.derive(salts) for each in group]
    body = json.loads(log[0].body) | {"run": edits.RUN}
    return replace(log[0], body=json.dumps(body).encode()), *log[1:]


def cut(random: Random, log: tuple[Record, ...]) -> tuple[Record, ...]:
    """The log as it was when some fact, and what was decided on it, was written last: an engine may go on
    there.
    """
    ends = [place for place, record in enumerate(log) if place and record.kind not in DECIDED]
    return log[: random.choice([*ends, len(log), len(log)])]


@cache
def _fellows() -> edits.Fellows:
    return edits.fellows(logs().values())


def editor(random: Random) -> Editor:
    """Who edits these logs."""
    return Editor(random, _fellows())


def some(random: Random, count: int, most: int = 1) -> list[tuple[tuple[Record, ...], Edited]]:
    """So many logs, each as it was and with up to `most` edits."""
    writer, names = editor(random), list(logs())
    found = list[tuple[tuple[Record, ...], Edited]]()
    while len(found) < count:
        log = cut(random, logs()[random.choice(names)])
        made = writer.edited(log, most)
        if made.edits and made.records != log:
            found.append((log, made))
    return found


def goes_on_otherwise(log: tuple[Record, ...], made: Edited) -> bool:
    """Whether an engine would do something else next, and not say that it cannot."""
    try:
        return edits.continues(edits.chained(log)) != edits.continues(made.stored())
    except RefoldError:
        return False


def main(count: int) -> int:
    """Edit, judge and count; 1 if an edit that is no testimony was told by nobody."""
    seed, began, counts = time.time_ns(), time.process_time(), Counter[str]()
    untold = list[tuple[tuple[Record, ...], Edited]]()
    for log, made in some(Random(seed), count, most=3):
        if edits.told(made.stored()):
            counts["told"] += 1
            continue
        counts["testimony"] += 1
        counts["of which what an engine does next is another"] += goes_on_otherwise(log, made)
        if not any(map(testimony, made.edits)):
            untold.append((log, made))
    print(f"{count} edited logs from seed {seed}, {time.process_time() - began:.0f} s: {dict(counts)}")
    for log, made in untold:
        print("UNTOLD", made.edits)
        differs = [pair for pair in zip(log, made.records, strict=False) if pair[0] != pair[1]]
        print(*(f"  {one}\n  {other}" for one, other in differs), sep="\n")
    return 1 if untold else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
