"""Mutate the modules in which a fault does harm, and list the mutants that no test notices: `make mutants`.

    python tests/mutation/run.py [--sample=N] [WORD ...]     only modules whose path contains one of the words

The modules are those of limits, guards and recoveries, and of store, engine and whatif those in `ABOUT`. Each
comparison becomes its neighbour (`>=`: `>`) and its opposite (`<`), each number one more and one less;
outside the reducers `and` also becomes `or`, True becomes False, and conditions are negated. The tests about
a module run on each mutant; one of the reducers that survives them runs all of `tests/reducers`. With
`--sample`, N mutants of each module are tried, the same ones each time. Exits with 0 if each died or is in
`explained.txt`, 1 if not, 2 if the tests fail before anything is changed.

The tool is cosmic-ray. It writes each mutant over the file, so that happens in a copy of the sources.
"""

import importlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("reducers", "store", "engine", "importers", "replay", "testing", "console")
MODULES = Path("reducers/refold/reducers")
TESTS = Path("tests/reducers")
EXPLAINED = Path(__file__).with_name("explained.txt")
# The other replacements (`>=` to `==`, `<` to `is`) are left out: they take three times as long and say
# little more.
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
  "core/(?!{operators}NumberReplacer$|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt)$)",
]
"""
LOGIC = "AddNot$|ReplaceAndWithOr$|ReplaceOrWithAnd$|ReplaceTrueWithFalse$|ReplaceFalseWithTrue$|ReplaceUnaryOperator_Delete_Not$|"
"""What is changed besides, outside the reducers: there most decisions are conditions, not thresholds."""
HEADS = ("+++", "---")

ABOUT = {
    "limits.py": "limits limits_of_time refused_policies checking parsing stopping presets mutants_bounds",
    "meters.py": "limits limits_scopes limits_of_time mutants_limits taken_up grace retry_rules recoveries",
    "failures.py": "retry retry_rules mutants_bounds broken_streams refused_policies",
    "history/strategy.py": "history summaries",
    "rules/limits.py": (
        "limits limits_of_time mutants_limits grace stopping failures limits_near "
        "mutants_recoveries pressure nudge_progress"
    ),
    "rules/failures.py": (
        "recoveries truncation broken_streams turns mutants_recoveries overflow retry_rules grace"
    ),
    "rules/requests.py": "pressure nudge_progress mutants_recoveries overflow",
    "guards/approvals.py": "approvals approvals_at_work mutants_guards",
    "guards/protocol.py": "guards_batches guards_calls guards_premature_end guards_stall repetition",
    "guards/duty.py": "guarding mutants_guards guards_at_work guards_laws",
    "guards/progress.py": "repetition guards_batches mutants_guards guards_stall guards_stall_acts",
    "store/chain.py": "store/chain store/damaged_files store/hidden_rows store/conformance",
    "store/base.py": "store/conformance",
    "store/readable.py": "store/conformance store/erasing store/forks_stored",
    "store/tables.py": "store/conformance store/sqlite store/damaged_files store/forks_stored console/lost_rows",
    "store/group_commit.py": "store/conformance store/committer store/commits_here",
    "store/wal.py": "store/hidden_rows store/wal",
    "store/rows.py": "store/hidden_rows store/damaged_files store/conformance",
    "store/seals.py": "store/seals replay/seals_checked",
    "engine/compatibility.py": "engine/resuming engine/starting engine/third_party_guards",
    "engine/tenure.py": (
        "engine/holders engine/leases engine/holding_a_run engine/contention engine/workers engine/cut_off"
    ),
    "engine/journal.py": "engine/resuming engine/forged_snapshots engine/leases engine/long_runs",
    "engine/service.py": "engine/leftovers engine/doubts engine/forks_live engine/resuming",
}
"""The tests about a module, `test_NAME.py` each.

Those of a guard that is not named are about batches or about calls.
"""
WHATIF = "replay/whatif/"
SLOW = ("test_whatif_law", "test_whatif_figures")
"""Tests of whatif over all transcripts: minutes for each mutant. The search for unsound verdicts comes last.
"""


def main(words: list[str]) -> int:
    """Mutate module after module, print a line for each, and the mutants that survived unexplained."""
    sample = next((int(word.partition("=")[2]) for word in words if word.startswith("--sample=")), None)
    words = [word for word in words if not word.startswith("--")]
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
            mutants = list(_mutants(copy, module, sample))
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
    whatif = sorted(path.name for path in (ROOT / module_path(WHATIF)).glob("[!_]*.py"))
    return [
        *ABOUT,
        *(f"guards/{name}" for name in guards if f"guards/{name}" not in ABOUT),
        *(f"{WHATIF}{name}" for name in whatif),
    ]


def module_path(module: str) -> Path:
    """The module's file: a short name is one of the reducers, another begins with its package."""
    package = module.partition("/")[0]
    return Path(package, "refold", module) if package in ROOTS else MODULES / module


def _files(module: str) -> list[str]:
    """The files of the tests about a module."""
    if module.startswith(WHATIF):
        found = sorted(
            (ROOT / "tests/replay").glob("test_whatif*.py"), key=lambda path: ("soundness" in path.name, path)
        )
        return [str(path.relative_to(ROOT)) for path in found if path.stem not in SLOW]
    named = ABOUT.get(
        module, "guards_batches guards_premature_end guards_calls mutants_guards guards_at_work"
    )
    paths = [Path("tests") / name if "/" in name else TESTS / name for name in named.split()]
    return [str(path.with_name(f"test_{path.name}.py")) for path in paths]


def _tests(module: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *_files(module)]


def _mutants(copy: Path, module: str, sample: int | None) -> Iterator[tuple[str, str]]:
    """Each mutant as `MODULE: OLD LINE => NEW LINE`, and what became of it: `killed` or `survived`."""
    name = module.replace("/", "-")
    configuration, session = f"{name}.toml", f"{name}.sqlite"
    command, operators = shlex.join(_tests(module)), LOGIC
    if module_path(module).is_relative_to(MODULES):
        every = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(TESTS)]
        command, operators = shlex.join(["sh", "-c", f"{command} && {shlex.join(every)}"]), ""
    (copy / configuration).write_text(
        CONFIGURATION.format(path=module_path(module), command=json.dumps(command), operators=operators)
    )
    for verb in (
        ("cosmic_ray.cli", "init", configuration, session),
        ("cosmic_ray.tools.filters.operators_filter", session, configuration),
    ):
        subprocess.run([sys.executable, "-m", *verb], cwd=copy, env=_environment(copy), check=True)
    if sample is not None:
        _skip_others(copy / session, sample)
    execute = [sys.executable, "-m", "cosmic_ray.cli", "exec", configuration, session]
    subprocess.run(execute, cwd=copy, env=_environment(copy), check=True)
    dump = [sys.executable, "-m", "cosmic_ray.cli", "dump", session]
    for line in subprocess.run(
        dump, cwd=copy, check=True, capture_output=True, text=True
    ).stdout.splitlines():
        result = json.loads(line)[1]
        if result["worker_outcome"] != "skipped":
            yield f"{module}: {_change(result['diff'])}", result["test_outcome"]


def _skip_others(session: Path, sample: int) -> None:
    """Leave so many mutants of the session to be tried, the same ones each time."""
    database, item = (importlib.import_module(f"cosmic_ray.{name}") for name in ("work_db", "work_item"))
    with database.use_db(str(session), database.WorkDB.Mode.open) as opened:
        jobs = sorted(
            (str(mutation.start_pos), mutation.operator_name, mutation.occurrence, each.job_id)
            for each in opened.pending_work_items
            for mutation in each.mutations[:1]
        )
        random.Random(0).shuffle(jobs)
        for *_, job in jobs[sample:]:
            opened.set_result(job, item.WorkResult(output="", worker_outcome=item.WorkerOutcome.SKIPPED))


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
    # The copy comes before the editable installation; bytecode is not written, or a mutant could be taken for
    # another.
    roots = os.pathsep.join(str(copy / root) for root in ROOTS)
    return {**os.environ, "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
