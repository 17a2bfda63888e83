"""An imported session as an operator on call looks at it first: `show`, `grep`, `ls` and the ticket say who
and when.
"""

import json
from pathlib import Path

import pytest

from console.conftest import Refold
from replay.test_environment import session


@pytest.fixture
def imported(refold: Refold, tmp_path: Path) -> Path:
    """The store with the session."""
    store = tmp_path / "runs.db"
    assert 0 == refold("import", session(tmp_path), "--store", store).code
    return store


def test_show_begins_with_who_and_when(refold: Refold, imported: Path) -> None:
    """The header has the times in UTC, and each value of directory, branch and permission mode with the event
    from which it held.
    """
    lines = [" ".join(line.split()) for line in refold("show", "@last", "--store", imported).out.splitlines()]
    told = json.loads(refold("show", "@last", "-o", "json", "--store", imported).out)["environment"]
    sub, bypass = told["cwd"][1]["seq"], told["permission_mode"][1]["seq"]
    for expected in (
        "when 2026-02-11 18:24:00 to 18:47:00 UTC",
        f"cwd /srv/app, /srv/app/sub from e{sub}",
        "branch main",
        f"permission mode default, bypassPermissions from e{bypass}",
        "client claude-code",
        "version 2.1.0",
    ):
        assert expected in lines
    assert "changed 1 git push" in lines


def test_grep_says_when(refold: Refold, imported: Path) -> None:
    """A line has the instant in UTC behind its address, a document of JSON as ISO 8601 and in nanoseconds."""
    line = refold("grep", "kind:run_started", "--store", imported).out.splitlines()[0]
    assert ["2026-02-11", "18:24:00", "UTC"] == line.split()[1:4]
    found = json.loads(
        refold("grep", "kind:run_started", "-o", "json", "--store", imported).out.splitlines()[0]
    )
    assert ("2026-02-11T18:24:00.000000000Z", 1_770_834_240_000_000_000) == (found["at"], found["at_ns"])


def test_a_changed_permission_mode_is_said_with_its_value(refold: Refold, imported: Path) -> None:
    """Wherever the change of the permission mode is listed, its value is there."""
    found = refold("grep", "name:permission_mode", "--store", imported).out.splitlines()
    assert ['"default":', '"bypassPermissions":'] == [
        next(word for word in line.split() if '"' in word) for line in found
    ]


def test_a_ticket_says_who_and_when(refold: Refold, imported: Path) -> None:
    """The top of the Markdown has the same."""
    head = refold("export", "@last", "--to", "markdown", "--store", imported).out.partition("\n## ")[0]
    assert "- When: `2026-02-11 18:24:00 to 18:47:00 UTC`" in head
    assert "- Branch: `main`" in head
    assert "- Permission mode: `default, bypassPermissions from e" in head


def test_ls_has_it_as_json(refold: Refold, imported: Path) -> None:
    """`ls -o json` has the environment of each run."""
    (run,) = json.loads(refold("ls", "-o", "json", "--store", imported).out)
    assert ["/srv/app", "/srv/app/sub"] == [each["value"] for each in run["environment"]["cwd"]]


def test_what_is_not_recorded_is_said(refold: Refold, tmp_path: Path) -> None:
    """Of an import whose source has no branch and no permission mode, the header says that."""
    rows = [{"type": "user", "uuid": "a", "parentUuid": None, "sessionId": "s", "version": "2", "cwd": "/w",
             "timestamp": "2026-02-11T18:24:00Z", "message": {"role": "user", "content": "Go."}}]  # fmt: skip
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    refold("import", tmp_path / "s.jsonl", "--store", tmp_path / "runs.db")
    out = refold("show", "@last", "--store", tmp_path / "runs.db").out
    assert "not recorded  branch, permission mode" in out
