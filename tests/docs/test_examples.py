"""The examples: workflows whose commands exist, and a suite of tests whose failures name their causes."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from refold.console.app import COMMANDS, command_of

FILES = sorted((Path(__file__).parents[2] / "examples").rglob("*.yml"))


def steps(path: Path) -> list[str]:
    """The shell commands of a workflow."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_commands_of_a_workflow(path: Path) -> None:
    """Each `refold` in it parses."""
    lines = [part for step in steps(path) for part in re.split(r"\||&&|>", step)]
    typed = [shlex.split(line)[1:] for line in lines if line.strip().startswith("refold ")]
    assert typed
    for name, *words in typed:
        assert name in COMMANDS
        command = command_of(name)
        with click.Context(command) as context:
            command.parse_args(context, list(words))


DESK = Path(__file__).parents[2] / "examples" / "testing"
CAUSES = {
    "prompt": ["change    the system prompt differs: message 1 (system)", "+ *Find the order and refund it."],
    "tool-description": [
        "change    the description of a tool differs: tool refund",
        "+ Refund an order, in euros.",
    ],
    "argument": [
        "actual    approval_answered: user: edit c1",
        '- {"arguments":{"c1":"{\\"order\\": \\"A17\\", \\"cents\\": 3000}"}}',
        '+ {"arguments":{"c1":"{\\"order\\": \\"A17\\", \\"cents\\": 3100}"}}',
    ],
    "order": ["change    the order of the tools differs", "- find_order, refund", "+ refund, find_order"],
    "extra-call": [
        "recorded  approval_answered: user: reject c2",
        "actual    approval_answered: user: edit c2",
    ],
    "missing-call": [
        "recorded  approval_answered: user: edit c1",
        "actual    approval_answered: user: reject c1",
    ],
    "policy": [
        "recorded  approval_requested: approval requested for c1",
        "actual    call_refused: c1: rejected by no-A17",
        "reason    c1 refund `A17`, by rule no-A17 (guards[[]0[]]) `A17`",
        "cause     the policy differs: guards[[]0[]]",
    ],
    "model-settings": ["change    a model setting differs: temperature", "- 0.0", "+ 0.7"],
    "result-type": [
        "the tools do not return what was recorded",
        "change    the result of a call differs: c3 find_order",
        "- order A17 cost 3000 cents",
        '+ {"cents":3000}',
    ],
    "date": [],
}
"""By patch: the lines of the failure that name the cause; none for a change that the tests ignore."""


def suite(pytester: pytest.Pytester, patch: str = "") -> pytest.RunResult:
    """The example's tests, after a patch."""
    for name in ("desk.py", "test_desk.py"):
        shutil.copy(DESK / name, pytester.path)
    shutil.copytree(DESK / "recordings", pytester.path / "recordings")
    if patch:
        git = ["git", "apply", str(DESK / "patches" / f"{patch}.patch")]
        subprocess.run(git, cwd=pytester.path, check=True)
    return pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:asyncio", "-p", "no:cacheprovider")


def test_the_example_runs_offline(pytester: pytest.Pytester) -> None:
    """Its suite passes from its recordings in under 5 s, and says that nothing is left over."""
    ran = suite(pytester)
    ran.assert_outcomes(passed=3)
    assert 5 > ran.duration
    ran.stdout.no_fnmatch_line("refold: unused*")


@pytest.mark.parametrize("patch", CAUSES)
def test_the_cause_of_a_change_is_named(pytester: pytest.Pytester, patch: str) -> None:
    """Each patch is there, and its failure names it."""
    ran = suite(pytester, patch)
    if not CAUSES[patch]:
        ran.assert_outcomes(passed=3)
        return
    assert 1 == ran.ret
    ran.stdout.fnmatch_lines([f"*{line}" for line in CAUSES[patch]])
    ran.stdout.fnmatch_lines(["*0 live requests were attempted"])


def test_every_patch_is_tried() -> None:
    """None is left out."""
    assert {path.stem for path in (DESK / "patches").iterdir()} == CAUSES.keys()
