"""The example workflows: they parse, and their commands are commands of refold with options that exist."""

import re
import shlex
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
