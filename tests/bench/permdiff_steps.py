"""What permdiff takes for the same question: two versions of a policy over the same sessions, with its own
importer, its engine for Python policies, its report, and no network. Runs in an environment of its own.

Its rules are as its examples write them: globs over the tool's name, and a function over the arguments. They
search the whole script, so they are less work than to judge each command of it.
"""

import logging
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

# A script's own folder is on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from permdiff.api import diff_sources, load_traces
from permdiff.policy.source import DirectorySource

from bench.memory import peak
from bench.serving import serve
from bench.sessions import RULES

_HEAD = """
import re
from permdiff.demo.engine import Rule

_FIELDS = {"command": "command", "path": "file_path", "host": "url"}
_EFFECTS = {"refuse": "deny", "ask": "require_approval", "permit": "allow"}


def _when(kind, glob):
    found = re.compile(re.escape(glob).replace(r"\\*\\*", ".*").replace(r"\\*", ".*"))
    return lambda call: found.search(str((call.arguments or {}).get(_FIELDS[kind], ""))) is not None


DEFAULT = "allow"
RULES = tuple(
    Rule(tool=tool, effect=_EFFECTS[effect], when=_when(*condition), reason=say)
    for effect, tool, condition, say in __RULES__
)
"""


def diff(folder: str) -> dict[str, Any]:
    """No rules against the rules, over all sessions; `read` are the seconds of them for reading."""
    base, head = Path(folder, "base"), Path(folder, "head")
    for place, text in (
        (base, 'DEFAULT = "allow"\nRULES = ()\n'),
        (head, _HEAD.replace("__RULES__", repr(RULES))),
    ):
        place.mkdir(exist_ok=True)
        (place / "rules.py").write_text(text)
    begun = time.process_time()
    traces = load_traces([f"{folder}/sessions/*.jsonl"], fmt="claude-code", max_records=10**9)
    read = time.process_time() - begun
    report = diff_sources(
        traces=traces.calls,
        base=DirectorySource(base, "base"),
        head=DirectorySource(head, "head"),
        policy_path="policy",
        engine="python:permdiff.demo.engine:evaluate",
        import_stats=traces.stats,
    )
    seconds = time.process_time() - begun
    found = {str(kind): count for kind, count in report.counts.by_class.items()}
    return {"seconds": seconds, "read": read, "peak": peak(), "calls": len(traces.calls), "found": found}


if __name__ == "__main__":
    logging.disable()
    serve({"permdiff": version("permdiff")}, {"diff": diff})
