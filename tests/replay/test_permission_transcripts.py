"""Permission rules over every transcript, held against a few lines of Python that read the raw files.

`python tests/replay/test_permission_transcripts.py` prints the table.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the table, from outside of pytest

from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers import codec
from refold.reducers import events as ev
from refold.reducers.parser import parse
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.rule_subset import add_guards
from refold.replay.whatif.verdict import Verdict, WhatIf
from refold.store.protocol import Stored
from support.following import looked_at
from support.raw_calls import (
    Answer,
    RawCall,
    edits_path,
    find_calls,
    is_tool,
    reaches_host,
    runs_command,
)
from support.transcripts import FILES, WRITTEN, path_of, salts

EDITS = (
    "Edit",
    "MultiEdit",
    "Write",
    "write_file",
    "replace",
    "edit",
    "write",
    "create",
    "str_replace_editor",
)
SHELLS = ("Bash", "bash", "shell", "exec_command", "run_shell_command", "execute_bash")

Oracle = Callable[[RawCall], Answer]
RULES: dict[str, tuple[dict[str, Any], Oracle]] = {
    "git push, commit, checkout": (
        {"effect": "refuse", "command": ["git", ["push", "commit", "checkout"]]},
        lambda call: runs_command(call, ("git",), ("push", "commit", "checkout")),
    ),
    "rm, mv, mkdir: ask": (
        {"effect": "ask", "command": [["rm", "mv", "mkdir"]]},
        lambda call: runs_command(call, ("rm", "mv", "mkdir")),
    ),
    "edits of .py": (
        {"effect": "refuse", "tool": EDITS, "path": ["*.py"]},
        lambda call: edits_path(call, EDITS, ".py"),
    ),
    "github.com": (
        {"effect": "refuse", "host": ["github.com", "*.github.com"]},
        lambda call: reaches_host(call, "github.com"),
    ),
    "the shell": (
        {"effect": "refuse", "tool": SHELLS},
        lambda call: "yes" if is_tool(call, SHELLS) else "no",
    ),
}


def read(file: str) -> tuple[Source, str]:
    """A transcript, and its text; "" for one that is no text."""
    path = path_of(file)
    data = path.read_bytes()
    if path.suffix == ".zst":
        from backports import zstd

        data = zstd.decompress(data)
    packed = file.endswith((".eval", ".db"))
    return Source.of(Path(file).name, data), "" if packed else data.decode("utf-8", "replace")


def records(source: Source) -> Iterator[list[Stored]]:
    """The derived logs of a transcript."""
    for run in Transcript(source, importer(detect_format(source).format)).runs():
        log: list[Stored] = []
        for group in run.derive(salts):
            for each in group:
                made = codec.encode(each.event)
                stored = Stored(
                    run=run.run, seq=each.seq, at=each.at, kind=made.kind, body=made.body,
                    content=made.content, salt=each.salt, hash=b"",
                )  # fmt: skip
                log.append(stored)
        yield log


def calls_of(log: Sequence[Stored]) -> list[tuple[str, RawCall]]:
    """The calls of a log, in order, by id."""
    found: list[tuple[str, RawCall]] = []
    for stored in log:
        event = codec.decode(stored.kind, stored.body, stored.content, run=stored.run, seq=stored.seq)
        if isinstance(event, ev.ModelResponded) and event.content is not None:
            made = zip(event.calls, event.content.arguments, strict=True)
            found += [(call.id, RawCall(call.name, _parsed(text))) for call, text in made]
    return found


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def ask(log: Sequence[Stored], rule: dict[str, Any]) -> WhatIf:
    """What the rule would have done in a run."""
    change = add_guards(parse({"guards": [{"guard": "permissions", "rules": [rule]}]}))
    return looked_at(Comparison(log[0].run, change), log)


def check(file: str) -> Iterator[tuple[str, str, str]]:
    """Compare each rule over each run of a file: the rule, the verdict, and a fault or ""."""
    source, text = read(file)
    raw = {repr(call) for call in find_calls(text)} if text else set[str]()
    for log in records(source):
        calls = calls_of(log)
        for name, (rule, oracle) in RULES.items():
            found = ask(log, rule)
            answers = [oracle(call) for _, call in calls]
            yield name, str(found.verdict), _find_fault(found, calls, answers, raw)


def _find_fault(
    found: WhatIf, calls: Sequence[tuple[str, RawCall]], answers: Sequence[Answer], raw: set[str]
) -> str:
    certain = next((place for place, answer in enumerate(answers) if answer == "yes"), None)
    if found.verdict is Verdict.AGREE:
        return "" if certain is None else f"agrees, and {calls[certain]} matches"
    if found.verdict is Verdict.INCONCLUSIVE:
        return ""
    named = found.subject.call if found.subject is not None else ""
    place = next((place for place, (id_, _) in enumerate(calls) if id_ == named), None)
    if place is None:
        return f"{found.verdict} without a call: {found.why}"
    if answers[place] == "no":
        return f"{found.verdict} at {calls[place]}, which does not match"
    if raw and repr(calls[place][1]) not in raw:
        return f"{found.verdict} at {calls[place]}, which is not in the file"
    if certain is not None and certain < place:
        return f"{found.verdict} at {calls[place]}, after {calls[certain]}"
    return ""


@pytest.mark.parametrize("file", [*FILES, *WRITTEN])
def test_rules_over_a_transcript(file: str) -> None:
    """No call is refused that does not match, and none that matches is passed over."""
    assert [] == [(name, fault) for name, _, fault in check(file) if fault]


def main() -> None:
    """Print how often each verdict came out, by rule."""
    counts = Counter[tuple[str, str]]()
    for file in [*FILES, *WRITTEN]:
        for name, verdict, fault in check(file):
            counts[name, verdict] += 1
            if fault:
                print(file, name, fault[:300])
    verdicts = sorted({verdict for _, verdict in counts})
    print(f"{'rule':28}", *(f"{verdict:>13}" for verdict in verdicts))
    for name in RULES:
        print(f"{name:28}", *(f"{counts[name, verdict]:>13}" for verdict in verdicts))


if __name__ == "__main__":
    main()
