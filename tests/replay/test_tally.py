"""What the calls of a run changed, in a line: what counts as a change, what is named first, and what is never
folded.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.console.main import main
from refold.reducers.vocabulary import ToolError
from refold.replay.kinds.arguments import effect_of, is_harmful
from refold.replay.timeline import CallRow, EffectCounter, Effects, TurnRow

SESSIONS = Path(__file__).parents[1] / "transcripts" / "claude_code"


def counted(*calls: tuple[str, str], result: str = "ok") -> Effects:
    """Count calls of `name` with a `command`, each an event of one turn, all with the same result."""
    rows = tuple(
        CallRow(
            id=f"c{seq}",
            name=name,
            argument=command,
            result=result,
            failed=result in ("raised", "timeout") or None,
            seq=seq,
            effect=effect_of(name, f'{{"command": "{command}"}}'),
        )
        for seq, (name, command) in enumerate(calls, 1)
    )
    counter = EffectCounter()
    counter.take(TurnRow(step=1, first=1, last=len(rows), at=0, calls=rows))
    return counter.result()


@pytest.mark.parametrize(
    ("result", "line"),
    [
        pytest.param("ok", "1 git push", id="it returned"),
        pytest.param("unmarked", "1 git push", id="it returned, how is not recorded"),
        pytest.param("happened", "1 git push", id="an operator knows that it happened"),
        pytest.param(ToolError.RAISED, "1 git push (1 failed)", id="it ran and failed"),
        pytest.param(ToolError.TIMEOUT, "1 git push (1 failed)", id="it ran too long"),
        pytest.param(ToolError.CANCELLED, "1 call not known to have run", id="cancelled"),
        pytest.param(ToolError.IN_DOUBT, "1 call not known to have run", id="in doubt, as its result has it"),
        pytest.param("doubted", "1 call not known to have run", id="in doubt"),
        pytest.param("unknown", "1 call not known to have run", id="an operator does not know either"),
        pytest.param("open", "1 call not known to have run", id="no result yet"),
        pytest.param("not_recorded", "1 call not known to have run", id="the source has no result"),
        pytest.param("refused", "nothing", id="refused"),
        pytest.param("waiting", "nothing", id="waiting for approval"),
        pytest.param(ToolError.BAD_ARGUMENTS, "nothing", id="the tool did not take it"),
        pytest.param(ToolError.UNKNOWN_TOOL, "nothing", id="there is no such tool"),
    ],
)
def test_only_calls_that_surely_ran_are_changes(result: str, line: str) -> None:
    """One row a result: a call counts as a change only where it is known to have run."""
    assert line == str(counted(("Bash", "git push"), result=result))


def test_a_cancelled_call_that_only_reads_is_not_in_doubt() -> None:
    """Whether a reading call ran or not, it changed nothing; of an unknown tool it is unknown anyway."""
    assert "nothing" == str(counted(("Read", ""), result="cancelled"))
    assert "1 call unknown" == str(counted(("python_repl", ""), result="cancelled"))


def test_harm_is_first_and_never_folded() -> None:
    """However many edits there are, commands that reach outside or destroy stand before them, each by its
    name.
    """
    often = [("edit", "")] * 146 + [
        ("Bash", f"{each} x") for each in ("cp", "mv", "touch", "mkdir", "ln", "tee", "patch")
    ] * 3
    harm = ["git push", "git tag v1", "npm install", "rm -rf x", "git reset --hard", "chmod 777 x", "git clean -f", "git stash drop", "kill 1"]  # fmt: skip
    line = str(counted(*often, *(("Bash", each) for each in harm)))
    assert (
        "1 git push, 1 git tag, 1 npm install, 1 rm, 1 git reset, 1 chmod, 1 git clean, 1 git stash drop, 1 kill, 146 edit, "
        in line
    )
    assert line.endswith(" other changes")


@pytest.mark.parametrize(
    ("command", "what"),
    [
        pytest.param("git push --force", "git push --force", id="a forced push"),
        pytest.param("git push -f origin main", "git push -f", id="by its short option"),
        pytest.param("git push --force-with-lease", "git push --force-with-lease", id="with a lease"),
        pytest.param("git checkout -- a.txt", "git checkout --", id="edits are thrown away"),
        pytest.param("git stash drop", "git stash drop", id="a stash is dropped"),
        pytest.param("docker push x", "docker push", id="published"),
        pytest.param("npm publish", "npm publish", id="a package"),
        pytest.param("kubectl delete pod x", "kubectl delete", id="of a cluster"),
        pytest.param("terraform destroy", "terraform destroy", id="all of it"),
        pytest.param("scp a b:", "scp", id="to another machine"),
    ],
)
def test_harmful_commands(command: str, what: str) -> None:
    """One row a command that is named first, by what makes it harmful."""
    assert ((what, 1, 1),) == counted(("Bash", command)).made
    assert is_harmful(what)


@pytest.mark.parametrize(
    "what", ["Edit", "git add", "git commit", "git checkout", "git stash", "cp", "mkdir", "> a.txt"]
)
def test_ordinary_changes(what: str) -> None:
    """What only edits files of the project is not named before the rest."""
    assert not is_harmful(what)


def test_files_written_by_redirection_are_one_group() -> None:
    """A file name each would push out every verb: they are counted together, each file once."""
    writes = [("Bash", f"echo x > {name}.txt") for name in "abcdefgh"] * 2
    assert "1 git push, 2 Edit, 8 files written by redirection" == str(
        counted(*writes, ("Edit", ""), ("Edit", ""), ("Bash", "git push"))
    )
    assert "1 file written by redirection" == str(counted(("Bash", "echo x > a")))


@given(
    calls=st.lists(
        st.sampled_from(["git push", "rm x", "cp a b", "echo x > a", "touch a", "mv a b", "tee a", "ln a b", "sed -i s a", "mkdir a"]),
        max_size=40,
    )
)  # fmt: skip
def test_no_harm_is_lost(calls: list[str]) -> None:
    """Every harmful verb of a run is in its line with its full number, before every other."""
    made = counted(*(("Bash", each) for each in calls))
    harm = {each: calls.count(each) for each in calls if each in ("git push", "rm x")}
    line = str(made)
    assert all(
        f"{number} {each.removesuffix(' x')}" in line.split(", ")[: len(harm)]
        for each, number in harm.items()
    )
    assert len(harm) == made.harmful


@pytest.mark.parametrize(
    ("session", "line"),
    [
        pytest.param("permission-prompt-aborted", "nothing", id="the prompt was aborted"),
        pytest.param("interrupted", "not known to have run", id="rejected, or stopped while it ran"),
    ],
)
def test_rejected_calls_of_a_session(
    session: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a user rejected in a real session is no change of its run."""
    source, store = SESSIONS / f"{session}.jsonl.zst", str(tmp_path / "runs.db")
    assert 0 == main(["import", str(source), "--store", store])
    capsys.readouterr()
    assert 0 == main(["show", "@last", "--store", store])
    [changed] = [each for each in capsys.readouterr().out.splitlines() if each.startswith("changed")]
    print(changed)
    assert line in changed
