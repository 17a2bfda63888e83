"""Mutate the limits, guards and recoveries, and name the mutants that no test notices: `make mutants`.

    python tests/mutation/run.py [WORD ...]     only the modules whose path holds one of the words

Each comparison becomes its neighbour (`>=`: `>`) and its opposite (`<`), each number one more and one less. A
mutant is shown to the tests that are about its module, and if it survives them to all of `tests/reducers`. Exits
with 0 if each died or is in `explained.txt`, 1 if not, 2 if the tests fail before anything is changed.

The tool is cosmic-ray. It writes each mutant over the file, so that happens in a copy of the sources.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("reducers", "store", "engine", "replay", "console")
MODULES = Path("reducers/refold/reducers")
TESTS = Path("tests/reducers")
EXPLAINED = Path(__file__).with_name("explained.txt")
# The other replacements (`>=` to `==`, `<` to `is`) are left out: they take three times as long and say little more.
CONFIGURATION = """\
[cosmic-ray]
module-path = ["{path}"]
timeout = 900.0
excluded-modules = []
test-command = {command}

[cosmic-ray.distributor]
name = "local"

[cosmic-ray.filters.operators-filter]
exclude-operators = [
  "core/(?!NumberReplacer$|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt)$)",
]
"""
HEADS = ("+++", "---")

ABOUT = {
    "limits.py": "limits limits_of_time refused_policies checking parsing stopping presets mutants_bounds",
    "meters.py": "limits limits_scopes limits_of_time mutants_limits taken_up grace retry_rules recoveries",
    "retry.py": "retry retry_rules mutants_bounds broken_streams refused_policies",
    "history/when.py": "history summaries",
    "rules/limits.py": "limits limits_of_time mutants_limits grace stopping failures",
    "rules/near_limits.py": "limits_near mutants_recoveries pressure nudge_progress",
    "rules/recoveries.py": "recoveries truncation broken_streams turns mutants_recoveries overflow retry_rules",
    "rules/failures.py": "retry_rules broken_streams mutants_recoveries grace recoveries",
    "rules/reminders.py": "pressure nudge_progress mutants_recoveries overflow",
    "guards/approvals.py": "approvals approvals_at_work mutants_guards",
    "guards/common.py": "guards_batches guards_calls guards_premature_end guards_stall repetition",
    "guards/duty.py": "guarding mutants_guards guards_at_work guards_laws",
    "guards/repetition.py": "repetition guards_batches mutants_guards",
    "guards/stall.py": "guards_stall guards_stall_acts mutants_guards",
}
"""The tests about a module. Those of a guard that is not named are about batches or about calls."""


def main(words: list[str]) -> int:
    """Mutate module after module, print a line for each, and the mutants that survived unexplained."""
    explained = set(EXPLAINED.read_text(encoding="utf-8").splitlines())
    unexplained = 0
    with tempfile.TemporaryDirectory(prefix="refold-mutants-") as folder:
        copy = _copied(Path(folder))
        for module in [each for each in _modules() if not words or any(word in each for word in words)]:
            before = subprocess.run(
                _tests(module), cwd=copy, env=_environment(copy), check=False, capture_output=True, text=True
            )
            if before.returncode:
                print(f"{before.stdout}{module}: its tests fail before anything is changed", file=sys.stderr)
                return 2
            mutants = list(_mutants(copy, module))
            survived = [said for said, outcome in mutants if outcome == "survived"]
            left = [said for said in survived if said not in explained]
            unexplained += len(left)
            print(
                f"{module}: {len(mutants)} mutants, {len(survived)} survived, {len(left)} unexplained",
                flush=True,
            )
            print(*left, sep="\n", end="\n" if left else "", flush=True)
    return 1 if unexplained else 0


def _modules() -> list[str]:
    guards = sorted(path.name for path in (ROOT / MODULES / "guards").glob("*.py"))
    return [*ABOUT, *(f"guards/{name}" for name in guards if f"guards/{name}" not in ABOUT)]


def _tests(module: str) -> list[str]:
    named = ABOUT.get(
        module, "guards_batches guards_premature_end guards_calls mutants_guards guards_at_work"
    )
    files = [f"{TESTS}/test_{name}.py" for name in named.split()]
    return [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]


def _mutants(copy: Path, module: str) -> Iterator[tuple[str, str]]:
    """Each mutant as `MODULE: OLD LINE => NEW LINE`, and what became of it: `killed` or `survived`."""
    name = module.replace("/", "-")
    configuration, session = f"{name}.toml", f"{name}.sqlite"
    every = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(TESTS)]
    command = shlex.join(["sh", "-c", f"{shlex.join(_tests(module))} && {shlex.join(every)}"])
    (copy / configuration).write_text(
        CONFIGURATION.format(path=MODULES / module, command=json.dumps(command))
    )
    for verb in (
        ("cosmic_ray.cli", "init", configuration, session),
        ("cosmic_ray.tools.filters.operators_filter", session, configuration),
        ("cosmic_ray.cli", "exec", configuration, session),
    ):
        subprocess.run([sys.executable, "-m", *verb], cwd=copy, env=_environment(copy), check=True)
    dump = [sys.executable, "-m", "cosmic_ray.cli", "dump", session]
    for line in subprocess.run(
        dump, cwd=copy, check=True, capture_output=True, text=True
    ).stdout.splitlines():
        result = json.loads(line)[1]
        if result["worker_outcome"] != "skipped":
            yield f"{module}: {_change(result['diff'])}", result["test_outcome"]


def _change(diff: str) -> str:
    changed = [line[1:].strip() for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in HEADS]
    return " => ".join(changed)


def _copied(folder: Path) -> Path:
    for name in (*ROOTS, "tests", "docs", "pyproject.toml", "README.md"):
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        else:
            shutil.copy(source, target)
    return folder


def _environment(copy: Path) -> dict[str, str]:
    # The copy comes before the editable installation; bytecode is not written, or a mutant could be taken for another.
    roots = os.pathsep.join(str(copy / root) for root in ROOTS)
    return {**os.environ, "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
