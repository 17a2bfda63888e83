"""What each command of the console costs: CPU seconds and peak memory of a whole process, on a small store
and on a large one.

What is measured is listed by the console itself: a command without an entry in `USES` fails a test, and so
cannot be forgotten.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.big_run import write
from refold.console.app import COMMANDS
from refold.console.main import main as console
from refold.engine import Agent, ScriptedModel, calls, todos

ROOT = Path(__file__).parents[2]
TRANSCRIPTS = ROOT / "tests" / "transcripts"
FEW = (
    "claude_code/tiny-1.0.jsonl.zst",
    "claude_code/interrupted.jsonl.zst",
    "claude_code/cut-in-thinking.jsonl.zst",
)
"""The transcripts of the small store."""
MESSAGES = 130_000
"""Of the long run of the large store: 340,000 events."""
RUN, WAITS, LONG = "claude_code-3de22178448c72c7", "waits", "bench"
"""A run of both stores, one of the small that waits for a person, and the long one of the large."""
PATIENCE = 600
"""Seconds of a processor that a command may take."""


class Use(NamedTuple):
    """How a command is typed on the small store and on the large one; "" where it is not measured there,
    which `why` says.

    FILE is a file that is not there yet, KEY, BUNDLE and FOLDER are what their names say.
    """

    small: str = ""
    large: str = ""
    why: str = ""


USES = {
    "run": Use("run TASK --model openai:gpt-5-mini --detach"),
    "resume": Use("resume WAITS --detach"),
    "approvals": Use("approvals", "approvals"),
    "approve": Use("approve WAITS --all --detach"),
    "reject": Use("reject WAITS --all --detach"),
    "edit": Use("edit WAITS c1 --arguments {} --detach"),
    "cancel": Use("cancel WAITS"),
    "doubts": Use("doubts", "doubts"),
    "resolve": Use(why="needs a call in doubt, and then does what `edit` does"),
    "worker": Use("worker --until-idle"),
    "fork": Use("fork WAITS --model openai:gpt-5-mini --detach"),
    "ls": Use("ls", "ls --most 200"),
    "show": Use("show RUN", "show LONG"),
    "view": Use("view RUN", "view LONG"),
    "state": Use("state RUN", "state LONG"),
    "why": Use("why RUN", "why LONG"),
    "diff": Use("diff RUN WAITS", "diff LONG RUN"),
    "graph": Use("graph"),
    "grep": Use("grep type:tool RUN", "grep --count type:tool LONG"),
    "stats": Use("stats RUN", "stats LONG"),
    "whatif": Use("whatif RUN --policy guardrails", "whatif LONG --policy guardrails"),
    "rules": Use("rules RUN --policy RULES", "rules LONG --policy RULES"),
    "touched": Use("touched RUN", "touched LONG"),
    "bisect": Use("bisect RUN --when steps>=3", "bisect LONG --when steps>=40000"),
    "blame": Use("blame RUN steps", "blame LONG spent_usd"),
    "shrink": Use("shrink WAITS --when steps>=1 --out FILE"),
    "verify": Use("verify RUN", "verify LONG"),
    "audit": Use("audit RUN", "audit LONG"),
    "seal": Use("seal --key KEY", "seal --key KEY"),
    "keygen": Use("keygen FILE"),
    "testcase": Use("testcase WAITS --out test_FILE.py"),
    "report": Use(
        "report RUN --out FILE"
    ),  # a page holds its run whole: gigabytes of memory for the long one
    "export": Use("export RUN --out FILE", "export LONG --out FILE"),
    "pack": Use("pack RUN --out FILE", "pack LONG --out FILE"),
    "unpack": Use("unpack BUNDLE --out FILE"),
    "import": Use("import FOLDER/claude_code/tiny-1.0.jsonl.zst --store FILE", "import FOLDER --store FILE"),
    "erase": Use("erase RUN@e1 --why asked --yes"),
    "doctor": Use(why="its exit code over a file is not 0, and it reads what `ls` does"),
    "model fetch": Use(why="takes as long as the network does"),
    "model list": Use("model list"),
    "policy list": Use("policy list"),
    "policy show": Use("policy show hermes"),
    "policy check": Use("policy check hermes"),
    "policy import": Use("policy import --from claude:SETTINGS"),
    "policy schema": Use("policy schema"),
}
ALSO = (
    Use("--version"),
    Use("-h"),
    Use("show RUN@e5", "show LONG@e103"),
    Use("show RUN@t2", "show LONG@t40000"),
    Use("ls", "ls"),
)
"""What is asked often, and by a person who waits."""


class Cost(NamedTuple):
    """CPU seconds and peak memory in bytes of a process, and its exit code."""

    seconds: float
    peak: int
    code: int


def print_commands(rounds: int) -> None:
    """Measure all of them and print a table."""
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as name:
        folder = Path(name)
        small, large = folder / "small.db", folder / "large.db"
        fill_small(small, folder)
        print(
            f"\nWhole commands, all compiled: CPU seconds and peak memory; medians of {rounds}, once on the large store",
            flush=True,
        )
        anchor = cost([sys.executable, "-c", "import click, msgspec"], rounds)
        print(f"{'import click, msgspec':44} {anchor.seconds:8.3f} s {anchor.peak / 1e6:6.0f} MB", flush=True)
        for words in uses("small"):
            _print(words, folder, small, rounds)
        fill_large(large)
        print(
            f"{large.stat().st_size / 1e6:,.0f} MB, of the transcripts of the tests and a run of {MESSAGES:,} messages"
        )
        for words in uses("large"):
            _print(words, folder, large, 1)


def uses(store: str) -> list[str]:
    """What is typed on the small store, or on the large."""
    typed = [getattr(use, store) for use in (*ALSO, *(USES[words] for words in COMMANDS))]
    return [words for words in dict.fromkeys(typed) if words]


def _print(words: str, folder: Path, store: Path, rounds: int) -> None:
    told = measured(words, folder, store, rounds)
    odd = f"  exit code {told.code}" if told.code not in (0, 1, 125) else ""
    print(f"{words:44} {told.seconds:8.3f} s {told.peak / 1e6:6.0f} MB{odd}", flush=True)


def measured(words: str, folder: Path, store: Path, rounds: int = 1) -> Cost:
    """What a command costs; on a small store each time on a copy of it, for some commands write."""
    found = list[Cost]()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            here = Path(scratch) / "runs.db"
            small = store.name == "small.db"
            if small:
                shutil.copy(store, here)
            typed = [_meant(word, folder, Path(scratch)) for word in words.split()]
            found.append(_cost([sys.executable, "-m", "refold.console", *typed], here if small else store))
    return Cost(
        median(each.seconds for each in found), int(median(each.peak for each in found)), found[-1].code
    )


def _meant(word: str, folder: Path, scratch: Path) -> str:
    meant = {
        "RUN": RUN,
        "WAITS": WAITS,
        "LONG": LONG,
        "RULES": str(ROOT / "tests" / "support" / "rules.yaml"),
        "SETTINGS": str(ROOT / "tests" / "support" / "settings.json"),
        "KEY": str(folder / "key"),
        "BUNDLE": str(folder / "bundle.zip"),
        "FOLDER": str(TRANSCRIPTS),
        "test_FILE": str(scratch / "test_written"),
        "FILE": str(scratch / "written"),
    }
    for name, value in meant.items():
        word = word.replace(name, value)
    return word


def cost(words: list[str], rounds: int) -> Cost:
    """What a process costs, at the median."""
    found = [_cost(words, Path(os.devnull)) for _ in range(rounds + 1)][1:]
    return Cost(
        median(each.seconds for each in found), int(median(each.peak for each in found)), found[-1].code
    )


# A process of its own, for a peak counts what the process was before it became another: a copy of the one
# that measures.
_MEASURE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]),) * 2)
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=[
    (os.POSIX_SPAWN_OPEN, to, os.devnull, os.O_RDWR, 0) for to in (0, 1, 2)])
_, status, used = os.wait4(child, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024), os.waitstatus_to_exitcode(status))
"""


def _cost(words: list[str], store: Path) -> Cost:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    printed = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _MEASURE, str(PATIENCE), *words],
        env={**env, "REFOLD_STORE": str(store), "OPENAI_API_KEY": "nobody asks with it"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    seconds, peak, code = printed.split()
    return Cost(float(seconds), int(peak), int(code))


def fill_small(store: Path, folder: Path) -> None:
    """A few imported runs, and one that waits for a person; and beside it a key and a bundle."""
    _done("import", *(str(TRANSCRIPTS / each) for each in FEW), "--store", str(store))
    _wait(store)
    _done("keygen", str(folder / "key"))
    _done("pack", RUN, "--out", str(folder / "bundle.zip"), "--store", str(store))


def fill_large(store: Path) -> None:
    """All transcripts of the tests, and a run that is longer than most will be."""
    asyncio.run(write(store, MESSAGES))
    _done("import", str(TRANSCRIPTS), "--store", str(store))


def _wait(store: Path) -> None:
    model = ScriptedModel([calls(("write_todos", {"items": []}))])
    policy = {"approvals": {"chain": [{"approver": "human"}]}}
    Agent(model=model, tools=todos(), store=store, policy=policy).run_sync("Plan.", run_id=WAITS)


def _done(*words: str) -> None:
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        code = console(words)
    assert code in (0, 1), words
